"""The loss of a median run: a function of its records and its output, known afterwards (METHOD 5).

CL = the clustering paper, Theorem 2 and appendix B. Everything here is private: the loss
tells how alike the contexts of a batch were. It goes to the restricted report and
nowhere else, and is no (ε, δ) guarantee.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence

from etils import epy

from models.privacy import sparse_vector

if typing.TYPE_CHECKING:
    from models.privacy.aggregates.median import Medians
    from models.privacy.params import MechanismParams

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp
    import numpy as np


def token_losses(
    medians: Medians, allowed: jax.Array, token: jax.Array, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """−log α and log β of one private token, scalars >= 0 (CL appendix B; METHOD 5).

    Formal guarantee: for every batch whose medians lie between `lowest` and `highest`,
    the log ratio of the token's probabilities under this batch and that one lies in
    [log α, log β].

    With p the softmax of m/τ, log Σ exp(hi/τ) − log Σ exp(m/τ) = log(1 + Σ p (e^((hi−m)/τ) − 1)):
    a small difference is computed as such, not as that of two large sums.

    Args:
        medians: The step's medians.
        allowed: `[V]` bool, the tokens that could be sampled.
        token: The one that was.
        temperature: τ.
    """

    def log_sum(scores: jax.Array) -> jax.Array:
        return jax.nn.logsumexp(jnp.where(allowed, scores / temperature, -jnp.inf))

    probabilities = jax.nn.softmax(jnp.where(allowed, medians.middle / temperature, -jnp.inf))

    def log_growth(other: jax.Array) -> jax.Array:
        growth = jnp.where(allowed, jnp.expm1((other - medians.middle) / temperature), 0.0)
        total = (probabilities * growth).sum()
        # Near −1 the sum has lost its digits, and the difference of logarithms has not.
        return jax.lax.cond(
            total < -0.5,
            lambda: log_sum(other) - log_sum(medians.middle),
            lambda: jnp.log1p(total),
        )

    up = (medians.highest[token] - medians.middle[token]) / temperature
    down = (medians.middle[token] - medians.lowest[token]) / temperature
    return up - log_growth(medians.lowest), down + log_growth(medians.highest)


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


def run_epsilon(losses: Sequence[BatchLoss], params: MechanismParams) -> float:
    """Largest loss of a batch: batches hold disjoint contexts and compose in parallel (CL Theorem 2)."""
    return max((loss.epsilon(params) for loss in losses), default=0.0)
