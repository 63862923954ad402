"""Similarities of embeddings in whole numbers: the same bits whatever stands beside a row.

A product of matrices in floating point may round a row otherwise when other rows lie beside it. A vote may
not depend on that (METHOD 4e, step 2): one record more would move the votes of others.
"""

import numpy as np

# A unit vector in whole multiples of 2⁻²⁴.
_SCALE = 2.0**24


def quantized(vectors: np.ndarray) -> np.ndarray:
    """Unit rows as whole multiples of 2⁻²⁴, `[n d]` float64.

    Args:
        vectors: `[n d]` rows of length 1, or zero; a row that is not finite becomes zero.
    """
    rows = np.asarray(vectors, np.float64)
    finite = np.isfinite(rows).all(axis=1, keepdims=True)
    return np.rint(np.where(finite, rows, 0.0) * _SCALE)


def similarities(records: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Inner products of quantized unit rows, `[r N]` int64 in multiples of 2⁻⁴⁸: exact.

    Every sum of products of whole numbers, in any order and over any part of the columns, is a whole number
    of at most ‖a‖ ‖b‖ (Cauchy and Schwarz, on absolute values), about 2⁴⁸ and so below 2⁵³: each step of a
    float64 product is exact, also a fused one. So a row's similarities are a function of its own vector and
    the candidates, whatever other rows there are.

    Args:
        records: `[r d]`, rows of length 1 or zero.
        candidates: `[N d]`, likewise.
    """
    return (quantized(records) @ quantized(candidates).T).astype(np.int64)
