"""Reads GGUF, the format of llama.cpp, in whatever quantization the `gguf` package dequantizes."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, final

import jax
import jax.numpy as jnp
import numpy as np

from models.decoders.transformer import checkpoint, gguf_file
from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.weights import Weights

if TYPE_CHECKING:
    import gguf

_OUTPUT = 'output.weight'
# Numbers that are dequantized at a time; they take three times their bytes for a moment.
_CHUNK = 2**21
# JAX takes over an array on the host as it is where it begins at a multiple of this many bytes.
_JAX_ALIGNMENT = 64


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class Format[A: Architecture]:
    """The format of a family's files.

    Attributes:
        kinds: Values that `general.architecture` may have.
        names: Names of an architecture's tensors.
        differences: Each number of a file's metadata that is not an architecture's, in words.
    """

    models: Mapping[str, A]
    kinds: Sequence[str]
    names: Callable[[A], checkpoint.Names]
    differences: Callable[[A, Mapping[str, Any]], Sequence[str]]

    def load(self, architecture: A, path: pathlib.Path, place: checkpoint.Place) -> Weights:
        """Reads the weights of a file, a tensor at a time and the embedding in pieces.

        Raises:
            ValueError: The file is not of this architecture, and what differs; or it is damaged.
        """
        tensors, parts = self._matched(architecture, path)
        names = self.names(architecture)
        with path.open('rb') as file:
            if architecture.ties_output and _OUTPUT in tensors:
                _check_output_is_tied(file, tensors[_OUTPUT], tensors[names.embedding])

            def read(name: str) -> Any:
                if name not in names.tables:
                    return _read(file, tensors[name])
                rows = _read_table(file, tensors[name], architecture.num_embed, jnp.dtype(place.dtype))
                return jax.device_put(rows, may_alias=True)

            return checkpoint.read(parts, read, place)

    def check(self, architecture: A, path: pathlib.Path) -> None:
        """Refuses a file whose metadata, names, shapes or types are not of this architecture.

        Raises:
            ValueError: The file is damaged, or what differs.
        """
        self._matched(architecture, path)

    def _matched(self, architecture: A, path: pathlib.Path) -> tuple[Mapping[str, gguf_file.Tensor], Weights]:
        """The tensors of a file that fits an architecture, and the parts."""
        header = gguf_file.read_header(path)
        self._check_kind(header.metadata, path)
        checkpoint.refuse_numbers(
            architecture, self.models, lambda known: self.differences(known, header.metadata)
        )
        names = self.names(architecture)
        shapes = {name: tensor.shape for name, tensor in header.tensors.items()}
        parts = checkpoint.parts(architecture, names, shapes)
        expected = checkpoint.sources(parts)
        copies = (_OUTPUT,) if architecture.ties_output else ()
        checkpoint.check_shapes(shapes, expected, ignored=(*copies, *names.unread))
        kinds = {header.tensors[name].type for name in expected}
        if unreadable := kinds - _readable(kinds):
            raise ValueError(
                'Expected quantizations that the gguf package dequantizes, got '
                f'{", ".join(sorted(kind.name for kind in unreadable))}. Use a file in another quantization.'
            )
        return header.tensors, parts

    def _check_kind(self, metadata: Mapping[str, Any], path: pathlib.Path) -> None:
        """Refuses a file that holds no text model of the family, or not all of it."""
        kind, name = (
            plain(metadata.get(*key)) for key in (('general.type', 'model'), ('general.architecture',))
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
        if name not in self.kinds:
            raise ValueError(
                f'Expected general.architecture among {", ".join(self.kinds)}, got {name!r}, '
                f'path={str(path)!r}. Give a text model of the family.'
            )
        if (count := plain(metadata.get('split.count', 1))) not in (0, 1):
            raise ValueError(
                f'Expected a model in one file, got split.count={count!r}, path={str(path)!r}. '
                "Join the parts with llama.cpp's llama-gguf-split --merge."
            )


def plain(value: Any) -> Any:
    """A value of the metadata; of one for each layer, the one where all are equal."""
    if isinstance(value, np.ndarray):
        return value[0].item() if len(value) and (value == value[0]).all() else value.tolist()
    return value


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


def _read_table(file: BinaryIO, tensor: gguf_file.Tensor, num_rows: int, dtype: np.dtype[Any]) -> np.ndarray:
    """A table `[num_rows D]` in its final type, where JAX can leave it; cut, or padded with zeros."""
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


def _check_output_is_tied(file: BinaryIO, output: gguf_file.Tensor, embedding: gguf_file.Tensor) -> None:
    """The output layer is the embedding; a copy of it in the file may not differ."""
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
