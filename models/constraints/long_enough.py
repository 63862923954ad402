"""Examples that do not end before they have some length."""

import dataclasses
import typing
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from models import stop_rule as stop_rules
from models.constraints.constraint import Constraint
from models.stop_rule import StopRule


class Length(NamedTuple):
    """The state of an example."""

    of: Any  # the state of the constraint that is held to a length
    place: jax.Array  # int32 scalar, tokens of the example so far
    stop_state: jax.Array  # uint8 scalar, of the stop rule


@typing.final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LongEnough(Constraint):
    """Another constraint, without the tokens that would end an example of fewer than N tokens.

    So an example that ends by the stop rule has at least N tokens before the one that ends it, unless the
    other constraint left nothing else: where it allows ending tokens alone, they stay allowed.

    What a model expects most may be the end. So predictions are conditioned on the allowed tokens: votes
    centred on an end that cannot come would all be cut to the same lowest value.

    Attributes:
        table: `[S, V]` uint8, `StopRule.table`.
        min_tokens: N, an int32 scalar.
    """

    of: Constraint
    table: jax.Array
    min_tokens: jax.Array
    narrows_predictions: ClassVar[bool] = True

    @classmethod
    def held(cls, constraint: Constraint, stop_rule: StopRule, min_tokens: int) -> 'LongEnough':
        """Holds a constraint's examples to a length.

        Args:
            constraint: Tokens that may come otherwise.
            stop_rule: The end of an example, by tokens of the same vocabulary.
            min_tokens: N.

        Raises:
            ValueError: N is less than 1, which any example has.
        """
        if min_tokens < 1:
            raise ValueError(
                f'Expected min_tokens >= 1, got min_tokens={min_tokens}. Leave the constraint as it is.'
            )
        return cls(constraint, jnp.asarray(stop_rule.table), jnp.int32(min_tokens))

    def start(self, example: jax.Array | int = 0) -> Length:
        """No token yet."""
        return Length(self.of.start(example), jnp.int32(0), jnp.asarray(stop_rules.START))

    def allowed(self, state: Length) -> jax.Array:
        """The other's tokens that do not end the example too early; all of them if there is none."""
        allowed, kept = self._held(state)
        return jnp.where(kept.any(), kept, allowed)

    def allowed_among(self, state: Length, tokens: jax.Array) -> jax.Array:
        """`allowed` at some tokens."""
        allowed, kept = self._held(state)
        return jnp.where(kept.any(), kept[tokens], allowed[tokens])

    def forced(self, state: Length) -> jax.Array | None:
        """The other's."""
        return self.of.forced(state.of)

    def advance(self, state: Length, token: jax.Array) -> Length:
        """One token more. A stream that goes on after its end stays at its end."""
        last = len(self.table) - 1
        after = self.table[state.stop_state.clip(0, last), token]
        ended = state.stop_state > last
        return Length(
            self.of.advance(state.of, token),
            state.place + 1,
            jnp.where(ended, state.stop_state, after),
        )

    def _held(self, state: Length) -> tuple[jax.Array, jax.Array]:
        """`[V]` each: the other's tokens, and those of them that leave the example long enough."""
        allowed = self.of.allowed(state.of)
        return allowed, allowed & stop_rules.may_come(
            self.table, state.stop_state, state.place, self.min_tokens
        )
