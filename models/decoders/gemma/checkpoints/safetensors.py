"""Reads Hugging Face's safetensors: one file or many with an index, and `config.json` if there."""

import contextlib
import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes  # noqa: F401 - teaches NumPy the bfloat16 of the files
import numpy as np

from models.decoders.gemma import architectures
from models.decoders.gemma import decoder as gemma
from models.decoders.gemma.checkpoints import differences, name_map
from models.privacy import intact

INDEX_NAME = 'model.safetensors.index.json'

# Names before 'embed_tokens.weight': a causal model, the two layouts of multi-modal
# Gemma 3, and a bare text model.
_TEXT_PREFIXES = ('model.', 'language_model.model.', 'model.language_model.', '')
_VISION_PREFIXES = (
    'vision_tower.', 'multi_modal_projector.', 'model.vision_tower.', 'model.multi_modal_projector.',
)  # fmt: skip
_OUTPUT_NAMES = ('lm_head.weight', 'language_model.lm_head.weight')
_FLOAT_TYPES = ('BF16', 'F16', 'F32', 'F64')
# Beside the weights of models that answer in turns; older folders have it in the tokenizer's config.
_CHAT_FILES = ('chat_template.jinja', 'chat_template.json')
_TOKENIZER_CONFIG = 'tokenizer_config.json'


def load(
    architecture: architectures.Architecture, directory: pathlib.Path, *, dtype: jax.typing.DTypeLike
) -> gemma.Parameters:
    """Reads the text parameters of a folder; arguments, result and errors as of `load_parameters`."""
    with contextlib.ExitStack() as stack:
        match = _match(architecture, directory, stack)
        tensors, prefix = match.tensors, match.prefix
        _check_output_is_tied(tensors, f'{prefix}embed_tokens.weight')
        params: gemma.Parameters = {}
        for weight in match.weights:
            arrays = [tensors[prefix + name].get_tensor(prefix + name) for name in weight.sources]
            name_map.place(params, weight.target, jnp.asarray(weight.arrange(*arrays), dtype))
    return params


def has_chat_template(directory: pathlib.Path) -> bool | None:
    """Whether a folder holds the template of a chat; None where the files that would say so are not there.

    Raises:
        ValueError: The tokenizer's config is no JSON object.
    """
    if any((directory / name).is_file() for name in _CHAT_FILES):
        return True
    path = directory / _TOKENIZER_CONFIG
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding='utf-8'))
    except (RecursionError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f'Expected a JSON object, got another file={str(path)!r}. Fetch the file again.')
    return 'chat_template' in found


def check(architecture: architectures.Architecture, directory: pathlib.Path) -> None:
    """Refuses a folder whose names, shapes or types are not of this architecture; reads no weight.

    Raises:
        FileNotFoundError: A file that its index names is missing.
        ValueError: The checkpoint is not of this architecture; lists what differs.
    """
    with contextlib.ExitStack() as stack:
        _match(architecture, directory, stack)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Match:
    """A folder in Hugging Face's layout that fits an architecture, its files open.

    Attributes:
        tensors: The open file of each tensor by the tensor's name.
        weights: How each parameter is made.
        prefix: What stands before the text part's names.
    """

    tensors: Mapping[str, Any]
    weights: list[name_map.Weight]
    prefix: str


def _match(
    architecture: architectures.Architecture, directory: pathlib.Path, stack: contextlib.ExitStack
) -> _Match:
    """Holds names, shapes and types of the files against the architecture; reads no weight."""
    _check_config(architecture, directory / 'config.json')
    tensors = _open_tensors(_tensor_files(directory), stack)
    prefix = _text_prefix(tensors)
    embedding = f'{prefix}embed_tokens.weight'
    _check_numbers(architecture, tensors, prefix)
    rows = name_map.expected_rows(architecture, tensors[embedding].get_slice(embedding).get_shape()[0])
    weights = list(name_map.weights(architecture, rows))
    _check_tensors(
        tensors, {prefix + name: shape for weight in weights for name, shape in weight.sources.items()}
    )
    return _Match(tensors=tensors, weights=weights, prefix=prefix)


def _tensor_files(directory: pathlib.Path) -> list[pathlib.Path]:
    """The files that the index names, or every one without an index."""
    index = directory / INDEX_NAME
    if not index.is_file():
        return sorted(directory.glob('*.safetensors'))
    with intact.reading(INDEX_NAME, 'Fetch the checkpoint again'):
        names = sorted(set(json.loads(index.read_text(encoding='utf-8'))['weight_map'].values()))
        names = [str(name) for name in names]
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
    import safetensors

    tensors: dict[str, Any] = {}
    twice = []
    for file in files:
        try:
            handle = stack.enter_context(safetensors.safe_open(file, framework='numpy'))
        except safetensors.SafetensorError as error:
            raise ValueError(
                f'Expected a file of safetensors, got file={str(file)!r}: {error}. Fetch the checkpoint '
                'again.'
            ) from error
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


def _check_numbers(architecture: architectures.Architecture, tensors: Mapping[str, Any], prefix: str) -> None:
    """One error for another depth or width, which every tensor would differ by."""

    def size(name: str, axis: int) -> int | None:
        if (path := prefix + name) not in tensors or len(
            shape := tensors[path].get_slice(path).get_shape()
        ) != 2:
            return None
        return int(shape[axis])

    layer = re.compile(rf'{re.escape(prefix)}layers\.(\d+)\.')
    layers = [int(match[1]) for name in tensors if (match := layer.match(name))]
    differences.check_numbers(
        architecture,
        layers=max(layers) + 1 if layers else None,
        width=size('embed_tokens.weight', 1),
        hidden=size('layers.0.mlp.gate_proj.weight', 0),
    )


def _check_tensors(tensors: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]]) -> None:
    """One error each for missing, surplus and misshapen tensors."""
    remedy = 'Choose the architecture that the checkpoint was made for.'
    missing = sorted(expected.keys() - tensors.keys())
    if missing:
        raise ValueError(
            f'Expected every weight of the architecture, got none for names={_names(missing)}. {remedy}'
        )
    surplus = sorted(
        name
        for name in tensors.keys() - expected.keys() - set(_OUTPUT_NAMES)
        if not name.startswith(_VISION_PREFIXES)
    )
    if surplus:
        raise ValueError(f'Expected no further text weights, got names={_names(surplus)}. {remedy}')
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
            f'{differences.listed(misshapen)}. {remedy}'
        )


def _names(names: list[str]) -> str:
    return f'[{differences.listed(list(map(repr, names)), ", ")}]'


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
    with intact.reading(f'file={str(path)!r}', 'Fetch the checkpoint again'):
        config = _flat_config(json.loads(path.read_text(encoding='utf-8')))
        complaints = _differences(architecture, config)
    if complaints:
        remedy = differences.remedy(
            lambda known: not _differences(known, config),
            'Choose the architecture that the checkpoint was made for.',
        )
        raise ValueError(
            'Expected config.json to describe the chosen architecture, got '
            f'{differences.listed(complaints)}. {remedy}'
        )


def _differences(architecture: architectures.Architecture, config: Mapping[str, Any]) -> list[str]:
    """Where a config is another architecture's: single numbers first, then what each layer has."""
    single, by_layer = [], []
    for name, expected in _config_fields(architecture).items():
        if name not in config or (found := config[name]) == expected:
            continue
        if not isinstance(expected, list):
            single.append(f'{name}={found!r} where {expected!r} is expected')
        elif not isinstance(found, list) or len(found) != len(expected):
            by_layer.append(f'{name} not of {len(expected)} layers')
        else:
            layer = next(index for index, pair in enumerate(zip(found, expected)) if pair[0] != pair[1])
            by_layer.append(f'{name}[{layer}]={found[layer]!r} where {expected[layer]!r} is expected')
    return [*single, *by_layer]


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
        # What tells models apart stands first, since an error lists no more than a few.
        'num_hidden_layers': a.num_layers,
        'hidden_size': a.embed_dim,
        'intermediate_size': a.hidden_dim,
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
