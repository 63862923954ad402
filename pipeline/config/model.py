"""Settings of the model: which one, its files, and how it computes."""

import dataclasses
import difflib
import functools
import pathlib
import typing

from models import bundled
from models.decoders.gemma.architectures import ARCHITECTURES, Architecture
from pipeline.config import panel

_setting = functools.partial(panel.setting, 'Model')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(panel.Panel):
    """What decodes."""

    model: str = _setting(f'Model size: {", ".join(ARCHITECTURES)}.', 'bundled', names_path=False)
    checkpoint: str | None = _setting(
        'Orbax directory or safetensors folder; the bundled model has its own.', None
    )
    tokenizer: str | None = _setting('SentencePiece file; the bundled model has its own.', None)
    dtype: typing.Literal['float32', 'bfloat16'] = _setting('Type of weights and computation.', 'float32')
    micro_batch_size: int | None = _setting(
        'Prompts that go through the model together. Default: enough for a typical batch.', None
    )

    def check(self) -> None:
        check_model(self.model, self.checkpoint, self.tokenizer)
        self._check_positive('micro_batch_size')

    @property
    def architecture(self) -> Architecture:
        """The numbers of the model."""
        return ARCHITECTURES[self.model]

    @property
    def checkpoint_path(self) -> pathlib.Path:
        """Where the weights are."""
        return pathlib.Path(self.checkpoint) if self.checkpoint else bundled.FOLDER / 'checkpoint'

    @property
    def tokenizer_path(self) -> pathlib.Path:
        """Where the SentencePiece file is."""
        return pathlib.Path(self.tokenizer) if self.tokenizer else bundled.FOLDER / 'tokenizer.model'


def check_model(model: str, checkpoint: str | None, tokenizer: str | None) -> None:
    """Refuses an unknown model, and one whose files are not named.

    Raises:
        ValueError: See above.
    """
    if model not in ARCHITECTURES:
        near = difflib.get_close_matches(model, ARCHITECTURES, 1)
        hint = f' Did you mean {near[0]}?' if near else ''
        raise ValueError(f'Expected a model among {", ".join(ARCHITECTURES)}, got model={model!r}.{hint}')
    if model != 'bundled' and (checkpoint is None or tokenizer is None):
        raise ValueError(
            f'Expected a checkpoint and a tokenizer for model={model!r}, got '
            f'checkpoint={checkpoint!r}, tokenizer={tokenizer!r}. '
            'Give local paths with --checkpoint and --tokenizer, or use --model bundled.'
        )
