"""Settings of clusters: which public centres group the records of a label, and what counting them costs."""

import dataclasses
import functools
import math
import pathlib

from models import bundled
from pipeline.settings import panel

_setting = functools.partial(panel.setting, 'Clusters')
DEFAULT_CLUSTERING_RHO = 0.005
# Other embedders are folders of weights.
EMBEDDERS = ('tfidf', 'minilm', 'decoder')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clusters(panel.Panel):
    """How records of a label are grouped, if they are (METHOD 3)."""

    clusters: int | None = _setting(
        'Group similar records: public centres kept for each label. Without it, labels alone make groups.',
        None,
    )
    clustering_rho: float | None = _setting(
        'rho of the two noisy counts of --clusters, half for each. Default: 0.005.', None
    )
    centers: str | None = _setting(
        "Folder of public centres, as `dp-corpus centers` writes it. Default: the package's, for tfidf.",
        None,
        path='file',
    )
    embedder: str | None = _setting(
        "What tells how alike texts are: tfidf, minilm, decoder (the model's own), or a folder of MiniLM "
        'weights. Default: tfidf.',
        None,
        path='file',
        presets=EMBEDDERS,
    )

    def check(self) -> None:
        if self.clusters is None:
            for name in ('clustering_rho', 'centers', 'embedder'):
                if (value := getattr(self, name)) is not None:
                    raise ValueError(
                        f'Expected {name} with clusters only, got {name}={value!r}, clusters=None. '
                        'Give --clusters too, or leave it out.'
                    )
        elif not (self.resolved_clustering_rho > 0 and math.isfinite(self.resolved_clustering_rho)):
            raise ValueError(
                f'Expected clustering_rho > 0, got clustering_rho={self.clustering_rho}. '
                'Counts without noise cannot be released.'
            )
        elif self.resolved_embedder != 'tfidf' and self.centers is None:
            raise ValueError(
                f'Expected centers for embedder={self.embedder!r}, got centers=None. Fit some on a public '
                'corpus with `dp-corpus centers`; the package has centres for tfidf only.'
            )
        self._check_positive('clusters')

    @property
    def resolved_clustering_rho(self) -> float:
        """rho of both noisy counts of a clustered run, as given or METHOD 3's default."""
        return DEFAULT_CLUSTERING_RHO if self.clustering_rho is None else self.clustering_rho

    @property
    def resolved_embedder(self) -> str:
        """The embedder as given, or the default that needs no weights."""
        return self.embedder or 'tfidf'

    @property
    def centers_path(self) -> pathlib.Path:
        """Where the public centres are."""
        return pathlib.Path(self.centers) if self.centers else bundled.FOLDER / 'centers'
