"""The draw of one token, exact in the tail (METHOD 7).

A token at the clip floor has odds of e^(−2c/τ) against the top, and there are hundreds of thousands of
such tokens. A sampler that is exact for likely tokens only would be another mechanism.
"""

from __future__ import annotations

from etils import epy

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# Tokens at the clip floor weigh e^(−2c/τ) against the top in a batch of s contexts.
# Up to this ratio the sampler's 64-bit draws resolve that weight to a relative error
# below 1e-5; in a larger batch the floor lies lower, and what is lost there is an
# absolute 2^-64 for each token.
MAX_CLIP_OVER_TEMPERATURE = 15.0


def tree_levels(count: int) -> int:
    """Depth of the binary tree over that many candidates: the random words one token needs."""
    return max(1, (count - 1).bit_length())


def sample_token(scores: jax.Array, allowed: jax.Array, words: jax.Array) -> jax.Array:
    """Draws a candidate from softmax(scores) over the allowed tokens by inverting its distribution function.

    The distribution function is inverted one binary digit at a time: a tree of pair
    sums over the weights, and at each node a draw for the lighter side with a fresh
    64-bit uniform. Every token's probability is then right to a relative error of
    about `levels` · 2^-22, the lightest tail included; one uniform against a float32
    running sum would be off by a factor there, and Gumbel noise of 24 random bits
    would be cut off (METHOD 7).

    Args:
        scores: `[C]` logits divided by the temperature. An allowed token more than 60 below the
            top has probability 0.
        allowed: `[C]` bool, the public restriction of the candidates, not empty.
        words: `[levels, 2]` uint32, the high and low halves of 64-bit words.

    Returns:
        Its index among the C, an int32 scalar.
    """
    levels = tree_levels(scores.shape[0])
    top = jnp.where(allowed, scores, -jnp.inf).max()
    weights = jnp.where(allowed, jnp.exp(scores - top), 0.0)
    layer = jnp.pad(weights, (0, 2**levels - scores.shape[0]))
    layers = [layer]
    for _ in range(levels - 1):
        layer = layer.reshape(-1, 2).sum(axis=1)
        layers.append(layer)
    # Near 0, where the lighter side is decided, the low word keeps u precise.
    high, low = words[:, 0].astype(jnp.float32), words[:, 1].astype(jnp.float32)
    uniforms = high * 2.0**-32 + (low + 0.5) * 2.0**-64
    node = jnp.int32(0)
    for level, layer in zip(range(levels), reversed(layers), strict=True):
        left, right = layer[2 * node], layer[2 * node + 1]
        lighter_is_right = right < left
        lighter = jnp.minimum(left, right)
        take_lighter = uniforms[level] * (left + right) < lighter
        node = 2 * node + (take_lighter == lighter_is_right).astype(jnp.int32)
    return node
