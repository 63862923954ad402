"""Centres: the nearest one exactly and row by row, the files, and the shipped artefact on its corpus."""

import dataclasses
import functools
import json
import pathlib
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import numpy as safetensors_numpy
from sklearn.metrics import v_measure_score

from models.clustering.centers import (
    SHIPPED,
    Centers,
    Clusterer,
    ClusterSettings,
    corpus_fingerprint,
    fit_centers,
)
from models.clustering.embedder import TFIDF_FILES, DecoderEmbedder, TfidfEmbedder
from tests import oracles

pytestmark = pytest.mark.heavy

ROOT = pathlib.Path(__file__).parents[3]
BUNDLED = ROOT / 'models' / 'bundled'
DATA = ROOT.parent / 'shared' / 'data'

needs_data = pytest.mark.skipif(
    not (DATA / 'dbpedia').is_dir() or not (DATA / 'pretrain').is_dir(),
    reason=f'the public corpus is not at {DATA}: put dbpedia/ and pretrain/ there to check the artefact',
)


def _centers(vectors: np.ndarray, **changes: object) -> Centers:
    facts: dict = {
        'embedder': 'tfidf', 'embedder_fingerprint': '00', 'corpus_fingerprint': '11',
        'corpus_texts': 5, 'seed': 0,
    }  # fmt: skip
    return Centers(vectors=np.asarray(vectors, np.float32), **(facts | changes))


@functools.cache
def _tfidf() -> TfidfEmbedder:
    return TfidfEmbedder.read(SHIPPED)


# --------------------------------------------------------------------------- nearest


@pytest.mark.first
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_nearest_equals_its_twin_where_ties_abound(data: st.DataObject) -> None:
    """Small whole multiples of one step: equal distances, equal centres, any kept subset."""
    count, dimensions, rows = (data.draw(st.integers(1, top)) for top in (7, 3, 9))
    grid = st.integers(-2, 2)
    step = data.draw(st.sampled_from([1.0, 0.1, 1e-20, 1e15]))

    def draw(number: int) -> np.ndarray:
        cells = data.draw(st.lists(grid, min_size=number * dimensions, max_size=number * dimensions))
        return (np.array(cells, np.float64) * step).astype(np.float32).reshape(number, dimensions)

    vectors, embeddings = draw(count), draw(rows)
    kept = data.draw(st.none() | st.lists(st.integers(0, count - 1), min_size=1))
    found = _centers(vectors).nearest(embeddings, kept)
    assert found.dtype == np.int32
    assert found.tolist() == oracles.nearest(embeddings, vectors, kept)


def test_nearest_is_exact_where_a_matrix_product_is_not() -> None:
    """Centres that are one another's shuffles, rows that a shuffle does not change: all distances tie.

    Sums in other orders round otherwise, so a matrix product alone names any of them.
    """
    rng = np.random.default_rng(0)
    center = rng.normal(size=128).astype(np.float32)
    shuffles = np.stack([np.concatenate([rng.permutation(center[:96]), center[96:]]) for _ in range(20)])
    closer = shuffles[7].copy()
    closer[100] = np.nextafter(closer[100], np.float32(99))
    vectors = np.stack([*(shuffles + 1), *shuffles, closer])
    rows = rng.normal(size=(40, 128)).astype(np.float32)
    rows[:, :96] = rows[:, :1]
    # Above the centre in component 100, so that one rounding step up is nearer; or below it.
    rows[:, 100] = center[100] + np.where(np.arange(40) % 2, 1, -1)
    found = _centers(vectors).nearest(rows, kept=range(20, 41))
    assert found.tolist() == [20, 40] * 20 == oracles.nearest(rows, vectors, kept=range(20, 41))
    products = np.square(shuffles.astype(np.float64)).sum(axis=1) - 2 * rows @ shuffles.T.astype(np.float64)
    assert products.argmin(axis=1).any()


def test_a_rows_centre_does_not_depend_on_the_other_rows() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(60, 48))
    vectors[40:] = vectors[:20]
    embeddings = rng.normal(size=(2500, 48)).astype(np.float32)
    embeddings[::50] = vectors[rng.integers(0, 60, 50)]
    centers = _centers(vectors)
    expected = centers.nearest(embeddings)
    assert (expected < 40).all() and len(set(expected.tolist())) > 30
    order = rng.permutation(2500)
    np.testing.assert_array_equal(centers.nearest(embeddings[order]), expected[order])
    for first, size in ((0, 1), (17, 3), (1023, 2), (2499, 1), (100, 1500)):
        some = slice(first, first + size)
        np.testing.assert_array_equal(centers.nearest(embeddings[some]), expected[some])
    assert centers.nearest(embeddings[:0]).shape == (0,)


def test_a_row_that_is_not_finite_counts_as_zeros() -> None:
    centers = _centers([[3, 0], [0, 1], [1, 0]])
    rows = np.array([[0, 0], [np.nan, 9], [np.inf, 0], [-np.inf, np.nan]], np.float32)
    assert centers.nearest(rows).tolist() == [1, 1, 1, 1]
    assert centers.nearest(rows, kept=[2, 0]).tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize('kept', [[], [-1], [3], [0, 7]])
def test_kept_must_name_centres(kept: list[int]) -> None:
    with pytest.raises(ValueError, match=r'indices in \[0, 3\)'):
        _centers(np.eye(3)).nearest(np.eye(3), kept)


def test_embeddings_of_another_width_are_refused_without_their_number() -> None:
    messages = set()
    for shape in ((7, 2), (5, 4), (3,)):
        with pytest.raises(ValueError, match=r'\[n, 3\], got another shape') as error:
            _centers(np.eye(3)).nearest(np.zeros(shape))
        messages.add(str(error.value))
    assert len(messages) == 1


# -------------------------------------------------------------------------- the facts


@pytest.mark.parametrize('vectors', [np.zeros(3), np.zeros((0, 3)), np.zeros((3, 0))])
def test_vectors_of_another_shape_are_refused(vectors: np.ndarray) -> None:
    with pytest.raises(ValueError, match=re.escape(f'shape={vectors.shape}')):
        _centers(vectors)


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match='finite'):
        _centers([[0, value]])


def test_vectors_show_in_no_repr() -> None:
    centers = _centers([[0.123456, 7]])
    assert '0.123' not in repr(centers) and "embedder='tfidf'" in repr(centers)


# -------------------------------------------------------------------------- on disk


def test_centers_survive_the_disk(tmp_path: pathlib.Path) -> None:
    vectors = np.random.default_rng(2).normal(size=(4, 3))
    centers = _centers(vectors, versions=(('numpy', '2'), ('scikit-learn', '1')))
    centers.write(tmp_path / 'folder')
    again = Centers.read(tmp_path / 'folder')
    np.testing.assert_array_equal(again.vectors, centers.vectors)
    for field in dataclasses.fields(Centers):
        if field.name != 'vectors':
            assert getattr(again, field.name) == getattr(centers, field.name)
    assert again.fingerprint == centers.fingerprint
    assert dataclasses.replace(again, seed=9).fingerprint != centers.fingerprint
    assert dataclasses.replace(again, vectors=-again.vectors).fingerprint != centers.fingerprint


def test_a_folder_without_centers_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"files=\['centers.json', 'centers.safetensors'\]"):
        Centers.read(tmp_path)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'schema': 'dp-corpus centers 0'}, "Expected schema='dp-corpus centers 1'"),
        ({'count': 4}, 'damaged'),
        ({'dimensions': 2}, 'damaged'),
        ({'colour': 'red'}, 'damaged'),
    ],
)
def test_another_document_is_refused(tmp_path: pathlib.Path, change: dict, message: str) -> None:
    _centers(np.eye(3)).write(tmp_path)
    path = tmp_path / 'centers.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message):
        Centers.read(tmp_path)


@pytest.mark.parametrize(
    ('tensors', 'message'),
    [
        ({'vectors': np.full((3, 3), np.nan, np.float32)}, 'finite'),
        ({'vectors': np.eye(3)}, 'dtype=float64'),
        ({'points': np.eye(3, dtype=np.float32)}, 'damaged'),
    ],
)
def test_other_tensors_are_refused(tmp_path: pathlib.Path, tensors: dict, message: str) -> None:
    _centers(np.eye(3)).write(tmp_path)
    (tmp_path / 'centers.safetensors').write_bytes(safetensors_numpy.save(tensors))
    with pytest.raises(ValueError, match=message):
        Centers.read(tmp_path)


# ---------------------------------------------------------------------------- fitting

SUBJECTS = (
    'football striker goal cup',
    'album guitar band song',
    'river village district',
    'moth family genus',
)


def _texts(count: int) -> list[str]:
    """Texts of four subjects in turn; three words of one of them and one of any."""
    rng = np.random.default_rng(3)
    every = ' '.join(SUBJECTS).split()
    return [
        ' '.join([*rng.permutation(SUBJECTS[index % 4].split())[:3], rng.choice(every)])
        for index in range(count)
    ]


def test_fitted_centers_find_the_subjects() -> None:
    texts = _texts(200)
    centers = fit_centers(texts, _tfidf(), count=4, seed=0)
    subjects = np.arange(200) % 4
    clusters = centers.nearest(_tfidf().embed(texts))
    assert v_measure_score(subjects, clusters) > 0.6
    assert v_measure_score(subjects, np.random.default_rng(0).permutation(clusters)) < 0.1
    assert centers.corpus_texts == 200 and centers.corpus_fingerprint == corpus_fingerprint(texts)
    assert (centers.embedder, centers.embedder_fingerprint) == ('tfidf', _tfidf().fingerprint)
    again = fit_centers(texts, _tfidf(), count=4, seed=0)
    np.testing.assert_array_equal(centers.vectors, again.vectors)
    assert not np.array_equal(fit_centers(texts, _tfidf(), count=4, seed=1).vectors, centers.vectors)


def test_too_few_texts_are_refused_without_their_number() -> None:
    """Texts without a known word count for nothing."""
    messages = set()
    for texts in (_texts(3), _texts(2) + ['zzzzzz', ''] * 5, []):
        with pytest.raises(ValueError, match='fewer than count=4') as error:
            fit_centers(texts, _tfidf(), count=4, seed=0)
        messages.add(str(error.value))
    assert len(messages) == 1


def test_the_corpus_fingerprint_knows_order_and_borders() -> None:
    prints = [
        corpus_fingerprint(texts) for texts in (['ab', 'c'], ['a', 'bc'], ['c', 'ab'], ['abc'], [], [''])
    ]
    assert len(set(prints)) == len(prints)


# --------------------------------------------------------------------------- settings


def test_settings_build_the_same_clusterer_after_pickling() -> None:
    clusterer = pickle.loads(pickle.dumps(ClusterSettings())).build()
    texts = _texts(8)
    clusters = clusterer.centers.nearest(clusterer.embedder.embed(texts))
    assert clusters.tolist() == Centers.read(SHIPPED).nearest(_tfidf().embed(texts)).tolist()
    assert len(set(clusters.tolist())) > 3
    ClusterSettings().build()


def test_a_folder_of_centers_may_bring_its_own_embedder(tmp_path: pathlib.Path) -> None:
    """Without one, the shipped embedder; with another one, that one, or a refusal."""
    texts = _texts(40)
    fit_centers(texts, _tfidf(), count=4, seed=0).write(tmp_path)
    assert ClusterSettings(centers=str(tmp_path)).build().embedder.fingerprint == _tfidf().fingerprint
    own = TfidfEmbedder.fit(texts, max_terms=99, min_texts=1, dimensions=5, seed=0)
    own.write(tmp_path)
    with pytest.raises(ValueError, match=f'fingerprint={_tfidf().fingerprint!r}, got fingerprint='):
        ClusterSettings(centers=str(tmp_path)).build()
    fit_centers(texts, own, count=4, seed=0).write(tmp_path)
    assert ClusterSettings(centers=str(tmp_path)).build().embedder.dimensions == 5
    (tmp_path / TFIDF_FILES[0]).unlink()
    with pytest.raises(FileNotFoundError, match=TFIDF_FILES[0]):
        ClusterSettings(centers=str(tmp_path)).build()


def test_the_decoder_serves_with_its_settings_alone(tmp_path: pathlib.Path) -> None:
    decoder = {
        'model': 'bundled',
        'checkpoint': str(BUNDLED / 'checkpoint'),
        'tokenizer': str(BUNDLED / 'tokenizer.model'),
        'dtype': 'float32',
    }
    with pytest.raises(ValueError, match="name='tfidf', got name='decoder'"):
        ClusterSettings(embedder='decoder', **decoder).build()
    settings = ClusterSettings(centers=str(tmp_path), embedder='decoder', **decoder)
    embedder = settings.load_embedder()
    assert isinstance(embedder, DecoderEmbedder)
    fit_centers(_texts(40), embedder, count=4, seed=0).write(tmp_path)
    assert pickle.loads(pickle.dumps(settings)).build().centers.embedder == 'decoder'
    for given_settings in (
        {'embedder': 'decoder'},
        {'embedder': 'decoder', 'dtype': 'float32'},
        {'embedder': 'tfidf', 'checkpoint': 'folder'},
        {'embedder': 'tfidf', 'dtype': 'float32'},
        {'embedder': 'minilm', 'model': 'bundled'},
    ):
        with pytest.raises(ValueError, match='Give all four, or none'):
            ClusterSettings(**given_settings)


def test_another_embedders_centers_are_refused() -> None:
    shipped = Centers.read(SHIPPED)
    for change, message in (
        ({'embedder': 'minilm'}, "name='minilm', got name='tfidf'"),
        ({'embedder_fingerprint': '00'}, "fingerprint='00'"),
        ({'vectors': shipped.vectors[:, :5]}, 'dimensions=5, got dimensions=128'),
    ):
        with pytest.raises(ValueError, match=message):
            Clusterer(centers=dataclasses.replace(shipped, **change), embedder=_tfidf())


# ------------------------------------------------------------------- the shipped artefact


def test_the_shipped_centers_are_small_public_and_distinct() -> None:
    centers = Centers.read(SHIPPED)
    assert centers.vectors.shape == (500, 128)
    assert len(np.unique(centers.vectors, axis=0)) == 500
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 5e6
    # Each is the nearest centre of itself, and of nothing further in.
    assert centers.nearest(centers.vectors).tolist() == list(range(500))


@pytest.mark.first
@needs_data
def test_the_shipped_centers_come_from_the_public_corpus_and_sort_it() -> None:
    """README's figures: V-measure on the 1,428 abstracts left out of the fit; 0.25 under shuffled classes."""
    from tools.bundled import fit_centers as script

    passages, kept_aside = script.read_passages(DATA)
    centers = Centers.read(SHIPPED)
    assert corpus_fingerprint(passages) == centers.corpus_fingerprint
    assert (len(passages), len(kept_aside)) == (centers.corpus_texts, 1428)
    assert not set(passages) & {script.passage(text) for text in kept_aside}
    assert script.v_measure(centers, _tfidf(), kept_aside) == pytest.approx(0.600, abs=0.01)
    categories = np.random.default_rng(0).permutation([text.category for text in kept_aside])
    shuffled = [dataclasses.replace(text, category=str(name)) for text, name in zip(kept_aside, categories)]
    assert script.v_measure(centers, _tfidf(), shuffled) < 0.3
