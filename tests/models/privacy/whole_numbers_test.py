"""Vectors in whole steps are never longer than the clip norm, and sums of them are exact."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.privacy import gradients, whole_numbers
from models.privacy.whole_numbers import RADIUS

FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)
SIZES = [(3,), (1024,), (1025,), (7, 5000), (2, 3, 4)]


@functools.cache
def compiled(clip_norm: float):  # type: ignore[no-untyped-def]
    return jax.jit(lambda vector: whole_numbers.steps(vector, clip_norm))


def squared(steps: object) -> int:
    """The square of the norm over all components, exactly."""
    return sum(int(step) ** 2 for leaf in jax.tree.leaves(steps) for step in np.ravel(leaf))


@given(
    vector=st.lists(FLOATS, min_size=6, max_size=6),
    clip_norm=st.sampled_from([1e-8, 1e-3, 1.0, 40.0, 1e8]),
)
@settings(max_examples=300, deadline=None)
def test_no_vector_is_longer_than_the_clip_norm(vector: list[float], clip_norm: float) -> None:
    given_ = {'a': jnp.array(vector[:4], jnp.float32), 'b': jnp.array(vector[4:], jnp.float32)}
    assert squared(compiled(clip_norm)(given_)) <= RADIUS**2


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('shape', SIZES)
@pytest.mark.parametrize('size', [1e-45, 1e-38, 1e-25, 1e-4, 1.0, 1e25, 3e38])
@pytest.mark.parametrize('clip_norm', [1e-8, 1.0, 1e8])
def test_a_vector_of_any_size_is_clipped_and_a_short_one_is_kept(
    shape: tuple[int, ...], size: float, clip_norm: float
) -> None:
    """Against float64; what lies beyond the range of a float32 quotient may be shorter, never longer."""
    rng = np.random.default_rng(0)
    vector = np.clip(size * rng.normal(size=shape), -3e38, 3e38).astype(np.float32)
    vector.flat[0] = np.nan
    found = np.asarray(compiled(clip_norm)(jnp.asarray(vector)))
    assert squared(found) <= RADIUS**2
    exact = np.nan_to_num(vector).astype(float)
    exact *= min(1.0, clip_norm / max(np.linalg.norm(exact), 1e-99)) / clip_norm * RADIUS
    if 1e-37 < size < 1e37:
        assert np.abs(found - exact).max() <= 1 + 1.001 * whole_numbers.NORM_SLACK * np.abs(exact).max()
    assert (np.abs(found) <= np.abs(exact) + 1e-3).all()


def test_equal_components_are_the_longest_vector_and_a_float_norm_alone_is_longer() -> None:
    """The rounding of the norm goes one way over all components; without its slack some are too long."""
    longest = 0
    for count in (3, 1000, 4097, 10**6):
        found = compiled(1.0)(jnp.full(count, 0.7, jnp.float32))
        assert squared(found) <= RADIUS**2
        longest = max(longest, squared(found))
    assert longest > (1 - 3 * whole_numbers.NORM_SLACK) * RADIUS**2
    # A twin without division by the largest component: the norm of small numbers is nothing.
    small = np.full(10_000, 1e-24, np.float32)
    assert min(1.0, 1e-23 / max(float(np.sqrt(np.square(small).sum())), 1e-45)) == 1.0
    assert np.linalg.norm(small.astype(float)) > 9 * 1e-23


@given(
    rows=st.lists(st.lists(st.integers(-RADIUS, RADIUS), min_size=3, max_size=3), min_size=1, max_size=9),
    beside=st.lists(st.integers(-(2**42), 2**42), min_size=3, max_size=3),
)
@settings(max_examples=200, deadline=None)
def test_sums_are_those_of_whole_numbers(rows: list[list[int]], beside: list[int]) -> None:
    of_units = np.array(rows, np.int32)
    found = whole_numbers.of_steps(jnp.asarray(of_units).sum(axis=0))
    np.testing.assert_array_equal(whole_numbers.integers(found), of_units.sum(axis=0, dtype=np.int64))
    together = whole_numbers.add(found, whole_numbers.limbs_of(np.array(beside)))
    expected = of_units.sum(axis=0, dtype=np.int64) + beside
    np.testing.assert_array_equal(whole_numbers.integers(together), expected)
    assert all(0 <= int(low) < 2**12 for low in np.asarray(together.low))
    np.testing.assert_allclose(
        whole_numbers.as_floats(together, 0.25), expected / 4, rtol=2**-22, atol=2**-2 * 2**-6
    )


def test_as_many_units_as_are_let_in_have_room_beside_the_largest_noise() -> None:
    calls = whole_numbers.MOST_CONTEXTS // whole_numbers.TOGETHER
    count = calls * whole_numbers.TOGETHER
    of_call = whole_numbers.of_steps(whole_numbers.TOGETHER * RADIUS * jnp.array([1, -1], jnp.int32))
    units = functools.reduce(whole_numbers.add, calls * [of_call])
    noise = np.array([1, -1]) * int(9 * gradients.MOST_NOISE * RADIUS)
    found = whole_numbers.add(units, whole_numbers.limbs_of(noise))
    np.testing.assert_array_equal(whole_numbers.integers(found), noise + np.array([1, -1]) * count * RADIUS)


# --- One unit in a long sum ------------------------------------------------------------

TOGETHER = 4


def in_micro_batches(units: np.ndarray) -> float:
    """The open twin: how a float32 sum grew, four units at a time."""
    total = np.float32(0)
    for start in range(0, len(units), TOGETHER):
        total += units[start : start + TOGETHER].sum(dtype=np.float32)
    return float(total)


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('large', [512, 4096, 8192])
def test_one_unit_moves_a_long_sum_by_its_own_vector_and_a_float_sum_by_more(large: int) -> None:
    """Units of norm 1, then ones that a float sum takes up or not, as its last bit is even or odd."""
    tie = 2.0 ** (math.log2(large) - 24) / TOGETHER
    units = np.concatenate([np.ones(large), np.full(large, tie * (1 + 2**-10))]).astype(np.float32)
    without = units.copy()
    without[0] = 0
    moved = in_micro_batches(units) - in_micro_batches(without)
    assert moved > 1 + whole_numbers.NORM_SLACK

    def whole(of: np.ndarray) -> int:
        steps = jax.vmap(lambda unit: whole_numbers.steps(unit, 1.0))(jnp.asarray(of)[:, None])
        return int(whole_numbers.integers(whole_numbers.sum_of_rows([steps], RADIUS))[0])

    assert 0.999 * RADIUS < whole(units) - whole(without) <= RADIUS
