"""Similarities in whole numbers: those of Python's, whatever stands beside a row and in whatever order."""

import hypothesis
import numpy as np
from hypothesis import strategies as st

from models.clustering.quantized import quantized, similarities
from tests.oracles import clustering as slow


def unit_rows(number: int, dimensions: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((number, dimensions))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@hypothesis.given(
    records=st.integers(0, 9), candidates=st.integers(0, 9), dimensions=st.integers(1, 70),
    seed=st.integers(0, 1000),
)  # fmt: skip
def test_similarities_are_those_of_whole_numbers(
    records: int, candidates: int, dimensions: int, seed: int
) -> None:
    ours, others = unit_rows(records, dimensions, seed), unit_rows(candidates, dimensions, seed + 1)
    found = similarities(ours, others)
    assert found.dtype == np.int64 and found.shape == (records, candidates)
    assert found.tolist() == slow.whole_similarities(ours, others)


def test_the_largest_sums_are_exact() -> None:
    for dimensions in (1, 3, 384, 640, 4096):
        # All columns alike, and one column alone: the ends between which a sum of products may lie.
        flat = np.full((1, dimensions), dimensions**-0.5, np.float32)
        alone = np.eye(1, dimensions, dtype=np.float32)
        rows = np.concatenate([flat, -flat, alone, np.nextafter(alone, 2)])
        assert similarities(rows, rows).tolist() == slow.whole_similarities(rows, rows)


def test_neither_the_order_of_columns_nor_other_rows_move_a_bit() -> None:
    records, candidates = unit_rows(67, 384, 2), unit_rows(129, 384, 3)
    whole = similarities(records, candidates)
    order = np.random.default_rng(4).permutation(384)
    assert (similarities(records[:, order], candidates[:, order]) == whole).all()
    assert (similarities(records[::-1], candidates)[::-1] == whole).all()
    for block in (1, 2, 7, 32, 66):
        parts = [similarities(records[at : at + block], candidates) for at in range(0, len(records), block)]
        assert (np.concatenate(parts) == whole).all()
        parts = [similarities(records, candidates[at : at + block]) for at in range(0, 129, block)]
        assert (np.concatenate(parts, axis=1) == whole).all()


def test_floats_would_not_do() -> None:
    """Why whole numbers: in single precision the order of columns moves products."""
    records, candidates = unit_rows(67, 384, 2), unit_rows(129, 384, 3)
    assert (records @ candidates.T != records[:, ::-1] @ candidates[:, ::-1].T).any()


def test_a_row_that_is_not_finite_is_like_nothing_and_leaves_the_others_alone() -> None:
    rows = unit_rows(4, 8, 5)
    expected = similarities(rows, rows)
    for value in (np.nan, np.inf, -np.inf):
        broken = rows.copy()
        broken[2, 3] = value
        assert not quantized(broken)[2].any()
        found = similarities(broken, broken)
        assert not found[2].any() and not found[:, 2].any()
        others = np.ix_([0, 1, 3], [0, 1, 3])
        assert (found[others] == expected[others]).all()
