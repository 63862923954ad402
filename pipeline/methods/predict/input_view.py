"""How a check of the input counts and words what private prediction would make of it."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from models.privacy import counts
from models.prompts import PromptWriter
from pipeline.check.input_check import FEWEST_CONTEXTS, MOST_CONTEXTS, InputCheck
from pipeline.methods.input_view import InputView, MeasureTexts
from pipeline.methods.predict.run import Config


@dataclasses.dataclass(frozen=True)
class VotesView(InputView):
    """Contexts in batches."""

    config: Config
    room = 'fit into a prompt'
    length_setting = 'max_prompt_tokens'

    @property
    def expected_batch_size(self) -> int:
        return self.config.method.batch_size

    @property
    def columns(self) -> tuple[str, ...]:
        return ('records', 'contexts', 'batches', f'contexts a batch (s = {self.expected_batch_size})')

    def of_label(self, records: int, units: int | None) -> tuple[int, int]:
        own = self.config.method
        counted = round(self.config.input.sample_rate * (records if units is None else units))
        k = self.config.budget.examples_per_context if units is None else 1
        batches = own.batches_per_label
        if batches is None:
            # With a noisy count, as many as the true one would give.
            batches = counts.batches_for(counted, own.batch_size, k)
        return (counted if k == 1 else _filled_slots(counted, own.batch_size * batches)), batches

    def measure(self) -> MeasureTexts:
        from pipeline.methods import workers

        writer = workers.prompt_writer(self.config.method, self.config.input)
        return functools.partial(self._lengths, writer)

    def _lengths(self, writer: PromptWriter, texts: Sequence[str]) -> tuple[int, list[int]]:
        k = self.config.budget.examples_per_context
        room = min(writer.room(label, k) for label in self.config.input.label_values)
        return room, sorted(writer.lengths(texts))

    def cells(self, contexts: int | None, batches: int | None) -> tuple[str, ...]:
        if contexts is None or not batches:
            return ('', '', '')
        return (f'{contexts:,}', f'{batches:,}', f'{contexts / batches:,.1f}')

    def findings(self, found: InputCheck) -> Iterator[str]:
        for label in found.labels:
            if label.contexts is None or not label.batches or not found.records:
                continue
            held = label.contexts / label.batches
            ratio = held / found.batch_size
            name = 'A batch' if label.label is None else f'A batch of {label.label!r}'
            if ratio > MOST_CONTEXTS:
                yield (
                    f'{name} would hold {held:,.0f} contexts, where --batch-size says '
                    f'{found.batch_size}: each token costs what it costs at {found.batch_size}, at more '
                    'work. More --batches-per-label, or none of it, which counts with noise, give as many '
                    'batches as there are records for.'
                )
            elif ratio < FEWEST_CONTEXTS:
                yield (
                    f'{name} would hold {held:,.1f} contexts, where --batch-size says '
                    f'{found.batch_size}: it stays near the public prompt. Fewer batches, a smaller '
                    '--batch-size at its price, or fewer labels.'
                )

    def wrong_number(self, found: InputCheck) -> tuple[int, str]:
        return found.records, 'texts and hours'


def _filled_slots(records: int, slots: int) -> int:
    """Expected number of slots that hold a record, each record in a slot by its hash."""
    return round(slots * (1 - (1 - 1 / slots) ** records))
