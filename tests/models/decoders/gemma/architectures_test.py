import dataclasses
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import traverse_util
from gemma import gm

from models.decoders.gemma import architectures, library, parameters
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.weights import adapter_shapes
from tests.models.decoders.gemma import library_models
from tests.models.decoders.gemma.library_models import parameter_shapes

pytestmark = pytest.mark.heavy

PRESETS = {
    'gemma2-2b': gm.nn.Gemma2_2B,
    'gemma2-9b': gm.nn.Gemma2_9B,
    'gemma2-27b': gm.nn.Gemma2_27B,
    'gemma3-270m': gm.nn.Gemma3_270M,
    'gemma3-1b': gm.nn.Gemma3_1B,
    'gemma3-4b': gm.nn.Gemma3_4B,
    'gemma3-12b': gm.nn.Gemma3_12B,
    'gemma3-27b': gm.nn.Gemma3_27B,
    'gemma3n-e2b': gm.nn.Gemma3n_E2B,
    'gemma3n-e4b': gm.nn.Gemma3n_E4B,
    'gemma4-e2b': gm.nn.Gemma4_E2B,
    'gemma4-e4b': gm.nn.Gemma4_E4B,
    'gemma4-26b-a4b': gm.nn.Gemma4_26B_A4B,
    'gemma4-31b': gm.nn.Gemma4_31B,
}
TOKENIZERS: dict[architectures.Generation, Any] = {
    '2': gm.text.Gemma2Tokenizer,
    '3': gm.text.Gemma3Tokenizer,
    '3n': gm.text.Gemma3nTokenizer,
    '4': gm.text.Gemma4Tokenizer,
}
# Fields that say nothing of a text, and one that the published weights have otherwise.
OTHERWISE = {'vision_encoder', 'audio_encoder', 'use_bidirectional_attention'}


def test_every_named_size_is_compared_with_something() -> None:
    assert set(architectures.ARCHITECTURES) == {*PRESETS, 'bundled', 'gemma1.1-2b'}


@pytest.mark.parametrize('name', PRESETS)
def test_size_equals_the_preset_of_the_library_field_by_field(name: str) -> None:
    architecture = architectures.ARCHITECTURES[name]
    ours = library_models.make_transformer(architecture, dtype=jnp.bfloat16).config
    theirs = PRESETS[name].config
    for field in dataclasses.fields(theirs):
        if field.name in OTHERWISE:
            continue
        expected = getattr(theirs, field.name)
        if field.name == 'final_logit_softcap' and architecture.generation == '3n':
            assert expected is None
            expected = 30.0  # as `config.json` of the published weights has it
        assert getattr(ours, field.name) == expected, field.name


@pytest.mark.parametrize('name', ['gemma3n-e2b', 'gemma3n-e4b', 'gemma4-e2b', 'gemma4-e4b'])
def test_layers_read_the_keys_that_the_library_has_them_read(name: str) -> None:
    architecture, config = architectures.ARCHITECTURES[name], PRESETS[name].config
    shared = sys.modules[type(config).__module__].create_kv_cache_sharing_patterns(
        config.kv_cache_sharing_config, config.num_layers, config.attention_types
    )
    assert [layer.reads for layer in architecture.layers] == shared


@pytest.mark.parametrize('name', PRESETS)
def test_generation_is_the_presets_tokenizer_version(name: str) -> None:
    assert architectures.ARCHITECTURES[name].generation == str(PRESETS[name].INFO.tokenizer_version)


@pytest.mark.parametrize('name', architectures.ARCHITECTURES)
def test_a_row_is_whole_vectors_of_sixteen_floats(name: str) -> None:
    """See `family.ROWS_MULTIPLE`; copies of a residual stream are four numbers a row."""
    a = architectures.ARCHITECTURES[name]
    widths = [
        a.embed_dim,
        a.hidden_dim,
        a.head_dim,
        a.global_head_dim,
        a.per_layer_dim,
        a.kv_shared_hidden_dim,
    ]
    if a.experts is not None:
        widths += [a.experts.count, a.experts.hidden_dim]
    if a.altup is not None:
        widths += [a.altup.laurel_rank]
    assert not any(width % 16 for width in widths if width is not None)


def test_gemma1_has_the_published_number_of_parameters() -> None:
    # Gemma report, table 2: 524,550,144 embedding parameters (of 256,128 rows) and
    # 1,981,884,416 others.
    one = architectures.ARCHITECTURES['gemma1.1-2b']
    assert one.num_embed * one.embed_dim == 524_550_144
    assert one.num_parameters == 524_550_144 + 1_981_884_416


@pytest.mark.parametrize('name', architectures.ARCHITECTURES)
def test_number_of_parameters_is_that_of_the_initialized_model(name: str) -> None:
    """Matrices for keys that no layer reads are left out."""
    architecture = architectures.ARCHITECTURES[name]
    flat = traverse_util.flatten_dict(parameter_shapes(architecture), sep='/')
    unread = parameters.ignored(architecture)
    sizes = {path: leaf.size for path, leaf in flat.items() if not path.startswith(unread)}
    assert architecture.num_parameters == sum(sizes.values())


@pytest.mark.parametrize(
    'name',
    [
        'bundled',
        'gemma1.1-2b',
        'gemma2-2b',
        'gemma2-27b',
        'gemma3-270m',
        'gemma3n-e2b',
        'gemma4-e2b',
        'gemma4-26b-a4b',
        'gemma4-31b',
    ],
)
def test_a_difference_of_all_weights_lies_as_the_weights_are_arranged(name: str) -> None:
    architecture = architectures.ARCHITECTURES[name]
    weights = jax.eval_shape(
        lambda parameters: library.to_weights(architecture, parameters, Place('float32')),
        parameter_shapes(architecture),
    )
    difference = adapter_shapes(architecture, None)
    assert jax.tree.structure(difference) == jax.tree.structure(weights)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(of)] for of in (difference, weights)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    'name',
    [
        'bundled',
        'gemma1.1-2b',
        'gemma2-9b',
        'gemma3-27b',
        'gemma3n-e4b',
        'gemma4-e2b',
        'gemma4-31b',
    ],
)
@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float32])
def test_cache_bytes_are_those_of_the_library(name: str, dtype: jnp.dtype) -> None:
    """Layers without keys of their own have none; the library keeps a cache for these too."""
    architecture = architectures.ARCHITECTURES[name]
    config = library_models.make_transformer(architecture, dtype=dtype).config
    cache = jax.eval_shape(lambda: config.init_cache(3, dtype, cache_length=7))
    with_keys = [cache[f'layer_{layer.index}'] for layer in architecture.layers if layer.has_keys]
    kept = [layer[name] for layer in with_keys for name in ('k', 'v')]
    total = sum(leaf.size * leaf.dtype.itemsize for leaf in kept)
    assert total == 3 * 7 * architecture.cache_bytes_per_token(dtype.dtype.itemsize)


@pytest.mark.parametrize('generation', TOKENIZERS)
def test_special_tokens_are_those_of_the_library(generation: architectures.Generation) -> None:
    theirs = TOKENIZERS[generation].special_tokens
    ours = dataclasses.asdict(architectures.SPECIAL_TOKENS[generation])
    ours.pop('turn_pieces')
    for field, value in ours.items():
        assert value == theirs[field.upper()], field


def test_stop_tokens_are_end_of_text_and_end_of_turn() -> None:
    assert architectures.ARCHITECTURES['gemma2-2b'].special_tokens.stop == (1, 107)
    assert architectures.ARCHITECTURES['bundled'].special_tokens.stop == (1, 106)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'num_kv_heads': 3}, 'multiple of num_kv_heads=3, got num_heads=4'),
        ({'head_dim': 63}, 'even head_dim, got head_dim=63'),
        ({'generation': '5'}, "got generation='5'"),
        ({'num_global_kv_heads': 3}, 'multiple of num_global_kv_heads=3, got num_heads=4'),
        ({'sliding_window_size': None}, 'got sliding_window_size=None'),
    ],
)
def test_contradictions_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(architectures.ARCHITECTURES['bundled'], **change)


def test_layers_without_keys_need_a_layer_of_their_kind_before() -> None:
    shared = dataclasses.replace(architectures.ARCHITECTURES['bundled'], num_kv_shared_layers=3)
    with pytest.raises(ValueError, match='got num_kv_shared_layers=3 and no global layer before'):
        _ = shared.layers


@pytest.mark.run
def test_import_needs_the_standard_library_alone() -> None:
    # -S leaves site-packages out, so any other import fails.
    command = [sys.executable, '-S', '-c', 'import models.decoders.gemma.architectures']
    subprocess.run(command, check=True, timeout=60)
