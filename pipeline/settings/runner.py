"""Settings of the runner: where the graph is carried out."""

import dataclasses
import functools
import re

from pipeline.settings import panel

_setting = functools.partial(panel.setting, 'Runner')
# Beam runners whose workers are processes of this machine.
LOCAL_RUNNERS = frozenset({'FnApiRunner', 'DirectRunner', 'BundleBasedDirectRunner', 'PrismRunner'})
DATAFLOW = 'DataflowRunner'
_ACCELERATOR = re.compile(r'type:[a-z0-9-]+;count:[1-9][0-9]*(;[a-z0-9:.-]+)*')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runner(panel.Panel):
    """What carries the graph out. Nothing here touches the guarantee or the output."""

    runner: str = _setting(
        "Beam runner. Beam's own options follow after --.", 'FnApiRunner', names_path=False
    )
    accelerator: str | None = _setting(
        "What the decoding step asks of the engine, in Dataflow's words: "
        'type:nvidia-l4;count:1;install-nvidia-driver.',
        None,
        names_path=False,
    )

    @property
    def is_local(self) -> bool:
        """Whether the workers are processes of this machine."""
        return self.runner in LOCAL_RUNNERS

    def check(self) -> None:
        if self.accelerator is not None and not _ACCELERATOR.fullmatch(self.accelerator):
            raise ValueError(
                f'Expected accelerator as type:NAME;count:N and options, got '
                f'accelerator={self.accelerator!r}. Write type:nvidia-l4;count:1;install-nvidia-driver.'
            )
