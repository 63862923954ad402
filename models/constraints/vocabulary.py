"""The same tokens everywhere."""

import dataclasses
import typing

import jax
import jax.numpy as jnp
import numpy as np

from models.constraints.constraint import Constraint


@typing.final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Vocabulary(Constraint):
    """The same tokens everywhere: what text may contain, and the stop tokens.

    Attributes:
        tokens: `[V]` bool.
    """

    tokens: jax.Array

    @classmethod
    def of(cls, tokens: np.ndarray) -> 'Vocabulary':
        """From a mask `[V]`.

        Raises:
            ValueError: It allows no token.
        """
        if not np.any(tokens):
            raise ValueError(
                'Expected some token to be allowed, got an empty mask. Allow the stop tokens at least.'
            )
        return cls(jnp.asarray(tokens, bool))

    def start(self, example: jax.Array | int = 0) -> tuple[()]:
        """An empty state: the mask never changes."""
        return ()

    def allowed(self, state: tuple[()]) -> jax.Array:
        """`tokens`."""
        return self.tokens

    def allowed_among(self, state: tuple[()], tokens: jax.Array) -> jax.Array:
        """`tokens` at some of them."""
        return self.tokens[tokens]

    def advance(self, state: tuple[()], token: jax.Array) -> tuple[()]:
        """The empty state."""
        return ()
