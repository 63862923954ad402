"""Reads Gemma's weights: Hugging Face safetensors, a GGUF file, or an Orbax directory."""

import os
import pathlib

from etils import epath

from models.decoders.gemma import library
from models.decoders.gemma.architectures import GemmaArchitecture
from models.decoders.gemma.formats import GGUF, HUB
from models.decoders.transformer import gguf_file, safetensors
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.weights import Weights


def load_weights(architecture: GemmaArchitecture, path: str | os.PathLike[str], place: Place) -> Weights:
    """Reads the text model's weights.

    A file is read as GGUF, whatever its quantization. A folder with `*.safetensors` is read
    as Hugging Face's, one file or many with an index; any other is taken for an Orbax
    directory. Vision weights of a folder are left out.

    An embedding of 256,000 rows is padded with zeros to the library's 256,128; the
    logit of a padded id is then 0, so decoding must never allow ids beyond the
    tokenizer's. One of 262,208 rows is cut to 262,144. Any other difference is
    refused. Safetensors and GGUF must be on a local file system.

    Raises:
        FileNotFoundError: There is no such checkpoint, or a file that its index names is missing.
        ValueError: The checkpoint is not of this architecture, and what differs; or it is damaged.
    """
    checkpoint = epath.Path(path)
    _check_is_there(checkpoint)
    is_orbax = checkpoint.is_dir() and not any(checkpoint.glob('*.safetensors'))
    if is_orbax:
        return library.to_weights(architecture, library.load_orbax(path), place)
    if '://' in str(path):
        raise ValueError(
            f'Expected safetensors or GGUF on a local file system, got path={str(path)!r}. Copy it first.'
        )
    format_ = HUB if checkpoint.is_dir() else GGUF
    return format_.load(architecture, pathlib.Path(path), place)


def check_files(architecture: GemmaArchitecture, path: str | os.PathLike[str]) -> None:
    """Refuses a local checkpoint that is not of this architecture, without reading its weights.

    Safetensors and GGUF tell names, shapes and types in their headers, GGUF the numbers of
    the architecture too; Orbax tells names and shapes, of which depth and widths are compared.

    Raises:
        FileNotFoundError: There is no such checkpoint, or a file that its index names is missing.
        ValueError: The checkpoint is not of this architecture, and what differs; or it is damaged.
    """
    checkpoint = pathlib.Path(path)
    _check_is_there(checkpoint)
    if checkpoint.is_file():
        GGUF.check(architecture, checkpoint)
    elif any(checkpoint.glob('*.safetensors')):
        HUB.check(architecture, checkpoint)
    else:
        library.check_orbax(architecture, checkpoint)


def has_chat_template(path: str | os.PathLike[str]) -> bool | None:
    """True if a local checkpoint holds the template of a chat; None of a format that has no place for one.

    Raises:
        ValueError: The file is damaged.
    """
    checkpoint = pathlib.Path(path)
    if checkpoint.is_file():
        return 'tokenizer.chat_template' in gguf_file.read_header(checkpoint).metadata
    if not any(checkpoint.glob('*.safetensors')):
        return None
    return safetensors.has_chat_template(checkpoint)


def _check_is_there(checkpoint: epath.PathLike) -> None:
    """Refuses a path that leads to nothing, or to a folder around a GGUF file."""
    path = epath.Path(checkpoint)
    if not path.exists():
        raise FileNotFoundError(
            f'Expected a checkpoint, got checkpoint={str(path)!r}, which is not there. '
            'Give the folder that holds the *.safetensors files or the Orbax _METADATA, or a GGUF file.'
        )
    if path.is_dir() and not any(path.glob('*.safetensors')) and any(path.glob(f'*{gguf_file.SUFFIX}')):
        raise ValueError(
            f'Expected a checkpoint, got a folder with GGUF files, checkpoint={str(path)!r}. '
            'Give the file itself.'
        )
