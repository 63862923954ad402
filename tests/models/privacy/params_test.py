"""Settings: what they derive, and what they refuse."""

import dataclasses
import fractions
import math

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from models.privacy import accounting, randomness, sparse_vector, whole_numbers
from models.privacy.aggregates.aggregate import quantum, vote_limit
from models.privacy.params import Change, MechanismParams
from models.privacy.sampling import MAX_CLIP_OVER_TEMPERATURE

INDIVIDUAL = {
    'aggregate': 'difference', 'accounting': 'individual', 'max_private_tokens': None, 'public_top_k': 100,
    'shift_bound': 0.4, 'context_budget': 1.0, 'omega': 4.0,
}  # fmt: skip
PARAMS = MechanismParams(
    batch_size=255, clip_bound=10.0, temperature=2.0, max_private_tokens=100, max_batch_tokens=1000
)


@pytest.mark.parametrize(
    'name, values',
    [
        (name, (0, -1, 1.0, '3', None))
        for name in (
            'batch_size',
            'max_private_tokens',
            'max_example_tokens',
            'max_batch_tokens',
            'examples_per_context',
        )
    ]
    + [
        (name, (0.0, -1.0, math.inf, -math.inf, math.nan))
        for name in ('clip_bound', 'temperature', 'public_temperature')
    ]
    + [('public_top_k', (0, -3)), ('unit', ('group', '')), ('aggregate', ('medians', 'sum'))],
)
def test_bad_values_are_refused_by_name(name: str, values: tuple) -> None:
    for value in values:
        with pytest.raises(ValueError, match=name):
            dataclasses.replace(PARAMS, **{name: value})


@pytest.mark.parametrize(
    'threshold, scale, named',
    [
        (0.3, None, 'threshold_noise_scale'),
        (None, 0.1, 'threshold'),
        (0.3, 0.0, 'threshold_noise_scale'),
        (0.3, -0.1, 'threshold_noise_scale'),
        (0.3, math.inf, 'threshold_noise_scale'),
        (0.3, math.nan, 'threshold_noise_scale'),
        (math.nan, 0.1, 'threshold'),
        (-math.inf, 0.1, 'threshold'),
    ],
)
def test_threshold_without_finite_noise_is_refused(
    threshold: float | None, scale: float | None, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        dataclasses.replace(PARAMS, threshold=threshold, threshold_noise_scale=scale)


def test_clip_over_temperature_is_bounded_where_the_sampler_stays_exact() -> None:
    dataclasses.replace(PARAMS, clip_bound=MAX_CLIP_OVER_TEMPERATURE, temperature=1.0)
    with pytest.raises(ValueError, match='clip_bound / temperature'):
        dataclasses.replace(PARAMS, clip_bound=math.nextafter(MAX_CLIP_OVER_TEMPERATURE, 99), temperature=1.0)


@pytest.mark.parametrize(
    'name',
    [
        'clip_bound',
        'temperature',
        'public_temperature',
        'shift_bound',
        'context_budget',
        'threshold_noise_scale',
    ],
)
@pytest.mark.parametrize('value', [5e-324, 1e-170, 1e-30, 9e-7, 1.1e6, 1e30, 1e200, 1.7e308])
def test_numbers_that_arithmetic_could_lose_are_refused_by_name(name: str, value: float) -> None:
    """The open twin: a square of 1e-170 is 0, and so would a price be."""
    if name == 'context_budget' and value == 1.1e6:
        value = 1.1e12
    given = {'threshold': 0.5, 'threshold_noise_scale': 0.2}
    if name in ('shift_bound', 'context_budget'):
        given = dict(INDIVIDUAL)
    with pytest.raises(ValueError, match=f'{name}={value!r}'.replace('+', r'\+')):
        dataclasses.replace(PARAMS, **{**given, name: value})
    assert 1e-170**2 == 0


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(st.data())
def test_what_is_let_in_has_its_price(data: st.DataObject) -> None:
    """Every number over all magnitudes: refused, or priced as exact arithmetic does, with votes that fit."""
    powers = st.floats(-330, 308)
    names = ('clip_bound', 'temperature', 'public_temperature', 'threshold_noise_scale')
    # Half of the time one number alone is extreme.
    extreme = data.draw(st.sampled_from((*names, 'all', 'none')))
    inner = st.floats(-7, 7)
    settings = {
        name: 10.0 ** data.draw(powers if extreme in (name, 'all') else inner, label=name) for name in names
    }
    settings['threshold'] = data.draw(st.sampled_from([0.5, -1e3, 1e3, 1e9, -1e300]))
    settings['batch_size'] = data.draw(st.integers(1, 2**18))
    settings['examples_per_context'] = data.draw(st.sampled_from([1, 2]))
    try:
        params = dataclasses.replace(PARAMS, **settings)
    except ValueError:
        return
    c, tau, sigma, s = (
        fractions.Fraction(number)
        for number in (params.clip_bound, params.temperature, params.threshold_noise_scale, params.batch_size)
    )
    a = params.change.value
    exact = (a * c / (s * tau)) ** 2 / 2 + 2 * (a / (s * sigma)) ** 2
    assert (
        accounting.rho_per_private_token(params) == pytest.approx(float(exact), rel=1e-12) and exact > 1e-40
    )
    # A vote is whole quanta of normal floats, and its largest is at most c and hardly less.
    step, limit = quantum(params.clip_bound), vote_limit(params.clip_bound)
    assert c * (1 - fractions.Fraction(1, 2**21)) <= limit * fractions.Fraction(step) <= c
    assert 2**21 <= limit <= whole_numbers.MOST_QUANTA
    assert step / (params.batch_size * params.temperature) > np.finfo(np.float32).tiny
    # Noise and threshold are numbers that the device's limbs have room for.
    scales = sparse_vector.noise_scales(params.threshold_noise_scale, params.batch_size)
    assert max(len(randomness._digit_odds(scale)) for scale in scales) <= 54
    assert min(scales) > 16 and abs(sparse_vector.threshold_in_quanta(params)) < 2**52


def test_a_batch_that_is_larger_than_sums_have_room_for_is_no_setting() -> None:
    dataclasses.replace(PARAMS, batch_size=2**17)
    with pytest.raises(ValueError, match='batch_size'):
        dataclasses.replace(PARAMS, batch_size=2**17 + 1)
    individual = dataclasses.replace(PARAMS, **INDIVIDUAL, clip_bound=1.0, batch_size=2**14 - 1)
    for changes in ({'batch_size': 2**14}, {'clip_bound': 2.0}):
        with pytest.raises(ValueError, match='batch_size'):
            dataclasses.replace(individual, **changes)
    with pytest.raises(ValueError, match='clip_bound'):
        dataclasses.replace(individual, clip_bound=129.0, temperature=1000.0)


@pytest.mark.parametrize(
    'unit, examples_per_context, change',
    [
        ('example', 1, Change.ADD_OR_REMOVE),
        ('example', 2, Change.REPLACE),
        ('user', 1, Change.ADD_OR_REMOVE),
        ('user', 8, Change.ADD_OR_REMOVE),
    ],
)
def test_only_slots_shared_without_unit_ids_may_replace(
    unit: str, examples_per_context: int, change: Change
) -> None:
    params = dataclasses.replace(PARAMS, unit=unit, examples_per_context=examples_per_context)
    factor = {Change.ADD_OR_REMOVE: 1, Change.REPLACE: 2}[change]
    assert params.change is change
    assert params.aggregate_sensitivity == pytest.approx(factor * 10 / 255, rel=1e-15)
    assert params.distance_sensitivity == pytest.approx(factor / 255, rel=1e-15)


def test_public_logits_are_needed_for_the_test_or_the_restriction_only() -> None:
    with_test = dataclasses.replace(PARAMS, threshold=0.3, threshold_noise_scale=0.1)
    with_top_k = dataclasses.replace(PARAMS, public_top_k=5)
    assert [p.uses_sparse_vector for p in (PARAMS, with_test, with_top_k)] == [False, True, False]
    assert [p.needs_public_logits for p in (PARAMS, with_test, with_top_k)] == [False, True, True]


@pytest.mark.parametrize(
    'aggregate, needs_public, ex_post',
    [('mean', False, False), ('median', True, True), ('difference', True, False)],
)
def test_the_aggregate_decides_what_is_read_and_whether_a_price_is_known(
    aggregate: str, needs_public: bool, ex_post: bool
) -> None:
    params = dataclasses.replace(PARAMS, aggregate=aggregate)
    assert (params.needs_public_logits, params.is_ex_post) == (needs_public, ex_post)
    if ex_post:
        with pytest.raises(ValueError, match='median'):
            _ = params.aggregate_sensitivity
    else:
        assert params.aggregate_sensitivity == PARAMS.aggregate_sensitivity
    assert params.distance_sensitivity == PARAMS.distance_sensitivity


def test_the_difference_aggregate_leaves_half_the_range_to_the_public_logits() -> None:
    half = MAX_CLIP_OVER_TEMPERATURE / 2
    difference = dataclasses.replace(PARAMS, aggregate='difference', clip_bound=half, temperature=1.0)
    with pytest.raises(ValueError, match='clip_bound / temperature'):
        dataclasses.replace(difference, clip_bound=math.nextafter(half, 99))
    for aggregate in ('mean', 'median'):
        dataclasses.replace(difference, aggregate=aggregate, clip_bound=2 * half)
