"""Masks: constraints that a run's settings can name."""

import abc
import typing
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from models.constraints.constraint import Constraint
from models.constraints.vocabulary import Vocabulary


class Tokens(NamedTuple):
    """The tokens of a run's model, from which a mask builds its constraint.

    Attributes:
        released: `[V]` bool, the tokens that may be sampled: those that text may contain, and the stop
            tokens. A constraint may allow no other.
        token_bytes: Gives the bytes of each token of the tokenizer, b'' for control tokens; at most V. It
            takes a moment for a large vocabulary.
        stop: Ids that end an example.
    """

    released: np.ndarray
    token_bytes: Callable[[], Sequence[bytes]]
    stop: frozenset[int]


class Mask(abc.ABC):
    """A public restriction of every example of a run, under a name.

    Formal guarantees: those of `Constraint`, for what `constraint` returns. So a mask costs nothing.

    Attributes:
        summary: The text that it allows, in a few words, for help and reports.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @abc.abstractmethod
    def constraint(self, tokens: Tokens) -> Constraint:
        """The constraint of a model's tokens; the same one on every worker.

        Raises:
            ValueError: It cannot be spelled with these tokens.
        """


@typing.final
class AnyText(Mask):
    """No restriction but that of every run."""

    name: ClassVar[str] = 'any-text'
    summary: ClassVar[str] = 'every token that text may contain, and the stop tokens'

    def constraint(self, tokens: Tokens) -> Vocabulary:
        """The released tokens, everywhere."""
        return Vocabulary.of(tokens.released)
