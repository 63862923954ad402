"""Parameters of the gemma library, which stores weights for training: their names, and what is made of them.

Names have slashes between the keys of the nested dictionary, such as 'layer_0/attn/q_einsum/w'.
"""

from __future__ import annotations

import re
from typing import Any

from etils import epy

from models.decoders.gemma.architectures import GemmaArchitecture
from models.decoders.transformer.architecture import LayerSizes
from models.decoders.transformer.checkpoint import Part
from models.decoders.transformer.weights import Weights, tree

with epy.lazy_imports():
    import jax.numpy as jnp

# Parameters that are no norm under its own name, by our field; {} is a number.
_NAMES = {
    'embedding': 'embedder/input_embedding',
    'gate_up': 'mlp/gating_einsum',
    'down': 'mlp/linear',
    'query_norm': 'attn/_query_norm/scale',
    'key_norm': 'attn/_key_norm/scale',
    'scale': 'skip_scale',
    'per_layer_gate': 'per_layer_input_gate/w',
    'per_layer_up': 'per_layer_projection/w',
    'per_layer_norm': 'post_per_layer_input_norm/scale',
    'per_layer_embedding': 'embedder/per_layer_embeddings',
    'per_layer_projection': 'embedder/per_layer_model_projection/w',
    'per_layer_projection_norm': 'embedder/per_layer_projection_norm/scale',
    'router': 'mlp/router_logits/w',
    'router_scale': 'mlp/router_scale',
    'experts_norm': 'pre_ffw_norm/scale',
    'experts_gate_up': 'mlp/gating_einsum',
    'experts_down': 'mlp/linear',
    'experts_scale': 'mlp/per_expert_scale',
    'post_experts_norm': 'post_ffw1_norm/scale',
    'post_dense_norm': 'post_ffw2_norm/scale',
    'altup_norm': 'altup/router_norm_layer/scale',
    'altup_router': 'altup/modality_router/w',
    'altup_prediction': 'altup/prediction_coefs',
    'altup_correction': 'altup/correction_coefs',
    'altup_scale': 'altup/correct_output_scale',
    'altup_copying': 'altup_projection_{0}/altup_projection_{0}',
    'altup_joining': 'altup_unembed_projection_{0}/altup_unembed_projection_{0}',
    'laurel_down': 'laurel/linear_left/w',
    'laurel_up': 'laurel/linear_right/w',
    'laurel_norm': 'post_laurel_norm/scale',
}
_NORMS = {'query_norm': 'attn/query_norm/scale', 'key_norm': 'attn/key_norm/scale'}
# Names of a generation in place of these.
_NAMES_OF = {
    '3n': {
        **_NORMS,
        'per_layer_gate': 'per_layer_mapping/per_layer_input_gate/w',
        'per_layer_up': 'per_layer_mapping/per_layer_projection/w',
        'per_layer_norm': 'per_layer_mapping/post_per_layer_input_norm/scale',
        'per_layer_embedding': 'embedder/per_layer_input_embedding',
        'per_layer_projection': 'embedder/per_layer_input_projection/w',
    },
    '4': _NORMS,
}
# The feed-forward part that all tokens pass, in a model with experts.
_NAMES_BESIDE_EXPERTS = {
    'gate_up': 'mlp2/gating_einsum',
    'down': 'mlp2/linear',
    'pre_ffw_norm': 'pre_ffw2_norm/scale',
}
# Beginnings of names of parts that read no text.
_OTHER_PARTS = ('audio_encoder/', 'vision_encoder/', 'embedder/audio_', 'embedder/mm_')
# Experts have a module for each matrix, where other feed-forward parts have the matrix itself.
_WITHOUT_W = re.compile(r'(/mlp2?/(?:gating_einsum|linear))/w$')


def canonical(name: str) -> str:
    """A parameter's name, in which matrices of all feed-forward parts end alike."""
    return _WITHOUT_W.sub(r'\1', name)


def ignored(a: GemmaArchitecture) -> tuple[str, ...]:
    """Beginnings of names of parameters that change no logit of a text.

    Layers that attend to an earlier layer's keys and values may have matrices for their own.
    """
    unread = (
        f'layer_{layer.index}/attn/{name}'
        for layer in a.layers
        if not layer.has_keys
        for name in ('kv_einsum/', 'k_einsum/', 'key_norm/')
    )
    return (*_OTHER_PARTS, *unread)


def parts(architecture: GemmaArchitecture) -> Weights:
    """The parts of each weight among the library's parameters."""
    a = architecture
    names = _NAMES | _NAMES_OF.get(a.generation, {})
    if a.experts is not None:
        names |= _NAMES_BESIDE_EXPERTS
    outer = a.outer_shapes()

    def part(field: str, index: int, shape: tuple[int, ...]) -> Part:
        layer = '' if field in outer else f'layer_{index}/'
        name = names.get(field, f'{field}/scale')
        stored, arrange = _arranged(a, a.layers[index], field, name, shape)
        return Part(sources={layer + name: size for name, size in stored.items()}, arrange=arrange)

    return tree(a, part)


def _arranged(
    a: GemmaArchitecture, layer: LayerSizes, field: str, name: str, shape: tuple[int, ...]
) -> tuple[dict[str, tuple[int, ...]], Any]:
    """Shapes of the parameters that make a weight, by name, and how they do."""
    per_head = (a.embed_dim, layer.head_dim)
    match field:
        case 'query_key_value':
            kv_heads = layer.num_kv_heads
            heads: dict[str, tuple[int, ...]] = {'attn/q_einsum/w': (a.num_heads, *per_head)}
            if layer.has_keys and layer.values_are_keys:
                heads['attn/k_einsum/w'] = (kv_heads, *per_head)
            elif layer.has_keys and a.num_heads == kv_heads and a.generation != '4':
                heads = {'attn/qkv_einsum/w': (3, a.num_heads, *per_head)}
            elif layer.has_keys:
                heads['attn/kv_einsum/w'] = (2, kv_heads, *per_head)

            def arrange_heads(*stored: Any) -> Any:
                joined = jnp.concatenate([weight.reshape(-1, *per_head) for weight in stored])
                return joined.transpose(1, 0, 2).reshape(a.embed_dim, -1)

            return heads, arrange_heads
        case 'attention_output':
            return {'attn/attn_vec_einsum/w': (a.num_heads, *per_head[::-1])}, _reshaped(shape)
        case 'gate_up':
            # [2 F D] or [2 D F].
            sizes, axes = (layer.hidden_dim, a.embed_dim), (2, 0, 1)
            if not a.transpose_gating_einsum:
                sizes, axes = sizes[::-1], (1, 0, 2)
            return {name: (2, *sizes)}, lambda stored: stored.transpose(axes).reshape(shape)
        case 'experts_gate_up' if a.experts is not None:
            count, hidden = a.experts.count, a.experts.hidden_dim
            return (
                {name: (count, 2, hidden, a.embed_dim)},
                lambda stored: stored.transpose(3, 1, 0, 2).reshape(shape),
            )
        case 'experts_down' if a.experts is not None:
            return {name: (a.experts.count, a.experts.hidden_dim, a.embed_dim)}, _reshaped(shape)
        case 'per_layer_embedding' | 'per_layer_projection':
            return {name: (shape[0], a.num_layers, a.per_layer_dim)}, _reshaped(shape)
        case 'altup_copying' | 'altup_joining':
            return (
                {name.format(number): shape[1:] for number in range(shape[0])},
                lambda *stored: jnp.stack(stored),
            )
    return {name: shape}, lambda weight: weight


def _reshaped(shape: tuple[int, ...]) -> Any:
    return lambda stored: stored.reshape(shape)
