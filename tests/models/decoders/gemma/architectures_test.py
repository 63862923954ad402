import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from gemma import gm

from models.decoders.gemma import architectures, library
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.weights import adapter_shapes
from tests.models.decoders.gemma.hub_checkpoints import parameter_shapes

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
}
TOKENIZERS = {2: gm.text.Gemma2Tokenizer, 3: gm.text.Gemma3Tokenizer}


def test_every_named_size_is_compared_with_something() -> None:
    assert set(architectures.ARCHITECTURES) == {*PRESETS, 'bundled', 'gemma1.1-2b'}


@pytest.mark.parametrize('name', PRESETS)
def test_size_equals_the_preset_of_the_library_field_by_field(name: str) -> None:
    ours = library.make_transformer(architectures.ARCHITECTURES[name], dtype=jnp.bfloat16).config
    theirs = PRESETS[name].config
    for field in dataclasses.fields(theirs):
        if field.name == 'vision_encoder':
            assert ours.vision_encoder is None
        else:
            assert getattr(ours, field.name) == getattr(theirs, field.name), field.name


@pytest.mark.parametrize('name', PRESETS)
def test_generation_is_the_presets_tokenizer_version(name: str) -> None:
    assert architectures.ARCHITECTURES[name].generation == PRESETS[name].INFO.tokenizer_version


def test_gemma1_has_the_published_number_of_parameters() -> None:
    # Gemma report, table 2: 524,550,144 embedding parameters (of 256,128 rows) and
    # 1,981,884,416 others.
    one = architectures.ARCHITECTURES['gemma1.1-2b']
    assert one.num_embed * one.embed_dim == 524_550_144
    assert one.num_parameters == 524_550_144 + 1_981_884_416


@pytest.mark.parametrize('name', architectures.ARCHITECTURES)
def test_number_of_parameters_is_that_of_the_initialized_model(name: str) -> None:
    architecture = architectures.ARCHITECTURES[name]
    shapes = jax.tree.leaves(parameter_shapes(architecture))
    assert architecture.num_parameters == sum(leaf.size for leaf in shapes)


@pytest.mark.parametrize('name', ['bundled', 'gemma1.1-2b', 'gemma2-2b', 'gemma2-27b', 'gemma3-270m'])
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


@pytest.mark.parametrize('name', ['bundled', 'gemma1.1-2b', 'gemma2-9b', 'gemma3-27b'])
@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float32])
def test_cache_bytes_are_those_of_the_library(name: str, dtype: jnp.dtype) -> None:
    architecture = architectures.ARCHITECTURES[name]
    config = library.make_transformer(architecture, dtype=dtype).config
    cache = jax.eval_shape(lambda: config.init_cache(3, dtype, cache_length=7))
    kept = [layer[name] for layer in cache.values() for name in ('k', 'v')]
    total = sum(leaf.size * leaf.dtype.itemsize for leaf in kept)
    assert total == 3 * 7 * architecture.cache_bytes_per_token(dtype.dtype.itemsize)


@pytest.mark.parametrize('generation', TOKENIZERS)
def test_special_tokens_are_those_of_the_library(generation: int) -> None:
    theirs = TOKENIZERS[generation].special_tokens
    for field, value in dataclasses.asdict(architectures.SPECIAL_TOKENS[generation]).items():
        assert value == theirs[field.upper()], field


def test_stop_tokens_are_end_of_text_and_end_of_turn() -> None:
    assert architectures.ARCHITECTURES['gemma2-2b'].special_tokens.stop == (1, 107)
    assert architectures.ARCHITECTURES['bundled'].special_tokens.stop == (1, 106)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'num_kv_heads': 3}, 'multiple of num_kv_heads=3, got num_heads=4'),
        ({'head_dim': 63}, 'even head_dim, got head_dim=63'),
        ({'generation': 4}, 'got generation=4'),
        ({'sliding_window_size': None}, 'got sliding_window_size=None'),
    ],
)
def test_contradictions_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(architectures.ARCHITECTURES['bundled'], **change)


@pytest.mark.run
def test_import_needs_the_standard_library_alone() -> None:
    # -S leaves site-packages out, so any other import fails.
    command = [sys.executable, '-S', '-c', 'import models.decoders.gemma.architectures']
    subprocess.run(command, check=True, timeout=60)
