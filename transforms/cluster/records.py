"""Records -> records in clusters, around public centres that are kept by noisy counts (METHOD 3).

A record is embedded once and goes to the nearest of all K centres. A noisy histogram chooses the k' centres
that each label keeps. Then the record goes to the nearest centre that its label keeps, and its embedding is
dropped. This stage releases the histogram and nothing else: a record's cluster is a function of its own text
and of released values.

The embedded records are read twice, by the count and by `Recluster`. `Recluster` takes the clustering as a
side input and waits for it, so runners keep the embedded records and do not embed them again: the tests
count the calls. A `Reshuffle` in between would carry every text once more and save nothing.
"""

import dataclasses

import apache_beam as beam

from models.batch_plan import Clustering
from models.clustering.centers import Centers, ClusterSettings
from models.privacy.params import Unit
from models.records import Record
from transforms.cluster.draw import DrawClustering
from transforms.cluster.embed import EmbedRecords
from transforms.cluster.kept_centers import Recluster
from transforms.count import CountContexts


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class ClusterRecords(beam.PTransform):
    """Records -> (records in kept clusters, the single `Clustering`), two PCollections.

    Attributes:
        settings: The centres and the embedder.
        labels: The declared labels, or a single None.
        work_dir: The curator's folder, which holds the run key, and takes the clustering and the details of
            errors.
        kept: Number k' of centres that each label keeps.
        rho: zCDP cost of the counts of centres: the first share of `counts.split_rho`.
        unit: The unit of privacy.
        text_limit: Public number of characters of a text that are embedded; None embeds all.
    """

    settings: ClusterSettings
    labels: tuple[str | None, ...]
    work_dir: str
    kept: int
    rho: float
    unit: Unit = 'example'
    text_limit: int | None = None

    # Beam has no type hint for two outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, records: beam.PCollection[Record]
    ) -> tuple[beam.PCollection[Record], beam.PCollection[Clustering]]:
        centers = Centers.read(self.settings.centers).count
        embedded = records | 'Embed' >> EmbedRecords(self.settings, self.work_dir, self.text_limit)
        clustering = (
            embedded
            | 'Count' >> CountContexts(self.labels, self.work_dir, self.unit, centers)
            | 'Draw' >> DrawClustering(self.work_dir, self.labels, centers, self.kept, self.rho)
        )
        clustered = embedded | 'Recluster' >> Recluster(self.settings, self.labels, clustering, self.work_dir)
        return clustered, clustering
