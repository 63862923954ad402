"""What an adapter tells a report of votes: it is the one that was released."""

from models.privacy.report.adapter import given_facts
from tests.models.privacy.report.samples import earlier


def test_the_adapter_is_the_one_that_the_run_released() -> None:
    found = given_facts(earlier('first', tuned=True), factors='abc')
    (unchanged,) = found.assumptions_enforced
    assert "(SHA-256 abc) is the one that the run 'first' released, unchanged" in unchanged
    assert not found.assumptions_of_curator and not found.not_covered
