"""Noise of DP-SGD that is correlated between steps: a banded matrix factorization with a closed form.

Independent noise adds up over T steps. Noise of which each step takes back a part of what the b − 1 steps
before it added does not: over a run it adds up to less. It is M⁻¹ ξ for a T × T matrix M of b bands and
independent rows of ξ (Choquette-Choo et al. 2023, "(Amplified) banded matrix factorization: a unified
approach to private training"). M = B D⁻¹ here, where B holds the first b coefficients of the square root of
the matrix of prefix sums (Kalinin and Lampert 2024, "Banded square root matrix factorization for
differentially private model training"),

    B_ij = c_(i−j) for 0 ≤ i − j < b,   c_k = binom(2k, k) / 4ᵏ = 1, 1/2, 3/8, 5/16, …

and D is diagonal, with the norms d_j of B's columns, so that each column of M has norm 1. All of it is a
function of b and T. README, section 9, has the proof.
"""

import math

import numpy as np


def coefficients(bands: int) -> np.ndarray:
    """c_0, …, c_(b−1): `[b]` float64."""
    found = np.ones(bands)
    for place in range(1, bands):
        found[place] = found[place - 1] * (2 * place - 1) / (2 * place)
    return found


def column_norms(bands: int, steps: int) -> np.ndarray:
    """d_j: the norm of each column of B, `[T]` float64; the last b − 1 columns are cut short by the end."""
    sums = np.cumsum(np.square(coefficients(bands)))
    rows = np.minimum(bands, steps - np.arange(steps))
    return np.sqrt(sums[rows - 1])


def strategy(bands: int, steps: int) -> np.ndarray:
    """M: `[T T]` float64, lower triangular, with b bands and columns of norm 1."""
    found = np.zeros((steps, steps))
    for below, coefficient in enumerate(coefficients(bands)):
        found += coefficient * np.eye(steps, k=-below)
    return found / column_norms(bands, steps)


def variances(bands: int, steps: int) -> np.ndarray:
    """The variance of each step's noise over that of an entry of ξ, `[T]` float64; ones for one band."""
    return np.square(column_norms(bands, steps)) * np.cumsum(np.square(inverse(bands, steps)))


def deviation_of_sum(bands: int, steps: int) -> float:
    """The standard deviation of the sum of all steps' noise over that of an entry of ξ; √T for one band."""
    # Row j of ξ is in the noise of step t ≥ j with the coefficient d_t a_(t−j).
    of_rows = np.correlate(column_norms(bands, steps), inverse(bands, steps), mode='full')[steps - 1 :]
    return math.sqrt(np.square(of_rows).sum())


def inverse(bands: int, steps: int) -> np.ndarray:
    """The first column of B⁻¹, which decides the rest of it: `[T]` float64."""
    taken_back = coefficients(bands)[1:]
    found = np.zeros(steps)
    found[0] = 1.0
    for place in range(1, steps):
        before = found[max(0, place - len(taken_back)) : place][::-1]
        found[place] = -(taken_back[: len(before)] @ before)
    return found
