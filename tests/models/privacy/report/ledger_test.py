"""The ledger's entry in a report adds up, or is refused."""

import dataclasses
import re
import typing

import pytest

from tests.models.privacy.report.samples import ledger_entry


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'run_number': 0}, 'run_number=0'),
        ({'run_number': 1}, 'run_number=1'),
        ({'rho': 0.0}, 'rho=0.0'),
        ({'rho_after': 0.5}, 'rho_after=0.5'),
        ({'epsilon_after': 1.0}, 'epsilon_after=1.0'),
        ({'delta': 1e-7}, 'epsilon_after'),
        ({'rho_budget': 0.4}, 'rho_budget=0.4'),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(changes: dict[str, typing.Any], message: str) -> None:
    assert ledger_entry(0.2).rho_after == 0.45
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(ledger_entry(0.2), **changes)
