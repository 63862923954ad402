"""Gemma's forward pass for rows that share their next token, on the parameters of the gemma library.

The library defines every number, and tests/models/decoders/gemma/decoder_test.py holds this to its
logits for every kind of architecture. What differs is where the numbers lie. The library's cached
step copies keys and values that it only reads, and multiplies weights as they are stored for
training. Here

* weights are matrices as they are multiplied, those of queries, keys and values one (`arrange`);
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
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from etils import epy

if typing.TYPE_CHECKING:
    from models.decoders.gemma.architectures import Architecture, AttentionType

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# The score of a slot that may not be seen, and the variance of a norm that has none: the library's.
_UNSEEN = -2.3819763e38
_EPSILON = 1e-6

# Tokens that run through the layers together while prompts are read, where memory is the host's:
# their activations then stay in its cache.
_PIECE_TOKENS = 1024


class LowRank(NamedTuple):
    """Two factors whose product is added to a matrix `[A B]` (LoRA: Hu et al. 2021, equation 3)."""

    down: jax.Array  # [A r] float32
    up: jax.Array  # [r B] float32


class Adapted(NamedTuple):
    """A frozen matrix with its low-rank factors, which are never rounded into it."""

    frozen: jax.Array  # [A B]
    factors: LowRank

    @property
    def dtype(self) -> Any:
        """Type of the frozen matrix."""
        return self.frozen.dtype


class Layer(NamedTuple):
    """The weights of one layer.

    A norm is the library's `scale`, which is one less than its factor; None where a model has none.
    """

    pre_attention_norm: jax.Array  # [D]
    query_key_value: jax.Array | Adapted  # [D, (N + 2K) H]
    query_norm: jax.Array | None  # [H]
    key_norm: jax.Array | None  # [H]
    attention_output: jax.Array | Adapted  # [N H, D]
    post_attention_norm: jax.Array | None  # [D]
    pre_ffw_norm: jax.Array  # [D]
    gate_up: jax.Array | Adapted  # [D, 2F]
    down: jax.Array | Adapted  # [F, D]
    post_ffw_norm: jax.Array | None  # [D]


class Weights(NamedTuple):
    """All weights of a model."""

    embedding: jax.Array  # [V, D]; the output layer as well
    layers: tuple[Layer, ...]
    final_norm: jax.Array  # [D]


# The matrices of a layer that factors are added to.
ADAPTED = ('query_key_value', 'attention_output', 'gate_up', 'down')
# Factors by the name of the matrix, one entry for each layer; or a difference of all weights, float32.
Adapter = tuple[dict[str, LowRank], ...] | Weights


class KeysValues(NamedTuple):
    """What one layer keeps of some slots, of every row."""

    keys: jax.Array  # [m, K, H, slots]
    values: jax.Array  # [m, K, slots, H]


class Cache(NamedTuple):
    """What is kept of a micro-batch.

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


def arrange(
    architecture: Architecture, parameters: dict[str, Any], place: Callable[[Any], jax.Array]
) -> Weights:
    """Parameters of the library as a step multiplies them.

    Args:
        architecture: The numbers of the model.
        parameters: The library's nested parameters. They are taken out one layer after another, so
            that no more than one layer's weights lie in memory twice; the dictionary is empty
            afterwards.
        place: Puts a weight where it is to lie, in the type it is to have.
    """

    return Weights(
        embedding=place(parameters.pop('embedder')['input_embedding']),
        layers=tuple(
            jax.tree.map(place, _layer(architecture, parameters.pop(f'layer_{index}')))
            for index in range(architecture.num_layers)
        ),
        final_norm=place(parameters.pop('final_norm')['scale']),
    )


def _layer(a: Architecture, layer: dict[str, Any]) -> Layer:
    """The matrices of one layer, of the library's parameters for it."""
    attention, mlp = layer['attn'], layer['mlp']
    if a.num_heads == a.num_kv_heads:
        heads = attention['qkv_einsum']['w'].reshape(-1, a.embed_dim, a.head_dim)
    else:
        key_value = attention['kv_einsum']['w'].reshape(-1, a.embed_dim, a.head_dim)
        heads = jnp.concatenate([attention['q_einsum']['w'], key_value])
    # [2 F D] or [2 D F].
    gate_up = mlp['gating_einsum'].transpose((2, 0, 1) if a.transpose_gating_einsum else (1, 0, 2))

    def norm(weights: dict[str, Any], name: str) -> Any:
        return weights[name]['scale'] if name in weights else None

    return Layer(
        pre_attention_norm=norm(layer, 'pre_attention_norm'),
        query_key_value=heads.transpose(1, 0, 2).reshape(a.embed_dim, -1),
        query_norm=norm(attention, '_query_norm'),
        key_norm=norm(attention, '_key_norm'),
        attention_output=attention['attn_vec_einsum']['w'].reshape(-1, a.embed_dim),
        post_attention_norm=norm(layer, 'post_attention_norm'),
        pre_ffw_norm=norm(layer, 'pre_ffw_norm'),
        gate_up=gate_up.reshape(a.embed_dim, -1),
        down=mlp['linear'],
        post_ffw_norm=norm(layer, 'post_ffw_norm'),
    )


def adapter_shapes(architecture: Architecture, rank: int | None) -> Adapter:
    """The factors of every layer, or the difference of all weights, as `jax.ShapeDtypeStruct` of float32."""
    a = architecture
    sizes = {
        'query_key_value': (a.embed_dim, (a.num_heads + 2 * a.num_kv_heads) * a.head_dim),
        'attention_output': (a.num_heads * a.head_dim, a.embed_dim),
        'gate_up': (a.embed_dim, 2 * a.hidden_dim),
        'down': (a.hidden_dim, a.embed_dim),
    }

    def of(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    if rank is None:
        of_head = of(a.head_dim) if a.use_qk_norm else None
        after = of(a.embed_dim) if a.use_post_norms else None
        layer = Layer(
            pre_attention_norm=of(a.embed_dim),
            query_norm=of_head,
            key_norm=of_head,
            post_attention_norm=after,
            pre_ffw_norm=of(a.embed_dim),
            post_ffw_norm=after,
            **{name: of(*shape) for name, shape in sizes.items()},
        )
        return Weights(
            embedding=of(a.num_embed, a.embed_dim),
            layers=(layer,) * a.num_layers,
            final_norm=of(a.embed_dim),
        )
    return tuple(
        {name: LowRank(of(rows, rank), of(rank, columns)) for name, (rows, columns) in sizes.items()}
        for _ in range(a.num_layers)
    )


def adapt(weights: Weights, adapter: Adapter) -> Weights:
    """Weights with an adapter: its factors beside their matrices, or its difference added to all of them."""
    if isinstance(adapter, Weights):
        added: Weights = jax.tree.map(_added, weights, adapter)
        return added
    layers = (
        Layer(**layer._asdict() | {name: Adapted(getattr(layer, name), of[name]) for name in ADAPTED})
        for layer, of in zip(weights.layers, adapter, strict=True)
    )
    return weights._replace(layers=tuple(layers))


def _added(weight: jax.Array, difference: jax.Array) -> jax.Array:
    """The sum in the weight's type: rounded there alone, so that small steps of training add up."""
    return (weight.astype(jnp.float32) + difference).astype(weight.dtype)


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
        in_pieces: Whether some rows at a time go through all layers, which is faster where they
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
        pieces = jax.tree.map(lambda of: of.reshape(rows // size, size, *of.shape[1:]), (tokens, lengths))
        states, prompt = jax.tree.map(lambda of: of.reshape(rows, *of.shape[2:]), jax.lax.map(read, pieces))
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
    x, kept = _read_all(a, weights, tokens)
    last = x[jnp.arange(len(lengths)), lengths - 1]
    return _normed(last, weights.final_norm), kept


def states(architecture: Architecture, weights: Weights, tokens: jax.Array) -> jax.Array:
    """States `[m L D]` float32 after every token of texts `[m L]`; a token changes none before it."""
    return _normed(_read_all(architecture, weights, tokens)[0], weights.final_norm)


def _read_all(
    a: Architecture, weights: Weights, tokens: jax.Array
) -> tuple[jax.Array, tuple[KeysValues, ...]]:
    """What the last layer gives `[m P D]`, and the keys and values of all slots."""
    slots = jnp.arange(tokens.shape[1])
    x = _embedded(a, weights, tokens)
    kept = []
    for kind, layer in zip(a.attention_types, weights.layers, strict=True):
        seen = slots <= slots[:, None]
        if kind == 'local':
            seen &= slots > slots[:, None] - _window(a)

        def attend(
            query: jax.Array, key: jax.Array, value: jax.Array, seen: jax.Array = seen
        ) -> tuple[jax.Array, KeysValues]:
            keys, values = key.transpose(0, 2, 3, 1), value.transpose(0, 2, 1, 3)
            scores = _product('mqkgh,mkhp->mkgqp', query, keys)
            mixed = _product('mkgqp,mkph->mqkgh', _shares(a, scores, seen).astype(values.dtype), values)
            return mixed, KeysValues(keys, values)

        x, keys_values = _through_layer(a, kind, layer, x, slots, attend)
        kept.append(keys_values)
    return x, tuple(kept)


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
        cache: What `read_prompts` or the call before gave.
        tokens: `[R]` int32, or `[m R]` of each row its own, of which the first `count` are appended. What
            follows them changes nothing.
        count: int32 scalar, 1 to R.
        offset: int32 scalar: tokens of the example before these; `offset + R` is at most T.
        lengths: Numbers of tokens for which there is a program beside that for R: the shortest that holds
            `count` reads them.
        compile_once: Whether several micro-batches of one program share a subroutine of it, or each has
            its own copy, whose compilation takes as long again.

    Returns:
        The states `[m D]` float32 after the last token, and the cache with the tokens in it.
    """
    read, most = _compiled_once() if compile_once else _read_tokens, tokens.shape[-1]

    def reading(length: int) -> Callable[[], tuple[jax.Array, tuple[KeysValues, ...]]]:
        def padded(of: jax.Array, axis: int) -> jax.Array:
            return jnp.pad(of, [(0, most - length if axis == place else 0) for place in range(of.ndim)])

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
    example = tuple(
        KeysValues(
            jax.lax.dynamic_update_slice_in_dim(old.keys, new.keys, offset, 3),
            jax.lax.dynamic_update_slice_in_dim(old.values, new.values, offset, 2),
        )
        for old, new in zip(cache.example, slots, strict=True)
    )
    return states, cache._replace(example=example)


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
    offsets = offset + places
    positions = cache.lengths[:, None] + offsets
    prompt_slots = jnp.arange(cache.prompt[0].keys.shape[-1])
    example_slots = jnp.arange(cache.example[0].keys.shape[-1])
    x = jnp.broadcast_to(_embedded(a, weights, tokens), (rows, appended, a.embed_dim))
    slots = []
    for kind, layer, prompt, example in zip(
        a.attention_types, weights.layers, cache.prompt, cache.example, strict=True
    ):
        # [m q P], [q T] and [q q].
        of_prompt = prompt_slots < jnp.broadcast_to(cache.lengths[:, None, None], (rows, appended, 1))
        of_example = jnp.broadcast_to(example_slots < offset, (appended, len(example_slots)))
        of_tokens = places <= places[:, None]
        if kind == 'local':
            of_prompt &= prompt_slots > positions[..., None] - _window(a)
            of_example &= example_slots > offsets[:, None] - _window(a)
            of_tokens &= places > places[:, None] - _window(a)
        shared = jnp.concatenate([of_example, of_tokens], axis=-1)
        shared = jnp.broadcast_to(shared, (rows, *shared.shape))
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
            scores = jnp.concatenate([_product('mkqh,mkhp->mkqp', query, part.keys) for part in parts], -1)
            shares = _shares(a, scores, jnp.repeat(seen, groups, axis=2)).astype(query.dtype)
            ends = [len(prompt_slots), len(prompt_slots) + len(example_slots)]
            of_parts = jnp.split(shares, ends, axis=-1)
            mixed = [
                _product('mkqp,mkph->mkqh', share, part.values)
                for share, part in zip(of_parts, parts, strict=True)
            ]
            found = sum(mixed[1:], mixed[0]).reshape(rows, kv_heads, tokens, groups, width)
            return found.transpose(0, 2, 1, 3, 4), new

        x, slot = _through_layer(a, kind, layer, x, positions, attend)
        slots.append(slot)
    last = jax.lax.dynamic_index_in_dim(x, count - 1, 1, keepdims=False)
    return _normed(last, weights.final_norm), tuple(slots)


def logits(
    architecture: Architecture, weights: Weights, states: jax.Array, columns: jax.Array | None = None
) -> jax.Array:
    """The output layer: `[m V]` float32 of states `[m D]`, or `[m C]` of the columns `[C]` alone."""
    table, rows = weights.embedding, len(states)
    if columns is not None:
        table = jnp.take(table, columns, axis=0, mode='clip')
    states = states.astype(table.dtype)
    if table.dtype != jnp.float32 and rows < 8:
        # A processor's product of few rows in bfloat16 falls back to a loop ten times as slow.
        states = jnp.pad(states, ((0, 8 - rows), (0, 0)))
    found = _product('md,vd->mv', states, table)[:rows]
    cap = architecture.final_logit_softcap
    return found if cap is None else jnp.tanh(found / cap) * cap


def _embedded(a: Architecture, weights: Weights, tokens: jax.Array) -> jax.Array:
    """`[... D]` float32; the factor is rounded as the library rounds it."""
    factor = jnp.sqrt(jnp.asarray(a.embed_dim, jnp.float32)).astype(weights.embedding.dtype)
    return weights.embedding[tokens].astype(jnp.float32) * factor.astype(jnp.float32)


def _through_layer(
    a: Architecture,
    kind: AttentionType,
    layer: Layer,
    x: jax.Array,
    positions: jax.Array,
    attend: Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, KeysValues]],
) -> tuple[jax.Array, KeysValues]:
    """One layer on `[m q D]`, q tokens a row, at positions that broadcast to `[m q]`.

    `attend` takes queries `[m q K G H]`, keys and values `[m q K H]`, and gives the mixed values
    `[m q K G H]` and what is to be kept.
    """
    leading, dtype = x.shape[:-1], layer.query_key_value.dtype
    heads = _matmul(_normed(x, layer.pre_attention_norm), layer.query_key_value)
    heads = heads.reshape(*leading, a.num_heads + 2 * a.num_kv_heads, a.head_dim)
    query, key, value = jnp.split(heads, [a.num_heads, a.num_heads + a.num_kv_heads], axis=-2)
    rotation = _rotation(a, kind, positions)
    query = _rotated(_normed(query, layer.query_norm), rotation) * a.query_scale
    key = _rotated(_normed(key, layer.key_norm), rotation)
    query = query.reshape(*leading, a.num_kv_heads, a.num_heads // a.num_kv_heads, a.head_dim)
    mixed, kept = attend(query.astype(dtype), key.astype(dtype), value.astype(dtype))
    output = _matmul(mixed.reshape(*leading, -1), layer.attention_output)
    x = x + _normed(output, layer.post_attention_norm)
    gate, up = jnp.split(_matmul(_normed(x, layer.pre_ffw_norm), layer.gate_up), 2, axis=-1)
    return x + _normed(_matmul(jax.nn.gelu(gate) * up, layer.down), layer.post_ffw_norm), kept


def _normed(x: jax.Array, scale: jax.Array | None) -> jax.Array:
    """Root mean square norm over the last axis; `x` itself where the model has none here."""
    if scale is None:
        return x
    variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(variance + _EPSILON) * (1 + scale.astype(jnp.float32))


def _rotation(a: Architecture, kind: AttentionType, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines `[... 1 H/2]` of the rotary positions."""
    local = kind == 'local'
    base = a.local_base_frequency if local else a.global_base_frequency
    factor = a.local_scale_factor if local else a.global_scale_factor
    wavelengths = base ** ((2.0 / a.head_dim) * jnp.arange(a.head_dim // 2, dtype=jnp.float32))
    angles = (positions[..., None, None] / wavelengths) / factor
    return jnp.cos(angles), jnp.sin(angles)


def _rotated(x: jax.Array, rotation: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turns the first half of each head against the second."""
    (cos, sin), (first, second) = rotation, jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _shares(a: Architecture, scores: jax.Array, seen: jax.Array) -> jax.Array:
    """How much of each slot a query takes: softmax of the scores of what is seen, float32."""
    if a.attn_logits_soft_cap is not None:
        scores = jnp.tanh(scores / a.attn_logits_soft_cap) * a.attn_logits_soft_cap
    return jax.nn.softmax(jnp.where(seen, scores, _UNSEEN), axis=-1)


def _window(a: Architecture) -> int:
    if a.sliding_window_size is None:
        raise ValueError('Expected a window for local layers, got sliding_window_size=None. Give it.')
    return a.sliding_window_size


def _matmul(x: jax.Array, weight: jax.Array | Adapted) -> jax.Array:
    """`[... A]` float32 times `[A B]`, multiplied in the weight's type and summed in float32.

    With low-rank factors their product's part on top, in float32.
    """
    if isinstance(weight, Adapted):
        return _matmul(x, weight.frozen) + _matmul(_matmul(x, weight.factors.down), weight.factors.up)
    return jnp.dot(x.astype(weight.dtype), weight, preferred_element_type=jnp.float32)


def _product(subscripts: str, left: jax.Array, right: jax.Array) -> jax.Array:
    """`einsum` of two arrays of one type, summed in float32."""
    return jnp.einsum(subscripts, left, right, preferred_element_type=jnp.float32)
