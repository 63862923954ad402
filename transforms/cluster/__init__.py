"""Records -> records in clusters, around public centres that are kept by noisy counts (METHOD 3)."""

from transforms.cluster.draw import DrawClustering, draw_clustering, read_clustering
from transforms.cluster.embed import EmbedRecords, embed_records
from transforms.cluster.kept_centers import Recluster, recluster
from transforms.cluster.records import ClusterRecords

__all__ = [
    'ClusterRecords',
    'DrawClustering',
    'EmbedRecords',
    'Recluster',
    'draw_clustering',
    'embed_records',
    'read_clustering',
    'recluster',
]
