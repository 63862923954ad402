"""The plan of a run: its numbers are the accountant's, and nothing is read for them."""

import dataclasses
import json
import math
import pathlib
from typing import Any

import pytest

from models.decoders import device
from models.decoders.rates import Rates
from models.privacy import accounting
from pipeline import methods
from pipeline.calibration import Calibration
from pipeline.config import job_config
from pipeline.methods.predict import decoding_estimate, plan
from pipeline.methods.predict.decoding_estimate import DecodingEstimate
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
    counts = 0.0 if given.method.batches_per_label else given.method.clustering_rho or given.method.count_rho
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
    assert cost.curve.largest_order == omega and cost.epsilon(1e-6) == run_plan.epsilon
    assert cost.rho is None, 'not in zCDP: above ω nothing is known'


def test_the_plan_of_individual_accounting_for_people() -> None:
    settings = ('--delta', '1e-6', '--batch-size', '64', '--aggregate', 'difference')
    shown = ' '.join(in_this_process('plan', *settings, '--epsilon', '3').stdout.split())
    made = plan.plan_run(methods.solve(config(**INDIVIDUAL, epsilon=3.0)))
    for words in (
        f'ε = {made.epsilon:g} at δ = 1e-06', f'orders up to ω = {made.omega:g}, α = {made.order:.6g} used',
        f'B = {made.context_budget:.6g}, individual accounting',
        f'pays for {made.worst_case_tokens:,} tokens at the highest price',
        f'All tokens per batch at most {made.max_batch_tokens:,}', 'c = 1.4, c₂ = 0.4, τ = 1',
    ):  # fmt: skip
        assert words in shown, words
    assert 'Private tokens per batch' not in shown and 'ρ per private token' not in shown
    alike = ' '.join(in_this_process('plan', *settings, '--max-private-tokens', '9', '--accounting',
                                     'worst-case').stdout.split())  # fmt: skip
    assert 'Private tokens per batch at most 9' in alike and 'individual' not in alike


def test_worst_case_runs_have_no_numbers_of_individual_accounting() -> None:
    run_plan = plan.plan_run(methods.solve(config()))
    assert run_plan.accounting == 'worst-case'
    for name in ('shift_bound', 'context_budget', 'omega', 'order', 'worst_case_tokens'):
        assert getattr(run_plan, name) is None


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
    assert decoding_estimate.estimate_decoding(methods.solve(config()), CALIBRATION).hours is None


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


# --- How long decoding takes -----------------------------------------------------

# Each rate is a power of ten of its own: a product with the wrong one shows.
RATES = Rates(
    prompt_flops=1e12, step_flops=1e11, output_flops=1e10,
    weight_bytes=1e9, cache_bytes=1e8, ranked_logits=1e6,
)  # fmt: skip
CALIBRATION = Calibration(device='a device', dtype='float32', measured_on='2026-11-22', rates=RATES)
# The bundled model by hand: 4 layers of width 256, feed-forward of 512, 4 query and 2 key heads of 64.
LAYER = 256 * 64 * (4 + 2 + 2 + 4) + 3 * 256 * 512
WEIGHTS = 4 * (LAYER + 4 * 256 + 2 * 64) + 256
SLOT_BYTES = 4 * 2 * 2 * 64 * 4


def estimate(**settings: Any) -> DecodingEstimate:
    sizes = {'max_prompt_tokens': 100, 'max_example_tokens': 28, 'batches_per_label': 1}
    return decoding_estimate.estimate_decoding(methods.solve(config(**(sizes | settings))), CALIBRATION)


def test_the_estimate_of_a_case_by_hand() -> None:
    # 16 contexts of the mean: a micro-batch for 16 + 2 * 4 rows, in whole blocks of 8.
    rows = 24
    found = estimate(batch_size=16)
    # For so few rows reading the weights takes longer than multiplying them.
    layers = WEIGHTS * 4 / 1e9
    assert layers > 2 * WEIGHTS * rows / 1e11
    cache, output = rows * 128 * SLOT_BYTES / 1e8, 2 * 4096 * 256 * rows / 1e10
    assert found.seconds_per_step == pytest.approx(layers + cache + output)
    prompt = 2 * WEIGHTS * 100 + 4 * 4 * (4 * 64) * 100**2
    assert found.prompts_seconds == pytest.approx(rows * prompt / 1e12)
    assert found.hours == pytest.approx((found.prompts_seconds + 100 * found.seconds_per_step) / 3600)
    assert (found.device, found.measured_on) == ('a device', '2026-11-22')


def test_large_batches_are_arithmetic_in_several_micro_batches() -> None:
    # 600 + 2 * 24 rows in 6 parts of 108, in whole blocks of 8: 112, of which 6 are filled.
    rows = 6 * 112
    found = estimate(batch_size=600)
    layers = 2 * WEIGHTS * rows / 1e11
    assert layers < 6 * WEIGHTS * 4 / 1e9
    small = estimate(batch_size=600, micro_batch_size=600)
    assert small.seconds_per_step < found.seconds_per_step


def test_columns_that_the_public_row_chooses() -> None:
    # Public rows are a block of their own, which reads the layers' weights again.
    rows = 24
    found = estimate(batch_size=16, aggregate='difference', accounting='worst-case', public_top_k=50)
    layers, cache = 2 * WEIGHTS * 4 / 1e9, (rows + 8) * 128 * SLOT_BYTES / 1e8
    public_row = 4096 * 256 * 4 / 1e9 + 4096 / 1e6
    # The 50, and what may be beside them.
    expected = layers + cache + public_row + 2 * (50 + 64) * 256 * rows / 1e10
    assert found.seconds_per_step == pytest.approx(expected)
    # The sparse vector's distance is of all columns.
    sparse = estimate(batch_size=16, public_top_k=50, threshold=0.5, threshold_noise_scale=0.2)
    output = 2 * 4096 * 256 * (rows + 8) / 1e10
    assert sparse.seconds_per_step == pytest.approx(layers + cache + output)


def test_half_the_bytes_in_half_the_time() -> None:
    given = config(batch_size=16, max_prompt_tokens=100, max_example_tokens=28, batches_per_label=1)
    whole, half = (
        decoding_estimate.estimate_decoding(
            methods.solve(given), dataclasses.replace(CALIBRATION, dtype=dtype)
        )
        for dtype in ('float32', 'bfloat16')
    )
    output = 2 * 4096 * 256 * 24 / 1e10
    assert half.seconds_per_step - output == pytest.approx((whole.seconds_per_step - output) / 2)


def test_the_estimate_of_all_batches() -> None:
    one, three = estimate(), estimate(batches_per_label=3)
    assert three.hours == pytest.approx(3 * one.hours)
    longer = estimate(max_private_tokens=200)
    assert longer.hours - one.hours == pytest.approx(100 * one.seconds_per_step / 3600)


def test_json() -> None:
    given = json.loads(plan.plan_run(methods.solve(config())).to_json())
    promised = {
        'max_private_tokens', 'rho_per_private_token', 'rho_total', 'epsilon', 'delta', 'expected_batches'
    }  # fmt: skip
    assert promised <= set(given)
    assert given['delta'] == 1e-6 and given['expected_batches'] is None


def test_a_sample_of_the_records_fills_as_many_fewer_batches() -> None:
    whole = config(records=20_000, batch_size=100)
    tenth = whole.replace(sample_rate=0.1)
    assert methods.solve(whole).expected_batches == 200
    assert methods.solve(tenth).expected_batches == 20
    # What a run costs and what its delta is compared with stay those of all records.
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
    assert 'Give --sample-rate 0.1 for a tenth' in done.stderr


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
    done = in_this_process('plan', '--delta', '1e-6', '--aggregate', aggregate, *budget)
    assert done.returncode == 0, done.stderr
    shown = ' '.join(done.stdout.split())
    assert bounds in shown and f'Sampled from {sampled}' in shown
    assert f'a token in {dtype}' in shown


@pytest.mark.parametrize(
    ('hours', 'shown'),
    [
        (0.5, 'up to 30 minutes'),
        (0.1, 'up to 6 minutes'),
        (0.01, 'up to 36 seconds'),
        (1.26, 'up to 1.3 hours'),
    ],
)
def test_time_is_shown_in_the_unit_that_fits(
    monkeypatch: pytest.MonkeyPatch, hours: float, shown: str
) -> None:
    estimate = decoding_estimate.estimate_decoding

    def of_so_many_hours(*given: Any) -> DecodingEstimate:
        return dataclasses.replace(estimate(*given), hours=hours)

    monkeypatch.setattr(decoding_estimate, 'estimate_decoding', of_so_many_hours)
    assert shown in in_this_process('plan', '--epsilon', '3', '--records', '10000').stdout
