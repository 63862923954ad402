import dataclasses
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from gemma.gm.ckpts import _checkpoint as gemma_layouts
from safetensors.numpy import save_file

from models.decoders.gemma import architectures, checkpoints, library
from models.decoders.gemma.formats import HUB
from models.decoders.transformer import safetensors
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.weights import Weights, adapter_shapes
from tests import samples
from tests.models.decoders.gemma.hub_checkpoints import (
    CASES,
    EQUAL_HEADS,
    GEMMA2,
    GEMMA3,
    all_logits,
    hub_tensors,
    oracle,
)
from tests.models.decoders.gemma.library_models import parameter_shapes
from tests.samples import assert_import_leaves

pytestmark = pytest.mark.heavy


def _write(folder: pathlib.Path, tensors: dict[str, np.ndarray]) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / 'model.safetensors')
    return folder


def _random_parameters(a: architectures.GemmaArchitecture) -> library.Parameters:
    leaves, structure = jax.tree.flatten(parameter_shapes(a))
    rng = np.random.default_rng(1)
    return jax.tree.unflatten(
        structure, [jnp.asarray(rng.normal(size=leaf.shape), jnp.float32) for leaf in leaves]
    )


def _arranged(a: architectures.GemmaArchitecture, params: library.Parameters) -> Weights:
    return library.to_weights(a, dict(params), Place(jnp.float32))


def _assert_fits(a: architectures.GemmaArchitecture, weights: Weights) -> None:
    expected = adapter_shapes(a, None)
    assert jax.tree.structure(weights) == jax.tree.structure(expected)
    assert all(jax.tree.leaves(jax.tree.map(lambda one, other: one.shape == other.shape, weights, expected)))


def _assert_same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize('name', samples.with_first(CASES, next(iter(CASES))))
def test_hub_checkpoint_computes_what_transformers_would(name: str, tmp_path: pathlib.Path) -> None:
    architecture = CASES[name]
    tensors = hub_tensors(architecture)
    weights = checkpoints.load_weights(architecture, _write(tmp_path, tensors), Place(jnp.float32))
    tokens = np.random.default_rng(2).integers(5, 40, 13)
    logits = all_logits(architecture, weights, tokens)
    # Float32 rounding stays below 6e-6 here; a window off by one, another query scale,
    # rotary base or soft cap moves some logit by 0.005 to 5.
    np.testing.assert_allclose(logits, oracle(architecture, tensors, tokens), atol=5e-5, rtol=0)


@pytest.mark.first
def test_bfloat16_tensors_load_exactly(tmp_path: pathlib.Path) -> None:
    halves = {name: value.astype(ml_dtypes.bfloat16) for name, value in hub_tensors(GEMMA2).items()}
    widened = {name: value.astype(np.float32) for name, value in halves.items()}
    _assert_same(
        checkpoints.load_weights(GEMMA2, _write(tmp_path / 'half', halves), Place(jnp.float32)),
        checkpoints.load_weights(GEMMA2, _write(tmp_path / 'full', widened), Place(jnp.float32)),
    )


def _write_sharded(folder: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    files: dict[str, dict[str, np.ndarray]] = {}
    for index, (name, value) in enumerate(tensors.items()):
        files.setdefault(f'model-{index % 2}.safetensors', {})[name] = value
    weight_map = {}
    for file, part in files.items():
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / safetensors.INDEX_NAME).write_text(json.dumps({'weight_map': weight_map}))


def test_sharded_checkpoint_equals_the_single_file(tmp_path: pathlib.Path) -> None:
    tensors = hub_tensors(GEMMA2)
    single = checkpoints.load_weights(GEMMA2, _write(tmp_path / 'single', tensors), Place(jnp.float32))
    _write_sharded(tmp_path, tensors)
    _assert_same(checkpoints.load_weights(GEMMA2, tmp_path, Place(jnp.float32)), single)


def test_missing_shard_is_refused(tmp_path: pathlib.Path) -> None:
    _write_sharded(tmp_path, hub_tensors(GEMMA2))
    (tmp_path / 'model-1.safetensors').unlink()
    with pytest.raises(FileNotFoundError, match=r"got none for \['model-1.safetensors'\]"):
        checkpoints.load_weights(GEMMA2, tmp_path, Place(jnp.float32))


def test_index_may_not_leave_its_folder(tmp_path: pathlib.Path) -> None:
    _write_sharded(tmp_path, hub_tensors(GEMMA2))
    index = {'weight_map': {'a': '../model-1.safetensors'}}
    (tmp_path / safetensors.INDEX_NAME).write_text(json.dumps(index))
    with pytest.raises(ValueError, match='files of its own folder'):
        checkpoints.load_weights(GEMMA2, tmp_path, Place(jnp.float32))


def test_tensor_in_two_files_is_refused(tmp_path: pathlib.Path) -> None:
    tensors = hub_tensors(GEMMA2)
    _write(tmp_path, tensors)
    save_file({'model.norm.weight': tensors['model.norm.weight']}, tmp_path / 'more.safetensors')
    with pytest.raises(ValueError, match=r"several for names=\['model.norm.weight'\]"):
        checkpoints.load_weights(GEMMA2, tmp_path, Place(jnp.float32))


@pytest.mark.parametrize(
    ('prefix', 'vision'),
    [
        ('language_model.model.', 'vision_tower.vision_model.'),
        ('language_model.model.', 'multi_modal_projector.'),
        ('model.language_model.', 'model.vision_tower.vision_model.'),
        ('model.language_model.', 'model.multi_modal_projector.'),
        ('', 'vision_tower.'),
    ],
)
def test_multi_modal_names_give_the_same_text_model(prefix: str, vision: str, tmp_path: pathlib.Path) -> None:
    plain = checkpoints.load_weights(GEMMA3, _write(tmp_path / 'a', hub_tensors(GEMMA3)), Place(jnp.float32))
    tensors = hub_tensors(GEMMA3, prefix) | {f'{vision}weight': np.ones((2, 3), np.float32)}
    found = checkpoints.load_weights(GEMMA3, _write(tmp_path / 'b', tensors), Place(jnp.float32))
    _assert_same(found, plain)


@pytest.mark.parametrize(
    ('num_embed', 'rows'), [(256_128, 256_000), (256_128, 256_128), (262_144, 262_208), (262_144, 262_144)]
)
def test_known_vocabularies_of_the_hub_fit(num_embed: int, rows: int, tmp_path: pathlib.Path) -> None:
    architecture = dataclasses.replace(GEMMA2, num_embed=num_embed)
    tensors = hub_tensors(dataclasses.replace(architecture, num_embed=rows))
    weights = checkpoints.load_weights(architecture, _write(tmp_path, tensors), Place(jnp.float32))
    found = np.asarray(weights.embedding)
    kept = min(rows, num_embed)
    assert len(found) == num_embed
    np.testing.assert_array_equal(found[:kept], tensors['model.embed_tokens.weight'][:kept])
    assert not found[kept:].any()


@pytest.mark.parametrize('rows', [39, 41, 64])
def test_other_vocabularies_are_refused(rows: int, tmp_path: pathlib.Path) -> None:
    folder = _write(tmp_path, hub_tensors(dataclasses.replace(GEMMA2, num_embed=rows)))
    message = rf'model.embed_tokens.weight: expected \(40, 16\), found \({rows}, 16\)'
    with pytest.raises(ValueError, match=message):
        checkpoints.load_weights(GEMMA2, folder, Place(jnp.float32))


def test_missing_surplus_and_misshapen_tensors_are_named(tmp_path: pathlib.Path) -> None:
    tensors = hub_tensors(GEMMA2)
    norm, query = 'model.norm.weight', 'model.layers.1.self_attn.q_proj.weight'
    missing = {name: value for name, value in tensors.items() if name not in (norm, query)}
    cases = {
        rf'got none for names={query}; {norm}\.': missing,
        r'got names=model.layers.0.self_attn.q_proj.bias\.':
            tensors | {'model.layers.0.self_attn.q_proj.bias': np.ones(3, np.float32)},
        rf'{norm}: expected \(16,\), found \(15,\)': tensors | {norm: np.ones(15, np.float32)},
        f'got {norm}: I8': tensors | {norm: np.ones(16, np.int8)},
    }  # fmt: skip
    for index, (message, wrong) in enumerate(cases.items()):
        with pytest.raises(ValueError, match=message):
            checkpoints.load_weights(GEMMA2, _write(tmp_path / str(index), wrong), Place(jnp.float32))


def test_files_are_checked_without_their_weights(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch refuses all that the loading refuses, before a budget is charged."""
    tensors = hub_tensors(GEMMA2)
    monkeypatch.setattr(HUB.__class__, 'load', None)
    checkpoints.check_files(GEMMA2, _write(tmp_path / 'good', tensors))
    norm = 'model.norm.weight'
    wrong = _write(tmp_path / 'wrong', tensors | {norm: np.ones(15, np.float32)})
    with pytest.raises(ValueError, match=rf'{norm}: expected \(16,\), found \(15,\)'):
        checkpoints.check_files(GEMMA2, wrong)
    with pytest.raises(ValueError, match='Choose the model'):
        checkpoints.check_files(GEMMA3, tmp_path / 'good')
    with pytest.raises(FileNotFoundError, match='Expected a checkpoint, got checkpoint='):
        checkpoints.check_files(GEMMA2, tmp_path / 'none')


def test_layers_beyond_the_architecture_are_refused(tmp_path: pathlib.Path) -> None:
    deeper = dataclasses.replace(GEMMA2, attention_types=('local', 'global', 'local', 'global'))
    with pytest.raises(ValueError, match='got num_layers=4 where 3 is expected. Choose the model'):
        checkpoints.load_weights(GEMMA2, _write(tmp_path, hub_tensors(deeper)), Place(jnp.float32))


def test_adapter_is_refused(tmp_path: pathlib.Path) -> None:
    folder = _write(tmp_path, {'base_model.model.lora_A.weight': np.ones((2, 2), np.float32)})
    with pytest.raises(ValueError, match='merge an adapter'):
        checkpoints.load_weights(GEMMA2, folder, Place(jnp.float32))


def test_output_layer_must_be_the_embedding(tmp_path: pathlib.Path) -> None:
    tensors = hub_tensors(GEMMA2)
    copy = tensors['model.embed_tokens.weight'].copy()
    tied = _write(tmp_path / 'tied', tensors | {'lm_head.weight': copy})
    _assert_same(
        checkpoints.load_weights(GEMMA2, tied, Place(jnp.float32)),
        checkpoints.load_weights(GEMMA2, _write(tmp_path / 'plain', tensors), Place(jnp.float32)),
    )
    untied = _write(tmp_path / 'untied', tensors | {'lm_head.weight': copy + 1})
    with pytest.raises(ValueError, match="another name='lm_head.weight'"):
        checkpoints.load_weights(GEMMA2, untied, Place(jnp.float32))


# The rotary settings as `transformers` wrote them up to version 4, and since 5.
ROTARY_4 = {
    'rope_theta': 1000.0,
    'rope_local_base_freq': 10.0,
    'rope_scaling': {'factor': 8.0, 'rope_type': 'linear'},
}
ROTARY_5 = {
    'rope_parameters': {
        'full_attention': {'rope_theta': 1000.0, 'factor': 8.0, 'rope_type': 'linear'},
        'sliding_attention': {'rope_theta': 10.0, 'rope_type': 'default'},
    }
}
CONFIG = {
    'hidden_size': 16, 'intermediate_size': 24, 'num_hidden_layers': 3, 'num_attention_heads': 4,
    'num_key_value_heads': 2, 'head_dim': 6, 'sliding_window': 4, 'attn_logit_softcapping': None,
    'query_pre_attn_scalar': 6, 'hidden_activation': 'gelu_pytorch_tanh', 'vocab_size': 40,
    'layer_types': ['sliding_attention', 'sliding_attention', 'full_attention'],
}  # fmt: skip


@pytest.mark.parametrize('rotary', [ROTARY_4, ROTARY_5])
@pytest.mark.parametrize('nested', [False, True])
def test_matching_config_is_accepted(rotary: dict[str, Any], nested: bool, tmp_path: pathlib.Path) -> None:
    config = CONFIG | rotary
    _write(tmp_path, hub_tensors(GEMMA3))
    (tmp_path / 'config.json').write_text(json.dumps({'text_config': config} if nested else config))
    _assert_fits(GEMMA3, checkpoints.load_weights(GEMMA3, tmp_path, Place(jnp.float32)))


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'hidden_size': 32}, 'hidden_size=32 where 16 is expected'),
        ({'sliding_window': 8}, 'sliding_window=8 where 4'),
        ({'attn_logit_softcapping': 50.0}, 'attn_logit_softcapping=50.0 where None'),
        ({'query_pre_attn_scalar': 4}, 'query_pre_attn_scalar=4 where 6'),
        ({'rope_scaling': None}, 'rope_factor=1.0 where 8.0'),
        ({'rope_parameters': {'full_attention': {'rope_theta': 7.0, 'factor': 8.0}}}, 'rope_theta=7.0'),
        (
            {'layer_types': ['full_attention'] * 3},
            r"got layer_types\[0\]='full_attention' where 'sliding_attention' is expected",
        ),
        ({'layer_types': ['full_attention'] * 26}, 'got layer_types not of 3 layers'),
    ],
)
def test_contradicting_config_is_refused(
    change: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    _write(tmp_path, hub_tensors(GEMMA3))
    (tmp_path / 'config.json').write_text(json.dumps(CONFIG | ROTARY_4 | change))
    with pytest.raises(ValueError, match=message):
        checkpoints.load_weights(GEMMA3, tmp_path, Place(jnp.float32))


@pytest.mark.parametrize('name', CASES)
def test_orbax_round_trip(name: str, tmp_path: pathlib.Path) -> None:
    params = _random_parameters(CASES[name])
    library.save_orbax(params, tmp_path / 'saved')
    _assert_same(
        checkpoints.load_weights(CASES[name], tmp_path / 'saved', Place(jnp.float32)),
        _arranged(CASES[name], params),
    )
    halves = checkpoints.load_weights(CASES[name], tmp_path / 'saved', Place(jnp.bfloat16))
    _assert_same(halves, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), _arranged(CASES[name], params)))


def test_plain_orbax_relative_path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = _random_parameters(GEMMA2)
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / 'plain', params)
    monkeypatch.chdir(tmp_path)
    _assert_same(checkpoints.load_weights(GEMMA2, 'plain', Place(jnp.float32)), _arranged(GEMMA2, params))


@pytest.mark.parametrize('layout', ['flat', 'stacked'])
def test_released_orbax_layouts(layout: str, tmp_path: pathlib.Path) -> None:
    # Stacked checkpoints hold whole periods of the attention pattern.
    architecture = dataclasses.replace(GEMMA3, attention_types=('local', 'global') * 2)
    params = _random_parameters(architecture)
    tree = (
        gemma_layouts._nested_to_flat(params)
        if layout == 'flat'
        else gemma_layouts._nested_to_stacked(params, 2)
    )
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / layout, tree)
    _assert_same(
        checkpoints.load_weights(architecture, tmp_path / layout, Place(jnp.float32)),
        _arranged(architecture, params),
    )


@pytest.mark.parametrize('layout', ['nested', 'flat'])
def test_vision_weights_of_orbax_are_skipped(layout: str, tmp_path: pathlib.Path) -> None:
    params = _random_parameters(GEMMA3)
    extra = {
        'embedder': params['embedder']
        | {
            'mm_input_projection': {'w': jnp.ones((3, 16))},
            'mm_soft_embedding_norm': {'scale': jnp.ones(3)},
        },
        'vision_encoder': {'siglip_encoder': {'pos_embedding': jnp.ones((2, 3))}},
    }
    tree = params | extra
    if layout == 'flat':
        tree = gemma_layouts._nested_to_flat(tree)
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / 'saved', tree)
    _assert_same(
        checkpoints.load_weights(GEMMA3, tmp_path / 'saved', Place(jnp.float32)), _arranged(GEMMA3, params)
    )


def test_orbax_of_another_architecture_is_refused(tmp_path: pathlib.Path) -> None:
    library.save_orbax(_random_parameters(EQUAL_HEADS), tmp_path / 'saved')
    message = (
        'got none for names=layer_0/attn/kv_einsum/w; layer_0/attn/q_einsum/w; layer_1/attn/kv_einsum/w and '
        r'3 more\.'
    )
    with pytest.raises(ValueError, match=message):
        checkpoints.load_weights(GEMMA2, tmp_path / 'saved', Place(jnp.float32))


@pytest.mark.parametrize('layout', ['nested', 'flat', 'stacked', 'hub'])
def test_another_depth_and_width_are_three_numbers_before_any_weight_is_read(
    layout: str, tmp_path: pathlib.Path
) -> None:
    """And no list of layers: they all differ."""
    found = dataclasses.replace(GEMMA3, attention_types=('local', 'global') * 13, embed_dim=24, hidden_dim=40)
    expected = 'num_layers=26 where 3 is expected; embed_dim=24 where 16 is expected; hidden_dim=40 where'
    folder = tmp_path / 'saved'
    if layout == 'hub':
        _write(folder, hub_tensors(found))
    else:
        params = _random_parameters(found)
        if layout == 'flat':
            params = gemma_layouts._nested_to_flat(params)
        elif layout == 'stacked':
            params = gemma_layouts._nested_to_stacked(params, 2)
            # Layers that are stacked are not counted.
            expected = expected.partition('; ')[2]
        with ocp.StandardCheckpointer() as saver:
            saver.save(folder, params)
    with pytest.raises(ValueError, match=f'got {expected}') as raised:
        checkpoints.check_files(GEMMA3, folder)
    assert len(str(raised.value)) < 300 and 'layer_' not in str(raised.value)


@pytest.mark.run
def test_import_leaves_the_heavy_libraries_alone() -> None:
    assert_import_leaves(
        'models.decoders.gemma.checkpoints', 'tensorflow', 'tensorflow_text', 'gemma', 'safetensors', 'gguf'
    )
