"""What an adapter tells a report of votes: what is enforced, and what the curator vouches for."""

from typing import Any

import pytest

from models.privacy.report.adapter import given_facts
from models.privacy.report.earlier_run import EarlierRun

CHARGED = EarlierRun(run_id='earlier', dataset='visits', run_number=2)
FREE = EarlierRun(run_id='earlier', dataset=None, run_number=None)
GIVEN: dict[str, Any] = {
    'factors': 'abc', 'epsilon': 2.5, 'delta': 1e-6, 'unit': 'example', 'own_unit': 'example'
}  # fmt: skip


def test_an_adapter_that_the_ledger_charged_to_the_same_records_is_in_its_sum() -> None:
    found = given_facts(CHARGED, **GIVEN, dataset='visits')
    unchanged, charged = found.assumptions_enforced
    assert '(SHA-256 abc) is the one that the run' in unchanged
    assert '(ε = 2.5, δ = 1e-6)-differentially private itself' in charged
    assert "as run 2 on dataset 'visits'" in charged and 'the sum of all runs has both costs' in charged
    assert found.assumptions_of_curator == ()
    (alone,) = found.not_covered
    assert 'by the figures of this run alone' in alone


@pytest.mark.parametrize(
    'trained_by, dataset, there, here',
    [
        (CHARGED, 'parcels', "to dataset 'visits' of a ledger", "to dataset 'parcels' of a ledger"),
        (CHARGED, None, "to dataset 'visits' of a ledger", 'to no ledger'),
        (FREE, 'visits', 'to no ledger', "to dataset 'visits' of a ledger"),
        (FREE, None, 'to no ledger', 'to no ledger'),
    ],
)
def test_any_other_adapter_is_vouched_for(
    trained_by: EarlierRun, dataset: str | None, there: str, here: str
) -> None:
    found = given_facts(trained_by, **GIVEN, dataset=dataset)
    assert len(found.assumptions_enforced) == 1
    (vouched,) = found.assumptions_of_curator
    assert 'are others than these, or its cost is counted too' in vouched
    assert f'That run was charged {there}, this one {here}, and no sum of a ledger has both.' in vouched
    (alone,) = found.not_covered
    assert 'unless they are others, its ε is added to that of this run, and its δ to the δ' in alone


def test_costs_of_different_units_are_not_added() -> None:
    found = given_facts(FREE, **(GIVEN | {'unit': 'user'}), dataset=None)
    (alone,) = found.not_covered
    assert 'for any one user' in alone and 'under a unit of its own' in alone and 'is added' not in alone
