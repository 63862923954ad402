"""Similarities of unit vectors as whole numbers: exact, so the same beside any other rows (METHOD 4e).

A matrix product of floating-point numbers rounds in an order that its kernel chooses by the shapes, so a
row's products may move with the number of rows beside it. Which candidate is nearest to a record would then
depend on other records.
"""

import numpy as np

from models.clustering.embedder import unit_rows

# A component is a whole multiple of 1 / SCALE: as fine as float32 is just below 1.
SCALE = 2.0**24


def quantized(vectors: np.ndarray) -> np.ndarray:
    """Scales each row to length `SCALE` and rounds it to whole numbers.

    Args:
        vectors: `[n, d]` of any float type, d below 2**40.

    Returns:
        `[n, d]` float64, whole numbers; a row that is zero or not finite is zero.
    """
    return np.rint(unit_rows(vectors).astype(np.float64) * SCALE)


def similarities(records: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Products of every record with every candidate, exact.

    Proof. A row a of `quantized` has length |a| <= 2**24 (1 + 2**-20) + sqrt(d) / 2 < 2**26. By Cauchy and
    Schwarz the products of two rows sum, over any subset of the components, to at most |a| |b| < 2**52 in
    size: every product and every partial sum, in any order, with or without fused multiplication, is a whole
    number below 2**53, and float64 holds it without rounding.

    Args:
        records: `[r, d]`, of `quantized`.
        candidates: `[N, d]`, of `quantized`.

    Returns:
        `[r, N]` float64, whole numbers: cosines times `SCALE` squared.

    Raises:
        ValueError: The arrays are not float64, or of different widths.
    """
    both = records, candidates
    if any(each.dtype != np.float64 or each.ndim != 2 for each in both) or (
        records.shape[1] != candidates.shape[1]
    ):
        # The number of rows may be private.
        raise ValueError(
            'Expected records [r, d] and candidates [N, d] in float64, got other shapes or types. '
            'Pass what quantized returns.'
        )
    return records @ candidates.T
