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
    """Settings of the model."""

    model: str = _setting(f'Model size: {", ".join(family.model_names())}.', 'bundled', names_path=False)
    checkpoint: str | None = _setting(
        'GGUF file, safetensors folder or Orbax directory. The bundled model has its own; gemma3-270m '
        'is looked for where `dp-corpus models fetch` puts it.',
        None,
        path='file',
    )
    tokenizer: str | None = _setting(
        'SentencePiece file or tokenizer.json. The bundled model has its own, and so has a GGUF file.',
        None,
        path='file',
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

    def fastest_dtype(self, platform: str | None = None) -> Dtype:
        """The type that 'auto' stands for where JAX names the platform so; None asks the accelerator."""
        return device.fastest_dtype(platform)

    @property
    def planned_dtype(self) -> Dtype:
        """The type of a run that this machine would launch; its accelerator is not asked."""
        return self.fastest_dtype(device.likely_platform()) if self.dtype == 'auto' else self.dtype

    @property
    def decided_dtype(self) -> Dtype:
        assert self.dtype != 'auto'  # `pipeline.methods.solve`
        return self.dtype

    @property
    def model_sizes(self) -> family.Sizes:
        return family.sizes_of(self.model)

    @property
    def model_files(self) -> family.ModelFiles:
        """The model's files: as given, or where they are known to be."""
        return family.files_of(self.model, self.checkpoint, self.tokenizer)

    @property
    def checkpoint_path(self) -> pathlib.Path:
        return pathlib.Path(self.model_files.checkpoint)

    @property
    def tokenizer_path(self) -> pathlib.Path:
        return pathlib.Path(self.model_files.tokenizer)
