"""True counts of centres -> the centres that each label keeps, by noisy counts (METHOD 3)."""

import dataclasses
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from models import batch_plan
from models.batch_plan import Clustering
from models.privacy import counts
from transforms.durable import draw_once, noise_source
from transforms.run_files import CLUSTERING


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class DrawClustering(beam.PTransform):
    """The true counts of centres (a single list) -> the single `Clustering` of the run.

    A run has one draw of the noise: see `durable.noise_source`.

    Attributes:
        work_dir: The curator's folder, which holds the run key and gets the clustering, on any filesystem
            that Beam knows.
        labels: The declared labels, or a single None.
        centers: Number K of centres.
        kept: Number k' of centres that each label keeps.
        rho: zCDP cost of the noisy counts.
    """

    work_dir: str
    labels: tuple[str | None, ...]
    centers: int
    kept: int
    rho: float

    def __post_init__(self) -> None:
        batch_plan.check_labels(self.labels)
        counts.gaussian_scale(self.rho)
        if not 1 <= self.kept <= self.centers:
            raise ValueError(
                f'Expected to keep 1 to {self.centers} centres for each label, got kept={self.kept!r}. '
                'Keep fewer, or give more public centres.'
            )
        # Checked here, before the first histogram is paid, and not where the plan is drawn.
        if len(self.labels) * self.kept > batch_plan.MAX_GROUPS:
            raise ValueError(
                f'Expected at most {batch_plan.MAX_GROUPS} groups, got labels={len(self.labels)}, '
                f'kept={self.kept}. Keep fewer centres for each label.'
            )

    def expand(self, true_counts: beam.PCollection[list[int]]) -> beam.PCollection[Clustering]:
        return true_counts | 'DrawCounts' >> beam.Map(
            draw_clustering,
            self.work_dir,
            labels=self.labels,
            centers=self.centers,
            kept=self.kept,
            rho=self.rho,
        ).with_output_types(Clustering)


def draw_clustering(
    true_counts: Sequence[int],
    work_dir: str,
    *,
    labels: tuple[str | None, ...],
    centers: int,
    kept: int,
    rho: float,
) -> Clustering:
    """Reads the clustering of a work directory; where there is none, draws the noise and writes it first.

    Args:
        true_counts: True counts of contexts, one for each centre, one label after another; private.
        work_dir: The curator's folder, which holds the run key and gets the clustering.
        labels: The declared labels, or a single None.
        centers: Number K of centres.
        kept: Number k' of centres that each label keeps.
        rho: zCDP cost of the noisy counts.

    Raises:
        ValueError: The clustering there has other labels, other numbers of centres or another cost; or
            the number of counts does not fit the labels and the centres.
    """
    if len(true_counts) != len(labels) * centers:
        raise ValueError(
            f'Expected one count for each of centers={centers} for each label, got '
            f'cells={len(true_counts)}, labels={len(labels)}. Count with the centres of this run.'
        )

    def draw() -> str:
        noisy = counts.noisy_counts(true_counts, rho, noise_source(work_dir, CLUSTERING))
        by_label = tuple(tuple(noisy[first : first + centers]) for first in range(0, len(noisy), centers))
        chosen = tuple(counts.largest_cells(cells, kept) for cells in by_label)
        return Clustering(kept=chosen, noisy_counts=by_label, rho=rho).to_json()

    path = FileSystems.join(work_dir, CLUSTERING)
    clustering = Clustering.from_json(draw_once(path, draw))
    shape = len(clustering.kept), clustering.centers, {len(indices) for indices in clustering.kept}
    if shape != (len(labels), centers, {kept}) or clustering.rho != rho:
        raise ValueError(
            f'Expected the clustering of this run, got path={path!r} with labels={shape[0]}, '
            f'centers={shape[1]}, kept={sorted(shape[2])}, rho={clustering.rho!r}, not labels={len(labels)}, '
            f'centers={centers}, kept={kept}, rho={rho!r}. '
            'Resume with the settings that the run began with, or start a new run in a fresh work directory.'
        )
    return clustering


def read_clustering(path: str) -> Clustering:
    """The clustering that a run wrote down."""
    with FileSystems.open(path) as file:
        return Clustering.from_json(file.read().decode())
