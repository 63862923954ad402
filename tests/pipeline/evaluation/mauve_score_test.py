from __future__ import annotations

import importlib.metadata
import os
import sys
from typing import Any

import mauve
import numpy as np
import pytest
from scipy import integrate

from pipeline.evaluation.mauve_score import MIN_TEXTS, SEEDS, SETTINGS, Mauve, score_of_disjoint
from pipeline.evaluation.measure import Findings, NotDefined
from tests.pipeline.evaluation.placed import blobs, placed_sources

pytestmark = pytest.mark.heavy


def _found(corpus: np.ndarray, **others: Any) -> Findings:
    return Mauve().measure(placed_sources(corpus, **others), lambda done, total: None)


def _values(findings: Findings) -> dict[str, float | None]:
    return {figure.name: figure.value for figure in findings.figures}


def _at(places: list[int], size: int) -> np.ndarray:
    """Points at so many places, the same number at each."""
    return np.eye(8)[np.resize(places, size)]


def _area(p: np.ndarray, q: np.ndarray, scaling: float) -> float:
    """MAUVE by its definition, of distributions over the same cells, by quadrature over the mixtures."""

    def divergence(of: np.ndarray, mixture: np.ndarray) -> float:
        on = of > 0
        return float((of[on] * np.log(of[on] / mixture[on])).sum())

    def point(weight: float) -> tuple[float, float]:
        mixture = weight * p + (1 - weight) * q
        return np.exp(-scaling * divergence(q, mixture)), np.exp(-scaling * divergence(p, mixture))

    weights = np.linspace(1e-9, 1 - 1e-9, 20_001)
    x, y = np.array([point(weight) for weight in weights]).T
    # From the ends of the curve, which are (0, 1) and (1, 0).
    x, y = np.concatenate([[1], x, [0]]), np.concatenate([[0], y, [1]])
    return float(integrate.trapezoid(y[::-1], x[::-1]))


def test_the_same_texts_score_one() -> None:
    points = blobs(np.random.default_rng(0), 200, [0, 1, 2])
    found = _found(points, test=points)
    assert _values(found) == {'mauve_clustering': 1.0, 'mauve_invisibleink': 1.0}
    assert [figure.standard_error for figure in found.figures] == [0.0, 0.0]


@pytest.mark.first
def test_samples_of_one_distribution_score_high() -> None:
    generator = np.random.default_rng(0)
    found = _found(blobs(generator, 1000, range(8)), test=blobs(generator, 1000, range(8)))
    values = _values(found)
    assert values['mauve_clustering'] > 0.9
    assert values['mauve_invisibleink'] > 0.99


@pytest.mark.parametrize('name', SETTINGS)
def test_disjoint_texts_score_what_the_formula_says(name: str) -> None:
    found = _found(_at([0, 1, 2], 300), test=_at([3, 4, 5], 300))
    scaling = SETTINGS[name].mauve_scaling_factor
    lowest = score_of_disjoint(scaling)
    assert lowest == pytest.approx(_area(np.array([1.0, 0]), np.array([0, 1.0]), scaling), abs=1e-5)
    # The library's curve has some 30 points.
    assert _values(found)[f'mauve_{name}'] == pytest.approx(lowest, abs=0.005)


@pytest.mark.parametrize('name', SETTINGS)
def test_texts_half_of_which_are_shared_score_what_the_definition_says(name: str) -> None:
    found = _found(_at([0, 1, 2, 3], 400), test=_at([2, 3, 4, 5], 400))
    expected = _area(np.array([0.5, 0.5, 0]), np.array([0, 0.5, 0.5]), SETTINGS[name].mauve_scaling_factor)
    assert 0.05 < expected < 0.9
    assert _values(found)[f'mauve_{name}'] == pytest.approx(expected, abs=0.01)


def test_the_settings_of_the_calls_are_those_that_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    real_call = mauve.compute_mauve

    def recorded(**arguments: Any) -> Any:
        calls.append(arguments)
        return real_call(**arguments)

    monkeypatch.setattr(mauve, 'compute_mauve', recorded)
    generator = np.random.default_rng(1)
    found = _found(blobs(generator, 260, [0, 1]), test=blobs(generator, 400, [0, 1]))
    printed = [
        {
            key.removeprefix(f'{name}/'): value
            for key, value in found.settings.items()
            if key.startswith(f'{name}/')
        }
        for name in SETTINGS
    ]
    made = [
        {key: value for key, value in call.items() if key not in ('p_features', 'q_features', 'seed')}
        for call in calls
    ]
    assert made == printed * SEEDS
    assert all(len(call['p_features']) == len(call['q_features']) == 260 for call in calls)
    assert found.settings['texts_on_each_side'] == 260
    assert len({call['seed'] for call in calls}) == found.settings['seeds'] == SEEDS
    assert found.settings['mauve-text'] == importlib.metadata.version('mauve-text')
    assert printed == [
        # CL, appendix E.1.
        {
            'num_buckets': 26,
            'mauve_scaling_factor': 5,
            'divergence_curve_discretization_size': 32,
            'kmeans_explained_var': 0.9,
            'kmeans_num_redo': 5,
            'kmeans_max_iter': 500,
            'pca_max_data': -1,
        },
        # InvisibleInk: the library's defaults, but for the first two.
        {
            'num_buckets': 13,
            'mauve_scaling_factor': 0.9,
            'divergence_curve_discretization_size': 25,
            'kmeans_explained_var': 0.9,
            'kmeans_num_redo': 5,
            'kmeans_max_iter': 500,
            'pca_max_data': -1,
        },
    ]


def test_a_seed_gives_the_same_findings_and_another_others() -> None:
    generator = np.random.default_rng(2)
    corpus, test = blobs(generator, 300, [0, 1, 2]), blobs(generator, 200, [1, 2, 3])
    first, again, other = (_found(corpus, test=test, seed=seed) for seed in (3, 3, 4))
    assert first == again
    assert _values(first) != _values(other)


def test_more_texts_than_the_papers_take_are_drawn() -> None:
    generator = np.random.default_rng(3)
    found = _found(blobs(generator, 1300, [0, 1]), test=blobs(generator, 1200, [0, 1]))
    assert found.settings['texts_on_each_side'] == 1000
    assert found.settings['clustering/num_buckets'] == 100
    assert found.settings['invisibleink/num_buckets'] == 50


def test_records_beside_held_out_texts_say_what_real_text_scores() -> None:
    generator = np.random.default_rng(4)
    test, records = blobs(generator, 300, [0, 1, 2]), blobs(generator, 300, [0, 1, 2])
    values = _values(_found(blobs(generator, 300, [3, 4, 5]), test=test, records=records))
    assert values['mauve_clustering'] < 0.1
    assert values['mauve_clustering/records'] > 0.8


def test_records_serve_where_nothing_is_held_out() -> None:
    points = blobs(np.random.default_rng(5), 150, [0, 1])
    found = _found(points, records=points)
    assert found.settings['real'] == 'records'
    assert _values(found) == {'mauve_clustering': 1.0, 'mauve_invisibleink': 1.0}


def test_it_is_not_defined_without_real_texts() -> None:
    with pytest.raises(NotDefined, match='--test, or --records'):
        _found(_at([0], 200))


def test_it_is_not_defined_of_few_texts() -> None:
    with pytest.raises(NotDefined, match=f'{MIN_TEXTS} or more texts on each side, got corpus=99, test=200'):
        _found(_at([0], 99), test=_at([0], 200))


def test_it_is_not_defined_of_texts_that_the_embedder_does_not_know() -> None:
    unknown = _at([0], 200)
    unknown[:30] = 0
    with pytest.raises(NotDefined, match='knows no word of 15% of test'):
        _found(_at([0], 200), test=unknown)


def test_it_is_not_defined_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'mauve', None)
    with pytest.raises(NotDefined, match=r"without libraries=\['mauve'\]. Run .*\[evaluate\]'"):
        _found(_at([0], 200), test=_at([0], 200))


def test_nothing_is_printed_and_both_streams_write_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    points = blobs(np.random.default_rng(6), 120, [0, 1])
    mauve.compute_mauve(p_features=points, q_features=points, num_buckets=12, kmeans_num_redo=1)
    assert 'clustering 240 points' in capfd.readouterr().err
    _found(points, test=points)
    assert capfd.readouterr() == ('', '')
    os.write(1, b'out')
    os.write(2, b'err')
    assert capfd.readouterr() == ('out', 'err')


def test_the_chart_has_the_curve_of_each_setting() -> None:
    generator = np.random.default_rng(7)
    (chart,) = _found(blobs(generator, 200, [0, 1]), test=blobs(generator, 200, [1, 2])).charts
    # The ends of the curve beside the points that the paper counts.
    assert [len(series.x) for series in chart.series] == [34, 27]
    for series in chart.series:
        assert (series.x[0], series.y[0]) == (1, 0)
        assert (series.x[-1], series.y[-1]) == (0, 1)
