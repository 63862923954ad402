"""The loss of a median run: a function of its records and its output, known afterwards (METHOD 5).

CL = the paper on clusters and the median, Theorem 2. Everything here is private, because the
loss tells how alike the contexts of a batch were. It goes to the restricted report alone. It is not an
(ε, δ) guarantee.
"""

from __future__ import annotations

import dataclasses

from etils import epy

from models.privacy import sparse_vector
from models.privacy.params import MechanismParams

with epy.lazy_imports():
    import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchLoss:
    """The losses of one batch's tokens. Restricted to the curator: its `repr` shows nothing.

    Attributes:
        batch_id: `str` of the planned batch.
        minus_log_alpha: −log α of every token in order; 0 for a public token.
        log_beta: log β of every token in order; 0 for a public token.
        places: Place of every token within its example, from 0.
        is_private: Whether each token was sampled from the medians.
    """

    batch_id: str
    minus_log_alpha: tuple[float, ...] = dataclasses.field(repr=False)
    log_beta: tuple[float, ...] = dataclasses.field(repr=False)
    places: tuple[int, ...] = dataclasses.field(repr=False)
    is_private: tuple[bool, ...] = dataclasses.field(repr=False)

    def sparse_vector_runs(self) -> int:
        """Runs of the sparse-vector test: one for each private token, and an open one at the end."""
        is_open = bool(self.is_private) and not self.is_private[-1]
        return sum(self.is_private) + is_open

    def epsilon(self, params: MechanismParams) -> float:
        """max(−Σ log α, Σ log β), each with the pure cost of the batch's sparse-vector runs (METHOD 5)."""
        runs = self.sparse_vector_runs() * sparse_vector.pure_cost(params)
        return max(float(np.sum(self.minus_log_alpha)), float(np.sum(self.log_beta))) + runs

    def paper_epsilon(self, params: MechanismParams) -> float:
        """Σ max(−log α, log β), CL's larger figure (CL Theorem 2), with the same sparse-vector cost."""
        runs = self.sparse_vector_runs() * sparse_vector.pure_cost(params)
        return float(np.maximum(self.minus_log_alpha, self.log_beta).sum()) + runs
