"""Embeddings that a token has in every layer, beside the one that enters the first (Gemma 3n, Gemma 4).

They are of the token alone and of its first embedding, so a row's are a function of its own tokens.
Symbols are those of `Architecture`; L is the number of layers.
"""

from __future__ import annotations

from etils import epy

from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.arithmetic import matmul, normed
from models.decoders.transformer.weights import PerLayerTable, PerLayerWeights

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp


def of_tokens(a: Architecture, table: PerLayerTable, rows: jax.Array, embedded: jax.Array) -> jax.Array:
    """The tokens' parts in each layer, `[... L E]` float32.

    Args:
        a: The numbers of the model.
        table: Its weights.
        rows: Rows `[... L E]` of the table, as one axis, of the tokens.
        embedded: What enters the first layer, `[... D]`.
    """
    of_layers = (*embedded.shape[:-1], a.num_layers, a.per_layer_dim)
    projected = matmul(embedded, table.per_layer_projection).reshape(of_layers) * a.embed_dim**-0.5
    looked_up = rows.reshape(of_layers).astype(jnp.float32) * a.per_layer_dim**0.5
    return (normed(a, projected, table.per_layer_projection_norm) + looked_up) * 2**-0.5


def added(a: Architecture, layer: PerLayerWeights, x: jax.Array, of_tokens: jax.Array) -> jax.Array:
    """A layer's addition to its output, `[m q D]`, of the output itself and of its tokens `[m q E]`."""
    gated = jax.nn.gelu(matmul(x, layer.per_layer_gate)) * of_tokens
    return normed(a, matmul(gated, layer.per_layer_up), layer.per_layer_norm)
