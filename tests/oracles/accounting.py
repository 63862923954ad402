"""A private token's ρ, and ρ's δ and ε (CKS = Canonne, Kamath and Steinke 2020), with mpmath."""

import mpmath
import numpy as np


def rho_per_private_token(s: float, c: float, tau: float, sigma: float | None, factor: int = 1) -> mpmath.mpf:
    """½ (c/(sτ))² + 2/(sσ)² (PP Theorem 1); `factor` 2 doubles both sensitivities (METHOD 1)."""
    s, c, tau = mpmath.mpf(s), mpmath.mpf(c), mpmath.mpf(tau)
    rho = (factor * c / (s * tau)) ** 2 / 2
    if sigma is not None:
        rho += 2 * (factor / (s * mpmath.mpf(sigma))) ** 2
    return rho


def delta(rho: float, epsilon: float) -> mpmath.mpf:
    """inf over α > 1 of exp((α−1)(αρ−ε))/(α−1) · (1−1/α)^α (CKS Corollary 13), by minimisation at 50 digits.

    The objective's logarithm is evaluated on a dense grid of log(α−1), and the interval
    around the grid's least value is shrunk by golden sections to 30 digits. No derivative.
    """
    with mpmath.workdps(50):
        rho, epsilon = mpmath.mpf(rho), mpmath.mpf(epsilon)
        if rho == 0:
            return mpmath.mpf(0)

        def log_bound(log_excess: mpmath.mpf) -> mpmath.mpf:
            excess = mpmath.exp(log_excess)
            alpha = 1 + excess
            return excess * (alpha * rho - epsilon) - log_excess + alpha * mpmath.log(excess / alpha)

        # The optimum lies near α = (ε/ρ + 1)/2, or near e^(ε−ρ) where ρ is far above ε.
        low = mpmath.mpf(min(-20, epsilon - rho - 5))
        high = mpmath.log((epsilon + 2) / rho + 2) + 2
        steps = 128
        values = [log_bound(low + (high - low) * i / steps) for i in range(steps + 1)]
        best = min(range(steps + 1), key=lambda i: values[i])
        if best == 0 and rho - epsilon > 100:
            return mpmath.mpf(1)  # the infimum lies at α = 1 + e^(ε−ρ), where 50 digits show 1
        if best == 0:
            raise ArithmeticError(
                f'Expected an inner minimum, got rho={rho}, epsilon={epsilon}: widen the grid.'
            )
        left = low + (high - low) * (best - 1) / steps
        right = low + (high - low) * min(best + 1, steps) / steps
        ratio = (mpmath.sqrt(5) - 1) / 2
        inner, outer = right - ratio * (right - left), left + ratio * (right - left)
        f_inner, f_outer = log_bound(inner), log_bound(outer)
        for _ in range(60):  # 60 sections leave 3e-13 of the interval, 1e-24 of the value
            if f_inner < f_outer:
                right, outer, f_outer = outer, inner, f_inner
                inner = right - ratio * (right - left)
                f_inner = log_bound(inner)
            else:
                left, inner, f_inner = inner, outer, f_outer
                outer = left + ratio * (right - left)
                f_outer = log_bound(outer)
        return mpmath.exp(min(f_inner, f_outer, mpmath.mpf(0)))


def epsilon(rho: float, target_delta: float, relative: float = 1e-12) -> mpmath.mpf:
    """Least ε with `delta(rho, ε) <= target_delta`, by bisection."""
    if delta(rho, 0.0) <= target_delta:
        return mpmath.mpf(0)
    low, high = (
        mpmath.mpf(0),
        mpmath.mpf(rho) + mpmath.sqrt(4 * rho * mpmath.log(1 / mpmath.mpf(target_delta))),
    )
    while high - low > relative * high:
        middle = (low + high) / 2
        if delta(rho, middle) <= target_delta:
            high = middle
        else:
            low = middle
    return high


def renyi(p: np.ndarray, q: np.ndarray, alpha: float) -> float:
    """Rényi divergence of order α > 1, or ∞, between two log-distributions on the same outputs."""
    if np.isinf(alpha):
        return float((p - q).max())
    terms = alpha * p + (1 - alpha) * q
    top = terms.max()
    return float((top + np.log(np.exp(terms - top).sum())) / (alpha - 1))
