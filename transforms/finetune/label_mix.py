"""Records -> how many texts of each label are sampled, by noisy counts of the units of each label."""

import dataclasses
import functools

import apache_beam as beam

from models.batch_plan import BatchPlan
from models.finetuning import label_mix
from models.privacy import counts
from models.privacy.params import Unit
from models.records import Record
from transforms.count import CountContexts
from transforms.plan import draw_plan_of


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class DrawLabelMix(beam.PTransform):
    """Records -> the single `BatchPlan` of a run that samples labels as often as the records have them.

    A unit counts once, under the label that it is trained on (`SelectUnits`). A run has one draw of the
    noise: see `durable.noise_source`.

    Attributes:
        texts: Number of texts of all labels together.
        together: Largest number of texts that are sampled together; they have one label.
    """

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
                self.work_dir,
                labels=self.labels,
                rho=self.rho,
                batches_of=functools.partial(
                    label_mix.batches_of_counts, texts=self.texts, together=self.together
                ),
            ).with_output_types(BatchPlan)
        )
