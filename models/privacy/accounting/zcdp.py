"""The price of private prediction in zCDP (PP Theorem 1).

A batch's private tokens compose sequentially. Batches hold disjoint contexts, so
they compose in parallel (PP Lemma 2) and their number does not appear below.
"""

import typing
from typing import Any

from models.privacy.accounting import events

if typing.TYPE_CHECKING:
    from models.privacy.params import MechanismParams


def aggregate_rho(params: 'MechanismParams') -> float:
    """rho of sampling one private token: ½ (c/(sτ))² (PP Lemma 4), 4 times that under REPLACE.

    The sample is the exponential mechanism with utility z̄/τ, whose sup-norm
    sensitivity is Δ = c/(sτ) (2c/(sτ) when a context may be replaced); it is
    2Δ-DP with bounded range, hence (2Δ)²/8-zCDP (Cesar and Rogers 2021). The same
    for the mean and for the difference aggregate (METHOD 4b).

    Raises:
        ValueError: The aggregate is the median, which has no price in advance.
    """
    return 0.5 * (params.aggregate_sensitivity / params.temperature) ** 2


def sparse_vector_pure_cost(params: 'MechanismParams') -> float:
    """Pure epsilon of one run of the sparse-vector test: 2/(sσ), 4/(sσ) under REPLACE (PP Lemma 5).

    AboveThreshold with threshold noise σ and query noise 2σ on queries of sensitivity
    Δ = 1/s (2/s under REPLACE) is (2Δ/σ)-DP. Without the test the cost is 0.
    """
    if params.threshold_noise_scale is None:
        return 0.0
    return 2 * params.distance_sensitivity / params.threshold_noise_scale


def sparse_vector_rho(params: 'MechanismParams') -> float:
    """rho of one run of the sparse-vector test: 2/(sσ)² (PP Lemma 5), 4 times that under REPLACE.

    ε-DP is ε²/2-zCDP (BS Proposition 1.4), with ε of `sparse_vector_pure_cost`.
    """
    return 0.5 * sparse_vector_pure_cost(params) ** 2


def rho_per_private_token(params: 'MechanismParams') -> float:
    """rho of one private token with the sparse-vector run that led to it (PP Theorem 1)."""
    return aggregate_rho(params) + sparse_vector_rho(params)


def generation_rho(params: 'MechanismParams') -> float:
    """rho of all decoding: r times the cost of one private token (PP Theorem 1).

    Stated for the cap r, whatever number of private tokens a run happens to use.
    """
    return params.max_private_tokens * rho_per_private_token(params)


def generation_event(params: 'MechanismParams') -> events.SelfComposedDpEvent:
    """All decoding as an event: r private tokens, each in zCDP (PP Theorem 1)."""
    token = events.ZCDpEvent(rho=rho_per_private_token(params))
    return events.SelfComposedDpEvent(event=token, count=params.max_private_tokens)


def to_dp_event(params: 'MechanismParams', *, other_rho: float) -> Any:
    """The run as a `dp_accounting` event, for accountants that compose it further.

    Returns:
        A `ComposedDpEvent` of the noisy counts and r self-composed private tokens,
        each a `ZCDpEvent`; parallel batches need no event of their own.
    """
    # Not at the top: the library takes a second to import.
    from models.privacy.accounting import library

    parts: list[events.DpEvent] = [generation_event(params)]
    if other_rho:
        parts.insert(0, events.ZCDpEvent(rho=other_rho))
    return library.to_library(events.ComposedDpEvent(events=tuple(parts)))
