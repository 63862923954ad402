"""A residual stream in several copies, of which a layer computes the first alone (Gemma 3n).

A layer predicts all copies of what enters it, computes the first, and corrects the others by how far the
prediction of it was off (AltUp: Baykal et al. 2023). A matrix of low rank stands beside its attention
(LAuReL: Menghani et al. 2024). In the first layers a gate lets through its largest activations alone.

Symbols are those of `Architecture`.
"""

from __future__ import annotations

import statistics

from etils import epy

from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.arithmetic import matmul, normed
from models.decoders.transformer.weights import AltUpWeights, CopyWeights

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# Least mean square and variance: the gemma library's bound of 1e-12 on roots, beneath the root. There the
# gradient of what is all zeros, such as the embedding of padding, is 0; that of its root is no number.
_LEAST = 1e-24


def copied(weights: CopyWeights, x: jax.Array) -> jax.Array:
    """Copies `[... A D]` of what enters the first layer, `[... D]`: itself, and others of its size."""
    others = [_of_size(matmul(x, matrix), x) for matrix in weights.altup_copying]
    return jnp.stack([x, *others], axis=-2)


def joined(weights: CopyWeights, x: jax.Array) -> jax.Array:
    """The mean `[... D]` of the copies that leave the last layer, each turned back."""
    first = x[..., 0, :]
    others = [
        _of_size(matmul(x[..., index, :], matrix), first)
        for index, matrix in enumerate(weights.altup_joining, start=1)
    ]
    return jnp.stack([first, *others]).mean(axis=0)


def _of_size(x: jax.Array, other: jax.Array) -> jax.Array:
    """Scaled to the root mean square of another."""
    size, target = (_root(jnp.mean(jnp.square(of), axis=-1, keepdims=True)) for of in (x, other))
    return x * (target / size)


def _root(square: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.maximum(square, _LEAST))


def predicted(a: Architecture, layer: AltUpWeights, x: jax.Array) -> jax.Array:
    """The copies `[... A D]` that a layer predicts of those that enter it."""
    kinds = _kinds(a, layer, x[..., 0, :])[..., None, None]
    coefficients = (kinds * _bounded(a, layer.altup_prediction)).sum(axis=-3)
    return x + (coefficients[..., None] * x[..., None, :, :]).sum(axis=-2)


def corrected(a: Architecture, layer: AltUpWeights, predicted: jax.Array, first: jax.Array) -> jax.Array:
    """The copies `[... A D]`, where the first is known to be `[... D]`."""
    kinds = _kinds(a, layer, first)[..., None]
    factors = 1 + (kinds * _bounded(a, layer.altup_correction)).sum(axis=-2)
    return predicted + factors[..., None] * (first - predicted[..., 0, :])[..., None, :]


def _kinds(a: Architecture, layer: AltUpWeights, first: jax.Array) -> jax.Array:
    """A token's shares in each of A kinds, `[... A]`."""
    entering = normed(a, first, layer.altup_norm) / a.embed_dim
    return jnp.tanh(matmul(entering, layer.altup_router))


def _bounded(a: Architecture, coefficients: jax.Array) -> jax.Array:
    """Coefficients within the model's bound.

    Raises:
        ValueError: The architecture has no copies.
    """
    if a.altup is None:
        raise ValueError('Expected an architecture with copies, got altup=None. Give their numbers.')
    bound = a.altup.largest_coefficient
    return jnp.clip(coefficients.astype(jnp.float32), -bound, bound)


def beside_attention(a: Architecture, layer: AltUpWeights, x: jax.Array) -> jax.Array:
    """The part beside the attention, of a normalized `[... D]`."""
    low_rank = matmul(matmul(x, layer.laurel_down), layer.laurel_up)
    return x + normed(a, low_rank, layer.laurel_norm)


def largest(gate: jax.Array, sparsity: float) -> jax.Array:
    """Activations `[... F]` less a quantile of theirs, were they normally distributed; 0 below it."""
    quantile = statistics.NormalDist().inv_cdf(sparsity)
    deviation = _root(jnp.var(gate, axis=-1, keepdims=True))
    bound = jnp.mean(gate, axis=-1, keepdims=True) + deviation * quantile
    return jax.nn.relu(gate - bound)
