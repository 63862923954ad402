"""Writes GGUF files with the package's own writer, under names that are listed here once more."""

import pathlib
from typing import Any

import gguf
import numpy as np

from models.decoders.gemma import architectures

F32 = gguf.GGMLQuantizationType.F32
_NAMES = {
    'embed_tokens': 'token_embd', 'norm': 'output_norm', 'self_attn.q_proj': 'attn_q',
    'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v', 'self_attn.o_proj': 'attn_output',
    'self_attn.q_norm': 'attn_q_norm', 'self_attn.k_norm': 'attn_k_norm', 'mlp.gate_proj': 'ffn_gate',
    'mlp.up_proj': 'ffn_up', 'mlp.down_proj': 'ffn_down', 'input_layernorm': 'attn_norm',
    'pre_feedforward_layernorm': 'ffn_norm', 'post_feedforward_layernorm': 'post_ffw_norm',
}  # fmt: skip


def gguf_tensors(a: architectures.GemmaArchitecture, hub: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The hub's tensors as llama.cpp's converter writes them: other names, and norms with the 1 added."""
    tensors = {}
    for name, value in hub.items():
        stem = name.removeprefix('model.').removesuffix('.weight')
        layer = ''
        if stem.startswith('layers.'):
            _, index, stem = stem.split('.', 2)
            layer = f'blk.{index}.'
        if stem == 'post_attention_layernorm':
            short = 'ffn_norm' if a.generation == '1' else 'post_attention_norm'
        else:
            short = _NAMES[stem]
        tensors[f'{layer}{short}.weight'] = value + 1 if stem.endswith('norm') else value
    return tensors


def gguf_metadata(a: architectures.GemmaArchitecture) -> dict[str, Any]:
    """The converter's metadata of an architecture, without the name before the first point."""
    metadata: dict[str, Any] = {
        'block_count': a.num_layers, 'embedding_length': a.embed_dim, 'feed_forward_length': a.hidden_dim,
        'attention.head_count': a.num_heads, 'attention.head_count_kv': a.num_kv_heads,
        'attention.key_length': a.head_dim, 'attention.value_length': a.head_dim,
        'attention.layer_norm_rms_epsilon': 1e-6,
    }  # fmt: skip
    if a.generation > '1':
        metadata['attention.sliding_window'] = a.sliding_window_size
        metadata['attention.sliding_window_pattern'] = [kind == 'local' for kind in a.attention_types]
    if a.generation == '2':
        metadata['attn_logit_softcapping'] = a.attn_logits_soft_cap
        metadata['final_logit_softcapping'] = a.final_logit_softcap
    if a.generation == '3':
        metadata['rope.freq_base'] = float(a.global_base_frequency)
        metadata['rope.freq_base_swa'] = float(a.local_base_frequency)
        metadata['rope.scaling.factor'] = a.global_scale_factor
    return metadata


def write_gguf(
    path: pathlib.Path,
    name: str,
    metadata: dict[str, Any],
    tensors: dict[str, np.ndarray],
    *,
    general: dict[str, Any] | None = None,
    kinds: dict[str, gguf.GGMLQuantizationType] | None = None,
) -> pathlib.Path:
    """Writes one file.

    Args:
        path: Path of the file.
        name: Its `general.architecture`; keys of `metadata` follow it.
        metadata: Numbers and lists of them; None leaves a key out.
        tensors: float32 arrays by name.
        general: Keys that stand as they are.
        kinds: Quantization by tensor; float32 for others.
    """
    writer = gguf.GGUFWriter(path, name)
    writer.data_alignment = (general or {}).get('general.alignment', writer.data_alignment)
    named = {f'{name}.{key}': value for key, value in metadata.items()} | (general or {})
    for key, value in named.items():
        if value is None:
            continue
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for tensor, value in tensors.items():
        kind = (kinds or {}).get(tensor, F32)
        writer.add_tensor(tensor, gguf.quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
