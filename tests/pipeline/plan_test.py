"""The plan of a run: its numbers are the accountant's, and nothing is read for them."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest

from models.clustering import centers
from models.privacy import accounting
from pipeline import plan
from pipeline.config import JobConfig


def config(**settings: Any) -> JobConfig:
    return JobConfig(**({'delta': 1e-6, 'max_private_tokens': 100, 'batch_size': 128} | settings))


@pytest.mark.parametrize(
    'settings',
    [
        {},
        {'batches_per_label': 4},
        {'threshold': 0.5, 'threshold_noise_scale': 0.2},
        {'examples_per_context': 2},
        {'unit': 'user', 'unit_field': 'customer', 'examples_per_context': 4},
        {'count_rho': 0.1},
        {'aggregate': 'difference', 'clip_bound': 1.5},
        {'clusters': 4, 'clustering_rho': 0.02},
    ],
    ids=str,
)
def test_numbers_are_the_accountants(settings: dict[str, Any]) -> None:
    given = config(**settings)
    run_plan, params = plan.plan_run(given), given.params()
    counts = 0.0 if given.batches_per_label else given.clustering_rho or given.count_rho
    assert run_plan.rho_counts == counts
    assert run_plan.rho_per_private_token == accounting.rho_per_private_token(params)
    assert run_plan.rho_total == pytest.approx(100 * run_plan.rho_per_private_token + counts)
    assert run_plan.epsilon == accounting.epsilon_from_rho(run_plan.rho_total, 1e-6)
    assert run_plan.epsilon < run_plan.epsilon_closed_form
    assert run_plan.max_private_tokens == 100


def test_numbers_of_a_case_by_hand() -> None:
    # c = 10, s = 128, τ = 2: ½ (10 / 256)² per token.
    run_plan = plan.plan_run(config(batches_per_label=1))
    assert run_plan.rho_per_private_token == pytest.approx(0.5 * (10 / 256) ** 2)
    assert run_plan.rho_total == pytest.approx(100 * 0.5 * (10 / 256) ** 2)


@pytest.mark.parametrize('epsilon', [0.5, 3.0, 10.0])
def test_a_given_epsilon_gives_a_cap_that_gives_it_back(epsilon: float) -> None:
    solved = plan.plan_run(config(max_private_tokens=None, epsilon=epsilon))
    assert solved.epsilon <= epsilon
    back = plan.plan_run(config(max_private_tokens=solved.max_private_tokens))
    assert back == solved
    more = plan.plan_run(config(max_private_tokens=solved.max_private_tokens + 1))
    assert more.epsilon > epsilon


def test_batches_are_unknown_without_public_facts() -> None:
    run_plan = plan.plan_run(config())
    assert run_plan.expected_batches is None
    assert run_plan.expected_private_tokens is None
    assert run_plan.expected_cpu_hours is None


@pytest.mark.parametrize(
    'settings, batches',
    [
        ({'batches_per_label': 3}, 3),
        ({'batches_per_label': 3, 'label_field': 'label', 'labels': ('a', 'b')}, 6),
        ({'records': 1280}, 10),
        ({'records': 1280, 'examples_per_context': 2}, 5),
        ({'records': 1280, 'examples_per_context': 2, 'unit': 'user', 'unit_field': 'customer'}, 10),
        ({'records': 20, 'label_field': 'label', 'labels': ('a', 'b', 'c')}, 3),
        ({'records': 1280, 'label_field': 'label', 'labels': ('a', 'b'), 'clusters': 30}, 60),
    ],
    ids=str,
)
def test_expected_batches(settings: dict[str, Any], batches: int) -> None:
    run_plan = plan.plan_run(config(**settings))
    assert run_plan.expected_batches == batches
    assert run_plan.expected_private_tokens == 100 * batches
    assert run_plan.expected_cpu_hours is not None and run_plan.expected_cpu_hours > 0


def test_a_median_has_no_price_in_advance() -> None:
    run_plan = plan.plan_run(config(aggregate='median'))
    assert run_plan.statement == 'ex-post'
    assert run_plan.rho_counts == 0.005
    priced = (run_plan.rho_per_private_token, run_plan.rho_total, run_plan.epsilon)
    assert priced == (None, None, None) and run_plan.epsilon_closed_form is None


def test_centres_of_private_records_leave_no_guarantee(tmp_path: pathlib.Path) -> None:
    centers.Centers(
        vectors=np.eye(3, dtype=np.float32),
        embedder='tfidf',
        embedder_fingerprint='0' * 64,
        corpus_fingerprint=None,
        corpus_texts=None,
        seed=0,
        source='k-means',
    ).write(tmp_path)
    run_plan = plan.plan_run(config(clusters=2, centers=str(tmp_path)))
    assert (run_plan.statement, run_plan.rho_total, run_plan.epsilon) == ('none', None, None)


def test_the_estimate_grows_with_the_work() -> None:
    def hours(**settings: Any) -> float:
        found = plan.plan_run(config(batches_per_label=1, **settings)).expected_cpu_hours
        assert found is not None
        return found

    assert hours(max_private_tokens=200) == pytest.approx(2 * hours())
    assert hours(batch_size=256) > 1.5 * hours()
    assert hours(max_prompt_tokens=640) > hours()


def test_json() -> None:
    given = json.loads(plan.plan_run(config()).to_json())
    promised = {
        'max_private_tokens', 'rho_per_private_token', 'rho_total', 'epsilon', 'delta', 'expected_batches'
    }  # fmt: skip
    assert promised <= set(given)
    assert given['delta'] == 1e-6 and given['expected_batches'] is None
