"""Texts that are sampled each for itself: row by row and token by token, in float64."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tests.oracles.constraints import Allowed


def nucleus(logits: np.ndarray, top_p: float, top_k: int | None) -> np.ndarray:
    """`[V]` bool of `[V]` logits, by a sort (Holtzman et al. 2020)."""
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    order = np.argsort(-shares, kind='stable')
    kept = order[: top_k or len(order)]
    before = np.cumsum(shares[kept]) - shares[kept]
    kept = kept[before < top_p * shares[kept].sum()]
    mask = np.zeros(len(logits), bool)
    mask[kept] = True
    return mask & (shares > 0)


def sampled_row(
    next_logits: Callable[[tuple[int, ...]], np.ndarray],
    allowed: Allowed,
    draws: Sequence[Iterator[float]],
    *,
    temperature: float,
    top_p: float,
    top_k: int | None,
    is_over: Callable[[tuple[int, ...]], bool],
    masks_last: bool = False,
) -> tuple[int, ...]:
    """The tokens of one row, what ends it among them.

    Args:
        next_logits: From the tokens so far to `[V]`.
        allowed: Tokens that may follow them.
        draws: The uniform numbers of `drawn`, for each place.
        temperature: Temperature of the allowed tokens' logits.
        top_p: The share of the nucleus.
        top_k: Tokens that the nucleus is taken of; None for all.
        is_over: True if the tokens so far are a whole text.
        masks_last: The wrong way, where the nucleus is that of the unmasked prediction.
    """
    row: tuple[int, ...] = ()
    for of_place in draws:
        logits, mask = next_logits(row).astype(float) / temperature, allowed(row)
        if masks_last:
            both = mask & nucleus(logits, top_p, top_k)
            token = drawn(np.where(both, logits, -np.inf), of_place, 1.0, None) if both.any() else 0
        else:
            token = drawn(np.where(mask, logits, -np.inf), of_place, top_p, top_k)
        row = (*row, token)
        if is_over(row):
            break
    return row


def drawn(logits: np.ndarray, draws: Iterator[float], top_p: float, top_k: int | None) -> int:
    """The token of `[V]` logits by uniform numbers: each picks by the shares; one outside ends its like.

    Args:
        logits: At their temperature.
        draws: As many as are needed.
        top_p: The share of the nucleus.
        top_k: Tokens that the nucleus is taken of; None for all.
    """
    of_most = nucleus(logits, 1.0, top_k)
    inside = nucleus(logits, top_p, top_k)
    possible = np.where(of_most, np.exp(logits - logits.max()), 0.0)
    while True:
        sums = np.cumsum(possible)
        token = int(np.searchsorted(sums, next(draws) * sums[-1], side='right'))
        if inside[token]:
            return token
        possible[possible <= possible[token]] = 0.0
