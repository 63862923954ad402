"""An embedder that is not asked, and figures by name, for tests of measures of wording."""

from collections.abc import Sequence

import numpy as np

from models.clustering.embedder import Embedder
from pipeline.evaluation.measure import Findings


class NoEmbedder(Embedder):
    """For measures that embed nothing."""

    name = 'none'
    dimensions = 1
    fingerprint = '0' * 64

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        raise AssertionError('This measure embeds nothing.')


def figures_of(findings: Findings) -> dict[str, float | None]:
    """Figures by name."""
    return {figure.name: figure.value for figure in findings.figures}
