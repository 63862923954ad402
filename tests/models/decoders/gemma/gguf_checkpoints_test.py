"""GGUF files: what is read is what was written, and what does not fit is refused in a few words."""

import dataclasses
import pathlib
from typing import Any

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.decoders.gemma import architectures, checkpoints
from models.decoders.transformer import gguf as gguf_checkpoints
from models.decoders.transformer import gguf_file
from models.decoders.transformer.checkpoint import Place
from tests.models.decoders.gemma.gguf_files import F32, gguf_metadata, gguf_tensors, write_gguf
from tests.models.decoders.gemma.hub_checkpoints import CASES, GEMMA2, GEMMA3, all_logits, hub_tensors, oracle

NAMES = {'1': 'gemma', '2': 'gemma2', '3': 'gemma3', '3n': 'gemma3n', '4': 'gemma4'}
Kind = gguf.GGMLQuantizationType


def write(
    path: pathlib.Path,
    a: architectures.GemmaArchitecture,
    tensors: dict[str, np.ndarray] | None = None,
    metadata: dict[str, Any] | None = None,
    **options: Any,
) -> pathlib.Path:
    """A file of an architecture, with some of its metadata changed."""
    tensors = gguf_tensors(a, hub_tensors(a)) if tensors is None else tensors
    return write_gguf(path, NAMES[a.generation], gguf_metadata(a) | (metadata or {}), tensors, **options)


# --- What is read ----------------------------------------------------------------


@pytest.mark.parametrize('name', CASES)
def test_file_computes_what_transformers_would_with_its_weights(name: str, tmp_path: pathlib.Path) -> None:
    architecture = CASES[name]
    hub = hub_tensors(architecture)
    path = write(tmp_path / 'model.gguf', architecture)
    checkpoints.check_files(architecture, path)
    weights = checkpoints.load_weights(architecture, path, Place(jnp.float32))
    tokens = np.random.default_rng(2).integers(5, 40, 13)
    logits = all_logits(architecture, weights, tokens)
    # As for safetensors (checkpoints_test.py); adding 1 to a norm and taking it off again costs 1e-7 of it.
    np.testing.assert_allclose(logits, oracle(architecture, hub, tokens), atol=5e-5, rtol=0)


def _wide(a: architectures.GemmaArchitecture) -> architectures.GemmaArchitecture:
    """Widths that are whole blocks of every quantization that the package writes."""
    return dataclasses.replace(a, embed_dim=32, hidden_dim=64, head_dim=32, num_heads=2, num_kv_heads=1)


@pytest.mark.parametrize('kind', [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q5_1, Kind.Q5_0, Kind.Q4_1, Kind.Q4_0])
@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_quantized_weights_are_what_the_package_makes_of_them(
    kind: Kind, dtype: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    architecture = _wide(GEMMA3)
    tensors = gguf_tensors(architecture, hub_tensors(architecture))
    kinds = {name: kind for name in tensors if 'norm' not in name}
    path = write(tmp_path / 'model.gguf', architecture, tensors, kinds=kinds)
    # A few rows at a time, and the last piece shorter.
    monkeypatch.setattr(gguf_checkpoints, '_CHUNK', 32 * 7)
    weights = checkpoints.load_weights(architecture, path, Place(dtype))
    assert {leaf.dtype for leaf in jax.tree.leaves(weights)} == {jnp.dtype(dtype)}

    def expected(name: str) -> np.ndarray:
        stored = next(tensor for tensor in gguf.GGUFReader(path).tensors if tensor.name == name)
        return gguf.dequantize(stored.data, stored.tensor_type)

    same = np.testing.assert_array_equal
    same(weights.embedding, jnp.asarray(expected('token_embd.weight'), dtype))
    same(weights.layers[1].down, jnp.asarray(expected('blk.1.ffn_down.weight').T, dtype))
    same(weights.final_norm, jnp.asarray(tensors['output_norm.weight'] - np.float32(1), dtype))


@pytest.mark.parametrize(
    ('num_embed', 'rows'), [(256_128, 256_000), (256_128, 256_128), (262_144, 262_208), (262_144, 262_144)]
)
def test_known_vocabularies_fit(num_embed: int, rows: int, tmp_path: pathlib.Path) -> None:
    architecture = dataclasses.replace(GEMMA2, num_embed=num_embed)
    tensors = gguf_tensors(architecture, hub_tensors(dataclasses.replace(architecture, num_embed=rows)))
    path = write(tmp_path / 'model.gguf', architecture, tensors)
    weights = checkpoints.load_weights(architecture, path, Place(jnp.float32))
    found = np.asarray(weights.embedding)
    kept = min(rows, num_embed)
    np.testing.assert_array_equal(found[:kept], tensors['token_embd.weight'][:kept])
    assert len(found) == num_embed and not found[kept:].any()


def test_keys_that_are_left_out_have_llama_cpps_defaults(tmp_path: pathlib.Path) -> None:
    defaults = dataclasses.replace(
        GEMMA2, num_kv_heads=4, head_dim=4, attention_types=('local', 'global', 'local', 'global'),
        sliding_window_size=4096, final_logit_softcap=30.0, attn_logits_soft_cap=50.0,
    )  # fmt: skip
    optional = (
        'attention.head_count_kv', 'attention.key_length', 'attention.value_length',
        'attention.sliding_window', 'attention.sliding_window_pattern', 'attn_logit_softcapping',
        'final_logit_softcapping',
    )  # fmt: skip
    path = write(tmp_path / 'model.gguf', defaults, metadata=dict.fromkeys(optional))
    checkpoints.check_files(defaults, path)
    for change in ({'sliding_window_size': 4095}, {'final_logit_softcap': None}, {'num_kv_heads': 2}):
        with pytest.raises(ValueError, match='where'):
            checkpoints.check_files(dataclasses.replace(defaults, **change), path)


def test_lists_of_one_number_a_layer_and_periods_are_understood(tmp_path: pathlib.Path) -> None:
    lists = {
        'attention.head_count_kv': [2, 2, 2], 'feed_forward_length': [24] * 3,
        'attention.sliding_window_pattern': 3, 'rope.scaling.type': 'linear',
    }  # fmt: skip
    checkpoints.check_files(GEMMA3, write(tmp_path / 'a.gguf', GEMMA3, metadata=lists))
    lists['attention.head_count_kv'] = [2, 1, 2]
    with pytest.raises(ValueError, match=r'head_count_kv=\[2, 1, 2\] where 2 is expected'):
        checkpoints.check_files(GEMMA3, write(tmp_path / 'b.gguf', GEMMA3, metadata=lists))


# --- What is refused -------------------------------------------------------------


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'block_count': 2}, 'gemma3.block_count=2 where 3 is expected'),
        ({'block_count': None}, 'gemma3.block_count=None where 3'),
        ({'embedding_length': 32}, 'embedding_length=32 where 16'),
        ({'attention.key_length': 8}, 'attention.key_length=8 where 6'),
        ({'attention.sliding_window': 8}, 'attention.sliding_window=8 where 4'),
        ({'attention.layer_norm_rms_epsilon': 1e-5}, 'layer_norm_rms_epsilon='),
        ({'attention.causal': False}, 'attention.causal=False'),
        ({'attention.sliding_window_pattern': None}, 'sliding_window_pattern=6 where'),
        ({'attention.sliding_window_pattern': [True, False, True]}, 'sliding_window_pattern='),
        ({'attention.sliding_window_pattern': 'often'}, "sliding_window_pattern='often' where"),
        ({'attention.sliding_window_pattern': [True, False]}, 'sliding_window_pattern='),
        ({'attention.head_count': 'four'}, "head_count='four' where 4"),
        ({'final_logit_softcapping': 30.0}, 'final_logit_softcapping=30.0 where None'),
        ({'rope.freq_base': None}, 'rope.freq_base=10000.0 where 1000.0'),
        ({'rope.scaling.factor': None}, 'rope.scaling.factor=1.0 where 8.0'),
        ({'rope.scaling.type': 'yarn'}, "rope.scaling.type='yarn' where 'linear'"),
    ],
)
def test_contradicting_metadata_is_named(
    change: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    path = write(tmp_path / 'model.gguf', GEMMA3, metadata=change)
    with pytest.raises(ValueError, match=message) as raised:
        checkpoints.check_files(GEMMA3, path)
    assert str(raised.value).count('where') == 1


def test_another_models_file_is_refused_in_a_line_that_names_the_model(tmp_path: pathlib.Path) -> None:
    other = architectures.ARCHITECTURES['gemma3-1b']
    metadata = gguf_metadata(other) | {'attention.sliding_window_pattern': None}
    path = write_gguf(
        tmp_path / 'model.gguf', 'gemma3', metadata, {'output_norm.weight': np.ones(2, np.float32)}
    )
    with pytest.raises(ValueError, match='Its numbers are those of --model gemma3-1b') as raised:
        checkpoints.check_files(architectures.ARCHITECTURES['gemma3-270m'], path)
    assert 'block_count=26 where 18' in str(raised.value) and len(str(raised.value)) < 400
    with pytest.raises(
        ValueError, match="general.architecture='gemma3' where 'gemma2' is expected"
    ) as raised:
        checkpoints.check_files(architectures.ARCHITECTURES['gemma2-2b'], path)
    assert str(raised.value).count('where') == 1


@pytest.mark.parametrize(
    ('name', 'general', 'message'),
    [
        ('llama', {}, "among gemma, gemma2, gemma3, gemma3n, gemma4, got 'llama'"),
        ('gemma-embedding', {}, "got 'gemma-embedding'"),
        ('clip', {'general.type': 'mmproj'}, "got general.type='mmproj' .* Give the text model's own file"),
        ('clip', {}, "of general.architecture='clip'"),
        ('gemma3', {'general.type': 'adapter', 'adapter.type': 'lora'}, 'got an adapter'),
        ('gemma3', {'adapter.type': 'lora'}, 'got an adapter'),
        ('gemma3', {'general.type': 'imatrix'}, "general.type='imatrix'"),
        ('gemma3', {'split.count': 2, 'split.no': 0}, 'split.count=2.*llama-gguf-split --merge'),
        ('gemma3', {'split.count': 'two'}, "split.count='two'"),
    ],
)
def test_what_is_no_whole_text_model_is_refused(
    name: str, general: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    tensors = {'blk.0.attn_q.weight.lora_a': np.ones((2, 2), np.float32)}
    path = write_gguf(tmp_path / 'file.gguf', name, gguf_metadata(GEMMA3), tensors, general=general)
    with pytest.raises(ValueError, match=message):
        checkpoints.check_files(GEMMA3, path)


def test_missing_surplus_and_misshapen_tensors_are_counted_not_listed(tmp_path: pathlib.Path) -> None:
    tensors = gguf_tensors(GEMMA2, hub_tensors(GEMMA2))
    norm = 'output_norm.weight'
    cases = {
        'got none for names=output_norm.weight. ':
            {name: value for name, value in tensors.items() if name != norm},
        'names=blk.0.attn_k.weight; blk.0.attn_norm.weight; blk.0.attn_output.weight and 30 more. ':
            {norm: tensors[norm], 'token_embd.weight': tensors['token_embd.weight']},
        'no further weights, got names=rope_freqs.weight. ':
            tensors | {'rope_freqs.weight': np.ones(3, np.float32)},
        r'output_norm.weight: expected \(16,\), found \(15,\). ': tensors | {norm: np.ones(15, np.float32)},
        r'token_embd.weight: expected \(40, 16\), found \(41, 16\). ':
            tensors | {'token_embd.weight': np.ones((41, 16), np.float32)},
    }  # fmt: skip
    for index, (message, wrong) in enumerate(cases.items()):
        path = write(tmp_path / f'{index}.gguf', GEMMA2, wrong)
        for read in (
            checkpoints.check_files,
            lambda a, p: checkpoints.load_weights(a, p, Place('float32')),
        ):
            with pytest.raises(ValueError, match=message):
                read(GEMMA2, path)


def test_type_that_nothing_dequantizes_is_refused(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / 'model.gguf', GEMMA2)
    data = bytearray(path.read_bytes())
    # The type stands behind the name, the number of dimensions and the one dimension.
    place = data.index(b'output_norm.weight') + len('output_norm.weight') + 4 + 8
    assert data[place : place + 4] == int(F32).to_bytes(4, 'little')
    data[place : place + 4] = int(Kind.I32).to_bytes(4, 'little')
    path.write_bytes(data)
    with pytest.raises(ValueError, match='quantizations that the gguf package dequantizes, got I32'):
        checkpoints.check_files(GEMMA2, path)


def test_output_layer_must_be_the_embedding(tmp_path: pathlib.Path) -> None:
    tensors = gguf_tensors(GEMMA2, hub_tensors(GEMMA2))
    copy = tensors['token_embd.weight']
    tied = write(tmp_path / 'tied.gguf', GEMMA2, tensors | {'output.weight': copy})
    plain = write(tmp_path / 'plain.gguf', GEMMA2, tensors)
    jax.tree.map(
        np.testing.assert_array_equal,
        checkpoints.load_weights(GEMMA2, tied, Place('float32')),
        checkpoints.load_weights(GEMMA2, plain, Place('float32')),
    )
    changed = copy.copy()
    changed[-1, -1] += 1
    for index, other in enumerate((changed, copy[:-1])):
        untied = write(tmp_path / f'{index}.gguf', GEMMA2, tensors | {'output.weight': other})
        with pytest.raises(ValueError, match="another tensor='output.weight'"):
            checkpoints.load_weights(GEMMA2, untied, Place('float32'))


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_numbers_that_are_none_are_refused(value: float, tmp_path: pathlib.Path) -> None:
    tensors = gguf_tensors(GEMMA2, hub_tensors(GEMMA2))
    tensors['token_embd.weight'][3, 4] = value
    with pytest.raises(ValueError, match='Expected finite weights'):
        checkpoints.load_weights(GEMMA2, write(tmp_path / 'a.gguf', GEMMA2, tensors), Place('float32'))


def test_folder_around_a_file_is_refused(tmp_path: pathlib.Path) -> None:
    write(tmp_path / 'model.gguf', GEMMA2)
    for read in (checkpoints.check_files, lambda a, p: checkpoints.load_weights(a, p, Place('float32'))):
        with pytest.raises(ValueError, match='Give the file itself'):
            read(GEMMA2, tmp_path)


# --- Damaged files ---------------------------------------------------------------


def test_header_is_what_the_packages_own_reader_finds(tmp_path: pathlib.Path) -> None:
    general = {
        'tokenizer.ggml.tokens': ['<pad>', '\u2581ä', ' \n', ''],
        'tokenizer.ggml.scores': [-1000.0, 0.5, -2.0, 3.0],
        'general.name': 'Zürich', 'general.alignment': 64, 'x.flag': True,
    }  # fmt: skip
    architecture = _wide(GEMMA3)
    tensors = gguf_tensors(architecture, hub_tensors(architecture))
    path = write(
        tmp_path / 'model.gguf',
        architecture,
        tensors,
        general=general,
        kinds={'token_embd.weight': Kind.Q5_1},
    )
    header, reader = gguf_file.read_header(path), gguf.GGUFReader(path)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith('GGUF.')}
    assert header.metadata.keys() == fields.keys()
    for name, field in fields.items():
        found = header.metadata[name]
        assert (found.tolist() if isinstance(found, np.ndarray) else found) == field.contents(), name
    assert len(reader.tensors) == len(header.tensors)
    for tensor in reader.tensors:
        found = header.tensors[tensor.name]
        assert found.shape == tuple(tensor.shape.tolist()[::-1])
        assert (found.offset, found.num_bytes) == (tensor.data_offset, tensor.n_bytes)
        assert found.type == tensor.tensor_type


def test_cut_off_anywhere_is_one_clear_error(tmp_path: pathlib.Path) -> None:
    whole = write(tmp_path / 'whole.gguf', GEMMA2, general={'tokenizer.ggml.tokens': ['a', 'b']}).read_bytes()
    # The last tensor is followed by padding, which nothing needs.
    end = max(
        tensor.offset + tensor.num_bytes
        for tensor in gguf_file.read_header(tmp_path / 'whole.gguf').tensors.values()
    )
    path = tmp_path / 'cut.gguf'
    for length in [*range(0, 3000, 7), *range(3000, end, 997), end - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match='Expected a whole GGUF file, got path=.*Fetch the file again'):
            checkpoints.check_files(GEMMA2, path)
    path.write_bytes(whole[:end])
    checkpoints.check_files(GEMMA2, path)


def test_every_changed_byte_of_the_header_is_read_or_refused(tmp_path: pathlib.Path) -> None:
    """No crash, no endless loop, no huge allocation: a ValueError, or a header."""
    whole = write(tmp_path / 'whole.gguf', GEMMA2, general={'tokenizer.ggml.scores': [1.0, 2.0]}).read_bytes()
    start = min(t.offset for t in gguf_file.read_header(tmp_path / 'whole.gguf').tensors.values())
    path = tmp_path / 'changed.gguf'
    rng = np.random.default_rng(0)
    refused = 0
    for place in range(0, start, 3):
        data = bytearray(whole)
        data[place] ^= int(rng.integers(1, 256))
        path.write_bytes(data)
        try:
            checkpoints.check_files(GEMMA2, path)
        except ValueError:
            refused += 1
    assert refused > start / 3 / 4


@pytest.mark.parametrize(
    ('data', 'message'),
    [
        (b'', 'ends at byte 0'),
        (b'safetensors', 'does not begin with GGUF'),
        (b'GGUF' + (1).to_bytes(4, 'little') + bytes(16), 'version=1 where 2 or 3'),
        (b'GGUF' + (3).to_bytes(4, 'big') + bytes(16), 'little-endian'),
        (b'GGUF' + (3).to_bytes(4, 'little') + b'\xff' * 16, 'inside its header'),
    ],
)
def test_what_is_no_gguf_is_told(data: bytes, message: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'file').write_bytes(data)
    with pytest.raises(ValueError, match=message):
        checkpoints.load_weights(GEMMA2, tmp_path / 'file', Place('float32'))
