"""Looks at an Orbax directory without reading its weights; `decoder.load_orbax` reads them."""

import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from models.decoders.gemma import architectures
from models.decoders.gemma.checkpoints import differences

# The same in each of the library's layouts, but that stacked layers have an axis more in front.
_EMBEDDING = re.compile(r'(^|/)input_embedding$')
_FEED_FORWARD = re.compile(r'(^|/)mlp/linear(/w)?$')
_LAYER = re.compile(r'(^|/)layer_(\d+)/')
_STACKED = re.compile(r'(^|/)stacked_layers/')


def check(architecture: architectures.Architecture, directory: pathlib.Path) -> None:
    """Refuses a directory whose metadata tells of another depth or width.

    Raises:
        ValueError: See above, or there is no metadata.
    """
    shapes = dict(_shapes(_metadata(directory)))
    layers = {int(match[2]) for name in shapes if (match := _LAYER.search(name))}
    stacked = any(_STACKED.search(name) for name in shapes)
    embedding = _first(shapes, _EMBEDDING)
    feed_forward = _first(shapes, _FEED_FORWARD)
    differences.check_numbers(
        architecture,
        layers=None if stacked or not layers else max(layers) + 1,
        width=None if embedding is None else embedding[-1],
        hidden=None if feed_forward is None else feed_forward[-2],
    )


def _metadata(directory: pathlib.Path) -> Mapping[str, Any]:
    """The tree of a checkpoint's arrays; a trainer's is in a folder of its own."""
    from orbax import checkpoint as ocp

    reader = ocp.StandardCheckpointer()
    for place in (directory.absolute(), directory.absolute() / 'default'):
        if place.is_dir() and (found := reader.metadata(place).item_metadata) is not None:
            tree: Mapping[str, Any] = found.tree
            return tree
    raise ValueError(
        f'Expected a checkpoint, got checkpoint={str(directory)!r}, a folder without weights. Give the '
        'folder that holds the *.safetensors files or the Orbax _METADATA, or a GGUF file.'
    )


def _shapes(tree: Mapping[str, Any], prefix: str = '') -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _shapes(value, f'{prefix}{name}/')
        elif getattr(value, 'shape', None) is not None:
            yield f'{prefix}{name}', tuple(value.shape)


def _first(shapes: Mapping[str, tuple[int, ...]], name: re.Pattern[str]) -> tuple[int, ...] | None:
    """The shape of the first array of this name that has rows and columns."""
    found: Iterable[tuple[int, ...]] = (
        shape for path, shape in shapes.items() if name.search(path) and len(shape) > 1
    )
    return next(iter(found), None)
