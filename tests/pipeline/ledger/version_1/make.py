"""Writes a ledger of version 1, with the code of version 1; its dumps stand beside this file.

In a checkout of fc58536, whose ledger is of version 1, with PostgreSQL's server reachable at URL:

    python make.py ledger.db && sqlite3 ledger.db .dump > sqlite.sql
    python make.py URL && pg_dump --inserts --no-owner --no-privileges URL | grep -v "^[\\-]" > postgresql.sql

It holds what version 1 could: a budget in ρ and one in ε, a budget that was changed, runs that were
settled, resumed and refused, a dataset without runs, and costs that no short decimal is.
"""

import contextlib
import sys

from pipeline.ledger import BudgetExceeded, Ledger


def main(where: str) -> None:
    ledger = Ledger.create(where)
    ledger.add_dataset('visits', unit='example', delta=1e-6, rho=1.0)
    ledger.add_dataset('mails', unit='user', delta=1e-5, epsilon=3.0)
    ledger.add_dataset('unused', unit='example', delta=1e-9, epsilon=0.5)

    def reserve(dataset: str, run_id: str, unit: str, stages: dict[str, float]) -> None:
        ledger.reserve(
            dataset, run_id=run_id, unit=unit, rho_by_stage=stages, identity='i' * 64,
            key_commitment=run_id[0] * 32,
        )  # fmt: skip

    first = {'centers': 0.0, 'noisy_counts': 0.005, 'generation': 613 * 0.00030517578125}
    reserve('visits', 'first', 'example', first)
    ledger.settle('visits', 'first')
    reserve('visits', 'second', 'example', {'centers': 0.1, 'noisy_counts': 1 / 3, 'generation': 0.1 + 0.2})
    reserve('visits', 'second', 'example', {'centers': 0.1, 'noisy_counts': 1 / 3, 'generation': 0.1 + 0.2})
    with contextlib.suppress(BudgetExceeded):
        reserve('visits', 'third', 'example', {'generation': 0.5})
    ledger.change_budget('visits', rho=2.0, reason="a second year's records")
    reserve('visits', 'third', 'example', {'generation': 0.5})
    reserve('mails', 'first', 'user', {'generation': 1e-9})


if __name__ == '__main__':
    main(*sys.argv[1:])
