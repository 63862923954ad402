"""The plan of a run: its numbers are the accountant's, and nothing is read for them."""

import math
import pathlib
from typing import Any

import pytest

from models.decoders import device
from models.privacy import accounting
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods.predict import plan
from pipeline.settings.job_config import JobConfig
from tests.command_line import in_this_process
from tests.oracles import costs


def config(**settings: Any) -> JobConfig:
    given = {'delta': 1e-6, 'max_private_tokens': 100, 'batch_size': 128, 'aggregate': 'mean'}
    return job_config(**(given | settings))


@pytest.mark.parametrize(
    'settings',
    [
        {},
        {'batches_per_label': 4},
        {'threshold': 0.5, 'threshold_noise_scale': 0.2},
        {'examples_per_context': 2},
        {'unit': 'user', 'unit_field': 'customer', 'examples_per_context': 4},
        {'count_rho': 0.1},
        {'aggregate': 'difference', 'accounting': 'worst-case', 'clip_bound': 1.5},
        {'clusters': 4, 'clustering_rho': 0.02},
    ],
    ids=str,
)
def test_numbers_are_the_accountants(settings: dict[str, Any]) -> None:
    given = config(**settings)
    run_plan, params = plan.plan_run(methods.solve(given)), methods.solve(given).params
    of_clusters = settings.get('clustering_rho')
    counts = 0.0 if given.method.batches_per_label else of_clusters or given.method.count_rho
    assert run_plan.rho_counts == counts
    assert run_plan.rho_per_private_token == accounting.rho_per_private_token(params)
    assert run_plan.rho_total == pytest.approx(100 * run_plan.rho_per_private_token + counts)
    assert run_plan.epsilon == accounting.epsilon_from_rho(run_plan.rho_total, 1e-6)
    assert run_plan.epsilon < run_plan.epsilon_closed_form
    assert run_plan.max_private_tokens == 100


INDIVIDUAL = {'aggregate': 'difference', 'max_private_tokens': None, 'batch_size': 64}


@pytest.mark.parametrize(
    'settings',
    [
        {'epsilon': 3.0},
        {'epsilon': 3.0, 'omega': 5.0},
        {'context_budget': 0.25},
        {'context_budget': 0.25, 'omega': 4.0, 'batches_per_label': 2},
        {'epsilon': 3.0, 'examples_per_context': 2},
        {'epsilon': 3.0, 'clusters': 4, 'clustering_rho': 0.02},
    ],
    ids=str,
)
def test_numbers_of_individual_accounting_are_the_accountants(settings: dict[str, Any]) -> None:
    """And the twin's: the least epsilon over orders up to ω of what one unit may spend and the counts."""
    given = config(**(INDIVIDUAL | settings))
    run_plan, params = plan.plan_run(methods.solve(given)), methods.solve(given).params
    counts = 0.0 if given.method.batches_per_label else given.method.clustering_rho or given.method.count_rho
    times = 4 if given.budget.examples_per_context > 1 else 1
    budget, omega = run_plan.context_budget, run_plan.omega
    assert run_plan.accounting == 'individual' and (budget, omega) == (params.context_budget, params.omega)
    assert run_plan.rho_total == pytest.approx(times * budget + counts)
    curve = costs.zcdp(times * budget + counts, omega)
    expected = float(costs.epsilon(curve, 1e-6, costs.grid(0.05, omega - 1, 400)))
    assert expected * (1 - 1e-4) <= run_plan.epsilon <= expected * (1 + 1e-9)
    if given.budget.epsilon is not None:
        assert 3.0 * (1 - 1e-4) < run_plan.epsilon <= 3.0
    assert accounting.epsilon_at_order(
        run_plan.order, run_plan.order * run_plan.rho_total, 1e-6
    ) == pytest.approx(run_plan.epsilon, rel=1e-9)
    assert run_plan.order <= omega and run_plan.epsilon < run_plan.epsilon_closed_form
    assert run_plan.worst_case_tokens == math.floor(budget / (2 * (1.4 / 64) ** 2))
    assert (
        run_plan.max_batch_tokens == run_plan.max_private_tokens == min(1024, 16 * run_plan.worst_case_tokens)
    )
    assert run_plan.rho_per_private_token is None
    # The ledger is charged the same, as events.
    cost = methods.solve(given).cost
    assert cost.curve.largest_order == omega and cost.curve.epsilon(1e-6) == run_plan.epsilon


def test_numbers_of_a_case_by_hand() -> None:
    # c = 10, s = 128, τ = 2: ½ (10 / 256)² per token.
    run_plan = plan.plan_run(methods.solve(config(batches_per_label=1)))
    assert run_plan.rho_per_private_token == pytest.approx(0.5 * (10 / 256) ** 2)
    assert run_plan.rho_total == pytest.approx(100 * 0.5 * (10 / 256) ** 2)


@pytest.mark.parametrize('epsilon', [0.5, 3.0, 10.0])
def test_a_given_epsilon_gives_a_cap_that_gives_it_back(epsilon: float) -> None:
    solved = plan.plan_run(methods.solve(config(max_private_tokens=None, epsilon=epsilon)))
    assert solved.epsilon <= epsilon
    back = plan.plan_run(methods.solve(config(max_private_tokens=solved.max_private_tokens)))
    assert back == solved
    more = plan.plan_run(methods.solve(config(max_private_tokens=solved.max_private_tokens + 1)))
    assert more.epsilon > epsilon


def test_batches_are_unknown_without_public_facts() -> None:
    run_plan = plan.plan_run(methods.solve(config()))
    assert run_plan.expected_batches is None
    assert run_plan.expected_private_tokens is None
    assert methods.solve(config()).tokens == {'decoding': 0}


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
    run_plan = plan.plan_run(methods.solve(config(**settings)))
    assert run_plan.expected_batches == batches
    assert run_plan.expected_private_tokens == 100 * batches


@pytest.mark.parametrize(
    ('settings', 'said'),
    [
        ({'batches_per_label': 2}, 'put about 500 into each batch'),
        ({'batches_per_label': 2}, 'Give --batches-per-label 16.'),
        ({'batches_per_label': 100}, 'put about 10 into each batch'),
        (
            {'batches_per_label': 1, 'records': 20, 'labels': ('a',), 'label_field': 'ward'},
            'Give --batch-size 20,',
        ),
    ],
)
def test_batches_that_declared_records_would_not_fit_are_warned_of(
    settings: dict[str, Any], said: str
) -> None:
    chosen: dict[str, Any] = {
        'labels': ('a', 'b'), 'label_field': 'ward', 'records': 2_000, 'batch_size': 64, 'delta': 1e-6,
    } | settings  # fmt: skip
    (warning,) = plan.plan_run(methods.solve(config(**chosen))).warnings
    assert said in warning
    for fits in ({'batches_per_label': None}, {'batches_per_label': 16}, {'records': None}):
        if chosen['records'] == 2_000:
            assert not plan.plan_run(methods.solve(config(**chosen | fits))).warnings


def test_a_median_has_no_price_in_advance() -> None:
    run_plan = plan.plan_run(methods.solve(config(aggregate='median')))
    assert run_plan.statement == 'ex-post'
    assert run_plan.rho_counts == 0.005
    priced = (run_plan.rho_per_private_token, run_plan.rho_total, run_plan.epsilon)
    assert priced == (None, None, None) and run_plan.epsilon_closed_form is None


def test_rows_are_decoded_with_their_prompts_up_to_the_cap_on_all_tokens() -> None:
    sizes = {'batch_size': 16, 'max_prompt_tokens': 100, 'batches_per_label': 3}
    for more, tokens in (
        ({}, 100),
        ({'max_private_tokens': 200}, 200),
        ({'threshold': 0.5, 'threshold_noise_scale': 0.2, 'max_batch_tokens': 500}, 500),
    ):
        found = methods.solve(config(**sizes, **more)).tokens
        assert found == {'decoding': 3 * 16 * (100 + tokens)}


def test_a_sample_of_the_records_fills_as_many_fewer_batches() -> None:
    whole = config(records=20_000, batch_size=100)
    tenth = whole.replace(sample_rate=0.1)
    assert methods.solve(whole).expected_batches == 200
    assert methods.solve(tenth).expected_batches == 20
    # The cost of a run, and the number that its delta is compared with, stay those of all records.
    assert plan.plan_run(methods.solve(tenth)).rho_total == plan.plan_run(methods.solve(whole)).rho_total
    assert tenth.delta == whole.delta


def test_the_plan_compares_batches_with_the_sample_that_would_fill_them() -> None:
    arguments = (
        'plan', '--records', '20000', '--batches-per-label', '2', '--batch-size', '100', '--epsilon', '4',
        '--labels', 'a,b', '--label-field', 'kind',
    )  # fmt: skip

    def shown(*more: str) -> str:
        done = in_this_process(*arguments, *more)
        assert done.returncode == 0, done.stderr
        return ' '.join(done.stdout.split())

    assert '20,000 declared records of 2 labels put about 5,000 into each batch' in shown()
    assert (
        '--sample-rate 0.1 of 20,000 declared records of 2 labels put about 500 into each batch'
        in shown('--sample-rate', '0.1')
    )  # fmt: skip
    assert 'into each batch' not in shown('--sample-rate', '0.02')


@pytest.mark.parametrize('rate', ['0', '-0.1', '1.5', 'nan'])
def test_a_sample_rate_is_a_probability_above_zero(rate: str) -> None:
    done = in_this_process('plan', '--records', '1000', '--epsilon', '4', '--sample-rate', rate)
    assert done.returncode == 2
    assert f'Expected 0 < sample_rate <= 1, got sample_rate={float(rate)!r}' in done.stderr


@pytest.mark.parametrize(
    ('aggregate', 'bounds', 'sampled', 'dtype'),
    [
        ('difference', 'c = 1.4, c₂ = 0.4, τ = 1 ', 'the 1,024 most probable public tokens', 'float32'),
        ('mean', 'c = 10, τ = 2 ', 'the whole vocabulary', 'bfloat16'),
        ('median', 'c = 6, τ = 1.5 ', 'the whole vocabulary', 'bfloat16'),
    ],
)
def test_a_plan_shows_the_defaults_of_its_aggregate(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    aggregate: str,
    bounds: str,
    sampled: str,
    dtype: str,
) -> None:
    monkeypatch.setenv('DP_CORPUS_CACHE', str(tmp_path))
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: 'bfloat16')
    monkeypatch.setattr(device, 'has_plugin', lambda: False)
    budget = ('--epsilon', '3') if aggregate == 'difference' else ('--max-private-tokens', '9')
    done = in_this_process(
        'plan', '--delta', '1e-6', '--aggregate', aggregate, *budget, '--batches-per-label', '2'
    )
    assert done.returncode == 0, done.stderr
    shown = ' '.join(done.stdout.split())
    assert bounds in shown and f'Sampled from {sampled}' in shown
    assert f'no run on this machine has decoded with bundled in {dtype} yet' in shown
