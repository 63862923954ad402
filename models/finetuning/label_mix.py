"""The number of texts of each label, from given shares or from released noisy counts."""

import math
from collections.abc import Sequence

from models.privacy import counts


def texts_of_shares(texts: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Texts of each label, in the order of the shares.

    Shares are rounded by largest remainders (ties go to the first label), so that the numbers sum to
    `texts`; but every label has at least one text. If `texts` is 0, every label has none.

    Args:
        texts: Number of texts of all labels.
        shares: Share of each label; any sum, none negative, at least one positive.
    """
    if not texts:
        return (0,) * len(shares)
    whole = math.fsum(shares)
    exact = [texts * share / whole for share in shares]
    numbers = [math.floor(number) for number in exact]
    rest = sorted(range(len(numbers)), key=lambda place: numbers[place] - exact[place])
    for place in rest[: texts - sum(numbers)]:
        numbers[place] += 1
    return tuple(max(1, number) for number in numbers)


def texts_of_counts(texts: int, noisy_counts: Sequence[int]) -> tuple[int, ...]:
    """Texts of each label by released counts; negative ones count as 0, and if all are 0 labels are equal."""
    return texts_of_shares(texts, counts.shares(noisy_counts))


def batches_of_texts(texts: Sequence[int], together: int) -> tuple[int, ...]:
    """Batches of each label, of `together` texts at the most."""
    return tuple(math.ceil(number / together) for number in texts)


def batches_of_counts(noisy_counts: Sequence[int], *, texts: int, together: int) -> tuple[int, ...]:
    """Batches of each label by released counts: `texts_of_counts`, then `batches_of_texts`."""
    return batches_of_texts(texts_of_counts(texts, noisy_counts), together)
