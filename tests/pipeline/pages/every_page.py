"""A page of each kind that a run or a command writes, from made-up values: for tests that look at them."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

from models.audits import one_run
from models.audits.result import CanaryAudit
from models.privacy import accounting, report
from models.privacy.accounting import run_cost
from models.privacy.gradients import TuningParams
from models.privacy.report import GroupPlan, PrivacyReport
from models.privacy.text_votes import TextVoteParams
from models.privacy.tuned_votes import TunedVotesParams
from pipeline.evaluation import evaluation
from pipeline.pages import (
    canaries_page,
    evaluation_page,
    ledger_page,
    report_page,
    restricted_page,
)
from tests.models.privacy.report import samples
from tests.pipeline.evaluation import verdict_test
from tests.pipeline.evaluation.evaluate_test import Counting, Lacking
from tests.pipeline.evaluation.placed import plain_sources
from tests.pipeline.pages import ledger_page_test, report_page_test, restricted_page_test

LONG_NAME = 'Outpatient visits of the years 2019 to 2024 ' * 2
LABELS = tuple(f'Clinic of {name}' for name in ('cardiology', 'dermatology', 'oncology', 'surgery'))


def tuned(*, texts: int = 500, **changes: Any) -> PrivacyReport:
    """A report of fine-tuning; without texts it is of an adapter alone."""
    params = TuningParams(
        units=20_000, expected_batch_size=64, tuning_steps=100, noise_multiplier=1.0, clip_norm=1.0,
        unit='user', examples_per_context=4,
    )  # fmt: skip
    arguments: dict[str, Any] = {
        'run_id': 'visits-2025-06', 'delta': 1e-6, 'declared_units': 20_000,
        'plan': tuple(GroupPlan(label=label, batches=3 if texts else 0) for label in LABELS),
        'corpus': report.TunedTotals(examples=texts, sampled_tokens=60 * texts, truncated=0),
        'settings': {'model': 'gemma3-270m', 'lora_rank': 8}, 'versions': {'dp-corpus': '0.1.0'},
    }  # fmt: skip
    curve = run_cost.curve_of(params.event)
    order, delta, before = 6.0, 1e-6, 0.3
    rho = curve.rho_at(order)
    entry = report.MixedLedgerEntry(
        dataset='visits', run_number=2, rho_before=before, rho=rho, rho_after=before + rho, order=order,
        epsilon_after=accounting.epsilon_at_order(order, order * (before + rho), delta), delta=delta,
        rho_budget=1.0, epsilon_budget=None, rho_bound=1.0,
        epsilon_bound=accounting.epsilon_at_order(order, order, delta),
    )  # fmt: skip
    arguments['ledger'] = entry if texts else None
    found = report.Tuned(mechanism=params, label_mix='given', writes_texts=texts > 0)
    return report.build_privacy_report(found, **(arguments | changes))


def voted(**changes: Any) -> PrivacyReport:
    """A report of three rounds of votes of users on texts."""
    params = TextVoteParams(rounds=3, noise_scale=12.5, nearest=4, unit='user', examples_per_context=8)
    arguments: dict[str, Any] = {
        'run_id': 'visits-2025-06', 'delta': 1e-5, 'declared_units': 5000,
        'plan': tuple(GroupPlan(label=label, batches=2) for label in LABELS),
        'corpus': report.ChosenTotals(examples=200, voted=150, sampled_tokens=7000, truncated=3),
        'settings': {'model': 'gemma3-270m'}, 'versions': {'dp-corpus': '0.1.0'},
    }  # fmt: skip
    return report.build_privacy_report(report.Voted(mechanism=params), **(arguments | changes))


def tuned_voted(**changes: Any) -> PrivacyReport:
    """A report of training and of votes on what it gave."""
    params = TunedVotesParams(
        units=20_000, expected_batch_size=128, tuning_steps=15, noise_multiplier=1.1, clip_norm=1.0,
        noise_scale=6.5, nearest=40,
    )  # fmt: skip
    arguments: dict[str, Any] = {
        'run_id': 'visits-2025-06', 'delta': 1e-6, 'declared_units': 20_000,
        'plan': tuple(GroupPlan(label=label, batches=8) for label in LABELS),
        'corpus': report.ChosenTotals(examples=500, voted=500, sampled_tokens=17_000, truncated=0),
        'settings': {'model': 'gemma3-270m', 'lora_rank': 8}, 'versions': {'dp-corpus': '0.1.0'},
    }  # fmt: skip
    return report.build_privacy_report(report.TunedVoted(mechanism=params), **(arguments | changes))


def long_report() -> PrivacyReport:
    """A report whose first part is as long as they come: of users, late in a ledger, in clusters.

    Its names are long, and there is much that the curator has to vouch for.
    """
    params = dataclasses.replace(report_page_test.PARAMS, unit='user', examples_per_context=8)
    made = report_page_test.make_clustered(params, labels=4, kept=2, centers=8)
    assert made.rho_total is not None
    entry = samples.ledger_entry(
        made.rho_total, dataset=LONG_NAME.strip(), run_number=41, rho_budget=2.0, epsilon_budget=None
    )
    return report.build_privacy_report(
        made.method, run_id=LONG_NAME.strip(), delta=1e-6, plan=made.plan, corpus=made.corpus,
        settings=made.settings, versions=made.versions, ledger=entry, sample_rate=0.5,
    )  # fmt: skip


@functools.cache
def reports() -> Mapping[str, PrivacyReport]:
    """A report of every method and of every kind of statement."""
    return {
        'predict': report_page_test.make_charged(1),
        'several-runs': report_page_test.make_charged(3),
        'individual': samples.build(samples.INDIVIDUAL, declared_units=4000),
        'large-epsilon': samples.build(dataclasses.replace(samples.PARAMS, max_private_tokens=90_000)),
        'fine-tune': tuned(),
        'adapter': tuned(texts=0),
        'tune-refine': tuned_voted(),
        'evolve': voted(),
        'refine': voted(settings={}),
        'median': report_page_test.make_clustered(report_page_test.MEDIAN),
        'nasty': report_page_test.NASTY_REPORT,
        'long': long_report(),
    }


def _canaries() -> CanaryAudit:
    """The attacker tells nearly all canaries."""
    coins = one_run.coins(400, 0)
    scores = np.random.default_rng(0).normal(size=400) + 5.0 * coins

    def curve(strength: float, epsilons: np.ndarray) -> np.ndarray:
        return np.asarray(GaussianPrivacyLoss(2 / strength).get_delta_for_epsilon(epsilons))

    guarantee = one_run.Guarantee(epsilon=2.0, delta=1e-6, curve=curve)
    return CanaryAudit(
        method='refine', attack='noisy votes and lists', reads='released', unit='user', seed=0, records=1234,
        delta=1e-6, epsilon=2.0, confidence=0.95, bounds=one_run.bounds(scores, coins, guarantee),
    )  # fmt: skip


@functools.cache
def pages() -> Mapping[str, str]:
    """HTML of a page of every kind, by a name."""
    measured = evaluation.evaluate([plain_sources(['a'], test=['b'])], [Counting(), Lacking()])
    judged = dataclasses.replace(measured.corpora[0], verdict=verdict_test.verdict_of(verdict_test.BAD))
    measured = dataclasses.replace(measured, corpora=(judged,))
    return {
        **{f'report-{name}': report_page.render_html(made) for name, made in reports().items()},
        **{
            f'restricted-{name}': restricted_page.render_restricted_page(made)
            for name, made in (
                ('median', restricted_page_test.MEDIAN),
                ('individual', restricted_page_test.INDIVIDUAL),
            )
        },
        'ledger': ledger_page.render_html(ledger_page_test.account(60), ledger_page_test.EVENTS),
        'evaluation': evaluation_page.render_html(measured),
        'canaries': canaries_page.render_html(_canaries()),
    }
