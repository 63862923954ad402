"""Private prediction: records -> batches -> synthetic examples.

This is the one place where private elements become releasable ones. A batch is one element that
`AssignBatches` forms. It is never a bundle of the runner, nor formed by `BatchElements` or `RunInference`.
"""

import dataclasses

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from models.assembly import GeneratorSettings
from models.batch_plan import BatchPlan
from models.grammars.structure import Structure
from models.privacy.report import BatchFacts
from models.records import Batch, BatchId, Record, SyntheticExample
from models.reference import ReleasedReference, first_round, is_complete, text_hash
from transforms.assign import AssignBatches
from transforms.count import count_outside, count_records
from transforms.predict.decode import GenerateText
from transforms.predict.reference import PickTexts, keep_reference
from transforms.run_files import REFERENCE


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class PredictText(beam.PTransform):
    """Private prediction: records -> synthetic examples, and what the curator's report says of them.

    It returns four collections:

    1. The synthetic examples. Only these are releasable; the other three are restricted to the curator.
    2. The size of each batch.
    3. The losses or the spending of each batch; empty for a method that has neither.
    4. Numbers of records, each under a field of the curator's report: `records_in_reference` are equal to
       one of the curator's reference texts, `records_outside_structure` do not have the structure of the
       run, and `records_in_no_cell` lack a field whose mix is counted.

    With two rounds, some batches are decoded first, with the public prompt. The plan chooses them, so a
    batch's round does not depend on its records. The complete examples of the first round are released
    text: they are written down and become the reference of all other batches (METHOD 4c).

    Attributes:
        rounds: 1 or 2; with 2 the first round releases the reference of the second.
        reference_size: Number M of reference texts of a group in the second round.
        text_limit: Number of characters of a text that a prompt can use.
        accelerator: Resources that decoding asks of the engine: see `GenerateText`.
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
            | 'PickTexts' >> beam.CombineGlobally(PickTexts(self.reference_size))
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
        """Records -> the numbers of records of the curator's report; private."""
        counted = []
        reference, structure = self.settings.reference, self.settings.structure
        if reference is not None:
            hashes = reference.shared_hashes
            counted.append(count_records(records, 'records_in_reference', _is_shared, hashes))
        if structure is not None:
            counted.append(count_outside(records, structure))
            if structure.condition_on:
                counted.append(count_records(records, 'records_in_no_cell', _is_in_no_cell, structure))
        if not counted:
            empty = beam.Create([], reshuffle=False).with_output_types(tuple[str, int])
            return records.pipeline | 'NoneCounted' >> empty
        return tuple(counted) | 'Counted' >> beam.Flatten()


def _is_among(batch: Batch, first: frozenset[BatchId]) -> bool:
    return batch.batch_id in first


def _is_not_among(batch: Batch, first: frozenset[BatchId]) -> bool:
    return batch.batch_id not in first


def _is_shared(record: Record, hashes: frozenset[bytes]) -> bool:
    return text_hash(record.text) in hashes


def _is_in_no_cell(record: Record, structure: Structure) -> bool:
    return structure.cell_of(record.text) is None


def _batch_size(batch: Batch) -> tuple[BatchId, int]:
    return batch.batch_id, len(batch.contexts)
