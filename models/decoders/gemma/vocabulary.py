"""A Gemma vocabulary as a SentencePiece model: its own file, or what GGUF or a `tokenizer.json` says of it.

GGUF holds pieces, scores and types, in SentencePiece's numbers, and not what else a model says.
That is the same for every Gemma: byte-pair merges, any text as it is (the identity as
normalizer, no space put in front, none removed), bytes for what no piece spells. Two
things are as llama.cpp wants them: user-defined pieces hold spaces where the model
has U+2581, and the unknown piece is a control piece.

Files of Gemma 4 hold merges in place of scores, in GGUF and in JSON. The merge of a higher score comes
first in the list, and every way to put a piece together stands there, so a piece's score is the place of its
first merge.
"""

import contextlib
import json
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath

from models.decoders.gemma import architectures
from models.decoders.transformer import gguf_file
from models.privacy import intact

# Multi-modal files add placeholders, which no text gives, after the last piece.
_NUM_PIECES = {'1': 256_000, '2': 256_000, '3': 262_144, '3n': 262_144, '4': 262_144}
# Values of GGUF's `tokenizer.ggml.model`: of pieces with scores, named after the first model that had them;
# and with merges.
_SCORED, _MERGED = 'llama', 'gemma4'
_SPACE = '\u2581'
# A piece that stands for a byte.
_BYTE = re.compile('<0x[0-9A-Fa-f]{2}>')


def read_vocabulary(path: str | os.PathLike[str], generation: architectures.Generation) -> Any:
    """Reads the vocabulary of a SentencePiece model, a GGUF file or a `tokenizer.json`.

    Args:
        path: The file, local or on a remote file system.
        generation: The Gemma generation that it is of.

    Returns:
        A `ModelProto`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no SentencePiece model, or another file that is damaged or has no such vocabulary.
    """
    with intact.reading(f'the vocabulary of tokenizer={str(path)!r}', 'Fetch the file again'):
        if gguf_file.is_gguf(path):
            model = _from_gguf(path, generation)
        elif epath.Path(path).suffix == '.json':
            model = _from_json(path, generation)
        else:
            model = _from_sentencepiece(path)
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


def _from_gguf(path: str | os.PathLike[str], generation: architectures.Generation) -> Any:
    """The `ModelProto` of a file's pieces, scores or merges, and types."""
    metadata = gguf_file.read_header(path).metadata
    kind = metadata.get('tokenizer.ggml.model')
    pieces, scores, types, merges = (
        metadata.get(f'tokenizer.ggml.{name}', ()) for name in ('tokens', 'scores', 'token_type', 'merges')
    )
    if kind == _MERGED and isinstance(pieces, list) and isinstance(merges, list):
        scores = np.array(_scores(pieces, [merge.split(' ') for merge in merges]))
    is_whole = isinstance(pieces, list) and isinstance(scores, np.ndarray) and isinstance(types, np.ndarray)
    if kind not in (_SCORED, _MERGED) or not is_whole or not len(pieces) == len(scores) == len(types):
        raise ValueError(
            f'Expected a SentencePiece vocabulary in path={str(path)!r}, got tokenizer.ggml.model={kind!r} '
            f'with {np.size(pieces):,} pieces, {np.size(scores):,} scores and {np.size(types):,} types. '
            "Give the tokenizer.model of the model's own generation with --tokenizer."
        )
    return _model(generation, pieces, scores.tolist(), types.tolist())


def _from_json(path: str | os.PathLike[str], generation: architectures.Generation) -> Any:
    """The `ModelProto` of a file of the `tokenizers` library."""
    from sentencepiece import sentencepiece_model_pb2

    content = json.loads(epath.Path(path).read_text(encoding='utf-8'))
    pieces = {index: piece for piece, index in content['model']['vocab'].items()}
    added = {token['id']: token for token in content.get('added_tokens', ())}
    pieces |= {index: token['content'] for index, token in added.items()}
    merges = content['model'].get('merges')
    if sorted(pieces) != list(range(len(pieces))) or not merges:
        raise ValueError(
            f'Expected ids from 0 on and merges, got tokenizer={str(path)!r} with {len(pieces):,} pieces and '
            f'{len(merges or ()):,} merges. Give the tokenizer.json that belongs to the checkpoint.'
        )
    in_order = [pieces[index] for index in range(len(pieces))]
    split = [merge.split(' ') if isinstance(merge, str) else merge for merge in merges]
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece  # type: ignore[attr-defined]

    def kind(index: int, piece: str) -> int:
        if index in added:
            return int(kinds.CONTROL if added[index].get('special') else kinds.USER_DEFINED)
        return int(kinds.BYTE if _BYTE.fullmatch(piece) else kinds.NORMAL)

    types = [kind(index, piece) for index, piece in enumerate(in_order)]
    return _model(generation, in_order, _scores(in_order, split), types)


def _scores(pieces: Sequence[str], merges: Sequence[Sequence[str]]) -> list[float]:
    """The score of each piece; pieces that come of no merge have the least."""
    place: dict[str, int] = {}
    for index, merge in enumerate(merges):
        place.setdefault(''.join(merge), index)
    return [-float(place.get(piece, len(merges))) for piece in pieces]


def _model(
    generation: architectures.Generation, pieces: Sequence[str], scores: Sequence[float], types: Sequence[int]
) -> Any:
    """A `ModelProto`; what stands behind the last piece of a generation is left out."""
    from sentencepiece import sentencepiece_model_pb2

    special = architectures.SPECIAL_TOKENS[generation]
    model = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type = trainer.BPE
    trainer.byte_fallback = True
    trainer.pad_id, trainer.eos_id = special.pad, special.eos
    trainer.bos_id, trainer.unk_id = special.bos, special.unk
    normalizer.name = 'identity'
    normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = False
    for index, (text, score, kind) in enumerate(
        zip(pieces[: _NUM_PIECES[generation]], scores, types, strict=False)
    ):
        piece = model.pieces.add(piece=text, score=score, type=kind)
        if piece.type == piece.USER_DEFINED:
            piece.piece = piece.piece.replace(' ', _SPACE)
        if index == special.unk:
            piece.type = piece.UNKNOWN
    return model
