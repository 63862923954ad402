"""Settings of the model: which one, its files, and how it computes."""

import dataclasses
import functools
import pathlib

from models.decoders import device, family
from models.decoders.device import Dtype, RequestedDtype
from pipeline.settings import panel

_setting = functools.partial(panel.setting, 'Model')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(panel.Panel):
    """What decodes."""

    model: str = _setting(f'Model size: {", ".join(family.model_names())}.', 'bundled', names_path=False)
    checkpoint: str | None = _setting(
        'GGUF file, safetensors folder or Orbax directory. The bundled model has its own; gemma3-270m '
        'is looked for where `dp-corpus models fetch` puts it.',
        None,
        path='file',
    )
    tokenizer: str | None = _setting(
        'SentencePiece file. The bundled model has its own, and so has a GGUF file.', None, path='file'
    )
    dtype: RequestedDtype = _setting(
        'Type of weights and products; sums are float32. auto: what the machine that launches the run is '
        'fastest in, for all workers: bfloat16 with an accelerator or a processor that multiplies it '
        'natively, else float32. The aggregate difference takes float32 on every processor.',
        'auto',
    )
    micro_batch_size: int | None = _setting('Rows that go through the model together.', None)

    def check(self) -> None:
        # Refuses an unknown model, and one whose files are not named.
        family.files_of(self.model, self.checkpoint, self.tokenizer)
        self._check_positive('micro_batch_size')

    def fastest_dtype(self) -> Dtype:
        """The type that 'auto' stands for on the machine that launches the run; may ask the accelerator."""
        return device.fastest_dtype()

    @property
    def planned_dtype(self) -> RequestedDtype:
        """The type whose rates a plan takes; 'auto' where an accelerator would have to be asked."""
        return self.dtype

    @property
    def decided_dtype(self) -> Dtype:
        """The type of a run that is launched."""
        assert self.dtype != 'auto'  # `pipeline.methods.solve`
        return self.dtype

    @property
    def model_sizes(self) -> family.Sizes:
        """What is known of the model without loading it."""
        return family.sizes_of(self.model)

    @property
    def model_files(self) -> family.ModelFiles:
        """Where the model lies: as given, or where it is known to be."""
        return family.files_of(self.model, self.checkpoint, self.tokenizer)

    @property
    def checkpoint_path(self) -> pathlib.Path:
        """Where the weights are."""
        return pathlib.Path(self.model_files.checkpoint)

    @property
    def tokenizer_path(self) -> pathlib.Path:
        """Where the tokenizer's file is."""
        return pathlib.Path(self.model_files.tokenizer)
