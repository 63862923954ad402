"""Weights that are sharded over the local devices, of a model too large for a copy on each.

A device holds some outputs of every matrix, and some rows of the tables. It keeps its own rows of a
micro-batch, and for a product all rows meet on every device. So every output is summed over all inputs by one
device, as it is where each has a copy, and numbers are those of copies to float32's rounding.

The functions below run within `jax.shard_map` over `ROWS`; n is the number of devices.
"""

from __future__ import annotations

from typing import Any

from etils import epy

from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.arithmetic import matmul
from models.decoders.transformer.weights import ADAPTED, Adapted, LowRank, Weights, tree

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# The mesh axis along which rows of a micro-batch lie on the local devices, and shards of weights.
ROWS = 'rows'
# Fields of the weights of which each device holds a shard.
_TABLES = ('embedding', 'output', 'per_layer_embedding')
_MATRICES = (*ADAPTED, 'experts_gate_up', 'experts_down')


def specs(architecture: Architecture, devices: int) -> Weights:
    """Shards of large matrices by outputs, and of tables by rows; the other weights lie on every device.

    Raises:
        ValueError: A weight cannot be cut into equal parts.
    """

    def of_weight(field: str, _: int, shape: tuple[int, ...]) -> jax.sharding.PartitionSpec:
        is_table = field in _TABLES
        if not is_table and field not in _MATRICES:
            return jax.sharding.PartitionSpec()
        if (shape[0] if is_table else shape[1]) % devices:
            raise ValueError(
                f'Expected devices that weights can be sharded over, got devices={devices} for {field} of '
                f'shape={shape}. Let the process see 2, 4 or 8 of them.'
            )
        return jax.sharding.PartitionSpec(ROWS) if is_table else _by_output()

    return tree(architecture, of_weight)


def specs_of_factors(factors: Any) -> Any:
    """Shards of an adapter's low-rank factors: those that outputs come of lie with their matrices."""

    def of_matrix(_: LowRank) -> LowRank:
        return LowRank(down=jax.sharding.PartitionSpec(), up=_by_output())  # type: ignore[arg-type]

    return jax.tree.map(of_matrix, factors, is_leaf=lambda leaf: isinstance(leaf, LowRank))


def _by_output() -> jax.sharding.PartitionSpec:
    return jax.sharding.PartitionSpec(None, ROWS)


def multiply(_: str, x: jax.Array, weight: jax.Array | Adapted) -> jax.Array:
    """This device's rows `[m/n ... A]` times `[A B]`, of which it holds `[A B/n]`: see `layer.Multiply`."""
    if not isinstance(weight, Adapted):
        x = x.astype(weight.dtype)  # fewer bytes on the way
    outputs = matmul(jax.lax.all_gather(x, ROWS, tiled=True), weight)
    return jax.lax.all_to_all(outputs, ROWS, split_axis=0, concat_axis=outputs.ndim - 1, tiled=True)


def embeddings(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """`[... D]` for tokens `[...]` of this device, from tables `[V/n D]`."""
    found = held(table, jax.lax.all_gather(tokens, ROWS))
    # One device has the row, the others zeros.
    return jax.lax.psum_scatter(found, ROWS)


def held(table: jax.Array, tokens: jax.Array) -> jax.Array:
    """`[... D]` for the same tokens `[...]` on every device: zeros for those that this one does not hold."""
    places = tokens - jax.lax.axis_index(ROWS) * len(table)
    is_held = (places >= 0) & (places < len(table))
    rows = jnp.take(table, places, axis=0, mode='clip')
    return jnp.where(is_held[..., None], rows, jnp.zeros((), table.dtype))
