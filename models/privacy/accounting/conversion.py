"""A Rényi curve to (epsilon, delta), and back.

For one order α > 1, D_α <= R gives delta at epsilon (CKS Proposition 12; here C for short)

    log δ = (α−1) (R − ε + log(1 − 1/α)) − log α

so a curve gives the smallest such delta over all its orders. For a zCDP curve, truncated or not, this
minimum is found exactly. For a mixture it is searched for among many orders; each of them is a bound.

`rho` is a zCDP cost >= 0, `epsilon` >= 0, `delta` in (0, 1) and `largest_order` the ω of truncated zCDP,
infinite for zCDP.
"""

import dataclasses
import functools
import logging
import math
from collections.abc import Callable

# scipy.optimize and dp_accounting are imported where they are used: they take half a second and one
# second, and `--help` needs neither.

# Orders among which the minimum for a mixture is searched for. Above 32 only whole numbers: for them the
# library's sum is finite, and for fractions it may not converge.
_LEAST_EXCESS = 1e-2
_MOST_FRACTIONAL = 32
_LARGEST_ORDER = 2**14
# The error of the library's float64 arithmetic is smaller than this; its results are rounded up by it.
_ROUNDING = 1e-9
# log(α − 1) of the smallest order that differs from 1.
_LEAST_LOG_EXCESS = -745.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class RenyiCurve:
    """D_α <= α ρ + Σ steps · G(α; q, z) for 1 < α <= largest_order, where G is the sampled Gaussian's.

    Every event composes to such a curve: zCDP adds up in rho, truncation keeps the smallest order, and
    Poisson-sampled Gaussians are counted by their settings.

    Attributes:
        rho: zCDP part, >= 0.
        largest_order: ω; infinite if nothing is truncated.
        sampled: (sampling probability q, noise multiplier z, steps), each pair once.
    """

    rho: float
    largest_order: float = math.inf
    sampled: tuple[tuple[float, float, int], ...] = ()

    @property
    def is_zcdp(self) -> bool:
        """True if the curve is ρ-zCDP, one number for every order."""
        return not self.sampled and math.isinf(self.largest_order)

    def rho_at(self, order: float) -> float:
        """The bound on D_α divided by α: ρ itself for zCDP, infinite above the largest order."""
        if not order > 1:
            raise ValueError(f'Expected an order > 1, got order={order!r}. Rényi bounds hold above 1.')
        if order > self.largest_order:
            return math.inf
        sampled = (steps * sampled_gaussian(q, z, order) / order for q, z, steps in self.sampled)
        # Exactly ρ where nothing is sampled.
        return math.fsum((self.rho, *sampled))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon at delta that the curve gives at any of its orders."""
        if not self.sampled:
            return epsilon_from_rho(self.rho, delta, largest_order=self.largest_order)
        _check_delta(delta)
        return self._least(lambda order: epsilon_at_order(order, order * self.rho_at(order), delta))

    def delta(self, epsilon: float) -> float:
        """Smallest delta at epsilon that the curve gives at any of its orders."""
        if not self.sampled:
            return delta_from_rho(self.rho, epsilon, largest_order=self.largest_order)
        if not epsilon >= 0:
            raise ValueError(f'Expected epsilon >= 0, got epsilon={epsilon}.')
        return self._least(lambda order: _delta_at_order(order, order * self.rho_at(order), epsilon))

    def _least(self, bound: Callable[[float], float]) -> float:
        """The smallest bound over many orders: of a grid, then of two finer grids around its best order."""
        high = min(self.largest_order, float(_LARGEST_ORDER))
        low, least = min(1 + _LEAST_EXCESS, high), math.inf
        for count in (96, 16, 16):
            orders = _orders(low, high, count)
            values = [bound(order) for order in orders]
            best = min(range(len(orders)), key=values.__getitem__)
            least = min(least, values[best])
            low, high = orders[max(0, best - 1)], orders[min(best + 1, len(orders) - 1)]
        return least


@functools.lru_cache(maxsize=2**14)
def sampled_gaussian(sampling_probability: float, noise_multiplier: float, order: float) -> float:
    """D_α of one Poisson-sampled Gaussian, in the worse direction (MTZ 3.3, by dp_accounting); rounded up.

    If the library's sum does not converge, as for little noise at fractional orders just above 1, the result
    is that of the next whole order, whose sum is finite: D_α never falls as α grows.
    """
    import dp_accounting
    from dp_accounting import rdp

    logging.getLogger('absl').addFilter(_is_news)
    gaussian = dp_accounting.GaussianDpEvent(noise_multiplier)
    accountant = rdp.RdpAccountant(orders=[order])
    accountant.compose(dp_accounting.PoissonSampledDpEvent(sampling_probability, gaussian))
    divergence = max(0.0, float(accountant.rdp[0])) * (1 + _ROUNDING)
    if math.isinf(divergence) and order % 1:
        return sampled_gaussian(sampling_probability, noise_multiplier, float(math.ceil(order)))
    return divergence


def _is_news(record: logging.LogRecord) -> bool:
    """False for the library's warning of a sum that did not converge: another is taken for it."""
    return 'failed to converge' not in record.getMessage()


def epsilon_at_order(order: float, divergence: float, delta: float) -> float:
    """Smallest epsilon at delta that D_α <= `divergence` gives at this one order (C, solved for ε)."""
    return max(0.0, divergence + _epsilon_of_nothing(order, delta))


def _epsilon_of_nothing(order: float, delta: float) -> float:
    """The term that C adds to D_α: log(1 − 1/α) − log(αδ)/(α − 1). It may be negative."""
    _check_delta(delta)
    return math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def _delta_at_order(order: float, divergence: float, epsilon: float) -> float:
    """Smallest delta at epsilon that D_α <= `divergence` gives at this one order (C)."""
    if math.isinf(divergence):
        return 1.0
    excess = order - 1
    log_delta = excess * (divergence - epsilon + math.log(excess) - math.log(order)) - math.log(order)
    return math.exp(min(0.0, log_delta))


def optimal_order(rho: float, delta: float, *, largest_order: float = math.inf) -> float:
    """The order at which ρ-zCDP converts best at delta: `epsilon_at_order` then gives `epsilon_from_rho`."""
    _check_largest_order(largest_order)
    if not (rho > 0 and math.isfinite(rho)):
        raise ValueError(f'Expected a finite rho > 0, got rho={rho!r}. Nothing has no best order.')
    # The bound falls up to its best order and grows above it, so ω is the best of the orders below that.
    return min(largest_order, 1 + math.exp(_best_log_excess(rho, epsilon_from_rho(rho, delta))))


def delta_from_rho(rho: float, epsilon: float, *, largest_order: float = math.inf) -> float:
    """Smallest delta that rho-zCDP gives at epsilon (CKS Corollary 13; PP Theorem 1).

        delta = inf over 1 < α <= ω of exp((α−1)(αρ−ε)) / (α−1) · (1 − 1/α)^α

    The logarithm of the objective has derivative (2α−1)ρ − ε + log(1 − 1/α), which
    increases in α, so its only root gives the infimum; if the root lies above ω, ω gives it.
    """
    if not (rho >= 0 and epsilon >= 0):
        raise ValueError(f'Expected rho >= 0 and epsilon >= 0, got rho={rho}, epsilon={epsilon}.')
    _check_largest_order(largest_order)
    if rho == 0:
        return 0.0  # a divergence of 0 at any order is that of equal outputs
    if math.isinf(rho):
        return 1.0
    root = _best_log_excess(rho, epsilon)
    if root <= _LEAST_LOG_EXCESS:  # the infimum lies at α = 1, where the bound is trivial
        return 1.0
    if math.isfinite(largest_order):
        root = min(root, math.log(largest_order - 1))
    excess = math.exp(root)
    alpha = 1 + excess
    log_delta = excess * (alpha * rho - epsilon) - root + alpha * (root - math.log1p(excess))
    return math.exp(min(0.0, log_delta))


def _best_log_excess(rho: float, epsilon: float) -> float:
    """log(α − 1) of the order α > 1 at which delta is least."""
    from scipy import optimize

    def slope(log_excess: float) -> float:  # of log(α − 1)
        excess = math.exp(log_excess)
        # log(1 − 1/α) = log(α−1) − log(α), stable for α near 1 and for large α.
        return (2 * excess + 1) * rho - epsilon + log_excess - math.log1p(excess)

    high = math.log1p((epsilon + 1) / rho) + 1
    if slope(_LEAST_LOG_EXCESS) >= 0:
        return _LEAST_LOG_EXCESS
    return float(optimize.brentq(slope, _LEAST_LOG_EXCESS, high, xtol=1e-14, rtol=1e-15, maxiter=500))


def epsilon_closed_form(rho: float, delta: float, *, largest_order: float = math.inf) -> float:
    """ρ + √(4ρ log(1/δ)) (BS Lemma 3.5; PP Theorem 1, second form), an upper bound on `epsilon_from_rho`.

    It is αρ + log(1/δ)/(α − 1) at its best order α. For truncated zCDP, ω replaces an α above it
    (BDRS Lemma 6).
    """
    _check_delta(delta)
    _check_largest_order(largest_order)
    log_inverse = math.log(1 / delta)
    if rho * (largest_order - 1) ** 2 < log_inverse:
        return largest_order * rho + log_inverse / (largest_order - 1)
    return rho + math.sqrt(4 * rho * log_inverse)


def epsilon_from_rho(rho: float, delta: float, *, largest_order: float = math.inf) -> float:
    """Smallest epsilon with `delta_from_rho(rho, epsilon) <= delta`."""
    from scipy import optimize

    _check_delta(delta)
    if delta_from_rho(rho, 0.0, largest_order=largest_order) <= delta:
        return 0.0
    high = epsilon_closed_form(rho, delta)
    if delta_from_rho(rho, high, largest_order=largest_order) > delta:
        # The orders that would give it lie above ω, so ω is the best one.
        epsilon = epsilon_at_order(largest_order, largest_order * rho, delta)
    else:
        epsilon = optimize.brentq(
            lambda e: _log(delta_from_rho(rho, e, largest_order=largest_order)) - math.log(delta),
            0.0,
            high,
            xtol=1e-15 * high,
            rtol=1e-15,
            maxiter=500,
        )
    # The root is within rounding of the boundary; report the side that holds.
    step = 1e-15
    while delta_from_rho(rho, epsilon, largest_order=largest_order) > delta:
        epsilon, step = epsilon * (1 + step), 2 * step
    return epsilon


def rho_from_epsilon(epsilon: float, delta: float, *, largest_order: float = math.inf) -> float:
    """Largest rho whose `epsilon_from_rho(rho, delta)` is at most epsilon.

    Raises:
        ValueError: A value is out of range, or ω is so small that no rho > 0 gives epsilon at delta.
    """
    from scipy import optimize

    _check_delta(delta)
    _check_largest_order(largest_order)
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
    if delta_from_rho(rho, epsilon, largest_order=largest_order) > delta * (1 + 1e-9):
        # Its best order lies above ω; at ω the conversion is linear in ρ.
        rho = (epsilon - _epsilon_of_nothing(largest_order, delta)) / largest_order
        if not rho > 0:
            raise ValueError(
                f'Expected orders that reach epsilon={epsilon} at delta={delta}, got '
                f'largest_order={largest_order}, at which even rho=0 gives more. Raise --omega or --epsilon.'
            )
    step = 1e-15
    while delta_from_rho(rho, epsilon, largest_order=largest_order) > delta:
        rho, step = rho * (1 - step), 2 * step
    return rho


def _orders(low: float, high: float, count: int) -> list[float]:
    """Orders from `low` to `high`, even in log(α − 1); whole numbers where they are large."""
    start, end = math.log(low - 1), math.log(high - 1)
    orders = [1 + math.exp(start + (end - start) * index / (count - 1)) for index in range(count)]
    orders[0], orders[-1] = low, high
    # Never above `high`, which may be the largest order.
    return sorted({float(math.floor(order)) if order > _MOST_FRACTIONAL else order for order in orders})


def _log(value: float) -> float:
    """log with log(0) = −1e9, so that root finders see a finite number."""
    return math.log(value) if value > 0 else -1e9


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f'Expected 0 < delta < 1, got delta={delta}. A usual choice is records ** -1.1.')


def _check_largest_order(largest_order: float) -> None:
    if not largest_order > 1:
        raise ValueError(
            f'Expected largest_order > 1, got largest_order={largest_order!r}. Rényi bounds hold above 1.'
        )
