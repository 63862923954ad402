"""Centres of private records and their ledger: charged before a record is read, and never twice."""

import dataclasses
import json
import pathlib
import shutil
import typing

import numpy as np
import pytest

from models.batch_plan import BatchPlan, Clustering
from models.clustering import centers
from models.privacy import counts, report
from models.privacy.accounting import RunCost
from models.privacy.randomness import RunKey
from pipeline import centers as centers_lib
from pipeline import embedder, methods
from pipeline.config import job_config
from pipeline.ledger import centers_charge
from pipeline.ledger.budget import BudgetExceeded
from pipeline.ledger.ledger import Ledger
from pipeline.methods.predict import plan
from pipeline.run import charge, render
from pipeline.settings.job_config import JobConfig
from tests.samples import SECRET
from transforms.durable import write_key

DELTA = 1e-6
RHO = 0.25
FIELDS = centers_lib.text_fields('text')
SETTINGS = embedder.settings_of('tfidf')


@pytest.fixture
def where(tmp_path: pathlib.Path) -> str:
    """A ledger with the dataset 'visits' of ρ = 1 and one of users."""
    made = Ledger.create(str(tmp_path / 'ledger.db'))
    made.add_dataset('visits', unit='example', delta=DELTA, rho=1.0)
    made.add_dataset('people', unit='user', delta=DELTA, rho=1.0)
    return made.where


@pytest.fixture
def records(tmp_path: pathlib.Path) -> str:
    rows = [{'text': f'A note of {word} number {index}'} for index in range(40) for word in ('ears', 'war')]
    path = tmp_path / 'records.jsonl'
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return str(path)


def fit(where: str, records: str, folder: pathlib.Path, **changes: typing.Any) -> centers.Centers:
    """What `dp-corpus centers --source dp-k-means --dataset --ledger` does, in its order."""
    arguments: dict[str, typing.Any] = {
        'dataset': 'visits', 'ledger': where, 'run_id': None, 'fields': FIELDS, 'settings': SETTINGS,
        'count': 4, 'rho': RHO, 'seed': 0,
    }  # fmt: skip
    arguments |= changes
    reservation = centers_lib.charge_fit(records, folder, **arguments)
    made = centers_lib.make_centers(
        centers_lib.read_texts(records, arguments['fields']), folder, settings=SETTINGS,
        source='dp-k-means', count=arguments['count'], rho=arguments['rho'], seed=0, reservation=reservation,
    )  # fmt: skip
    centers_lib.settle_fit(reservation, where)
    return made


def config(where: str, folder: pathlib.Path, **changes: typing.Any) -> JobConfig:
    arguments: dict[str, typing.Any] = {
        'delta': DELTA, 'aggregate': 'mean', 'epsilon': 5.0, 'dataset': 'visits', 'ledger': where,
        'clusters': 2, 'centers': str(folder), 'run_id': 'first',
    }  # fmt: skip
    return job_config(**(arguments | changes))


def reserve(where: str, run: JobConfig) -> typing.Any:
    """As `charge.reserve`, of a run without folders."""
    opened = Ledger.open(where)
    return opened.reserve(
        str(run.budget.dataset), run_id=run.output.resolved_run_id, unit=run.budget.unit, identity='i',
        key_commitment='k', cost=charge.cost_to_charge(run, opened.account(str(run.budget.dataset))),
    )  # fmt: skip


def centers_run(opened: Ledger, run: JobConfig) -> str | None:
    """The earlier charge that paid for the run's centres."""
    paid = methods.of(run).paid_before(run, opened.account(str(run.budget.dataset)))
    assert paid.keys() <= {'centers'}
    return paid.get('centers')


def test_centres_are_charged_under_a_name_of_their_own(
    where: str, records: str, tmp_path: pathlib.Path
) -> None:
    made = fit(where, records, tmp_path / 'centers-visits')
    (run,) = Ledger.open(where).account('visits').runs
    assert (run.run_id, run.rho, run.state) == ('centers-visits', RHO, 'settled')
    assert run.cost == RunCost.of_rho({'centers': RHO})
    found = centers_charge.CentersCharge.read(tmp_path / 'centers-visits')
    assert found is not None and (found.dataset, found.run_id) == ('visits', 'centers-visits')
    assert RunKey(bytes.fromhex(found.opening)).commitment(run.run_id) == run.key_commitment
    assert (
        made.rho == RHO and centers.Centers.read(tmp_path / 'centers-visits').fingerprint == made.fingerprint
    )


def test_the_charge_is_there_before_a_record_is_read(
    where: str, records: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_texts(*_: object) -> typing.NoReturn:
        assert [run.run_id for run in Ledger.open(where).account('visits').runs] == ['new']
        raise OSError('the machine goes down')

    monkeypatch.setattr(centers_lib, 'read_texts', read_texts)
    with pytest.raises(OSError, match='goes down'):
        fit(where, records, tmp_path / 'new')
    monkeypatch.undo()
    # Under the same name nothing is fitted, whatever the first attempt drew; nothing is charged either.
    with pytest.raises(ValueError, match=r"run_id='new'.*another --run-id"):
        fit(where, records, tmp_path / 'new')
    assert not (tmp_path / 'new').exists()
    assert Ledger.open(where).account('visits').rho_spent == RHO
    # Another name is a new charge, and says so.
    fit(where, records, tmp_path / 'new', run_id='again')
    assert [run.run_id for run in Ledger.open(where).account('visits').runs] == ['new', 'again']
    assert Ledger.open(where).account('visits').rho_spent == 2 * RHO


def test_finished_centres_are_not_fitted_again(where: str, records: str, tmp_path: pathlib.Path) -> None:
    made = fit(where, records, tmp_path / 'centers')
    with pytest.raises(FileExistsError, match='new folder'):
        centers_lib.check_fit(
            tmp_path / 'centers', source='dp-k-means', rho=RHO, dataset='visits', ledger=where
        )
    with pytest.raises(ValueError, match='not charged yet'):
        fit(where, records, tmp_path / 'elsewhere' / 'centers')
    assert Ledger.open(where).account('visits').rho_spent == RHO
    assert centers.Centers.read(tmp_path / 'centers').fingerprint == made.fingerprint


def test_of_two_that_race_for_a_name_one_is_refused(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Ledger.open(where)
    order: dict[str, typing.Any] = {'dataset': 'visits', 'run_id': 'c', 'rho': RHO, 'settings': {}}
    centers_charge.reserve(opened, **order)
    # The second has looked before the first was charged.
    before = dataclasses.replace(opened.account('visits'), runs=())
    monkeypatch.setattr(opened, 'account', lambda _: before)
    with pytest.raises(ValueError, match='key of the charged run'):
        centers_charge.reserve(opened, **order)
    assert Ledger.open(where).account('visits').rho_spent == RHO


@pytest.mark.parametrize(
    ('changes', 'error', 'said'),
    [
        ({'rho': 1.5}, BudgetExceeded, 'left=1 '),
        ({'dataset': 'people'}, ValueError, "unit='user'"),
        ({'dataset': 'visit'}, ValueError, 'Did you mean visits'),
        ({'fields': centers_lib.text_fields('note')}, ValueError, 'note'),
        ({'run_id': 'a b'}, ValueError, "run_id='a b'"),
        ({'count': 0}, ValueError, 'count=0'),
        ({'rho': -1.0}, ValueError, 'rho'),
        ({'settings': dataclasses.replace(SETTINGS, embedder='/none')}, Exception, 'none'),
    ],
)
def test_what_cannot_be_fitted_is_not_charged(
    where: str, records: str, tmp_path: pathlib.Path, changes: dict[str, typing.Any], error: type[Exception],
    said: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(centers_lib, 'read_texts', lambda *_: pytest.fail('a record was read'))
    with pytest.raises(error, match=said):
        fit(where, records, tmp_path / 'centers', **changes)
    assert all(account.runs == () for account in Ledger.open(where).accounts())
    assert not (tmp_path / 'centers').exists()


@pytest.mark.parametrize(
    'changes',
    [
        {'source': 'public', 'rho': None},
        {'source': 'k-means', 'rho': None},
        {'ledger': None},
        {'dataset': None},
        {'dataset': None, 'ledger': None, 'run_id': 'a'},
    ],
)
def test_a_ledger_goes_with_private_centres_alone(
    tmp_path: pathlib.Path, changes: dict[str, typing.Any]
) -> None:
    arguments: dict[str, typing.Any] = {
        'source': 'dp-k-means', 'rho': RHO, 'dataset': 'visits', 'ledger': 'ledger.db', 'run_id': None
    }  # fmt: skip
    centers_lib.check_fit(tmp_path / 'new', **arguments)
    with pytest.raises(ValueError, match='ledger'):
        centers_lib.check_fit(tmp_path / 'new', **(arguments | changes))


def test_a_run_with_these_centres_does_not_pay_for_them_again(
    where: str, records: str, tmp_path: pathlib.Path
) -> None:
    fit(where, records, tmp_path / 'centers')
    run = config(where, tmp_path / 'centers')
    whole = charge.run_cost(run).rho
    assert whole is not None and plan.plan_run(run).rho_total == whole
    answer = charge.ask(run)
    assert answer.fits and answer.rho_left == pytest.approx(1.0 - whole, rel=1e-12)
    entry = reserve(where, run)
    assert (entry.run_number, entry.rho_before) == (2, RHO)
    assert entry.rho == pytest.approx(whole - RHO, rel=1e-12) and entry.rho_after == pytest.approx(whole)
    opened = Ledger.open(where)
    assert centers_run(opened, run) == 'centers'
    # Neither does the next one; and a resumption is the run that was charged.
    assert reserve(where, run) == entry
    cheap = config(where, tmp_path / 'centers', run_id='second', epsilon=None, max_private_tokens=1)
    assert reserve(where, cheap).rho == pytest.approx(charge.run_cost(cheap).rho - RHO)


@pytest.mark.parametrize('how', ['no charge', 'other dataset', 'other ledger', 'own name'])
def test_centres_that_the_ledger_was_not_paid_for_are_paid_by_the_run(
    where: str, records: str, tmp_path: pathlib.Path, how: str
) -> None:
    """Most of all those whose name the ledger knows: of another ledger, or of another fit."""
    folder = tmp_path / 'centers'
    if how == 'no charge':
        texts = centers_lib.read_texts(records, FIELDS)
        centers_lib.make_centers(
            texts, folder, settings=SETTINGS, source='dp-k-means', count=4, rho=RHO, seed=0
        )
    else:
        fit(where, records, folder)
    run = config(where, folder)
    if how == 'other dataset':
        Ledger.open(where).add_dataset('mails', unit='example', delta=DELTA, rho=2.0)
        run = config(where, folder, dataset='mails')
    if how in ('other ledger', 'own name'):
        other = Ledger.create(str(tmp_path / 'other.db'))
        other.add_dataset('visits', unit='example', delta=DELTA, rho=2.0)
        if how == 'own name':
            centers_charge.reserve(other, dataset='visits', run_id='centers', rho=RHO, settings={})
        run = config(other.where, folder)
    opened = Ledger.open(str(run.budget.ledger))
    assert centers_run(opened, run) is None
    cost = charge.cost_to_charge(run, opened.account(str(run.budget.dataset)))
    assert cost == charge.run_cost(run) and cost.rho_by_stage['centers'] == RHO  # type: ignore[index]


def test_centres_beside_another_ones_charge_are_refused(
    where: str, records: str, tmp_path: pathlib.Path
) -> None:
    fit(where, records, tmp_path / 'paid')
    texts = centers_lib.read_texts(records, FIELDS)
    # Fitted once more, with fresh noise, and the first one's charge laid beside it.
    centers_lib.make_centers(
        texts, tmp_path / 'unpaid', settings=SETTINGS, source='dp-k-means', count=4, rho=RHO, seed=0
    )
    shutil.copy(tmp_path / 'paid' / centers_charge.FILE, tmp_path / 'unpaid')
    # Or made cheaper by hand.
    shutil.copytree(tmp_path / 'paid', tmp_path / 'cheaper')
    file = tmp_path / 'cheaper' / 'centers.json'
    file.write_text(file.read_text().replace(f'"rho": {RHO}', '"rho": 0.001'))
    for name in ('unpaid', 'cheaper'):
        with pytest.raises(ValueError, match='others beside its charge'):
            charge.ask(config(where, tmp_path / name))
    (tmp_path / 'cheaper' / centers_charge.FILE).write_text('{"schema": "other"}')
    with pytest.raises(ValueError, match='another form'):
        charge.ask(config(where, tmp_path / 'cheaper'))


def test_the_charge_tells_nothing_of_the_records(where: str, records: str, tmp_path: pathlib.Path) -> None:
    """The same settings on other records, under the same key, would have the same identity and commitment."""
    identities = []
    for index, texts in enumerate((records, str(tmp_path / 'other.jsonl'))):
        (tmp_path / 'other.jsonl').write_text('{"text": "quite another text"}\n' * 30)
        fit(where, texts, tmp_path / f'c{index}')
        found = centers_charge.CentersCharge.read(tmp_path / f'c{index}')
        run = Ledger.open(where).account('visits').runs[index]
        assert found is not None
        key = RunKey(bytes.fromhex(found.opening))
        made_by = SETTINGS.load_embedder().fingerprint
        public = {'embedder': made_by, 'count': 4, 'rho': RHO, 'seed': 0}
        expected = key.hash('identity', json.dumps(public, sort_keys=True).encode(), size=32)
        identities.append(run.identity == expected.hex())
    assert identities == [True, True]
    assert 'records.jsonl' not in repr(Ledger.open(where).accounts())


def test_the_report_counts_the_centres_once_in_the_sum_and_in_the_run(
    where: str, records: str, tmp_path: pathlib.Path
) -> None:
    fit(where, records, tmp_path / 'centers')
    run = config(where, tmp_path / 'centers', output=str(tmp_path / 'out'))
    entry = reserve(where, run)
    privacy_report = _report(run, entry, centers_run(Ledger.open(where), run))
    assert privacy_report.rho_total == pytest.approx(entry.rho + RHO, rel=1e-12)
    assert privacy_report.epsilon == plan.plan_run(run).epsilon
    assert privacy_report.ledger.rho_after == pytest.approx(privacy_report.rho_total, rel=1e-12)
    stage = privacy_report.stages[0]
    assert stage.rho == RHO and "Charged to the ledger before this run, as 'centers'" in stage.explanation
    assert type(privacy_report).from_json(privacy_report.to_json()) == privacy_report
    # The ledger's entry of a run that paid for them does not fit such a report, nor the other way round.
    for charged, paid in (
        (dataclasses.replace(entry, rho=entry.rho + RHO, rho_before=0.0, run_number=1), 'c'),
        (entry, None),
    ):
        with pytest.raises(ValueError, match='Expected the ledger to have charged'):
            _report(run, charged, paid)
    with pytest.raises(ValueError, match='entry of the ledger'):
        _report(run, None, 'centers')


def _report(run: JobConfig, entry: typing.Any, paid: str | None) -> typing.Any:
    made = centers.Centers.read(run.method.centers_path)
    first, second = counts.split_rho(run.method.resolved_clustering_rho)
    clustering = Clustering(kept=((0,),), noisy_counts=((3,) * made.count,), rho=first)
    batch_plan = BatchPlan(
        labels=run.input.label_values, batches_per_group=(1,), noisy_counts=(5,), contexts_rho=second,
        clustering=clustering,
    )  # fmt: skip
    work_dir = pathlib.Path(run.output.resolved_work_dir)
    if not work_dir.exists():  # the report names the run by its key
        work_dir.mkdir()
        write_key(str(work_dir), RunKey(SECRET))
    files = render.render_released(
        run, methods.of(run).prepare(run), {'numpy': np.__version__}, entry,
        {} if paid is None else {'centers': paid},
        report.CorpusTotals(examples=1, private_tokens=1, public_tokens=0, truncated=0), batch_plan,
    )  # fmt: skip
    return report.PrivacyReport.from_json(files['privacy_report.json'].decode())


def test_a_fit_draws_its_noise_anew_each_time(tmp_path: pathlib.Path, records: str) -> None:
    """Which is why a repetition is never free: each fit has a key that nobody keeps."""
    texts = centers_lib.read_texts(records, FIELDS)
    first, second = (
        centers_lib.make_centers(
            texts, tmp_path / name, settings=SETTINGS, source='dp-k-means', count=4, rho=RHO, seed=0
        )
        for name in ('first', 'second')
    )
    assert not np.array_equal(first.vectors, second.vectors)
    assert dict(first.versions).keys() == {'numpy'}
