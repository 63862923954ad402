"""Runs whose mix of labels is counted with noise: one draw, one price, the same mix for whoever samples."""

import collections
import contextlib
import dataclasses
import io
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import rich.console

from models.finetuning import label_mix, train
from models.finetuning.adapter import AdapterCard
from models.privacy import counts
from models.privacy.accounting import (
    DiscreteGaussianDpEvent,
    RunCost,
    ZCDpEvent,
    curve_of,
    gaussian_rho,
    subsampled,
)
from models.privacy.grid import NoiseSource
from models.privacy.report import GaussianLedgerEntry, MixedLedgerEntry
from models.privacy.report.composition import epsilon_alone
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.methods import earlier
from pipeline.methods.fine_tune import plan, released
from pipeline.methods.fine_tune.run import stages
from pipeline.pages import plan_terminal
from pipeline.run import charge, folders
from pipeline.settings.job_config import JobConfig
from tests.launched import launch, report_of, rows_of
from tests.models.finetuning import tiny
from tests.models.privacy.report import samples
from tests.pipeline import fine_tune_run_test as runs
from transforms import run_files

pytestmark = pytest.mark.run
ROWS = [
    {'text': f'{"ab"[number % 5 == 0] * 3} {number}', 'label': 'ab'[number % 5 == 0], 'id': str(number)}
    for number in range(30)
]
RHO = 0.5


@pytest.fixture(autouse=True)
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / 'in.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in ROWS), encoding='utf-8')
    ledger = Ledger.create(str(tmp_path / 'ledger.db'))
    ledger.add_dataset('fruit', unit='example', delta=1e-2, epsilon=30.0)
    return tmp_path


def config(folder: pathlib.Path, **changed: Any) -> JobConfig:
    return runs.config(folder, **({'label_mix_rho': RHO, 'tuning_steps': 2, 'epsilon': 6.0} | changed))


def charged(folder: pathlib.Path, **changed: Any) -> JobConfig:
    return config(folder, dataset='fruit', ledger=str(folder / 'ledger.db'), **changed)


def texts_of(output: pathlib.Path) -> tuple[int, ...]:
    found = collections.Counter(row['label'] for row in rows_of(output))
    return found['a'], found['b']


def released_counts(output: pathlib.Path) -> tuple[int, ...]:
    return tuple(group.noisy_count or 0 for group in report_of(output).plan)


def of_adapter(folder: pathlib.Path, name: str, output: str, **changed: Any) -> JobConfig:
    given = {'method': 'fine-tune', 'model': 'tiny', 'examples_per_label': 10, 'micro_batch_size': 4}
    given |= {'adapter': str(folder / name), 'output': str(folder / output)} | changed
    return job_config(**given)


@pytest.mark.first
def test_counts_and_training_are_charged_together_and_the_mix_is_free_from_then_on(
    folder: pathlib.Path,
) -> None:
    run = charged(folder)
    params = methods.solve(run).params
    launch(run, [])
    # One charge, of both stages, before anything
    ledger = Ledger.open(str(folder / 'ledger.db'))
    (of_run,) = ledger.account('fruit').runs
    stages = of_run.cost.stages
    assert stages['noisy_counts'] == DiscreteGaussianDpEvent(sigma=counts.gaussian_scale(RHO))
    assert stages['fine-tuning'] == params.event_of_steps
    assert of_run.cost == methods.solve(run).cost
    assert of_run.rho == pytest.approx(curve_of(params.event).rho_at(of_run.renyi_order), rel=1e-12)
    steps_alone = curve_of(params.event_of_steps).rho_at(of_run.renyi_order)
    assert of_run.rho == pytest.approx(steps_alone + RHO, rel=1e-12)
    # The report: ε of both
    report, output = report_of(folder / 'out'), folder / 'out'
    assert report.epsilon == subsampled.epsilon_of_event(params.event, 1e-2)
    assert subsampled.epsilon_of_event(params.event_of_steps, 1e-2) < 0.9 * report.epsilon <= 0.9 * 6.0
    assert [stage.name for stage in report.stages] == ['Noisy counts', 'Fine-tuning']
    assert [stage.rho for stage in report.stages] == [RHO, None] and report.rho_total is None
    assert report.method.mechanism.label_mix_rho == RHO and 'label_mix' not in report.settings
    assert isinstance(report.ledger, MixedLedgerEntry)
    assert 'discrete Gaussian noise on the counts of labels' in report.accounting
    assert any('follows from the released noisy counts' in row for row in report.assumptions_enforced)
    assert not any("labels' shares of the texts were given" in row for row in report.assumptions_of_curator)
    # It prints its ε again.
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(report.reproduction, {})
    assert printed.getvalue() == f'epsilon = {report.epsilon:.10g}\n'
    # The texts
    noisy = released_counts(output)
    assert texts_of(output) == label_mix.texts_of_counts(12, noisy)
    # The true counts, 24 and 6, are the curator's alone.
    restricted = runs.restricted_of(output)
    assert [group['true_count'] for group in restricted['true_counts_by_group']] == [24, 6]
    for name in (run_files.REPORT_PAGE, run_files.CARD):
        assert f'{noisy[0]:,}' in (output / name).read_text()
    # A report with another price of the counts, or without their stage, contradicts itself.
    for changed in (
        *(
            {
                'method': dataclasses.replace(
                    report.method, mechanism=dataclasses.replace(params, label_mix_rho=rho)
                )
            }
            for rho in (RHO / 2, None)
        ),
        {'stages': report.stages[1:]},
    ):
        with pytest.raises(ValueError, match='Expected'):
            dataclasses.replace(report, **changed)
    # A later run has the mix for free, or asks for another.
    card = released.read_card(str(output))
    assert card.label_counts == noisy and card.epsilon == report.epsilon
    (folder / 'in.jsonl').unlink()
    launch(of_adapter(folder, 'out', 'more'), [])
    assert texts_of(folder / 'more') == label_mix.texts_of_counts(20, noisy)
    more = report_of(folder / 'more')
    assert more.epsilon == report.epsilon and released_counts(folder / 'more') == noisy
    assert any('follows from the released noisy counts' in row for row in more.assumptions_enforced)
    launch(of_adapter(folder, 'out', 'other', label_mix=('a=1', 'b=4')), [])
    assert texts_of(folder / 'other') == (4, 16)
    other = report_of(folder / 'other')
    assert other.epsilon == report.epsilon and other.settings['label_mix'] == 'a=1, b=4'
    assert all(group.noisy_count is None for group in other.plan)
    assert not any('follows from the released noisy counts' in row for row in other.assumptions_enforced)
    assert len(ledger.account('fruit').runs) == 1
    with pytest.raises(ValueError, match='Expected no label_mix_rho .* no record is read'):
        methods.solve(of_adapter(folder, 'out', 'third', label_mix_rho=0.1))


def test_a_run_that_was_killed_has_the_mix_that_it_drew(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, work_dir = config(folder, tuning_steps=3), folder / 'out.curator'
    step, draw, drawn, planned = train.Trainer.step, counts.noisy_counts, [], []

    def counting(true_counts: Any, rho: float, source: NoiseSource) -> list[int]:
        drawn.append(draw(true_counts, rho, source))
        return drawn[-1]

    def dies_twice(self: train.Trainer, state: Any, *rest: Any) -> Any:
        planned.append((work_dir / run_files.PLAN).exists())
        if len(planned) in (1, 3):
            raise MemoryError('a record of 30')
        return step(self, state, *rest)

    monkeypatch.setattr(counts, 'noisy_counts', counting)
    monkeypatch.setattr(train.Trainer, 'step', dies_twice)
    monkeypatch.setattr(train, 'CHECKPOINT_STEPS', 1)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            launch(run, [])
    # A plan that is lost once there is a step is restored, and not drawn again.
    kept = (work_dir / run_files.PLAN).rename(work_dir / 'kept')
    with pytest.raises(FileNotFoundError, match='got no plan.json'):
        launch(run, [])
    kept.rename(work_dir / run_files.PLAN)
    launch(run, [])
    # Drawn once, and before the first step.
    assert all(planned) and len(drawn) == 1
    assert released_counts(folder / 'out') == tuple(drawn[0])
    assert texts_of(folder / 'out') == label_mix.texts_of_counts(12, drawn[0])
    # Another price is another run.
    with pytest.raises(FileExistsError, match='--label-mix-rho was 0.5 and is 0.25'):
        folders.check(methods.solve(config(folder, tuning_steps=3, label_mix_rho=0.25), launch=True))


def test_a_card_without_its_counts_or_their_price_is_refused(folder: pathlib.Path) -> None:
    launch(config(folder, examples_per_label=0, shards=None), [])
    text = (folder / 'out' / 'adapter' / 'adapter.json').read_text()
    found, params = json.loads(text), released.read_card(str(folder / 'out')).mechanism
    assert AdapterCard.from_json(text).to_json() == text

    def refused(said: str, **changed: Any) -> None:
        with pytest.raises(ValueError, match=said):
            AdapterCard.from_json(json.dumps(found | changed))

    # An ε of the steps alone, and counts that are said to cost less or nothing.
    alone = subsampled.epsilon_of_event(params.event_of_steps, found['delta'])
    refused('Expected the guarantee that the settings give', epsilon=alone, epsilon_of_run=alone)
    refused('Expected epsilon of the training and of all releases that went in', epsilon=alone)
    for rho in (None, RHO / 2):
        other = found['mechanism'] | {'label_mix_rho': rho}
        refused('Expected the guarantee that the settings give', mechanism=other)
    # Counts that nobody paid for, and none where they were paid for
    refused('where they were paid for, and only there', label_counts=None)
    refused('where they were paid for, and only there', label_counts=[1, 2, 3])
    unpaid = {
        'epsilon': alone,
        'epsilon_of_run': alone,
        'mechanism': found['mechanism'] | {'label_mix_rho': None},
    }
    refused('where they were paid for, and only there', **unpaid)


def test_votes_with_the_adapter_need_a_charge_of_both(folder: pathlib.Path) -> None:
    launch(charged(folder, examples_per_label=0, shards=None), [])
    given: dict[str, Any] = {
        'method': 'predict', 'adapter': str(folder / 'out'), 'model': 'tiny', 'label_field': 'label',
        'labels': ('a', 'b'), 'dataset': 'fruit', 'delta': 1e-2, 'max_private_tokens': 12,
        'accounting': 'worst-case', 'reference_rounds': 1, 'batches_per_label': 1,
    }  # fmt: skip
    votes = job_config(ledger=str(folder / 'ledger.db'), **given)
    charge.check(Ledger.open(votes.budget.ledger), methods.solve(votes, launch=True))
    # The same run in a ledger that was charged for the steps alone.
    card = released.read_card(str(folder / 'out'))
    other = Ledger.create(str(folder / 'other.db'))
    other.add_dataset('fruit', unit='example', delta=1e-2, epsilon=30.0)
    of_steps = dataclasses.replace(
        methods.solve(config(folder)).cost,
        stages={'noisy_counts': ZCDpEvent(rho=0.0), 'fine-tuning': card.mechanism.event_of_steps},
    )
    other.reserve(
        'fruit', run_id=card.run_id, unit='example', cost=of_steps, identity='a' * 64,
        key_commitment='b' * 64,
    )  # fmt: skip
    with pytest.raises(ValueError, match='Expected an adapter whose charge the ledger holds'):
        charge.check(other, methods.solve(votes.replace(ledger=str(folder / 'other.db')), launch=True))


@pytest.mark.parametrize('rho, is_held', [(RHO, True), (RHO / 2, False)])
def test_a_charge_of_an_older_version_has_the_counts_in_zcdp(
    folder: pathlib.Path, rho: float, is_held: bool
) -> None:
    params = methods.solve(config(folder)).params
    older = RunCost(
        stages={'noisy_counts': ZCDpEvent(rho=rho), 'fine-tuning': params.event_of_steps},
    )
    release = samples.earlier('first', tuned=True)
    costs = {'Fine-tuning': params.event}
    release = dataclasses.replace(release, costs=costs, epsilon=epsilon_alone(costs, 1e-6))
    assert earlier.is_charge_of(0.0, older, release) == is_held
    assert earlier.is_charge_of(0.0, RunCost(stages=stages(params)), release)
    of_steps = RunCost(stages={'fine-tuning': params.event_of_steps})
    assert not earlier.is_charge_of(0.0, of_steps, release)


def test_a_filter_of_gaussians_charges_counts_and_training_as_one(folder: pathlib.Path) -> None:
    ledger = Ledger.open(str(folder / 'ledger.db'))
    ledger.add_dataset('kept', unit='example', delta=1e-2, epsilon=30.0, privacy_filter='gaussian')
    run = config(folder, dataset='kept', ledger=str(folder / 'ledger.db'), examples_per_label=0, shards=None)
    launch(run, [])
    account, params = ledger.account('kept'), methods.solve(run).params
    (of_run,) = account.runs
    assert of_run.rho == gaussian_rho([params.event], of_run.failure or 0.0)
    assert sum(account.rho_by_stage(of_run).values()) == pytest.approx(of_run.rho, rel=1e-9)
    report = report_of(folder / 'out')
    assert isinstance(report.ledger, GaussianLedgerEntry) and report.ledger == account.entry(of_run)
    assert 'kept as a Gaussian mechanism at noise multiplier' in report.data_accesses[1]
    # Another charge than the event's is no entry of this run.
    with pytest.raises(ValueError, match='Expected the ledger to have charged what'):
        wrong = dataclasses.replace(
            report.ledger, rho=0.9 * of_run.rho, rho_after=0.9 * of_run.rho, epsilon_after=1.0
        )
        dataclasses.replace(report, ledger=wrong)


def test_a_plan_says_what_the_mix_costs(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan.plan_run(methods.solve(config(folder)))
    without = plan.plan_run(methods.solve(config(folder, label_mix_rho=None)))
    assert found.label_mix_rho == RHO and without.label_mix_rho is None
    # The target is that of both: the steps have to make room.
    assert found.epsilon <= 6.0 and found.noise_multiplier > 1.01 * without.noise_multiplier
    assert found.examples == without.examples == 12
    plan_terminal.render(found.rows(), found.warnings, rich.console.Console())
    shown = ' '.join(capsys.readouterr().out.split())
    assert 'Label mix from noisy counts, ρ = 0.5: discrete Gaussian noise of scale 1 on' in shown
    plan_terminal.render(without.rows(), without.warnings, rich.console.Console())
    assert 'Label mix' not in capsys.readouterr().out
    with pytest.raises(
        ValueError, match='left for the steps, got epsilon=1.0, of which .* Lower --label-mix'
    ):
        plan.plan_run(methods.solve(config(folder, label_mix_rho=2.0, epsilon=1.0)))
    of_noise = plan.plan_run(methods.solve(config(folder, epsilon=None, noise_multiplier=2.0)))
    alone = config(folder, epsilon=None, noise_multiplier=2.0, label_mix_rho=None)
    assert of_noise.epsilon > plan.plan_run(methods.solve(alone)).epsilon
