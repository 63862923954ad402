"""Settings of the guarantee: the unit of privacy, epsilon and delta, and the ledger that adds runs up."""

import dataclasses
import functools
import re
import typing

from pipeline.settings import panel

_setting = functools.partial(panel.setting, 'Privacy')
_PASSWORD = re.compile(r'^[^:/?#]+://[^/?#@]*:[^/?#]*@|[?&](?:password|sslpassword)=')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget(panel.Panel):
    """Whom the guarantee protects, what it may cost, and which ledger is charged."""

    unit: typing.Literal['example', 'user'] = _setting(
        'Unit of privacy: one record, or all records that share a unit id.', 'example'
    )
    examples_per_context: int = _setting(
        'k: records that may share one context. Without unit ids, k > 1 costs 4 times the rho.', 1
    )
    epsilon: float | None = _setting(
        'Target epsilon. The run solves for the settings of its method that give it.', None
    )
    delta: float | None = _setting(
        'delta. Without it, records ** -1.1 of the declared --records, and 3.98e-05 for fewer than 10,000.',
        None,
    )
    dataset: str | None = _setting(
        "Name of the records in a ledger, which charges this run to the dataset's budget before its first "
        'token. Needs --ledger.',
        None,
        names_path=False,
    )
    ledger: str | None = _setting(
        'Ledger of all runs: a SQLite file, or a database URL (postgresql://user@host/name).', None
    )

    def check_either(self, name: str, value: float | None, more: str = '') -> None:
        """Refuses a run that has both epsilon and the setting that it is solved for, or neither."""
        if (self.epsilon is None) == (value is None):
            raise ValueError(
                f'Expected either epsilon or {name}, got epsilon={self.epsilon!r}, {name}={value!r}. Each '
                f'follows from the other: give one{more}.'
            )

    def check(self) -> None:
        if self.delta is not None and not 0 < self.delta < 1:
            raise ValueError(
                f'Expected 0 < delta < 1, got delta={self.delta}. A usual choice is records ** -1.1.'
            )
        if (self.dataset is None) != (self.ledger is None):
            raise ValueError(
                f'Expected dataset and ledger together or not at all, got dataset={self.dataset!r}, '
                f'ledger={"given" if self.ledger else None}. The ledger charges the run to the dataset.'
            )
        if self.ledger is not None and _PASSWORD.search(self.ledger):
            # Neither a process list nor a config file is a place for one.
            raise ValueError(
                'Expected a ledger URL without a password, got one with it. Leave it out and give '
                'PGPASSWORD or PGPASSFILE in the environment.'
            )
