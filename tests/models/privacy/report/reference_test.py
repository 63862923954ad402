"""What a reference tells a report: what is enforced, and what the curator vouches for."""

import pytest

from models.privacy.report.reference import Release, given_facts

CHARGED = Release(run_id='earlier', dataset='visits', run_number=2, rho=0.1)


def test_public_texts_are_vouched_for() -> None:
    found = given_facts(8, 'abc', None, 'visits')
    assert not found.assumptions_enforced
    (said,) = found.assumptions_of_curator
    assert '(8 of each label, SHA-256 abc) are public and were chosen without' in said


def test_a_release_that_the_ledger_charged_to_the_same_records_is_enforced() -> None:
    found = given_facts(8, 'abc', CHARGED, 'visits')
    (said,) = found.assumptions_enforced
    assert "as run 2 on dataset 'visits'" in said and 'post-processing' in said and 'SHA-256 abc' in said
    (vouched,) = found.assumptions_of_curator
    assert "run 'earlier' as that run released it" in vouched


@pytest.mark.parametrize(
    'release, dataset, there, here',
    [
        (CHARGED, 'parcels', "to dataset 'visits' of a ledger", "to dataset 'parcels' of a ledger"),
        (CHARGED, None, "to dataset 'visits' of a ledger", 'to no ledger'),
        (Release(run_id='earlier'), 'visits', 'to no ledger', "to dataset 'visits' of a ledger"),
        (Release(run_id='earlier'), None, 'to no ledger', 'to no ledger'),
    ],
)
def test_any_other_release_is_vouched_for(
    release: Release, dataset: str | None, there: str, here: str
) -> None:
    found = given_facts(8, 'abc', release, dataset)
    assert not found.assumptions_enforced
    (said,) = found.assumptions_of_curator
    assert f'That run was charged {there}, this one {here}: where both are of the same records' in said
    assert 'whoever adds up the runs counts both' in said
