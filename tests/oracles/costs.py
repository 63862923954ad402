"""The slow twins of `models.privacy.accounting`: written from the definitions, in mpmath, without our code.

C = Canonne, Kamath and Steinke 2020, Proposition 12; MTZ = Mironov, Talwar and Zhang 2019.
"""

from collections.abc import Callable

import mpmath

# Rényi divergence at an order, as a function of the order.
Curve = Callable[[mpmath.mpf], mpmath.mpf]


def zcdp(rho: float, omega: float | None = None) -> Curve:
    """α -> αρ; infinite above ω (METHOD 4d)."""

    def curve(alpha: mpmath.mpf) -> mpmath.mpf:
        if omega is not None and alpha > omega:
            return mpmath.inf
        return alpha * mpmath.mpf(rho)

    return curve


def sampled_gaussian(q: float, z: float, alpha: float) -> mpmath.mpf:
    """D_α between N(0, z²) and (1−q) N(0, z²) + q N(1, z²), the larger direction, by quadrature."""
    with mpmath.workdps(30):
        q, z, alpha = mpmath.mpf(q), mpmath.mpf(z), mpmath.mpf(alpha)

        def zero(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.npdf(x, 0, z)

        def mixture(x: mpmath.mpf) -> mpmath.mpf:
            return (1 - q) * mpmath.npdf(x, 0, z) + q * mpmath.npdf(x, 1, z)

        def divergence(p: Curve, r: Curve) -> mpmath.mpf:
            points = [-30 * z, -6 * z, 0, 1, alpha, alpha + 6 * z, alpha + 30 * z]
            return mpmath.log(mpmath.quad(lambda x: p(x) ** alpha * r(x) ** (1 - alpha), points)) / (
                alpha - 1
            )

        return max(divergence(mixture, zero), divergence(zero, mixture))


def delta(curve: Curve, epsilon: float, orders: list[float]) -> mpmath.mpf:
    """The least of exp((α−1)(R(α) − ε)) / (α−1) · (1 − 1/α)^α over the orders (C)."""
    with mpmath.workdps(40):
        found = mpmath.mpf(1)
        for order in orders:
            alpha = mpmath.mpf(order)
            divergence = curve(alpha)
            if mpmath.isfinite(divergence):
                bound = mpmath.exp((alpha - 1) * (divergence - mpmath.mpf(epsilon)))
                found = min(found, bound / (alpha - 1) * (1 - 1 / alpha) ** alpha)
        return found


def epsilon(curve: Curve, target_delta: float, orders: list[float]) -> mpmath.mpf:
    """The least ε >= 0 whose `delta` over the orders is the target: the same bound, solved for ε."""
    with mpmath.workdps(40):
        found = mpmath.inf
        for order in orders:
            alpha = mpmath.mpf(order)
            # exp((α−1)(R − ε)) / (α−1) · (1 − 1/α)^α = δ
            rest = mpmath.log((1 - 1 / alpha) ** alpha / (alpha - 1) / mpmath.mpf(target_delta))
            found = min(found, curve(alpha) + rest / (alpha - 1))
        return max(found, mpmath.mpf(0))


def context_budget(
    epsilon: float, target_delta: float, orders: list[float], *, other_rho: float, change: int
) -> mpmath.mpf:
    """The largest B with `change`² B + `other_rho` within the target at one of the orders, C solved for ρ."""
    with mpmath.workdps(40):
        found = -mpmath.inf
        for order in orders:
            alpha = mpmath.mpf(order)
            rest = mpmath.log((1 - 1 / alpha) ** alpha / (alpha - 1) / mpmath.mpf(target_delta))
            found = max(found, (mpmath.mpf(epsilon) - rest / (alpha - 1)) / alpha)
        return (found - mpmath.mpf(other_rho)) / change**2


def grid(low: float, high: float, count: int) -> list[float]:
    """Orders from 1 + low to 1 + high, even in the logarithm of their distance from 1; both ends exact."""
    ratio = (high / low) ** (1 / (count - 1))
    return [*(1 + low * ratio**index for index in range(count - 1)), 1 + high]
