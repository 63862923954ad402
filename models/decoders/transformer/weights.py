"""Weights as a step multiplies them, and adapters of them: low-rank factors, or a difference of all.

Matrices are `[inputs outputs]`; those of queries, keys and values are one, and so are those of the gate and
what it is multiplied by. Symbols are those of `Architecture`: V D F N K H; r is the rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from etils import epy

from models.decoders.transformer.architecture import Architecture

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
    """The weights of one layer; a norm is None where a model has none."""

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

    embedding: jax.Array  # [V, D]
    layers: tuple[Layer, ...]
    final_norm: jax.Array  # [D]
    output: jax.Array | None = None  # [V, D]; None where it is the embedding

    @property
    def output_layer(self) -> jax.Array:
        """`[V, D]`: a row for each token, which a state is multiplied by."""
        return self.embedding if self.output is None else self.output


# Fields of the matrices that factors are added to.
ADAPTED = ('query_key_value', 'attention_output', 'gate_up', 'down')
# Factors by the name of the matrix, one entry for each layer; or a difference of all weights, float32.
Adapter = tuple[dict[str, LowRank], ...] | Weights


def tree(architecture: Architecture, leaf: Callable[[str, int, tuple[int, ...]], Any]) -> Weights:
    """A tree in the form of a model's weights.

    Args:
        architecture: The numbers of the model.
        leaf: Gives what stands for a weight, by its field, the number of its layer, and its shape; 0 is the
            number of a weight of no layer.
    """
    a = architecture
    shapes: dict[str, tuple[int, ...]] = _matrix_shapes(a) | {
        'pre_attention_norm': (a.embed_dim,),
        'pre_ffw_norm': (a.embed_dim,),
    }
    if a.use_qk_norm:
        shapes |= {'query_norm': (a.head_dim,), 'key_norm': (a.head_dim,)}
    if a.use_post_norms:
        shapes |= {'post_attention_norm': (a.embed_dim,), 'post_ffw_norm': (a.embed_dim,)}
    no_norms: dict[str, Any] = dict.fromkeys(Layer._fields)
    layers = (
        Layer(**no_norms | {field: leaf(field, index, shape) for field, shape in shapes.items()})
        for index in range(a.num_layers)
    )
    table = (a.num_embed, a.embed_dim)
    return Weights(
        embedding=leaf('embedding', 0, table),
        layers=tuple(layers),
        final_norm=leaf('final_norm', 0, (a.embed_dim,)),
        output=None if a.ties_output else leaf('output', 0, table),
    )


def _matrix_shapes(a: Architecture) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrices of a layer that factors are added to."""
    return {
        'query_key_value': (a.embed_dim, (a.num_heads + 2 * a.num_kv_heads) * a.head_dim),
        'attention_output': (a.num_heads * a.head_dim, a.embed_dim),
        'gate_up': (a.embed_dim, 2 * a.hidden_dim),
        'down': (a.hidden_dim, a.embed_dim),
    }


def adapter_shapes(architecture: Architecture, rank: int | None) -> Adapter:
    """The factors of every layer, or the difference of all weights, as `jax.ShapeDtypeStruct` of float32."""

    def leaf(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    if rank is None:
        return tree(architecture, lambda field, index, shape: leaf(*shape))
    return tuple(
        {
            field: LowRank(leaf(rows, rank), leaf(rank, columns))
            for field, (rows, columns) in _matrix_shapes(architecture).items()
        }
        for _ in range(architecture.num_layers)
    )


def adapt(weights: Weights, adapter: Adapter) -> Weights:
    """Weights with an adapter: its factors beside their matrices, or its difference added to all of them."""
    if isinstance(adapter, Weights):
        added: Weights = jax.tree.map(_added, weights, adapter)
        return added
    layers = (
        Layer(**layer._asdict() | {name: Adapted(getattr(layer, name), factors[name]) for name in ADAPTED})
        for layer, factors in zip(weights.layers, adapter, strict=True)
    )
    return weights._replace(layers=tuple(layers))


def _added(weight: jax.Array, difference: jax.Array) -> jax.Array:
    """The sum in the weight's type: rounded there alone, so that small steps of training add up."""
    return (weight.astype(jnp.float32) + difference).astype(weight.dtype)
