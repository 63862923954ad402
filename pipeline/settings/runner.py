"""Settings of the runner: where the graph is carried out."""

import dataclasses
import functools
import math
import re

from models import compilation
from pipeline.settings import panel

_setting = functools.partial(panel.setting, 'Runner')
DATAFLOW, FLINK = 'DataflowRunner', 'FlinkRunner'
# Beam runners that carry the graph out within this process: they open no port.
LOCAL_RUNNERS = ('FnApiRunner', 'DirectRunner', 'BundleBasedDirectRunner')
# Beam runners that hand it to an engine, whose operator answers for its ports.
_ENGINES = (FLINK, DATAFLOW, 'PortableRunner')
_ACCELERATOR = re.compile(r'type:[a-z0-9-]+;count:[1-9][0-9]*(;[a-z0-9:.-]+)*')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runner(panel.Panel):
    """Settings of the runner. Nothing here touches the guarantee or the output."""

    runner: str = _setting(
        f"Beam runner: {', '.join((*LOCAL_RUNNERS, *_ENGINES))}. Beam's own options follow after --.",
        'FnApiRunner',
        names_path=False,
    )
    accelerator: str | None = _setting(
        "What the decoding step asks of the engine, in Dataflow's words: "
        'type:nvidia-l4;count:1;install-nvidia-driver.',
        None,
        names_path=False,
    )
    compilation_cache: str | None = _setting(
        "Folder in which JAX keeps what it compiles, for the next run; 'none' keeps nothing. Default: one in "
        "this user's cache folder where the workers are threads of this process, else none. An engine's "
        "workers need one that all of them reach, such as gs://BUCKET/compiled. It is the curator's: what is "
        'compiled tells of sizes of batches.',
        None,
        path='file',
        presets=(compilation.NONE,),
    )

    device_hour_price: float | None = _setting(
        "What an hour of one device costs, in any currency: the curator's report then says what the run and "
        '1,000 of its texts cost.',
        None,
    )

    @property
    def compiled_folder(self) -> str | None:
        """The folder of `compilation_cache`; None for none."""
        if self.compilation_cache is not None:
            return None if self.compilation_cache == compilation.NONE else self.compilation_cache
        return compilation.folder_here() if self.is_local else None

    @property
    def is_local(self) -> bool:
        """True if the workers are threads of this process."""
        return self.runner in LOCAL_RUNNERS

    def check(self) -> None:
        if self.runner not in (*LOCAL_RUNNERS, *_ENGINES):
            # Prism, and whatever else Beam knows, is called over ports without credentials.
            raise ValueError(
                f'Expected a runner among {", ".join((*LOCAL_RUNNERS, *_ENGINES))}, got '
                f'runner={self.runner!r}. Whoever reaches the ports of another, as of PrismRunner, runs '
                'code as you and reads records: on this machine give FnApiRunner, which opens none.'
            )
        if self.device_hour_price is not None and not 0 <= self.device_hour_price < math.inf:
            raise ValueError(
                'Expected a price of at least 0, got '
                f'device_hour_price={self.device_hour_price}. Give what an hour of one device costs.'
            )
        if self.accelerator is not None and not _ACCELERATOR.fullmatch(self.accelerator):
            raise ValueError(
                f'Expected accelerator as type:NAME;count:N and options, got '
                f'accelerator={self.accelerator!r}. Write type:nvidia-l4;count:1;install-nvidia-driver.'
            )
