"""The private choice of one token: clip, aggregate, compare with the public prediction, sample.

PP = Amin et al. 2024; line numbers are those of its Algorithm 1. CL = the clustering
paper. Everything here is float32 on the device, whatever the model computes in, and runs
inside the compiled decoding loop. V is the vocabulary size, m the rows of one micro-batch.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from models.privacy.aggregates import clipping, median
from models.privacy.aggregates.clipping import clip_difference, clip_logits, log_probabilities
from models.privacy.params import MAX_CLIP_OVER_TEMPERATURE, MechanismParams


class Votes(NamedTuple):
    """What one decoding step knows of a batch: sums over its contexts, never a mean.

    Sums are divided by the public batch size s later, in `mean_aggregate`,
    `difference_aggregate` and `public_distance`; the true number of contexts is divided
    by nowhere.

    Attributes:
        clipped_sum: `[V]` sum of clipped logits over the contexts, or of clipped
            differences from the public prediction; zeros for the median.
        probability_sum: `[V]` sum of softmax of the raw logits; zeros where the
            sparse-vector test is not in use.
        public_logits: `[V]` logits of the public prompt; zeros where not needed.
        medians: Medians of the clipped logits and their range; None for the other aggregates.
    """

    clipped_sum: jax.Array
    probability_sum: jax.Array
    public_logits: jax.Array
    medians: median.Medians | None = None


def count_votes(
    logits: jax.Array, is_private: jax.Array, params: MechanismParams, public_logits: jax.Array | None = None
) -> Votes:
    """Sums the votes of one micro-batch of rows.

    Formal guarantee: a row adds at most c in absolute value to any component of
    `clipped_sum`, a non-negative vector of total mass at most 1 to `probability_sum`,
    and nothing that depends on the other rows. Rows that are not private add zero.

    Args:
        logits: `[m, V]` raw logits, one row for each private prompt.
        is_private: `[m]` bool; False for padding and for the public prompt.
        params: The mechanism.
        public_logits: `[V]`; the difference aggregate alone reads them here.

    Returns:
        `Votes` with zero public logits and no medians.
    """
    mask = is_private[:, None]
    if params.aggregate == 'mean':
        clipped = jnp.where(mask, clip_logits(logits, params.clip_bound), 0.0).sum(axis=0)
    elif params.aggregate == 'difference':
        assert public_logits is not None  # `needs_public_logits`
        clipped = jnp.where(mask, clip_difference(logits, public_logits, params.clip_bound), 0.0).sum(axis=0)
    else:
        clipped = jnp.zeros(logits.shape[-1], jnp.float32)
    probabilities = jnp.zeros_like(clipped)
    if params.uses_sparse_vector:
        # Temperature 1 and unclipped: an average of clipped logits pushed through
        # one softmax would not have sensitivity 1/s (METHOD 4).
        probabilities = jnp.where(mask, clipping.probabilities(logits), 0.0).sum(axis=0)
    return Votes(clipped, probabilities, jnp.zeros_like(clipped))


def tally(logits: tuple[jax.Array, ...], is_private: tuple[jax.Array, ...], params: MechanismParams) -> Votes:
    """The votes of a whole batch; row 0 of its first micro-batch is the public prompt's.

    Args:
        logits: `[m, V]` for every micro-batch.
        is_private: `[m]` bool for every micro-batch.
        params: The mechanism.
    """
    public = logits[0][0].astype(jnp.float32) if params.needs_public_logits else None
    parts = [count_votes(z, mask, params, public) for z, mask in zip(logits, is_private, strict=True)]
    votes = jax.tree.map(lambda *terms: functools.reduce(jnp.add, terms), *parts)
    if public is not None:
        votes = votes._replace(public_logits=public)
    if params.aggregate == 'median':
        assert public is not None  # `needs_public_logits`
        votes = votes._replace(
            medians=median.medians(logits, is_private, public, params.clip_bound, params.change)
        )
    return votes


def mean_aggregate(votes: Votes, params: MechanismParams) -> jax.Array:
    """(1/s) Σ clip(z), `[V]` (line 13): the sum over the batch divided by the public s.

    Formal guarantee: one unit moves any component by at most
    `params.aggregate_sensitivity`. An empty batch gives the zero vector.
    """
    return votes.clipped_sum / params.batch_size


def difference_aggregate(votes: Votes, params: MechanismParams) -> jax.Array:
    """z_pub + (1/s) Σ clamp(z − z_pub, −c, c), `[V]`, of log-probabilities (METHOD 4b).

    Formal guarantee: one unit moves any component by at most
    `params.aggregate_sensitivity`. An empty batch gives the public prediction.
    """
    return log_probabilities(votes.public_logits) + votes.clipped_sum / params.batch_size


def aggregate(votes: Votes, params: MechanismParams) -> jax.Array:
    """The aggregate that private tokens are sampled from, `[V]`, before the temperature."""
    if params.aggregate == 'mean':
        return mean_aggregate(votes, params)
    if params.aggregate == 'difference':
        return difference_aggregate(votes, params)
    assert votes.medians is not None  # `tally`
    return votes.medians.middle


def public_distance(votes: Votes, params: MechanismParams) -> jax.Array:
    """‖(1/s) Σ softmax(z) − softmax(z_pub)‖₁, a scalar (PP equation 2).

    Formal guarantee: one unit moves it by at most `params.distance_sensitivity`. An
    empty batch gives 1.
    """
    return jnp.abs(votes.probability_sum / params.batch_size - jax.nn.softmax(votes.public_logits)).sum()


def tree_levels(vocab_size: int) -> int:
    """Depth of the binary tree over a vocabulary: the random words one token needs."""
    return max(1, (vocab_size - 1).bit_length())


def sample_token(scores: jax.Array, allowed: jax.Array, words: jax.Array) -> jax.Array:
    """Draws a token from softmax(scores) over the allowed tokens by inverting its distribution function.

    The distribution function is inverted one binary digit at a time: a tree of pair
    sums over the weights, and at each node a draw for the lighter side with a fresh
    64-bit uniform. Every token's probability is then right to a relative error of
    about `levels` · 2^-22, the lightest tail included; one uniform against a float32
    running sum would be off by a factor there, and Gumbel noise of 24 random bits
    would be cut off (METHOD 7).

    Args:
        scores: `[V]` logits divided by the temperature; range at most 60 over the
            allowed tokens, or tokens below that have probability 0.
        allowed: `[V]` bool, the public restriction of the vocabulary, not empty.
        words: `[levels, 2]` uint32, the high and low halves of 64-bit words.

    Returns:
        The token, an int32 scalar.
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


def allowed_tokens(votes: Votes, released: jax.Array, params: MechanismParams) -> jax.Array:
    """The tokens that may be sampled, `[V]` bool: a function of public values alone, so free.

    The difference aggregate widens `public_top_k` to Top-k+ (METHOD 4b): what 2c/s more
    or less could lift over the K-th token stays in. It also leaves out tokens so far
    below the public top that the range of the scores would pass what the sampler
    resolves; together they would be drawn with odds of at most V e^(2c/τ − 30).

    Args:
        votes: The step's votes, of which only the public logits are read.
        released: `[V]` bool, tokens that text may contain, and the stop tokens.
        params: With `public_top_k` set, keeps the K released tokens with the highest
            public logits (ties with the K-th stay in).
    """
    is_difference = params.aggregate == 'difference'
    allowed, logits = released, jnp.where(released, votes.public_logits, -jnp.inf)
    if params.public_top_k is not None and params.public_top_k < released.shape[0]:
        kth = jax.lax.top_k(logits, params.public_top_k)[0][-1]
        slack = 2 * params.clip_bound / params.batch_size if is_difference else 0.0
        allowed = allowed & (logits >= kth - slack)
    if is_difference:
        widest = 2 * (MAX_CLIP_OVER_TEMPERATURE * params.temperature - params.clip_bound)
        allowed = allowed & (logits >= logits.max() - widest)
    return allowed


def choose_token(
    votes: Votes,
    released: jax.Array,
    threshold_noise: jax.Array,
    distance_noise: jax.Array,
    words: jax.Array,
    params: MechanismParams,
) -> tuple[jax.Array, jax.Array]:
    """One token of the stream, private or public (lines 11 to 18).

    Args:
        votes: The step's votes.
        released: `[V]` bool.
        threshold_noise: Laplace(σ) of the current threshold, a scalar.
        distance_noise: Laplace(2σ) of this token, a scalar.
        words: `[levels, 2]` uint32 for this token.
        params: The mechanism.

    Returns:
        The token (int32 scalar) and whether it is private (bool scalar).
    """
    allowed = allowed_tokens(votes, released, params)
    private_scores = aggregate(votes, params) / params.temperature
    if params.threshold is None:
        return sample_token(private_scores, allowed, words), jnp.bool_(True)
    distance = public_distance(votes, params) + distance_noise
    is_private = distance >= params.threshold + threshold_noise
    public_scores = votes.public_logits / params.public_temperature
    return sample_token(jnp.where(is_private, private_scores, public_scores), allowed, words), is_private
