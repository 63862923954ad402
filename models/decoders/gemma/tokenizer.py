"""Text to token ids and back, with SentencePiece: through TensorFlow Text, else by its own library.

Ids are the same. TensorFlow Text reads a batch of texts at once; a machine that lacks it, such as one with a
GPU and nothing but JAX, takes them one by one. A report's versions name what was there.

A Gemma vocabulary holds control pieces, such as `<end_of_turn>`, as user-defined
symbols: SentencePiece would turn that very string inside a record into the control
id, and a private text could close its own turn of the prompt. So the model is
loaded with its control pieces retyped from user-defined to control. SentencePiece
never produces a control piece from text: it spells the string with ordinary
pieces, as any other. Ids, and the pieces of every text without such a string, stay
as they are. A prompt that wants a control token adds its id, `special_tokens`.
"""

import dataclasses
import functools
import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from models.decoders import tokenizer as tokenizer_lib
from models.decoders.gemma import architectures, vocabulary

# Control pieces by text, for vocabularies that declare them as user-defined; the last line has those of
# Gemma 4. HTML tags and runs of spaces are user-defined too, and ordinary text.
_CONTROL_PIECE = re.compile(
    r'<(pad|bos|eos|unk|mask|2mass|unused\d+|(start|end)_of_(turn|image|audio)|(image|audio)_soft_token)>'
    r'|\[(multimodal|@BOS@|toxicity=\d+)\]'
    r'|<\|([a-z_]+|")\|?>|<[a-z_]+\|>'
)


@final
@dataclasses.dataclass(frozen=True)
class GemmaTokenizer(tokenizer_lib.Tokenizer):
    """A SentencePiece vocabulary with Gemma's special ids.

    The file is read when first needed, and pickling carries its path alone.

    Attributes:
        model_path: The SentencePiece model, or a GGUF file or `tokenizer.json` that says the same; local or
            on a remote file system.
        generation: The Gemma generation whose special ids it has.
    """

    model_path: str | os.PathLike[str]
    generation: architectures.Generation

    def __post_init__(self) -> None:
        if self.generation not in architectures.SPECIAL_TOKENS:
            raise ValueError(
                f'Expected generation to be one of {list(architectures.SPECIAL_TOKENS)}, got '
                f'generation={self.generation!r}. Take that of the model, Architecture.generation.'
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return GemmaTokenizer, (self.model_path, self.generation)

    @property
    def special_tokens(self) -> architectures.SpecialTokens:
        """The ids of its control pieces."""
        return architectures.SPECIAL_TOKENS[self.generation]

    @property
    def vocab_size(self) -> int:
        return len(self._model.pieces)

    @property
    def start_tokens(self) -> tuple[int, ...]:
        return (self.special_tokens.bos,)

    @property
    def stop_tokens(self) -> frozenset[int]:
        return frozenset(self.special_tokens.stop)

    @property
    def turn_markers(self) -> Mapping[str, tuple[int, ...]]:
        """See `Tokenizer.turn_markers`; the templates' words are those of Gemma 1 to 3."""
        special = self.special_tokens
        return {
            tokenizer_lib.START_OF_TURN: (special.start_of_turn,),
            tokenizer_lib.END_OF_TURN: (special.end_of_turn,),
        }

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        return self._processor.encode([text.encode('utf-8', errors='replace') for text in texts])

    def decode_batch(self, ids: Sequence[Sequence[int] | np.ndarray]) -> list[str]:
        if not ids:
            return []
        rows = [np.asarray(row, dtype=np.int32) for row in ids]
        values = np.concatenate(rows)
        outside = values[(values < 0) | (values >= self.vocab_size)]
        if len(outside):
            raise ValueError(
                f'Expected ids in [0, {self.vocab_size}), got id={outside[0]}. '
                'Sample under released_token_mask: a model may have more rows than the vocabulary.'
            )
        return self._processor.decode(rows)

    def token_bytes(self) -> list[bytes]:
        byte = type(self._model.pieces[0]).BYTE
        return [
            b''
            if index in self._control_ids
            else bytes([int(piece.piece.removeprefix('<0x').removesuffix('>'), 16)])
            if piece.type == byte
            else piece.piece.replace('\u2581', ' ').encode()
            for index, piece in enumerate(self._model.pieces)
        ]

    def released_token_mask(self, num_embed: int | None = None) -> np.ndarray:
        """See `Tokenizer.released_token_mask`.

        Leaves out padding, start of text, unknown, mask, unused, start of turn, and
        image and audio pieces.
        """
        size = self.vocab_size if num_embed is None else num_embed
        if size < self.vocab_size:
            raise ValueError(
                f'Expected num_embed >= vocab_size={self.vocab_size}, got num_embed={num_embed}. '
                "Use the tokenizer of the model's own generation."
            )
        mask = np.arange(size) < self.vocab_size
        mask[sorted(self._control_ids)] = False
        mask[list(self.special_tokens.stop)] = True
        return mask

    @functools.cached_property
    def _model(self) -> Any:
        """The `ModelProto` of the file, as it was trained."""
        model = vocabulary.read_vocabulary(self.model_path, self.generation)
        special = self.special_tokens
        for index, piece in (
            (special.pad, '<pad>'),
            *zip((special.start_of_turn, special.end_of_turn), special.turn_pieces, strict=True),
        ):
            file_piece = model.pieces[index].piece if index < len(model.pieces) else None
            if file_piece != piece:
                raise ValueError(
                    f'Expected {piece!r} at id {index} of a Gemma {self.generation} tokenizer, got '
                    f'piece={file_piece!r} in model_path={str(self.model_path)!r}. '
                    "Use the tokenizer of the model's own generation."
                )
        return model

    @functools.cached_property
    def _control_ids(self) -> frozenset[int]:
        """The ids that stand for no text."""
        special = self.special_tokens
        by_id = {special.pad, special.eos, special.bos, special.unk, special.mask}
        kinds = type(self._model.pieces[0])
        textless = {kinds.UNKNOWN, kinds.CONTROL, kinds.UNUSED}
        return frozenset(
            index
            for index, piece in enumerate(self._model.pieces)
            if index in by_id or piece.type in textless or _CONTROL_PIECE.fullmatch(piece.piece)
        )

    @functools.cached_property
    def _processor(self) -> '_TensorFlowText | _SentencePiece':
        """SentencePiece with the control pieces retyped (module docstring)."""
        model = type(self._model)()
        model.CopyFrom(self._model)
        # The trainer's self-test may spell a control piece; it would now fail.
        model.ClearField('self_test_data')
        for index in self._control_ids:
            piece = model.pieces[index]
            if piece.type != piece.UNKNOWN:
                piece.type = piece.CONTROL
        kind = _TensorFlowText if _has_tensorflow_text() else _SentencePiece
        return kind(model.SerializeToString())


def _has_tensorflow_text() -> bool:
    return importlib.util.find_spec('tensorflow_text') is not None


class _TensorFlowText:
    """A batch of texts at a time."""

    def __init__(self, model: bytes) -> None:
        import tensorflow as tf
        import tensorflow_text

        # TensorFlow would reserve the memory of every GPU on its first operation.
        tf.config.set_visible_devices([], 'GPU')
        self._model = tensorflow_text.SentencepieceTokenizer(model, out_type=tf.int32)

    def encode(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        import tensorflow as tf

        if not texts:
            return []
        ragged = self._model.tokenize(tf.constant(texts, tf.string))
        return np.split(ragged.values.numpy(), ragged.row_splits.numpy()[1:-1])

    def decode(self, rows: Sequence[np.ndarray]) -> list[str]:
        import tensorflow as tf

        ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(rows), [len(row) for row in rows])
        return [text.decode('utf-8', errors='replace') for text in self._model.detokenize(ragged).numpy()]


class _SentencePiece:
    """A text at a time."""

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        self._model = sentencepiece.SentencePieceProcessor(model_proto=model)

    def encode(self, texts: Sequence[bytes]) -> list[np.ndarray]:
        return [np.array(self._model.encode(text.decode()), np.int32) for text in texts]

    def decode(self, rows: Sequence[np.ndarray]) -> list[str]:
        return [self._model.decode(row.tolist()) for row in rows]
