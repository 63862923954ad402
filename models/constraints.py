"""Which tokens may come next, as a function of the tokens before them: public by construction (METHOD 4).

A constraint sees the tokens of the current example and public settings, and nothing else: no
logits, no context. So its mask is a function of the output, and free. The compiled loop of
`models/generate.py` carries its state, and begins it anew where an example ends.

A new one is one class: a frozen dataclass under `jax.tree_util.register_dataclass`, whose arrays
are data and whose other fields are static (`STATIC`), so that a constraint of another size, but not
one of other values, is another program. tests/contracts/constraint_test.py holds it to what follows.
"""

import abc
import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Metadata of a field that is compiled into the program.
STATIC: Mapping[str, bool] = {'static': True}


class Constraint(abc.ABC):
    """A public restriction of each token of an example.

    Formal guarantees: `start` reads public settings alone; `advance` and with it every mask read the
    example's tokens too, and nothing else. After tokens that were all allowed, some token is.
    """

    @abc.abstractmethod
    def start(self) -> Any:
        """The state at the beginning of an example: a pytree of arrays, whose shapes `advance` keeps."""

    @abc.abstractmethod
    def allowed(self, state: Any) -> jax.Array:
        """The tokens that may come next, `[V]` bool, never none."""

    @abc.abstractmethod
    def advance(self, state: Any, token: jax.Array) -> Any:
        """The state after a token, an int32 scalar."""


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

    def start(self) -> tuple[()]:
        """Nothing changes, so there is no state."""
        return ()

    def allowed(self, state: tuple[()]) -> jax.Array:
        """`tokens`."""
        return self.tokens

    def advance(self, state: tuple[()], token: jax.Array) -> tuple[()]:
        """Still nothing."""
        return ()


@typing.final
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Digits(Constraint):
    """So many digits, then the end: the keys of the reconstruction audit (CL D.5.1).

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

    def start(self) -> jax.Array:
        """The digits so far, an int32 scalar: none."""
        return jnp.int32(0)

    def allowed(self, state: jax.Array) -> jax.Array:
        """Digits, until there are enough."""
        return jnp.where(state < self.length, self.digits, self.ends)

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        """One digit more."""
        return state + 1
