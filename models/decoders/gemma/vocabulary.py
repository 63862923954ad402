"""A Gemma vocabulary as a SentencePiece model: its own file, or the one that a GGUF file carries.

GGUF holds pieces, scores and types, in SentencePiece's numbers, and not what else a model says.
That is the same for every Gemma: byte-pair merges, any text as it is (the identity as
normalizer, no space put in front, none removed), bytes for what no piece spells. Two
things are as llama.cpp wants them: user-defined pieces hold spaces where the model
has U+2581, and the unknown piece is a control piece.
"""

import contextlib
import os
import re
from typing import Any

import numpy as np
from etils import epath

from models.decoders.gemma import architectures
from models.decoders.transformer import gguf_file
from models.privacy import intact

# Multi-modal files add placeholders, which no text gives, after the last piece.
_NUM_PIECES = {1: 256_000, 2: 256_000, 3: 262_144}
_SPACE = '\u2581'
# A piece that stands for a byte.
_BYTE = re.compile('<0x[0-9A-Fa-f]{2}>')


def read_vocabulary(path: str | os.PathLike[str], generation: int) -> Any:
    """Reads the vocabulary of a SentencePiece model or of a GGUF file.

    Args:
        path: The file, local or on a remote file system.
        generation: The Gemma generation that it is of.

    Returns:
        A `ModelProto`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no SentencePiece model, or a GGUF file that is damaged or has no SentencePiece
            vocabulary.
    """
    with intact.reading(f'the vocabulary of tokenizer={str(path)!r}', 'Fetch the file again'):
        model = _from_gguf(path, generation) if gguf_file.is_gguf(path) else _from_sentencepiece(path)
        for piece in model.pieces:
            # Bytes come from protobuf where a text is not UTF-8; they match no pattern of text.
            if not _BYTE.fullmatch(piece.piece) and piece.type == piece.BYTE:
                raise ValueError(piece)
    return model


def _from_sentencepiece(path: str | os.PathLike[str]) -> Any:
    """The `ModelProto` that a file holds."""
    from google.protobuf import message
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    with contextlib.suppress(message.DecodeError):
        model.ParseFromString(epath.Path(path).read_bytes())
    if not model.pieces:
        raise ValueError(
            f'Expected a SentencePiece model, got tokenizer={str(path)!r}, which is none. Give the '
            'tokenizer.model that belongs to the checkpoint.'
        )
    return model


def _from_gguf(path: str | os.PathLike[str], generation: int) -> Any:
    """The `ModelProto` of a file's pieces, scores and types."""
    from sentencepiece import sentencepiece_model_pb2

    metadata = gguf_file.read_header(path).metadata
    kind = metadata.get('tokenizer.ggml.model')
    pieces, scores, types = (
        metadata.get(f'tokenizer.ggml.{name}', ()) for name in ('tokens', 'scores', 'token_type')
    )
    # The format's name for SentencePiece is that of the first model which had it.
    is_whole = isinstance(pieces, list) and isinstance(scores, np.ndarray) and isinstance(types, np.ndarray)
    if kind != 'llama' or not is_whole or not len(pieces) == len(scores) == len(types):
        raise ValueError(
            f'Expected a SentencePiece vocabulary in path={str(path)!r}, got tokenizer.ggml.model={kind!r} '
            f'with {np.size(pieces):,} pieces, {np.size(scores):,} scores and {np.size(types):,} types. '
            "Give the tokenizer.model of the model's own generation with --tokenizer."
        )
    special = architectures.SPECIAL_TOKENS[generation]
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type = trainer.BPE
    trainer.byte_fallback = True
    trainer.pad_id, trainer.eos_id = special.pad, special.eos
    trainer.bos_id, trainer.unk_id = special.bos, special.unk
    normalizer.name = 'identity'
    normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = False
    for index in range(min(len(pieces), _NUM_PIECES[generation])):
        piece = model.pieces.add(piece=pieces[index], score=float(scores[index]), type=int(types[index]))
        if piece.type == piece.USER_DEFINED:
            piece.piece = piece.piece.replace(' ', _SPACE)
        if index == special.unk:
            piece.type = piece.UNKNOWN
    return model
