"""Examples of a fixed number of digits, for the reconstruction audit."""

import dataclasses
import typing
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from models.constraints.constraint import STATIC, Constraint


@typing.final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Digits(Constraint):
    """A fixed number of digits, then the end: the keys of the reconstruction audit (CL D.5.1).

    Attributes:
        digits: `[V]` bool, the ten tokens of single digits.
        ends: `[V]` bool, the stop tokens, one of which follows the last digit.
        length: Digits of an example.
    """

    digits: jax.Array
    ends: jax.Array
    length: int = dataclasses.field(metadata=STATIC)

    @classmethod
    def of(
        cls, vocab_size: int, *, digits: Iterable[int], stop_tokens: Iterable[int], length: int
    ) -> 'Digits':
        """From token ids.

        Raises:
            ValueError: There is no digit, no stop token or no length.
        """
        masks = {}
        for name, ids in (('digits', sorted(digits)), ('stop_tokens', sorted(stop_tokens))):
            if not ids:
                raise ValueError(f'Expected {name}, got none. Some token has to be allowed at every place.')
            masks[name] = np.zeros(vocab_size, bool)
            masks[name][ids] = True
        if length < 1:
            raise ValueError(f'Expected length >= 1, got length={length}. Give the digits of an example.')
        return cls(jnp.asarray(masks['digits']), jnp.asarray(masks['stop_tokens']), length)

    def start(self, example: jax.Array | int = 0) -> jax.Array:
        """The number of digits so far, an int32 scalar: 0."""
        return jnp.int32(0)

    def allowed(self, state: jax.Array) -> jax.Array:
        """Digits, until there are enough."""
        return jnp.where(state < self.length, self.digits, self.ends)

    def allowed_among(self, state: jax.Array, tokens: jax.Array) -> jax.Array:
        """`allowed` at some tokens."""
        return jnp.where(state < self.length, self.digits[tokens], self.ends[tokens])

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        """The number of digits after the token."""
        return state + 1
