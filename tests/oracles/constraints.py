"""The tokens that may follow an example's first ones, word by word from each constraint's description."""

from collections.abc import Callable

import numpy as np

from tests.oracles.stopping import Stop, may_come

# From the tokens of the current example to `[V]` bool, the tokens that may come next.
Allowed = Callable[[tuple[int, ...]], np.ndarray]


def vocabulary(tokens: np.ndarray) -> Allowed:
    """The same tokens everywhere."""
    return lambda example: tokens.copy()


def long_enough(allowed: Allowed, stop: Stop, min_tokens: int) -> Allowed:
    """The tokens that may come and end no example of fewer tokens; all, where each would."""

    def held(example: tuple[int, ...]) -> np.ndarray:
        mask = allowed(example)
        kept = np.array(
            [bool(mask[token]) and may_come(example, token, stop, min_tokens) for token in range(len(mask))]
        )
        return kept if kept.any() else mask

    return held
