"""Records -> the records of the run's sample of units. A keyed hash decides who is in the sample."""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam

from models import batching
from models.records import Record
from transforms.keyed import KeyedDoFn


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class SampleUnits(beam.PTransform):
    """Records -> (records of the sample, number of the other records), two PCollections.

    The run key and the unit alone decide whether a unit is in the sample (`batching.is_sampled`). The order
    and the sharding of the input do not matter, and a resumed run has the same sample. The number is a
    single element, for the curator's report.

    Attributes:
        rate: Public probability that a unit is in the sample, in (0, 1].
        work_dir: The curator's folder, where workers read the run key.
    """

    rate: float
    work_dir: str

    # Beam has no type hint for two outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, records: beam.PCollection[Record]
    ) -> tuple[beam.PCollection[Record], beam.PCollection[int]]:
        # Each record is hashed twice, since tagged outputs have no types, and so no `RecordCoder`.
        kept, others = (
            records
            | name >> beam.ParDo(_OfSample(self.rate, self.work_dir, inside)).with_output_types(Record)
            for name, inside in (('Keep', True), ('LeaveOut', False))
        )
        return kept, others | 'CountLeftOut' >> beam.combiners.Count.Globally()


class _OfSample(KeyedDoFn):
    """record -> the record, if it is inside the sample or, with `inside=False`, outside of it."""

    def __init__(self, rate: float, work_dir: str, inside: bool) -> None:
        super().__init__(work_dir, expected='every record in the sample or outside of it', name='sample')
        self._rate, self._inside = rate, inside

    def process(self, record: Record) -> Iterator[Record]:
        if self._guarded(lambda: batching.is_sampled(self._key, record, self._rate)) == self._inside:
            yield record
