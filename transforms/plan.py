"""True counts -> the batch plan of a run, by noisy counts that are written down before use (METHOD 2)."""

import dataclasses
from collections.abc import Callable, Sequence

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from models import batch_plan
from models.batch_plan import BatchPlan, Clustering
from models.conditions import Conditions
from models.privacy import counts
from models.privacy.params import Unit
from transforms.durable import draw_once, noise_source
from transforms.run_files import PLAN


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class DrawPlan(beam.PTransform):
    """The true counts (a single list) -> the single `BatchPlan` of the run, by `draw_plan`.

    Attributes:
        clustering: That of `ClusterRecords`; None where the counts are of each label alone.
        conditions: Those of `DrawConditions`; None where examples are given no values.
    """

    work_dir: str
    labels: tuple[str | None, ...]
    rho: float
    batch_size: int
    unit: Unit = 'example'
    examples_per_context: int = 1
    clustering: beam.PCollection[Clustering] | None = None
    conditions: beam.PCollection[Conditions] | None = None

    def __post_init__(self) -> None:
        batch_plan.check_labels(self.labels)
        counts.gaussian_scale(self.rho)

    def expand(self, true_counts: beam.PCollection[list[int]]) -> beam.PCollection[BatchPlan]:
        # Under the user unit a context with several records was counted once.
        records_per_count = self.examples_per_context if self.unit == 'example' else 1
        return true_counts | 'Draw' >> beam.Map(
            draw_plan,
            self.work_dir,
            labels=self.labels,
            rho=self.rho,
            contexts_per_batch=self.batch_size * records_per_count,
            clustering=None if self.clustering is None else beam.pvalue.AsSingleton(self.clustering),
            conditions=None if self.conditions is None else beam.pvalue.AsSingleton(self.conditions),
        ).with_output_types(BatchPlan)


def draw_plan(
    true_counts: Sequence[int],
    work_dir: str,
    *,
    labels: tuple[str | None, ...],
    rho: float,
    contexts_per_batch: int,
    clustering: Clustering | None = None,
    conditions: Conditions | None = None,
) -> BatchPlan:
    """`draw_plan_of` where each group gets the batches that its noisy count fills: prediction."""
    return draw_plan_of(
        true_counts,
        work_dir,
        labels=labels,
        rho=rho,
        batches_of=lambda noisy: tuple(counts.batches_for(count, contexts_per_batch) for count in noisy),
        clustering=clustering,
        conditions=conditions,
    )


def draw_plan_of(
    true_counts: Sequence[int],
    work_dir: str,
    *,
    labels: tuple[str | None, ...],
    rho: float,
    batches_of: Callable[[Sequence[int]], tuple[int, ...]],
    clustering: Clustering | None = None,
    conditions: Conditions | None = None,
) -> BatchPlan:
    """Reads the batch plan of a work directory; where there is none, draws the noise and writes it first.

    The true counts are private: one for each label or, with a clustering, for each centre of each label.

    Raises:
        ValueError: The batch plan there is of other settings, or the number of counts does not fit them.
    """

    def draw() -> str:
        kept = '' if clustering is None else clustering.to_json()
        source = noise_source(work_dir, PLAN, kept)
        noisy = counts.noisy_counts(_counts_of_groups(true_counts, labels, clustering), rho, source)
        plan = BatchPlan(
            labels=labels,
            batches_per_group=batches_of(noisy),
            noisy_counts=tuple(noisy),
            contexts_rho=rho,
            clustering=clustering,
            conditions=conditions,
        )
        return plan.to_json()

    path = FileSystems.join(work_dir, PLAN)
    plan = BatchPlan.from_json(draw_once(path, draw))
    same_releases = plan.clustering == clustering and plan.conditions == conditions
    if plan.labels != labels or plan.contexts_rho != rho or not same_releases:
        raise ValueError(
            f'Expected the batch plan of this run, got path={path!r} with labels={plan.labels!r}, '
            f'contexts_rho={plan.contexts_rho!r}, not labels={labels!r}, rho={rho!r}; '
            f'same_releases={same_releases}. '
            'Resume with the settings that the run began with, or start a new run in a fresh work directory.'
        )
    return plan


def _counts_of_groups(
    true_counts: Sequence[int], labels: Sequence[str | None], clustering: Clustering | None
) -> list[int]:
    """The counts of the groups: of the labels or, with a clustering, of the centres that each label keeps."""
    centers = 1 if clustering is None else clustering.centers
    if len(true_counts) != len(labels) * centers:
        raise ValueError(
            f'Expected {centers} counts for each label, got cells={len(true_counts)}, labels={len(labels)}. '
            'Count with the centres that the clustering was drawn for.'
        )
    if clustering is None:
        return list(true_counts)
    return [
        true_counts[order * centers + cluster]
        for order, kept in enumerate(clustering.kept)
        for cluster in kept
    ]
