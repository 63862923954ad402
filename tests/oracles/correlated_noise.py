"""Slow twins of correlated noise: dense matrices, and δ of an adaptive run by summing over all outputs."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np


def strategy(bands: int, steps: int, *, normalised: bool = True) -> np.ndarray:
    """M, entry by entry: columns of the first square-root coefficients, divided by their norms.

    Args:
        bands: b.
        steps: T.
        normalised: Whether columns have norm 1; without they are longer.
    """
    found = np.zeros((steps, steps))
    for column in range(steps):
        for row in range(column, min(column + bands, steps)):
            k = row - column
            found[row, column] = math.comb(2 * k, k) / 4**k
        if normalised:
            found[:, column] /= math.sqrt(sum(entry**2 for entry in found[:, column]))
    return found


def deltas(
    matrix: np.ndarray,
    patterns: Sequence[tuple[float, Sequence[bool]]],
    gradient: Callable[[int, np.ndarray], np.ndarray],
    sigma: float,
    epsilons: Sequence[float],
    *,
    points: int = 33,
) -> np.ndarray:
    """δ at each ε of a run of T numbers with one unit and without it, in both directions: `[2 E]`.

    Without the unit the outputs are o = M⁻¹ ξ; with it o_t has `gradient(t, o)` added at the steps of its
    pattern. Both have a density over all outputs, and expectations under the first are sums over a grid.

    Args:
        matrix: M, `[T T]`.
        patterns: Probability and steps of each way that the unit can be sampled.
        gradient: The unit's clipped gradient at a step, given all outputs, of which it may read those before
            the step: `[T ...]` -> `[...]`.
        sigma: σ of ξ.
        epsilons: Of the claim.
        points: Of the grid along each axis, out to six σ.
    """
    steps = len(matrix)
    axis = np.linspace(-6, 6, points)
    weight = np.exp(-(axis**2) / 2)
    weight /= weight.sum()
    noise = np.stack(np.meshgrid(*[axis] * steps, indexing='ij')).reshape(steps, -1)
    mass = np.ones(1)
    for _ in range(steps):
        mass = np.multiply.outer(mass, weight)
    mass = mass.ravel()
    outputs = np.linalg.solve(matrix, sigma * noise)
    pulls = np.stack([gradient(step, outputs) for step in range(steps)])
    ratio = np.zeros(noise.shape[1])
    for probability, pattern in patterns:
        of_pattern = noise - matrix @ (np.array(pattern)[:, None] * pulls) / sigma
        ratio += probability * np.exp((np.square(noise) - np.square(of_pattern)).sum(axis=0) / 2)
    assert abs(mass @ ratio - 1) < 1e-3  # the grid holds both
    return np.array([
        [mass @ np.maximum(0, ratio - math.exp(epsilon)) for epsilon in epsilons],
        [mass @ np.maximum(0, 1 - math.exp(epsilon) * ratio) for epsilon in epsilons],
    ])  # fmt: skip


def patterns(
    probability: float, steps: int, allowed: Callable[[int], bool]
) -> list[tuple[float, tuple[bool, ...]]]:
    """All ways in which coins at the allowed steps can fall."""
    found = []
    for pattern in itertools.product([False, True], repeat=steps):
        if any(taken and not allowed(step) for step, taken in enumerate(pattern)):
            continue
        taken = sum(pattern)
        coins = sum(allowed(step) for step in range(steps))
        found.append((probability**taken * (1 - probability) ** (coins - taken), pattern))
    return found
