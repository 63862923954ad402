"""The cost of a run: what it is, how costs compose, and how they become (epsilon, delta).

Events (`models/privacy/events.py`) state what was released. One file here for each question on them:

* `run_cost`: a run's stages and their events, under one neighbouring relation; its JSON.
* `zcdp`: the price of private prediction (PP Theorem 1).
* `conversion`: a Rényi curve to (epsilon, delta) and back.
* `calibration`: which settings fit into a target.
* `subsampled`: the price of DP-SGD, by privacy loss distributions.
* `normal_pair`: a Gaussian mechanism to (epsilon, delta) and back, exactly.
* `gaussian`: costs as those of Gaussian mechanisms, for a filter that outputs may decide on.
* `losses`: several releases together, by the distributions of their losses.

Sources: PP = Amin et al. 2024, Theorem 1 and Lemmas 2-5; CKS = Canonne, Kamath and Steinke 2020,
"The Discrete Gaussian for Differential Privacy", Corollary 13; BS = Bun and Steinke 2016;
BDRS = Bun, Dwork, Rothblum and Steinke 2018, "Composable and versatile privacy via truncated CDP";
MTZ = Mironov, Talwar and Zhang 2019, "Rényi differential privacy of the sampled Gaussian mechanism".
All logarithms are natural.
"""

from models.privacy.accounting.calibration import (
    omega_of_budget,
    solve_context_budget,
    solve_max_private_tokens,
    worst_case_budget,
    worst_case_price,
    worst_case_tokens,
)
from models.privacy.accounting.conversion import (
    RenyiCurve,
    delta_from_rho,
    epsilon_at_order,
    epsilon_closed_form,
    epsilon_from_rho,
    optimal_order,
    rho_from_epsilon,
)
from models.privacy.accounting.gaussian import gaussian_rho, needs_failure
from models.privacy.accounting.losses import epsilon_of_events
from models.privacy.accounting.normal_pair import epsilon_from_gaussian, rho_from_gaussian
from models.privacy.accounting.run_cost import NeighboringRelation, RunCost, compose, curve_of
from models.privacy.accounting.zcdp import (
    aggregate_rho,
    generation_event,
    generation_rho,
    rho_per_private_token,
    sparse_vector_rho,
)
from models.privacy.events import (
    ComposedDpEvent,
    DiscreteGaussianDpEvent,
    DiscreteGaussianVectorDpEvent,
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    TruncatedZCDpEvent,
    ZCDpEvent,
)
