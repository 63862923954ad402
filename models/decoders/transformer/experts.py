"""Experts: feed-forward parts of which each token passes some, that a router chooses (Gemma 4 26B-A4B).

That a row is computed on its own is a privacy property (METHOD 4), and batches of tokens by expert do not
have it: where a token lies in its expert's batch, and with a capacity whether it has a place there at all,
depends on the tokens of other rows. Here all experts are one feed-forward part, whose blocks they are, and
every token passes all of it. The router puts zeros where a token passes no block. So a row's numbers are
products of its own activations with whole matrices, as in a layer without experts, and nothing else: no
order, no capacity, no other row. A decoding step of many rows reads all experts anyway; a prompt pays with
products that are thrown away, X over those of a token times as many.

Symbols are those of `Architecture`; F' is the width of an expert.
"""

from __future__ import annotations

from etils import epy

from models.decoders.transformer.architecture import Architecture, Experts
from models.decoders.transformer.arithmetic import Multiply, matmul, normalized, normed
from models.decoders.transformer.weights import ExpertWeights

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp


def output(a: Architecture, layer: ExpertWeights, x: jax.Array, multiply: Multiply) -> jax.Array:
    """The experts' part of `[m q D]`, with its norms.

    Raises:
        ValueError: The architecture has no experts.
    """
    if a.experts is None:
        raise ValueError('Expected an architecture with experts, got experts=None. Give their numbers.')
    entering = normed(a, x, layer.experts_norm)
    gate, up = jnp.split(multiply('experts_gate_up', entering, layer.experts_gate_up), 2, axis=-1)
    shares = shares_of(a, a.experts, layer, x) * layer.experts_scale.astype(jnp.float32)
    blocks = (jax.nn.gelu(gate) * up).reshape(*x.shape[:-1], a.experts.count, a.experts.hidden_dim)
    # A block that is not passed adds nothing, be it infinite.
    passed = jnp.where(shares[..., None] != 0, blocks * shares[..., None], 0)
    down = multiply('experts_down', passed.reshape(gate.shape), layer.experts_down)
    return normed(a, down, layer.post_experts_norm)


def shares_of(a: Architecture, experts: Experts, layer: ExpertWeights, x: jax.Array) -> jax.Array:
    """The share `[m q X]` of each expert in a token: softmax over its largest scores, 0 for the others.

    The router reads the residual stream itself, as in `transformers`, llama.cpp and Keras. Version 4.0.1
    of the gemma library has it read `experts_norm` of it, by which published weights choose other experts.
    Of equal scores the first counts as larger.
    """
    entering = normalized(a, x) * (a.embed_dim**-0.5 * layer.router_scale.astype(jnp.float32))
    scores = matmul(entering, layer.router)
    _, chosen = jax.lax.top_k(scores, experts.per_token)
    is_chosen = jax.nn.one_hot(chosen, experts.count, dtype=bool).any(axis=-2)
    return jax.nn.softmax(jnp.where(is_chosen, scores, -jnp.inf), axis=-1)
