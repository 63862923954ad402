"""How a check of the input counts and words what fine-tuning would make of it."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from models.prompts import PromptWriter
from pipeline.check.input_check import InputCheck
from pipeline.methods.fine_tune.run import Config
from pipeline.methods.input_view import InputView, MeasureTexts


@dataclasses.dataclass(frozen=True)
class TuningView(InputView):
    """Units, each with its one gradient."""

    config: Config
    room = 'are read of it'
    length_setting = 'max_example_tokens'

    @property
    def columns(self) -> tuple[str, ...]:
        return ('records', 'units')

    @property
    def expected_batch_size(self) -> int:
        return self.config.method.expected_batch_size

    def of_label(self, records: int, units: int | None) -> tuple[int, None]:
        return round(self.config.input.sample_rate * (records if units is None else units)), None

    def measure(self) -> MeasureTexts:
        from pipeline.methods import workers

        writer = workers.prompt_writer(self.config.method, self.config.input)
        return functools.partial(self._lengths, writer)

    def _lengths(self, writer: PromptWriter, texts: Sequence[str]) -> tuple[int, list[int]]:
        tokens = sorted(map(len, writer.continuations(texts, max_tokens=None)))
        return self.config.method.max_example_tokens, tokens

    def cells(self, contexts: int | None, batches: int | None) -> tuple[str, ...]:
        return ('' if contexts is None else f'{contexts:,}',)

    def findings(self, found: InputCheck) -> Iterator[str]:
        yield from ()

    def wrong_number(self, found: InputCheck) -> tuple[int, str]:
        # The declared number is of units: what each step's batch is drawn from.
        assert found.declared_records is not None  # `FineTuneSettings.check_run`
        units_of_a_step = found.batch_size * found.units / found.declared_records
        return found.units, f'a step, which would hold {units_of_a_step:,.1f} units,'
