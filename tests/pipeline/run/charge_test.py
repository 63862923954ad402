"""An earlier release as the reference, held against the ledger before anything is charged."""

import pathlib
from typing import Any

import pytest

from models.privacy.accounting import RunCost
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.run import charge
from pipeline.settings.job_config import JobConfig
from tests.models.privacy.report.samples import released_report
from transforms import run_files

RHO = 0.1 + 0.2


@pytest.fixture
def ledger(tmp_path: pathlib.Path) -> Ledger:
    """Two datasets; the second run on the first is the one that the reference is of."""
    made = Ledger.create(str(tmp_path / 'ledger.db'))
    for name in ('visits', 'parcels'):
        made.add_dataset(name, unit='example', delta=1e-6, rho=2.0)
    for run_id, rho in (('first', 0.05), ('earlier', RHO)):
        made.reserve(
            'visits', run_id=run_id, unit='example', cost=RunCost.of_rho({'generation': rho}), identity='i',
            key_commitment='k',
        )  # fmt: skip
    return made


def write_release(tmp_path: pathlib.Path, entry: object, run_id: str = 'earlier', **changes: object) -> str:
    folder = tmp_path / 'earlier'
    (folder / run_files.DATA_FOLDER).mkdir(parents=True)
    (folder / run_files.REPORT).write_text(released_report(run_id, entry, **changes))
    return str(folder)


def config(tmp_path: pathlib.Path, reference: str, dataset: str = 'visits') -> JobConfig:
    return job_config(
        input='in.jsonl', output=str(tmp_path / 'out'), delta=1e-6, aggregate='difference', epsilon=0.5,
        accounting='worst-case', dataset=dataset, ledger=str(tmp_path / 'ledger.db'), reference=reference,
    )  # fmt: skip


ENTRY: dict[str, Any] = {'dataset': 'visits', 'run_number': 2, 'rho': RHO}


@pytest.mark.parametrize('dataset', ['visits', 'parcels'])
def test_a_release_whose_charge_the_ledger_holds_may_be_the_reference(
    tmp_path: pathlib.Path, ledger: Ledger, dataset: str
) -> None:
    charge.check(
        ledger, methods.solve(config(tmp_path, write_release(tmp_path, ENTRY), dataset), launch=True)
    )


@pytest.mark.parametrize('entry', [None, ENTRY | {'dataset': 'letters'}], ids=['none', 'other ledger'])
def test_a_release_that_is_not_of_this_ledger_is_the_curators_to_vouch_for(
    tmp_path: pathlib.Path, ledger: Ledger, entry: object
) -> None:
    charge.check(ledger, methods.solve(config(tmp_path, write_release(tmp_path, entry)), launch=True))


@pytest.mark.parametrize(
    'entry, run_id',
    [
        (ENTRY, 'another'),
        (ENTRY, 'first'),
        (ENTRY | {'run_number': 1}, 'earlier'),
        (ENTRY | {'rho': 0.299}, 'earlier'),
        (ENTRY | {'dataset': 'parcels'}, 'earlier'),
    ],
    ids=['no such run', 'another run', 'number', 'price', 'dataset'],
)
def test_a_release_that_claims_a_charge_which_the_ledger_does_not_hold_is_refused(
    tmp_path: pathlib.Path, ledger: Ledger, entry: dict[str, Any], run_id: str
) -> None:
    run = config(tmp_path, write_release(tmp_path, entry, run_id))
    before = ledger.events()
    with pytest.raises(ValueError, match='whose charge the ledger holds.*give the --ledger') as refused:
        charge.check(ledger, methods.solve(run, launch=True))
    assert f'run_id={run_id!r}' in str(refused.value) and repr(entry['dataset']) in str(refused.value)
    with pytest.raises(ValueError, match='whose charge the ledger holds'):
        charge.ask(methods.solve(run))
    assert ledger.events() == before


def test_a_plan_knows_a_reference_that_was_charged(tmp_path: pathlib.Path, ledger: Ledger) -> None:
    assert charge.ask(methods.solve(config(tmp_path, write_release(tmp_path, ENTRY)))).fits


def test_a_release_of_a_dataset_of_the_same_name_in_another_ledger_is_refused(tmp_path: pathlib.Path) -> None:
    empty = Ledger.create(str(tmp_path / 'ledger.db'))
    empty.add_dataset('visits', unit='example', delta=1e-6, rho=2.0)
    with pytest.raises(ValueError, match='choose another release, or public texts'):
        charge.check(empty, methods.solve(config(tmp_path, write_release(tmp_path, ENTRY)), launch=True))


@pytest.mark.parametrize('entry', [{'dataset': 'visits'}, 'visits', ENTRY | {'rho': 'much'}])
def test_a_damaged_entry_is_refused(tmp_path: pathlib.Path, ledger: Ledger, entry: object) -> None:
    run = config(tmp_path, write_release(tmp_path, ENTRY, ledger=entry))
    with pytest.raises(
        ValueError, match='privacy_report.json of reference=.*got ledger.* Restore the release'
    ):
        charge.check(ledger, methods.solve(run, launch=True))
