"""MiniLM over padded rows, a text each: how centres were fitted before texts lay end to end."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models.clustering.embedder import TOKEN_LENGTHS, unit_rows

_HIDDEN = -1e9
_BLOCK_ROWS = 32


def padded_mean_states(
    weights: dict[str, Any], tokens: jax.Array, lengths: jax.Array, *, heads: int, layers: int, epsilon: float
) -> jax.Array:
    """BERT's last states, averaged over each text's tokens (arXiv 1810.04805; 1908.10084, section 3).

    Args:
        weights: The tensors under their names in `transformers`.
        tokens: `[m L]` int32, padded on the right.
        lengths: Tokens of each row, `[m]`.
        heads: Attention heads of a layer.
        layers: Number of layers.
        epsilon: Added to the variance in the norms.

    Returns:
        `[m D]` float32.
    """
    rows, length = tokens.shape
    known = jnp.arange(length) < lengths[:, None]

    def dense(name: str, x: jax.Array) -> jax.Array:
        # TPUs and GPUs would round the factors of a product otherwise.
        product = jnp.matmul(x, weights[f'{name}.weight'].T, precision='highest')
        return product + weights[f'{name}.bias']

    def norm(name: str, x: jax.Array) -> jax.Array:
        centered = x - x.mean(axis=-1, keepdims=True)
        variance = jnp.square(centered).mean(axis=-1, keepdims=True)
        scaled = centered * jax.lax.rsqrt(variance + epsilon)
        return scaled * weights[f'{name}.weight'] + weights[f'{name}.bias']

    def split(x: jax.Array) -> jax.Array:  # [m L D] -> [m N L H]
        return x.reshape(rows, length, heads, -1).swapaxes(1, 2)

    x = weights['embeddings.word_embeddings.weight'][tokens]
    x += weights['embeddings.position_embeddings.weight'][:length]
    x = norm('embeddings.LayerNorm', x + weights['embeddings.token_type_embeddings.weight'][0])
    for layer in range(layers):
        prefix = f'encoder.layer.{layer}'
        query, key, value = (
            split(dense(f'{prefix}.attention.self.{name}', x)) for name in ('query', 'key', 'value')
        )
        scores = jnp.matmul(query, key.swapaxes(2, 3), precision='highest') / query.shape[-1] ** 0.5
        shares = jax.nn.softmax(jnp.where(known[:, None, None, :], scores, _HIDDEN), axis=-1)
        mixed = jnp.matmul(shares, value, precision='highest').swapaxes(1, 2).reshape(x.shape)
        x = norm(f'{prefix}.attention.output.LayerNorm', x + dense(f'{prefix}.attention.output.dense', mixed))
        inner = jax.nn.gelu(dense(f'{prefix}.intermediate.dense', x), approximate=False)
        x = norm(f'{prefix}.output.LayerNorm', x + dense(f'{prefix}.output.dense', inner))
    return jnp.where(known[..., None], x, 0.0).sum(axis=1) / jnp.maximum(lengths, 1)[:, None]


def embed_padded(token_rows: Sequence[np.ndarray], pool: Callable[..., Any], dimensions: int) -> np.ndarray:
    """Unit vectors of token rows in blocks of 32, each padded to the first of `TOKEN_LENGTHS` that holds it.

    Args:
        token_rows: One int32 array of ids for each text.
        pool: Tokens `[32, L]` and lengths `[32]` to states `[32, dimensions]`.
        dimensions: Length of a vector.
    """
    vectors = np.zeros((len(token_rows), dimensions), np.float32)
    buckets = np.searchsorted(TOKEN_LENGTHS, [len(row) for row in token_rows])
    for bucket, length in enumerate(TOKEN_LENGTHS):
        members = np.flatnonzero(buckets == bucket)
        for first in range(0, len(members), _BLOCK_ROWS):
            block = members[first : first + _BLOCK_ROWS]
            tokens, lengths = np.zeros((_BLOCK_ROWS, length), np.int32), np.zeros(_BLOCK_ROWS, np.int32)
            for slot, index in enumerate(block):
                lengths[slot] = len(token_rows[index])
                tokens[slot, : lengths[slot]] = token_rows[index]
            vectors[block] = np.asarray(pool(tokens, lengths))[: len(block)]
    return unit_rows(vectors)
