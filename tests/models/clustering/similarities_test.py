"""Exact similarities: equal to Python's whole numbers, in any order of components, beside any rows."""

import numpy as np
import pytest

from models.clustering.embedder import unit_rows
from models.clustering.similarities import SCALE, quantized, similarities
from tests import oracles


def _units(count: int, dimensions: int, seed: int) -> np.ndarray:
    return unit_rows(np.random.default_rng(seed).normal(size=(count, dimensions)))


@pytest.mark.parametrize('dimensions', [1, 2, 384, 2048])
def test_similarities_equal_their_twin(dimensions: int) -> None:
    records, candidates = _units(7, dimensions, 0), _units(11, dimensions, 1)
    # The largest product of all, and two that only the last bits tell apart.
    records[0] = candidates[0]
    candidates[1] = np.nextafter(candidates[0], np.float32(0))
    # Vectors of length 1 up to float32 may move in their last bit when they are scaled again.
    records, candidates = unit_rows(records), unit_rows(candidates)
    found = similarities(quantized(records), quantized(candidates))
    again = unit_rows(records), unit_rows(candidates)
    assert found.dtype == np.float64
    assert found.tolist() == [[oracles.similarity(a, b) for b in again[1]] for a in again[0]]
    assert found[0, 0] == pytest.approx(2.0**48, rel=1e-6)


@pytest.mark.parametrize('rows', range(1, 34))
def test_a_row_does_not_move_with_its_company(rows: int) -> None:
    """Every number of rows and of candidates up to 33, and the components in any order: 0 bits."""
    records, candidates = quantized(_units(33, 384, 2)), quantized(_units(33, 384, 3))
    whole = similarities(records, candidates)
    np.testing.assert_array_equal(similarities(records[:rows], candidates), whole[:rows])
    np.testing.assert_array_equal(similarities(records[-rows:], candidates[:rows]), whole[-rows:, :rows])
    order = np.random.default_rng(rows).permutation(384)
    np.testing.assert_array_equal(similarities(records[:, order], candidates[:, order]), whole)
    np.testing.assert_array_equal(similarities(candidates, records), whole.T)


def test_a_product_of_float32_does_move() -> None:
    """The purpose of whole numbers: the same test fails on plain vectors."""
    records, candidates = _units(33, 384, 2), _units(33, 384, 3)
    order = np.random.default_rng(0).permutation(384)
    assert (records @ candidates.T != records[:, order] @ candidates[:, order].T).any()


def test_rows_are_whole_numbers_and_bad_ones_are_zero() -> None:
    rows = np.array([[3, 4], [0, 0], [np.nan, 1], [np.inf, 0], [-np.inf, np.inf], [1e-30, 0], [3e38, 3e38]])
    found = quantized(rows.astype(np.float32))
    np.testing.assert_array_equal(found, np.rint(found))
    np.testing.assert_array_equal(found[0], np.rint(np.float32([0.6, 0.8]).astype(np.float64) * SCALE))
    assert not found[1:5].any() and found[5].tolist() == [SCALE, 0] and found[6, 0] == found[6, 1] > 1e7
    assert quantized(np.zeros((0, 3))).shape == (0, 3)


def test_the_longest_rows_are_shorter_than_the_proof_says() -> None:
    """All components equal, where rounding lengthens a row most."""
    for dimensions in (1, 3, 384, 2048, 100_000):
        row = quantized(np.ones((1, dimensions)))[0]
        assert sum(int(value) ** 2 for value in row) < 2**52


@pytest.mark.parametrize(
    ('records', 'candidates'),
    [
        (np.zeros((2, 3), np.float32), np.zeros((2, 3))),
        (np.zeros((2, 3)), np.zeros((2, 4))),
        (np.zeros(3), np.zeros((2, 3))),
    ],
)
def test_other_arrays_are_refused(records: np.ndarray, candidates: np.ndarray) -> None:
    with pytest.raises(ValueError, match='Pass what quantized returns'):
        similarities(records, candidates)
