"""DP fine-tuning: records -> units -> one trained adapter -> sampled texts.

One worker trains, and has all units, because the batch of each step is a sample of all units. Training
releases the adapter. Sampling reads nothing but the adapter, on as many workers as there are.
"""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from models.batch_plan import BatchPlan
from models.finetuning import adapter as adapters
from models.finetuning.settings import TuningSettings
from models.privacy.report import BatchFacts
from models.records import BatchId, Record, TunedExample
from transforms.count import count_outside
from transforms.durable import read_file
from transforms.finetune.sample import SampleTexts
from transforms.finetune.train import TrainAdapter
from transforms.run_files import ADAPTER_TENSORS
from transforms.units import CountUnits, SelectUnits


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class FineTuneText(beam.PTransform):
    """DP fine-tuning: records -> sampled texts, and what the curator's report says of the units.

    It returns four collections:

    1. The sampled texts. They are a function of the adapter, so they are releasable. A run that samples no
       text has none, and this collection is complete once the adapter is written.
    2. The number of units of each label, under the name of the label's first batch; restricted to the
       curator.
    3. Nothing: fine-tuning has neither losses nor spending of batches.
    4. The number of records that do not have the structure; restricted to the curator. It is empty for a
       run without a structure, and for a run that samples from a released adapter.

    Attributes:
        plan: The single plan of batches of texts.
        adapter: Folder of a released adapter to sample from; None trains one.
        text_limit: Number of characters of a text that training can use.
        accelerator: Resources that training and sampling ask of the engine, as Dataflow writes it.
    """

    settings: TuningSettings
    plan: beam.PCollection[BatchPlan]
    work_dir: str
    adapter: str | None = None
    text_limit: int | None = None
    accelerator: str | None = None

    # Beam has no type hint for four outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, records: beam.PCollection[Record]
    ) -> tuple[
        beam.PCollection[TunedExample],
        beam.PCollection[tuple[BatchId, int]],
        beam.PCollection[BatchFacts],
        beam.PCollection[tuple[str, int]],
    ]:
        root = records.pipeline
        # units: (unit hash, label, [text]), private
        units = records | 'Select' >> _select(self.settings, self.work_dir, self.text_limit)
        once = root | 'Once' >> beam.Create([None], reshuffle=False)
        if self.adapter is None:
            if self.settings.params.label_mix_rho is not None:
                # The noisy counts are written before the first step of training.
                once |= 'AfterCounts' >> beam.Map(_after, beam.pvalue.AsSingleton(self.plan))
            # trained: SHA-256 of the factors, once they are written
            trained = once | 'Train' >> _train(units, self.settings, self.work_dir, self.accelerator)
        else:
            trained = once | 'Released' >> beam.Map(_digest_of, self.adapter).with_output_types(str)
        sizes = units | 'Units' >> CountUnits(self.settings.labels)
        nothing = root | 'NoFacts' >> beam.Create([], reshuffle=False).with_output_types(BatchFacts)
        return self._sample(trained), sizes, nothing, self._count(records)

    def _count(self, records: beam.PCollection[Record]) -> beam.PCollection[tuple[str, int]]:
        """Records -> the numbers of records of the curator's report; private."""
        structure = self.settings.structure
        if structure is None or self.adapter is not None:
            empty = beam.Create([], reshuffle=False).with_output_types(tuple[str, int])
            return records.pipeline | 'NoneCounted' >> empty
        return count_outside(records, structure)

    def _sample(self, trained: beam.PCollection[str]) -> beam.PCollection[TunedExample]:
        """The adapter, once it is written -> its texts."""
        if not any(self.settings.texts_of_labels):
            # Made of `trained`, so that a step that waits for the texts waits for the adapter.
            return trained | 'NoTexts' >> beam.FlatMap(_no_texts).with_output_types(TunedExample)
        place = self.work_dir if self.adapter is None else self.adapter
        sample = beam.ParDo(
            SampleTexts(self.settings, self.work_dir, place), beam.pvalue.AsSingleton(trained)
        )
        if self.accelerator is not None:
            sample.with_resource_hints(accelerator=self.accelerator)
        batches = self.plan | 'Batches' >> beam.FlatMap(_texts, self.settings).with_output_types(
            tuple[int, int, int]
        )
        return (
            batches
            | 'SpreadBatches' >> beam.Reshuffle()
            | 'Sample' >> sample.with_output_types(TunedExample)
            | 'KeepExamples' >> beam.Reshuffle()
        )


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class TrainText(beam.PTransform):
    """Records -> SHA-256 of the adapter that they train, once it is written to the work directory.

    Attributes:
        text_limit: Number of characters of a text that training can use.
        accelerator: Resources that training asks of the engine, as Dataflow writes it.
    """

    settings: TuningSettings
    work_dir: str
    text_limit: int | None = None
    accelerator: str | None = None

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[str]:
        # units: (unit hash, label, [text]), private
        units = records | 'Select' >> _select(self.settings, self.work_dir, self.text_limit)
        once = records.pipeline | 'Once' >> beam.Create([None], reshuffle=False)
        return once | 'Train' >> _train(units, self.settings, self.work_dir, self.accelerator)


def _select(settings: TuningSettings, work_dir: str, text_limit: int | None) -> SelectUnits:
    return SelectUnits(
        settings.labels,
        work_dir,
        of_users=settings.params.unit == 'user',
        k=settings.params.examples_per_context,
        text_limit=text_limit,
    )


def _train(
    units: beam.PCollection, settings: TuningSettings, work_dir: str, accelerator: str | None
) -> beam.ParDo:
    train = beam.ParDo(TrainAdapter(settings, work_dir), beam.pvalue.AsIter(units))
    if accelerator is not None:
        train.with_resource_hints(accelerator=accelerator)
    return train.with_output_types(str)


def _after(once: None, _: BatchPlan) -> None:
    """Returns the element, once the plan is there."""
    return once


def _texts(plan: BatchPlan, settings: TuningSettings) -> Iterator[tuple[int, int, int]]:
    """Group, index and texts of every batch: plain integers have a deterministic coder."""
    texts, size = settings.texts_by(plan), settings.sampled_together
    for batch_id in plan.batch_ids():
        yield batch_id.group, batch_id.index, min(size, texts[batch_id.group] - batch_id.index * size)


def _no_texts(_: str) -> Iterator[TunedExample]:
    return iter(())


def _digest_of(_: None, folder: str) -> str:
    return adapters.digest(read_file(FileSystems.join(folder, ADAPTER_TENSORS)))
