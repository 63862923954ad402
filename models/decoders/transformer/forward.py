"""The forward pass of a decoder-only transformer, for rows that step together.

The gemma library defines every number of Gemma, and tests/models/decoders/gemma/decoder_test.py holds this to
its logits for every kind of architecture. It differs in where the numbers lie. The library's cached step
copies keys and values that it only reads, and multiplies weights as they are stored for training. Here

* weights are arranged as they are multiplied (`weights.py`);
* the prompts' keys and values are written once, and a step reads them where they lie; a step writes
  the slots of its tokens in the example's, in place;
* keys lie with their slots innermost, as products with queries read them;
* norms, rotations, softmax and the sum of the layers' outputs are float32, whatever the weights
  and the cache are kept in.

Symbols are those of `Architecture`: V D F N K H; and m rows, P slots of a prompt, T of an example,
R tokens of a step, G = N/K query heads for a key head.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from etils import epy

from models.decoders.transformer.architecture import Architecture, AttentionType
from models.decoders.transformer.layer import (
    KeysValues,
    attention_shares,
    normed,
    product,
    through_layer,
    window,
)
from models.decoders.transformer.weights import Weights

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# Tokens that run through the layers together while prompts are read, where memory is the host's:
# their activations then stay in its cache.
_PIECE_TOKENS = 1024


class Cache(NamedTuple):
    """The keys and values of a micro-batch.

    Prompts of different lengths share slots: each row's own begin at slot 0, and what
    lies between its end and P is never seen. A row's example goes on at the position
    after its prompt.

    Attributes:
        prompt: P slots for each layer; written by `read_prompts` alone.
        example: T slots for each layer; slot t holds the example's token t. An example begins
            by writing slot 0 anew.
        lengths: `[m]` int32, the prompts' tokens.
    """

    prompt: tuple[KeysValues, ...]
    example: tuple[KeysValues, ...]
    lengths: jax.Array


def read_prompts(
    architecture: Architecture,
    weights: Weights,
    tokens: jax.Array,
    lengths: jax.Array,
    *,
    example_slots: int,
    in_pieces: bool,
) -> tuple[jax.Array, Cache]:
    """Runs prompts through the model.

    Args:
        architecture: The numbers of the model.
        weights: Its weights.
        tokens: `[m P]` int32; what follows a prompt's end changes nothing.
        lengths: `[m]` int32, 1 to P.
        example_slots: T.
        in_pieces: True if some rows at a time go through all layers, which is faster where they
            share a processor's cache, or all rows at once.

    Returns:
        States `[m D]` float32 after each prompt, and the cache.
    """
    rows, prompt_slots = tokens.shape

    def read(piece: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, tuple[KeysValues, ...]]:
        return _read(architecture, weights, *piece)

    if in_pieces:
        # Whole blocks of 8 rows, or single ones: see `family.ROWS_MULTIPLE`.
        wanted = 1 if prompt_slots >= _PIECE_TOKENS else 8 * -(-_PIECE_TOKENS // (8 * prompt_slots))
        size = math.gcd(rows, wanted)
        pieces = jax.tree.map(
            lambda array: array.reshape(rows // size, size, *array.shape[1:]), (tokens, lengths)
        )
        states, prompt = jax.tree.map(
            lambda array: array.reshape(rows, *array.shape[2:]), jax.lax.map(read, pieces)
        )
    else:
        states, prompt = read((tokens, lengths))
    a, dtype = architecture, weights.embedding.dtype
    example = tuple(
        KeysValues(
            keys=jnp.zeros((rows, a.num_kv_heads, a.head_dim, example_slots), dtype),
            values=jnp.zeros((rows, a.num_kv_heads, example_slots, a.head_dim), dtype),
        )
        for _ in prompt
    )
    return states, Cache(prompt=prompt, example=example, lengths=lengths)


def _read(
    a: Architecture, weights: Weights, tokens: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, tuple[KeysValues, ...]]:
    """States `[m D]` after prompts `[m P]`, and the keys and values of all their slots."""
    x, kept = read_all(a, weights, tokens)
    last = x[jnp.arange(len(lengths)), lengths - 1]
    return normed(a, last, weights.final_norm), kept


def states(architecture: Architecture, weights: Weights, tokens: jax.Array) -> jax.Array:
    """States `[m L D]` float32 after every token of texts `[m L]`; a token changes none before it."""
    return normed(architecture, read_all(architecture, weights, tokens)[0], weights.final_norm)


def read_all(
    a: Architecture, weights: Weights, tokens: jax.Array
) -> tuple[jax.Array, tuple[KeysValues, ...]]:
    """The output of the last layer `[m P D]`, and the keys and values of all slots."""
    slots = jnp.arange(tokens.shape[1])
    x = embedded(a, weights, tokens)
    kept = []
    for kind, layer in zip(a.attention_types, weights.layers, strict=True):
        x, keys_values = through_layer(a, kind, layer, x, slots, to_itself(a, kind, slots))
        kept.append(keys_values)
    return x, tuple(kept)


def to_itself(
    a: Architecture, kind: AttentionType, slots: jax.Array
) -> Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, KeysValues]]:
    """Attention of the tokens of a text to those before them, for `through_layer`."""
    seen = slots <= slots[:, None]
    if kind == 'local':
        seen &= slots > slots[:, None] - window(a)

    def attend(query: jax.Array, key: jax.Array, value: jax.Array) -> tuple[jax.Array, KeysValues]:
        keys, values = key.transpose(0, 2, 3, 1), value.transpose(0, 2, 1, 3)
        scores = product('mqkgh,mkhp->mkgqp', query, keys)
        mixed = product('mkgqp,mkph->mqkgh', attention_shares(a, scores, seen).astype(values.dtype), values)
        return mixed, KeysValues(keys, values)

    return attend


def append(
    architecture: Architecture,
    weights: Weights,
    cache: Cache,
    tokens: jax.Array,
    count: jax.Array,
    offset: jax.Array,
    *,
    lengths: Sequence[int] = (),
    compile_once: bool = False,
) -> tuple[jax.Array, Cache]:
    """Appends tokens to every row: the same ones, or each row's own.

    Args:
        architecture: The numbers of the model.
        weights: Its weights.
        cache: The result of `read_prompts` or of the call before.
        tokens: `[R]` int32, or `[m R]` with each row's own; the first `count` are appended, and the others
            have no effect.
        count: int32 scalar, 1 to R.
        offset: int32 scalar, or `[m]`, each row's own: tokens of the example before these; `offset + R` is
            at most T.
        lengths: Numbers of tokens that have a program of their own, beside the one for R; the smallest one
            that is at least `count` is used.
        compile_once: True if the micro-batches of a program share one subroutine. Otherwise each has a
            copy, and every copy takes the compiler as long as the first.

    Returns:
        The states `[m D]` float32 after the last token, and the cache with the tokens in it.
    """
    read, most = _compiled_once() if compile_once else _read_tokens, tokens.shape[-1]

    def reading(length: int) -> Callable[[], tuple[jax.Array, tuple[KeysValues, ...]]]:
        def padded(array: jax.Array, axis: int) -> jax.Array:
            return jnp.pad(array, [(0, most - length if axis == place else 0) for place in range(array.ndim)])

        def of_length() -> tuple[jax.Array, tuple[KeysValues, ...]]:
            states, slots = read(architecture, weights, cache, tokens[..., :length], count, offset)
            return states, tuple(KeysValues(padded(new.keys, 3), padded(new.values, 2)) for new in slots)

        return of_length

    of_lengths = [*sorted(length for length in set(lengths) if length < most), most]
    if len(of_lengths) == 1:
        states, slots = reading(most)()
    else:
        states, slots = jax.lax.switch(
            jnp.searchsorted(jnp.array(of_lengths), count), [reading(length) for length in of_lengths]
        )
    # A branch or a subroutine would copy the example's slots if it wrote to them. So all R are written
    # here: those past the last token are not seen before they are written anew.
    written = _written_each if jnp.ndim(offset) else _written
    example = tuple(written(old, new, offset) for old, new in zip(cache.example, slots, strict=True))
    return states, cache._replace(example=example)


def _written(old: KeysValues, new: KeysValues, offset: jax.Array) -> KeysValues:
    """The example's slots, with new ones at one offset of all rows."""
    return KeysValues(
        jax.lax.dynamic_update_slice_in_dim(old.keys, new.keys, offset, 3),
        jax.lax.dynamic_update_slice_in_dim(old.values, new.values, offset, 2),
    )


def _written_each(old: KeysValues, new: KeysValues, offsets: jax.Array) -> KeysValues:
    """The example's slots, with new ones at each row's own offset `[m]`."""
    in_row = jax.lax.dynamic_update_slice_in_dim
    return KeysValues(
        jax.vmap(lambda old, new, offset: in_row(old, new, offset, 2))(old.keys, new.keys, offsets),
        jax.vmap(lambda old, new, offset: in_row(old, new, offset, 1))(old.values, new.values, offsets),
    )


@functools.cache
def _compiled_once() -> Callable[..., tuple[jax.Array, tuple[KeysValues, ...]]]:
    """`_read_tokens` as a subroutine that the compiler keeps, and shares between its callers."""
    return jax.jit(_read_tokens, static_argnums=0, inline=jax.Inline.XLA_LATE)


def _read_tokens(
    a: Architecture, weights: Weights, cache: Cache, tokens: jax.Array, count: jax.Array, offset: jax.Array
) -> tuple[jax.Array, tuple[KeysValues, ...]]:
    """States `[m D]` after the first `count` of tokens `[q]` or `[m q]`, and keys and values of q slots."""
    rows, appended = len(cache.lengths), tokens.shape[-1]
    places = jnp.arange(appended)
    # [1 q] where all rows stand at one offset, [m q] where each has its own.
    offsets = jnp.reshape(offset, (-1, 1)) + places
    positions = cache.lengths[:, None] + offsets
    prompt_slots = jnp.arange(cache.prompt[0].keys.shape[-1])
    example_slots = jnp.arange(cache.example[0].keys.shape[-1])
    x = jnp.broadcast_to(embedded(a, weights, tokens), (rows, appended, a.embed_dim))
    slots = []
    for kind, layer, prompt, example in zip(
        a.attention_types, weights.layers, cache.prompt, cache.example, strict=True
    ):
        # [m q P], [1 q T] or [m q T], and [q q].
        of_prompt = prompt_slots < jnp.broadcast_to(cache.lengths[:, None, None], (rows, appended, 1))
        written = example_slots < jnp.reshape(offset, (-1, 1, 1))
        of_example = jnp.broadcast_to(written, (len(offsets), appended, len(example_slots)))
        of_tokens = places <= places[:, None]
        if kind == 'local':
            of_prompt &= prompt_slots > positions[..., None] - window(a)
            of_example &= example_slots > offsets[..., None] - window(a)
            of_tokens &= places > places[:, None] - window(a)
        of_tokens = jnp.broadcast_to(of_tokens, (len(offsets), *of_tokens.shape))
        shared = jnp.concatenate([of_example, of_tokens], axis=-1)
        shared = jnp.broadcast_to(shared, (rows, *shared.shape[1:]))
        seen = jnp.concatenate([of_prompt, shared], axis=-1)[:, None]

        def attend(
            query: jax.Array,
            key: jax.Array,
            value: jax.Array,
            seen: jax.Array = seen,
            prompt: KeysValues = prompt,
            example: KeysValues = example,
        ) -> tuple[jax.Array, KeysValues]:
            # The queries of several tokens stand beside one another like those of several heads.
            rows, tokens, kv_heads, groups, width = query.shape
            query = query.transpose(0, 2, 1, 3, 4).reshape(rows, kv_heads, tokens * groups, width)
            new = KeysValues(key.transpose(0, 2, 3, 1), value.transpose(0, 2, 1, 3))
            parts = (prompt, example, new)
            scores = jnp.concatenate([product('mkqh,mkhp->mkqp', query, part.keys) for part in parts], -1)
            shares = attention_shares(a, scores, jnp.repeat(seen, groups, axis=2)).astype(query.dtype)
            ends = [len(prompt_slots), len(prompt_slots) + len(example_slots)]
            of_parts = jnp.split(shares, ends, axis=-1)
            mixed = [
                product('mkqp,mkph->mkqh', share, part.values)
                for share, part in zip(of_parts, parts, strict=True)
            ]
            values = sum(mixed[1:], mixed[0]).reshape(rows, kv_heads, tokens, groups, width)
            return values.transpose(0, 2, 1, 3, 4), new

        x, slot = through_layer(a, kind, layer, x, positions, attend)
        slots.append(slot)
    last = jax.lax.dynamic_index_in_dim(x, count - 1, 1, keepdims=False)
    return normed(a, last, weights.final_norm), tuple(slots)


def logits(
    architecture: Architecture, weights: Weights, states: jax.Array, columns: jax.Array | None = None
) -> jax.Array:
    """The output layer: `[m V]` float32 of states `[m D]`, or `[m C]` of the columns `[C]` alone."""
    table, rows = weights.output_layer, len(states)
    if columns is not None:
        table = jnp.take(table, columns, axis=0, mode='clip')
    states = states.astype(table.dtype)
    if table.dtype != jnp.float32 and rows < 8:
        # A processor's product of few rows in bfloat16 falls back to a loop ten times as slow.
        states = jnp.pad(states, ((0, 8 - rows), (0, 0)))
    raw = product('md,vd->mv', states, table)[:rows]
    cap = architecture.final_logit_softcap
    return raw if cap is None else jnp.tanh(raw / cap) * cap


def embedded(a: Architecture, weights: Weights, tokens: jax.Array) -> jax.Array:
    """`[... D]` float32; a factor is rounded as the gemma library rounds it."""
    if not a.scales_embedding:
        return weights.embedding[tokens].astype(jnp.float32)
    factor = jnp.sqrt(jnp.asarray(a.embed_dim, jnp.float32)).astype(weights.embedding.dtype)
    return weights.embedding[tokens].astype(jnp.float32) * factor.astype(jnp.float32)
