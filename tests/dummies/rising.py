"""A made-up mask: this file and one call of `register` are all that a new one takes.

A slow twin goes into the cases of the contract, for its tests alone.
"""

import contextlib
import dataclasses
import typing
from collections.abc import Iterable, Iterator
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from models.constraints import MASKS, STATIC, Constraint, Mask, Tokens, register


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rising(Constraint):
    """Ids of tokens rise; a stop token may always come. `wrong` breaks the contract.

    The smallest constraint whose state is a token.
    """

    sampled: jax.Array  # [V] bool
    stop: jax.Array  # [V] bool
    wrong: str = dataclasses.field(default='', metadata=STATIC)

    @classmethod
    def of(
        cls, vocab_size: int, stop: Iterable[int] = (0,), sampled: np.ndarray | None = None, wrong: str = ''
    ) -> typing.Self:
        stops = np.isin(np.arange(vocab_size), list(stop))
        return cls(jnp.asarray(~stops if sampled is None else sampled & ~stops), jnp.asarray(stops), wrong)

    def start(self, example: jax.Array | int = 0) -> jax.Array:
        return jnp.int32(-1) if self.wrong != 'shape' else jnp.full(1, -1, jnp.int32)

    def allowed(self, state: jax.Array) -> jax.Array:
        ids = jnp.arange(len(self.sampled))
        stops = self.stop if self.wrong != 'empty' else jnp.zeros_like(self.stop)
        return stops | self.sampled & (ids > state.reshape(())) & (ids < len(ids) - (self.wrong == 'twin'))

    def allowed_rows(self, states: jax.Array, rows: int) -> jax.Array:
        found = super().allowed_rows(states, rows)
        return found[::-1] if self.wrong == 'rows' else found

    def allowed_among(self, state: jax.Array, tokens: jax.Array) -> jax.Array:
        return self.allowed(state)[tokens + (self.wrong == 'columns')]

    def forced(self, state: jax.Array) -> jax.Array | None:
        return jnp.int32(0) if self.wrong == 'forced' else None

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        return token


@typing.final
class RisingMask(Mask):
    """`Rising`, for settings to name."""

    name: ClassVar[str] = 'rising'
    summary: ClassVar[str] = 'tokens whose ids rise within an example'

    def constraint(self, tokens: Tokens) -> Rising:
        return Rising.of(len(tokens.released), tokens.stop, tokens.released)


@contextlib.contextmanager
def registered(mask: Mask) -> Iterator[str]:
    """The name of a mask that one call registered, until the block ends."""
    register(mask)
    try:
        yield mask.name
    finally:
        del MASKS[mask.name]
