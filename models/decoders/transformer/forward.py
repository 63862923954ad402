"""The forward pass of a decoder-only transformer, for rows that step together.

The gemma library defines every number of Gemma, and tests/models/decoders/gemma/decoder_test.py holds this to
its logits for every kind of architecture. It differs in where the numbers lie. The library's cached step
copies keys and values that it only reads, and multiplies weights as they are stored for training. Here

* weights are arranged as they are multiplied (`weights.py`);
* prompt and example share one cache, so that attention is two products; a step writes the slots of its
  tokens in place, before they are read;
* norms, rotations, softmax and the sum of the layers' outputs are float32, whatever the weights
  and the cache are kept in.

Symbols are those of `Architecture`: V D F N K H; and m rows, P slots of a prompt, T of an example,
S = P + T, R tokens of a step, G = N/K query heads for a key head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from etils import epy

from models.decoders.transformer import altup, per_layer, sharded
from models.decoders.transformer.architecture import Architecture, AttentionType, LayerSizes
from models.decoders.transformer.arithmetic import Multiply, normed, product
from models.decoders.transformer.layer import Attend, KeysValues, attention_shares, through_layer, window
from models.decoders.transformer.weights import Weights

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp


class Cache(NamedTuple):
    """The keys and values of a micro-batch.

    Prompts of different lengths share slots: each row's own begin at slot 0, and what
    lies between its end and P is never seen. Slot P + t holds the example's token t, which stands
    t places after the prompt. An example begins by writing slot P anew.

    Attributes:
        layers: S slots for each layer with keys of its own; those without are the last ones.
        lengths: `[m]` int32, the prompts' tokens.
    """

    layers: tuple[KeysValues, ...]
    lengths: jax.Array


def read_prompts(
    architecture: Architecture,
    weights: Weights,
    tokens: jax.Array,
    lengths: jax.Array,
    *,
    example_slots: int,
    piece_tokens: int,
    is_sharded: bool = False,
) -> tuple[jax.Array, Cache]:
    """Runs prompts through the model, some rows at a time.

    Args:
        architecture: The numbers of the model.
        weights: Its weights.
        tokens: `[m P]` int32; what follows a prompt's end changes nothing.
        lengths: `[m]` int32, 1 to P.
        example_slots: T.
        piece_tokens: Tokens of the rows that go through all layers together, roughly.
        is_sharded: True if the weights are sharded over the devices: see `sharded.py`.

    Returns:
        States `[m D]` float32 after each prompt, and the cache.
    """
    rows, prompt_slots = tokens.shape
    a, dtype = architecture, weights.embedding.dtype
    # Whole blocks of 8 rows, or single ones: see `family.ROWS_MULTIPLE`.
    block = 1 if prompt_slots >= piece_tokens else 8
    pieces = -(-rows // (block * -(-piece_tokens // (block * prompt_slots))))
    size = min(rows, block * -(-rows // (block * pieces)))

    def read(index: jax.Array, carry: tuple[jax.Array, tuple[KeysValues, ...]]) -> Any:
        # The last piece ends with the last row: rows that it shares with the piece before have the same bits.
        first = jnp.minimum(index * size, rows - size)
        piece = (jax.lax.dynamic_slice_in_dim(array, first, size) for array in (tokens, lengths))
        return jax.tree.map(
            lambda array, new: jax.lax.dynamic_update_slice(array, new, (first, *[0] * (array.ndim - 1))),
            carry,
            _read(a, weights, *piece, is_sharded=is_sharded),
        )

    slots = prompt_slots + example_slots
    empty = (
        jnp.zeros((rows, layer.num_kv_heads, slots, layer.head_dim), dtype)
        for layer in a.layers
        if layer.has_keys
    )
    begun = jnp.zeros((rows, a.embed_dim)), tuple(KeysValues(zeros, zeros) for zeros in empty)
    states, layers = jax.lax.fori_loop(0, pieces, read, begun)
    return states, Cache(layers=layers, lengths=lengths)


def _read(
    a: Architecture, weights: Weights, tokens: jax.Array, lengths: jax.Array, *, is_sharded: bool
) -> tuple[jax.Array, tuple[KeysValues, ...]]:
    """States `[m D]` after prompts `[m P]`, and the keys and values of all their slots."""
    entering = embedded(a, weights, tokens, is_sharded=is_sharded)
    multiply = sharded.multiply if is_sharded else None
    with_keys = [layer for layer in a.layers if layer.has_keys]
    x, kept = _through(a, weights, with_keys, entering, jnp.arange(tokens.shape[1]), (), multiply)
    # Other tokens of a prompt are seen again by their keys and values alone.
    last = jnp.arange(len(lengths)), lengths - 1
    entering = Embedded(
        x[last][:, None], None if entering.of_layers is None else entering.of_layers[last][:, None]
    )
    positions = lengths[:, None] - 1
    x, _ = _through(a, weights, a.layers[len(with_keys) :], entering, positions, kept, multiply)
    return leaving(a, weights, x[:, 0]), kept


def states(architecture: Architecture, weights: Weights, tokens: jax.Array) -> jax.Array:
    """States `[m L D]` float32 after every token of texts `[m L]`; a token changes none before it."""
    a, entering = architecture, embedded(architecture, weights, tokens)
    return leaving(a, weights, _through(a, weights, a.layers, entering, jnp.arange(tokens.shape[1]))[0])


def _through(
    a: Architecture,
    weights: Weights,
    layers: Sequence[LayerSizes],
    entering: Embedded,
    positions: jax.Array,
    kept: tuple[KeysValues, ...] = (),
    multiply: Multiply | None = None,
) -> tuple[jax.Array, tuple[KeysValues, ...]]:
    """The output of some layers, and keys and values of layers before them and theirs."""
    x = entering.x
    for layer in layers:
        attend = to_itself(a, layer, positions, None if layer.has_keys else kept[layer.reads])
        of_tokens = entering.of_layer(layer.index)
        x, keys_values = through_layer(
            a, layer, weights.layers[layer.index], x, of_tokens, positions, attend, multiply
        )
        if layer.has_keys:
            kept = (*kept, keys_values)
    return x, kept


def to_itself(
    a: Architecture, layer: LayerSizes, positions: jax.Array, kept: KeysValues | None = None
) -> Attend:
    """Attention of tokens of texts, at some positions, to those before them in all slots of the texts.

    Args:
        a: The numbers of the model.
        layer: Those of the layer.
        positions: `[q]` of every text, or each one's own `[m q]`.
        kept: Keys and values of an earlier layer, for one that has none.
    """

    def attend(query: jax.Array, new: KeysValues | None) -> tuple[jax.Array, KeysValues]:
        if new is not None:
            keys, values = (array.transpose(0, 2, 1, 3) for array in new)
        elif kept is not None:
            keys, values = kept
        else:
            raise ValueError(f'Expected keys and values for layer={layer.index}, got kept=None. Give them.')
        slots = jnp.arange(keys.shape[2])
        seen = slots <= positions[..., None]
        if layer.attention_type == 'local':
            seen &= slots > positions[..., None] - window(a)
        # By row, head and group.
        seen = seen.reshape(-1, 1, 1, *seen.shape[-2:])
        scores = product('mqkgh,mkph->mkgqp', query, keys)
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
    example_slots: int,
    lengths: Sequence[int] = (),
    is_sharded: bool = False,
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
        example_slots: T.
        lengths: Numbers of tokens that have a program of their own, beside the one for R; the smallest one
            that is at least `count` is used.
        is_sharded: True if the weights are sharded over the devices: see `sharded.py`.

    Returns:
        The states `[m D]` float32 after the last token, and the cache with the tokens in it.
    """
    most = tokens.shape[-1]

    def of_length(length: int, cache: Cache) -> tuple[jax.Array, Cache]:
        return _append(
            architecture,
            weights,
            cache,
            tokens[..., :length],
            count,
            offset,
            example_slots=example_slots,
            is_sharded=is_sharded,
        )

    of_lengths = [*sorted(length for length in set(lengths) if length < most), most]
    if len(of_lengths) == 1:
        return of_length(most, cache)
    states = jnp.zeros((len(cache.lengths), architecture.embed_dim))
    for before, length in zip([0, *of_lengths], of_lengths, strict=False):
        # A loop of one turn or none writes the cache in place, where a branch would copy it.
        turns = ((before < count) & (count <= length)).astype(jnp.int32)
        states, cache = jax.lax.fori_loop(
            0, turns, lambda _, carry, length=length: of_length(length, carry[1]), (states, cache)
        )
    return states, cache


def _append(
    a: Architecture,
    weights: Weights,
    cache: Cache,
    tokens: jax.Array,
    count: jax.Array,
    offset: jax.Array,
    *,
    example_slots: int,
    is_sharded: bool,
) -> tuple[jax.Array, Cache]:
    """States `[m D]` after the first `count` of tokens `[q]` or `[m q]`, and the cache with all q.

    Those past the last token are not seen before they are written anew.
    """
    rows, appended = len(cache.lengths), tokens.shape[-1]
    slots = cache.layers[0].keys.shape[2]
    first = slots - example_slots
    # [1 q] where all rows stand at one offset, [m q] where each has its own.
    offsets = jnp.reshape(offset, (-1, 1)) + jnp.arange(appended)
    positions = cache.lengths[:, None] + offsets
    seen = {
        kind: _seen(a, kind, cache.lengths, offsets, positions, slots, first)
        for kind in dict.fromkeys(a.attention_types)
    }
    entering = embedded(a, weights, tokens, is_sharded=is_sharded)
    x = jnp.broadcast_to(entering.x, (rows, *entering.x.shape[tokens.ndim - 1 :]))
    multiply = sharded.multiply if is_sharded else None
    layers: list[KeysValues] = []
    for layer in a.layers:

        def attend(
            query: jax.Array,
            new: KeysValues | None,
            seen: jax.Array = seen[layer.attention_type],
            reads: int = layer.reads,
        ) -> tuple[jax.Array, KeysValues]:
            # The queries of several tokens stand beside one another like those of several heads.
            rows, tokens, kv_heads, groups, width = query.shape
            query = query.transpose(0, 2, 1, 3, 4).reshape(rows, kv_heads, tokens * groups, width)
            if new is None:
                keys, values = kept = layers[reads]
            else:
                before, (key, value) = cache.layers[reads], new
                written = KeysValues(
                    _written(before.keys, key.transpose(0, 2, 1, 3), first + offset),
                    _written(before.values, value.transpose(0, 2, 1, 3), first + offset),
                )
                # The barrier keeps the compiler from writing twice: for the product, and for the next step.
                keys, values = kept = KeysValues(*jax.lax.optimization_barrier(tuple(written)))
            scores = product('mkqh,mkph->mkqp', query, keys)
            shares = attention_shares(a, scores, jnp.repeat(seen, groups, axis=2)).astype(query.dtype)
            mixed = product('mkqp,mkph->mkqh', shares, values)
            mixed = mixed.reshape(rows, kv_heads, tokens, groups, width)
            return mixed.transpose(0, 2, 1, 3, 4), kept

        of_tokens = entering.of_layer(layer.index)
        x, kept = through_layer(
            a, layer, weights.layers[layer.index], x, of_tokens, positions, attend, multiply
        )
        if layer.has_keys:
            layers.append(kept)
    last = jax.lax.dynamic_index_in_dim(x, count - 1, 1, keepdims=False)
    return leaving(a, weights, last), cache._replace(layers=tuple(layers))


def _seen(
    a: Architecture,
    kind: AttentionType,
    lengths: jax.Array,
    offsets: jax.Array,
    positions: jax.Array,
    slots: int,
    first: int,
) -> jax.Array:
    """`[m 1 q S]` bool: the slots that tokens at offsets `[1 q]` or `[m q]` of an example see."""
    slot = jnp.arange(slots)
    of_prompt = slot < jnp.minimum(lengths, first)[:, None, None]
    of_example = (slot >= first) & (slot - first <= offsets[..., None])
    seen = of_prompt | of_example
    if kind == 'local':
        # Positions [m 1 S] of what the slots hold.
        held = jnp.where(slot < first, slot, slot - first + lengths[:, None, None])
        seen &= held > positions[..., None] - window(a)
    return seen[:, None]


def _written(old: jax.Array, new: jax.Array, at: jax.Array) -> jax.Array:
    """Slots `[m K S H]` with new ones `[m K q H]` from one slot on, or from each row's own `[m]`."""
    if jnp.ndim(at) == 0:
        return jax.lax.dynamic_update_slice_in_dim(old, new, at, 2)
    return jax.vmap(lambda old, new, at: jax.lax.dynamic_update_slice_in_dim(old, new, at, 1))(old, new, at)


def logits(
    architecture: Architecture, weights: Weights, states: jax.Array, columns: jax.Array | None = None
) -> jax.Array:
    """The output layer: `[m V]` float32 of states `[m D]`, or `[m C]` of the columns `[C]` alone."""
    table = weights.output_layer
    if columns is not None:
        table = jnp.take(table, columns, axis=0, mode='clip')
    return logits_of(architecture, table, states)


def logits_of(architecture: Architecture, table: jax.Array, states: jax.Array) -> jax.Array:
    """`[m C]` float32 of states `[m D]`, for the tokens that the rows `[C D]` of a table stand for."""
    rows = len(states)
    states = states.astype(table.dtype)
    if table.dtype != jnp.float32 and rows < 8:
        # A processor's product of few rows in bfloat16 falls back to a loop ten times as slow.
        states = jnp.pad(states, ((0, 8 - rows), (0, 0)))
    raw = product('md,vd->mv', states, table)[:rows]
    cap = architecture.final_logit_softcap
    return raw if cap is None else jnp.tanh(raw / cap) * cap


class Embedded(NamedTuple):
    """Everything that tokens bring to the layers.

    Attributes:
        x: What enters the first layer, `[... D]` float32, or its copies `[... A D]`.
        of_layers: What they add in each of L layers, `[... L E]` float32; None in a model without that.
    """

    x: jax.Array
    of_layers: jax.Array | None

    def of_layer(self, index: int) -> jax.Array | None:
        """Their part in one layer, `[... E]`."""
        return None if self.of_layers is None else self.of_layers[..., index, :]


def embedded(a: Architecture, weights: Weights, tokens: jax.Array, *, is_sharded: bool = False) -> Embedded:
    """Everything that tokens `[...]` bring; the gemma library rounds the factor of an embedding so."""

    def rows(table: jax.Array) -> jax.Array:
        of_table = sharded.embeddings(table, tokens) if is_sharded else table[tokens]
        return of_table.astype(jnp.float32)

    x = rows(weights.embedding)
    if a.scales_embedding:
        factor = jnp.sqrt(jnp.asarray(a.embed_dim, jnp.float32)).astype(weights.embedding.dtype)
        x = x * factor.astype(jnp.float32)
    of_layers = None
    if (table := weights.per_layer) is not None:
        of_layers = per_layer.of_tokens(a, table, rows(table.per_layer_embedding), x)
    return Embedded(x if weights.copies is None else altup.copied(weights.copies, x), of_layers)


def leaving(a: Architecture, weights: Weights, x: jax.Array) -> jax.Array:
    """States `[... D]` float32 of what leaves the last layer."""
    return normed(a, x if weights.copies is None else altup.joined(weights.copies, x), weights.final_norm)
