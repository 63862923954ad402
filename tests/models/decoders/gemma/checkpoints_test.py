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

from models.decoders.gemma import architectures, checkpoints
from models.decoders.gemma import decoder as gemma
from tests.samples import assert_import_leaves

# Soft caps low enough to bite, windows shorter than the prompt.
GEMMA1 = architectures.Architecture(
    num_embed=40, embed_dim=16, hidden_dim=24, num_heads=4, head_dim=6, num_kv_heads=1,
    attention_types=('global', 'global'), generation=1, use_post_norms=False,
)  # fmt: skip
GEMMA2 = architectures.Architecture(
    num_embed=40, embed_dim=16, hidden_dim=24, num_heads=4, head_dim=6, num_kv_heads=2,
    attention_types=('local', 'global', 'local'), generation=2, sliding_window_size=4,
    final_logit_softcap=3.0, attn_logits_soft_cap=2.0,
    query_pre_attn_norm='by_one_over_sqrt_embed_dim_div_num_heads',
)  # fmt: skip
GEMMA3 = architectures.Architecture(
    num_embed=40, embed_dim=16, hidden_dim=24, num_heads=4, head_dim=6, num_kv_heads=2,
    attention_types=('local', 'local', 'global'), generation=3, sliding_window_size=4,
    use_qk_norm=True, transpose_gating_einsum=True, local_base_frequency=10,
    global_base_frequency=1000, global_scale_factor=8.0,
)  # fmt: skip
EQUAL_HEADS = dataclasses.replace(GEMMA2, num_kv_heads=4)
CASES = {'gemma1': GEMMA1, 'gemma2': GEMMA2, 'gemma3': GEMMA3, 'equal heads': EQUAL_HEADS}


def _hub_tensors(a: architectures.Architecture, prefix: str = 'model.') -> dict[str, np.ndarray]:
    """A random checkpoint under Hugging Face's names and shapes."""
    rng = np.random.default_rng(0)
    tensors = {}

    def add(name: str, *shape: int) -> None:
        tensors[prefix + name] = rng.normal(0, 0.4, shape).astype(np.float32)

    add('embed_tokens.weight', a.num_embed, a.embed_dim)
    add('norm.weight', a.embed_dim)
    for index in range(a.num_layers):
        layer = f'layers.{index}.'
        add(layer + 'self_attn.q_proj.weight', a.num_heads * a.head_dim, a.embed_dim)
        add(layer + 'self_attn.k_proj.weight', a.num_kv_heads * a.head_dim, a.embed_dim)
        add(layer + 'self_attn.v_proj.weight', a.num_kv_heads * a.head_dim, a.embed_dim)
        add(layer + 'self_attn.o_proj.weight', a.embed_dim, a.num_heads * a.head_dim)
        add(layer + 'mlp.gate_proj.weight', a.hidden_dim, a.embed_dim)
        add(layer + 'mlp.up_proj.weight', a.hidden_dim, a.embed_dim)
        add(layer + 'mlp.down_proj.weight', a.embed_dim, a.hidden_dim)
        add(layer + 'input_layernorm.weight', a.embed_dim)
        add(layer + 'post_attention_layernorm.weight', a.embed_dim)
        if a.generation > 1:
            add(layer + 'pre_feedforward_layernorm.weight', a.embed_dim)
            add(layer + 'post_feedforward_layernorm.weight', a.embed_dim)
        if a.generation == 3:
            add(layer + 'self_attn.q_norm.weight', a.head_dim)
            add(layer + 'self_attn.k_norm.weight', a.head_dim)
    return tensors


def _write(folder: pathlib.Path, tensors: dict[str, np.ndarray]) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / 'model.safetensors')
    return folder


def _oracle(a: architectures.Architecture, tensors: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
    """One row's logits `[L V]`, written from `transformers`' modeling files, in float64."""
    weights = {name.removeprefix('model.'): value.astype(np.float64) for name, value in tensors.items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * (1 + weights[f'{name}.weight'])

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f'{name}.weight'].T

    def rotate(x: np.ndarray, base: float, factor: float) -> np.ndarray:  # [L heads H]
        inverse = 1 / base ** (np.arange(0, a.head_dim, 2) / a.head_dim) / factor
        angles = np.arange(len(x))[:, None] * inverse
        angles = np.concatenate([angles, angles], -1)[:, None]
        halves = x[..., : a.head_dim // 2], x[..., a.head_dim // 2 :]
        return x * np.cos(angles) + np.concatenate([-halves[1], halves[0]], -1) * np.sin(angles)

    def cap(x: np.ndarray, bound: float | None) -> np.ndarray:
        return x if bound is None else np.tanh(x / bound) * bound

    scalar = a.head_dim if 'head_dim' in a.query_pre_attn_norm else a.embed_dim / a.num_heads
    x = weights['embed_tokens.weight'][tokens] * np.sqrt(a.embed_dim)
    for index, kind in enumerate(a.attention_types):
        layer = f'layers.{index}.'
        hidden = norm(x, layer + 'input_layernorm')
        q, k, v = (
            linear(hidden, f'{layer}self_attn.{name}_proj').reshape(len(tokens), -1, a.head_dim)
            for name in 'qkv'
        )
        if a.generation == 3:
            q, k = norm(q, layer + 'self_attn.q_norm'), norm(k, layer + 'self_attn.k_norm')
        local = kind == 'local'
        base = a.local_base_frequency if local else a.global_base_frequency
        factor = a.local_scale_factor if local else a.global_scale_factor
        q, k = rotate(q, base, factor), rotate(k, base, factor)
        k, v = (np.repeat(y, a.num_heads // a.num_kv_heads, axis=1) for y in (k, v))
        scores = cap(np.einsum('qnh,knh->nqk', q, k) * scalar**-0.5, a.attn_logits_soft_cap)
        row, column = np.mgrid[: len(tokens), : len(tokens)]
        seen = column <= row
        if local:
            seen &= column > row - a.sliding_window_size
        scores = np.where(seen, scores, -np.inf)
        probabilities = np.exp(scores - scores.max(-1, keepdims=True))
        probabilities /= probabilities.sum(-1, keepdims=True)
        mixed = np.einsum('nqk,knh->qnh', probabilities, v).reshape(len(tokens), -1)
        attended = linear(mixed, layer + 'self_attn.o_proj')
        if a.generation == 1:
            x = x + attended
            hidden = norm(x, layer + 'post_attention_layernorm')
        else:
            x = x + norm(attended, layer + 'post_attention_layernorm')
            hidden = norm(x, layer + 'pre_feedforward_layernorm')
        gate = linear(hidden, layer + 'mlp.gate_proj')
        gelu = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        fed = linear(gelu * linear(hidden, layer + 'mlp.up_proj'), layer + 'mlp.down_proj')
        x = x + (fed if a.generation == 1 else norm(fed, layer + 'post_feedforward_layernorm'))
    return cap(norm(x, 'norm') @ weights['embed_tokens.weight'].T, a.final_logit_softcap)


def _random_parameters(a: architectures.Architecture) -> gemma.Parameters:
    leaves, structure = jax.tree.flatten(gemma.parameter_shapes(a))
    rng = np.random.default_rng(1)
    return jax.tree.unflatten(
        structure, [jnp.asarray(rng.normal(size=leaf.shape), jnp.float32) for leaf in leaves]
    )


def _assert_same(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize('name', CASES)
def test_hub_checkpoint_computes_what_transformers_would(name: str, tmp_path: pathlib.Path) -> None:
    architecture = CASES[name]
    tensors = _hub_tensors(architecture)
    params = checkpoints.load_parameters(architecture, _write(tmp_path, tensors), dtype=jnp.float32)
    tokens = np.random.default_rng(2).integers(5, 40, 13)
    model = gemma.make_transformer(architecture, dtype=jnp.float32)
    logits = model.apply({'params': params}, jnp.asarray(tokens)[None]).logits[0]
    # Float32 rounding stays below 6e-6 here; a window off by one, another query scale,
    # rotary base or soft cap moves some logit by 0.005 to 5.
    np.testing.assert_allclose(logits, _oracle(architecture, tensors, tokens), atol=5e-5, rtol=0)


@pytest.mark.parametrize('name', CASES)
def test_hub_checkpoint_has_the_shapes_of_the_library(name: str, tmp_path: pathlib.Path) -> None:
    folder = _write(tmp_path, _hub_tensors(CASES[name]))
    params = checkpoints.load_parameters(CASES[name], folder, dtype=jnp.bfloat16)
    gemma.check_shapes(gemma.parameter_shapes(CASES[name]), params)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(jnp.bfloat16)}


def test_bfloat16_tensors_load_exactly(tmp_path: pathlib.Path) -> None:
    halves = {name: value.astype(ml_dtypes.bfloat16) for name, value in _hub_tensors(GEMMA2).items()}
    widened = {name: value.astype(np.float32) for name, value in halves.items()}
    _assert_same(
        checkpoints.load_parameters(GEMMA2, _write(tmp_path / 'half', halves), dtype=jnp.float32),
        checkpoints.load_parameters(GEMMA2, _write(tmp_path / 'full', widened), dtype=jnp.float32),
    )


def _write_sharded(folder: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    files: dict[str, dict[str, np.ndarray]] = {}
    for index, (name, value) in enumerate(tensors.items()):
        files.setdefault(f'model-{index % 2}.safetensors', {})[name] = value
    weight_map = {}
    for file, part in files.items():
        save_file(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
    (folder / checkpoints.INDEX_NAME).write_text(json.dumps({'weight_map': weight_map}))


def test_sharded_checkpoint_equals_the_single_file(tmp_path: pathlib.Path) -> None:
    tensors = _hub_tensors(GEMMA2)
    single = checkpoints.load_parameters(GEMMA2, _write(tmp_path / 'single', tensors), dtype=jnp.float32)
    _write_sharded(tmp_path, tensors)
    _assert_same(checkpoints.load_parameters(GEMMA2, tmp_path, dtype=jnp.float32), single)


def test_missing_shard_is_refused(tmp_path: pathlib.Path) -> None:
    _write_sharded(tmp_path, _hub_tensors(GEMMA2))
    (tmp_path / 'model-1.safetensors').unlink()
    with pytest.raises(FileNotFoundError, match=r"got none for \['model-1.safetensors'\]"):
        checkpoints.load_parameters(GEMMA2, tmp_path, dtype=jnp.float32)


def test_index_may_not_leave_its_folder(tmp_path: pathlib.Path) -> None:
    _write_sharded(tmp_path, _hub_tensors(GEMMA2))
    index = {'weight_map': {'a': '../model-1.safetensors'}}
    (tmp_path / checkpoints.INDEX_NAME).write_text(json.dumps(index))
    with pytest.raises(ValueError, match='files of its own folder'):
        checkpoints.load_parameters(GEMMA2, tmp_path, dtype=jnp.float32)


def test_tensor_in_two_files_is_refused(tmp_path: pathlib.Path) -> None:
    tensors = _hub_tensors(GEMMA2)
    _write(tmp_path, tensors)
    save_file({'model.norm.weight': tensors['model.norm.weight']}, tmp_path / 'more.safetensors')
    with pytest.raises(ValueError, match=r"several for names=\['model.norm.weight'\]"):
        checkpoints.load_parameters(GEMMA2, tmp_path, dtype=jnp.float32)


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
    plain = checkpoints.load_parameters(
        GEMMA3, _write(tmp_path / 'a', _hub_tensors(GEMMA3)), dtype=jnp.float32
    )
    tensors = _hub_tensors(GEMMA3, prefix) | {f'{vision}weight': np.ones((2, 3), np.float32)}
    found = checkpoints.load_parameters(GEMMA3, _write(tmp_path / 'b', tensors), dtype=jnp.float32)
    _assert_same(found, plain)


@pytest.mark.parametrize(
    ('num_embed', 'rows'), [(256_128, 256_000), (256_128, 256_128), (262_144, 262_208), (262_144, 262_144)]
)
def test_known_vocabularies_of_the_hub_fit(num_embed: int, rows: int, tmp_path: pathlib.Path) -> None:
    architecture = dataclasses.replace(GEMMA2, num_embed=num_embed)
    tensors = _hub_tensors(dataclasses.replace(architecture, num_embed=rows))
    params = checkpoints.load_parameters(architecture, _write(tmp_path, tensors), dtype=jnp.float32)
    found = np.asarray(params['embedder']['input_embedding'])
    kept = min(rows, num_embed)
    assert len(found) == num_embed
    np.testing.assert_array_equal(found[:kept], tensors['model.embed_tokens.weight'][:kept])
    assert not found[kept:].any()


@pytest.mark.parametrize('rows', [39, 41, 64])
def test_other_vocabularies_are_refused(rows: int, tmp_path: pathlib.Path) -> None:
    folder = _write(tmp_path, _hub_tensors(dataclasses.replace(GEMMA2, num_embed=rows)))
    message = rf'model.embed_tokens.weight: expected \(40, 16\), found \({rows}, 16\)'
    with pytest.raises(ValueError, match=message):
        checkpoints.load_parameters(GEMMA2, folder, dtype=jnp.float32)


def test_missing_surplus_and_misshapen_tensors_are_named(tmp_path: pathlib.Path) -> None:
    tensors = _hub_tensors(GEMMA2)
    norm, query = 'model.norm.weight', 'model.layers.1.self_attn.q_proj.weight'
    missing = {name: value for name, value in tensors.items() if name not in (norm, query)}
    cases = {
        rf"got none for names=\['{query}', '{norm}'\]": missing,
        r"got names=\['model.layers.0.self_attn.q_proj.bias'\]":
            tensors | {'model.layers.0.self_attn.q_proj.bias': np.ones(3, np.float32)},
        rf'{norm}: expected \(16,\), found \(15,\)': tensors | {norm: np.ones(15, np.float32)},
        'found .* of I8': tensors | {norm: np.ones(16, np.int8)},
    }  # fmt: skip
    for index, (message, wrong) in enumerate(cases.items()):
        with pytest.raises(ValueError, match=message):
            checkpoints.load_parameters(GEMMA2, _write(tmp_path / str(index), wrong), dtype=jnp.float32)


def test_files_are_checked_without_their_weights(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the loading refuses is refused at the launch, before a budget is charged."""
    tensors = _hub_tensors(GEMMA2)
    monkeypatch.setattr(checkpoints, '_load_safetensors', None)
    checkpoints.check_files(GEMMA2, _write(tmp_path / 'good', tensors))
    norm = 'model.norm.weight'
    wrong = _write(tmp_path / 'wrong', tensors | {norm: np.ones(15, np.float32)})
    with pytest.raises(ValueError, match=rf'{norm}: expected \(16,\), found \(15,\)'):
        checkpoints.check_files(GEMMA2, wrong)
    with pytest.raises(ValueError, match='Choose the architecture'):
        checkpoints.check_files(GEMMA3, tmp_path / 'good')
    with pytest.raises(FileNotFoundError, match='Expected a checkpoint folder'):
        checkpoints.check_files(GEMMA2, tmp_path / 'none')


def test_layers_beyond_the_architecture_are_refused(tmp_path: pathlib.Path) -> None:
    deeper = dataclasses.replace(GEMMA2, attention_types=('local', 'global', 'local', 'global'))
    with pytest.raises(ValueError, match=r'no further text weights.*model\.layers\.3\.mlp\.up_proj'):
        checkpoints.load_parameters(GEMMA2, _write(tmp_path, _hub_tensors(deeper)), dtype=jnp.float32)


def test_adapter_is_refused(tmp_path: pathlib.Path) -> None:
    folder = _write(tmp_path, {'base_model.model.lora_A.weight': np.ones((2, 2), np.float32)})
    with pytest.raises(ValueError, match='merge an adapter'):
        checkpoints.load_parameters(GEMMA2, folder, dtype=jnp.float32)


def test_output_layer_must_be_the_embedding(tmp_path: pathlib.Path) -> None:
    tensors = _hub_tensors(GEMMA2)
    copy = tensors['model.embed_tokens.weight'].copy()
    tied = _write(tmp_path / 'tied', tensors | {'lm_head.weight': copy})
    _assert_same(
        checkpoints.load_parameters(GEMMA2, tied, dtype=jnp.float32),
        checkpoints.load_parameters(GEMMA2, _write(tmp_path / 'plain', tensors), dtype=jnp.float32),
    )
    untied = _write(tmp_path / 'untied', tensors | {'lm_head.weight': copy + 1})
    with pytest.raises(ValueError, match="another name='lm_head.weight'"):
        checkpoints.load_parameters(GEMMA2, untied, dtype=jnp.float32)


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
    _write(tmp_path, _hub_tensors(GEMMA3))
    (tmp_path / 'config.json').write_text(json.dumps({'text_config': config} if nested else config))
    params = checkpoints.load_parameters(GEMMA3, tmp_path, dtype=jnp.float32)
    gemma.check_shapes(gemma.parameter_shapes(GEMMA3), params)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'hidden_size': 32}, 'hidden_size=32 where 16 is expected'),
        ({'sliding_window': 8}, 'sliding_window=8 where 4'),
        ({'attn_logit_softcapping': 50.0}, 'attn_logit_softcapping=50.0 where None'),
        ({'query_pre_attn_scalar': 4}, 'query_pre_attn_scalar=4 where 6'),
        ({'rope_scaling': None}, 'rope_factor=1.0 where 8.0'),
        ({'rope_parameters': {'full_attention': {'rope_theta': 7.0, 'factor': 8.0}}}, 'rope_theta=7.0'),
        ({'layer_types': ['full_attention'] * 3}, 'layer_types='),
    ],
)
def test_contradicting_config_is_refused(
    change: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    _write(tmp_path, _hub_tensors(GEMMA3))
    (tmp_path / 'config.json').write_text(json.dumps(CONFIG | ROTARY_4 | change))
    with pytest.raises(ValueError, match=message):
        checkpoints.load_parameters(GEMMA3, tmp_path, dtype=jnp.float32)


@pytest.mark.parametrize('name', CASES)
def test_orbax_round_trip(name: str, tmp_path: pathlib.Path) -> None:
    params = _random_parameters(CASES[name])
    gemma.save_orbax(params, tmp_path / 'saved')
    _assert_same(checkpoints.load_parameters(CASES[name], tmp_path / 'saved', dtype=jnp.float32), params)
    halves = checkpoints.load_parameters(CASES[name], tmp_path / 'saved', dtype=jnp.bfloat16)
    _assert_same(halves, jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params))


def test_plain_orbax_relative_path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = _random_parameters(GEMMA2)
    with ocp.StandardCheckpointer() as saver:
        saver.save(tmp_path / 'plain', params)
    monkeypatch.chdir(tmp_path)
    _assert_same(checkpoints.load_parameters(GEMMA2, 'plain', dtype=jnp.float32), params)


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
    _assert_same(checkpoints.load_parameters(architecture, tmp_path / layout, dtype=jnp.float32), params)


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
    _assert_same(checkpoints.load_parameters(GEMMA3, tmp_path / 'saved', dtype=jnp.float32), params)


def test_orbax_of_another_architecture_is_refused(tmp_path: pathlib.Path) -> None:
    gemma.save_orbax(_random_parameters(EQUAL_HEADS), tmp_path / 'saved')
    with pytest.raises(ValueError, match='got 9 that differ') as raised:
        checkpoints.load_parameters(GEMMA2, tmp_path / 'saved', dtype=jnp.float32)
    assert 'layer_0/attn/q_einsum/w: expected (4, 16, 6), found none' in str(raised.value)
    assert 'layer_2/attn/qkv_einsum/w: expected none, found (3, 4, 16, 6)' in str(raised.value)


def test_orbax_misshape_names_parameter_and_both_shapes(tmp_path: pathlib.Path) -> None:
    gemma.save_orbax(_random_parameters(dataclasses.replace(GEMMA2, num_embed=41)), tmp_path / 'saved')
    message = r'embedder/input_embedding: expected \(40, 16\), found \(41, 16\)\.'
    with pytest.raises(ValueError, match=message):
        checkpoints.load_parameters(GEMMA2, tmp_path / 'saved', dtype=jnp.float32)


def test_absent_folder_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match='Expected a checkpoint folder'):
        checkpoints.load_parameters(GEMMA2, tmp_path / 'nowhere', dtype=jnp.float32)


@pytest.mark.run
def test_import_leaves_the_heavy_libraries_alone() -> None:
    assert_import_leaves(
        'models.decoders.gemma.checkpoints', 'tensorflow', 'tensorflow_text', 'gemma', 'safetensors'
    )
