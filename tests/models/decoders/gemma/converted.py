"""Parameters of the gemma library as converters write them: for the hub, and for llama.cpp.

Names and shapes are those of `convert_gemma4_weights.py` and `convert_gemma3n_weights.py` in `transformers`,
and of `conversion/gemma.py` with `gguf/constants.py` in llama.cpp, listed here once more.
"""

import statistics
from typing import Any

import numpy as np
from flax import traverse_util

from models.decoders.gemma.architectures import GemmaArchitecture
from tests.models.decoders.gemma.gguf_files import gguf_metadata

# Names in a layer, by the library's: the hub's, llama.cpp's. Vectors are as they are, matrices transposed.
_LAYER = {
    'pre_attention_norm/scale': ('input_layernorm.weight', 'attn_norm.weight'),
    'post_attention_norm/scale': ('post_attention_layernorm.weight', 'post_attention_norm.weight'),
    'attn/query_norm/scale': ('self_attn.q_norm.weight', 'attn_q_norm.weight'),
    'attn/key_norm/scale': ('self_attn.k_norm.weight', 'attn_k_norm.weight'),
    'pre_ffw_norm/scale': ('pre_feedforward_layernorm.weight', 'ffn_norm.weight'),
    'post_ffw_norm/scale': ('post_feedforward_layernorm.weight', 'post_ffw_norm.weight'),
    'mlp/linear': ('mlp.down_proj.weight', 'ffn_down.weight'),
    'skip_scale': ('layer_scalar', 'layer_output_scale.weight'),
    'per_layer_input_gate/w': ('per_layer_input_gate.weight', 'inp_gate.weight'),
    'per_layer_projection/w': ('per_layer_projection.weight', 'proj.weight'),
    'post_per_layer_input_norm/scale': ('post_per_layer_input_norm.weight', 'post_norm.weight'),
    'altup/router_norm_layer/scale': ('altup.router_norm.weight', 'altup_router_norm.weight'),
    'altup/modality_router/w': ('altup.modality_router.weight', 'altup_router.weight'),
    'altup/correction_coefs': ('altup.correction_coefs.weight', 'altup_correct_coef.weight'),
    'altup/correct_output_scale': ('altup.correct_output_scale', 'altup_correct_scale.weight'),
    'laurel/linear_left/w': ('laurel.linear_left.weight', 'laurel_l.weight'),
    'laurel/linear_right/w': ('laurel.linear_right.weight', 'laurel_r.weight'),
    'post_laurel_norm/scale': ('laurel.post_laurel_norm.weight', 'laurel_post_norm.weight'),
}
# Names in a layer with experts, in place of those and beside them.
_OF_EXPERTS = {
    'pre_ffw2_norm/scale': ('pre_feedforward_layernorm.weight', 'ffn_norm.weight'),
    'post_ffw2_norm/scale': ('post_feedforward_layernorm_1.weight', 'post_ffw_norm_1.weight'),
    'pre_ffw_norm/scale': ('pre_feedforward_layernorm_2.weight', 'pre_ffw_norm_2.weight'),
    'post_ffw1_norm/scale': ('post_feedforward_layernorm_2.weight', 'post_ffw_norm_2.weight'),
    'mlp2/linear': ('mlp.down_proj.weight', 'ffn_down.weight'),
    'mlp/router_logits/w': ('router.proj.weight', 'ffn_gate_inp.weight'),
    'mlp/router_scale': ('router.scale', 'ffn_gate_inp.scale'),
    'mlp/per_expert_scale': ('router.per_expert_scale', 'ffn_down_exps.scale'),
}
_OUTER = {
    'final_norm/scale': ('norm.weight', 'output_norm.weight'),
    'embedder/input_embedding': ('embed_tokens.weight', 'token_embd.weight'),
    'embedder/per_layer_projection_norm/scale': (
        'per_layer_projection_norm.weight',
        'per_layer_proj_norm.weight',
    ),
}


def hub_and_gguf(
    a: GemmaArchitecture, parameters: Any
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The tensors of both formats, of Gemma 3n or Gemma 4."""
    hub: dict[str, np.ndarray] = {}
    gguf: dict[str, np.ndarray] = {}
    flat = traverse_util.flatten_dict(parameters, sep='/')
    for path, leaf in flat.items():
        value = np.asarray(leaf, np.float32)
        layer, _, name = path.partition('/')
        number = layer.removeprefix('layer_')
        # Experts have a module of their own, where others have a matrix.
        name = name.replace('per_layer_mapping/', '').replace('einsum/w', 'einsum')
        name = name.replace('mlp/linear/w', 'mlp/linear')
        if not number.isdigit():
            _add_outer(hub, gguf, path, value)
            continue
        for (of_hub, of_gguf), stored in _of_layer(a, name, value):
            hub[f'model.language_model.layers.{number}.{of_hub}'] = stored
            gguf[f'blk.{number}.{of_gguf}'] = stored
    for kind in ('altup_proj', 'altup_unembd_proj'):
        if parts := sorted(name for name in gguf if name.startswith(f'{kind}.')):
            gguf[f'{kind}.weight'] = np.stack([gguf.pop(part) for part in parts])
    if a.global_rotary_share < 1:
        half = (a.global_head_dim or a.head_dim) // 2
        turned = int(half * a.global_rotary_share)
        gguf['rope_freqs.weight'] = np.array([1.0] * turned + [1e30] * (half - turned), np.float32)
    # Files hold an array as it lies in memory.
    return {name: np.ascontiguousarray(value) for name, value in hub.items()}, gguf


def _add_outer(hub: dict[str, np.ndarray], gguf: dict[str, np.ndarray], path: str, value: np.ndarray) -> None:
    prefix = 'model.language_model.'
    if path in _OUTER:
        of_hub, of_gguf = _OUTER[path]
        hub[prefix + of_hub], gguf[of_gguf] = value, value
    elif 'per_layer' in path and 'projection' not in path:  # [V L E]
        table = value.reshape(len(value), -1)
        hub[f'{prefix}embed_tokens_per_layer.weight'] = gguf['per_layer_token_embd.weight'] = table
    elif 'per_layer' in path:  # [D L E]
        matrix = value.reshape(len(value), -1).T
        hub[f'{prefix}per_layer_model_projection.weight'] = gguf['per_layer_model_proj.weight'] = matrix
    else:
        kind, index = ('altup_projection', 'altup_proj'), path[-1]
        if 'unembed' in path:
            kind = ('altup_unembed_projection', 'altup_unembd_proj')
        hub[f'{prefix}{kind[0]}s.{index}.weight'] = gguf[f'{kind[1]}.{index}'] = value.T


def _of_layer(a: GemmaArchitecture, name: str, value: np.ndarray) -> list[tuple[tuple[str, str], np.ndarray]]:
    """Names in both formats, and the tensor, of each that a parameter of a layer becomes."""

    def heads(stored: np.ndarray) -> np.ndarray:  # [heads D H]
        return stored.transpose(0, 2, 1).reshape(-1, a.embed_dim)

    def attention(letter: str) -> tuple[str, str]:
        return f'self_attn.{letter}_proj.weight', f'attn_{letter}.weight'

    match name:
        case 'attn/q_einsum':
            return [(attention('q'), heads(value))]
        case 'attn/k_einsum':
            return [(attention('k'), heads(value))]
        case 'attn/kv_einsum':
            return [(attention(letter), heads(part)) for letter, part in zip('kv', value, strict=True)]
        case 'attn/attn_vec_einsum':
            matrix = value.transpose(2, 0, 1).reshape(a.embed_dim, -1)
            return [(('self_attn.o_proj.weight', 'attn_output.weight'), matrix)]
        case 'mlp/gating_einsum' if a.experts is not None:
            joined = value.reshape(len(value), -1, a.embed_dim)
            return [(('experts.gate_up_proj', 'ffn_gate_up_exps.weight'), joined)]
        case 'mlp/linear' if a.experts is not None:
            return [(('experts.down_proj', 'ffn_down_exps.weight'), value.transpose(0, 2, 1))]
        case 'mlp/gating_einsum' | 'mlp2/gating_einsum':
            names = [(f'mlp.{part}_proj.weight', f'ffn_{part}.weight') for part in ('gate', 'up')]
            return list(zip(names, value, strict=True))
        case 'altup/prediction_coefs':
            names_of = ('altup.prediction_coefs.weight', 'altup_predict_coef.weight')
            return [(names_of, value.reshape(len(value), -1).T)]
    names_of = (_LAYER | (_OF_EXPERTS if a.experts is not None else {}))[name]
    return [(names_of, value.T)]


def config(a: GemmaArchitecture) -> dict[str, Any]:
    """The `config.json` of a folder of Gemma 4, as Google publishes it."""
    kinds = {'local': 'sliding_attention', 'global': 'full_attention'}
    experts = a.experts
    text = {
        'model_type': 'gemma4_text', 'num_hidden_layers': a.num_layers, 'hidden_size': a.embed_dim,
        'intermediate_size': a.hidden_dim, 'num_attention_heads': a.num_heads, 'head_dim': a.head_dim,
        'num_key_value_heads': a.num_kv_heads, 'global_head_dim': a.global_head_dim,
        'num_global_key_value_heads': a.num_global_kv_heads, 'rms_norm_eps': 1e-6,
        'final_logit_softcapping': a.final_logit_softcap, 'hidden_activation': 'gelu_pytorch_tanh',
        'layer_types': [kinds[kind] for kind in a.attention_types], 'sliding_window': a.sliding_window_size,
        'attention_k_eq_v': a.global_values_are_keys, 'num_kv_shared_layers': a.num_kv_shared_layers,
        'use_double_wide_mlp': a.kv_shared_hidden_dim is not None, 'vocab_size': a.num_embed,
        'hidden_size_per_layer_input': a.per_layer_dim, 'enable_moe_block': experts is not None,
        'num_experts': experts and experts.count, 'top_k_experts': experts and experts.per_token,
        'moe_intermediate_size': experts and experts.hidden_dim,
        'use_bidirectional_attention': None if a.per_layer_dim else 'vision',
        'rope_parameters': {
            'full_attention': {
                'rope_type': 'proportional', 'rope_theta': float(a.global_base_frequency),
                'partial_rotary_factor': a.global_rotary_share,
            },
            'sliding_attention': {'rope_type': 'default', 'rope_theta': float(a.local_base_frequency)},
        },
    }  # fmt: skip
    return {'architectures': ['Gemma4ForConditionalGeneration'], 'text_config': text, 'vision_config': {}}


def metadata(a: GemmaArchitecture) -> dict[str, Any]:
    """The converter's metadata, without the name before the first point."""
    head_dim = a.global_head_dim or a.head_dim
    hidden = [layer.hidden_dim for layer in a.layers]
    of_all: dict[str, Any] = gguf_metadata(a) | {
        'attention.key_length': head_dim, 'attention.value_length': head_dim,
        'feed_forward_length': hidden if a.kv_shared_hidden_dim or a.generation == '3n' else a.hidden_dim,
        'final_logit_softcapping': a.final_logit_softcap,
        'rope.freq_base': float(a.global_base_frequency), 'rope.freq_base_swa': float(a.local_base_frequency),
        'attention.shared_kv_layers': a.num_kv_shared_layers,
        'embedding_length_per_layer_input': a.per_layer_dim,
    }  # fmt: skip
    if a.altup is not None:
        bounds = [
            statistics.NormalDist().inv_cdf(a.altup.sparsity) if index < a.altup.sparse_layers else -np.inf
            for index in range(a.num_layers)
        ]
        return of_all | {
            'altup.active_idx': 0, 'altup.num_inputs': a.altup.copies, 'activation_sparsity_scale': bounds,
        }  # fmt: skip
    of_all |= {
        'attention.key_length_swa': a.head_dim, 'attention.value_length_swa': a.head_dim,
        'rope.dimension_count': head_dim, 'rope.dimension_count_swa': a.head_dim,
    }  # fmt: skip
    if a.num_global_kv_heads is not None:
        of_all['attention.head_count_kv'] = [layer.num_kv_heads for layer in a.layers]
    if a.experts is not None:
        of_all |= {
            'expert_count': a.experts.count, 'expert_used_count': a.experts.per_token,
            'expert_feed_forward_length': a.experts.hidden_dim,
        }  # fmt: skip
    return of_all
