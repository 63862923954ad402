"""Gemma 3n and Gemma 4: each size cut to a few layers, gradients, experts, and files of every form.

Twin: the gemma library's own modules, on one row and without a cache. decoder_test.py holds small models of
these generations to the contract of decoders.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gemma.gm.ckpts import _checkpoint as layouts
from safetensors.numpy import save_file

from models.decoders import family
from models.decoders.decoder import Shapes
from models.decoders.gemma import architectures, checkpoints, library
from models.decoders.gemma import family as gemma_family
from models.decoders.transformer import experts, tuning
from models.decoders.transformer.arithmetic import by_weight
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.decoder import TransformerDecoder
from models.decoders.transformer.weights import Weights, adapter_shapes
from tests.contracts import decoder_contract
from tests.contracts.decoder_contract import TunableCase
from tests.models.decoders.gemma import converted, library_models
from tests.models.decoders.gemma.decoder_test import EXPERTS, GEMMA3N, GEMMA4
from tests.models.decoders.gemma.gguf_files import write_gguf
from tests.oracles import experts as oracle

pytestmark = pytest.mark.heavy

SMALL = {'gemma3n': GEMMA3N, 'gemma4': GEMMA4, 'experts': EXPERTS}
SIZES = [name for name, a in architectures.ARCHITECTURES.items() if a.generation in ('3n', '4')]


def cut(name: str) -> architectures.GemmaArchitecture:
    """A size with its widths, but few layers, tokens and experts."""
    whole = architectures.ARCHITECTURES[name]
    changes: dict[str, Any] = {'num_embed': 512, 'attention_types': ('local', 'global')}
    if whole.num_kv_shared_layers:
        changes |= {'attention_types': ('local', 'global') * 2, 'num_kv_shared_layers': 2}
    if whole.altup is not None:
        changes['altup'] = dataclasses.replace(whole.altup, sparse_layers=1)
    if whole.experts is not None:
        changes['experts'] = dataclasses.replace(whole.experts, count=16)
    return dataclasses.replace(whole, sliding_window_size=7, **changes)


def largest_difference(a: architectures.GemmaArchitecture) -> tuple[float, float]:
    """The logits' distance from the library's, after a prompt and after some steps; and their range."""
    parameters = library_models.random_parameters(a, seed=1, scale=a.embed_dim**-0.5)
    model = library_models.make_transformer(a)
    prompt = np.random.default_rng(0).integers(5, a.num_embed, 12).astype(np.int32)
    example = [7, 9, 400, 33, 12, 90, 17, 21, 5]
    tokens = jnp.asarray([[*prompt, *example]])
    length = tokens.shape[1]
    causal = jnp.tril(jnp.ones((1, length, length), bool))
    expected = model.apply(
        {'params': parameters}, tokens, positions=jnp.arange(length)[None], attention_mask=causal
    ).logits[0, len(prompt) - 1 :]
    weights = library.to_weights(a, parameters, Place('float32'))
    shapes = Shapes(max_prompt_tokens=14, max_example_tokens=12, micro_batch_size=2)
    decoder = TransformerDecoder(a, weights, shapes=shapes)
    logits = decoder_contract.decoded(decoder, [prompt, prompt[:3]], [example])[0][:, 0]
    return float(np.abs(logits - np.asarray(expected)).max()), float(np.ptp(expected))


@pytest.mark.parametrize('name', SIZES)
def test_logits_of_every_size_are_the_librarys(name: str) -> None:
    """After the prompt and after every step; the largest difference seen is 1e-4 of a range of 16."""
    difference, spread = largest_difference(cut(name))
    assert difference < 2e-4 and spread > 1


@pytest.mark.parametrize('name', SMALL)
def test_gradients_are_the_librarys(name: str) -> None:
    """By all weights, of what is said of a text after an instruction."""
    a, instruction, text = SMALL[name], [5, 80, 7, 33, 64], [9, 12, 90, 7, 41, 8, 22]
    parameters, model = library_models.random_parameters(a, seed=4), library_models.make_transformer(a)
    tokens = jnp.asarray([[*instruction, *text]])
    length = tokens.shape[1]
    causal = jnp.tril(jnp.ones((1, length, length), bool))

    def said(parameters: library.Parameters) -> jax.Array:
        logits = model.apply(
            {'params': parameters}, tokens, positions=jnp.arange(length)[None], attention_mask=causal
        ).logits[0, len(instruction) - 1 : -1]
        return jax.nn.log_softmax(logits)[jnp.arange(len(text)), jnp.asarray(text)].sum()

    def said_here(difference: Weights) -> jax.Array:
        rows = jnp.asarray([instruction]), jnp.asarray([len(instruction)])
        return tuning.log_probabilities(a, weights, difference, rows, jnp.asarray([text])).sum()

    expected = library.to_weights(a, dict(jax.jit(jax.grad(said))(parameters)), Place('float32'))
    weights = library.to_weights(a, dict(parameters), Place('float32'))
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), adapter_shapes(a, None))
    found = jax.jit(jax.grad(said_here))(zero)
    for (path, one), other in zip(
        jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True
    ):
        # The library's router reads what this norm gives, and moves it.
        if not jax.tree_util.keystr(path).endswith('experts_norm'):
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4, err_msg=jax.tree_util.keystr(path))


def test_an_embedding_of_zeros_has_a_gradient() -> None:
    """Padding's, behind an instruction and behind a text."""
    weights = library.to_weights(GEMMA3N, library_models.random_parameters(GEMMA3N, seed=4), Place('float32'))
    assert weights.per_layer is not None
    table = weights.per_layer.per_layer_embedding.at[0].set(0)
    weights = weights._replace(
        embedding=weights.embedding.at[0].set(0),
        per_layer=weights.per_layer._replace(per_layer_embedding=table),
    )
    rows = jnp.asarray([[0, 80, 7, 0, 0], [5, 6, 7, 8, 9]]), jnp.asarray([3, 5])
    texts = jnp.asarray([[9, 12, 0, 0]])
    adapter = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.01), adapter_shapes(GEMMA3N, None))

    def said(adapter: Any) -> jax.Array:
        return tuning.log_probabilities(GEMMA3N, weights, adapter, rows, texts)[..., :2].sum()

    gradient = jax.jit(jax.grad(said))(adapter)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize('name', ['gemma4-e2b', 'gemma3n-e4b', 'gemma4-26b-a4b'])
def test_what_a_gradient_keeps_is_what_the_compiler_holds(name: str) -> None:
    """By shapes alone, of few layers and all experts; half or twice as much would be noticed."""
    a, tokens = dataclasses.replace(cut(name), experts=architectures.ARCHITECTURES[name].experts), 64
    weights = jax.tree.map(lambda of: jax.ShapeDtypeStruct(of.shape, jnp.bfloat16), adapter_shapes(a, None))
    row = jax.ShapeDtypeStruct((1, tokens), jnp.int32)

    def said(adapter: Any, weights: Weights, instruction: jax.Array, text: jax.Array) -> jax.Array:
        rows = instruction, jnp.asarray([tokens])
        return tuning.log_probabilities(a, weights, adapter, rows, text).sum()

    program = jax.jit(jax.grad(said)).lower(adapter_shapes(a, 8), weights, row, row).compile()
    found = program.memory_analysis().temp_size_in_bytes
    assert 0.6 < found / a.gradient_bytes(2 * tokens, 2 * tokens, remat=False) < 1.6


class Later(gemma_family.GemmaFamily):  # type: ignore[misc]
    """Small models of these generations, of random weights in no file."""

    name = 'later'

    @property
    def models(self) -> Mapping[str, architectures.GemmaArchitecture]:
        return SMALL

    def load_weights(self, model: str, checkpoint: Any, place: Place) -> Weights:
        parameters = library_models.random_parameters(SMALL[model], seed=5)
        return library.to_weights(SMALL[model], parameters, place)


@pytest.mark.parametrize('check', decoder_contract.TUNABLE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(('name', 'rank'), [('gemma3n', 2), ('gemma4', None), ('experts', 2)])
def test_tunable(name: str, rank: int | None, check: Any) -> None:
    check(TunableCase(family=Later(), model=name, checkpoint='', rank=rank))


# --- Experts ---------------------------------------------------------------------


def _expert_weights(seed: int, count: int = 6) -> Any:
    a = dataclasses.replace(EXPERTS, experts=dataclasses.replace(EXPERTS.experts, count=count))
    parameters = library_models.random_parameters(a, seed)
    layer = library.to_weights(a, parameters, Place('float32')).layers[0].experts
    assert layer is not None
    # Unlike a uniform norm, one that tells a router before it from one behind it.
    drawn = np.random.default_rng(seed).uniform(0.2, 2, layer.experts_norm.shape)
    return a, layer._replace(experts_norm=jnp.asarray(drawn, jnp.float32))


@pytest.mark.first
def test_experts_are_what_each_token_has_of_each_expert_alone() -> None:
    a, layer = _expert_weights(seed=2)
    x = np.random.default_rng(5).normal(size=(40, a.embed_dim)).astype(np.float32)
    weights = {field: np.asarray(value, np.float64) for field, value in layer._asdict().items()}
    found = experts.output(a, layer, jnp.asarray(x), by_weight)
    np.testing.assert_allclose(found, oracle.output(weights, x, per_token=2, count=6), rtol=0, atol=2e-4)
    shares = np.asarray(experts.shares_of(a, a.experts, layer, jnp.asarray(x)))
    for row, of_row in zip(x.astype(np.float64), shares, strict=True):
        assert {int(expert) for expert in np.flatnonzero(of_row)} == set(oracle.chosen(weights, row, 2))
    # Not all tokens go one way, and a router behind the norm sends some of them another.
    assert (shares > 0).sum(axis=0).min() > 0
    behind = np.asarray(experts.shares_of(a, a.experts, layer, jnp.asarray(x) * layer.experts_norm))
    assert ((behind > 0) != (shares > 0)).any()


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_no_token_moves_another_token_of_its_experts(dtype: str) -> None:
    """Rows that crowd one expert, in another order and among others: the same bits, and none is dropped."""
    a, layer = _expert_weights(seed=2)
    layer = jax.tree.map(lambda leaf: leaf.astype(dtype), layer)
    rng = np.random.default_rng(6)
    x = rng.normal(size=(32, a.embed_dim)).astype(np.float32)
    pass_all = jax.jit(lambda x: experts.output(a, layer, x, by_weight))
    found = np.asarray(pass_all(x))
    order = rng.permutation(32)
    np.testing.assert_array_equal(pass_all(x[order]), found[order])
    for row in (0, 13, 31):
        # All others are this very row, which fill its experts; or far-off ones.
        crowd = np.repeat(x[row : row + 1], 32, axis=0)
        np.testing.assert_array_equal(pass_all(crowd), np.repeat(found[row : row + 1], 32, axis=0))
        others = (50 * rng.normal(size=x.shape)).astype(np.float32)
        others[row] = x[row]
        np.testing.assert_array_equal(np.asarray(pass_all(others))[row], found[row])
    infinite = np.full_like(x, np.inf)
    infinite[7] = x[7]
    np.testing.assert_array_equal(np.asarray(pass_all(infinite))[7], found[7])


def test_of_equal_scores_the_first_experts_are_taken() -> None:
    a, layer = _expert_weights(seed=2)
    layer = layer._replace(router=jnp.zeros_like(layer.router))
    shares = experts.shares_of(a, a.experts, layer, jnp.ones((3, a.embed_dim)))
    np.testing.assert_array_equal(shares, np.repeat([[0.5, 0.5, 0, 0, 0, 0]], 3, axis=0))


# --- Files -----------------------------------------------------------------------


def _same(found: Weights, expected: Weights) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@functools.cache
def _made(name: str) -> tuple[library.Parameters, Weights]:
    parameters = library_models.random_parameters(SMALL[name], seed=8)
    return parameters, library.to_weights(SMALL[name], dict(parameters), Place('float32'))


@pytest.mark.parametrize('name', SMALL)
def test_an_orbax_directory_gives_the_weights(name: str, tmp_path: pathlib.Path) -> None:
    """With parts that see and hear, which are left out."""
    parameters, expected = _made(name)
    other = {'entry': {'kernel': jnp.ones((2, 3))}}
    embedder = parameters['embedder'] | {'audio_input_projection': {'w': jnp.ones((3, 2))}}
    saved = parameters | {'embedder': embedder, 'vision_encoder': other, 'audio_encoder': other}
    library.save_orbax(saved, tmp_path / 'orbax')
    checkpoints.check_files(SMALL[name], tmp_path / 'orbax')
    _same(checkpoints.load_weights(SMALL[name], tmp_path / 'orbax', Place('float32')), expected)


def test_a_flat_orbax_directory_gives_the_weights(tmp_path: pathlib.Path) -> None:
    """As earlier releases are. The library cannot read its own flat form of experts."""
    parameters, expected = _made('gemma4')
    library.save_orbax(layouts._nested_to_flat(dict(parameters)), tmp_path / 'orbax')
    _same(checkpoints.load_weights(GEMMA4, tmp_path / 'orbax', Place('float32')), expected)


@pytest.mark.parametrize('name', SMALL)
def test_a_hub_folder_gives_the_weights(name: str, tmp_path: pathlib.Path) -> None:
    """As published: multi-modal, an output layer that is the embedding, keys of layers that read none."""
    a, (parameters, expected) = SMALL[name], _made(name)
    hub, _ = converted.hub_and_gguf(a, parameters)
    prefix = 'model.language_model.'
    unread = [layer.index for layer in a.layers if not layer.has_keys]
    keys = {
        f'{prefix}layers.{index}.self_attn.{part}.weight': np.ones(3, np.float32)
        for index in unread
        for part in ('k_proj', 'v_proj', 'k_norm')
    }
    others = {
        f'model.{part}.weight': np.ones(2, np.float32)
        for part in ('vision_tower.a', 'audio_tower.b', 'embed_vision.c', 'embed_audio.d')
    }
    output = {'lm_head.weight': hub[f'{prefix}embed_tokens.weight'].copy()}
    save_file({**keys, **hub, **others, **output}, tmp_path / 'model.safetensors')
    if a.generation == '4':
        (tmp_path / 'config.json').write_text(json.dumps(converted.config(a)))
    checkpoints.check_files(a, tmp_path)
    _same(checkpoints.load_weights(a, tmp_path, Place('float32')), expected)


@pytest.mark.parametrize('name', SMALL)
def test_a_gguf_file_gives_the_weights(name: str, tmp_path: pathlib.Path) -> None:
    a, (parameters, expected) = SMALL[name], _made(name)
    _, tensors = converted.hub_and_gguf(a, parameters)
    kind = 'gemma3n' if a.generation == '3n' else 'gemma4'
    path = write_gguf(tmp_path / 'model.gguf', kind, converted.metadata(a), tensors)
    checkpoints.check_files(a, path)
    _same(checkpoints.load_weights(a, path, Place('float32')), expected)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'num_experts': 8}, 'num_experts=8 where 6 is expected'),
        ({'top_k_experts': 4}, 'top_k_experts=4 where 2 is expected'),
        ({'attention_k_eq_v': False}, 'attention_k_eq_v=False where True is expected'),
        ({'use_bidirectional_attention': 'all'}, "use_bidirectional_attention='all' where 'vision'"),
        ({'global_head_dim': 8}, 'global_head_dim=8 where 16 is expected'),
        (
            {'rope_parameters': {'full_attention': {'rope_theta': 1000.0, 'partial_rotary_factor': 0.5}}},
            'rope_share=0.5 where 0.25 is expected',
        ),
    ],
)
def test_a_config_of_another_gemma_4_is_refused(
    change: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    hub, _ = converted.hub_and_gguf(EXPERTS, _made('experts')[0])
    save_file(hub, tmp_path / 'model.safetensors')
    config = converted.config(EXPERTS)
    config['text_config'] |= change
    (tmp_path / 'config.json').write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        checkpoints.check_files(EXPERTS, tmp_path)


@pytest.mark.parametrize(
    ('name', 'change', 'message'),
    [
        ('gemma4', {'attention.shared_kv_layers': 1}, 'shared_kv_layers=1 where 2 is expected'),
        ('gemma4', {'feed_forward_length': 48}, 'feed_forward_length=48 where '),
        ('gemma4', {'attention.key_length_swa': None}, 'key_length_swa=None where 8 is expected'),
        ('experts', {'expert_used_count': 3}, 'expert_used_count=3 where 2 is expected'),
        ('experts', {'attention.head_count_kv': [2, 2]}, 'head_count_kv=2 where '),
        ('gemma3n', {'activation_sparsity_scale': [0.1] * 3}, 'activation_sparsity_scale=0.1'),
    ],
)
def test_a_gguf_file_of_another_one_is_refused(
    name: str, change: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    a = SMALL[name]
    _, tensors = converted.hub_and_gguf(a, _made(name)[0])
    kind = 'gemma3n' if a.generation == '3n' else 'gemma4'
    path = write_gguf(tmp_path / 'model.gguf', kind, converted.metadata(a) | change, tensors)
    with pytest.raises(ValueError, match=message):
        checkpoints.check_files(a, path)


def test_files_of_another_size_name_the_model_that_they_are_of(tmp_path: pathlib.Path) -> None:
    """Told by numbers alone, of which a header is enough."""
    e4b = architectures.ARCHITECTURES['gemma4-e4b']
    path = write_gguf(tmp_path / 'model.gguf', 'gemma4', converted.metadata(e4b), {})
    for model in ('gemma4-e2b', 'gemma4-26b-a4b', 'gemma4-31b', 'gemma3n-e4b', 'gemma3-4b'):
        files = family.ModelFiles(checkpoint=str(path), tokenizer=str(path))
        with pytest.raises(ValueError, match='Its numbers are those of --model gemma4-e4b'):
            gemma_family.GemmaFamily().check_files(model, files)
