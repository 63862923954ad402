"""Noisy histograms of contexts: per group, for the number of batches, and per centre (METHOD 2, 3, 6).

Neighbouring datasets differ in one unit, and a unit counts in one cell only, so the vector of counts
has L2 sensitivity 1. One discrete Gaussian per cell costs rho = 1/(2σ²) for the whole vector, for any
number of cells (Canonne, Kamath, Steinke 2020, Theorem 4). If k records without unit ids share a
context, records are counted, and the same holds: adding one record changes one cell by 1.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity
from models.privacy.grid import NoiseSource, add_noise

SENSITIVITY = 1.0


def split_rho(rho: float) -> tuple[float, float]:
    """The price of each of the two histograms of a run with clusters; together they cost `rho` (METHOD 3).

    One half pays for the counts per (label, centre), which choose the kept centres; the other half pays
    for the counts per (label, kept centre), which give the batches. Both have sensitivity 1, so equal
    prices give both the noise scale σ = 1/√rho. The second release may depend on the first, because
    zCDP composes adaptively.

    Raises:
        ValueError: `rho` is not a positive finite number.
    """
    gaussian_scale(rho)
    return rho / 2, rho / 2


def gaussian_scale(rho: float) -> float:
    """σ = 1/√(2 rho): the scale at which a count of sensitivity 1 costs `rho`.

    Raises:
        ValueError: `rho` is not a positive finite number.
    """
    if not (math.isfinite(rho) and rho > 0):
        raise ValueError(f'Expected rho > 0, got rho={rho!r}. Counts without noise cannot be released.')
    return SENSITIVITY / math.sqrt(2 * rho)


def gaussian_variance(rho: float, sensitivity: int = 1) -> Fraction:
    """σ² = sensitivity²/(2 rho), exactly: the variance at which numbers of that L2 sensitivity cost `rho`.

    Raises:
        ValueError: `rho` is not a positive finite number.
    """
    gaussian_scale(rho)
    return sensitivity**2 / (2 * Fraction(rho))


def noisy_counts(true_counts: Sequence[int], rho: float, source: NoiseSource) -> list[int]:
    """Adds one discrete Gaussian to each count.

    The same counts, price and source give the same noise: a second call is no second release.

    Formal guarantees: satisfies rho-zCDP under adding or removing one unit, for a vector in which one
    unit moves one cell by 1. The draws are exact, without floating point.

    Args:
        true_counts: Contexts of each cell; private.
        rho: zCDP cost of the whole vector.
        source: The key of the run and the name of these counts.

    Returns:
        The noisy counts in the same order. They can be negative.

    Raises:
        ValueError: `rho` is not a positive finite number.
    """
    return add_noise(np.array(true_counts, np.int64), gaussian_variance(rho), source).tolist()


def batches_for(noisy_count: int, batch_size: int, examples_per_context: int = 1) -> int:
    """Batches of a group: `max(1, round(noisy_count / (s k)))` (METHOD 2).

    Args:
        noisy_count: A released count of contexts, or of records if k > 1 records without unit ids share
            a context.
        batch_size: Expected batch size s.
        examples_per_context: k if records were counted; 1 if contexts were.
    """
    return max(1, round(noisy_count / (batch_size * examples_per_context)))


def shares(noisy_counts: Sequence[int]) -> tuple[int, ...]:
    """Released counts as shares of a whole: none is below 0, and not all are 0.

    Post-processing of released counts. If no count is above 0, every cell gets 1.
    """
    clamped = tuple(max(0, count) for count in noisy_counts)
    return clamped if any(clamped) else (1,) * len(clamped)


def largest_cells(noisy_counts: Sequence[int], number: int) -> tuple[int, ...]:
    """Indices of the highest released counts, ascending; ties go to the smaller index (METHOD 3, step 3).

    Raises:
        ValueError: There are fewer cells, or `number` is not positive.
    """
    if not 1 <= number <= len(noisy_counts):
        raise ValueError(
            f'Expected to keep between 1 and {len(noisy_counts)} cells, got number={number!r}. '
            'Keep at most as many centres as there are.'
        )
    # A stable sort: of equal counts the smaller index comes first.
    return tuple(sorted(sorted(range(len(noisy_counts)), key=lambda cell: -noisy_counts[cell])[:number]))


def facts(rho: float, *, stage: str, cells: str, use: str, variable: str) -> Facts:
    """Facts about a released histogram for a report.

    Args:
        rho: Its zCDP cost.
        stage: Its name as a stage of the budget.
        cells: What each count belongs to: 'label', 'label and centre'.
        use: What the counts are used for.
        variable: Name of its cost in the Python lines of the report.
    """
    return Facts(
        stages=(
            RhoStage(
                name=stage,
                rho=rho,
                explanation=f'One count per {cells} with discrete Gaussian noise, {use}.',
                formula='1/(2·noise²)',
                numbers=f'1/(2·{gaussian_scale(rho):.6g}²)',
            ),
        ),
        sensitivities=(
            Sensitivity(quantity=f'The vector of counts by {cells} (L2)', value=SENSITIVITY, formula='1'),
        ),
        reproduction=Reproduction(
            steps=(f'{variable} = {rho!r}  # rho of the {stage.lower()}',), cost=variable
        ),
    )
