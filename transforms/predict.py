"""Private prediction: records -> batches -> synthetic examples, on workers that own an accelerator.

The one place where private elements become releasable ones. A batch is one element,
formed by us: no runner bundle, no `BatchElements`, no `RunInference`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils import shared

from models import activity
from models.assembly import GeneratorSettings
from models.batching import BatchPlan
from models.generate import BatchGenerator, GeneratedBatch
from models.grammars.structure import Structure
from models.privacy.ex_post import BatchLoss
from models.privacy.individual import BatchSpending
from models.privacy.params import MechanismParams
from models.privacy.report import BatchFacts, CorpusTotals, StructuredTotals
from models.records import Batch, BatchId, Record, StructuredExample, SyntheticExample
from models.reference import ReleasedReference, first_round, is_complete, pick, text_hash
from transforms.assign import AssignBatches
from transforms.durable import draw_once, guarded, read_file, read_key, write_file
from transforms.run_files import (
    ADAPTER_TENSORS,
    BATCHES_FOLDER,
    LOSSES_FOLDER,
    REFERENCE,
    SPENDING_FOLDER,
)
from transforms.structure import CountOutside
from transforms.write import Columns


def batch_path(work_dir: str, batch_id: str) -> str:
    """Where a finished batch is kept."""
    return FileSystems.join(work_dir, BATCHES_FOLDER, f'{batch_id}.json')


_FACTS_FOLDERS: dict[type, str] = {BatchLoss: LOSSES_FOLDER, BatchSpending: SPENDING_FOLDER}


def _facts_path(work_dir: str, batch_id: str, kind: type, examples: bytes) -> str:
    """Where the losses or the spending of these very examples are kept."""
    digest = hashlib.sha256(examples).hexdigest()[:32]
    return FileSystems.join(work_dir, _FACTS_FOLDERS[kind], f'{batch_id}.{digest}.json')


def facts_kind(params: MechanismParams) -> type[BatchFacts] | None:
    """What the curator learns of a batch beside its size: its losses, its spending, or nothing."""
    if params.is_ex_post:
        return BatchLoss
    return BatchSpending if params.is_individual else None


def write_batch(
    work_dir: str, batch_id: str, examples: Iterable[SyntheticExample], facts: BatchFacts | None = None
) -> None:
    """Makes a finished batch durable: its losses or spending, where it has any, before its examples.

    Accelerators of two kinds may round differently, and so may decode one batch to different
    examples. The file of the facts is named after the examples that they are of: whichever
    worker's batch file stays, that worker's facts are read.
    """
    data = json.dumps([dataclasses.asdict(example) for example in examples], ensure_ascii=False).encode()
    if facts is not None:
        restricted = json.dumps(dataclasses.asdict(facts)).encode()
        write_file(_facts_path(work_dir, batch_id, type(facts), data), restricted)
    write_file(batch_path(work_dir, batch_id), data)


def read_batch(work_dir: str, batch_id: str) -> list[SyntheticExample] | None:
    """The examples of a finished batch; None where it is not finished.

    Raises:
        ValueError: The file is damaged.
    """
    path = batch_path(work_dir, batch_id)
    if not FileSystems.exists(path):
        return None
    data = read_file(path)
    try:
        return [_example(row) for row in json.loads(data)]
    except (TypeError, ValueError):
        pass
    # Outside of the handler: that error holds the text.
    raise ValueError(_damaged(path, batch_id))


def _example(row: dict[str, Any]) -> SyntheticExample:
    return StructuredExample(**row) if 'forced_tokens' in row else SyntheticExample(**row)


def _damaged(path: str, batch_id: str) -> str:
    file = '/'.join(path.rsplit('/', 2)[1:])
    return (
        f'Expected batch {batch_id} whole, got a damaged file={file} in the work directory. Remove '
        f'{BATCHES_FOLDER}/{batch_id}.json there, {LOSSES_FOLDER}/{batch_id}.* and '
        f'{SPENDING_FOLDER}/{batch_id}.*, and repeat the command: the batch is decoded again with the same '
        'noise.'
    )


def read_facts[Facts: BatchFacts](work_dir: str, batch_id: str, kind: type[Facts]) -> Facts:
    """The losses or the spending of a finished batch: those of the examples in its file.

    Raises:
        FileNotFoundError: There are none.
        ValueError: The file is damaged.
    """
    path = _facts_path(work_dir, batch_id, kind, read_file(batch_path(work_dir, batch_id)))
    if not FileSystems.exists(path):
        folder = _FACTS_FOLDERS[kind]
        raise FileNotFoundError(
            f'Expected the {folder} of batch {batch_id} beside its examples, got none in {folder}/ of '
            f'the work directory. Restore them, or remove {BATCHES_FOLDER}/{batch_id}.json and repeat the '
            'command: the batch is decoded again with the same noise.'
        )
    data = read_file(path)
    make: Callable[..., Facts] = kind
    try:
        values = json.loads(data)
        return make(**{name: tuple(of) if isinstance(of, list) else of for name, of in values.items()})
    except (AttributeError, TypeError, ValueError):
        pass
    # Outside of the handler: that error holds the facts.
    raise ValueError(_damaged(path, batch_id))


def _count(examples: Sequence[SyntheticExample]) -> CorpusTotals:
    return CorpusTotals(
        examples=len(examples),
        private_tokens=sum(example.private_tokens for example in examples),
        public_tokens=sum(example.public_tokens for example in examples),
        truncated=sum(example.truncated for example in examples),
    )


COLUMNS = Columns(
    row=SyntheticExample,
    schema=pa.schema([
        pa.field('text', pa.string(), nullable=False),
        pa.field('label', pa.string()),
        pa.field('batch_id', pa.string(), nullable=False),
        pa.field('index_in_batch', pa.int32(), nullable=False),
        pa.field('private_tokens', pa.int32(), nullable=False),
        pa.field('public_tokens', pa.int32(), nullable=False),
        pa.field('truncated', pa.bool_(), nullable=False),
    ]),
    order=('batch_id', 'index_in_batch'),
    totals=CorpusTotals,
    count=_count,
    meanings={
        'text': ('string', 'The synthetic text.'),
        'label': ('string', 'The declared label it was generated for; null where the run declared none.'),
        'batch_id': ('string', 'The batch that voted on its tokens. Rows of one batch come from one stream.'),
        'index_in_batch': ('integer', 'Its place in that stream, from 0.'),
        'private_tokens': ('integer', 'Tokens sampled from the aggregate of the private prompts.'),
        'public_tokens': ('integer', "Tokens sampled from the public prompt's prediction."),
        'truncated': (
            'boolean',
            'It ended without a stop token: at its length cap, or because the batch had used up its tokens.',
        ),
    },
)  # fmt: skip


def _count_structured(examples: Sequence[StructuredExample]) -> StructuredTotals:
    return StructuredTotals(
        **dataclasses.asdict(_count(examples)),
        forced_tokens=sum(example.forced_tokens for example in examples),
    )


_BEFORE_FORCED = COLUMNS.schema.get_field_index('public_tokens') + 1
# Of examples that have a structure.
STRUCTURED_COLUMNS = dataclasses.replace(
    COLUMNS,
    row=StructuredExample,
    schema=COLUMNS.schema.insert(_BEFORE_FORCED, pa.field('forced_tokens', pa.int32(), nullable=False)),
    totals=StructuredTotals,
    count=_count_structured,
    meanings={
        **dict(list(COLUMNS.meanings.items())[:_BEFORE_FORCED]),
        'forced_tokens': ('integer', 'Tokens that nobody chose: the structure allowed no other.'),
        **dict(list(COLUMNS.meanings.items())[_BEFORE_FORCED:]),
    },
)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class PredictText(beam.PTransform):
    """Private prediction: records -> synthetic examples, and what the curator's report says of them.

    The first collection is releasable. The sizes and the losses or spending of its batches, the
    second and the third, are restricted to the curator, and so is the fourth, numbers of records by the
    field of the curator's report: those whose text is one of the curator's reference texts, those whose
    text has not the structure, and those that lack the fields whose mix is counted; each where a run is
    given such.

    In two rounds, a public part of the batches is decoded first, with the public prompt. Complete
    examples of these, released text, are the reference of the others (METHOD 4c): a side input that is
    written down before it is used. A batch belongs to its round by the plan, whatever it holds.

    Attributes:
        settings: What a worker builds its generator from.
        plan: The single plan.
        work_dir: The curator's folder, with the run key.
        rounds: 1, or 2 where the first one releases the reference of the other.
        reference_size: M, of reference texts of a group in the second round.
        text_limit: Characters of a text that any prompt could use.
        accelerator: What decoding asks of the engine: see `GenerateText`.
    """

    settings: GeneratorSettings
    plan: beam.PCollection[BatchPlan]
    work_dir: str
    rounds: int = 1
    reference_size: int = 8
    text_limit: int | None = None
    accelerator: str | None = None

    # Beam has no type hint for four outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, records: beam.PCollection[Record]
    ) -> tuple[
        beam.PCollection[SyntheticExample],
        beam.PCollection[tuple[BatchId, int]],
        beam.PCollection[BatchFacts],
        beam.PCollection[tuple[str, int]],
    ]:
        params = self.settings.params
        # batches: Batch, one for every planned batch
        batches = records | 'Assign' >> AssignBatches(
            self.plan,
            self.work_dir,
            params.batch_size,
            unit=params.unit,
            examples_per_context=params.examples_per_context,
            text_limit=self.text_limit,
        )
        sizes = batches | 'BatchSize' >> beam.Map(_batch_size)
        decode = GenerateText(self.settings, self.work_dir, self.accelerator)
        # The steps of `decode` stand beside these: `Decode` is a name that users meet.
        examples, facts = decode.expand(batches) if self.rounds == 1 else self._in_rounds(batches, decode)
        return examples, sizes, facts, self._count(records)

    @beam.typehints.no_annotations
    def _in_rounds(
        self, batches: beam.PCollection[Batch], decode: 'GenerateText'
    ) -> tuple[beam.PCollection[SyntheticExample], beam.PCollection[BatchFacts]]:
        """Batches -> examples and facts of both rounds."""
        first_ids = beam.pvalue.AsSingleton(self.plan | 'PlanRounds' >> beam.Map(first_round))
        first = batches | 'FirstBatches' >> beam.Filter(_is_among, first_ids).with_output_types(Batch)
        others = batches | 'OtherBatches' >> beam.Filter(_is_not_among, first_ids).with_output_types(Batch)
        # examples, facts: of the first round
        examples, facts = first | 'FirstRound' >> decode
        # reference: one ReleasedReference
        reference = (
            examples
            | 'Complete' >> beam.Filter(is_complete)
            | 'PickTexts' >> beam.CombineGlobally(_PickTexts(self.reference_size))
            | 'KeepReference'
            >> beam.Map(
                keep_reference,
                beam.pvalue.AsSingleton(self.plan),
                FileSystems.join(self.work_dir, REFERENCE),
                self.reference_size,
            ).with_output_types(ReleasedReference)
        )
        # With the model of the first round, where a process has it.
        with_reference = dataclasses.replace(decode, reference=beam.pvalue.AsSingleton(reference))
        other_examples, other_facts = with_reference.expand(others)
        return (
            (examples, other_examples) | 'ExamplesOfBothRounds' >> beam.Flatten(),
            (facts, other_facts) | 'FactsOfBothRounds' >> beam.Flatten(),
        )

    def _count(self, records: beam.PCollection[Record]) -> beam.PCollection[tuple[str, int]]:
        """Records -> numbers of those that the curator wants to know of; private."""
        counted = []
        reference, structure = self.settings.reference, self.settings.structure
        if reference is not None:
            counted.append(
                records
                | 'InReference' >> beam.Filter(_is_shared, reference.shared_hashes)
                | 'CountShared' >> beam.combiners.Count.Globally()
                | 'NameShared' >> beam.Map(_named, 'records_in_reference').with_output_types(tuple[str, int])
            )
        if structure is not None:
            counted.append(records | 'Structure' >> CountOutside(structure))
            if structure.condition_on:
                counted.append(
                    records
                    | 'InNoCell' >> beam.Filter(_is_in_no_cell, structure)
                    | 'CountInNoCell' >> beam.combiners.Count.Globally()
                    | 'NameInNoCell'
                    >> beam.Map(_named, 'records_in_no_cell').with_output_types(tuple[str, int])
                )
        if not counted:
            empty = beam.Create([], reshuffle=False).with_output_types(tuple[str, int])
            return records.pipeline | 'NoneCounted' >> empty
        return tuple(counted) | 'Counted' >> beam.Flatten()


def _is_among(batch: Batch, first: frozenset[BatchId]) -> bool:
    return batch.batch_id in first


def _is_not_among(batch: Batch, first: frozenset[BatchId]) -> bool:
    return batch.batch_id not in first


class _PickTexts(beam.CombineFn):
    """Complete examples -> texts of each group that may be picked, in bounded memory."""

    def __init__(self, size: int) -> None:
        self._size = size

    def create_accumulator(self) -> dict[int, tuple[str, ...]]:
        return {}

    def add_input(
        self, accumulator: dict[int, tuple[str, ...]], example: SyntheticExample
    ) -> dict[int, tuple[str, ...]]:
        group = int(example.batch_id.partition('-')[0])
        accumulator[group] = pick((*accumulator.get(group, ()), example.text), self._size)
        return accumulator

    def merge_accumulators(
        self, accumulators: Iterable[dict[int, tuple[str, ...]]]
    ) -> dict[int, tuple[str, ...]]:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            for group, texts in accumulator.items():
                merged[group] = pick((*merged.get(group, ()), *texts), self._size)
        return merged

    def extract_output(self, accumulator: dict[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
        return accumulator


def keep_reference(
    texts: dict[int, tuple[str, ...]], plan: BatchPlan, path: str, size: int
) -> ReleasedReference:
    """The reference that the first round released, as `path` holds it: written there first, see `draw_once`.

    It is a function of finished batches, which stay as they are, so that every attempt finds the same.

    Args:
        texts: Texts of complete examples of the first round by group, the `size` smallest at least.
        plan: The batch plan.
        path: `reference.json` in the work directory, on any filesystem that Beam knows.
        size: M.

    Raises:
        ValueError: The file holds another reference: batches that follow from it may be finished.
    """
    released = ReleasedReference.of(texts, plan, size)
    kept = ReleasedReference.from_json(draw_once(path, released.to_json))
    if kept != released:
        raise ValueError(
            'Expected the reference that the first round released, got another one in reference.json of '
            'the work directory. Restore the finished batches that it is of, or start a new run.'
        )
    return kept


def _is_shared(record: Record, hashes: frozenset[bytes]) -> bool:
    return text_hash(record.text) in hashes


def _is_in_no_cell(record: Record, structure: Structure) -> bool:
    return structure.cell_of(record.text) is None


def _named(count: int, field: str) -> tuple[str, int]:
    return field, count


def _batch_size(batch: Batch) -> tuple[BatchId, int]:
    return batch.batch_id, len(batch.contexts)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class GenerateText(beam.PTransform):
    """Batches -> synthetic examples, and the losses or the spending of each batch.

    The second collection is restricted to the curator, and empty where there is neither
    (`facts_kind`).

    A batch that is finished already is read back and emitted, as the generator would
    emit it, so that a resumed run gives the same corpus.

    Attributes:
        settings: What a worker builds its generator from.
        work_dir: The curator's folder, with the run key.
        accelerator: What decoding asks of the engine, as Dataflow writes it:
            'type:nvidia-l4;count:1;install-nvidia-driver'. Engines that place no workers
            pay no heed to it.
        reference: The single `ReleasedReference` of these batches, as a side input; None where they
            have that of the settings, if any.
        model: Holds the loaded model of a process for every step that has this very object.
    """

    settings: GeneratorSettings
    work_dir: str
    accelerator: str | None = None
    reference: beam.pvalue.AsSingleton | None = None
    model: shared.Shared = dataclasses.field(default_factory=shared.Shared)

    # Beam has no type hint for two outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, batches: beam.PCollection[Batch]
    ) -> tuple[beam.PCollection[SyntheticExample], beam.PCollection[BatchFacts]]:
        of_round = () if self.reference is None else (self.reference,)
        decode = beam.ParDo(_Decode(self.settings, self.work_dir, self.model), *of_round)
        if self.accelerator is not None:
            # On this leaf alone: a hint on a composite would ask for accelerators to group with.
            decode.with_resource_hints(accelerator=self.accelerator)
        decoded = (
            batches
            # Accelerator workers should not also read and group.
            | 'SpreadBatches' >> beam.Reshuffle()
            | 'Decode' >> decode.with_outputs(_FACTS, main=_EXAMPLES)
        )
        examples = decoded[_EXAMPLES] | 'Released' >> beam.Map(_as_is).with_output_types(SyntheticExample)
        facts = decoded[_FACTS] | 'Restricted' >> beam.Map(_as_is).with_output_types(BatchFacts)
        # Nor write: and a later failure does not come back to the decoder.
        return examples | 'KeepExamples' >> beam.Reshuffle(), facts | 'KeepFacts' >> beam.Reshuffle()


def load_generator(settings: GeneratorSettings) -> BatchGenerator:
    """The generator of a run, with its adapter where it has one.

    Raises:
        ValueError: The adapter is not the one that its card names.
        FileNotFoundError: The weights or the adapter are not there.
    """
    if settings.adapter is None:
        return settings.build()
    return settings.build(read_file(FileSystems.join(settings.adapter.folder, ADAPTER_TENSORS)))


_EXAMPLES, _FACTS = 'examples', 'facts'


def _as_is(element: Any) -> Any:
    """Outputs of a step with several have no types of their own: this gives each one its."""
    return element


class _Decode(beam.DoFn):
    """Loads the model once per process, then decodes batch after batch."""

    def __init__(self, settings: GeneratorSettings, work_dir: str, model: shared.Shared) -> None:
        self._settings = settings
        self._work_dir = work_dir
        self._shared = model

    def setup(self) -> None:
        self._key = read_key(self._work_dir)

    def _generator(self) -> BatchGenerator:
        # Not in `setup`: a resumed run whose batches are all finished needs no model.
        return self._shared.acquire(self._build)

    def _build(self) -> BatchGenerator:
        activity.report(activity.Activity('Loading the model'))
        return load_generator(self._settings)

    @beam.typehints.no_annotations
    def process(
        self, batch: Batch, released: ReleasedReference | None = None
    ) -> Iterator[SyntheticExample | beam.pvalue.TaggedOutput]:
        batch_id = str(batch.batch_id)
        examples = read_batch(self._work_dir, batch_id)
        if examples is None:
            generated = self._decode(batch, self._reference(batch, released))
            write_batch(self._work_dir, batch_id, generated.examples, generated.loss or generated.spending)
            # What is on disk counts, should another worker have been faster.
            examples = read_batch(self._work_dir, batch_id)
        if examples is None:
            raise FileNotFoundError(
                f'Expected batch {batch_id} in the work directory, where it was just written. '
                'Check that nothing cleans the folder, and resume.'
            )
        yield from examples
        kind = facts_kind(self._settings.params)
        if kind is not None:
            yield beam.pvalue.TaggedOutput(_FACTS, read_facts(self._work_dir, batch_id, kind))

    def _reference(self, batch: Batch, released: ReleasedReference | None) -> tuple[str, ...]:
        """The reference texts of a batch: of its group in the second round, else of its label, if any."""
        if released is not None:
            return released.texts_by_group[batch.batch_id.group]
        given = self._settings.reference
        return () if given is None else given.of_label(batch.label)

    def _decode(self, batch: Batch, reference: tuple[str, ...]) -> GeneratedBatch:
        generator = self._generator()
        return guarded(
            lambda: generator.generate(batch, self._key, reference),
            expected=f'batch {batch.batch_id} to decode',
            work_dir=self._work_dir,
            name=str(batch.batch_id),
        )
