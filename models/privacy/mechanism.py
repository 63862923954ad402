"""The private choice of one token: tally the votes, compare with the public prediction, sample (METHOD 4).

The parts meet here: an aggregate (`aggregates/`), the sparse-vector test (`sparse_vector.py`)
and the sampler (`sampling.py`). Everything here is float32 or whole numbers on the device, whatever type
the model computes in, and runs inside the compiled decoding loop. V is the size of the vocabulary,
C the number of a step's candidates, m the rows of one micro-batch.

PP = Amin et al. 2024; line numbers are those of its Algorithm 1.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from models.privacy import candidates as candidates_lib
from models.privacy import sparse_vector
from models.privacy.params import MechanismParams
from models.privacy.sampling import sample_token

# Maps the states of some rows, `[m, D]`, and token ids `[C]`, or None for all V, to logits `[m, C]`.
Output = Callable[[jax.Array, jax.Array | None], jax.Array]


class Votes(NamedTuple):
    """Votes of a batch at one decoding step: sums over its contexts, never a mean.

    Sums are divided by the public batch size s, and nowhere by the true number of contexts.

    Attributes:
        tallied: The result of the aggregate's `tally`, any pytree: for the mean the `[C]` sum of
            clipped logits, in quanta.
        distance: ‖(1/s) Σ softmax(z) − softmax(z_pub)‖₁ (PP equation 2) in quanta, `[2]` int32 as
            `sparse_vector.limbs`, over all V columns, or over those of a narrowed mask; 0 without the
            sparse-vector test.
    """

    tallied: Any
    distance: jax.Array
    candidates: candidates_lib.Candidates


def needs_all_logits(params: MechanismParams) -> bool:
    """True if all V logits of every row are computed: if all are voted on, or the test needs them."""
    return params.public_top_k is None or params.uses_sparse_vector


def columns_of_every_row(params: MechanismParams) -> int | None:
    """The largest number of logits that are computed for every row; None for all V."""
    if params.public_top_k is None or needs_all_logits(params):
        return None
    return candidates_lib.most(params.public_top_k)


def given(logits: jax.Array, columns: jax.Array | None) -> jax.Array:
    """The `Output` of rows whose states are their logits."""
    return logits if columns is None else logits[:, columns]


def tally(
    public_rows: jax.Array | None,
    rows: tuple[jax.Array, ...],
    is_private: tuple[jax.Array, ...],
    mask: jax.Array | candidates_lib.Narrowed,
    params: MechanismParams,
    output: Output = given,
) -> Votes:
    """The votes of a whole batch.

    Without `public_top_k`, and for the sparse-vector test, all logits of all rows are computed. Otherwise
    all logits are computed for public rows alone, and for private rows only those of the candidates: no
    array has m rows and V columns.

    Formal guarantee: the aggregate and the test bound what a row adds, and it does not depend on the other
    rows. Rows that are not private add nothing.

    Args:
        public_rows: `[M, D]` states of the public prompt, or of the M prompts of the reference, which
            predicts the geometric mean of their predictions (METHOD 4c). None if no public logits are
            needed.
        rows: `[m, D]` states for every micro-batch, one row for each private prompt.
        is_private: `[m]` bool for every micro-batch; False for padding.
        mask: `[V]` bool, the tokens that the step's constraint allows (`models/constraints/`); or a
            narrowed mask, outside of which no prediction has mass.
        params: The mechanism.
        output: The model's output layer; by default `rows` are raw logits, `[m, V]`.
    """
    whole = None
    if needs_all_logits(params):
        whole = tuple(output(part, None) for part in rows)
    if public_rows is not None:
        public = reference_logits(output(public_rows, None))
    else:
        everything = mask.allowed() if isinstance(mask, candidates_lib.Narrowed) else mask
        public = jnp.zeros(everything.shape, jnp.float32)
    chosen = candidates_lib.choose(mask, public, params, params.strategy.allowed)
    if whole is None:
        logits = tuple(output(part, chosen.tokens) for part in rows)
    else:
        logits = tuple(given(part, chosen.tokens) for part in whole)
    distance = jnp.zeros(2, jnp.int32)
    if params.uses_sparse_vector:
        assert whole is not None
        narrowed = mask.allowed() if isinstance(mask, candidates_lib.Narrowed) else None
        votes = sparse_vector.tally(whole, is_private, narrowed)
        distance = sparse_vector.public_distance(votes, public, params, narrowed)
    return Votes(params.strategy.tally(logits, is_private, chosen, params), distance, chosen)


def reference_logits(public_logits: jax.Array) -> jax.Array:
    """Logits of the public prediction, `[V]` float32: the mean of its M rows of logits `[M, V]`.

    But for a constant, the mean of logits is the mean of log-probabilities, so its softmax is the
    geometric mean of M predictions (METHOD 4c). If a logit is not finite, every token is equally likely.
    """
    logits = public_logits.astype(jnp.float32)
    # A single row is taken as it is, bit by bit.
    mean = logits[0] if len(logits) == 1 else logits.mean(axis=0)
    return jnp.where(jnp.isfinite(mean).all(), mean, 0.0)


def settle(votes: Votes, accounts: Any, params: MechanismParams) -> tuple[Votes, Any, Any]:
    """Charges the contexts: the votes of those that can pay, the accounts after it, and the receipt.

    It is called once for every sampled token, before the votes are used. Without individual accounting
    nothing changes and there is no receipt.
    """
    tallied, accounts, receipt = params.strategy.charge(votes.tallied, accounts, params)
    return votes._replace(tallied=tallied), accounts, receipt


def aggregate(votes: Votes, params: MechanismParams) -> jax.Array:
    """The scores that private tokens are sampled from, `[C]`, before the temperature, of settled votes.

    Formal guarantee: one unit moves any allowed component by at most
    `params.aggregate_sensitivity`, if the aggregate has one.
    """
    return params.strategy.combine(votes.tallied, votes.candidates, params)


def choose_token(
    votes: Votes,
    threshold_noise: jax.Array,
    distance_noise: jax.Array,
    words: jax.Array,
    params: MechanismParams,
) -> tuple[jax.Array, jax.Array]:
    """One token of the stream, private or public (lines 11 to 18).

    Args:
        votes: The step's votes, settled. Public tokens come from the same allowed candidates.
        threshold_noise: Of the current threshold, in quanta, `[2]` int32 as `sparse_vector.limbs`.
        distance_noise: Of this token, in the same.
        words: `[levels, 2]` uint32 for this token, for the sampler's tree over the C candidates.
        params: The mechanism.

    Returns:
        The token (int32 scalar) and whether it is private (bool scalar).
    """
    candidates, is_private = votes.candidates, jnp.bool_(True)
    scores = aggregate(votes, params) / params.temperature
    if params.uses_sparse_vector:
        is_private = sparse_vector.passes(votes.distance, distance_noise, threshold_noise, params)
        scores = jnp.where(is_private, scores, candidates.public_logits / params.public_temperature)
    return candidates.token_at(sample_token(scores, candidates.allowed, words)), is_private


def token_losses(votes: Votes, token: jax.Array, params: MechanismParams) -> jax.Array | None:
    """−log α and log β of a private token, `[2]` float32; None if the price is known in advance."""
    candidates = votes.candidates
    losses = params.strategy.token_losses(
        votes.tallied, candidates.allowed, candidates.index_of(token), params
    )
    return None if losses is None else jnp.stack(losses)
