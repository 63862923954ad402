"""Writes a ledger of version 3, with the code of version 3; its dumps stand beside this file.

In a checkout of ed9a989, whose ledger is of version 3, with PostgreSQL's server reachable at URL:

    python make.py ledger.db && sqlite3 ledger.db .dump > sqlite.sql
    python make.py URL && pg_dump --inserts --no-owner --no-privileges URL | grep -v "^[\\-]" > postgresql.sql

It holds what version 3 added, a filter of Gaussians, and in both filters a budget that was changed before
the first charge, lowered after it, and raised and lowered again with no run in between.
"""

import sys

from models.privacy import events
from models.privacy.accounting import RunCost
from pipeline.ledger.ledger import Ledger


def main(where: str) -> None:
    ledger = Ledger.create(where)
    step = events.PoissonSampledDpEvent(
        sampling_probability=0.01, event=events.GaussianDpEvent(noise_multiplier=1.0)
    )
    training = events.SelfComposedDpEvent(event=step, count=200)
    votes = events.DiscreteGaussianVectorDpEvent(noise_multiplier=40.0, sensitivity=1024, cells=4)

    def reserve(dataset: str, run_id: str, event: events.DpEvent) -> None:
        ledger.reserve(
            dataset, run_id=run_id, unit='example', cost=RunCost(stages={'stage': event}), identity='i' * 64,
            key_commitment=run_id[0] * 32,
        )  # fmt: skip

    for name, kept in (('gaussian', 'gaussian'), ('renyi', 'renyi')):
        ledger.add_dataset(name, unit='example', delta=1e-6, epsilon=20.0, privacy_filter=kept)
        ledger.change_budget(name, epsilon=8.0, reason='before the first charge')
        reserve(name, 'first', training)
        ledger.change_budget(name, epsilon=5.0, reason='less')
        reserve(name, 'second', votes)
        ledger.change_budget(name, epsilon=9.0, reason='more')
        ledger.change_budget(name, epsilon=4.0, reason='less again')
        reserve(name, 'third', votes)
        ledger.settle(name, 'first')
    ledger.add_dataset('unused', unit='user', delta=1e-9, rho=0.5, privacy_filter='gaussian')


if __name__ == '__main__':
    main(*sys.argv[1:])
