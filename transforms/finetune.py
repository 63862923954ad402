"""DP fine-tuning: records -> units -> one trained adapter -> sampled texts.

Training is one element on one worker, which has all units before it: a step's batch is a sample of all. What
it releases is the adapter. Sampling reads that alone, on as many workers as there are.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils import shared

from models import activity, batching
from models.batching import BatchPlan, UnitContext
from models.finetuning import adapter as adapters
from models.finetuning import label_mix
from models.finetuning import units as units_lib
from models.finetuning.settings import TuningSettings
from models.privacy import counts
from models.privacy.params import Unit
from models.privacy.report import BatchFacts, TunedTotals
from models.records import BatchId, Record, TunedExample
from transforms.assign import CountContexts, KeyByUnit, SmallestRecords, draw_plan_of
from transforms.durable import guarded, read_file, read_key, write_file
from transforms.predict import batch_path
from transforms.run_files import ADAPTER_TENSORS, BATCHES_FOLDER, TUNING_FOLDER
from transforms.structure import CountOutside
from transforms.write import Columns

if TYPE_CHECKING:
    from models.finetuning.sample import TextSampler


def _count(examples: Iterable[TunedExample]) -> TunedTotals:
    rows = list(examples)
    return TunedTotals(
        examples=len(rows),
        sampled_tokens=sum(row.tokens for row in rows),
        truncated=sum(row.truncated for row in rows),
    )


COLUMNS = Columns(
    row=TunedExample,
    schema=pa.schema([
        pa.field('text', pa.string(), nullable=False),
        pa.field('label', pa.string()),
        pa.field('batch_id', pa.string(), nullable=False),
        pa.field('index_in_batch', pa.int32(), nullable=False),
        pa.field('tokens', pa.int32(), nullable=False),
        pa.field('truncated', pa.bool_(), nullable=False),
    ]),
    order=('batch_id', 'index_in_batch'),
    totals=TunedTotals,
    count=_count,
    meanings={
        'text': ('string', 'The synthetic text.'),
        'label': ('string', 'The declared label it was sampled for; null where the run declared none.'),
        'batch_id': ('string', 'The texts that it was sampled together with; each is sampled for itself.'),
        'index_in_batch': ('integer', 'Its place among them, from 0.'),
        'tokens': ('integer', 'Tokens that were sampled, with what ends the text.'),
        'truncated': ('boolean', 'It ended without a stop token, at its length cap.'),
    },
)  # fmt: skip


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class FineTuneText(beam.PTransform):
    """DP fine-tuning: records -> sampled texts, and what the curator's report says of the units.

    The first collection is releasable: a function of the adapter. Where no text is asked for it is empty,
    and complete once the adapter is written. The second, the number of units of each label under the name of
    the label's first batch, is restricted to the curator. The third is empty. The fourth is restricted
    too: the number of records whose text has not the structure, where a run has one and reads records.

    Attributes:
        settings: What a worker trains and samples with.
        plan: The single plan of batches of texts.
        work_dir: The curator's folder, with the run key.
        adapter: Folder of a released adapter to sample from; None trains one.
        text_limit: Characters of a text that training could use.
        accelerator: What training and sampling ask of the engine, as Dataflow writes it.
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
        units = records | 'Select' >> SelectUnits(
            self.settings.labels,
            self.work_dir,
            of_users=self.settings.params.unit == 'user',
            k=self.settings.params.examples_per_context,
            text_limit=self.text_limit,
        )
        once = root | 'Once' >> beam.Create([None], reshuffle=False)
        if self.adapter is None:
            if self.settings.params.label_mix_rho is not None:
                # The noisy counts are written before the first step: a run that has a step has them.
                once |= 'AfterCounts' >> beam.Map(_after, beam.pvalue.AsSingleton(self.plan))
            train = beam.ParDo(_Train(self.settings, self.work_dir), beam.pvalue.AsIter(units))
            if self.accelerator is not None:
                train.with_resource_hints(accelerator=self.accelerator)
            # trained: SHA-256 of the factors, once they are written
            trained = once | 'Train' >> train.with_output_types(str)
        else:
            trained = once | 'Released' >> beam.Map(_digest_of, self.adapter).with_output_types(str)
        sizes = (
            units
            | 'LabelOfUnit' >> beam.Map(_group_of, self.settings.labels).with_output_types(int)
            | 'CountUnits' >> beam.combiners.Count.PerElement()
            | 'NameGroups' >> beam.MapTuple(_first_batch).with_output_types(tuple[BatchId, int])
        )
        nothing = root | 'NoFacts' >> beam.Create([], reshuffle=False).with_output_types(BatchFacts)
        return self._sample(trained), sizes, nothing, self._count(records)

    def _count(self, records: beam.PCollection[Record]) -> beam.PCollection[tuple[str, int]]:
        """Records -> the number of those that the curator wants to know of; private."""
        structure = self.settings.structure
        if structure is None or self.adapter is not None:
            empty = beam.Create([], reshuffle=False).with_output_types(tuple[str, int])
            return records.pipeline | 'NoneCounted' >> empty
        return records | 'Structure' >> CountOutside(structure)

    def _sample(self, trained: beam.PCollection[str]) -> beam.PCollection[TunedExample]:
        """The adapter, once it is written -> its texts."""
        if not any(self.settings.texts_of_labels):
            # From `trained` itself: whoever waits for the texts waits for the adapter.
            return trained | 'NoTexts' >> beam.FlatMap(_no_texts).with_output_types(TunedExample)
        place = self.work_dir if self.adapter is None else self.adapter
        sample = beam.ParDo(_Sample(self.settings, self.work_dir, place), beam.pvalue.AsSingleton(trained))
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
class DrawLabelMix(beam.PTransform):
    """Records -> the single `BatchPlan` of a run whose mix of labels is counted with noise.

    A unit counts once, under the label that it is trained on (`SelectUnits`). The noise is drawn once in the
    life of a work directory: see `transforms.assign.draw_plan_of`.

    Attributes:
        plan_path: Where the batch plan is kept, `plan.json` in the work directory.
        labels: The declared labels.
        rho: zCDP cost of the noisy counts.
        work_dir: The curator's folder, where workers read the run key.
        texts: Texts of all labels.
        together: How many of a label are sampled together at the most.
        unit: The unit of privacy.
    """

    plan_path: str
    labels: tuple[str | None, ...]
    rho: float
    work_dir: str
    texts: int
    together: int
    unit: Unit = 'example'

    def __post_init__(self) -> None:
        counts.gaussian_scale(self.rho)

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[BatchPlan]:
        return (
            records
            # one list of int, private
            | 'CountUnits' >> CountContexts(self.labels, self.work_dir, unit=self.unit)
            | 'Draw'
            >> beam.Map(
                draw_plan_of,
                self.plan_path,
                labels=self.labels,
                rho=self.rho,
                batches_of=functools.partial(
                    label_mix.batches_of_counts, texts=self.texts, together=self.together
                ),
            ).with_output_types(BatchPlan)
        )


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class SelectUnits(beam.PTransform):
    """Records -> one row for each unit: its keyed hash, its label and its texts (METHOD 1).

    Of a user the k records of smallest keyed hash, of one label, as in private prediction.

    Attributes:
        labels: The declared labels, or a single None; records of others drop out.
        work_dir: The curator's folder, where workers read the run key.
        of_users: Whether a unit is a user.
        k: The largest number of records of one unit.
        text_limit: Characters of a text that are kept; None keeps all.
    """

    labels: tuple[str | None, ...]
    work_dir: str
    of_users: bool
    k: int
    text_limit: int | None = None

    def expand(self, records: beam.PCollection[Record]) -> beam.PCollection[units_lib.Row]:
        if not self.of_users:
            return records | 'HashRecord' >> beam.ParDo(
                _HashRecord(self.labels, self.work_dir, self.text_limit)
            ).with_output_types(units_lib.Row)
        return (
            records
            | 'KeyByUnit' >> beam.ParDo(KeyByUnit(self.work_dir, self.text_limit), self.labels)
            # (unit hash, (record hash, text, label, cluster))
            | 'FormUnits' >> beam.CombinePerKey(SmallestRecords(self.k))
            # (unit hash, (label, cluster, [text]))
            | 'Row' >> beam.Map(_row_of_user).with_output_types(units_lib.Row)
        )


def _row_of_user(element: tuple[bytes, UnitContext]) -> units_lib.Row:
    digest, (label, _, texts) = element
    return digest, label, list(texts)


class _HashRecord(beam.DoFn):
    """record -> row, where each record is a unit."""

    def __init__(self, labels: tuple[str | None, ...], work_dir: str, text_limit: int | None) -> None:
        self._labels, self._work_dir, self._text_limit = labels, work_dir, text_limit

    def setup(self) -> None:
        self._key = read_key(self._work_dir)  # a `RunKey` refuses to be pickled

    def process(self, record: Record) -> Iterator[units_lib.Row]:
        if record.label in self._labels:
            digest = guarded(
                lambda: batching.record_hash(self._key, record),
                expected='every record to have its hash',
                work_dir=self._work_dir,
                name='select',
            )
            yield digest, record.label, [record.text[: self._text_limit]]


def _group_of(row: units_lib.Row, labels: tuple[str | None, ...]) -> int:
    return labels.index(row[1])


def _first_batch(group: int, count: int) -> tuple[BatchId, int]:
    return BatchId(group=group, index=0), count


def _after(once: None, _: BatchPlan) -> None:
    """The element itself, which is there once the plan is."""
    return once


def _texts(plan: BatchPlan, settings: TuningSettings) -> Iterator[tuple[int, int, int]]:
    """Group, index and texts of every batch: plain integers have a deterministic coder."""
    texts, size = settings.texts_by(plan), settings.resolved_texts_together
    for batch_id in plan.batch_ids():
        yield batch_id.group, batch_id.index, min(size, texts[batch_id.group] - batch_id.index * size)


class _Train(beam.DoFn):
    """One element and all units -> SHA-256 of the adapter, which is written down before it is used."""

    def __init__(self, settings: TuningSettings, work_dir: str) -> None:
        self._settings, self._work_dir = settings, work_dir

    def process(self, _: None, rows: Iterable[units_lib.Row]) -> Iterator[str]:
        path = FileSystems.join(self._work_dir, ADAPTER_TENSORS)
        if not FileSystems.exists(path):
            # Everything here is computed from records, so an error's text stays with the curator.
            data = guarded(
                lambda: self._train(rows),
                expected='fine-tuning to finish',
                work_dir=self._work_dir,
                name='train',
            )
            write_file(path, data)
        # What is on disk counts, should another worker have been faster.
        yield adapters.digest(read_file(path))

    def _train(self, rows: Iterable[units_lib.Row]) -> bytes:
        from models.finetuning.train import Trainer

        activity.report(activity.Activity('Loading the model'))
        key = read_key(self._work_dir)
        trainer = Trainer(self._settings)
        checkpoints = FileSystems.join(self._work_dir, TUNING_FOLDER)
        return adapters.to_bytes(trainer.train(units_lib.in_order(rows), key, checkpoints))


def _no_texts(_: str) -> Iterator[TunedExample]:
    return iter(())


def _digest_of(_: None, folder: str) -> str:
    return adapters.digest(read_file(FileSystems.join(folder, ADAPTER_TENSORS)))


def _read_texts(path: str, batch_id: str) -> list[TunedExample]:
    data = read_file(path)
    try:
        return [TunedExample(**row) for row in json.loads(data)]
    except (TypeError, ValueError):
        pass
    # Outside of the handler: that error holds the text, which is not released yet.
    raise ValueError(
        f'Expected batch {batch_id} whole, got a damaged file={BATCHES_FOLDER}/{batch_id}.json in the work '
        'directory. Remove it and repeat the command: its texts are sampled again, the same ones.'
    )


class _Sample(beam.DoFn):
    """batch id and number of texts -> the texts; loads the model once per process."""

    def __init__(self, settings: TuningSettings, work_dir: str, folder: str) -> None:
        self._settings, self._work_dir, self._folder = settings, work_dir, folder
        self._shared = shared.Shared()

    def setup(self) -> None:
        self._key = read_key(self._work_dir)

    def process(self, element: tuple[int, int, int], trained: str) -> Iterator[TunedExample]:
        batch_id = BatchId(group=element[0], index=element[1])
        path = batch_path(self._work_dir, str(batch_id))
        if not FileSystems.exists(path):
            sampler = self._shared.acquire(lambda: self._build(trained), tag=trained)
            label = self._settings.labels[batch_id.group]
            examples = sampler.sample(batch_id, label, element[2], self._key)
            rows = [dataclasses.asdict(example) for example in examples]
            write_file(path, json.dumps(rows, ensure_ascii=False).encode())
        yield from _read_texts(path, str(batch_id))

    def _build(self, trained: str) -> 'TextSampler':
        from models.finetuning.sample import TextSampler

        data = read_file(FileSystems.join(self._folder, ADAPTER_TENSORS))
        if (found := adapters.digest(data)) != trained:
            raise ValueError(
                f'Expected the adapter that was trained, got SHA-256 {found}, not {trained}. Restore '
                f'{ADAPTER_TENSORS}, or start a new run.'
            )
        activity.report(activity.Activity('Loading the model'))
        return TextSampler(
            self._settings, adapters.from_bytes(data, self._settings.model, self._settings.lora_rank)
        )
