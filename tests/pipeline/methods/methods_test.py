"""A method is one file and one registration: it goes through the graph, the reports and every command."""

import json
import pathlib
from typing import Any

import pyarrow.parquet as pq
import pytest

from models.privacy import accounting
from pipeline import methods
from pipeline.asked.config import all_settings, job_config, read_config
from pipeline.ledger.ledger import Ledger
from pipeline.settings.job_config import JobConfig
from tests.command_line import Done, in_this_process
from tests.dummies.constant import RHO, Constant, ConstantSettings, registered
from transforms import run_files

# --- The graph -------------------------------------------------------------------


def config(folder: pathlib.Path, **settings: Any) -> JobConfig:
    given = {
        'method': 'constant', 'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'),
        'delta': 1e-3, 'shards': 2,
    }  # fmt: skip
    return job_config(**(given | settings))


@pytest.fixture
def with_records(tmp_path: pathlib.Path) -> pathlib.Path:
    rows = ''.join(
        json.dumps({'text': f'Record {number}.', 'ward': 'AB'[number % 2]}) + '\n' for number in range(9)
    )
    (tmp_path / 'in.jsonl').write_text(rows, encoding='utf-8')
    return tmp_path


# --- The command line ------------------------------------------------------------


@pytest.mark.run
def test_a_method_goes_through_every_command(with_records: pathlib.Path) -> None:
    ledger, output = str(with_records / 'ledger.db'), with_records / 'out'
    Ledger.create(ledger).add_dataset('mottoes', unit='example', delta=1e-3, rho=1.5 * RHO)
    records = ('--input', str(with_records / 'in.jsonl'), '--label-field', 'ward', '--labels', 'A=Surgery,B')
    chosen = ('--method', 'constant', '--motto', 'Carpe diem', '--mottoes', '2', '--delta', '1e-3')
    charged = ('--dataset', 'mottoes', '--ledger', ledger)

    def call(*arguments: str, code: int = 0) -> Done:
        done = in_this_process(*arguments)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    with registered(Constant()):
        shown = ' '.join(call('generate', '--method', 'constant', '--help').stdout.split())
        assert '─ Motto ─' in shown and '--mottoes' in shown and 'What every text says.' in shown
        assert '--batch-size' not in shown and '--tuning-steps' not in shown and '--model' not in shown
        assert 'constant, one motto for each batch' in all_settings()['method'].help

        planned = json.loads(call('plan', *chosen, *records, *charged, '--json').stdout)
        assert (planned['texts'], planned['rho_total']) == (4, RHO) and planned['budget']['fits']
        assert planned['epsilon'] == accounting.epsilon_from_rho(RHO, 1e-3)
        shown = call('plan', *chosen, *records).stdout
        assert 'Mottoes' in shown and '4 mottoes' in shown

        checked = json.loads(call('check', *chosen, *records, '--json').stdout)
        assert (checked['records'], checked['lengths'], checked['batch_size']) == (9, None, 1)
        assert [label['batches'] for label in checked['labels']] == [2, 2]
        shown = call('check', *chosen, *records).stdout
        assert 'A Surgery' in shown and '- Every text will be the same.' in shown

        done = call('generate', *chosen, *records, *charged, '--output', str(output))
        assert 'out: ε = ' in done.stderr and '4 mottoes.' in done.stderr
        assert 'Ledger, mottoes: 1 run' in done.stderr
        assert (output / 'MOTTO.md').is_file()
        again = call('generate', *chosen, *records, *charged, '--output', str(output), '--json')
        assert again.stdout == (output / run_files.REPORT).read_text()
        changed = ('generate', *chosen, '--mottoes', '3', *records, *charged, '--output', str(output))
        assert '--mottoes was 2 and is 3' in call(*changed, code=2).stderr
        over = call('generate', *chosen, *records, *charged, '--output', str(with_records / 'b'), code=3)
        assert 'no token is sampled' in over.stderr

        reported = call('report', str(output)).stdout
        assert 'Votes on texts' in reported and '4 texts' in reported and f'report: {output}' in reported
        assert json.loads(call('report', str(output), '--json').stdout)['settings']['motto'] == 'Carpe diem'

        evaluated = json.loads(call('evaluate', str(output), '--only', 'surface', '--json').stdout)
        assert [(of['role'], of['texts'], of['labels']) for of in evaluated['sources']] == [('corpus', 4, 2)]
        assert [of['measure'] for of in evaluated['corpora'][0]['measures']] == ['surface']
        kept = read_config(str(with_records / 'out.curator' / run_files.CONFIG), {})
        assert kept.method == ConstantSettings(motto='Carpe diem', mottoes=2)
    assert read_table(output) == [('Carpe diem', label, 10) for label in 'AABB']


def read_table(output: pathlib.Path) -> list[tuple[str, str, int]]:
    tables = [pq.read_table(path) for path in sorted((output / run_files.DATA_FOLDER).iterdir())]
    return [(row['text'], row['label'], row['letters']) for table in tables for row in table.to_pylist()]


def test_settings_of_a_method_are_no_others(tmp_path: pathlib.Path) -> None:
    with registered(Constant()):
        for arguments, said in (
            (('--method', 'constant', '--batch-size', '8'), "no batch_size with method='constant'"),
            (('--method', 'constant', '--batch-size', '8'), 'It is a setting of --method predict. Leave it'),
            (
                ('--method', 'constant', '--top-p', '0.5'),
                'It is a setting of --method fine-tune and tune-refine and evolve. Leave it',
            ),
            (
                ('--method', 'constant', '--model', 'gemma3-270m'),
                'a setting of --method predict and fine-tune and tune-refine and evolve and refine. Leave',
            ),
            (('--epsilon', '1', '--motto', 'Carpe diem'), "no motto with method='predict'"),
            (('--epsilon', '1', '--mottoes', '4'), 'It is a setting of --method constant. Leave it out.'),
        ):
            done = in_this_process('plan', '--delta', '1e-3', *arguments)
            assert done.returncode == 2 and said in ' '.join(done.stderr.split())
    for gone in (('--method', 'constant'), ('--mottoes', '2')):
        assert in_this_process('plan', '--delta', '1e-3', '--epsilon', '1', *gone).returncode == 2


def test_an_unknown_method_is_refused_and_a_known_one_checks_itself(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        ValueError,
        match="'predict' or 'fine-tune' or 'tune-refine' or 'evolve' or 'refine' for method, got method='con",
    ):
        config(tmp_path)
    with registered(Constant()):
        with pytest.raises(ValueError, match='shards <= 100'):
            config(tmp_path, shards=101)
        with pytest.raises(ValueError, match='is taken'):
            methods.register(Constant())


def test_the_price_of_private_prediction_is_that_of_its_mechanism() -> None:
    predict = job_config(
        delta=1e-6,
        aggregate='mean',
        max_private_tokens=300,
        clusters=2,
        threshold=0.5,
        threshold_noise_scale=0.2,
    )
    stages = methods.solve(predict).cost.stages
    assert {name: accounting.curve_of(event).rho for name, event in stages.items()} == {
        'noisy_counts': 0.005,
        'generation': accounting.generation_rho(methods.solve(predict).params),
    }
