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


def test_logits_further_apart_than_float32_reaches_spoil_no_sum() -> None:
    """Their log-probabilities are −∞ on both sides, whose difference is no number."""
    far = jnp.asarray([[3.4e38, -3.4e38, 0.0], [0.0, 3.4e38, -3.4e38]], jnp.float32)
    found = np.asarray(clipping.clip_difference(far, far[0], 1.0))
    np.testing.assert_array_equal(found, [[0, 0, 0], [-1, 1, -1]])


@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float16])
def test_votes_are_float32_whatever_the_model_computes_in(dtype: jnp.dtype) -> None:
    logits = jnp.asarray(np.random.default_rng(1).normal(0, 5, (40, 9)), dtype)
    exact, bound = np.asarray(logits, np.float64), 3.0
    ours = clipping.clip_logits(logits, bound), clipping.clip_difference(logits[1:], logits[0], bound)
    assert ours[0].dtype == ours[1].dtype == jnp.float32
    np.testing.assert_allclose(ours[0], oracles.clip(exact, bound), atol=1e-5)
    expected = np.clip(oracles.log_softmax(exact[1:]) - oracles.log_softmax(exact[0]), -bound, bound)
    np.testing.assert_allclose(ours[1], expected, atol=1e-5)
