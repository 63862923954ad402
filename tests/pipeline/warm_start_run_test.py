"""Fine-tuning that begins with texts which are no records: what is read, charged, told and refused."""

import json
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from models.privacy.report import PrivacyReport
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.methods import earlier
from pipeline.methods.fine_tune import plan, released
from pipeline.run import identity
from pipeline.settings.job_config import JobConfig
from tests.launched import launch, report_of
from tests.models.finetuning import tiny
from tests.samples import write_rows
from transforms import run_files

pytestmark = pytest.mark.run
ROWS = [{'text': f'{"ab"[number % 2] * 3} {number}', 'label': 'ab'[number % 2]} for number in range(30)]
PUBLIC = [{'text': f'{"ab"[number % 2] * 4}', 'label': 'ab'[number % 2]} for number in range(6)]


@pytest.fixture(autouse=True)
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    write_rows(tmp_path / 'in.jsonl', ROWS)
    write_rows(tmp_path / 'public.jsonl', PUBLIC)
    return tmp_path


def config(folder: pathlib.Path, **changed: Any) -> JobConfig:
    given = {
        'method': 'fine-tune', 'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'),
        'label_field': 'label', 'labels': ('a', 'b'), 'records': 30, 'delta': 1e-2, 'epsilon': 2.0,
        'tuning_steps': 2, 'expected_batch_size': 6, 'lora_rank': 2, 'micro_batch_size': 4,
        'max_prompt_tokens': 24, 'max_example_tokens': 10, 'examples_per_label': 3, 'model': 'tiny',
        'prompt': 'pretrained', 'regex': '[ab]{2,4}', 'shards': 1,
        'warm_start': str(folder / 'public.jsonl'), 'warm_steps': 2,
    }  # fmt: skip
    return job_config(**(given | changed))


def sampled(folder: pathlib.Path, of: str, to: str) -> PrivacyReport:
    given = job_config(
        adapter=str(folder / of), method='fine-tune', model='tiny', output=str(folder / to),
        examples_per_label=2, micro_batch_size=4,
    )  # fmt: skip
    launch(given, [])
    return report_of(folder / to)


def test_public_texts_cost_nothing_and_are_what_the_curator_vouches_for(folder: pathlib.Path) -> None:
    run, without = config(folder), config(folder, warm_start=None, warm_steps=50)
    assert methods.solve(run).cost == methods.solve(without).cost
    launch(run, [])
    report, card = report_of(folder / 'out'), released.read_card(str(folder / 'out'))
    said = 'The texts of the warm start are public'
    assert any(said in line for line in report.assumptions_of_curator)
    assert (report.settings['warm_steps'], report.settings['warm_learning_rate']) == (2, 0.01 / 3)
    assert 'warm_start' not in report.settings
    assert 'public.jsonl' not in report.to_json()
    assert (card.warm_texts, card.warm_vouched, card.releases) == (6, True, ())
    # Texts that are sampled later are of the same adapter, and say the same.
    assert any(said in line for line in sampled(folder, 'out', 'more').assumptions_of_curator)


def test_a_release_of_the_same_records_is_charged_before_and_both_costs_add_up(folder: pathlib.Path) -> None:
    Ledger.create(str(folder / 'ledger.db')).add_dataset('fruit', unit='example', delta=1e-2, epsilon=20.0)
    charged = {'dataset': 'fruit', 'ledger': str(folder / 'ledger.db')}
    cold = config(folder, output=str(folder / 'first'), warm_start=None, warm_steps=50, **charged)
    launch(cold, [])
    report, card = report_of(folder / 'first'), released.read_card(str(folder / 'first'))
    assert 'warm_steps' not in report.settings and (card.warm_texts, card.warm_vouched, card.releases) == (
        0,
        False,
        (),
    )
    assert 'warm start' not in report.to_json()
    launch(config(folder, warm_start=str(folder / 'first'), **charged), [])
    runs = Ledger.open(str(folder / 'ledger.db')).account('fruit').runs
    assert [run.run_id for run in runs] == ['first', 'out']
    report, card = report_of(folder / 'out'), released.read_card(str(folder / 'out'))
    later = "The warm start is the corpus that the run 'first' released"
    assert any(later in line for line in report.assumptions_enforced)
    assert any("'first' went in. The ledger charged it" in line for line in report.assumptions_enforced)
    assert [release.run_id for release in card.releases] == ['first']
    own, first = card.epsilon_of_run, card.releases[0].epsilon
    assert max(own, first) < card.epsilon == report.epsilon < own + first
    more = sampled(folder, 'out', 'more')
    assert any(later in line for line in more.assumptions_enforced)
    assert [(of.run_id, of.through) for of in more.releases] == [('out', None), ('first', 'out')]
    assert more.epsilon == card.epsilon
    # A run that begins with these samples has both, with and without the card beside them.
    for name in ('with', 'without'):
        copied = folder / name
        shutil.copytree(folder / 'more', copied)
        if name == 'without':
            (copied / run_files.SAMPLED_ADAPTER).unlink()
        found = earlier.origin_of_texts(str(copied), 'start').releases
        assert [(of.run_id, of.sampled_by, of.dataset) for of in found] == [
            ('out', 'more', 'fruit'), ('first', None, 'fruit'),
        ]  # fmt: skip
    # Under a ledger that never charged it, it is refused; without one the report says what is not covered.
    Ledger.create(str(folder / 'new.db')).add_dataset('fruit', unit='example', delta=1e-2, epsilon=20.0)
    other = config(
        folder, output=str(folder / 'other'), warm_start=str(folder / 'first'), dataset='fruit',
        ledger=str(folder / 'new.db'),
    )  # fmt: skip
    with pytest.raises(ValueError, match='whose charge the ledger holds, got warm_start='):
        launch(other, [])
    launch(config(folder, output=str(folder / 'none'), warm_start=str(folder / 'first')), [])
    alone = report_of(folder / 'none')
    assert any("the run 'first' (fine-tuning; ε = " in line for line in alone.data_accesses)
    assert any("counts the run 'first' too" in line for line in alone.assumptions_of_curator)
    assert (alone.epsilon or 0.0) > (alone.epsilon_of_run or 0.0)


def test_other_texts_are_another_run_and_a_plan_says_the_steps(folder: pathlib.Path) -> None:
    run = config(folder)
    before = identity.fingerprint(methods.solve(run, launch=True))
    write_rows(folder / 'public.jsonl', PUBLIC[:4])
    after = identity.fingerprint(methods.solve(run, launch=True))
    assert {name for name in before if before[name] != after[name]} == {'model'}
    found = plan.plan_run(methods.solve(run))
    assert (
        found.warm_steps == 2 and ('Warm start', '2 steps on texts that are no records, free') in found.rows()
    )
    assert json.loads(found.to_json())['warm_steps'] == 2


@pytest.mark.parametrize(
    'rows, said',
    [
        ([*PUBLIC, {'text': 'ccc', 'label': 'c'}], 'a label of the run, got warm_start file=.*row=6'),
        ([*PUBLIC, {'text': 'ccc'}], 'a label of the run, got warm_start file=.*row=6'),
        ([], 'Expected texts in warm_start='),
    ],
)  # fmt: skip
def test_texts_of_other_labels_are_refused(
    folder: pathlib.Path, rows: list[dict[str, str]], said: str
) -> None:
    write_rows(folder / 'public.jsonl', rows)
    with pytest.raises(ValueError, match=said):
        launch(config(folder), [])
    assert not (folder / 'out').exists()


def test_records_are_no_warm_start_and_a_release_of_other_labels_is_none(folder: pathlib.Path) -> None:
    with pytest.raises(ValueError, match='which --input names'):
        launch(config(folder, warm_start=str(folder / 'in.jsonl')), [])
    launch(config(folder, output=str(folder / 'first')), [])
    with pytest.raises(ValueError, match=r"with label='a', labels=\['b', 'c'\]"):
        launch(config(folder, warm_start=str(folder / 'first'), labels=('b', 'c')), [])
    with pytest.raises(
        ValueError, match='Expected warm_steps with warm_start only, got warm_steps=3, warm_start=None'
    ):
        config(folder, warm_start=None, warm_steps=3)
    with pytest.raises(ValueError, match='warm_learning_rate with warm_start only'):
        config(folder, warm_start=None, warm_steps=50, warm_learning_rate=0.1)
    adapter = {'adapter': str(folder / 'first'), 'method': 'fine-tune', 'model': 'tiny', 'output': 'x'}
    with pytest.raises(ValueError, match='Expected no warm_start .*nothing is trained'):
        methods.solve(job_config(**adapter, warm_start=str(folder / 'public.jsonl')))
