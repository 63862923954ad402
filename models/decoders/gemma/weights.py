"""Gemma's weights as a step multiplies them, and adapters of them: low-rank factors, or a difference of all.

The gemma library stores weights for training. Here they are matrices as they are multiplied, and those of
queries, keys and values are one (`arrange`). Symbols are those of `Architecture`: V D F N K H; r is the rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from etils import epy

from models.decoders.gemma.architectures import Architecture

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp


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
