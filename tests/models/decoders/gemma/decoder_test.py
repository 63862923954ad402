"""The decoder against the gemma library without a cache, and its rows against one another.

Twin: the library's transformer on one row alone, its prompt and the example so far in one sequence,
under a causal mask and without cache, padding slots or micro-batches. Small random models stand for
the generations (Gemma 1: one key head, no norms after a layer's parts; Gemma 2: soft caps, and heads
in groups or each with keys of its own; Gemma 3: normalized queries and keys; Gemma 3n: copies of the
residual stream, late layers without keys; Gemma 4: another shape of global layers, experts), with a window
shorter than most prompts; the bundled model comes with its weights.

The tolerance is absolute, on logits of a few units: 1e-4, where the largest difference seen is 1e-5.
Rows are compared bit by bit: that a row does not move with
the others is a privacy property.
"""

import dataclasses
import functools
import os
import pathlib
import re
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest

from models.constraints import Constraint, Vocabulary
from models.decoders import decoder
from models.decoders.gemma import architectures, library
from models.decoders.transformer.architecture import AltUp, Experts
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.decoder import TransformerDecoder, pooled_states
from models.generate.examples import split_examples
from models.generate.loop import decode_stream
from models.generate.stream import TokenStream
from models.privacy import candidates, mechanism, randomness, sampling, sparse_vector
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule
from tests import samples
from tests.contracts import decoder_contract
from tests.contracts.decoder_contract import (
    CUTS,
    EXAMPLES,
    PADDING,
    SHAPES,
    STEP_SHAPES,
    DecoderCase,
    decoded,
    decoded_in_steps,
)
from tests.models.decoders.gemma import library_models

pytestmark = pytest.mark.heavy

ROOT = pathlib.Path(__file__).parents[4]
GEMMA1 = architectures.GemmaArchitecture(
    num_embed=96, embed_dim=32, hidden_dim=48, num_heads=4, head_dim=8, num_kv_heads=1,
    attention_types=('global',) * 3, generation='1', use_post_norms=False,
)  # fmt: skip
GEMMA2 = architectures.GemmaArchitecture(
    num_embed=96, embed_dim=32, hidden_dim=48, num_heads=4, head_dim=8, num_kv_heads=2,
    attention_types=('local', 'global', 'local'), generation='2', sliding_window_size=5,
    final_logit_softcap=3.0, attn_logits_soft_cap=2.0,
    query_pre_attn_scalar=8,
)  # fmt: skip
GEMMA3 = architectures.GemmaArchitecture(
    num_embed=96, embed_dim=32, hidden_dim=48, num_heads=4, head_dim=8, num_kv_heads=2,
    attention_types=('local', 'local', 'global'), generation='3', sliding_window_size=5,
    use_qk_norm=True, transpose_gating_einsum=True, local_base_frequency=10,
    global_base_frequency=1000, global_scale_factor=8.0,
)  # fmt: skip
# Gemma 3n and Gemma 4: the first layers of those without keys follow a layer of each kind. With a
# `per_layer_dim` of 8 the last row of eight differs by 2e-6 on AVX-512: see `family.ROWS_MULTIPLE`.
_LATER: dict[str, Any] = {
    'num_embed': 96, 'embed_dim': 32, 'hidden_dim': 48, 'num_heads': 4, 'head_dim': 8,
    'sliding_window_size': 5, 'use_qk_norm': True, 'query_pre_attn_scalar': 1,
    'transpose_gating_einsum': True, 'norms_add_one': False, 'normalizes_values': True,
    'local_base_frequency': 10, 'global_base_frequency': 1000, 'final_logit_softcap': 3.0,
}  # fmt: skip
GEMMA3N = architectures.GemmaArchitecture(
    **_LATER, generation='3n', num_kv_heads=2, attention_types=('local', 'global', 'global'),
    num_kv_shared_layers=1, per_layer_dim=16,
    altup=AltUp(copies=4, largest_coefficient=0.5, laurel_rank=3, sparse_layers=1, sparsity=0.6),
)  # fmt: skip
_GEMMA4 = _LATER | {
    'generation': '4', 'global_head_dim': 16, 'global_rotary_share': 0.25, 'scales_layers': True,
}  # fmt: skip
GEMMA4 = architectures.GemmaArchitecture(
    **_GEMMA4, num_kv_heads=1, attention_types=('local', 'global', 'local', 'global'),
    num_kv_shared_layers=2, kv_shared_hidden_dim=96, per_layer_dim=16,
)  # fmt: skip
EXPERTS = architectures.GemmaArchitecture(
    **_GEMMA4, num_kv_heads=2, attention_types=('local', 'global'), num_global_kv_heads=1,
    global_values_are_keys=True, experts=Experts(count=6, hidden_dim=16, per_token=2),
)  # fmt: skip
BUNDLED = architectures.ARCHITECTURES['bundled']
CASES = {
    'gemma1': GEMMA1,
    'gemma2': GEMMA2,
    'gemma2 without groups': dataclasses.replace(GEMMA2, num_kv_heads=4, transpose_gating_einsum=True),
    'gemma3': GEMMA3,
    'gemma3n': GEMMA3N,
    'gemma4': GEMMA4,
    'experts': EXPERTS,
    'bundled': BUNDLED,
}
# Rounding chooses no other expert where every token passes all of them.
ALL_EXPERTS = dataclasses.replace(EXPERTS, experts=Experts(count=6, hidden_dim=16, per_token=6))
ROUNDED = {name: case for name, case in CASES.items() if name != 'experts'} | {'all experts': ALL_EXPERTS}
TOLERANCE = 1e-4


def _case(name: str) -> architectures.GemmaArchitecture:
    return (CASES | ROUNDED)[name]


@functools.cache
def _parameters(name: str) -> library.Parameters:
    """Random weights, large enough for peaked attention; the bundled model has its own."""
    if name == 'bundled':
        stored = library.load_orbax(ROOT / 'models' / 'bundled' / 'checkpoint')
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), stored)
    # Norms of what is nearly 0 make much of a rounding: with 6, the last bits of the weights move logits of
    # Gemma 4 by 2e-4, with 10 by 1e-5.
    return library_models.random_parameters(_case(name), seed=len(name) + 4)


@functools.cache
def _decoder(name: str, shapes: decoder.Shapes = SHAPES, dtype: str = 'float32') -> TransformerDecoder:
    weights = library.to_weights(_case(name), dict(_parameters(name)), Place(dtype))
    return TransformerDecoder(_case(name), weights, shapes=shapes)


@functools.cache
def _forward(name: str, dtype: str) -> Callable:
    """Tokens `[1 L]` to logits `[1 L V]`, causal, without a cache."""
    model = library_models.make_transformer(_case(name), dtype=dtype)

    def forward(weights: library.Parameters, tokens: jax.Array) -> jax.Array:
        length = tokens.shape[1]
        output = model.apply(
            {'params': weights},
            tokens,
            positions=jnp.arange(length)[None],
            attention_mask=jnp.tril(jnp.ones((1, length, length), bool)),
        )
        return output.logits

    return jax.jit(forward)


def _recomputed(
    model: TransformerDecoder,
    name: str,
    prompt: np.ndarray,
    example: Sequence[int],
    *,
    dtype: str = 'float32',
) -> np.ndarray:
    """Logits `[1 + len(example), V]` of one row alone: after its prompt and after each token.

    The library's, in a type, on the weights as the decoder holds them.
    """
    # Tokens behind a position cannot reach it, so one length serves all rows.
    tokens = np.ones((1, model.shapes.cache_length), np.int32)
    tokens[0, : len(prompt) + len(example)] = [*prompt, *example]
    held = model.weights.final_norm.dtype
    weights = jax.tree.map(lambda weight: jnp.asarray(weight, held).astype(dtype), _parameters(name))
    logits = _forward(name, dtype)(weights, tokens)[0]
    return np.asarray(logits[len(prompt) - 1 : len(prompt) + len(example)], np.float32)


def _prompts(name: str, count: int, seed: int = 0) -> list[np.ndarray]:
    return decoder_contract.prompts(_case(name).num_embed, count, seed)


# One of the small models is enough for what is about the loop, which they share.
_OF_THE_LOOP = (
    decoder_contract.check_micro_batches_equal_the_whole,
    decoder_contract.check_padding_rows_vote_nothing,
)
_CONTRACTS = [
    (name, check)
    for name in ('gemma2', 'gemma3n', 'gemma4', 'experts')
    for check in decoder_contract.DECODER_CHECKS
    if name == 'gemma2' or check not in _OF_THE_LOOP
]


@pytest.mark.parametrize(
    ('name', 'check'), _CONTRACTS, ids=[f'{name}-{check.__name__}' for name, check in _CONTRACTS]
)
def test_contract(name: str, check: Callable[[DecoderCase], None]) -> None:
    """The bundled model, a Gemma 3, keeps it in tests/contracts."""
    check(DecoderCase(load=functools.partial(_decoder, name)))


@pytest.mark.parametrize('name', samples.with_first(CASES, 'gemma3'))
def test_cached_steps_equal_a_full_recomputation(name: str) -> None:
    """Rows of 1 to 14 tokens in two micro-batches; four examples, the second as long as the cache allows."""
    model, prompts = _decoder(name), _prompts(name, 7)
    found = decoded(model, prompts, EXAMPLES)
    assert SHAPES.max_example_tokens == max(map(len, EXAMPLES))
    for example, logits in zip(EXAMPLES, found, strict=True):
        for row, prompt in enumerate(prompts):
            expected = _recomputed(model, name, prompt, example)
            assert np.ptp(expected) > 1  # a model that says something
            np.testing.assert_allclose(logits[:, row], expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize('name', ROUNDED)
def test_bfloat16_is_no_further_from_float32_than_in_the_library(name: str) -> None:
    """Root mean squares of differences from the same weights in float32; here, sums and norms stay in it."""
    model, prompts = _decoder(name, dtype='bfloat16'), _prompts(name, 7)
    found = decoded(model, prompts, EXAMPLES)
    assert {leaf.dtype for leaf in jax.tree.leaves(model.weights)} == {jnp.dtype('bfloat16')}
    ours, theirs = [], []
    for example, logits in zip(EXAMPLES, found, strict=True):
        for row, prompt in enumerate(prompts):
            expected = _recomputed(model, name, prompt, example)
            ours.append(logits[:, row] - expected)
            theirs.append(_recomputed(model, name, prompt, example, dtype='bfloat16') - expected)
    errors = [np.sqrt(np.mean(np.square(np.concatenate(parts)))) for parts in (ours, theirs)]
    assert 0 < errors[0] <= errors[1] < 0.1


@pytest.mark.parametrize(
    ('name', 'size', 'moves', 'dtype'),
    [
        ('bundled', 24, 0.0, 'float32'),
        ('bundled', 24, 0.0, 'bfloat16'),
        ('bundled', 20, TOLERANCE, 'float32'),
        ('gemma3n', 8, 0.0, 'float32'),
        ('gemma4', 8, 0.0, 'float32'),
        ('experts', 8, 0.0, 'float32'),
    ],
)
def test_a_row_does_not_move_with_its_slot(name: str, size: int, moves: float, dtype: str) -> None:
    """A context that is gone shifts those behind it by one slot, at a size of real runs.

    At a multiple of 8 rows no bit changes. At others the matrix product computes the last
    rows by another kernel, and a row that comes out of or into them moves by its rounding;
    the contents of the other rows change no bit at any size.
    """
    model = _decoder(name, dataclasses.replace(SHAPES, micro_batch_size=size), dtype)
    prompts, others = _prompts(name, size, seed=7), _prompts(name, size, seed=8)
    (logits,) = decoded(model, prompts, [EXAMPLES[0]])
    (shifted,) = decoded(model, prompts[1:], [EXAMPLES[0]])
    np.testing.assert_allclose(shifted[:, : size - 1], logits[:, 1:size], rtol=0, atol=moves)
    for row in (0, size // 2, size - 1):
        (changed,) = decoded(model, [*others[:row], prompts[row], *others[row + 1 :], *others], [EXAMPLES[0]])
        np.testing.assert_array_equal(changed[:, row], logits[:, row])


@pytest.mark.parametrize(('micro_batches', 'step_tokens'), [(1, 1), (3, 1), (2, 6)])
def test_a_step_copies_no_cache(micro_batches: int, step_tokens: int) -> None:
    """The loop's program writes a step's slots in place, one or several.

    The compiler copies a cache wherever it may be read twice. Slots are longer than the loop has other
    arrays, so that a cache is told by its size. A loop that keeps the cache before the step alive has to
    copy, and is found.
    """
    shapes = decoder.Shapes(
        max_prompt_tokens=96, max_example_tokens=160, micro_batch_size=8, step_tokens=step_tokens
    )
    model = _decoder('gemma3', shapes)
    _, cache = model.prefill([PADDING] * 8 * micro_batches)
    size = cache[0].layers[0].keys.size

    def copies(keeps: bool) -> list[str]:
        def body(carry: tuple) -> tuple:
            offset, token, cache, kept = carry
            tokens, count = jnp.full(step_tokens, token), 1 + token % step_tokens
            states, new = model.append(model.weights, cache, tokens, count, offset)
            token = jnp.argmax(model.logits(model.weights, states[0][:1])[0])
            return offset + count, token.astype(jnp.int32), new, cache[0].layers[0].keys if keeps else kept

        @functools.partial(jax.jit, donate_argnums=0)
        def loop(cache: tuple) -> tuple:
            start = jnp.int32(0), jnp.int32(5), cache, jnp.zeros_like(cache[0].layers[0].keys)
            return jax.lax.while_loop(lambda carry: carry[0] < 9, body, start)

        compiled = loop.lower(cache).compile().as_text()
        found = re.findall(r'f32\[([\d,]+)\]\S* copy\(', compiled)
        return [shape for shape in found if np.prod([int(number) for number in shape.split(',')]) >= size]

    assert not copies(keeps=False)
    assert copies(keeps=True)


# -------------------------------------------------------------------- refusals


@pytest.mark.first
def test_a_batch_that_cannot_fit_is_refused_without_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words for any number of contexts, and none for a batch that fits."""
    model, messages = _decoder('gemma2'), set()
    monkeypatch.setattr(psutil, 'virtual_memory', lambda: types.SimpleNamespace(available=4096))
    for rows in (8, 16, 400):
        with pytest.raises(MemoryError, match=r'batch rows .* Lower max_prompt_tokens') as error:
            model.prefill([PADDING] * rows)
        messages.add(str(error.value))
    assert len(messages) == 1
    monkeypatch.setattr(psutil, 'virtual_memory', lambda: types.SimpleNamespace(available=2**32))
    model.prefill([PADDING] * 4)


def test_a_batch_of_which_few_columns_are_computed_needs_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for the cache and for 40 of 96 columns of logits."""
    room = 4 * (SHAPES.cache_length * GEMMA2.cache_bytes_per_token(4) + 40 * 8)
    monkeypatch.setattr(psutil, 'virtual_memory', lambda: types.SimpleNamespace(available=room))
    _decoder('gemma2', dataclasses.replace(SHAPES, columns=40)).prefill([PADDING] * 4)
    for columns in (None, 41, 1000):
        with pytest.raises(MemoryError, match='batch rows'):
            _decoder('gemma2', dataclasses.replace(SHAPES, columns=columns)).prefill([PADDING] * 4)


# ------------------------------------------------------------------- decode_stream

PARAMS = MechanismParams(
    batch_size=4, clip_bound=4.0, temperature=1.5, max_private_tokens=22, max_batch_tokens=22,
    max_example_tokens=SHAPES.max_example_tokens,
)  # fmt: skip
# A threshold in the middle of [0, 2] under noise of its size: both kinds of token, whatever the model.
SPARSE = dataclasses.replace(PARAMS, threshold=0.8, threshold_noise_scale=0.4)
MECHANISMS = {
    'private': PARAMS,
    'sparse vector': SPARSE,
    'top 20': dataclasses.replace(SPARSE, public_top_k=20),
}


def _draws(params: MechanismParams, vocab_size: int) -> randomness.BatchDraws:
    return randomness.batch_draws(
        randomness.RunKey(bytes(range(32))), 'run', '0000-000000',
        max_private_tokens=params.max_private_tokens, max_batch_tokens=params.max_batch_tokens,
        threshold_noise_scale=params.threshold_noise_scale,
        batch_size=params.batch_size,
        levels=sampling.tree_levels(candidates.count(params.public_top_k, vocab_size)),
    )  # fmt: skip


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Chained(Constraint):
    """Two tokens of three say which one follows."""

    tokens: jax.Array  # [V] bool

    def start(self, example: jax.Array | int = 0) -> jax.Array:
        return jnp.int32(0)

    def allowed(self, state: jax.Array) -> jax.Array:
        return jnp.where(
            self.forced(state) < 0, self.tokens, jnp.arange(len(self.tokens)) == self.forced(state)
        )

    def allowed_among(self, state: jax.Array, tokens: jax.Array) -> jax.Array:
        return self.allowed(state)[tokens]

    def forced(self, state: jax.Array) -> jax.Array:
        return jnp.where(state % 3 == 0, -1, 5 + (7 * state + 1) % (len(self.tokens) - 5))

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        return token


def _stream(
    model: TransformerDecoder,
    params: MechanismParams,
    rows: list[np.ndarray],
    kind: Callable[[jax.Array], Constraint] = Vocabulary,
) -> TokenStream:
    """A stream whose first row is the public prompt; every fourth token id ends an example."""
    public = samples.public_rows(model, rows[0], params)
    return decode_stream(
        model, public, rows[1:], params=params, draws=_draws(params, model.vocab_size),
        constraint=kind(jnp.arange(model.vocab_size) > 4),
        stop_rule=StopRule.of(model.vocab_size, tokens=range(8, model.vocab_size, 4)),
    )  # fmt: skip


def test_a_stream_is_the_same_in_steps_of_several_tokens() -> None:
    """With forced tokens; logits differ by rounding, which turns a token about once in 1e4."""
    params = dataclasses.replace(SPARSE, max_private_tokens=40, max_batch_tokens=60)
    rows = _prompts('gemma3', 6, seed=4)
    single = _stream(_decoder('gemma3'), params, rows, _Chained)
    stream = _stream(_decoder('gemma3', STEP_SHAPES), params, rows, _Chained)
    assert single.is_forced is not None and stream.is_forced is not None
    assert 10 < single.is_forced.sum() < 50 and single.is_private.any()
    np.testing.assert_array_equal(stream.tokens, single.tokens)
    np.testing.assert_array_equal(stream.is_private, single.is_private)
    np.testing.assert_array_equal(stream.is_forced, single.is_forced)


def _slow_stream(
    model: TransformerDecoder, name: str, params: MechanismParams, rows: list[np.ndarray]
) -> tuple[list[int], list[bool]]:
    """PP Algorithm 1 as a Python loop: every token from a forward pass over each row alone, no cache."""
    draws, vocab = _draws(params, model.vocab_size), model.vocab_size
    released = jnp.arange(vocab) > 4
    tokens, flags, example = [], [], []
    while sum(flags) < params.max_private_tokens and len(tokens) < params.max_batch_tokens:
        logits = jnp.stack([_recomputed(model, name, row, example)[-1] for row in rows])
        votes = samples.tally((logits,), (jnp.arange(len(rows)) > 0,), params, released)
        words = draws.token_words[len(tokens)]
        words = np.stack([words >> np.uint64(32), words & np.uint64(2**32 - 1)], axis=-1)
        token, is_private = mechanism.choose_token(
            votes,
            jnp.asarray(sparse_vector.limbs(draws.threshold_noise[sum(flags)])),
            jnp.asarray(sparse_vector.limbs(draws.distance_noise[len(tokens)])),
            jnp.asarray(words, jnp.uint32),
            params,
        )
        tokens.append(int(token))
        flags.append(bool(is_private))
        example.append(int(token))
        if tokens[-1] >= 8 and tokens[-1] % 4 == 0 or len(example) == params.max_example_tokens:
            example = []
    return tokens, flags


# The loop is one for all models: each of them with one mechanism, the bundled one with all. That cached
# steps are right is shown for each of them above, so most are long.
_LOOPS = [
    (name, kind)
    for turn, name in enumerate(CASES)
    for place, kind in enumerate(MECHANISMS)
    if name == 'bundled' or place == turn % len(MECHANISMS)
]


@pytest.mark.parametrize('name, kind', [pytest.param(*_LOOPS[0], marks=pytest.mark.first), *_LOOPS[1:]])
def test_stream_equals_a_slow_loop_without_cache(name: str, kind: str) -> None:
    """22 tokens, several examples, token for token; five contexts and the public row, padded to eight.

    A difference of rounding may turn a token about once in 1e4: the keys are fixed.
    """
    model, params, rows = _decoder(name), MECHANISMS[kind], _prompts(name, 6, seed=5)
    stream = _stream(model, params, rows)
    tokens, flags = _slow_stream(model, name, params, rows)
    assert stream.tokens.tolist() == tokens
    assert stream.is_private.tolist() == flags
    assert len(set(tokens)) > 5 and set(flags) == ({True, False} if params.uses_sparse_vector else {True})
    examples = split_examples(
        stream,
        stop_rule=StopRule.of(model.vocab_size, tokens=range(8, model.vocab_size, 4)),
        max_example_tokens=params.max_example_tokens,
    )
    assert len(examples) > 2


# ------------------------------------------------------------------- pooled hidden states


@pytest.mark.parametrize('name', CASES)
def test_pooled_states_equal_each_text_alone(name: str) -> None:
    """Twin: one text without padding or company; the mean skips the start of text. Rows in 16 slots of 14."""
    model = library_models.make_transformer(CASES[name], dtype='float32')
    weights = library.to_weights(CASES[name], dict(_parameters(name)), Place('float32'))
    pool = jax.jit(functools.partial(pooled_states, CASES[name]))
    prompts = _prompts(name, 16, seed=9)
    tokens, lengths = np.zeros((16, SHAPES.max_prompt_tokens), np.int32), np.array([len(p) for p in prompts])
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    found = np.asarray(pool(weights, tokens, lengths))
    assert found.shape == (16, CASES[name].embed_dim) and found.dtype == np.float32
    by_length = np.argsort(lengths)
    assert lengths[by_length[0]] == 1
    # Each length is a program of its own.
    for index in by_length[[0, 10, -1]]:
        states = model.apply(
            {'params': _parameters(name)}, jnp.asarray(prompts[index])[None], return_hidden_states=True
        ).hidden_states[0]
        expected = np.asarray(states)[1:].mean(axis=0) if lengths[index] > 1 else np.zeros_like(found[0])
        np.testing.assert_allclose(found[index], expected, rtol=0, atol=TOLERANCE)
    tokens[1:] = 7
    lengths[1:] = 5
    np.testing.assert_array_equal(np.asarray(pool(weights, tokens, lengths))[0], found[0])


# ------------------------------------------------------------------ several devices


def save_outputs(path: str) -> None:
    """Logits and one stream of the devices at hand, for a comparison across processes."""
    model, rows = _decoder('gemma3'), _prompts('gemma3', 6, seed=6)
    logits = decoded(model, rows, EXAMPLES[:2])
    (steps,) = decoded_in_steps(_decoder('gemma3', STEP_SHAPES), rows, EXAMPLES[1], CUTS[2:3])
    stream = _stream(model, SPARSE, rows)
    first, cache = model.prefill([PADDING] * 4)
    np.savez(
        path, short=logits[0], long=logits[1], steps=steps,
        tokens=stream.tokens, is_private=stream.is_private,
        devices=len(jax.local_devices()), states_on=len(first[0].sharding.device_set),
        cache_rows=[shard.data.shape[0] for shard in cache[0].layers[0].keys.addressable_shards],
    )  # fmt: skip
    with pytest.raises(ValueError, match='multiple of the 2 local devices, got micro_batch_size=3'):
        _decoder('gemma3', dataclasses.replace(SHAPES, micro_batch_size=3))


@pytest.mark.run
def test_two_devices_give_what_one_gives(tmp_path: pathlib.Path) -> None:
    """Rows spread over two devices in another process; there, an odd micro-batch size is refused."""
    assert len(jax.local_devices()) == 1
    path = tmp_path / 'two.npz'
    module = 'tests.models.decoders.gemma.decoder_test'
    code = f'import sys; import {module} as outputs; outputs.save_outputs(sys.argv[1])'
    environment = os.environ | {
        'XLA_FLAGS': '--xla_force_host_platform_device_count=2',
        'JAX_PLATFORMS': 'cpu',
    }
    subprocess.run(
        [sys.executable, '-c', code, str(path)], check=True, cwd=ROOT, env=environment, timeout=500
    )
    two = np.load(path)
    assert two['devices'] == 2 and two['states_on'] == 2 and two['cache_rows'].tolist() == [2, 2]
    model, rows = _decoder('gemma3'), _prompts('gemma3', 6, seed=6)
    for found, expected in zip((two['short'], two['long']), decoded(model, rows, EXAMPLES[:2]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    (steps,) = decoded_in_steps(_decoder('gemma3', STEP_SHAPES), rows, EXAMPLES[1], CUTS[2:3])
    np.testing.assert_allclose(two['steps'], steps, rtol=0, atol=TOLERANCE)
    stream = _stream(model, SPARSE, rows)
    np.testing.assert_array_equal(two['tokens'], stream.tokens)
    np.testing.assert_array_equal(two['is_private'], stream.is_private)
