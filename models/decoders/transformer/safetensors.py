"""Reads Hugging Face's safetensors: one file or many with an index, and `config.json` if there."""

import contextlib
import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, final

import ml_dtypes  # noqa: F401 - teaches NumPy the bfloat16 of the files
import numpy as np

from models.decoders.transformer import checkpoint
from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.weights import Weights
from models.privacy import intact

INDEX_NAME, CONFIG_NAME = 'model.safetensors.index.json', 'config.json'
_FLOAT_TYPES = ('BF16', 'F16', 'F32', 'F64')
# Beside the weights of models that answer in turns; older folders have it in the tokenizer's config.
_CHAT_FILES = ('chat_template.jinja', 'chat_template.json')
_TOKENIZER_CONFIG = 'tokenizer_config.json'


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Format[A: Architecture]:
    """The format of a family's folders.

    Attributes:
        names: Names of an architecture's tensors, without what may stand before all of them.
        prefixes: Prefixes that may stand before them.
        output_copies: Names, as they stand, of copies of an embedding that is the output layer too.
        ignored: Beginnings of names of tensors that are no weight of the text model, such as vision's.
        config: Fields of `config.json` for an architecture; those that a file has are compared.
            Rotary settings are `rope_theta`, `rope_factor` and `rope_share`, and for local layers
            `rope_local_base_freq`, `rope_local_factor` and `rope_local_share`, however a file writes them.
    """

    models: Mapping[str, A]
    names: Callable[[A], checkpoint.Names]
    config: Callable[[A], Mapping[str, object]]
    prefixes: tuple[str, ...] = ('',)
    output_copies: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def load(self, architecture: A, directory: pathlib.Path, place: checkpoint.Place) -> Weights:
        """Reads the text model's weights.

        Raises:
            FileNotFoundError: A file that its index names is missing.
            ValueError: The checkpoint is not of this architecture, and what differs; or it is damaged.
        """
        with contextlib.ExitStack() as stack:
            tensors, prefix, parts = self._matched(architecture, directory, stack)
            if architecture.ties_output:
                self._check_output_is_tied(tensors, prefix + self.names(architecture).embedding)
            return checkpoint.read(
                parts, lambda name: tensors[prefix + name].get_tensor(prefix + name), place
            )

    def check(self, architecture: A, directory: pathlib.Path) -> None:
        """Refuses a folder whose names, shapes or types are not of this architecture; reads no weight.

        Raises:
            FileNotFoundError: A file that its index names is missing.
            ValueError: The checkpoint is not of this architecture; lists what differs.
        """
        with contextlib.ExitStack() as stack:
            self._matched(architecture, directory, stack)

    def _matched(
        self, architecture: A, directory: pathlib.Path, stack: contextlib.ExitStack
    ) -> tuple[Mapping[str, Any], str, Weights]:
        """The open file of each tensor, what stands before the text model's names, and the parts."""
        self._check_config(architecture, directory / CONFIG_NAME)
        tensors = _open_tensors(_tensor_files(directory), stack)
        names = self.names(architecture)
        prefix = self._prefix(names.embedding, tensors)
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name, file in tensors.items()}
        self._check_sizes(architecture, shapes, prefix)
        of_model = {name.removeprefix(prefix): shape for name, shape in shapes.items()}
        parts = checkpoint.parts(architecture, names, of_model)
        expected = {prefix + name: shape for name, shape in checkpoint.sources(parts).items()}
        copies = self.output_copies if architecture.ties_output else ()
        unread = [prefix + name for name in names.unread]
        checkpoint.check_shapes(shapes, expected, ignored=(*self.ignored, *copies, *unread))
        kinds = {name: tensors[name].get_slice(name).get_dtype() for name in expected}
        if others := [f'{name}: {kind}' for name, kind in kinds.items() if kind not in _FLOAT_TYPES]:
            raise ValueError(
                f'Expected floating-point weights, got {checkpoint.listed(others)}. Give the checkpoint '
                'as it was before it was quantized.'
            )
        return tensors, prefix, parts

    def _prefix(self, embedding: str, tensors: Mapping[str, Any]) -> str:
        """The beginning of the text model's names in this file."""
        for prefix in self.prefixes:
            if prefix + embedding in tensors:
                return prefix
        raise ValueError(
            'Expected the embedding of a text model, got none of names='
            f'{[prefix + embedding for prefix in self.prefixes]}. '
            'Give the folder of a whole model; merge an adapter into its base first.'
        )

    def _check_sizes(self, architecture: A, shapes: Mapping[str, tuple[int, ...]], prefix: str) -> None:
        """One error for another depth or width, which every tensor would differ by."""
        names = self.names(architecture)

        def size(name: str, axis: int) -> int | None:
            shape = shapes.get(prefix + name.format(0), ())
            return shape[axis] if len(shape) == 2 else None

        before, after = map(re.escape, names.gate.split('{}'))
        numbers = [
            int(match[1])
            for name in shapes
            if (match := re.fullmatch(f'{re.escape(prefix)}{before}(\\d+){after}', name))
        ]
        checkpoint.refuse_numbers(
            architecture,
            self.models,
            lambda known: checkpoint.differences_of_sizes(
                known,
                layers=max(numbers) + 1 if numbers else None,
                width=size(names.embedding, 1),
                hidden=size(names.gate, 0),
            ),
        )

    def _check_output_is_tied(self, tensors: Mapping[str, Any], embedding_name: str) -> None:
        """The output layer is the embedding; a copy of it in the file may not differ."""
        for name in self.output_copies:
            if name in tensors and not np.array_equal(
                tensors[name].get_tensor(name), tensors[embedding_name].get_tensor(embedding_name)
            ):
                raise ValueError(
                    f'Expected the output layer to be the embedding, got another name={name!r}. '
                    'Use a checkpoint whose word embeddings are tied.'
                )

    def _check_config(self, architecture: A, path: pathlib.Path) -> None:
        """Compares a `config.json` with the architecture, where there is one.

        Multi-modal configs leave out what equals their class's default, so only the
        fields that are present are compared.
        """
        if not path.is_file():
            return
        with intact.reading(f'file={str(path)!r}', 'Fetch the checkpoint again'):
            config = _flat_config(json.loads(path.read_text(encoding='utf-8')))
            checkpoint.refuse_numbers(
                architecture, self.models, lambda known: _differences(self.config(known), config)
            )


def has_chat_template(directory: pathlib.Path) -> bool | None:
    """True if a folder holds the template of a chat; None where the files that would say so are not there.

    Raises:
        ValueError: The tokenizer's config is no JSON object.
    """
    if any((directory / name).is_file() for name in _CHAT_FILES):
        return True
    path = directory / _TOKENIZER_CONFIG
    if not path.is_file():
        return None
    try:
        config = json.loads(path.read_text(encoding='utf-8'))
    except (RecursionError, ValueError):
        config = None
    if not isinstance(config, dict):
        raise ValueError(f'Expected a JSON object, got another file={str(path)!r}. Fetch the file again.')
    return 'chat_template' in config


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


def _differences(fields: Mapping[str, object], config: Mapping[str, Any]) -> list[str]:
    """Each number of a config that is another architecture's: single numbers first, then those of layers."""
    single, by_layer = [], []
    for name, expected in fields.items():
        if name not in config or (value := config[name]) == expected:
            continue
        if not isinstance(expected, list):
            single.append(f'{name}={value!r} where {expected!r} is expected')
        elif not isinstance(value, list) or len(value) != len(expected):
            by_layer.append(f'{name} not of {len(expected)} layers')
        else:
            layer = next(index for index, pair in enumerate(zip(value, expected)) if pair[0] != pair[1])
            by_layer.append(f'{name}[{layer}]={value[layer]!r} where {expected[layer]!r} is expected')
    return [*single, *by_layer]


def _flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text part of a config, with the ways of writing some settings made one."""
    flat = dict(config.get('text_config', config))
    if isinstance(hidden := flat.get('intermediate_size'), list) and len(set(hidden)) == 1:
        flat['intermediate_size'] = hidden[0]
    if 'rope_scaling' in flat:
        flat['rope_factor'] = (flat['rope_scaling'] or {}).get('factor', 1.0)
    rotary: Mapping[str, Any] = flat.get('rope_parameters') or {}
    for layer_type, base, factor, share in (
        ('full_attention', 'rope_theta', 'rope_factor', 'rope_share'),
        ('sliding_attention', 'rope_local_base_freq', 'rope_local_factor', 'rope_local_share'),
    ):
        settings = rotary.get(layer_type, rotary if layer_type == 'full_attention' else {})
        if 'rope_theta' in settings:
            flat[base] = settings['rope_theta']
            flat[factor] = settings.get('factor', 1.0)
            flat[share] = settings.get('partial_rotary_factor', 1.0)
    return flat
