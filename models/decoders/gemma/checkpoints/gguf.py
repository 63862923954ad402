"""Reads GGUF, the format of llama.cpp, in whatever quantization the `gguf` package dequantizes.

Facts of the format, from llama.cpp's converter and its Gemma graphs: norms are stored with
the 1 that the library adds when it scales; rows of queries and keys are in the order of
`transformers`, since only `llama` architectures permute them; the output layer is the embedding.
A key that a file leaves out has llama.cpp's own default. What queries are scaled by is in no
key: llama.cpp takes it from the model's size, and so do we.
"""

import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np

from models.decoders.gemma import architectures, gguf_file
from models.decoders.gemma import decoder as gemma
from models.decoders.gemma.checkpoints import differences, name_map

if TYPE_CHECKING:
    import gguf

# `general.architecture` of each generation.
ARCHITECTURE_NAMES = {1: 'gemma', 2: 'gemma2', 3: 'gemma3'}
# Every n-th layer attends to all, where the file does not say which.
_PATTERN_PERIODS = {2: 2, 3: 6}
_EMBEDDING, _OUTPUT = 'token_embd.weight', 'output.weight'
_OUTER_NAMES = {'embed_tokens': 'token_embd', 'norm': 'output_norm'}
_LAYER_NAMES = {
    'self_attn.q_proj': 'attn_q',
    'self_attn.k_proj': 'attn_k',
    'self_attn.v_proj': 'attn_v',
    'self_attn.o_proj': 'attn_output',
    'self_attn.q_norm': 'attn_q_norm',
    'self_attn.k_norm': 'attn_k_norm',
    'mlp.gate_proj': 'ffn_gate',
    'mlp.up_proj': 'ffn_up',
    'mlp.down_proj': 'ffn_down',
    'input_layernorm': 'attn_norm',
    'post_attention_layernorm': 'post_attention_norm',
    'pre_feedforward_layernorm': 'ffn_norm',
    'post_feedforward_layernorm': 'post_ffw_norm',
}
# Numbers that are dequantized at a time; they take three times their bytes for a moment.
_CHUNK = 2**21
# JAX takes over an array on the host as it is where it begins at a multiple of this many bytes.
_JAX_ALIGNMENT = 64


def load(
    architecture: architectures.Architecture, path: pathlib.Path, *, dtype: jax.typing.DTypeLike
) -> gemma.Parameters:
    """Reads the parameters of a file, a tensor at a time and the embedding in pieces.

    Arguments, result and errors as of `load_parameters`.
    """
    tensors, weights = _match(architecture, path)
    params: gemma.Parameters = {}
    with path.open('rb') as file:
        if _OUTPUT in tensors:
            _check_output_is_tied(file, tensors)
        for weight in weights:
            stored = [(name, tensors[_stored_name(name, architecture)]) for name in weight.sources]
            if stored[0][1] is tensors[_EMBEDDING]:
                rows = _read_embedding(file, tensors[_EMBEDDING], architecture.num_embed, jnp.dtype(dtype))
                name_map.place(params, weight.target, jax.device_put(rows, may_alias=True))
                continue
            arrays = [
                # Not in the narrow type: 1 + w has fewer digits left for w.
                _read(file, tensor) - np.float32(name.endswith('norm.weight'))
                for name, tensor in stored
            ]
            name_map.place(params, weight.target, jnp.asarray(weight.arrange(*arrays), dtype))
    return params


def check(architecture: architectures.Architecture, path: pathlib.Path) -> None:
    """Refuses a file whose metadata, names, shapes or types are not of this architecture.

    Raises:
        ValueError: The file is damaged, or what differs.
    """
    _match(architecture, path)


def _match(
    architecture: architectures.Architecture, path: pathlib.Path
) -> tuple[Mapping[str, gguf_file.Tensor], list[name_map.Weight]]:
    """The tensors of a file that fits an architecture, and how each parameter is made of them."""
    header = gguf_file.read_header(path)
    _check_kind(header.metadata, path)
    _check_metadata(architecture, header.metadata)
    embedding = header.tensors.get(_EMBEDDING)
    num_rows = architecture.num_embed if embedding is None else embedding.shape[0]
    weights = list(name_map.weights(architecture, name_map.expected_rows(architecture, num_rows)))
    expected = {
        _stored_name(name, architecture): shape
        for weight in weights
        for name, shape in weight.sources.items()
    }
    _check_tensors(header.tensors, expected)
    return header.tensors, weights


def _stored_name(name: str, architecture: architectures.Architecture) -> str:
    """A tensor's name in GGUF: 'layers.3.mlp.up_proj.weight' is 'blk.3.ffn_up.weight'."""
    name, suffix = name.rsplit('.', 1)
    if not name.startswith('layers.'):
        return f'{_OUTER_NAMES[name]}.{suffix}'
    _, index, name = name.split('.', 2)
    if name == 'post_attention_layernorm' and not architecture.use_post_norms:
        return f'blk.{index}.ffn_norm.{suffix}'  # Gemma 1 calls the norm before its feed-forward so.
    return f'blk.{index}.{_LAYER_NAMES[name]}.{suffix}'


def _check_kind(metadata: Mapping[str, Any], path: pathlib.Path) -> None:
    """Refuses what is no text model of the three generations, or not all of it."""
    kind, name = (
        _plain(metadata.get(*key)) for key in (('general.type', 'model'), ('general.architecture',))
    )
    if kind == 'adapter' or 'adapter.type' in metadata:
        raise ValueError(
            f'Expected the weights of a model, got an adapter, path={str(path)!r}. '
            'Merge it into its model, and give that.'
        )
    if kind != 'model' or name == 'clip':
        raise ValueError(
            f'Expected the weights of a text model, got general.type={kind!r} of '
            f"general.architecture={name!r}, path={str(path)!r}. Give the text model's own file."
        )
    if name not in ARCHITECTURE_NAMES.values():
        raise ValueError(
            f'Expected general.architecture among {", ".join(ARCHITECTURE_NAMES.values())}, got {name!r}, '
            f'path={str(path)!r}. Give a Gemma 1, 2 or 3 text model.'
        )
    if (count := _plain(metadata.get('split.count', 1))) not in (0, 1):
        raise ValueError(
            f'Expected a model in one file, got split.count={count!r}, path={str(path)!r}. '
            "Join the parts with llama.cpp's llama-gguf-split --merge."
        )


def _check_metadata(architecture: architectures.Architecture, metadata: Mapping[str, Any]) -> None:
    """Holds the numbers of the file against the architecture; names those that differ."""
    complaints = list(_differences(architecture, metadata))
    if not complaints:
        return
    remedy = differences.remedy(
        lambda known: not any(_differences(known, metadata)), 'Choose the model that it was made for.'
    )
    raise ValueError(f'Expected a file of the chosen model, got {differences.listed(complaints)}. {remedy}')


def _differences(a: architectures.Architecture, metadata: Mapping[str, Any]) -> Iterator[str]:
    """Where a file's numbers are not the architecture's."""
    name, expected = _plain(metadata['general.architecture']), ARCHITECTURE_NAMES[a.generation]
    if name != expected:
        yield f'general.architecture={name!r} where {expected!r} is expected'
        return
    for key, (value, default) in _fields(a).items():
        found = _plain(metadata.get(f'{name}.{key}', default))
        if found is None and value is None:
            continue
        if not _same(found, value):
            yield f'{name}.{key}={_shown(found)} where {value!r} is expected'
    scaling = _plain(metadata.get(f'{name}.rope.scaling.type', 'linear'))
    if scaling not in ('linear', 'none'):
        yield f"{name}.rope.scaling.type={scaling!r} where 'linear' is expected"
    pattern_key = f'{name}.attention.sliding_window_pattern'
    pattern = metadata.get(pattern_key, _PATTERN_PERIODS.get(a.generation))
    same_depth = _plain(metadata.get(f'{name}.block_count')) == a.num_layers
    if same_depth and pattern is not None and _attention_types(pattern, a.num_layers) != a.attention_types:
        yield f"{pattern_key}={_shown(_plain(pattern))} where the model's own is expected"


def _fields(a: architectures.Architecture) -> dict[str, tuple[object, object]]:
    """By GGUF's keys, what a file of it says, and what llama.cpp takes where a file says nothing."""
    fields: dict[str, tuple[object, object]] = {
        'block_count': (a.num_layers, None),
        'embedding_length': (a.embed_dim, None),
        'feed_forward_length': (a.hidden_dim, None),
        'attention.head_count': (a.num_heads, None),
        'attention.head_count_kv': (a.num_kv_heads, a.num_heads),
        'attention.key_length': (a.head_dim, a.embed_dim // a.num_heads),
        'attention.value_length': (a.head_dim, a.embed_dim // a.num_heads),
        'attention.layer_norm_rms_epsilon': (1e-6, None),
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


def _plain(value: Any) -> Any:
    """A value of the metadata; of one for each layer, the one where all are equal."""
    if isinstance(value, np.ndarray):
        return value[0].item() if len(value) and (value == value[0]).all() else value.tolist()
    return value


def _shown(value: Any) -> str:
    """A value for an error, which has no room for one of each of many layers."""
    if isinstance(value, list) and len(value) > differences.LISTED:
        return f'a list of {len(value)}'
    return repr(value)


def _same(found: object, expected: object) -> bool:
    """Whether two numbers are equal, as far as the file's float32 can tell."""
    if isinstance(expected, float) and isinstance(found, int | float):
        return math.isclose(found, expected, rel_tol=1e-6)
    return found == expected


def _attention_types(pattern: Any, num_layers: int) -> tuple[architectures.AttentionType, ...]:
    """What each layer attends to: every n-th layer to all, or a flag a layer that says local."""
    if isinstance(pattern, np.ndarray):
        flags = [bool(flag) for flag in pattern]
    elif isinstance(pattern, int):
        flags = [bool(pattern) and (index + 1) % pattern != 0 for index in range(num_layers)]
    else:
        flags = []  # no pattern that the format knows
    return tuple('local' if flag else 'global' for flag in flags)


def _check_tensors(tensors: Mapping[str, gguf_file.Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    """Compares names, shapes and types, and lists what differs, the first few of many."""
    remedy = 'Use the model that the file was made for, and fetch the file again if it is that one.'
    if missing := sorted(expected.keys() - tensors.keys()):
        raise ValueError(
            f'Expected every weight of the architecture, got none for {differences.listed(missing)}. {remedy}'
        )
    if surplus := sorted(tensors.keys() - expected.keys() - {_OUTPUT}):
        raise ValueError(f'Expected no further weights, got {differences.listed(surplus)}. {remedy}')
    misshapen = [
        f'{name}: expected {shape}, found {tensors[name].shape}'
        for name, shape in expected.items()
        if tensors[name].shape != shape
    ]
    if misshapen:
        raise ValueError(
            'Expected weights in the shapes of the architecture, got '
            f'{differences.listed(misshapen)}. {remedy}'
        )
    unreadable = {tensors[name].type for name in expected} - _readable(
        {tensors[name].type for name in expected}
    )
    if unreadable:
        raise ValueError(
            'Expected quantizations that the gguf package dequantizes, got '
            f'{", ".join(sorted(kind.name for kind in unreadable))}. Use a file in another quantization.'
        )


def _readable(kinds: 'set[gguf.GGMLQuantizationType]') -> 'set[gguf.GGMLQuantizationType]':
    """Those that can be dequantized, as a block of zeros shows."""
    import gguf

    readable = set()
    for kind in kinds:
        _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        try:
            gguf.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
        except NotImplementedError:
            continue
        readable.add(kind)
    return readable


def _read(file: BinaryIO, tensor: gguf_file.Tensor) -> np.ndarray:
    """A tensor as float32, in its shape."""
    result = np.empty(tensor.shape, np.float32)
    rows = result.reshape(-1, tensor.shape[-1])
    for first, piece in _pieces(file, tensor):
        rows[first : first + len(piece)] = piece
    return result


def _read_embedding(
    file: BinaryIO, tensor: gguf_file.Tensor, num_rows: int, dtype: np.dtype[Any]
) -> np.ndarray:
    """The embedding `[num_rows D]` in its final type, where JAX can leave it; cut, or padded with zeros."""
    width = tensor.shape[-1]
    num_bytes = num_rows * width * dtype.itemsize
    memory = np.empty(num_bytes + _JAX_ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _JAX_ALIGNMENT
    rows = memory[start : start + num_bytes].view(dtype).reshape(num_rows, width)
    rows[tensor.shape[0] :] = 0
    for first, piece in _pieces(file, tensor):
        part = rows[first : first + len(piece)]
        part[...] = piece[: len(part)]
    return rows


def _pieces(file: BinaryIO, tensor: gguf_file.Tensor) -> Iterator[tuple[int, np.ndarray]]:
    """Rows of a tensor in float32, some at a time, each with the number of its first."""
    import gguf

    width = tensor.shape[-1]
    num_rows = math.prod(tensor.shape[:-1])
    row_bytes = tensor.num_bytes // num_rows
    count = max(1, _CHUNK // width)
    file.seek(tensor.offset)
    for first in range(0, num_rows, count):
        taken = min(count, num_rows - first)
        stored = np.frombuffer(file.read(taken * row_bytes), np.uint8).reshape(taken, row_bytes)
        piece = gguf.dequantize(stored, tensor.type).reshape(taken, width)
        if not np.isfinite(piece).all():
            raise ValueError(
                f'Expected finite weights, got NaN or infinity in a tensor of {tensor.type.name}, '
                f'offset={tensor.offset}. Fetch the file again.'
            )
        yield first, piece


def _check_output_is_tied(file: BinaryIO, tensors: Mapping[str, gguf_file.Tensor]) -> None:
    """Gemma's output layer is its embedding; a copy of it in the file may not differ."""
    output, embedding = tensors[_OUTPUT], tensors[_EMBEDDING]
    same = (output.shape, output.type) == (embedding.shape, embedding.type)
    for first in range(0, output.num_bytes if same else 0, _CHUNK):
        count = min(_CHUNK, output.num_bytes - first)
        parts = []
        for tensor in (output, embedding):
            file.seek(tensor.offset + first)
            parts.append(file.read(count))
        same = same and parts[0] == parts[1]
    if not same:
        raise ValueError(
            f'Expected the output layer to be the embedding, got another tensor={_OUTPUT!r}. '
            'Use a file whose word embeddings are tied.'
        )
