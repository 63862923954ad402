"""What a run costs: rho per private token, zCDP to (epsilon, delta), and back.

Sources: PP = Amin et al. 2024, Theorem 1 and Lemmas 2-5; CKS = Canonne, Kamath and
Steinke 2020, "The Discrete Gaussian for Differential Privacy", Corollary 13; BS = Bun
and Steinke 2016. All logarithms are natural.

A batch's private tokens compose sequentially. Batches hold disjoint contexts, so
they compose in parallel (PP Lemma 2) and their number does not appear below.
"""

import math
from typing import Any

from scipy import optimize

from models.privacy.params import MechanismParams


def aggregate_rho(params: MechanismParams) -> float:
    """rho of sampling one private token: ½ (c/(sτ))² (PP Lemma 4), 4 times that under REPLACE.

    The sample is the exponential mechanism with utility z̄/τ, whose sup-norm
    sensitivity is Δ = c/(sτ) (2c/(sτ) when a context may be replaced); it is
    2Δ-DP with bounded range, hence (2Δ)²/8-zCDP (Cesar and Rogers 2021). The same
    for the mean and for the difference aggregate (METHOD 4b).

    Raises:
        ValueError: The aggregate is the median, which has no price in advance.
    """
    return 0.5 * (params.aggregate_sensitivity / params.temperature) ** 2


def sparse_vector_pure_cost(params: MechanismParams) -> float:
    """Pure epsilon of one run of the sparse-vector test: 2/(sσ), 4/(sσ) under REPLACE (PP Lemma 5).

    AboveThreshold with threshold noise σ and query noise 2σ on queries of sensitivity
    Δ = 1/s (2/s under REPLACE) is (2Δ/σ)-DP. Without the test the cost is 0.
    """
    if params.threshold_noise_scale is None:
        return 0.0
    return 2 * params.distance_sensitivity / params.threshold_noise_scale


def sparse_vector_rho(params: MechanismParams) -> float:
    """rho of one run of the sparse-vector test: 2/(sσ)² (PP Lemma 5), 4 times that under REPLACE.

    ε-DP is ε²/2-zCDP (BS Proposition 1.4), with ε of `sparse_vector_pure_cost`.
    """
    return 0.5 * sparse_vector_pure_cost(params) ** 2


def rho_per_private_token(params: MechanismParams) -> float:
    """rho of one private token with the sparse-vector run that led to it (PP Theorem 1)."""
    return aggregate_rho(params) + sparse_vector_rho(params)


def generation_rho(params: MechanismParams) -> float:
    """rho of all decoding: r times the cost of one private token (PP Theorem 1).

    Stated for the cap r, whatever number of private tokens a run happens to use.
    """
    return params.max_private_tokens * rho_per_private_token(params)


def delta_from_rho(rho: float, epsilon: float) -> float:
    """Smallest delta that rho-zCDP gives at epsilon (CKS Corollary 13; PP Theorem 1).

        delta = inf over α > 1 of exp((α−1)(αρ−ε)) / (α−1) · (1 − 1/α)^α

    The logarithm of the objective has derivative (2α−1)ρ − ε + log(1 − 1/α), which
    increases in α, so its only root is the infimum.

    Args:
        rho: zCDP cost, >= 0.
        epsilon: >= 0.

    Returns:
        delta in [0, 1].
    """
    if not (rho >= 0 and epsilon >= 0):
        raise ValueError(f'Expected rho >= 0 and epsilon >= 0, got rho={rho}, epsilon={epsilon}.')
    if rho == 0:
        return 0.0
    if math.isinf(rho):
        return 1.0

    def slope(log_excess: float) -> float:  # of log(α − 1)
        excess = math.exp(log_excess)
        # log(1 − 1/α) = log(α−1) − log(α), stable for α near 1 and for large α.
        return (2 * excess + 1) * rho - epsilon + log_excess - math.log1p(excess)

    low, high = -745.0, math.log1p((epsilon + 1) / rho) + 1
    if slope(low) >= 0:  # the infimum lies at α = 1, where the bound is trivial
        return 1.0
    root = optimize.brentq(slope, low, high, xtol=1e-14, rtol=1e-15, maxiter=500)
    excess = math.exp(root)
    alpha = 1 + excess
    log_delta = excess * (alpha * rho - epsilon) - root + alpha * (root - math.log1p(excess))
    return math.exp(min(0.0, log_delta))


def epsilon_closed_form(rho: float, delta: float) -> float:
    """ρ + √(4ρ log(1/δ)) (BS Lemma 3.5; PP Theorem 1, second form), an upper bound on `epsilon_from_rho`."""
    _check_delta(delta)
    return rho + math.sqrt(4 * rho * math.log(1 / delta))


def epsilon_from_rho(rho: float, delta: float) -> float:
    """Smallest epsilon with `delta_from_rho(rho, epsilon) <= delta`.

    Args:
        rho: zCDP cost, >= 0.
        delta: In (0, 1).
    """
    _check_delta(delta)
    if delta_from_rho(rho, 0.0) <= delta:
        return 0.0
    high = epsilon_closed_form(rho, delta)
    epsilon = optimize.brentq(
        lambda e: _log(delta_from_rho(rho, e)) - math.log(delta),
        0.0,
        high,
        xtol=1e-15 * high,
        rtol=1e-15,
        maxiter=500,
    )
    # The root is within rounding of the boundary; report the side that holds.
    step = 1e-15
    while delta_from_rho(rho, epsilon) > delta:
        epsilon, step = epsilon * (1 + step), 2 * step
    return epsilon


def rho_from_epsilon(epsilon: float, delta: float) -> float:
    """Largest rho whose `epsilon_from_rho(rho, delta)` is at most epsilon."""
    _check_delta(delta)
    if not epsilon > 0:
        raise ValueError(f'Expected epsilon > 0, got epsilon={epsilon}.')
    # δ(ρ, ε) increases in ρ. The closed form's own ρ always fits; no ρ above
    # ε + 10 log(1/δ) + 10 does.
    log_inverse = math.log(1 / delta)
    low = (epsilon / (math.sqrt(epsilon + log_inverse) + math.sqrt(log_inverse))) ** 2
    high = epsilon + 10 * log_inverse + 10
    rho = optimize.brentq(
        lambda x: _log(delta_from_rho(x, epsilon)) - math.log(delta),
        low,
        high,
        xtol=1e-15 * low,
        rtol=1e-15,
        maxiter=500,
    )
    step = 1e-15
    while delta_from_rho(rho, epsilon) > delta:
        rho, step = rho * (1 - step), 2 * step
    return rho


def solve_max_private_tokens(
    params: MechanismParams, *, epsilon: float, delta: float, other_rho: float
) -> int:
    """Largest cap r for which the whole run stays within (epsilon, delta).

    Args:
        params: Every setting but the cap, whose value is not read.
        epsilon: Target.
        delta: Target.
        other_rho: rho of the run's other releases (noisy counts).

    Raises:
        ValueError: Not even one private token fits.
    """
    available = rho_from_epsilon(epsilon, delta) - other_rho
    per_token = rho_per_private_token(params)
    cap = math.floor(available / per_token) if available > 0 else 0
    while cap > 0 and epsilon_from_rho(cap * per_token + other_rho, delta) > epsilon:
        cap -= 1  # at most a rounding step
    if cap < 1:
        raise ValueError(
            f'Expected a budget for one private token, got epsilon={epsilon}, delta={delta}, '
            f'rho_per_private_token={per_token:.6g}, rho of noisy counts={other_rho:.6g}. '
            'Raise epsilon, batch_size or temperature, or lower clip_bound.'
        )
    return cap


def to_dp_event(params: MechanismParams, *, other_rho: float) -> Any:
    """The run as a `dp_accounting` event, for accountants that compose it further.

    Returns:
        A `ComposedDpEvent` of the noisy counts and r self-composed private tokens,
        each a `ZCDpEvent`; parallel batches need no event of their own.
    """
    import dp_accounting

    token = dp_accounting.ZCDpEvent(rho=rho_per_private_token(params))
    events = [dp_accounting.SelfComposedDpEvent(token, params.max_private_tokens)]
    if other_rho:
        events.insert(0, dp_accounting.ZCDpEvent(rho=other_rho))
    return dp_accounting.ComposedDpEvent(events)


def _log(value: float) -> float:
    """log with log(0) = −1e9, so that root finders see a finite number."""
    return math.log(value) if value > 0 else -1e9


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f'Expected 0 < delta < 1, got delta={delta}. A usual choice is records ** -1.1.')
