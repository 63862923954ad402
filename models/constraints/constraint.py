"""Constraints: the tokens that may come next, as a function of the tokens before them.

A constraint sees the tokens of the current example and public settings, and nothing else: no logits, no
context. So its mask is a function of the output, and free (METHOD 4). The compiled loop of
`models/generate/loop.py` carries its state, and starts it again where an example ends.
"""

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import jax

# Metadata of a field that is compiled into the program.
STATIC: Mapping[str, bool] = {'static': True}


class Constraint(abc.ABC):
    """A public restriction of each token of an example.

    Formal guarantees: `start` reads public settings and the example's number alone. `advance`, and so
    every mask, also reads the example's tokens, and nothing else. After any tokens that it allowed, at
    least one token is allowed.

    Attributes:
        narrows_predictions: True if predictions are conditioned on an allowed token: votes are centred, and
            the sparse-vector test compares, on the allowed tokens alone. For masks that exclude most of the
            tokens that a model expects.
    """

    narrows_predictions: ClassVar[bool] = False

    @abc.abstractmethod
    def start(self, example: jax.Array | int = 0) -> Any:
        """The state at the beginning of an example: a pytree of arrays, whose shapes `advance` keeps.

        Args:
            example: Its number in its token stream, an int32 scalar from 0; public, like the stream.
        """

    @abc.abstractmethod
    def allowed(self, state: Any) -> jax.Array:
        """The tokens that may come next, `[V]` bool; at least one."""

    def allowed_rows(self, states: Any, rows: int) -> jax.Array:
        """`allowed` for rows in states of their own, `[rows, V]` bool.

        Args:
            states: A state whose arrays have the rows first. It may hold no array, as where all rows may
                have the same tokens everywhere.
            rows: Their number.
        """
        return jax.vmap(self.allowed, axis_size=rows)(states)

    @abc.abstractmethod
    def allowed_among(self, state: Any, tokens: jax.Array) -> jax.Array:
        """`allowed` at some tokens: `[K]` bool for `[K]` int32 tokens."""

    @abc.abstractmethod
    def advance(self, state: Any, token: jax.Array) -> Any:
        """The state after a token, an int32 scalar."""

    def forced(self, state: Any) -> jax.Array | None:
        """The one token that is allowed, an int32 scalar, or -1 where there is a choice.

        It is emitted without a vote, a test or a price. None for a constraint that has no such state.
        """
        return None


@jax.jit
def look(constraint: Constraint, state: Any) -> tuple[jax.Array, jax.Array | None]:
    """`allowed` and `forced` in one program, for who steps from Python: eagerly a mask is 30 times slower."""
    return constraint.allowed(state), constraint.forced(state)


@jax.jit
def step(constraint: Constraint, state: Any, token: jax.Array) -> Any:
    """`advance` as one program, for who steps from Python."""
    return constraint.advance(state, token)
