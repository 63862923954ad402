"""Reads model weights: Hugging Face safetensors by our own name map, or an Orbax directory.

The map is from the names of `transformers` (`modeling_gemma.py`, `modeling_gemma2.py`,
`modeling_gemma3.py`) to those of the gemma library. The two agree on what the
numbers mean: norms store w and scale by 1 + w, rotary positions turn the first half
of a head against the second, attention scales queries by the same scalar. So every
weight is rearranged and none is recomputed. With V D F N K H of `Architecture`:

    embed_tokens.weight                  [V D]      embedder/input_embedding            [V D]
    self_attn.q_proj.weight              [N·H D]    attn/q_einsum/w                     [N D H]
    self_attn.k_proj.weight, v_proj      [K·H D]    attn/kv_einsum/w                    [2 K D H]
    (q, k and v where K = N                         attn/qkv_einsum/w                   [3 N D H])
    self_attn.o_proj.weight              [D N·H]    attn/attn_vec_einsum/w              [N H D]
    self_attn.q_norm.weight, k_norm      [H]        attn/_query_norm/scale, _key_norm   [H]
    mlp.gate_proj.weight, up_proj        [F D]      mlp/gating_einsum          [2 D F] or [2 F D]
    mlp.down_proj.weight                 [D F]      mlp/linear                          [F D]
    input_layernorm.weight               [D]        pre_attention_norm/scale            [D]
    post_attention_layernorm.weight      [D]        post_attention_norm/scale           [D]
    pre_feedforward_layernorm.weight     [D]        pre_ffw_norm/scale                  [D]
    post_feedforward_layernorm.weight    [D]        post_ffw_norm/scale                 [D]
    norm.weight                          [D]        final_norm/scale                    [D]

Gemma 1 has two norms a layer, and calls the one before its feed-forward
`post_attention_layernorm`.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from etils import epath

from models.decoders.gemma import architectures
from models.decoders.gemma import decoder as gemma

if TYPE_CHECKING:
    import jax

INDEX_NAME = 'model.safetensors.index.json'

# Names before 'embed_tokens.weight': a causal model, the two layouts of multi-modal
# Gemma 3, and a bare text model.
_TEXT_PREFIXES = ('model.', 'language_model.model.', 'model.language_model.', '')
_VISION_PREFIXES = (
    'vision_tower.', 'multi_modal_projector.', 'model.vision_tower.', 'model.multi_modal_projector.',
)  # fmt: skip
_OUTPUT_NAMES = ('lm_head.weight', 'language_model.lm_head.weight')
_FLOAT_TYPES = ('BF16', 'F16', 'F32', 'F64')

# Rows of a hub embedding that differ from the library's, for each of the library's
# vocabularies. Gemma 1 and 2: no piece has an id from 256,000 on, and the missing
# rows become zeros. Multi-modal Gemma 3: ids from 262,144 on are the image
# placeholder and padding; no SentencePiece piece has them, so no id of a text is lost.
_HUB_ROWS = {256_128: 256_000, 262_144: 262_208}


def load_parameters(
    architecture: architectures.Architecture,
    path: str | os.PathLike[str],
    *,
    dtype: 'jax.typing.DTypeLike',
) -> gemma.Parameters:
    """Reads the text parameters of a checkpoint folder.

    A folder with `*.safetensors` is read as Hugging Face's, one file or many with an
    index; any other is taken for an Orbax directory. Vision weights are left out.

    An embedding of 256,000 rows is padded with zeros to the library's 256,128; the
    logit of a padded id is then 0, so decoding must never allow ids beyond the
    tokenizer's. One of 262,208 rows is cut to 262,144. Any other difference is
    refused.

    Args:
        architecture: What the checkpoint should hold.
        path: The folder. Safetensors must be on a local file system.
        dtype: Type to convert the weights to.

    Returns:
        The nested parameters of the gemma library, as `jax.Array`.

    Raises:
        FileNotFoundError: There is no such folder, or a file that its index names is missing.
        ValueError: The checkpoint is not of this architecture; lists what differs.
    """
    directory = epath.Path(path)
    _check_folder(directory)
    if not any(directory.glob('*.safetensors')):
        return gemma.load_orbax(architecture, path, dtype=dtype)
    if '://' in str(path):
        raise ValueError(
            f'Expected safetensors on a local file system, got path={str(path)!r}. Copy the folder first.'
        )
    return _load_safetensors(architecture, pathlib.Path(path), dtype=dtype)


def check_files(architecture: architectures.Architecture, path: str | os.PathLike[str]) -> None:
    """Refuses a local checkpoint that is not of this architecture, without reading its weights.

    Safetensors tell names, shapes and types in their headers; of Orbax, only that the
    folder is there.

    Raises:
        FileNotFoundError: There is no such folder, or a file that its index names is missing.
        ValueError: The checkpoint is not of this architecture; lists what differs.
    """
    directory = pathlib.Path(path)
    _check_folder(directory)
    if any(directory.glob('*.safetensors')):
        with contextlib.ExitStack() as stack:
            _match(architecture, directory, stack)


def _check_folder(directory: epath.PathLike) -> None:
    if not epath.Path(directory).is_dir():
        raise FileNotFoundError(
            f'Expected a checkpoint folder, got path={str(directory)!r}. '
            'Give the folder that holds the *.safetensors files or the Orbax _METADATA.'
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Weight:
    """One parameter of the library, and how it is made of a checkpoint's tensors."""

    target: str
    sources: Mapping[str, tuple[int, ...]]
    arrange: Callable[..., np.ndarray]


def _weights(architecture: architectures.Architecture, rows: int) -> Iterator[_Weight]:
    """The name map of the module docstring; `rows` is what the file's embedding has."""
    a = architecture
    yield _Weight(
        target='embedder/input_embedding',
        sources={'embed_tokens.weight': (rows, a.embed_dim)},
        arrange=lambda weight: _with_rows(weight, a.num_embed),
    )
    for index in range(a.num_layers):
        for weight in _layer_weights(a):
            yield _Weight(
                target=f'layer_{index}/{weight.target}',
                sources={f'layers.{index}.{name}': shape for name, shape in weight.sources.items()},
                arrange=weight.arrange,
            )
    yield _norm('final_norm', 'norm', a.embed_dim)


def _layer_weights(a: architectures.Architecture) -> Iterator[_Weight]:
    """The part of the map that every layer repeats."""
    wide, narrow = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    query = {'self_attn.q_proj.weight': (wide, a.embed_dim)}
    key_value = {
        'self_attn.k_proj.weight': (narrow, a.embed_dim),
        'self_attn.v_proj.weight': (narrow, a.embed_dim),
    }

    def heads(*weights: np.ndarray) -> np.ndarray:
        # [heads·H D] -> [heads D H], stacked in front.
        split = [weight.reshape(-1, a.head_dim, a.embed_dim).transpose(0, 2, 1) for weight in weights]
        return np.stack(split)

    if a.num_heads == a.num_kv_heads:
        yield _Weight(target='attn/qkv_einsum/w', sources=query | key_value, arrange=heads)
    else:
        yield _Weight(target='attn/q_einsum/w', sources=query, arrange=lambda weight: heads(weight)[0])
        yield _Weight(target='attn/kv_einsum/w', sources=key_value, arrange=heads)
    yield _Weight(
        target='attn/attn_vec_einsum/w',
        sources={'self_attn.o_proj.weight': (a.embed_dim, wide)},
        arrange=lambda weight: weight.T.reshape(a.num_heads, a.head_dim, a.embed_dim),
    )
    if a.use_qk_norm:
        yield _norm('attn/_query_norm', 'self_attn.q_norm', a.head_dim)
        yield _norm('attn/_key_norm', 'self_attn.k_norm', a.head_dim)
    yield _Weight(
        target='mlp/gating_einsum',
        sources={
            'mlp.gate_proj.weight': (a.hidden_dim, a.embed_dim),
            'mlp.up_proj.weight': (a.hidden_dim, a.embed_dim),
        },
        arrange=lambda gate, up: np.stack([gate, up] if a.transpose_gating_einsum else [gate.T, up.T]),
    )
    yield _Weight(
        target='mlp/linear',
        sources={'mlp.down_proj.weight': (a.embed_dim, a.hidden_dim)},
        arrange=lambda weight: weight.T,
    )
    yield _norm('pre_attention_norm', 'input_layernorm', a.embed_dim)
    if a.use_post_norms:
        yield _norm('post_attention_norm', 'post_attention_layernorm', a.embed_dim)
        yield _norm('pre_ffw_norm', 'pre_feedforward_layernorm', a.embed_dim)
        yield _norm('post_ffw_norm', 'post_feedforward_layernorm', a.embed_dim)
    else:
        yield _norm('pre_ffw_norm', 'post_attention_layernorm', a.embed_dim)


def _norm(target: str, source: str, size: int) -> _Weight:
    return _Weight(
        target=f'{target}/scale', sources={f'{source}.weight': (size,)}, arrange=lambda weight: weight
    )


def _with_rows(weight: np.ndarray, rows: int) -> np.ndarray:
    """Cuts or pads with zeros; `_expected_rows` has decided that it is sound."""
    if len(weight) >= rows:
        return weight[:rows]
    return np.pad(weight, ((0, rows - len(weight)), (0, 0)))


def _expected_rows(architecture: architectures.Architecture, rows: int) -> int:
    """The number of embedding rows that a file should have, given what it has."""
    hub_rows = _HUB_ROWS.get(architecture.num_embed)
    return rows if rows == hub_rows else architecture.num_embed


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Match:
    """A folder in Hugging Face's layout that fits an architecture, its files open.

    Attributes:
        tensors: The open file of each tensor by the tensor's name.
        weights: How each parameter is made.
        prefix: What stands before the text part's names.
    """

    tensors: Mapping[str, Any]
    weights: list[_Weight]
    prefix: str


def _match(
    architecture: architectures.Architecture, directory: pathlib.Path, stack: contextlib.ExitStack
) -> _Match:
    """Holds names, shapes and types of the files against the architecture; reads no weight."""
    _check_config(architecture, directory / 'config.json')
    tensors = _open_tensors(_tensor_files(directory), stack)
    prefix = _text_prefix(tensors)
    embedding = f'{prefix}embed_tokens.weight'
    rows = _expected_rows(architecture, tensors[embedding].get_slice(embedding).get_shape()[0])
    weights = list(_weights(architecture, rows))
    _check_tensors(
        tensors, {prefix + name: shape for weight in weights for name, shape in weight.sources.items()}
    )
    return _Match(tensors=tensors, weights=weights, prefix=prefix)


def _load_safetensors(
    architecture: architectures.Architecture, directory: pathlib.Path, *, dtype: 'jax.typing.DTypeLike'
) -> gemma.Parameters:
    """Reads a folder in Hugging Face's layout."""
    import jax.numpy as jnp

    with contextlib.ExitStack() as stack:
        match = _match(architecture, directory, stack)
        tensors, prefix = match.tensors, match.prefix
        _check_output_is_tied(tensors, f'{prefix}embed_tokens.weight')
        params: gemma.Parameters = {}
        for weight in match.weights:
            arrays = [tensors[prefix + name].get_tensor(prefix + name) for name in weight.sources]
            *parents, leaf = weight.target.split('/')
            node = params
            for parent in parents:
                node = node.setdefault(parent, {})
            node[leaf] = jnp.asarray(weight.arrange(*arrays), dtype)
    return params


def _tensor_files(directory: pathlib.Path) -> list[pathlib.Path]:
    """The files that the index names, or every one without an index."""
    index = directory / INDEX_NAME
    if not index.is_file():
        return sorted(directory.glob('*.safetensors'))
    names = sorted(set(json.loads(index.read_text(encoding='utf-8'))['weight_map'].values()))
    elsewhere = [name for name in names if pathlib.PurePath(name).name != name]
    if elsewhere:
        raise ValueError(
            f'Expected {INDEX_NAME} to name files of its own folder, got weight_map={elsewhere}. '
            'Fetch the checkpoint again.'
        )
    absent = [name for name in names if not (directory / name).is_file()]
    if absent:
        raise FileNotFoundError(
            f'Expected every file that {INDEX_NAME} names, got none for {absent}. '
            'Fetch the missing files of the checkpoint.'
        )
    return [directory / name for name in names]


def _open_tensors(files: list[pathlib.Path], stack: contextlib.ExitStack) -> dict[str, Any]:
    """Maps each tensor name to the open file that holds it."""
    import ml_dtypes  # noqa: F401 - teaches NumPy the bfloat16 of the files
    import safetensors

    tensors: dict[str, Any] = {}
    twice = []
    for file in files:
        handle = stack.enter_context(safetensors.safe_open(file, framework='numpy'))
        names = handle.keys()
        for name in names:
            if name in tensors:
                twice.append(name)
            tensors[name] = handle
    if twice:
        raise ValueError(
            f'Expected each tensor in one file, got several for names={sorted(set(twice))}. '
            'Keep the files of one checkpoint only.'
        )
    return tensors


def _text_prefix(tensors: Mapping[str, Any]) -> str:
    """What stands before the text part's names in this file."""
    for prefix in _TEXT_PREFIXES:
        if f'{prefix}embed_tokens.weight' in tensors:
            return prefix
    raise ValueError(
        'Expected the embedding of a Gemma 1, 2 or 3 text model, got none of names='
        f'{[f"{prefix}embed_tokens.weight" for prefix in _TEXT_PREFIXES]}. '
        'Give the folder of a whole model; merge an adapter into its base first.'
    )


def _check_tensors(tensors: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]]) -> None:
    """One error each for missing, surplus and misshapen tensors."""
    remedy = 'Choose the architecture that the checkpoint was made for.'
    missing = sorted(expected.keys() - tensors.keys())
    if missing:
        raise ValueError(f'Expected every weight of the architecture, got none for names={missing}. {remedy}')
    surplus = sorted(
        name
        for name in tensors.keys() - expected.keys() - set(_OUTPUT_NAMES)
        if not name.startswith(_VISION_PREFIXES)
    )
    if surplus:
        raise ValueError(f'Expected no further text weights, got names={surplus}. {remedy}')
    misshapen = []
    for name, shape in expected.items():
        stored = tensors[name].get_slice(name)
        if tuple(stored.get_shape()) != shape or stored.get_dtype() not in _FLOAT_TYPES:
            misshapen.append(
                f'{name}: expected {shape}, found {tuple(stored.get_shape())} of {stored.get_dtype()}'
            )
    if misshapen:
        raise ValueError(
            'Expected floating-point weights in the shapes of the architecture, got '
            f'{"; ".join(misshapen)}. {remedy}'
        )


def _check_output_is_tied(tensors: Mapping[str, Any], embedding_name: str) -> None:
    """Gemma's output layer is its embedding; a copy of it in the file may not differ."""
    for name in _OUTPUT_NAMES:
        if name in tensors and not np.array_equal(
            tensors[name].get_tensor(name), tensors[embedding_name].get_tensor(embedding_name)
        ):
            raise ValueError(
                f'Expected the output layer to be the embedding, got another name={name!r}. '
                'Use a checkpoint whose word embeddings are tied.'
            )


def _check_config(architecture: architectures.Architecture, path: pathlib.Path) -> None:
    """Compares a `config.json` with the architecture, where there is one.

    Multi-modal configs leave out what equals their class's default, so only the
    fields that are present are compared.
    """
    if not path.is_file():
        return
    config = _flat_config(json.loads(path.read_text(encoding='utf-8')))
    complaints = [
        f'{name}={config[name]!r} where {expected!r} is expected'
        for name, expected in _config_fields(architecture).items()
        if name in config and config[name] != expected
    ]
    if complaints:
        raise ValueError(
            f'Expected config.json to describe the chosen architecture, got {"; ".join(complaints)}. '
            'Choose the architecture that the checkpoint was made for.'
        )


def _flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text part of a config, with the two ways of writing rotary settings made one."""
    flat = dict(config.get('text_config', config))
    if 'rope_scaling' in flat:
        flat['rope_factor'] = (flat['rope_scaling'] or {}).get('factor', 1.0)
    rotary: Mapping[str, Any] = flat.get('rope_parameters') or {}
    for layer_type, base, factor in (
        ('full_attention', 'rope_theta', 'rope_factor'),
        ('sliding_attention', 'rope_local_base_freq', 'rope_local_factor'),
    ):
        settings = rotary.get(layer_type, rotary if layer_type == 'full_attention' else {})
        if 'rope_theta' in settings:
            flat[base] = settings['rope_theta']
            flat[factor] = settings.get('factor', 1.0)
    return flat


def _config_fields(a: architectures.Architecture) -> dict[str, object]:
    """The architecture in the words of `transformers`."""
    fields: dict[str, object] = {
        'hidden_size': a.embed_dim,
        'intermediate_size': a.hidden_dim,
        'num_hidden_layers': a.num_layers,
        'num_attention_heads': a.num_heads,
        'num_key_value_heads': a.num_kv_heads,
        'head_dim': a.head_dim,
        'rms_norm_eps': 1e-6,
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
        by_head = a.query_pre_attn_norm == 'by_one_over_sqrt_head_dim'
        fields['hidden_activation'] = 'gelu_pytorch_tanh'
        fields['query_pre_attn_scalar'] = a.head_dim if by_head else a.embed_dim // a.num_heads
    return fields
