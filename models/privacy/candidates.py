"""The tokens that a step's contexts vote on: chosen from public values alone, and so free (METHOD 4d).

With `public_top_k` the public prompt's logits and the constraint's mask choose a fixed number C of
the V tokens, and nothing else of a private row's logits is ever computed. Otherwise all V are candidates.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import NamedTuple

from etils import epy

if typing.TYPE_CHECKING:
    from models.privacy.params import MechanismParams

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# What a slack and ties may let in beyond the K best: a quarter of K, and not less than this.
FEWEST_SPARE = 64


@dataclasses.dataclass(frozen=True)
class Narrowed:
    """The mask of a step whose predictions are taken given that one of its tokens comes (README step 2c).

    Attributes:
        allowed: Gives `[V]` bool, the tokens that the step's constraint allows; never none.
        allowed_among: From `[K]` int32 tokens to which of them it allows, `[K]` bool: cheaper than all.
    """

    allowed: Callable[[], jax.Array]
    allowed_among: Callable[[jax.Array], jax.Array]


class Candidates(NamedTuple):
    """The candidates of one step: C of the V tokens.

    Attributes:
        tokens: `[C]` int32, their ids in rising order; None where all V are candidates, in order.
        allowed: `[C]` bool, those that may be sampled; never none of them.
        counted: `[C]` bool, those that a row of logits is centred over: with `public_top_k` or a
            narrowed mask the allowed ones, so that no other column has a part in a vote; None for all.
        public_logits: `[C]` float32 of the public prompt; zeros where it is not run.
    """

    tokens: jax.Array | None
    allowed: jax.Array
    counted: jax.Array | None
    public_logits: jax.Array

    def token_at(self, index: jax.Array) -> jax.Array:
        """Id of the candidate at an index, int32 scalar."""
        return index if self.tokens is None else self.tokens[index]

    def index_of(self, token: jax.Array) -> jax.Array:
        """Where a candidate stands, int32 scalar."""
        return token if self.tokens is None else jnp.argmax(self.tokens == token)


def count(public_top_k: int | None, vocab_size: int) -> int:
    """C, the number of candidates of every step: V, or K and what is spare for slack and ties."""
    return vocab_size if public_top_k is None else min(vocab_size, most(public_top_k))


def most(public_top_k: int) -> int:
    """C of a vocabulary that is large enough."""
    return public_top_k + max(FEWEST_SPARE, public_top_k // 4)


def choose(mask: jax.Array | Narrowed, public_logits: jax.Array, params: MechanismParams) -> Candidates:
    """The candidates of a step.

    With `public_top_k` they are the C tokens of the mask with the highest public logits, of equal ones
    those with the lowest ids (README step 2). Of these the aggregate allows its own choice, such as the K
    best and what its slack adds; what it would allow beyond the C is left out.

    Of a narrowed mask they are the C tokens of highest public logits of all V, of which the aggregate's
    choice that is also the mask's is allowed; and those of the mask, as above, where this is none.

    Formal guarantee: a function of its arguments, which are public, and so free.

    Args:
        mask: `[V]` bool, the tokens that the step's constraint allows; never none. Or a narrowed one.
        public_logits: `[V]` float32, finite.
        params: The mechanism.
    """
    if isinstance(mask, Narrowed):
        return _narrowed(mask, public_logits, params)
    tokens = _best(mask, public_logits, params)
    if tokens is not None:
        mask, public_logits = mask[tokens], public_logits[tokens]
    allowed = params.strategy.allowed(mask, public_logits, params)
    return Candidates(tokens, allowed, None if params.public_top_k is None else allowed, public_logits)


def _best(mask: jax.Array, public_logits: jax.Array, params: MechanismParams) -> jax.Array | None:
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


def _narrowed(mask: Narrowed, public_logits: jax.Array, params: MechanismParams) -> Candidates:
    """`choose` of a narrowed mask, which is walked for all V tokens only where that has to be."""
    strategy = params.strategy
    if params.public_top_k is None:
        allowed = strategy.allowed(mask.allowed(), public_logits, params)
        return Candidates(None, allowed, allowed, public_logits)
    everything = jnp.ones(public_logits.shape, bool)
    tokens = _best(everything, public_logits, params)
    if tokens is None:
        whole = mask.allowed()
        kept = whole & strategy.allowed(everything, public_logits, params)
        allowed = jnp.where(kept.any(), kept, strategy.allowed(whole, public_logits, params))
        return Candidates(None, allowed, allowed, public_logits)
    of_all = strategy.allowed(jnp.ones(tokens.shape, bool), public_logits[tokens], params)
    kept = of_all & mask.allowed_among(tokens)

    def of_the_mask() -> tuple[jax.Array, jax.Array]:
        whole = mask.allowed()
        best = _best(whole, public_logits, params)
        assert best is not None  # as of all
        return best, strategy.allowed(whole[best], public_logits[best], params)

    tokens, allowed = jax.lax.cond(kept.any(), lambda: (tokens, kept), of_the_mask)
    return Candidates(tokens, allowed, allowed, public_logits[tokens])
