"""How a check of the input counts and words what votes on whole texts would make of it."""

import dataclasses
from collections.abc import Iterator

from pipeline.check.input_check import InputCheck
from pipeline.methods.input_view import InputView
from pipeline.settings.job_config import JobConfig


@dataclasses.dataclass(frozen=True)
class VotingView(InputView):
    """Units, each with its one vote a round."""

    config: JobConfig
    room = 'are read of it'
    length_setting = 'max_example_tokens'

    @property
    def columns(self) -> tuple[str, ...]:
        return ('records', 'units')

    @property
    def expected_batch_size(self) -> int:
        return 1

    def of_label(self, records: int, units: int | None) -> tuple[int, None]:
        return round(self.config.input.sample_rate * (records if units is None else units)), None

    def measure(self) -> None:
        # An embedder reads words, and cuts none that a prompt would.
        return None

    def cells(self, contexts: int | None, batches: int | None) -> tuple[str, ...]:
        return ('' if contexts is None else f'{contexts:,}',)

    def findings(self, found: InputCheck) -> Iterator[str]:
        yield from ()

    def wrong_number(self, found: InputCheck) -> tuple[int, str]:
        return found.units, 'the votes that a text gets'
