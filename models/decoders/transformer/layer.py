"""One layer: rotary positions, attention's shares and the feed-forward part, in float32.

Symbols are those of `Architecture`: D F N K H; and m rows, q tokens of a row, G = N/K query heads for a key
head.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from etils import epy

from models.decoders.transformer import altup, experts, per_layer
from models.decoders.transformer.architecture import Architecture, LayerSizes
from models.decoders.transformer.arithmetic import Multiply, by_weight, normalized, normed
from models.decoders.transformer.weights import Layer

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# The score of a slot that may not be seen: the gemma library's.
_UNSEEN = -2.3819763e38


class KeysValues(NamedTuple):
    """The keys and values of one layer, in some slots of every row."""

    keys: jax.Array  # [m, K, slots, H]
    values: jax.Array  # [m, K, slots, H]


# Attention of queries `[m q K G H]`, given the keys and values `[m q K H]` of the same tokens, or None in a
# layer that attends to an earlier one's. Gives the mixed values `[m q K G H]`, and the keys and values that
# they are of.
type Attend = Callable[[jax.Array, KeysValues | None], tuple[jax.Array, KeysValues]]


def through_layer(
    a: Architecture,
    sizes: LayerSizes,
    layer: Layer,
    x: jax.Array,
    of_tokens: jax.Array | None,
    positions: jax.Array,
    attend: Attend,
    multiply: Multiply | None = None,
) -> tuple[jax.Array, KeysValues]:
    """One layer on `[m q D]`, q tokens a row, or on copies `[m q A D]`.

    Args:
        a: The numbers of the model.
        sizes: Those of the layer.
        layer: Its weights.
        x: What enters it.
        of_tokens: What the tokens add in this layer, `[m q E]`; None in a model without that.
        positions: Positions, which broadcast to `[m q]`.
        attend: See `Attend`.
        multiply: It takes the place of the products with the layer's large matrices; it is given the name
            of each.

    Returns:
        What leaves the layer, and the keys and values of `attend`.
    """
    multiply = multiply or by_weight
    copies = None
    if layer.altup is not None:
        copies = altup.predicted(a, layer.altup, x)
        x = copies[..., 0, :]
    entering = normed(a, x, layer.pre_attention_norm)
    mixed, kept = _attention(a, sizes, layer, entering, positions, attend, multiply)
    output = multiply('attention_output', mixed.reshape(*x.shape[:-1], -1), layer.attention_output)
    x = x + normed(a, output, layer.post_attention_norm)
    if layer.altup is not None:
        x = (x + altup.beside_attention(a, layer.altup, entering)) * 2**-0.5
    x = x + normed(a, _fed_forward(a, sizes, layer, x, multiply), layer.post_ffw_norm)
    if copies is not None and layer.altup is not None:
        copies = altup.corrected(a, layer.altup, copies, x)
        x = copies[..., 0, :] * layer.altup.altup_scale.astype(jnp.float32)
    added = None
    if layer.per_layer is not None and of_tokens is not None:
        added = per_layer.added(a, layer.per_layer, x, of_tokens)
    if copies is not None:
        x = copies if added is None else copies.at[..., 1:, :].add(added[..., None, :])
    elif added is not None:
        x = x + added
    return x if layer.scale is None else x * layer.scale.astype(jnp.float32), kept


def _attention(
    a: Architecture,
    sizes: LayerSizes,
    layer: Layer,
    x: jax.Array,
    positions: jax.Array,
    attend: Attend,
    multiply: Multiply,
) -> tuple[jax.Array, KeysValues]:
    """Mixed values `[m q K G H]` of a normalized `[m q D]`."""
    dtype, kv_heads = layer.query_key_value.dtype, sizes.num_kv_heads
    heads = multiply('query_key_value', x, layer.query_key_value)
    heads = heads.reshape(*x.shape[:-1], -1, sizes.head_dim)
    query, key_value = heads[..., : a.num_heads, :], heads[..., a.num_heads :, :]
    rotation = _rotation(a, sizes, positions)
    query = _rotated(normed(a, query, layer.query_norm), rotation) * a.query_scale
    query = query.reshape(*x.shape[:-1], kv_heads, a.num_heads // kv_heads, sizes.head_dim).astype(dtype)
    if not sizes.has_keys:
        return attend(query, None)
    key = _rotated(normed(a, key_value[..., :kv_heads, :], layer.key_norm), rotation)
    # Values are the last of them, whether they are all of them or not.
    value = key_value[..., -kv_heads:, :]
    if a.normalizes_values:
        value = normalized(a, value)
    return attend(query, KeysValues(key.astype(dtype), value.astype(dtype)))


def _fed_forward(
    a: Architecture, sizes: LayerSizes, layer: Layer, x: jax.Array, multiply: Multiply
) -> jax.Array:
    """The feed-forward part of `[m q D]`, before the last norm."""
    gate, up = jnp.split(multiply('gate_up', normed(a, x, layer.pre_ffw_norm), layer.gate_up), 2, axis=-1)
    if a.altup is not None and sizes.index < a.altup.sparse_layers:
        gate = altup.largest(gate, a.altup.sparsity)
    activation = jax.nn.gelu if a.activation == 'gelu' else jax.nn.silu
    output = multiply('down', activation(gate) * up, layer.down)
    if layer.experts is None:
        return output
    return normed(a, output, layer.experts.post_dense_norm) + experts.output(a, layer.experts, x, multiply)


def _rotation(a: Architecture, sizes: LayerSizes, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines `[... 1 H/2]` of the rotary positions."""
    local, half = sizes.attention_type == 'local', sizes.head_dim // 2
    base = a.local_base_frequency if local else a.global_base_frequency
    factor = a.local_scale_factor if local else a.global_scale_factor
    turned = half if local else int(a.global_rotary_share * half)
    wavelengths = base ** ((2.0 / sizes.head_dim) * jnp.arange(turned, dtype=jnp.float32))
    # The others turn by nothing.
    wavelengths = jnp.pad(wavelengths, (0, half - turned), constant_values=jnp.inf)
    angles = (positions[..., None, None] / wavelengths) / factor
    return jnp.cos(angles), jnp.sin(angles)


def _rotated(x: jax.Array, rotation: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turns the first half of each head against the second."""
    (cos, sin), (first, second) = rotation, jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attention_shares(a: Architecture, scores: jax.Array, seen: jax.Array) -> jax.Array:
    """The attention weights: softmax of the scores over the slots that are seen, float32."""
    if a.attn_logits_soft_cap is not None:
        scores = jnp.tanh(scores / a.attn_logits_soft_cap) * a.attn_logits_soft_cap
    return jax.nn.softmax(jnp.where(seen, scores, _UNSEEN), axis=-1)


def window(a: Architecture) -> int:
    """Slots that a local layer sees."""
    if a.sliding_window_size is None:
        raise ValueError('Expected a window for local layers, got sliding_window_size=None. Give it.')
    return a.sliding_window_size
