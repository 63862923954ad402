"""Measures how fast this machine decodes with a Gemma, in some ten seconds and without its weights.

Random weights go through the forward pass of every run, `forward.py`, one layer of the model's own
dimensions at a time. There are as many such layers as no processor's cache holds, or as the model has.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models.decoders.gemma import forward
from models.decoders.gemma.architectures import Architecture
from models.decoders.gemma.weights import Layer, Weights
from models.decoders.rates import Rates

# Rows of a step, and prompts that are read at once.
ROWS = 64
PROMPT_TOKENS = 128
# More than most processors' caches hold, in bytes: layers, a part of the embedding, keys and values.
LAYERS_BYTES, EMBEDDING_BYTES, CACHE_BYTES = 2**27, 2**28, 2**27
# Of the K that a default run asks for, and what may be beside them.
RANKED = 1280
# A measurement ends after this many seconds or rounds, whichever comes first.
SECONDS, ROUNDS, LEAST_ROUNDS = 1.0, 50, 3


def measure(architecture: Architecture, *, dtype: str) -> Rates:
    """The rates of JAX's first device.

    Args:
        architecture: The numbers of the model.
        dtype: 'float32' or 'bfloat16'.
    """
    itemsize = jnp.dtype(dtype).itemsize
    one = dataclasses.replace(
        architecture,
        attention_types=architecture.attention_types[-1:],
        num_embed=min(
            architecture.num_embed, max(RANKED, EMBEDDING_BYTES // (itemsize * architecture.embed_dim))
        ),
    )
    count = min(architecture.num_layers, -(-LAYERS_BYTES // (itemsize * one.layer_parameters)))
    whole = random_weights(dataclasses.replace(one, attention_types=one.attention_types * count), dtype)
    models = [whole._replace(layers=(layer,)) for layer in whole.layers]
    return Rates(
        prompt_flops=_prompt_flops(one, models[0]),
        **_of_a_step(one, models),
        **_of_the_output(one, whole),
        ranked_logits=_ranked_logits(architecture),
    )


def random_weights(architecture: Architecture, dtype: str) -> Weights:
    """Weights of no model: even within ±1/32, so that nothing overflows."""
    a, rng = architecture, np.random.default_rng(0)

    def draw(*shape: int) -> jax.Array:
        return jnp.asarray((rng.random(shape, np.float32) - 0.5) / 16, dtype)

    def layer() -> Layer:
        heads = a.num_heads + 2 * a.num_kv_heads
        return Layer(
            pre_attention_norm=draw(a.embed_dim),
            query_key_value=draw(a.embed_dim, heads * a.head_dim),
            query_norm=draw(a.head_dim) if a.use_qk_norm else None,
            key_norm=draw(a.head_dim) if a.use_qk_norm else None,
            attention_output=draw(a.num_heads * a.head_dim, a.embed_dim),
            post_attention_norm=draw(a.embed_dim) if a.use_post_norms else None,
            pre_ffw_norm=draw(a.embed_dim),
            gate_up=draw(a.embed_dim, 2 * a.hidden_dim),
            down=draw(a.hidden_dim, a.embed_dim),
            post_ffw_norm=draw(a.embed_dim) if a.use_post_norms else None,
        )

    return Weights(
        embedding=draw(a.num_embed, a.embed_dim),
        layers=tuple(layer() for _ in a.attention_types),
        final_norm=draw(a.embed_dim),
    )


def _prompt_flops(one: Architecture, weights: Weights) -> float:
    in_pieces = jax.devices()[0].platform == 'cpu'
    rows = 8 if in_pieces else ROWS  # as many as go through the layers at once
    tokens = jnp.full((rows, PROMPT_TOKENS), 2, jnp.int32)
    lengths = jnp.full(rows, PROMPT_TOKENS, jnp.int32)

    @jax.jit
    def read(weights: Weights) -> Any:
        return forward.read_prompts(one, weights, tokens, lengths, example_slots=1, in_pieces=in_pieces)

    (seconds,) = _seconds(lambda: read(weights))
    return rows * one.prompt_flops(PROMPT_TOKENS) / seconds


def _of_a_step(one: Architecture, models: Sequence[Weights]) -> dict[str, float]:
    itemsize = models[0].embedding.dtype.itemsize
    slot_bytes = one.cache_bytes_per_token(itemsize)
    long = max(128, CACHE_BYTES // (ROWS * slot_bytes * 128) * 128)

    @jax.jit
    def step(weights: Weights, cache: forward.Cache) -> jax.Array:
        # The slot that it writes is not read by anyone.
        return forward.append(one, weights, cache, jnp.array([2]), jnp.int32(1), jnp.int32(0))[0]

    short_cache, long_cache = _filled_cache(one, 8, itemsize), _filled_cache(one, long, itemsize)
    every, first, longer = _seconds(
        lambda: [step(weights, short_cache) for weights in models],
        lambda: step(models[0], short_cache),
        lambda: step(models[0], long_cache),
    )
    # A difference of two times; what is less than a twentieth of one is not told from none.
    read = max(longer - first, longer / 20)
    return {
        'step_flops': len(models) * ROWS * 2 * one.layer_parameters / every,
        'cache_bytes': ROWS * (long - 8) * slot_bytes / read,
    }


def _filled_cache(one: Architecture, slots: int, itemsize: int) -> forward.Cache:
    dtype = jnp.float32 if itemsize == 4 else jnp.bfloat16

    def of(slots: int) -> tuple[forward.KeysValues, ...]:
        shape = (ROWS, one.num_kv_heads)
        return (
            forward.KeysValues(
                keys=jnp.full((*shape, one.head_dim, slots), 0.01, dtype),
                values=jnp.full((*shape, slots, one.head_dim), 0.01, dtype),
            ),
        )

    return forward.Cache(prompt=of(slots), example=of(8), lengths=jnp.full(ROWS, slots, jnp.int32))


def _of_the_output(one: Architecture, weights: Weights) -> dict[str, float]:
    states = jnp.full((ROWS, one.embed_dim), 0.5, jnp.float32)

    @jax.jit
    def of_one(weights: Weights) -> jax.Array:
        return forward.logits(one, weights, states[:1])

    @jax.jit
    def of_many(weights: Weights) -> jax.Array:
        found = forward.logits(one, weights, states)
        return jnp.maximum(found - found.max(axis=-1, keepdims=True), -10.0).sum(axis=0)

    one_row, many_rows = _seconds(lambda: of_one(weights), lambda: of_many(weights))
    return {
        'weight_bytes': weights.embedding.nbytes / one_row,
        'output_flops': 2 * weights.embedding.size * ROWS / many_rows,
    }


def _ranked_logits(architecture: Architecture) -> float:
    logits = jax.random.normal(jax.random.key(0), (architecture.num_embed,))
    best = jax.jit(lambda row: jax.lax.top_k(row, min(RANKED, architecture.num_embed)))
    (seconds,) = _seconds(lambda: best(logits))
    return architecture.num_embed / seconds


def _seconds(*calls: Callable[[], Any]) -> tuple[float, ...]:
    """Median seconds of each call, taken in turns; the first round compiles and does not count."""
    times: list[list[float]] = [[] for _ in calls]
    end = math.inf
    for number in range(ROUNDS + 1):
        for call, found in zip(calls, times, strict=True):
            begin = time.perf_counter()
            jax.block_until_ready(call())
            if number:
                found.append(time.perf_counter() - begin)
        if not number:
            end = time.perf_counter() + SECONDS
        elif number >= LEAST_ROUNDS and time.perf_counter() > end:
            break
    return tuple(statistics.median(found) for found in times)
