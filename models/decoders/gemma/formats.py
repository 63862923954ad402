"""Formats of Gemma's checkpoints: tensors' names in each of them, and the numbers that files tell.

The formats agree with the gemma library on what the numbers mean: norms store w and scale by 1 + w, rotary
positions turn the first half of a head against the second, attention scales queries by the same scalar. So
every weight is rearranged and none is recomputed, but for norms in GGUF, which are stored with the 1.

Facts of GGUF, from llama.cpp's converter and its Gemma graphs: rows of queries and keys are in the order of
`transformers`, since only `llama` architectures permute them. A key that a file leaves out has llama.cpp's
own default. The scale of queries is in no key: llama.cpp takes it from the model's size, and so do we.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from models.decoders.gemma.architectures import ARCHITECTURES, GemmaArchitecture
from models.decoders.transformer import gguf, safetensors
from models.decoders.transformer.architecture import AttentionType
from models.decoders.transformer.checkpoint import LISTED, Names

# Rows of a hub embedding that differ from the library's, for each of the library's
# vocabularies. Gemma 1 and 2: no piece has an id from 256,000 on, and the missing
# rows become zeros. Multi-modal Gemma 3: ids from 262,144 on are the image
# placeholder and padding; no SentencePiece piece has them, so no id of a text is lost.
_HUB_ROWS = {256_128: 256_000, 262_144: 262_208}
# `general.architecture` of each generation.
_GGUF_KINDS = {1: 'gemma', 2: 'gemma2', 3: 'gemma3'}
# Every n-th layer attends to all, where the file does not say which.
_PATTERN_PERIODS = {2: 2, 3: 6}


# A layer's tensors by their fields of `Names`, as `transformers` calls them (`modeling_gemma.py`,
# `modeling_gemma2.py`, `modeling_gemma3.py`), and as llama.cpp does.
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
        embedding_rows=_HUB_ROWS.get(a.num_embed),
        **names,
    )


def _gguf_names(a: GemmaArchitecture) -> Names:
    names: dict[str, Any] = {field: f'blk.{{}}.{name}.weight' for field, (_, name) in _LAYER_TENSORS.items()}
    return Names(
        embedding='token_embd.weight',
        final_norm='output_norm.weight',
        output='output.weight',
        norms_hold_one=True,
        embedding_rows=_HUB_ROWS.get(a.num_embed),
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
        'use_bidirectional_attention': False,
    }
    if 'local' in a.attention_types:
        fields['sliding_window'] = a.sliding_window_size
    if a.generation == 3:
        fields['rope_local_base_freq'] = a.local_base_frequency
    if a.generation > 1:
        fields['hidden_activation'] = 'gelu_pytorch_tanh'
        fields['query_pre_attn_scalar'] = a.query_pre_attn_scalar or a.head_dim
    return fields


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
    fields: dict[str, tuple[object, object]] = {
        'block_count': (a.num_layers, None),
        'embedding_length': (a.embed_dim, None),
        'feed_forward_length': (a.hidden_dim, None),
        'attention.head_count': (a.num_heads, None),
        'attention.head_count_kv': (a.num_kv_heads, a.num_heads),
        'attention.key_length': (a.head_dim, a.embed_dim // a.num_heads),
        'attention.value_length': (a.head_dim, a.embed_dim // a.num_heads),
        'attention.layer_norm_rms_epsilon': (a.norm_epsilon, None),
        'attention.causal': (True, True),
        'rope.dimension_count': (a.head_dim, a.head_dim),
        'rope.freq_base': (float(a.global_base_frequency), 10_000.0),
        'rope.scaling.factor': (a.global_scale_factor, 1.0),
        'attn_logit_softcapping': (a.attn_logits_soft_cap, 50.0 if a.generation == 2 else None),
        'final_logit_softcapping': (a.final_logit_softcap, 30.0 if a.generation == 2 else None),
    }
    if 'local' in a.attention_types:
        fields['attention.sliding_window'] = (a.sliding_window_size, 4096 if a.generation == 2 else None)
        if a.generation == 3:
            fields['rope.freq_base_swa'] = (float(a.local_base_frequency), 10_000.0)
    return fields


def _shown(value: Any) -> str:
    """A value for an error, which has no room for one of each of many layers."""
    if isinstance(value, list) and len(value) > LISTED:
        return f'a list of {len(value)}'
    return repr(value)


def _same(number: object, expected: object) -> bool:
    """True if two numbers are equal, as far as the file's float32 can tell."""
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
    # A causal model, the two layouts of multi-modal Gemma 3, and a bare text model.
    prefixes=('model.', 'language_model.model.', 'model.language_model.', ''),
    output_copies=('lm_head.weight', 'language_model.lm_head.weight'),
    ignored=(
        'vision_tower.', 'multi_modal_projector.', 'model.vision_tower.', 'model.multi_modal_projector.',
    ),
)  # fmt: skip
GGUF = gguf.Format(
    models=ARCHITECTURES,
    kinds=tuple(_GGUF_KINDS.values()),
    names=_gguf_names,
    differences=lambda a, metadata: list(_gguf_differences(a, metadata)),
)
