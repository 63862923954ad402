"""Records -> those of the run's sample of units, by keyed hash."""

import dataclasses
from collections.abc import Iterator

import apache_beam as beam

from models import batching
from models.records import Record
from transforms.durable import guarded, read_key


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class SampleUnits(beam.PTransform):
    """Records -> (records of the sample, number of the others), two PCollections.

    Which units are in the sample is a function of the run key and of each unit alone
    (`batching.is_sampled`), whatever the order and the sharding of the input, and the same when a run
    is resumed. The number is a single element, for the curator's report.

    Attributes:
        rate: Public probability of a unit, in (0, 1].
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


class _OfSample(beam.DoFn):
    """record -> the record, if it is inside the sample, or outside of it."""

    def __init__(self, rate: float, work_dir: str, inside: bool) -> None:
        self._rate, self._work_dir, self._inside = rate, work_dir, inside

    def setup(self) -> None:
        self._key = read_key(self._work_dir)  # a `RunKey` refuses to be pickled

    def process(self, record: Record) -> Iterator[Record]:
        inside = guarded(
            lambda: batching.is_sampled(self._key, record, self._rate),
            expected='every record in the sample or outside of it',
            work_dir=self._work_dir,
            name='sample',
        )
        if inside == self._inside:
            yield record
