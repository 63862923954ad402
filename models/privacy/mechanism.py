"""The private choice of one token: tally the votes, compare with the public prediction, sample (METHOD 4).

The thin place where the parts meet: an aggregate (`aggregates/`), the sparse-vector test
(`sparse_vector.py`) and the sampler (`sampling.py`). Everything here is float32 on the
device, whatever the model computes in, and runs inside the compiled decoding loop. V is
the vocabulary size, m the rows of one micro-batch.

PP = Amin et al. 2024; line numbers are those of its Algorithm 1.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models.privacy import sparse_vector
from models.privacy.params import MechanismParams
from models.privacy.sampling import sample_token


class Votes(NamedTuple):
    """What one decoding step knows of a batch: sums over its contexts, never a mean.

    Sums are divided by the public batch size s later; the true number of contexts is
    divided by nowhere.

    Attributes:
        tallied: What the aggregate tallied, any pytree: for the mean the `[V]` sum of clipped
            logits.
        probability_sum: `[V]` sum of softmax of the raw logits; zeros where the
            sparse-vector test is not in use.
        public_logits: `[V]` logits of the public prompt; zeros where not needed.
    """

    tallied: Any
    probability_sum: jax.Array
    public_logits: jax.Array


def tally(logits: tuple[jax.Array, ...], is_private: tuple[jax.Array, ...], params: MechanismParams) -> Votes:
    """The votes of a whole batch.

    Formal guarantee: a row adds what the aggregate and the test bound, and nothing that
    depends on the other rows. Rows that are not private add nothing.

    Args:
        logits: `[m, V]` raw logits for every micro-batch, one row for each prompt. Where
            public logits are needed, row 0 of the first is the public prompt's.
        is_private: `[m]` bool for every micro-batch; False for padding and for the public prompt.
        params: The mechanism.
    """
    nothing = jnp.zeros(logits[0].shape[-1], jnp.float32)
    public = nothing
    if params.needs_public_logits:
        row = logits[0][0].astype(jnp.float32)
        # One that is not finite predicts nothing: every token alike.
        public = jnp.where(jnp.isfinite(row).all(), row, 0.0)
    probability_sum = sparse_vector.tally(logits, is_private) if params.uses_sparse_vector else nothing
    return Votes(params.strategy.tally(logits, is_private, public, params), probability_sum, public)


def aggregate(votes: Votes, params: MechanismParams) -> jax.Array:
    """The aggregate that private tokens are sampled from, `[V]`, before the temperature.

    Formal guarantee: one unit moves any component by at most
    `params.aggregate_sensitivity`, where the aggregate has one.
    """
    return params.strategy.combine(votes.tallied, votes.public_logits, params)


def public_distance(votes: Votes, params: MechanismParams) -> jax.Array:
    """‖(1/s) Σ softmax(z) − softmax(z_pub)‖₁, a scalar (PP equation 2)."""
    return sparse_vector.public_distance(votes.probability_sum, votes.public_logits, params)


def allowed_tokens(votes: Votes, mask: jax.Array, params: MechanismParams) -> jax.Array:
    """The tokens that may be sampled, `[V]` bool: a function of public values alone, so free.

    Args:
        votes: The step's votes, of which only the public logits are read.
        mask: `[V]` bool, the tokens that the step's constraint allows (`models/constraints.py`).
        params: With `public_top_k` set, keeps the K tokens of the mask with the highest
            public logits (ties with the K-th stay in), or as the aggregate widens that.
    """
    return params.strategy.allowed(mask, votes.public_logits, params)


def choose_token(
    votes: Votes,
    mask: jax.Array,
    threshold_noise: jax.Array,
    distance_noise: jax.Array,
    words: jax.Array,
    params: MechanismParams,
) -> tuple[jax.Array, jax.Array]:
    """One token of the stream, private or public (lines 11 to 18).

    Args:
        votes: The step's votes.
        mask: `[V]` bool, the tokens that the step's constraint allows.
        threshold_noise: Laplace(σ) of the current threshold, a scalar.
        distance_noise: Laplace(2σ) of this token, a scalar.
        words: `[levels, 2]` uint32 for this token.
        params: The mechanism.

    Returns:
        The token (int32 scalar) and whether it is private (bool scalar).
    """
    allowed = allowed_tokens(votes, mask, params)
    private_scores = aggregate(votes, params) / params.temperature
    if not params.uses_sparse_vector:
        return sample_token(private_scores, allowed, words), jnp.bool_(True)
    distance = public_distance(votes, params)
    is_private = sparse_vector.passes(distance, distance_noise, threshold_noise, params)
    public_scores = votes.public_logits / params.public_temperature
    return sample_token(jnp.where(is_private, private_scores, public_scores), allowed, words), is_private
