"""Products in the type of the weights, summed in float32, and norms.

Symbols are those of `Architecture`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from etils import epy

from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.weights import Adapted

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# A product `[... B]` of a matrix's name, `[... A]` and the matrix `[A B]`.
type Multiply = Callable[[str, jax.Array, jax.Array | Adapted], jax.Array]


def normed(a: Architecture, x: jax.Array, weight: jax.Array | None) -> jax.Array:
    """Root mean square norm over the last axis; `x` itself where the model has none here."""
    if weight is None:
        return x
    factor = weight.astype(jnp.float32)
    return normalized(a, x) * (1 + factor if a.norms_add_one else factor)


def normalized(a: Architecture, x: jax.Array) -> jax.Array:
    """The same without a weight."""
    variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(variance + a.norm_epsilon)


def by_weight(_: str, x: jax.Array, weight: jax.Array | Adapted) -> jax.Array:
    """See `Multiply`."""
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
