"""The tokens that the contexts vote on at one step, chosen at no cost from public values (METHOD 4d).

With `public_top_k` the public prompt's logits and the constraint's mask choose a fixed number C of the V
tokens; no other logit of a private row is computed. Otherwise all V tokens are candidates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from etils import epy

from models.privacy.public_numbers import PublicNumbers

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# (mask `[C]` bool, public logits `[C]`, settings) to which tokens of the mask may be sampled, `[C]` bool.
Allows = Callable[['jax.Array', 'jax.Array', PublicNumbers], 'jax.Array']
# Candidates beyond the K best, for slack and ties: a quarter of K, but at least this many.
FEWEST_SPARE = 64


@dataclasses.dataclass(frozen=True)
class Narrowed:
    """The mask of a step whose predictions are conditioned on a token of the mask (README step 2c).

    Attributes:
        allowed: Returns `[V]` bool, the tokens that the step's constraint allows; at least one.
        allowed_among: Maps `[K]` int32 tokens to `[K]` bool, which of them it allows: cheaper than all V.
    """

    allowed: Callable[[], jax.Array]
    allowed_among: Callable[[jax.Array], jax.Array]


class Candidates(NamedTuple):
    """The candidates of one step: C of the V tokens.

    Attributes:
        tokens: `[C]` int32, their ids in rising order; None where all V are candidates, in order.
        allowed: `[C]` bool, those that may be sampled; at least one.
        counted: `[C]` bool, those that a row of logits is centred over. With `public_top_k` or a narrowed
            mask these are the allowed ones, so that no other column affects a vote. None for all.
        public_logits: `[C]` float32 of the public prompt; zeros if it is not run.
    """

    tokens: jax.Array | None
    allowed: jax.Array
    counted: jax.Array | None
    public_logits: jax.Array

    def token_at(self, index: jax.Array) -> jax.Array:
        """Id of the candidate at an index, int32 scalar."""
        return index if self.tokens is None else self.tokens[index]

    def index_of(self, token: jax.Array) -> jax.Array:
        """Index of a candidate by its id, int32 scalar."""
        return token if self.tokens is None else jnp.argmax(self.tokens == token)


def count(public_top_k: int | None, vocab_size: int) -> int:
    """C, the number of candidates of every step: V, or K and the spare ones for slack and ties."""
    return vocab_size if public_top_k is None else min(vocab_size, most(public_top_k))


def most(public_top_k: int) -> int:
    """C for a vocabulary that has as many tokens."""
    return public_top_k + max(FEWEST_SPARE, public_top_k // 4)


def choose(
    mask: jax.Array | Narrowed, public_logits: jax.Array, params: PublicNumbers, allows: Allows
) -> Candidates:
    """The candidates of a step.

    With `public_top_k` they are the C tokens of the mask with the highest public logits; among equal logits
    the lowest ids come first (README step 2). The aggregate chooses which of them may be sampled, such as
    the K best and those that its slack adds. Tokens beyond the C are left out, even if it would allow them.

    With a narrowed mask they are the C tokens with the highest public logits of all V. The tokens that both
    the aggregate and the mask allow may be sampled. If there is none, the candidates are chosen from the
    mask as above.

    Formal guarantee: the result is a function of its arguments. They are public, so it costs nothing.

    Args:
        mask: `[V]` bool, the tokens that the step's constraint allows, at least one; or a narrowed mask.
        public_logits: `[V]` float32, finite.
        params: The mechanism.
        allows: The aggregate's own choice, `params.strategy.allowed`.
    """
    if isinstance(mask, Narrowed):
        return _narrowed(mask, public_logits, params, allows)
    tokens = _best(mask, public_logits, params)
    if tokens is not None:
        mask, public_logits = mask[tokens], public_logits[tokens]
    allowed = allows(mask, public_logits, params)
    return Candidates(tokens, allowed, None if params.public_top_k is None else allowed, public_logits)


def _best(mask: jax.Array, public_logits: jax.Array, params: PublicNumbers) -> jax.Array | None:
    """The C tokens of a mask with the highest public logits, `[C]` int32 in rising order; None for all V."""
    vocab = mask.shape[0]
    size = count(params.public_top_k, vocab)
    if size == vocab:
        return None
    # Exact, and of equal values the lower index first; but −0 counts as less than 0. Tokens
    # outside of the mask fill up one that has fewer than C.
    ranked = jnp.where(public_logits == 0, 0.0, public_logits)
    _, best = jax.lax.top_k(jnp.where(mask, ranked, -jnp.inf), size)
    return jnp.sort(best)


def _narrowed(mask: Narrowed, public_logits: jax.Array, params: PublicNumbers, allows: Allows) -> Candidates:
    """`choose` for a narrowed mask; it asks the mask for all V tokens only if it has to."""
    if params.public_top_k is None:
        allowed = allows(mask.allowed(), public_logits, params)
        return Candidates(None, allowed, allowed, public_logits)
    everything = jnp.ones(public_logits.shape, bool)
    tokens = _best(everything, public_logits, params)
    if tokens is None:
        whole = mask.allowed()
        kept = whole & allows(everything, public_logits, params)
        allowed = jnp.where(kept.any(), kept, allows(whole, public_logits, params))
        return Candidates(None, allowed, allowed, public_logits)
    of_all = allows(jnp.ones(tokens.shape, bool), public_logits[tokens], params)
    kept = of_all & mask.allowed_among(tokens)

    def of_the_mask() -> tuple[jax.Array, jax.Array]:
        whole = mask.allowed()
        best = _best(whole, public_logits, params)
        assert best is not None  # as of all
        return best, allows(whole[best], public_logits[best], params)

    tokens, allowed = jax.lax.cond(kept.any(), lambda: (tokens, kept), of_the_mask)
    return Candidates(tokens, allowed, allowed, public_logits[tokens])
