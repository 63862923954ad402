"""Bounds the vote of one context. Every sensitivity follows from these bounds.

PP = Amin et al. 2024. All functions work row by row in float32, whatever the model
computes in. V is the number of columns of logits: those of a step's candidates, or all of the
vocabulary. `counted`, `[V]` bool, says which columns a row is centred over (METHOD 4d). The other
columns do not affect the votes of the counted ones; their own votes are not read. None counts all.
"""

from __future__ import annotations

from etils import epy

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp


def clip_logits(logits: jax.Array, clip_bound: float, counted: jax.Array | None = None) -> jax.Array:
    """Recentres the maximum of the counted columns to c and clips from below at −c (PP equation 1).

    Formal guarantee: every component of the result lies in [−c, c], for any input, and
    is a function of its own row alone. A row that is not finite votes −c everywhere, so
    it cannot spoil a sum.

    Args:
        logits: `[..., V]`.
        clip_bound: c > 0.
        counted: `[V]` bool.

    Returns:
        `[..., V]` float32.
    """
    return clip_below(logits, *row_tops(logits, counted), clip_bound)


def clip_below(logits: jax.Array, top: jax.Array, finite: jax.Array, clip_bound: float) -> jax.Array:
    """`clip_logits` of some columns, given the `row_tops` of all columns.

    The bounds hold for each element, whatever `top` and `finite` are: an element that is
    not finite, or lies above the top, votes −c.
    """
    vote = (logits.astype(jnp.float32) - top) + clip_bound
    # Both comparisons are false of a NaN, which a minimum or maximum may let through.
    return jnp.where(finite & (vote > -clip_bound) & (vote <= clip_bound), vote, -clip_bound)


def row_tops(logits: jax.Array, counted: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """Maximum of each row, float32, and whether it is finite; both `[..., 1]`, of the counted columns."""
    logits = logits.astype(jnp.float32)
    # Element by element: the compiled maximum of a long row loses a NaN that is in it.
    finite = jnp.isfinite(logits)
    if counted is not None:
        logits, finite = jnp.where(counted, logits, -jnp.inf), finite | ~counted
    return logits.max(axis=-1, keepdims=True), finite.all(axis=-1, keepdims=True)


def probabilities(logits: jax.Array, counted: jax.Array | None = None) -> jax.Array:
    """softmax over the counted columns of the last axis, float32, as votes for a distance.

    Formal guarantee: every row of the result is non-negative and of a mass of at most 1
    (but for rounding), for any input. A row that is not finite has mass 0, and so has a column that is
    not counted.
    """
    top, finite = row_tops(logits, counted)
    weights = jnp.exp(logits.astype(jnp.float32) - top)
    # Weights that are no number, or above that of the top, become 0.
    weights = jnp.where(weights <= 1, weights, 0.0)
    if counted is not None:
        weights = jnp.where(counted, weights, 0.0)
    total = weights.sum(axis=-1, keepdims=True)
    return jnp.where(finite & (total >= 1), weights * (1 / total), 0.0)


def clip_difference(
    logits: jax.Array, public_logits: jax.Array, clip_bound: float, counted: jax.Array | None = None
) -> jax.Array:
    """clamp(z − z_pub, −c, c) of log-probabilities (METHOD 4b).

    Both sides are centred by subtracting their own log Σ exp over the counted columns, which
    makes them log-probabilities there: a token on which the context agrees with the public prompt has
    difference 0. Of the constants tried (maximum, mean, weighted mean, median,
    mid-range) none distorts the aggregate visibly less: see
    `tests/benchmarks/centring_benchmark.py`.

    Formal guarantee: every component of the result lies in [−c, c] for any input. A row that
    is not finite votes 0 everywhere, so it adds nothing; so does a column that is not counted.

    Args:
        logits: `[..., V]` of private prompts.
        public_logits: `[V]` of the public prompt.
        clip_bound: c > 0.
        counted: `[V]` bool.

    Returns:
        `[..., V]` float32.
    """
    difference = log_probabilities(logits, counted) - log_probabilities(public_logits, counted)
    finite = row_tops(logits, counted)[1] & row_tops(public_logits, counted)[1]
    # Logits further apart than float32 reaches, and columns that are not counted: both
    # logarithms are −∞. The bound is each element's own, whatever became of its row's normaliser.
    defined = finite & ~jnp.isnan(difference)
    return jnp.where(defined, jnp.clip(difference, -clip_bound, clip_bound), 0.0)


def log_probabilities(logits: jax.Array, counted: jax.Array | None = None) -> jax.Array:
    """log softmax over the counted columns of the last axis, float32; −∞ for the others."""
    logits = logits.astype(jnp.float32)
    return jax.nn.log_softmax(logits if counted is None else jnp.where(counted, logits, -jnp.inf), axis=-1)
