from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.evaluation import coverage
from pipeline.evaluation.coverage import Coverage, Neighbourhoods, neighbourhoods
from pipeline.evaluation.measure import NotDefined
from tests.pipeline.evaluation.placed import blobs, placed_sources


def _values(corpus: np.ndarray, **others: Any) -> dict[str, float | None]:
    found = Coverage().measure(placed_sources(corpus, **others), lambda done, total: None)
    return {figure.name: figure.value for figure in found.figures}


def _oracle(real: np.ndarray, other: np.ndarray) -> Neighbourhoods:
    """The definitions, one pair of points after another."""

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(((a - b) ** 2).sum()))

    def radius(points: np.ndarray, index: int, k: int) -> float:
        return sorted(distance(points[index], each) for row, each in enumerate(points) if row != index)[k - 1]

    three = [radius(real, index, 3) for index in range(len(real))]
    five = [radius(real, index, 5) for index in range(len(real))]
    other_three = [radius(other, index, 3) for index in range(len(other))]
    within = [[distance(a, b) for b in other] for a in real]
    return Neighbourhoods(
        precision=float(
            np.mean([any(within[i][j] <= three[i] for i in range(len(real))) for j in range(len(other))])
        ),
        recall=float(np.mean([any(d <= r for d, r in zip(row, other_three)) for row in within])),
        density=sum(d <= five[i] for i, row in enumerate(within) for d in row) / (5 * len(other)),
        coverage=float(np.mean([any(d <= five[i] for d in row) for i, row in enumerate(within)])),
    )


def test_it_agrees_with_the_definitions() -> None:
    generator = np.random.default_rng(0)
    real, other = generator.normal(size=(70, 3)), 0.6 + 0.7 * generator.normal(size=(50, 3))
    expected = _oracle(real, other)
    found = neighbourhoods(real, other)
    assert found == expected
    assert 0.2 < expected.recall < 0.98 and 0.2 < expected.coverage < 0.98 and expected.precision < 1


def test_more_rows_than_are_held_at_once_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    real, other = generator.normal(size=(70, 3)), generator.normal(size=(50, 3))
    whole = neighbourhoods(real, other)
    monkeypatch.setattr(coverage, '_ROWS', 16)
    assert neighbourhoods(real, other) == whole


def test_samples_of_one_distribution_cover_what_the_paper_expects() -> None:
    generator = np.random.default_rng(2)
    size, k = 1500, coverage.COVERAGE_NEIGHBOURS
    found = neighbourhoods(generator.normal(size=(size, 4)), generator.normal(size=(size, 4)))
    # Naeem et al. 2020, section 3: the k-th neighbour of a point among n - 1 of its own and n others.
    others = np.arange(1, k + 1)
    expected = 1 - np.prod((size - others) / (2 * size - others))
    assert found.coverage == pytest.approx(expected, abs=0.02)
    assert found.density == pytest.approx(1, abs=0.05)


def test_copies_are_precise_and_cover_everything() -> None:
    points = blobs(np.random.default_rng(3), 60, [0, 1])
    values = _values(points, test=points)
    assert [values[name] for name in ('precision', 'recall', 'coverage')] == [1, 1, 1]


def test_texts_that_are_all_the_same_are_within_a_ball_of_radius_zero() -> None:
    same = np.tile(np.random.default_rng(4).normal(size=16), (60, 1))
    values = _values(same, test=same)
    assert [values[name] for name in ('precision', 'recall', 'coverage')] == [1, 1, 1]


def test_copies_whose_distances_round_are_within_a_ball_of_radius_zero() -> None:
    few = np.random.default_rng(0).normal(size=(300, 64)).astype(np.float32)
    few /= np.linalg.norm(few, axis=1, keepdims=True)
    real, other = np.repeat(few, 8, axis=0), np.tile(few, (9, 1))
    # Without a tolerance about a tenth would be without a neighbour, as distances come from products.
    found = neighbourhoods(real, other)
    assert (found.precision, found.recall, found.coverage) == (1, 1, 1)


def test_disjoint_texts_score_zero() -> None:
    generator = np.random.default_rng(5)
    values = _values(blobs(generator, 60, [0]), test=blobs(generator, 60, [1]))
    assert values == {'precision': 0, 'recall': 0, 'density': 0, 'coverage': 0}


def test_a_corpus_of_half_the_topics_is_precise_and_covers_half() -> None:
    generator = np.random.default_rng(6)
    values = _values(blobs(generator, 400, [0, 1]), test=blobs(generator, 400, [0, 1, 2, 3]))
    assert values['coverage'] == pytest.approx(0.5, abs=0.03)
    # A ball of a point of four topics holds texts of its own topic alone.
    assert values['precision'] > 0.5
    other_way = _values(blobs(generator, 400, [0, 1, 2, 3]), test=blobs(generator, 400, [0, 1]))
    assert other_way['precision'] < 0.5 < other_way['coverage']


def test_records_beside_held_out_texts_say_what_real_text_scores() -> None:
    generator = np.random.default_rng(7)
    values = _values(
        blobs(generator, 100, [2]), test=blobs(generator, 100, [0, 1]), records=blobs(generator, 100, [0, 1])
    )
    assert values['coverage'] == 0 and values['coverage/records'] > 0.9


def test_as_many_texts_of_each_are_compared_and_no_more_than_the_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = np.random.default_rng(8)
    sources = placed_sources(blobs(generator, 80, [0]), test=blobs(generator, 120, [0]))
    assert Coverage().measure(sources, lambda done, total: None).settings['texts_on_each_side'] == 80
    monkeypatch.setattr(coverage, 'MAX_TEXTS', 64)
    found = Coverage().measure(sources, lambda done, total: None)
    assert found.settings['texts_on_each_side'] == 64
    assert Coverage().measure(sources, lambda done, total: None) == found


def test_it_is_not_defined_of_few_texts_or_no_real_ones() -> None:
    points = np.eye(4)[np.zeros(60, int)]
    with pytest.raises(NotDefined, match='50 or more texts on each side, got corpus=60, test=49'):
        _values(points, test=points[:49])
    with pytest.raises(NotDefined, match='--test, or --records'):
        _values(points)
    with pytest.raises(NotDefined, match='knows no word of 100% of test'):
        _values(points, test=0 * points)
