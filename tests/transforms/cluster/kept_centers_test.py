"""The nearest centre that a label keeps, against a slow twin."""

import pytest

from models.batch_plan import Clustering
from models.records import Record
from tests.samples import LABELS
from tests.transforms.cluster.letters import CENTERS, LetterEmbedder, slow_clusters, some_records
from transforms import cluster


def test_reclustering_finds_the_nearest_kept_centre_of_the_label(work_dir: str) -> None:
    records = some_records()
    clustering = Clustering(kept=((1, 6), (0, 4)), noisy_counts=((0,) * 8,) * 2, rho=1.0)
    embedder = LetterEmbedder(f'{work_dir}/calls')
    embedded = cluster.embed_records(records, embedder.embed, CENTERS, None)
    found = cluster.recluster(embedded, CENTERS, LABELS, clustering)
    assert found == slow_clusters(records, dict(zip(LABELS, clustering.kept, strict=True)))
    assert {record.cluster for record in found if record.label == 'undeclared'} == {None}
    assert [cluster.recluster([one], CENTERS, LABELS, clustering)[0] for one in embedded] == found
    assert cluster.recluster([], CENTERS, LABELS, clustering) == []


def test_a_record_that_was_not_embedded_is_no_zero_vector() -> None:
    clustering = Clustering(kept=((0,),), noisy_counts=((0,) * 8,), rho=1.0)
    with pytest.raises(ValueError):
        cluster.recluster([Record(text='p')], CENTERS, (None,), clustering)
