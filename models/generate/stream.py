"""The token stream of a batch: what the compiled loop hands back to the host."""

from typing import NamedTuple

import numpy as np

from models.privacy import individual


class TokenStream(NamedTuple):
    """All tokens of a batch in order, examples one after another, on the host.

    Attributes:
        is_private: `[n]` bool.
        losses: `[2, n]` float32: −log α and −log β of every token (METHOD 5), private to
            the curator; None where the aggregate has a price in advance.
        spending: The charge of each context (METHOD 4d), private to the curator; None without
            individual accounting.
        is_forced: `[n]` bool, tokens that nobody chose because the constraint allowed no other; None
            where the constraint always leaves a choice.
    """

    tokens: np.ndarray
    is_private: np.ndarray
    losses: np.ndarray | None = None
    spending: individual.Spending | None = None
    is_forced: np.ndarray | None = None

    @property
    def is_chosen(self) -> np.ndarray:
        """`[n]` bool, tokens that were chosen rather than forced."""
        return np.ones(len(self.tokens), bool) if self.is_forced is None else ~self.is_forced
