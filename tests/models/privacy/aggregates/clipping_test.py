"""One context's bounded vote: the clip of PP, and the clamped difference of METHOD 4b."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from models.privacy.aggregates import clipping
from tests import oracles

pytestmark = pytest.mark.heavy

any_float = st.floats(width=32, allow_nan=True, allow_infinity=True)
rows = hnp.arrays(np.float32, (4, 5), elements=any_float)
bounds = st.floats(1 / 64, 50, width=32)
calm = st.floats(-100, 100, width=32)

# ------------------------------------------------------------------- clip_logits


@given(rows, bounds)
@settings(max_examples=150, deadline=None)
def test_clip_keeps_every_component_between_minus_c_and_c(logits: np.ndarray, bound: float) -> None:
    clipped = np.asarray(clipping.clip_logits(jnp.asarray(logits), bound))
    assert clipped.dtype == np.float32 and clipped.shape == logits.shape
    assert (clipped >= -np.float32(bound)).all() and (clipped <= np.float32(bound)).all()
    finite = np.isfinite(logits).all(axis=1)
    assert (clipped[~finite] == -np.float32(bound)).all()
    assert (clipped[finite].max(axis=1) == np.float32(bound)).all()


@pytest.mark.first
@given(hnp.arrays(np.float32, (3, 7), elements=calm), bounds)
@settings(max_examples=100, deadline=None)
def test_clip_equals_the_oracle(logits: np.ndarray, bound: float) -> None:
    ours = np.asarray(clipping.clip_logits(jnp.asarray(logits), bound))
    np.testing.assert_allclose(ours, oracles.clip(logits, bound), rtol=1e-6, atol=2e-5)


@given(hnp.arrays(np.int16, (2, 6), elements=st.integers(-500, 500)), st.integers(-1000, 1000))
@settings(max_examples=50, deadline=None)
def test_clip_does_not_see_a_shift(logits: np.ndarray, shift: int) -> None:
    # Eighths, so that float32 shifts them without rounding.
    plain = clipping.clip_logits(jnp.asarray(logits / 8, jnp.float32), 5.0)
    shifted = clipping.clip_logits(jnp.asarray((logits + shift) / 8, jnp.float32), 5.0)
    np.testing.assert_array_equal(plain, shifted)


@given(rows, bounds)
@settings(max_examples=100, deadline=None)
def test_some_columns_are_clipped_as_all_are(logits: np.ndarray, bound: float) -> None:
    whole = clipping.clip_logits(jnp.asarray(logits), bound)
    tops = clipping.row_tops(jnp.asarray(logits))
    np.testing.assert_array_equal(clipping.clip_below(logits[:, 1:4], *tops, bound), whole[:, 1:4])


# --------------------------------------------------------------- clip_difference


@given(rows, hnp.arrays(np.float32, 5, elements=any_float), bounds)
@settings(max_examples=300, deadline=None)
def test_a_difference_lies_between_minus_c_and_c_whatever_both_sides_hold(
    logits: np.ndarray, public: np.ndarray, bound: float
) -> None:
    found = np.asarray(clipping.clip_difference(jnp.asarray(logits), jnp.asarray(public), bound))
    assert found.dtype == np.float32 and found.shape == logits.shape
    assert (np.abs(found) <= np.float32(bound)).all()
    finite = np.isfinite(logits).all(axis=1) & np.isfinite(public).all()
    assert not found[~finite].any()


@given(hnp.arrays(np.float32, (3, 7), elements=calm), hnp.arrays(np.float32, 7, elements=calm), bounds)
@settings(max_examples=100, deadline=None)
def test_a_difference_equals_the_oracle(logits: np.ndarray, public: np.ndarray, bound: float) -> None:
    ours = np.asarray(clipping.clip_difference(jnp.asarray(logits), jnp.asarray(public), bound))
    for row, found in zip(logits, ours, strict=True):
        expected = oracles.difference_aggregate(row[None], public, 1, bound) - oracles.log_softmax(
            public.astype(np.float64)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-4)


def test_logits_further_apart_than_float32_reaches_spoil_no_sum() -> None:
    """Their log-probabilities are −∞ on both sides, whose difference is no number."""
    far = jnp.asarray([[3.4e38, -3.4e38, 0.0], [0.0, 3.4e38, -3.4e38]], jnp.float32)
    found = np.asarray(clipping.clip_difference(far, far[0], 1.0))
    np.testing.assert_array_equal(found, [[0, 0, 0], [-1, 1, -1]])


def test_a_context_that_says_what_the_public_prompt_says_adds_nothing() -> None:
    """A shift is no disagreement: both sides are centred by their own log Σ exp."""
    public = np.random.default_rng(0).normal(0, 4, 50).astype(np.float32)
    logits = jnp.asarray(np.stack([public, public + 3, public - 20]))
    found = np.asarray(clipping.clip_difference(logits, jnp.asarray(public), 1.0))
    np.testing.assert_allclose(found, 0, atol=1e-5)


@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float16])
def test_votes_are_float32_whatever_the_model_computes_in(dtype: jnp.dtype) -> None:
    logits = jnp.asarray(np.random.default_rng(1).normal(0, 5, (40, 9)), dtype)
    exact, bound = np.asarray(logits, np.float64), 3.0
    ours = clipping.clip_logits(logits, bound), clipping.clip_difference(logits[1:], logits[0], bound)
    assert ours[0].dtype == ours[1].dtype == jnp.float32
    np.testing.assert_allclose(ours[0], oracles.clip(exact, bound), atol=1e-5)
    expected = np.clip(oracles.log_softmax(exact[1:]) - oracles.log_softmax(exact[0]), -bound, bound)
    np.testing.assert_allclose(ours[1], expected, atol=1e-5)
