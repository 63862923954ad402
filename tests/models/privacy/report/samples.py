"""Reports and what they are made of, for the tests of this folder."""

import dataclasses
import hashlib
import json
import math
import typing

import pytest

from models.privacy import accounting, report
from models.privacy.earlier_release import EarlierRelease
from models.privacy.ex_post import BatchLoss
from models.privacy.individual import BatchSpending
from models.privacy.params import MechanismParams
from models.privacy.report import (
    CenterCounts,
    Clusters,
    CorpusTotals,
    Described,
    GroupContexts,
    GroupPlan,
    LedgerEntry,
    Predicted,
    PrivacyReport,
    RestrictedReport,
    Voted,
    composition,
)
from models.privacy.text_votes import TextVoteParams

PARAMS = MechanismParams(
    batch_size=255,
    clip_bound=10.0,
    temperature=2.0,
    max_private_tokens=300,
    threshold=0.5,
    threshold_noise_scale=0.2,
    public_top_k=1024,
    max_batch_tokens=4000,
)
MEDIAN = dataclasses.replace(
    PARAMS, aggregate='median', clip_bound=6.0, threshold=None, threshold_noise_scale=None
)
INDIVIDUAL = MechanismParams(
    batch_size=255,
    clip_bound=1.0,
    temperature=1.0,
    public_top_k=1024,
    max_batch_tokens=4000,
    aggregate='difference',
    accounting='individual',
    shift_bound=2.0,
    context_budget=0.5,
    omega=6.25,
)
ONE_LABEL = (GroupPlan(label=None, batches=4),)
CLUSTERED = (
    GroupPlan(label='a', cluster=0, batches=2, noisy_count=493),
    GroupPlan(label='a', cluster=3, batches=1, noisy_count=201),
    GroupPlan(label='b', cluster=1, batches=3, noisy_count=771),
)
CENTER_COUNTS = (
    CenterCounts(label='a', kept=(0, 3), counts=(300, -2, 41, 180)),
    CenterCounts(label='b', kept=(1,), counts=(7, 650, 12, 0)),
)
RHO_BUDGET = accounting.rho_from_epsilon(8, 1e-6)
TOTALS = CorpusTotals(examples=96, private_tokens=1412, public_tokens=6125, truncated=7)


def with_bound(entry: dict[str, typing.Any]) -> dict[str, typing.Any]:
    """The fields of an entry in zCDP, with a bound that is its budget where none is named."""
    rho, given = entry['rho_budget'], entry['epsilon_budget']
    epsilon = accounting.epsilon_from_rho(rho, entry['delta']) if given is None else given
    return {'rho_bound': rho, 'epsilon_bound': epsilon, **entry}


def ledger_entry(rho: float, before: float = 0.25, **changes: typing.Any) -> LedgerEntry:
    """The entry from a ledger with a budget of ε = 8 for the second run on its dataset."""
    arguments: dict[str, typing.Any] = {
        'dataset': 'visits',
        'run_number': 2,
        'rho_before': before,
        'rho': rho,
        'rho_after': before + rho,
        'epsilon_after': accounting.epsilon_from_rho(before + rho, 1e-6),
        'delta': 1e-6,
        'rho_budget': RHO_BUDGET,
        'epsilon_budget': 8.0,
    }
    return LedgerEntry(**with_bound(arguments | changes))


def earlier(
    run_id: str, rho: float = 0.1, *, dataset: str | None = None, tuned: bool = False, **changes: typing.Any
) -> EarlierRelease:
    """A release that went into another run: of votes of this ρ, or of fine-tuning."""
    costs: dict[str, accounting.DpEvent] = {
        'Fine-tuning': accounting.SelfComposedDpEvent(
            event=accounting.PoissonSampledDpEvent(
                sampling_probability=0.1, event=accounting.GaussianDpEvent(noise_multiplier=2.0)
            ),
            count=20,
        )
    }
    if not tuned:
        costs = {'Votes': accounting.ZCDpEvent(rho=rho)}
    charged = None if dataset is None else rho
    arguments: dict[str, typing.Any] = {
        'run_id': run_id,
        'method': 'fine-tuning' if tuned else 'private prediction',
        'unit': 'example',
        'epsilon': composition.epsilon_alone(changes.get('costs', costs), 1e-6),
        'delta': 1e-6,
        'costs': costs,
        'dataset': dataset,
        'run_number': None if dataset is None else 1,
        'charged_rho': charged,
        'identity': hashlib.sha256(f'{run_id} {dataset}'.encode()).hexdigest(),
        'told_by': 'report',
    }
    return EarlierRelease(**(arguments | changes))


def released_report(
    run_id: str = 'earlier', entry: typing.Any = None, rho: float = 0.1, **changes: object
) -> str:
    """The report of a run of this ρ, as a later run reads it.

    Args:
        run_id: Its name.
        entry: Its dataset, its number there and what a ledger charged it; None without a ledger.
        rho: Its cost where no ledger says it.
        changes: Values that are edited in the file.
    """
    charged = None
    if entry is not None:
        rho, before = entry['rho'], 0.05 * (entry['run_number'] - 1)
        charged = ledger_entry(
            rho, before, dataset=entry['dataset'], run_number=entry['run_number'], rho_budget=50.0,
            epsilon_budget=None,
        )  # fmt: skip
    mechanism = TextVoteParams(rounds=1, noise_scale=math.sqrt(0.5 / rho))
    made = finished(Voted(mechanism=mechanism), run_id=run_id, ledger=charged)
    return json.dumps(json.loads(made.to_json()) | changes)


def sample_report() -> PrivacyReport:
    """The report of sample_report.json."""
    return report.build_privacy_report(
        Predicted(mechanism=PARAMS, counts_rho=0.005),
        run_id='visits-2025-06',
        delta=1e-6,
        plan=(
            GroupPlan(label='cardiology', batches=2, noisy_count=493),
            GroupPlan(label='dermatology', batches=3, noisy_count=771),
        ),
        corpus=TOTALS,
        settings={
            'model': 'gemma3-1b',
            'private_prompt': 'Here is a visit note:\n{context}\nAnother one:',
            'input_format': 'jsonl',
            'max_record_chars': 2000,
        },
        versions={'dp-corpus': '0.1.0', 'gemma': '3.3.0', 'jax': '0.7.1', 'python': '3.12.11'},
        ledger=ledger_entry(0.005 + accounting.generation_rho(PARAMS)),
    )


METHOD_FIELDS = {field.name for field in dataclasses.fields(Predicted)}


def build(params: MechanismParams = PARAMS, **changes: typing.Any) -> PrivacyReport:
    """A report of private prediction; `changes` are of the method or of the report."""
    method = {name: value for name, value in changes.items() if name in METHOD_FIELDS}
    return finished(
        Predicted(mechanism=params, **method),
        **{name: value for name, value in changes.items() if name not in method},
    )


def finished(method: Described, **changes: typing.Any) -> PrivacyReport:
    """The report of a run of any method."""
    chosen = report.ChosenTotals(examples=200, voted=150, sampled_tokens=7_000, truncated=3)
    totals = {
        'predicted': TOTALS,
        'tuned': report.TunedTotals(examples=9, sampled_tokens=99, truncated=0),
        'tuned_voted': chosen,
        'voted': chosen,
    }
    arguments: dict[str, typing.Any] = {
        'run_id': 'run', 'delta': 1e-6, 'plan': ONE_LABEL, 'corpus': totals[method.kind], 'settings': {},
        'versions': {},
    }  # fmt: skip
    return report.build_privacy_report(method, **(arguments | changes))


def clusters(**changes: typing.Any) -> Clusters:
    arguments: dict[str, typing.Any] = {
        'counts_rho': 0.0025,
        'embedder': 'tfidf',
        'embedder_fingerprint': 'e' * 64,
        'centers_fingerprint': 'c' * 64,
        'corpus_fingerprint': 'f' * 64,
        'corpus_texts': 1000,
        'center_counts': CENTER_COUNTS,
    }
    return Clusters(**(arguments | changes))


def clustered(params: MechanismParams = PARAMS, **changes: typing.Any) -> PrivacyReport:
    arguments = {'plan': CLUSTERED, 'counts_rho': 0.002, 'clusters': clusters()}
    return build(params, **(arguments | changes))


def batch_loss(batch: int, ups: list[float], downs: list[float], places: list[int]) -> BatchLoss:
    return BatchLoss(
        batch_id=f'0000-{batch:06d}', minus_log_alpha=tuple(ups), log_beta=tuple(downs),
        places=tuple(places), is_private=tuple(place >= 0 for place in places),
    )  # fmt: skip


LOSSES = [
    batch_loss(1, [0.5, 0.1, 0.2], [0.1, 0.4, 0.3], [0, 1, 0]),
    batch_loss(0, [0.25, 0.0], [0.75, 0.0], [0, 1]),
]


SPENDING = [
    BatchSpending(batch_id='0000-000002', spent=(0.2,), voters=(1, 1, 1), first_silent=None),
    BatchSpending(batch_id='0000-000001', spent=(), voters=(0, 0), first_silent=None),
    BatchSpending(batch_id='0000-000000', spent=(0.1, 0.3, 0.5), voters=(3, 3, 2, 1), first_silent=2),
]


def restricted_report() -> RestrictedReport:
    return RestrictedReport(
        run_id='run',
        records_read=98_765,
        rejected_by_reason={'blank_text': 4_321},
        contexts_per_batch={'0000-000000': 24_680},
        true_counts_by_group=(GroupContexts(restricted_label=None, true_count=13_579),),
        losses=report.ex_post_losses(LOSSES, MEDIAN),
    )


PARAMS_OF_ALL_KINDS = [
    pytest.param(PARAMS, id='example'),
    pytest.param(dataclasses.replace(PARAMS, threshold=None, threshold_noise_scale=None), id='private-only'),
    pytest.param(dataclasses.replace(PARAMS, unit='user', examples_per_context=8), id='user'),
    pytest.param(dataclasses.replace(PARAMS, examples_per_context=4), id='slots'),
    pytest.param(dataclasses.replace(PARAMS, max_private_tokens=1, clip_bound=0.01), id='tiny-rho'),
    pytest.param(dataclasses.replace(PARAMS, max_private_tokens=500_000), id='huge-rho'),
    pytest.param(dataclasses.replace(PARAMS, aggregate='difference', clip_bound=1.0), id='difference'),
    pytest.param(INDIVIDUAL, id='individual'),
    pytest.param(dataclasses.replace(INDIVIDUAL, examples_per_context=4, omega=4.5), id='individual-slots'),
    pytest.param(dataclasses.replace(INDIVIDUAL, unit='user', examples_per_context=4), id='individual-user'),
    pytest.param(MEDIAN, id='median'),
    pytest.param(dataclasses.replace(PARAMS, aggregate='median'), id='median-sparse-vector'),
    pytest.param(dataclasses.replace(PARAMS, aggregate='median', examples_per_context=4), id='median-slots'),
]


def with_ledger(before: float = 0.25, **changes: typing.Any) -> PrivacyReport:
    return build(ledger=ledger_entry(accounting.generation_rho(PARAMS), before, **changes))
