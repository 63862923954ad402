"""The bytes of the reports stay what they are: same settings, same keys, same sentences.

A digest that is meant to change is made again by `python -m tests.models.privacy.report.golden_test`,
which prints golden_digests.txt; with a folder as its argument it writes the reports there as well, to be
compared with those of another commit.
"""

import dataclasses
import hashlib
import itertools
import pathlib
import sys
import typing

import pytest

from models.privacy import accounting, report
from models.privacy.ex_post import BatchLoss
from models.privacy.params import MechanismParams
from tests.models.privacy.report import samples

MEAN = MechanismParams(
    batch_size=255, clip_bound=10.0, temperature=2.0, max_private_tokens=300, max_batch_tokens=4000
)
SPARSE: dict[str, typing.Any] = {'threshold': 0.5, 'threshold_noise_scale': 0.2}
AGGREGATES: dict[str, dict[str, typing.Any]] = {
    'mean': {},
    'difference': {'aggregate': 'difference', 'clip_bound': 1.0},
    'difference-top-k': {'aggregate': 'difference', 'clip_bound': 1.0, 'public_top_k': 1024},
    'median': {'aggregate': 'median', 'clip_bound': 6.0},
    'individual': {
        'aggregate': 'difference',
        'clip_bound': 1.0,
        'temperature': 1.0,
        'public_top_k': 1024,
        'max_private_tokens': None,
        'accounting': 'individual',
        'shift_bound': 1.0,
        'context_budget': 0.17,
        'omega': 8.25,
    },
}
UNITS: dict[str, dict[str, typing.Any]] = {
    'record': {},
    'slots': {'examples_per_context': 4},
    'user': {'unit': 'user', 'examples_per_context': 8},
    'user-one': {'unit': 'user'},
}
GROUPS = ('batches', 'noisy', 'public')
LEDGERS = ('no-ledger', 'first', 'later', 'rho-budget')


def arguments_of(groups: str) -> dict[str, typing.Any]:
    """Counts and groups of the records."""
    if groups == 'batches':
        return {'plan': (report.GroupPlan(label=None, batches=4),), 'declared_units': 10_000}
    if groups == 'noisy':
        plan = (
            report.GroupPlan(label='cardiology', batches=2, noisy_count=493),
            report.GroupPlan(label='dermatology', batches=3, noisy_count=771),
        )
        return {'plan': plan, 'counts_rho': 0.005}
    clusters = report.Clusters(
        counts_rho=0.0025,
        embedder='tfidf',
        embedder_fingerprint='e' * 64,
        centers_fingerprint='c' * 64,
        corpus_fingerprint='f' * 64,
        corpus_texts=1000,
        center_counts=(report.CenterCounts(label='a', kept=(0, 3), counts=(300, -2, 41, 180)),),
    )
    plan = (
        report.GroupPlan(label='a', cluster=0, batches=2, noisy_count=493),
        report.GroupPlan(label='a', cluster=3, batches=1, noisy_count=201),
    )
    return {'plan': plan, 'counts_rho': 0.002, 'clusters': clusters}


def entry_of(ledger: str, rho: float) -> report.LedgerEntry | None:
    """A ledger's entry of a run of cost `rho`."""
    if ledger == 'no-ledger':
        return None
    before = 0.0 if ledger == 'first' else 0.25
    budget = {'rho_budget': accounting.rho_from_epsilon(64, 1e-6), 'epsilon_budget': 64.0}
    if ledger == 'rho-budget':
        budget = {'rho_budget': 100.0, 'epsilon_budget': None}
    return samples.ledger_entry(rho, before, run_number=2 if before else 1, **budget)


def made_of(key: str) -> str:
    """The JSON of the report that a key of the table names."""
    aggregate, sparse, unit, groups, ledger = key.split()
    if aggregate == 'restricted':
        return restricted_of(sparse == 'sparse').to_json()
    params = dataclasses.replace(
        MEAN, **AGGREGATES[aggregate], **UNITS[unit], **(SPARSE if sparse == 'sparse' else {})
    )
    arguments: dict[str, typing.Any] = {
        'run_id': 'run',
        'delta': 1e-6,
        'corpus': report.CorpusTotals(examples=96, private_tokens=1412, public_tokens=6125, truncated=7),
        'settings': {'model': 'gemma3-1b', 'prompt': 'A note:\n{context}\n', 'max_record_chars': 2000},
        'versions': {'dp-corpus': '0.1.0', 'python': '3.12.11'},
        **arguments_of(groups),
    }
    if ledger != 'no-ledger':
        rho = samples.build(params, **arguments).rho_total
        arguments['ledger'] = entry_of(ledger, rho or 0.0)
    return samples.build(params, **arguments).to_json()


def restricted_of(sparse: bool) -> report.RestrictedReport:
    """A restricted report with the losses of a median run."""
    params = dataclasses.replace(MEAN, **AGGREGATES['median'], **(SPARSE if sparse else {}))
    losses = [
        BatchLoss(
            batch_id=f'0000-{index:06d}',
            minus_log_alpha=(0.5, 0.1, 0.2 * index),
            log_beta=(0.1, 0.4, 0.3),
            places=(0, 1, 0),
            is_private=(True, True, True),
        )
        for index in range(2)
    ]
    return report.RestrictedReport(
        run_id='run',
        records_read=98_765,
        rejected_by_reason={'blank_text': 4_321},
        contexts_per_batch={'0000-000000': 24_680, '0000-000001': 12},
        true_counts_by_group=(report.GroupContexts(restricted_label='a', true_count=24_692),),
        losses=report.ex_post_losses(losses, params),
    )


def keys() -> list[str]:
    """Every kind of run: those without a price in advance go with no ledger."""
    found = []
    for aggregate, sparse, unit, groups in itertools.product(AGGREGATES, ('plain', 'sparse'), UNITS, GROUPS):
        if (aggregate, sparse) == ('individual', 'sparse'):
            continue  # there is no such mechanism
        # Each ledger once for each unit and grouping is enough: its sentences depend on no aggregate.
        ledgers = LEDGERS if (aggregate, sparse) == ('mean', 'sparse') else LEDGERS[:1]
        found += [f'{aggregate} {sparse} {unit} {groups} {ledger}' for ledger in ledgers]
    return [*found, 'restricted plain - - -', 'restricted sparse - - -']


def digest(key: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a report's bytes."""
    return hashlib.sha256(made_of(key).encode()).hexdigest()[:16]


DIGESTS = pathlib.Path(__file__).with_name('golden_digests.txt')


def test_every_kind_of_run_is_in_the_table() -> None:
    assert [line.rsplit(' ', 1)[0] for line in DIGESTS.read_text().splitlines()] == keys()


@pytest.mark.parametrize('line', DIGESTS.read_text().splitlines())
def test_the_bytes_of_a_report_are_those_of_the_table(line: str) -> None:
    key, expected = line.rsplit(' ', 1)
    assert digest(key) == expected


if __name__ == '__main__':
    for name in keys():
        print(name, digest(name))
        for folder in sys.argv[1:]:
            pathlib.Path(folder, f'{name.replace(" ", "_")}.json').write_text(made_of(name))
