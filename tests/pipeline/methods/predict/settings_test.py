"""Settings of private prediction: the mechanism that they give, and what does not go together."""

import dataclasses
import math
import re
from typing import Any

import pytest
from scipy import stats

from models.privacy import accounting
from models.privacy.aggregates import AGGREGATES
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods.predict import plan
from pipeline.settings.job_config import JobConfig

ENOUGH: dict[str, Any] = {'delta': 1e-6, 'max_private_tokens': 8, 'aggregate': 'mean'}
# Charged alike whatever they give: the difference has another way by default.
WORST_CASE: dict[str, Any] = {'aggregate': 'difference', 'accounting': 'worst-case'}
INDIVIDUAL: dict[str, Any] = {'aggregate': 'difference', 'max_private_tokens': None, 'epsilon': 3.0}


def config(**settings: Any) -> JobConfig:
    return job_config(**(ENOUGH | settings))


# --- Aggregates --------------------------------------------------------------------


@pytest.mark.parametrize('aggregate', list(AGGREGATES))
def test_what_is_not_set_is_the_aggregates_own_default(aggregate: str) -> None:
    """And what is set wins; 0 asks for the whole vocabulary."""
    known = AGGREGATES[aggregate]
    alike = {'aggregate': aggregate, 'accounting': 'worst-case'}
    params = methods.solve(config(**alike)).params
    assert (params.clip_bound, params.temperature, params.public_top_k) == (
        known.default_clip_bound,
        known.default_temperature,
        known.default_public_top_k,
    )
    given = methods.solve(config(**alike, clip_bound=0.5, temperature=3.0, public_top_k=7)).params
    assert (given.clip_bound, given.temperature, given.public_top_k) == (0.5, 3.0, 7)
    assert methods.solve(config(**alike, public_top_k=0)).params.public_top_k is None


def test_a_median_run_takes_its_cap_and_no_epsilon() -> None:
    assert methods.solve(config(aggregate='median')).params.max_private_tokens == 8
    with pytest.raises(ValueError, match='function of the records and the output.*max-private-tokens'):
        config(aggregate='median', epsilon=3.0, max_private_tokens=None)
    with pytest.raises(ValueError, match='got epsilon=3.0'):
        config(aggregate='median', epsilon=3.0)


# --- What epsilon pays for ---------------------------------------------------------


def test_a_budget_that_buys_nothing_with_the_mean_says_what_it_buys_with_the_difference() -> None:
    target = {'max_private_tokens': None, 'batches_per_label': 1, 'delta': 1e-6}
    with pytest.raises(ValueError, match='--epsilon .* is the smallest that pays for one') as caught:
        methods.solve(config(**target, epsilon=0.25))
    found = re.search(r'give --aggregate difference: .* pays for (\d+) tokens', str(caught.value))
    assert found is not None
    other = methods.solve(config(**target, epsilon=0.25, aggregate='difference')).params
    assert other.context_budget is not None
    assert accounting.worst_case_tokens(other, other.context_budget) == int(found[1]) >= 1
    with pytest.raises(ValueError) as caught:
        methods.solve(config(**target, epsilon=1e-3))
    assert '--aggregate difference' not in str(caught.value)


def test_epsilon_solves_for_the_largest_cap() -> None:
    solved = config(max_private_tokens=None, epsilon=4.0)
    cap = methods.solve(solved).params.max_private_tokens

    def epsilon(tokens: int) -> float:
        params = dataclasses.replace(methods.solve(solved).params, max_private_tokens=tokens)
        return accounting.epsilon_from_rho(
            accounting.generation_rho(params) + solved.method.noisy_count_rho, solved.delta
        )

    assert epsilon(cap) <= 4.0 < epsilon(cap + 1)


def test_counts_are_charged_only_where_they_are_drawn() -> None:
    assert config().method.noisy_count_rho == 0.005
    assert config(batches_per_label=2).method.noisy_count_rho == 0


def test_default_token_caps() -> None:
    assert methods.solve(config()).params.max_batch_tokens == 8
    assert methods.solve(config(threshold=0.5, threshold_noise_scale=0.1)).params.max_batch_tokens == 64
    assert methods.solve(config(max_batch_tokens=20)).params.max_batch_tokens == 20


@pytest.mark.parametrize(('batch_size', 'rows'), [(8, 12), (64, 80), (255, 285), (1023, 1085)])
def test_a_micro_batch_holds_a_full_batch_and_the_public_rows(batch_size: int, rows: int) -> None:
    without = WORST_CASE | {'reference_rounds': 1}
    assert config(batch_size=batch_size, **without).method.rows_together == rows + 1
    assert config(batch_size=batch_size, **without | {'reference_rounds': 2}).method.rows_together == rows + 8
    assert config(batch_size=batch_size, micro_batch_size=7).method.rows_together == 7
    # A sum of many coins is normal: one batch in 40 is larger.
    assert stats.poisson(255).sf(285) == pytest.approx(0.03, abs=0.005)


def test_tokens_that_no_batch_can_have_are_not_paid_for() -> None:
    budget = {**WORST_CASE, 'epsilon': 3.0, 'max_private_tokens': None}
    assert methods.solve(config(**budget)).params.max_private_tokens > 1_000
    assert methods.solve(config(**budget, max_batch_tokens=100)).params.max_private_tokens == 100
    # Nor what no context can spend.
    whole, less = config(**INDIVIDUAL), config(**INDIVIDUAL, max_batch_tokens=20)
    assert methods.solve(less).params.max_batch_tokens == 20
    budget_of_20 = methods.solve(less).params.context_budget
    price = 2 * (1.4 / 64) ** 2
    assert 20 * price <= budget_of_20 < 21 * price < methods.solve(whole).params.context_budget
    assert plan.plan_run(methods.solve(less)).epsilon < 0.5 * plan.plan_run(methods.solve(whole)).epsilon
    # A budget that is given is what may be spent.
    given = config(**INDIVIDUAL | {'epsilon': None, 'context_budget': 0.5}, max_batch_tokens=100)
    assert methods.solve(given).params.context_budget == 0.5


# --- Settings that do not fit ---------------------------------------------------


@pytest.mark.parametrize(
    'settings, expectation, remedy',
    [
        ({'epsilon': 1.0}, 'either epsilon or max_private_tokens', 'give one'),
        ({'max_private_tokens': None}, 'either epsilon or max_private_tokens', 'give one'),
        ({'count_rho': 0.0}, 'count_rho > 0', 'leave it out'),
        ({'count_rho': float('inf')}, 'count_rho > 0', 'leave it out'),
        ({'batches_per_label': 0}, 'batches_per_label >= 1', 'positive whole number'),
        ({'batch_size': 0}, 'batch_size >= 1', 'positive whole number'),
        ({'threshold': 0.5}, 'threshold and threshold_noise_scale together', 'Set both'),
        ({'clip_bound': 40.0}, 'clip_bound / temperature', 'Lower --clip-bound'),
        ({'temperature': 0.0}, 'temperature > 0', 'positive finite'),
        ({'public_top_k': -1}, 'public_top_k >= 0', '0 for the whole vocabulary'),
        (
            {'dataset': 'visits', 'ledger': 'ledger.db', 'aggregate': 'median'},
            "no dataset with aggregate='median'",
            'no price',
        ),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], expectation: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=expectation) as caught:
        config(**settings)
    assert caught.match(remedy)


# --- Clusters ----------------------------------------------------------------------


@pytest.mark.parametrize(
    'settings, said',
    [
        ({'clustering_rho': 0.01}, 'clustering_rho with clusters only'),
        ({'centers': 'folder'}, 'centers with clusters only'),
        ({'embedder': 'decoder'}, 'embedder with clusters only'),
        ({'clusters': 0}, 'clusters >= 1'),
        ({'clusters': 3, 'batches_per_label': 2}, 'clusters or batches_per_label'),
        ({'clusters': 3, 'clustering_rho': 0.0}, 'clustering_rho > 0'),
        ({'clusters': 3, 'embedder': 'minilm'}, 'centers for embedder'),
    ],
    ids=str,
)
def test_what_does_not_go_with_clusters_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config(**settings)


def test_clusters_pay_their_own_price_for_counts() -> None:
    assert config(clusters=3).method.noisy_count_rho == 0.005
    assert config(clusters=3, clustering_rho=0.02, count_rho=0.5).method.noisy_count_rho == 0.02
    assert config(count_rho=0.5).method.noisy_count_rho == 0.5


# --- Individual accounting ---------------------------------------------------------


def test_who_pays_follows_from_the_aggregate_where_nobody_says() -> None:
    assert (
        config(**INDIVIDUAL).method.is_individual and methods.solve(config(**INDIVIDUAL)).params.is_individual
    )
    assert not config(**INDIVIDUAL, accounting='worst-case').method.is_individual
    assert not config().method.is_individual and not config(aggregate='median').method.is_individual
    tested = {'threshold': 0.5, 'threshold_noise_scale': 0.1}
    assert not config(aggregate='difference', **tested).method.is_individual
    assert (
        methods.solve(config(**INDIVIDUAL)).params
        == methods.solve(config(**INDIVIDUAL, accounting='individual')).params
    )


@pytest.mark.parametrize('omega', [None, 5.0])
def test_epsilon_solves_for_the_budget_of_a_context(omega: float | None) -> None:
    solved = config(**INDIVIDUAL, omega=omega, count_rho=0.01)
    params = methods.solve(solved).params
    assert omega is None or params.omega == omega
    assert params.max_private_tokens is None and params.shift_bound == 0.4

    def epsilon(budget: float) -> float:
        return accounting.epsilon_from_rho(budget + 0.01, 1e-6, largest_order=params.omega)

    assert epsilon(params.context_budget) <= 3.0 < epsilon(1.0001 * params.context_budget)
    # The cap of a batch is public: 16 times what the highest price leaves, and 1,024 at most.
    tokens = math.floor(params.context_budget / (2 * (1.4 / 64) ** 2))
    assert params.max_batch_tokens == min(1024, 16 * tokens)
    assert methods.solve(config(**INDIVIDUAL, shift_bound=2.5)).params.shift_bound == 2.5


def test_a_given_budget_takes_the_order_that_costs_no_epsilon() -> None:
    given = config(aggregate='difference', max_private_tokens=None, context_budget=0.25)
    omega = methods.solve(given).params.omega
    assert omega == accounting.omega_of_budget(methods.solve(given).params, 0.25, delta=1e-6, other_rho=0.005)
    chosen = plan.plan_run(methods.solve(given)).epsilon
    assert chosen == pytest.approx(accounting.epsilon_from_rho(0.255, 1e-6), rel=1e-12)


@pytest.mark.parametrize(
    'settings, expectation, remedy',
    [
        ({'aggregate': 'difference'}, 'no max_private_tokens with individual', '--accounting worst-case'),
        ({'aggregate': 'difference'}, 'accounting=None', 'leave it out, and give --max-batch-tokens'),
        ({**INDIVIDUAL, 'max_private_tokens': 8}, 'no max_private_tokens', '--accounting worst-case'),
        ({**INDIVIDUAL, 'context_budget': 0.5}, 'either epsilon or context_budget', 'give one'),
        ({**INDIVIDUAL, 'epsilon': None}, 'either epsilon or context_budget', '--max-private-tokens'),
        ({**INDIVIDUAL, 'aggregate': 'mean', 'accounting': 'individual'}, "aggregate='mean'", 'worst-case'),
        (
            {**INDIVIDUAL, 'epsilon': None, 'aggregate': 'median', 'accounting': 'individual'},
            "aggregate='median'",
            '--aggregate difference',
        ),
        (
            {**INDIVIDUAL, 'accounting': 'individual', 'threshold': 0.5, 'threshold_noise_scale': 0.1},
            'threshold=0.5',
            'no --threshold',
        ),
        ({**INDIVIDUAL, 'public_top_k': 0}, 'public_top_k >= 1', '--public-top-k 1024'),
        ({'context_budget': 0.5}, 'context_budget with individual accounting only', 'Leave it out'),
        ({'omega': 5.0}, 'omega with individual accounting only', '--accounting individual'),
        ({**WORST_CASE, 'shift_bound': 1.0}, "shift_bound.*accounting='worst-case'", 'Leave it out'),
        ({**INDIVIDUAL, 'epsilon': None, 'context_budget': 0.0}, 'context_budget > 0', '--context-budget'),
        (
            {**INDIVIDUAL, 'epsilon': None, 'context_budget': 1e-9},
            'pays for one token',
            'Raise --context-budget',
        ),
        ({**INDIVIDUAL, 'omega': 1.0}, 'omega > 1', 'leave it out'),
        ({**INDIVIDUAL, 'omega': float('inf')}, 'finite omega', 'leave it out'),
        ({**INDIVIDUAL, 'omega': 1.01}, 'budget for one token', 'or leave --omega out'),
        ({**INDIVIDUAL, 'omega': 5e3}, 'prices that grow', 'Lower --omega'),
        ({**INDIVIDUAL, 'shift_bound': -1.0}, 'shift_bound > 0', '--shift-bound'),
        ({**INDIVIDUAL, 'count_rho': 5.0}, 'budget for one token', '--epsilon .* is the smallest'),
        ({**INDIVIDUAL, 'accounting': 'both'}, "'individual' or 'worst-case'", 'Who pays'),
    ],
)
def test_what_does_not_go_with_individual_accounting_is_refused(
    settings: dict[str, Any], expectation: str, remedy: str
) -> None:
    with pytest.raises(ValueError, match=expectation) as caught:
        methods.solve(config(**settings))
    assert caught.match(remedy)
