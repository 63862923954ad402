"""The cost of a sampled token of the median after the fact (METHOD 5), with mpmath."""

import mpmath
import numpy as np


def token_losses(
    middle: np.ndarray, lowest: np.ndarray, highest: np.ndarray, allowed: np.ndarray, token: int, tau: float
) -> tuple[float, float]:
    """−log α and log β of METHOD 5, term by term, with mpmath at 50 digits."""
    with mpmath.workdps(50):

        def log_sum(scores: np.ndarray) -> mpmath.mpf:
            kept = (float(x) for x, keep in zip(scores, allowed, strict=True) if keep)
            return mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(x) / tau) for x in kept))

        m, low, high = (mpmath.mpf(float(scores[token])) for scores in (middle, lowest, highest))
        log_alpha = (m - high) / tau + log_sum(lowest) - log_sum(middle)
        log_beta = (m - low) / tau + log_sum(highest) - log_sum(middle)
        return float(-log_alpha), float(log_beta)
