"""One layer: norms, rotary positions, attention's shares and the feed-forward part, in float32.

Symbols are those of `Architecture`: D F N K H; and m rows, q tokens of a row, G = N/K query heads for a key
head.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from etils import epy

from models.decoders.transformer.architecture import Architecture, AttentionType
from models.decoders.transformer.weights import Adapted, Layer

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# The score of a slot that may not be seen: the gemma library's.
_UNSEEN = -2.3819763e38


class KeysValues(NamedTuple):
    """The keys and values of one layer, in some slots of every row."""

    keys: jax.Array  # [m, K, slots, H]
    values: jax.Array  # [m, K, slots, H]


# A product `[... B]` of a matrix's name, `[... A]` and the matrix `[A B]`.
type Multiply = Callable[[str, jax.Array, jax.Array | Adapted], jax.Array]


def through_layer(
    a: Architecture,
    kind: AttentionType,
    layer: Layer,
    x: jax.Array,
    positions: jax.Array,
    attend: Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, KeysValues]],
    multiply: Multiply | None = None,
) -> tuple[jax.Array, KeysValues]:
    """One layer on `[m q D]`, q tokens a row, at positions that broadcast to `[m q]`.

    `attend` takes queries `[m q K G H]`, keys and values `[m q K H]`, and returns the mixed values
    `[m q K G H]` with the keys and values to keep. `multiply` takes the place of the products with the
    layer's matrices; it is given the name of each.
    """
    multiply = multiply or _by_weight
    leading, dtype = x.shape[:-1], layer.query_key_value.dtype
    heads = multiply('query_key_value', normed(a, x, layer.pre_attention_norm), layer.query_key_value)
    heads = heads.reshape(*leading, a.num_heads + 2 * a.num_kv_heads, a.head_dim)
    query, key, value = jnp.split(heads, [a.num_heads, a.num_heads + a.num_kv_heads], axis=-2)
    rotation = _rotation(a, kind, positions)
    query = _rotated(normed(a, query, layer.query_norm), rotation) * a.query_scale
    key = _rotated(normed(a, key, layer.key_norm), rotation)
    query = query.reshape(*leading, a.num_kv_heads, a.num_heads // a.num_kv_heads, a.head_dim)
    mixed, kept = attend(query.astype(dtype), key.astype(dtype), value.astype(dtype))
    output = multiply('attention_output', mixed.reshape(*leading, -1), layer.attention_output)
    x = x + normed(a, output, layer.post_attention_norm)
    gate, up = jnp.split(multiply('gate_up', normed(a, x, layer.pre_ffw_norm), layer.gate_up), 2, axis=-1)
    activation = jax.nn.gelu if a.activation == 'gelu' else jax.nn.silu
    output = multiply('down', activation(gate) * up, layer.down)
    return x + normed(a, output, layer.post_ffw_norm), kept


def normed(a: Architecture, x: jax.Array, scale: jax.Array | None) -> jax.Array:
    """Root mean square norm over the last axis; `x` itself where the model has none here."""
    if scale is None:
        return x
    variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    normalized, factor = x * jax.lax.rsqrt(variance + a.norm_epsilon), scale.astype(jnp.float32)
    return normalized * (1 + factor if a.norms_add_one else factor)


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


def _by_weight(_: str, x: jax.Array, weight: jax.Array | Adapted) -> jax.Array:
    return matmul(x, weight)


def matmul(x: jax.Array, weight: jax.Array | Adapted) -> jax.Array:
    """`[... A]` float32 times `[A B]`, multiplied in the weight's type and summed in float32.

    With low-rank factors their product's part on top, in float32. The products of the way back are in the
    weight's type too.
    """
    if isinstance(weight, Adapted):
        return matmul(x, weight.frozen) + matmul(matmul(x, weight.factors.down), weight.factors.up)
    if weight.dtype == jnp.float32:
        return jnp.dot(x, weight)
    return _in_weights_type()(x, weight)


@functools.cache
def _in_weights_type() -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The product of float32 by another type. JAX's own way back would convert the weight to float32."""

    @jax.custom_vjp
    def multiply(x: jax.Array, weight: jax.Array) -> jax.Array:
        return jnp.dot(x.astype(weight.dtype), weight, preferred_element_type=jnp.float32)

    def forward_pass(x: jax.Array, weight: jax.Array) -> Any:
        x = x.astype(weight.dtype)
        return jnp.dot(x, weight, preferred_element_type=jnp.float32), (x, weight)

    def backward_pass(kept: Any, gradient: jax.Array) -> Any:
        x, weight = kept
        gradient = gradient.astype(weight.dtype)
        # By axes: a transposed matrix would be converted first.
        of_x = jax.lax.dot_general(
            gradient, weight, (((gradient.ndim - 1,), (1,)), ((), ())), preferred_element_type=jnp.float32
        )
        rows = tuple(range(x.ndim - 1))
        of_weight = jax.lax.dot_general(
            x, gradient, ((rows, rows), ((), ())), preferred_element_type=jnp.float32
        )
        return of_x, of_weight.astype(weight.dtype)

    multiply.defvjp(forward_pass, backward_pass)
    return multiply


def product(subscripts: str, left: jax.Array, right: jax.Array) -> jax.Array:
    """`einsum` of two arrays of one type, summed in float32."""
    return jnp.einsum(subscripts, left, right, preferred_element_type=jnp.float32)
