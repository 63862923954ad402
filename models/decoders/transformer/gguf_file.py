"""Reads what precedes the weights of a GGUF file: metadata, and each tensor's name, shape, type and place.

The layout is that of ggml's docs/gguf.md, versions 2 and 3, little-endian. The `gguf` package
has a reader too, which makes an array of every string: with a vocabulary of 262,144 pieces
it takes 12 seconds and 700 MB, where a run looks at the file several times. Its types, their
block sizes and all dequantizing are used as they are; the tests hold this reader to it.
"""

import dataclasses
import os
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from etils import epath

if TYPE_CHECKING:
    import gguf

MAGIC = b'GGUF'
SUFFIX = '.gguf'
_VERSIONS = (2, 3)
_ALIGNMENT = 32
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 2**16
# The format's value types, in its own numbers, as NumPy reads them.
_NUMBERS = {
    0: 'u1', 1: 'i1', 2: '<u2', 3: '<i2', 4: '<u4', 5: '<i4', 6: '<f4', 7: '?',
    10: '<u8', 11: '<i8', 12: '<f8',
}  # fmt: skip
_STRING, _ARRAY = 8, 9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """One tensor of a file.

    Attributes:
        shape: Its dimensions as NumPy counts them, rows first; the file has them in the other order.
        type: Encoding of its numbers.
        offset: Its place in the file, in bytes.
        num_bytes: Its length there.
    """

    shape: tuple[int, ...]
    type: 'gguf.GGMLQuantizationType'
    offset: int
    num_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """All of a file but the numbers of its tensors."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def is_gguf(path: str | os.PathLike[str]) -> bool:
    """True if a file begins as GGUF does."""
    with epath.Path(path).open('rb') as file:
        return file.read(len(MAGIC)) == MAGIC


def read_header(path: str | os.PathLike[str]) -> Header:
    """Reads metadata and tensors' places, and holds the places against the file's size.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no GGUF file, or is cut off, damaged, or of an unknown version.
    """
    with epath.Path(path).open('rb') as file:
        try:
            return _Reader(file).header()
        except _DamageError as error:
            raise ValueError(
                f'Expected a whole GGUF file, got path={str(path)!r}, {error}. Fetch the file again.'
            ) from None


class _DamageError(Exception):
    """The damage of a file, in words that follow its name."""


class _Reader:
    """Reads a file from its first byte on, and never past its end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        self._place = file.seek(0)

    def header(self) -> Header:
        """The whole header, checked."""
        if self._read(len(MAGIC)) != MAGIC:
            raise _DamageError('which does not begin with GGUF')
        version = self._number('<I')
        if version not in _VERSIONS:
            raise _DamageError(f'of version={version} where 2 or 3, little-endian, is expected')
        num_tensors, num_values = self._number('<Q'), self._number('<Q')
        metadata: dict[str, Any] = {}
        for _ in range(num_values):
            key = self._name()
            if key in metadata:
                raise _DamageError(f'which gives key={key!r} twice')
            metadata[key] = self._value(self._number('<I'))
        placed = [self._tensor() for _ in range(num_tensors)]
        return Header(metadata=metadata, tensors=self._checked(placed, metadata))

    def _checked(self, placed: list[tuple[str, Tensor]], metadata: Mapping[str, Any]) -> dict[str, Tensor]:
        """Tensors with offsets from the file's start, each inside the file and none inside another."""
        alignment = metadata.get('general.alignment', _ALIGNMENT)
        if not isinstance(alignment, int) or alignment <= 0:
            raise _DamageError(f'with general.alignment={alignment!r}')
        start = -(-self._place // alignment) * alignment
        tensors: dict[str, Tensor] = {}
        end = start
        for name, tensor in sorted(placed, key=lambda pair: pair[1].offset):
            tensor = dataclasses.replace(tensor, offset=start + tensor.offset)
            if name in tensors:
                raise _DamageError(f'which holds tensor={name!r} twice')
            if tensor.offset < end:
                raise _DamageError(f'where tensor={name!r} begins inside another')
            tensors[name], end = tensor, tensor.offset + tensor.num_bytes
        if end > self._size:
            raise _DamageError(f'which ends at byte {self._size:,} of {end:,}')
        return tensors

    def _read(self, count: int) -> bytes:
        if count > self._size - self._place:
            raise _DamageError(f'which ends at byte {self._size:,}, inside its header')
        self._place += count
        return self._file.read(count)

    def _number(self, layout: str) -> int:
        return struct.unpack(layout, self._read(struct.calcsize(layout)))[0]

    def _string(self) -> str:
        value = self._read(int.from_bytes(self._read(8), 'little'))
        try:
            return value.decode('utf-8')
        except UnicodeDecodeError:
            raise _DamageError('with a string that is not UTF-8') from None

    def _name(self) -> str:
        name = self._string()
        if not 0 < len(name) < _MAX_NAME_BYTES:
            raise _DamageError(f'with a name of {len(name):,} characters')
        return name

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _NUMBERS:
            return self._numbers(kind, 1)[0].item()
        if kind != _ARRAY:
            raise _DamageError(f'with a value of unknown type={kind}')
        kind, count = self._number('<I'), self._number('<Q')
        if kind == _STRING:
            return [self._string() for _ in range(count)]
        if kind in _NUMBERS:
            return self._numbers(kind, count)
        raise _DamageError(f'with an array of unknown type={kind}')

    def _numbers(self, kind: int, count: int) -> np.ndarray:
        dtype = np.dtype(_NUMBERS[kind])
        return np.frombuffer(self._read(count * dtype.itemsize), dtype)

    def _tensor(self) -> tuple[str, Tensor]:
        """A tensor's name, and the rest of it with an offset from where the tensors begin."""
        import gguf

        name = self._name()
        num_dimensions = self._number('<I')
        if num_dimensions > _MAX_DIMENSIONS:
            raise _DamageError(f'where tensor={name!r} has {num_dimensions} dimensions')
        shape = tuple(self._number('<Q') for _ in range(num_dimensions))[::-1]
        kind, offset = self._number('<I'), self._number('<Q')
        try:
            encoding = gguf.GGMLQuantizationType(kind)
        except ValueError:
            raise _DamageError(f'where tensor={name!r} is of unknown type={kind}') from None
        block, block_bytes = gguf.GGML_QUANT_SIZES[encoding]
        count = int(np.prod(shape, dtype=object))
        if not shape or shape[-1] % block:
            raise _DamageError(f'where tensor={name!r} of {encoding.name} has shape={shape}')
        return name, Tensor(shape=shape, type=encoding, offset=offset, num_bytes=count // block * block_bytes)
