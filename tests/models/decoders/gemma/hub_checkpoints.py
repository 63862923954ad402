"""Small models of each generation, random weights as the hub has them, and the logits of `transformers`."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from models.decoders.gemma import architectures
from models.decoders.transformer import forward
from models.decoders.transformer.weights import Weights

# Soft caps low enough to bite, windows shorter than the prompt.
GEMMA1 = architectures.GemmaArchitecture(
    num_embed=40, embed_dim=16, hidden_dim=24, num_heads=4, head_dim=6, num_kv_heads=1,
    attention_types=('global', 'global'), generation='1', use_post_norms=False,
)  # fmt: skip
GEMMA2 = architectures.GemmaArchitecture(
    num_embed=40, embed_dim=16, hidden_dim=24, num_heads=4, head_dim=6, num_kv_heads=2,
    attention_types=('local', 'global', 'local'), generation='2', sliding_window_size=4,
    final_logit_softcap=3.0, attn_logits_soft_cap=2.0,
    query_pre_attn_scalar=4,
)  # fmt: skip
GEMMA3 = architectures.GemmaArchitecture(
    num_embed=40, embed_dim=16, hidden_dim=24, num_heads=4, head_dim=6, num_kv_heads=2,
    attention_types=('local', 'local', 'global'), generation='3', sliding_window_size=4,
    use_qk_norm=True, transpose_gating_einsum=True, local_base_frequency=10,
    global_base_frequency=1000, global_scale_factor=8.0,
)  # fmt: skip
EQUAL_HEADS = dataclasses.replace(GEMMA2, num_kv_heads=4)
CASES = {'gemma1': GEMMA1, 'gemma2': GEMMA2, 'gemma3': GEMMA3, 'equal heads': EQUAL_HEADS}


def all_logits(a: architectures.GemmaArchitecture, weights: Weights, tokens: np.ndarray) -> jax.Array:
    """One row's logits `[L V]`, by the forward pass of a run."""
    return forward.logits(a, weights, forward.states(a, weights, jnp.asarray(tokens)[None])[0])


def hub_tensors(a: architectures.GemmaArchitecture, prefix: str = 'model.') -> dict[str, np.ndarray]:
    """A random checkpoint under Hugging Face's names and shapes."""
    rng = np.random.default_rng(0)
    tensors = {}

    def add(name: str, *shape: int) -> None:
        tensors[prefix + name] = rng.normal(0, 0.4, shape).astype(np.float32)

    add('embed_tokens.weight', a.num_embed, a.embed_dim)
    add('norm.weight', a.embed_dim)
    for index in range(a.num_layers):
        layer = f'layers.{index}.'
        add(layer + 'self_attn.q_proj.weight', a.num_heads * a.head_dim, a.embed_dim)
        add(layer + 'self_attn.k_proj.weight', a.num_kv_heads * a.head_dim, a.embed_dim)
        add(layer + 'self_attn.v_proj.weight', a.num_kv_heads * a.head_dim, a.embed_dim)
        add(layer + 'self_attn.o_proj.weight', a.embed_dim, a.num_heads * a.head_dim)
        add(layer + 'mlp.gate_proj.weight', a.hidden_dim, a.embed_dim)
        add(layer + 'mlp.up_proj.weight', a.hidden_dim, a.embed_dim)
        add(layer + 'mlp.down_proj.weight', a.embed_dim, a.hidden_dim)
        add(layer + 'input_layernorm.weight', a.embed_dim)
        add(layer + 'post_attention_layernorm.weight', a.embed_dim)
        if a.generation > '1':
            add(layer + 'pre_feedforward_layernorm.weight', a.embed_dim)
            add(layer + 'post_feedforward_layernorm.weight', a.embed_dim)
        if a.generation == '3':
            add(layer + 'self_attn.q_norm.weight', a.head_dim)
            add(layer + 'self_attn.k_norm.weight', a.head_dim)
    return tensors


def oracle(
    a: architectures.GemmaArchitecture, tensors: dict[str, np.ndarray], tokens: np.ndarray
) -> np.ndarray:
    """One row's logits `[L V]`, written from `transformers`' modeling files, in float64."""
    weights = {name.removeprefix('model.'): value.astype(np.float64) for name, value in tensors.items()}

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * (1 + weights[f'{name}.weight'])

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f'{name}.weight'].T

    def rotate(x: np.ndarray, base: float, factor: float) -> np.ndarray:  # [L heads H]
        inverse = 1 / base ** (np.arange(0, a.head_dim, 2) / a.head_dim) / factor
        angles = np.arange(len(x))[:, None] * inverse
        angles = np.concatenate([angles, angles], -1)[:, None]
        halves = x[..., : a.head_dim // 2], x[..., a.head_dim // 2 :]
        return x * np.cos(angles) + np.concatenate([-halves[1], halves[0]], -1) * np.sin(angles)

    def cap(x: np.ndarray, bound: float | None) -> np.ndarray:
        return x if bound is None else np.tanh(x / bound) * bound

    scalar = a.query_pre_attn_scalar or a.head_dim
    x = weights['embed_tokens.weight'][tokens] * np.sqrt(a.embed_dim)
    for index, kind in enumerate(a.attention_types):
        layer = f'layers.{index}.'
        hidden = norm(x, layer + 'input_layernorm')
        q, k, v = (
            linear(hidden, f'{layer}self_attn.{name}_proj').reshape(len(tokens), -1, a.head_dim)
            for name in 'qkv'
        )
        if a.generation == '3':
            q, k = norm(q, layer + 'self_attn.q_norm'), norm(k, layer + 'self_attn.k_norm')
        local = kind == 'local'
        base = a.local_base_frequency if local else a.global_base_frequency
        factor = a.local_scale_factor if local else a.global_scale_factor
        q, k = rotate(q, base, factor), rotate(k, base, factor)
        k, v = (np.repeat(y, a.num_heads // a.num_kv_heads, axis=1) for y in (k, v))
        scores = cap(np.einsum('qnh,knh->nqk', q, k) * scalar**-0.5, a.attn_logits_soft_cap)
        row, column = np.mgrid[: len(tokens), : len(tokens)]
        seen = column <= row
        if local:
            seen &= column > row - a.sliding_window_size
        scores = np.where(seen, scores, -np.inf)
        probabilities = np.exp(scores - scores.max(-1, keepdims=True))
        probabilities /= probabilities.sum(-1, keepdims=True)
        mixed = np.einsum('nqk,knh->qnh', probabilities, v).reshape(len(tokens), -1)
        attended = linear(mixed, layer + 'self_attn.o_proj')
        if a.generation == '1':
            x = x + attended
            hidden = norm(x, layer + 'post_attention_layernorm')
        else:
            x = x + norm(attended, layer + 'post_attention_layernorm')
            hidden = norm(x, layer + 'pre_feedforward_layernorm')
        gate = linear(hidden, layer + 'mlp.gate_proj')
        gelu = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        fed = linear(gelu * linear(hidden, layer + 'mlp.up_proj'), layer + 'mlp.down_proj')
        x = x + (fed if a.generation == '1' else norm(fed, layer + 'post_feedforward_layernorm'))
    return cap(norm(x, 'norm') @ weights['embed_tokens.weight'].T, a.final_logit_softcap)
