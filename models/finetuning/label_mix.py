"""How many texts each label has: by shares that were given, or by noisy counts that were released."""

import math
from collections.abc import Sequence

from models.privacy import counts


def texts_of_shares(texts: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Texts of each label, in the order of the shares.

    Shares are rounded so that the sum stays (largest remainders, the first label first), but a label has
    one text at the least. Without any text each has none.

    Args:
        texts: Of all labels.
        shares: Of each label, of any sum; none negative, and one positive.
    """
    if not texts:
        return (0,) * len(shares)
    whole = math.fsum(shares)
    exact = [texts * share / whole for share in shares]
    found = [math.floor(number) for number in exact]
    rest = sorted(range(len(found)), key=lambda place: found[place] - exact[place])
    for place in rest[: texts - sum(found)]:
        found[place] += 1
    return tuple(max(1, number) for number in found)


def texts_of_counts(texts: int, noisy_counts: Sequence[int]) -> tuple[int, ...]:
    """Texts of each label by released counts: one below 0 is taken for 0, and equal ones where all are."""
    return texts_of_shares(texts, counts.shares(noisy_counts))


def batches_of_texts(texts: Sequence[int], together: int) -> tuple[int, ...]:
    """Batches of each label.

    Args:
        texts: Of each label.
        together: How many are sampled together at the most.
    """
    return tuple(math.ceil(number / together) for number in texts)


def batches_of_counts(noisy_counts: Sequence[int], *, texts: int, together: int) -> tuple[int, ...]:
    """Batches of each label by released counts: see the two above."""
    return batches_of_texts(texts_of_counts(texts, noisy_counts), together)
