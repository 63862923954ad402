"""Runs with a reference: from their own first round, of a file, of an earlier release.

With the bundled model, in small. A stop text that comes early makes examples that are complete.
"""

import collections
import dataclasses
import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from models import batching
from models.batch_plan import BatchPlan
from models.generate.batch import BatchGenerator
from models.privacy.accounting import epsilon_from_rho
from models.privacy.randomness import RunKey
from models.privacy.report import PrivacyReport, RestrictedReport
from models.records import Batch, Record, SyntheticExample
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.methods.predict.reference import read_reference
from pipeline.run import folders
from pipeline.settings.job_config import JobConfig
from tests import oracles
from tests.launched import launch
from tests.one_model import one_model
from tests.samples import SECRET, needs_model
from transforms import run_files
from transforms.durable import RUN_KEY

pytestmark = [needs_model, pytest.mark.run]

LABELS = ('Billing', 'Delivery')
TEMPLATE = """
private = "{examples}\\n{label}\\n"
example = "{label}\\n{text}\\n"
public = "{label}\\n"
stop = [".", ",", " of", " in", " was", " and", " the"]
"""
Row = dict[str, str]
# (batch id, reference) of every batch that was decoded.
Decoded = dict[str, tuple[str, ...]]


def some_rows() -> list[Row]:
    return [
        {
            'id': str(index),
            'text': f'Message {index} on parcel {index * 7919 % 1000}.',
            'label': LABELS[index % 2],
        }
        for index in range(40)
    ]


def config(folder: pathlib.Path, rows: list[Row] | None = None, **settings: Any) -> JobConfig:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'prompt.toml').write_text(TEMPLATE)
    rows = some_rows() if rows is None else rows
    (folder / 'in.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    small = {
        'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'), 'run_id': 'run',
        'label_field': 'label', 'labels': LABELS, 'record_id_field': 'id',
        'prompt': str(folder / 'prompt.toml'),
        'batches_per_label': 3, 'batch_size': 8, 'accounting': 'worst-case',
        'max_private_tokens': 96, 'delta': 1e-3,
        'max_prompt_tokens': 64, 'max_example_tokens': 16, 'micro_batch_size': 32, 'shards': 2,
        'aggregate': 'difference', 'public_top_k': 64, 'reference_size': 2,
    }  # fmt: skip
    return job_config(**(small | settings))


def work_dir(run: JobConfig) -> pathlib.Path:
    return pathlib.Path(run.output.curator)


def prepared(run: JobConfig) -> JobConfig:
    """Gives a run the tests' key, so that it always writes the same; in the field no two runs share one."""
    folders.prepare(methods.solve(run, launch=True))
    (work_dir(run) / RUN_KEY).unlink()
    RunKey(SECRET).write(work_dir(run) / RUN_KEY)
    return run


def batches(run: JobConfig) -> dict[str, bytes]:
    return {path.stem: path.read_bytes() for path in sorted((work_dir(run) / 'batches').iterdir())}


def examples(run: JobConfig, names: set[str]) -> list[SyntheticExample]:
    finished = batches(run)
    return [SyntheticExample(**row) for name in sorted(names) for row in json.loads(finished[name])]


def plan_of(run: JobConfig) -> BatchPlan:
    return BatchPlan.from_json((work_dir(run) / run_files.PLAN).read_text())


def first_names(run: JobConfig) -> set[str]:
    return {str(name) for name in oracles.first_round(plan_of(run))}


def released(run: JobConfig) -> list[list[str]]:
    """The reference that the run wrote down, by group."""
    found: list[list[str]] = json.loads((work_dir(run) / run_files.REFERENCE).read_text())['texts_by_group']
    return found


def batch_of(row: Row, run: JobConfig) -> str:
    record = Record(text=row['text'], label=row['label'], record_id=row['id'])
    placed = batching.place(RunKey.read(work_dir(run) / RUN_KEY), record, plan_of(run))
    assert placed is not None
    return str(placed[0])


def report_of(run: JobConfig) -> PrivacyReport:
    return PrivacyReport.from_json(pathlib.Path(str(run.output.output), run_files.REPORT).read_text())


def shared_of(run: JobConfig) -> int | None:
    report = RestrictedReport.from_json((work_dir(run) / run_files.RESTRICTED_REPORT).read_text())
    return report.records_in_reference


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Decoded:
    """Every batch that is decoded while a test runs, with its reference; decoded as it would be."""
    seen: Decoded = {}
    real = BatchGenerator.generate

    def generate(
        generator: BatchGenerator, batch: Batch, key: RunKey, reference: tuple[str, ...] = ()
    ) -> Any:
        seen[str(batch.batch_id)] = reference
        return real(generator, batch, key, reference)

    monkeypatch.setattr(BatchGenerator, 'generate', generate)
    return seen


@pytest.fixture(scope='module')
def first(tmp_path_factory: pytest.TempPathFactory) -> JobConfig:
    """A finished run in two rounds, as the difference has by default."""
    run = prepared(config(tmp_path_factory.mktemp('first')))
    launch(run, [])
    return run


# --- Rounds ----------------------------------------------------------------------


def test_what_the_first_round_releases_is_the_reference_of_the_others(
    tmp_path: pathlib.Path, first: JobConfig, decoded: Decoded
) -> None:
    run = prepared(config(tmp_path))
    launch(run, [])
    assert batches(run) == batches(first) and decoded.keys() == batches(run).keys()
    texts = oracles.released_texts(examples(run, first_names(run)), plan_of(run), 2)
    assert all(texts), 'the first round completed nothing: the test would show nothing'
    assert released(run) == texts
    for name, reference in decoded.items():
        expected = () if name in first_names(run) else tuple(texts[int(name[:4])])
        assert reference == expected
    assert len(first_names(run)) == 2 and len(decoded) == 6


def test_a_reference_changes_what_is_written(tmp_path: pathlib.Path, first: JobConfig) -> None:
    """Were it ignored, every test here would pass."""
    run = prepared(config(tmp_path, reference_rounds=1))
    launch(run, [])
    same = {name for name, data in batches(run).items() if batches(first)[name] == data}
    assert same == first_names(first)
    assert not (work_dir(run) / run_files.REFERENCE).exists()


def test_a_record_of_the_second_round_changes_its_own_batch_alone(
    tmp_path: pathlib.Path, first: JobConfig
) -> None:
    gone = next(row for row in some_rows() if batch_of(row, first) not in first_names(first))
    run = prepared(config(tmp_path, rows=[row for row in some_rows() if row != gone]))
    launch(run, [])
    changed = {name for name, data in batches(run).items() if batches(first)[name] != data}
    assert changed <= {batch_of(gone, first)}
    assert released(run) == released(first)


def test_records_of_the_first_round_change_others_through_its_text_alone(
    tmp_path: pathlib.Path, first: JobConfig, decoded: Decoded
) -> None:
    of_first = [row for row in some_rows() if batch_of(row, first) in first_names(first)]
    rest = [row for row in some_rows() if row not in of_first]
    assert of_first and rest
    # Other records in the first round, which releases the same text: nothing else changes.
    run = prepared(config(tmp_path / 'same', rows=rest))
    for name in first_names(first):
        shutil.copy2(work_dir(first) / 'batches' / f'{name}.json', work_dir(run) / 'batches')
    launch(run, [])
    assert decoded.keys() == batches(first).keys() - first_names(first)
    assert batches(run) == batches(first)
    # And which releases other text of one label: the batches of this label change, through the reference.
    decoded.clear()
    other = prepared(config(tmp_path / 'other', rows=rest))
    (changed, kept) = sorted(first_names(first))
    shutil.copy2(work_dir(first) / 'batches' / f'{kept}.json', work_dir(other) / 'batches')
    row = dataclasses.asdict(examples(first, {changed})[0])
    texts = [row | {'text': f'Other released text {index}.', 'truncated': False} for index in range(2)]
    (work_dir(other) / 'batches' / f'{changed}.json').write_text(json.dumps(texts))
    launch(other, [])
    assert released(other)[0] == oracles.pick_texts([text['text'] for text in texts], 2) != released(first)[0]
    assert released(other)[1] == released(first)[1]
    differing = {name for name, data in batches(other).items() if batches(first)[name] != data}
    assert differing and all(name.startswith(changed[:4]) for name in differing)


def test_a_run_that_died_between_the_rounds_goes_on_to_the_same_corpus(
    tmp_path: pathlib.Path, first: JobConfig, decoded: Decoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(config(tmp_path))
    real = BatchGenerator.generate

    def die(generator: BatchGenerator, batch: Batch, key: RunKey, reference: tuple[str, ...] = ()) -> Any:
        if str(batch.batch_id) not in first_names(run):
            raise MemoryError
        return real(generator, batch, key, reference)

    with monkeypatch.context() as patch:
        patch.setattr(BatchGenerator, 'generate', die)
        with pytest.raises(RuntimeError, match="step='Generate/Decode'.*got error=MemoryError"):
            launch(run, [])
    assert batches(run).keys() == first_names(run)
    assert released(run) == released(first)
    decoded.clear()
    launch(run, [])
    assert decoded.keys() == batches(run).keys() - first_names(run)
    assert batches(run) == batches(first)


def test_another_reference_than_the_first_rounds_is_refused(tmp_path: pathlib.Path, first: JobConfig) -> None:
    run = prepared(config(tmp_path))
    for name in first_names(first):
        shutil.copy2(work_dir(first) / 'batches' / f'{name}.json', work_dir(run) / 'batches')
    (work_dir(run) / run_files.REFERENCE).write_text('{"texts_by_group": [["Planted."], []]}')
    with pytest.raises(RuntimeError, match="step='Generate/KeepReference'.*or start a new run"):
        launch(run, [])
    assert batches(run).keys() == first_names(run)


@pytest.mark.parametrize(
    'settings',
    [
        {'batches_per_label': None, 'count_rho': 0.5},
        {'batches_per_label': None, 'clusters': 2, 'clustering_rho': 50.0, 'batch_size': 4},
        {'label_field': None, 'labels': ()},
        {'batches_per_label': 1},
        {
            'accounting': 'individual',
            'max_private_tokens': None,
            'max_batch_tokens': 64,
            'context_budget': 2.0,
        },
    ],
    ids=['noisy counts', 'clusters', 'no labels', 'one batch of each label', 'individual accounting'],
)
def test_rounds_of_other_plans(tmp_path: pathlib.Path, decoded: Decoded, settings: dict[str, Any]) -> None:
    run = prepared(config(tmp_path, **settings))
    launch(run, [])
    plan, names = plan_of(run), first_names(run)
    assert batches(run).keys() == {str(name) for name in plan.batch_ids()} == decoded.keys()
    texts = oracles.released_texts(examples(run, names), plan, 2)
    assert released(run) == texts
    for name, reference in decoded.items():
        assert reference == (() if name in names else tuple(texts[int(name[:4])]))
    by_label = collections.Counter(plan.group_labels[int(name[:4])] for name in names)
    assert by_label.keys() == set(plan.labels)


def test_the_report_says_that_the_reference_is_released_text(first: JobConfig) -> None:
    found = report_of(first)
    assert any('The reference is text that this run releases' in row for row in found.assumptions_enforced)
    assert not any('reference' in row for row in found.assumptions_of_curator)
    settings = {name: value for name, value in found.settings.items() if name.startswith('reference')}
    assert settings == {
        'reference': 'the first round', 'reference_label_field': None, 'reference_size': 2,
        'reference_rounds': 2,
    }  # fmt: skip
    assert shared_of(first) is None


# --- Texts of the curator --------------------------------------------------------


def test_texts_of_a_file_are_the_reference_of_every_batch(tmp_path: pathlib.Path, decoded: Decoded) -> None:
    rows = some_rows()
    public = [f'A public message {index}.' for index in range(6)]
    # One record twice, and two rows of the file in the records.
    picked = oracles.pick_texts(public, 4)
    rows[3]['text'] = rows[4]['text'] = picked[0]
    rows[5]['text'] = picked[2]
    left_out = next(text for text in public if text not in picked)
    rows[6]['text'] = left_out
    (tmp_path / 'public.jsonl').write_text(''.join(json.dumps({'text': text}) + '\n' for text in public))
    run = config(tmp_path, rows=rows, reference=str(tmp_path / 'public.jsonl'), reference_size=4)
    launch(run, [])
    assert len(decoded) == 6 and set(decoded.values()) == {tuple(picked)}
    assert not (work_dir(run) / run_files.REFERENCE).exists()
    assert shared_of(run) == 3, 'records whose text the model is shown as a reference'
    found, reference = report_of(run), read_reference(run)
    assert reference is not None
    (row,) = (row for row in found.assumptions_of_curator if 'reference' in row)
    assert row.startswith(
        f"The reference's texts (4 of each label, SHA-256 {reference.digest}) are public and were chosen "
        "without a look at the records. That is the curator's word"
    )
    assert found.settings['reference'] == 'given by the curator' and found.settings['reference_rounds'] == 1
    for path in pathlib.Path(str(run.output.output)).glob('*.*'):
        assert 'public.jsonl' not in path.read_text()


def test_an_earlier_release_is_the_reference_of_a_later_run(
    tmp_path: pathlib.Path, first: JobConfig, decoded: Decoded
) -> None:
    run = prepared(config(tmp_path, run_id='later', reference=str(first.output.output)))
    launch(run, [])
    complete = [one for one in examples(first, set(batches(first))) if not one.truncated]
    for name, reference in decoded.items():
        label = LABELS[int(name[:4])]
        of_label = [
            one.text
            for one in complete
            if one.label == label and one.text.strip() and one.private_tokens + one.public_tokens >= 8
        ]
        assert list(reference) == oracles.pick_texts(of_label, 2) and len(reference) == 2
    (row,) = (row for row in report_of(run).assumptions_enforced if 'reference' in row)
    assert "the corpus of run 'run', which is differentially private itself" in row
    (row,) = (row for row in report_of(run).assumptions_of_curator if 'counts the run' in row)
    assert 'it was charged to no ledger, this run to no ledger' in row
    found = report_of(run)
    rho = (found.rho_total or 0.0) + (report_of(first).rho_total or 0.0)
    assert found.epsilon == pytest.approx(epsilon_from_rho(rho, found.delta), rel=1e-9)
    assert shared_of(run) == 0


def test_an_earlier_release_that_the_ledger_charged_is_post_processing(tmp_path: pathlib.Path) -> None:
    """And one that says so of a ledger that did not is refused before anything is charged or written."""
    where, other = str(tmp_path / 'ledger.db'), str(tmp_path / 'other.db')
    for path in (where, other):
        Ledger.create(path).add_dataset('messages', unit='example', delta=1e-3, rho=50.0)
    charged = {'dataset': 'messages', 'ledger': where}
    earlier = prepared(config(tmp_path / 'earlier', run_id='earlier', **charged))
    launch(earlier, [])
    run = config(tmp_path / 'later', run_id='later', reference=str(earlier.output.output), **charged)
    elsewhere = run.replace(ledger=other)
    with pytest.raises(ValueError, match='whose charge the ledger holds'):
        launch(elsewhere, [])
    assert not work_dir(run).exists() and not Ledger.open(other).account('messages').runs
    launch(run, [])
    said = ' '.join(report_of(run).assumptions_enforced)
    assert "of the corpus of run 'earlier'" in said and 'they are post-processing of it' in said
    assert "The run 'earlier' went in. The ledger charged it before this run, as run 1 on dataset" in said
    # A resumption asks again.
    launch(run, [])
