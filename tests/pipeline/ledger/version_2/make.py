"""Writes a ledger of version 2, with the code of version 2; its dumps stand beside this file.

In a checkout of 25c59b3, whose ledger is of version 2, with PostgreSQL's server reachable at URL:

    python make.py ledger.db && sqlite3 ledger.db .dump > sqlite.sql
    python make.py URL && pg_dump --inserts --no-owner --no-privileges URL | grep -v "^[\\-]" > postgresql.sql

It holds what version 2 added: costs as events, sampled ones among them, and an order that the first charge
fixed and a changed budget lowered.
"""

import sys

from models.privacy import events
from models.privacy.accounting import RunCost
from pipeline.ledger.ledger import Ledger


def main(where: str) -> None:
    ledger = Ledger.create(where)
    ledger.add_dataset('visits', unit='example', delta=1e-6, epsilon=8.0)
    ledger.add_dataset('unused', unit='user', delta=1e-9, rho=0.5)

    def reserve(run_id: str, stages: dict[str, events.DpEvent]) -> None:
        ledger.reserve(
            'visits', run_id=run_id, unit='example', cost=RunCost(stages=stages), identity='i' * 64,
            key_commitment=run_id[0] * 32,
        )  # fmt: skip

    step = events.PoissonSampledDpEvent(
        sampling_probability=0.01, event=events.GaussianDpEvent(noise_multiplier=1.0)
    )
    reserve('first', {'training': events.SelfComposedDpEvent(event=step, count=200)})
    ledger.settle('visits', 'first')
    table = events.DiscreteGaussianVectorDpEvent(noise_multiplier=4.0, sensitivity=1024, cells=4)
    reserve('second', {'votes': table, 'noisy_counts': events.ZCDpEvent(rho=0.0)})
    ledger.change_budget('visits', epsilon=9.0, reason="a second year's records")
    reserve('third', {'generation': events.TruncatedZCDpEvent(rho=0.1 + 0.2, omega=40.0)})


if __name__ == '__main__':
    main(*sys.argv[1:])
