"""Formats of Gemma's checkpoints: tensors' names in each of them, and the numbers that files tell.

The formats agree with the gemma library on what the numbers mean: norms of Gemma 1 to 3 store w and scale by
1 + w, rotary positions turn the first half of a head against the second, attention scales queries by the same
scalar. So every weight is rearranged and none is recomputed, but for those norms in GGUF, which are stored
with the 1.

Facts of GGUF, from llama.cpp's converter and its Gemma graphs: rows of queries and keys are in the order of
`transformers`, since only `llama` architectures permute them. A key that a file leaves out has llama.cpp's
own default. The scale of queries is in no key: llama.cpp takes it from the model's size, and so do we.
"""

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from models.decoders.gemma.architectures import ARCHITECTURES, GemmaArchitecture
from models.decoders.transformer import gguf, safetensors
from models.decoders.transformer.architecture import AltUp, AttentionType
from models.decoders.transformer.checkpoint import LISTED, Names

# Rows of a file's tables that differ from the library's, for each of the library's
# vocabularies. Gemma 1 and 2: no piece has an id from 256,000 on, and the missing
# rows become zeros. Multi-modal Gemma 3 and Gemma 3n: ids from 262,144 on are placeholders
# of images and sounds, and padding; no SentencePiece piece has them, so no id of a text is lost.
_TABLE_ROWS = {256_128: (256_000,), 262_144: (262_208, 262_400)}
# `general.architecture` of each generation.
_GGUF_KINDS = {'1': 'gemma', '2': 'gemma2', '3': 'gemma3', '3n': 'gemma3n', '4': 'gemma4'}
# Every n-th layer attends to all, where the file does not say which.
_PATTERN_PERIODS = {'2': 2, '3': 6, '3n': 5}


# A layer's tensors by their fields of `Names`, as `transformers` calls them (`modeling_gemma.py`,
# `modeling_gemma2.py` and so on), and as llama.cpp does.
_LAYER_TENSORS = {
    'query': ('self_attn.q_proj', 'attn_q'),
    'key': ('self_attn.k_proj', 'attn_k'),
    'value': ('self_attn.v_proj', 'attn_v'),
    'attention_output': ('self_attn.o_proj', 'attn_output'),
    'gate': ('mlp.gate_proj', 'ffn_gate'),
    'up': ('mlp.up_proj', 'ffn_up'),
    'down': ('mlp.down_proj', 'ffn_down'),
    'pre_attention_norm': ('input_layernorm', 'attn_norm'),
    'pre_ffw_norm': ('pre_feedforward_layernorm', 'ffn_norm'),
    'post_attention_norm': ('post_attention_layernorm', 'post_attention_norm'),
    'post_ffw_norm': ('post_feedforward_layernorm', 'post_ffw_norm'),
    'query_norm': ('self_attn.q_norm', 'attn_q_norm'),
    'key_norm': ('self_attn.k_norm', 'attn_k_norm'),
}
# Further tensors by their fields of the weights, in both formats. Vectors that are no norm have no `.weight`
# on the hub.
_OTHER_TENSORS = {
    'scale': ('layers.{}.layer_scalar', 'blk.{}.layer_output_scale.weight'),
    'per_layer_gate': ('layers.{}.per_layer_input_gate.weight', 'blk.{}.inp_gate.weight'),
    'per_layer_up': ('layers.{}.per_layer_projection.weight', 'blk.{}.proj.weight'),
    'per_layer_norm': ('layers.{}.post_per_layer_input_norm.weight', 'blk.{}.post_norm.weight'),
    'per_layer_embedding': ('embed_tokens_per_layer.weight', 'per_layer_token_embd.weight'),
    'per_layer_projection': ('per_layer_model_projection.weight', 'per_layer_model_proj.weight'),
    'per_layer_projection_norm': ('per_layer_projection_norm.weight', 'per_layer_proj_norm.weight'),
    'router': ('layers.{}.router.proj.weight', 'blk.{}.ffn_gate_inp.weight'),
    'router_scale': ('layers.{}.router.scale', 'blk.{}.ffn_gate_inp.scale'),
    'experts_norm': ('layers.{}.pre_feedforward_layernorm_2.weight', 'blk.{}.pre_ffw_norm_2.weight'),
    'experts_gate_up': ('layers.{}.experts.gate_up_proj', 'blk.{}.ffn_gate_up_exps.weight'),
    'experts_down': ('layers.{}.experts.down_proj', 'blk.{}.ffn_down_exps.weight'),
    'experts_scale': ('layers.{}.router.per_expert_scale', 'blk.{}.ffn_down_exps.scale'),
    'post_experts_norm': ('layers.{}.post_feedforward_layernorm_2.weight', 'blk.{}.post_ffw_norm_2.weight'),
    'post_dense_norm': ('layers.{}.post_feedforward_layernorm_1.weight', 'blk.{}.post_ffw_norm_1.weight'),
    'altup_norm': ('layers.{}.altup.router_norm.weight', 'blk.{}.altup_router_norm.weight'),
    'altup_router': ('layers.{}.altup.modality_router.weight', 'blk.{}.altup_router.weight'),
    'altup_prediction': ('layers.{}.altup.prediction_coefs.weight', 'blk.{}.altup_predict_coef.weight'),
    'altup_correction': ('layers.{}.altup.correction_coefs.weight', 'blk.{}.altup_correct_coef.weight'),
    'altup_scale': ('layers.{}.altup.correct_output_scale', 'blk.{}.altup_correct_scale.weight'),
    'altup_copying': ('altup_projections.{}.weight', 'altup_proj.weight'),
    'altup_joining': ('altup_unembed_projections.{}.weight', 'altup_unembd_proj.weight'),
    'laurel_down': ('layers.{}.laurel.linear_left.weight', 'blk.{}.laurel_l.weight'),
    'laurel_up': ('layers.{}.laurel.linear_right.weight', 'blk.{}.laurel_r.weight'),
    'laurel_norm': ('layers.{}.laurel.post_laurel_norm.weight', 'blk.{}.laurel_post_norm.weight'),
}
# Each pair of rotated numbers has a factor in a tensor of llama.cpp's; its sizes follow from the share.
_ROPE_FACTORS = 'rope_freqs.weight'


def _unread(a: GemmaArchitecture, keys: str) -> tuple[str, ...]:
    """Beginnings of names of keys' and values' tensors, in layers that attend to an earlier layer's."""
    return tuple(
        keys.format(layer.index) + name for layer in a.layers if not layer.has_keys for name in ('k', 'v')
    )


def _hub_names(a: GemmaArchitecture) -> Names:
    names: dict[str, Any] = {
        field: f'layers.{{}}.{name}.weight' for field, (name, _) in _LAYER_TENSORS.items()
    }
    if not a.use_post_norms:
        # Gemma 1 has two norms a layer, and calls the one before its feed-forward so.
        names['pre_ffw_norm'] = names['post_attention_norm']
    return Names(
        embedding='embed_tokens.weight',
        final_norm='norm.weight',
        output='lm_head.weight',
        others={field: name for field, (name, _) in _OTHER_TENSORS.items()},
        unread=_unread(a, 'layers.{}.self_attn.'),
        table_rows=_TABLE_ROWS.get(a.num_embed, ()),
        **names,
    )


def _gguf_names(a: GemmaArchitecture) -> Names:
    names: dict[str, Any] = {field: f'blk.{{}}.{name}.weight' for field, (_, name) in _LAYER_TENSORS.items()}
    return Names(
        embedding='token_embd.weight',
        final_norm='output_norm.weight',
        output='output.weight',
        others={field: name for field, (_, name) in _OTHER_TENSORS.items()},
        unread=(*_unread(a, 'blk.{}.attn_'), *[_ROPE_FACTORS] * (a.global_rotary_share < 1)),
        norms_hold_one=a.norms_add_one,
        table_rows=_TABLE_ROWS.get(a.num_embed, ()),
        **names,
    )


def _config_fields(a: GemmaArchitecture) -> dict[str, object]:
    """The architecture in the words of `transformers`."""
    fields: dict[str, object] = {
        # Numbers that tell models apart stand first, since an error lists no more than a few.
        'num_hidden_layers': a.num_layers,
        'hidden_size': a.embed_dim,
        'intermediate_size': a.hidden_dim,
        'num_attention_heads': a.num_heads,
        'num_key_value_heads': a.num_kv_heads,
        'head_dim': a.head_dim,
        'rms_norm_eps': a.norm_epsilon,
        'attn_logit_softcapping': a.attn_logits_soft_cap,
        'final_logit_softcapping': a.final_logit_softcap,
        'rope_theta': a.global_base_frequency,
        'rope_factor': a.global_scale_factor,
        'rope_local_factor': a.local_scale_factor,
        'layer_types': [
            {'local': 'sliding_attention', 'global': 'full_attention'}[name] for name in a.attention_types
        ],
        # Images' tokens see one another in the large ones of Gemma 4; those of a text never do.
        'use_bidirectional_attention': False,
    }
    if 'local' in a.attention_types:
        fields['sliding_window'] = a.sliding_window_size
    if a.generation in ('3', '3n', '4'):
        fields['rope_local_base_freq'] = a.local_base_frequency
    if a.generation != '1':
        fields['hidden_activation'] = 'gelu_pytorch_tanh'
    if a.generation in ('2', '3'):
        fields['query_pre_attn_scalar'] = a.query_pre_attn_scalar or a.head_dim
    if a.generation in ('3n', '4'):
        fields |= {
            'num_kv_shared_layers': a.num_kv_shared_layers,
            'hidden_size_per_layer_input': a.per_layer_dim,
        }
    if a.generation == '4':
        experts = a.experts
        fields |= {
            'global_head_dim': a.global_head_dim,
            'num_global_key_value_heads': a.num_global_kv_heads,
            'attention_k_eq_v': a.global_values_are_keys,
            'use_double_wide_mlp': a.kv_shared_hidden_dim is not None,
            'enable_moe_block': experts is not None,
            'num_experts': None if experts is None else experts.count,
            'top_k_experts': None if experts is None else experts.per_token,
            'moe_intermediate_size': None if experts is None else experts.hidden_dim,
            'rope_share': a.global_rotary_share,
            'rope_local_share': 1.0,
            'use_bidirectional_attention': None if a.per_layer_dim else 'vision',
        }
    if (altup := a.altup) is not None:
        fields |= {
            'altup_num_inputs': altup.copies,
            'altup_active_idx': 0,
            'altup_coef_clip': altup.largest_coefficient,
            'laurel_rank': altup.laurel_rank,
            'activation_sparsity_pattern': _sparsities(a, altup),
        }
    return fields


def _sparsities(a: GemmaArchitecture, altup: AltUp) -> list[float]:
    """The sparsity of each layer's gate."""
    return [altup.sparsity if index < altup.sparse_layers else 0.0 for index in range(a.num_layers)]


def _gguf_differences(a: GemmaArchitecture, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Each number of a file that is not the architecture's, in words."""
    name, expected = gguf.plain(metadata['general.architecture']), _GGUF_KINDS[a.generation]
    if name != expected:
        yield f'general.architecture={name!r} where {expected!r} is expected'
        return
    for key, (value, default) in _gguf_fields(a).items():
        number = gguf.plain(metadata.get(f'{name}.{key}', default))
        if number is None and value is None:
            continue
        if not _same(number, value):
            yield f'{name}.{key}={_shown(number)} where {value!r} is expected'
    scaling = gguf.plain(metadata.get(f'{name}.rope.scaling.type', 'linear'))
    if scaling not in ('linear', 'none'):
        yield f"{name}.rope.scaling.type={scaling!r} where 'linear' is expected"
    pattern_key = f'{name}.attention.sliding_window_pattern'
    pattern = metadata.get(pattern_key, _PATTERN_PERIODS.get(a.generation))
    same_depth = gguf.plain(metadata.get(f'{name}.block_count')) == a.num_layers
    if same_depth and pattern is not None and _attention_types(pattern, a.num_layers) != a.attention_types:
        yield f"{pattern_key}={_shown(gguf.plain(pattern))} where the model's own is expected"


def _gguf_fields(a: GemmaArchitecture) -> dict[str, tuple[object, object]]:
    """By GGUF's keys, what a file of it says, and what llama.cpp takes where a file says nothing."""
    head_dim = a.global_head_dim or a.head_dim
    capped = a.generation in ('2', '3n', '4')
    fields: dict[str, tuple[object, object]] = {
        'block_count': (a.num_layers, None),
        'embedding_length': (a.embed_dim, None),
        'feed_forward_length': (_plain([layer.hidden_dim for layer in a.layers]), None),
        'attention.head_count': (a.num_heads, None),
        'attention.head_count_kv': (_plain([layer.num_kv_heads for layer in a.layers]), a.num_heads),
        'attention.key_length': (head_dim, a.embed_dim // a.num_heads),
        'attention.value_length': (head_dim, a.embed_dim // a.num_heads),
        'attention.layer_norm_rms_epsilon': (a.norm_epsilon, None),
        'attention.causal': (True, True),
        'rope.dimension_count': (head_dim, head_dim),
        'rope.freq_base': (float(a.global_base_frequency), 10_000.0),
        'rope.scaling.factor': (a.global_scale_factor, 1.0),
        'attn_logit_softcapping': (a.attn_logits_soft_cap, 50.0 if a.generation == '2' else None),
        'final_logit_softcapping': (a.final_logit_softcap, 30.0 if capped else None),
    }
    if 'local' in a.attention_types:
        fields['attention.sliding_window'] = (a.sliding_window_size, 4096 if a.generation == '2' else None)
        if a.generation in ('3', '3n', '4'):
            fields['rope.freq_base_swa'] = (float(a.local_base_frequency), 10_000.0)
    if a.generation == '3n':
        # llama.cpp has no other numbers of such models.
        fields['attention.shared_kv_layers'] = (a.num_kv_shared_layers, a.num_layers - 20)
        fields['embedding_length_per_layer_input'] = (a.per_layer_dim, 256)
    if a.generation == '4':
        fields['attention.shared_kv_layers'] = (a.num_kv_shared_layers, 0)
        fields['embedding_length_per_layer_input'] = (a.per_layer_dim, None)
        fields |= {
            key: (a.head_dim, None if key.startswith('attention') else a.head_dim)
            for key in ('attention.key_length_swa', 'attention.value_length_swa', 'rope.dimension_count_swa')
        }
        experts = a.experts
        fields |= {
            'expert_count': (0 if experts is None else experts.count, 0),
            'expert_used_count': (0 if experts is None else experts.per_token, 0),
            'expert_feed_forward_length': (0 if experts is None else experts.hidden_dim, 0),
        }
    if (altup := a.altup) is not None:
        quantiles = [
            statistics.NormalDist().inv_cdf(share) if share else -math.inf for share in _sparsities(a, altup)
        ]
        fields |= {
            'altup.num_inputs': (altup.copies, 4),
            'altup.active_idx': (0, 0),
            'activation_sparsity_scale': (_plain(quantiles), quantiles),
        }
    return fields


def _plain(of_layers: list[Any]) -> Any:
    """As `gguf.plain` gives a list of one for each layer."""
    return of_layers[0] if len(set(of_layers)) == 1 else of_layers


def _shown(value: Any) -> str:
    """A value for an error, which has no room for one of each of many layers."""
    if isinstance(value, list) and len(value) > LISTED:
        return f'a list of {len(value)}'
    return repr(value)


def _same(number: object, expected: object) -> bool:
    """True if two numbers are equal, or two lists of them, as far as the file's float32 can tell."""
    if isinstance(expected, list) and isinstance(number, list):
        return len(number) == len(expected) and all(map(_same, number, expected))
    if isinstance(expected, float) and isinstance(number, int | float):
        return math.isclose(number, expected, rel_tol=1e-6)
    return number == expected


def _attention_types(pattern: Any, num_layers: int) -> tuple[AttentionType, ...]:
    """The kind of attention of each layer: every n-th layer to all, or a flag a layer that says local."""
    if isinstance(pattern, np.ndarray):
        flags = [bool(flag) for flag in pattern]
    elif isinstance(pattern, int):
        flags = [bool(pattern) and (index + 1) % pattern != 0 for index in range(num_layers)]
    else:
        flags = []  # no pattern that the format knows
    return tuple('local' if flag else 'global' for flag in flags)


HUB = safetensors.Format(
    models=ARCHITECTURES,
    names=_hub_names,
    config=_config_fields,
    # A causal model, the two layouts of multi-modal ones, and a bare text model.
    prefixes=('model.', 'language_model.model.', 'model.language_model.', ''),
    output_copies=('lm_head.weight', 'language_model.lm_head.weight'),
    ignored=tuple(
        prefix + part
        for prefix in ('', 'model.')
        for part in (
            'vision_tower.',
            'audio_tower.',
            'multi_modal_projector.',
            'embed_vision.',
            'embed_audio.',
        )
    ),
)
GGUF = gguf.Format(
    models=ARCHITECTURES,
    kinds=tuple(_GGUF_KINDS.values()),
    names=_gguf_names,
    differences=lambda a, metadata: list(_gguf_differences(a, metadata)),
)
