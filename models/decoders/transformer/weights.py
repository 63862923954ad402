"""Weights as a step multiplies them, and adapters of them: low-rank factors, or a difference of all.

Matrices are `[inputs outputs]`; those of queries, keys and values are one, and so are those of the gate and
what it is multiplied by. Symbols are those of `Architecture`: V D F N K H E X A; F' is the width of an
expert, r a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class PerLayerWeights(NamedTuple):
    """Weights that add the embedding that a token has in one layer."""

    per_layer_gate: jax.Array  # [D, E]
    per_layer_up: jax.Array  # [E, D]
    per_layer_norm: jax.Array  # [D]


class ExpertWeights(NamedTuple):
    """The experts of one layer as one feed-forward part, whose blocks they are; and their router."""

    router: jax.Array  # [D, X]
    router_scale: jax.Array  # [D]
    experts_norm: jax.Array  # [D]
    experts_gate_up: jax.Array  # [D, 2 X F'], the gates of all experts before their ups
    experts_down: jax.Array  # [X F', D]
    experts_scale: jax.Array  # [X]
    post_experts_norm: jax.Array  # [D]
    post_dense_norm: jax.Array  # [D]


class AltUpWeights(NamedTuple):
    """Weights that mix copies of the residual stream in one layer, and the matrix beside its attention."""

    altup_norm: jax.Array  # [D]
    altup_router: jax.Array  # [D, A]
    altup_prediction: jax.Array  # [A, A, A]
    altup_correction: jax.Array  # [A, A]
    altup_scale: jax.Array  # [D]
    laurel_down: jax.Array  # [D, r]
    laurel_up: jax.Array  # [r, D]
    laurel_norm: jax.Array  # [D]


class Layer(NamedTuple):
    """The weights of one layer; None where a model, or this layer of it, has none."""

    pre_attention_norm: jax.Array  # [D]
    query_key_value: jax.Array | Adapted  # [D, (N + 2K) H]; without keys or values fewer
    query_norm: jax.Array | None  # [H]
    key_norm: jax.Array | None  # [H]
    attention_output: jax.Array | Adapted  # [N H, D]
    post_attention_norm: jax.Array | None  # [D]
    pre_ffw_norm: jax.Array  # [D]
    gate_up: jax.Array | Adapted  # [D, 2F]
    down: jax.Array | Adapted  # [F, D]
    post_ffw_norm: jax.Array | None  # [D]
    scale: jax.Array | None = None  # [1]
    per_layer: PerLayerWeights | None = None
    experts: ExpertWeights | None = None
    altup: AltUpWeights | None = None


class PerLayerTable(NamedTuple):
    """The embeddings that tokens have in each of L layers."""

    per_layer_embedding: jax.Array  # [V, L E]
    per_layer_projection: jax.Array  # [D, L E]
    per_layer_projection_norm: jax.Array  # [E]


class CopyWeights(NamedTuple):
    """Weights that make further copies of the residual stream, and join all of them at its end."""

    altup_copying: jax.Array  # [A - 1, D, D]
    altup_joining: jax.Array  # [A - 1, D, D]


class Weights(NamedTuple):
    """All weights of a model."""

    embedding: jax.Array  # [V, D]
    layers: tuple[Layer, ...]
    final_norm: jax.Array  # [D]
    output: jax.Array | None = None  # [V, D]; None where it is the embedding
    per_layer: PerLayerTable | None = None
    copies: CopyWeights | None = None

    @property
    def output_layer(self) -> jax.Array:
        """`[V, D]`: a row for each token, which a state is multiplied by."""
        return self.embedding if self.output is None else self.output


# Fields of the matrices that factors are added to.
ADAPTED = ('query_key_value', 'attention_output', 'gate_up', 'down')
# Fields of `Layer` and of `Weights` that hold several weights.
_GROUPS_OF_LAYER = {'per_layer': PerLayerWeights, 'experts': ExpertWeights, 'altup': AltUpWeights}
_OUTER_GROUPS = {'per_layer': PerLayerTable, 'copies': CopyWeights}
# Factors by the name of the matrix, one entry for each layer; or a difference of all weights, float32.
Adapter = tuple[dict[str, LowRank], ...] | Weights


def tree(architecture: Architecture, leaf: Callable[[str, int, tuple[int, ...]], Any]) -> Weights:
    """A tree in the form of a model's weights.

    Args:
        architecture: The numbers of the model.
        leaf: Gives what stands for a weight, by its field, the number of its layer, and its shape; 0 is the
            number of a weight of no layer.
    """

    def made(shapes: Mapping[str, tuple[int, ...]], index: int, groups: Mapping[str, Any]) -> dict[str, Any]:
        leaves = {field: leaf(field, index, shape) for field, shape in shapes.items()}
        for name, kind in groups.items():
            of_group = {field: leaves.pop(field) for field in kind._fields if field in leaves}
            leaves[name] = kind(**of_group) if of_group else None
        return leaves

    a = architecture
    none: dict[str, Any] = dict.fromkeys(Layer._fields)
    layers = (
        Layer(**none | made(a.layer_shapes(layer), layer.index, _GROUPS_OF_LAYER)) for layer in a.layers
    )
    return Weights(layers=tuple(layers), **made(a.outer_shapes(), 0, _OUTER_GROUPS))


def adapter_shapes(architecture: Architecture, rank: int | None) -> Adapter:
    """The factors of every layer, or the difference of all weights, as `jax.ShapeDtypeStruct` of float32."""

    def leaf(*shape: int) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    if rank is None:
        return tree(architecture, lambda field, index, shape: leaf(*shape))
    return tuple(
        {
            field: LowRank(leaf(rows, rank), leaf(rank, columns))
            for field, (rows, columns) in architecture.matrix_shapes(layer).items()
        }
        for layer in architecture.layers
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
