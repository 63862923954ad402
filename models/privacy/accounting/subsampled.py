"""The price of DP-SGD: Poisson-sampled Gaussians, under adding or removing one unit, and counts before them.

It is computed with the privacy loss distributions of the dp-accounting library (PLD: Koskela et al. 2020;
Gopi et al. 2021; Doroshenko et al. 2022, "Connect the dots"). Their discretisation is pessimistic, so the
result is an upper bound. PLDs are tighter than Rényi orders, but do not add up with costs that are known
at Rényi orders alone. So a run by itself is stated by PLD. A ledger, which adds runs of all kinds, charges
the same event at its Rényi order (`conversion.sampled_gaussian`): an upper bound too, but a larger one.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from models.privacy import events
from models.privacy.accounting import losses

# The solver's z is at most this much (relatively) above the smallest z that fits.
_PRECISION = 1e-3
_LEAST, _MOST = 2.0**-6, 2.0**20
# Distance between two losses of a distribution, where epsilon is at most the next; the library's accountant
# has the same. Beyond it they are further apart, up to a share of epsilon.
INTERVAL = 1e-4
_MOST_OF_INTERVAL = 10.0
_SHARE = 2e-4
# The library's sums overflow where losses are hundreds apart.
_LARGEST_INTERVAL = 64.0
_COARSE = 1e-3
# The same over epsilon, where a hundredth more noise than needed does no harm.
_ROUGH_SHARE = 1e-3


@functools.lru_cache(maxsize=256)
def epsilon_of_steps(
    sampling_probability: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
    sigma: float | None = None,
) -> float:
    """Smallest epsilon at delta of `steps` Poisson-sampled Gaussians, composed adaptively.

    Args:
        sampling_probability: q in (0, 1].
        noise_multiplier: z > 0.
        steps: T >= 1.
        delta: In (0, 1).
        sigma: Scale of the discrete Gaussian noise on counts that are released too; one unit moves one
            count by 1. None without counts.
    """
    _check_delta(delta)
    interval = interval_of_steps(sampling_probability, noise_multiplier, steps, delta)
    composed = _losses_of_step(sampling_probability, noise_multiplier, interval).self_compose(steps)
    # The library's accountant composes with nothing too, which cuts the tails: the same to the last digit.
    composed = composed.compose(
        losses.distribution([], interval) if sigma is None else _losses_of_counts(sigma, interval)
    )
    return float(composed.get_epsilon_for_delta(delta))


@functools.lru_cache(maxsize=256)
def interval_of_steps(
    sampling_probability: float, noise_multiplier: float, steps: int, delta: float
) -> float:
    """Distance between two losses of the distributions that `epsilon_of_steps` composes.

    It grows with epsilon: where that is 1000, losses a ten-thousandth apart are tens of millions, and take
    minutes. Whatever it is, the result is an upper bound.
    """
    # T D₂ + log(1/δ), an upper bound on epsilon that takes no time; D₂ = log(1 + q² (e^(1/z²) − 1)).
    square = noise_multiplier**-2
    order_two = (
        math.log1p(sampling_probability**2 * math.expm1(square))
        if square < 500
        else square  # no less, and e^(1/z²) may be no float
    )
    epsilon, bound = steps * order_two - math.log(delta), math.inf
    # Each distribution is as quick as its bound is large, and gives a smaller one.
    while _MOST_OF_INTERVAL < epsilon < bound / 2:
        bound = epsilon
        interval = min(max(INTERVAL, bound * _ROUGH_SHARE), _LARGEST_INTERVAL)
        rough = _losses_of_step(sampling_probability, noise_multiplier, interval)
        epsilon = min(bound, float(rough.self_compose(steps).get_epsilon_for_delta(delta)))
    if epsilon <= _MOST_OF_INTERVAL:
        return INTERVAL
    # Steps of powers of two, which the last digits of epsilon do not decide.
    times = 4.0 ** math.ceil(math.log2(epsilon / _MOST_OF_INTERVAL))
    most = 2.0 ** math.floor(math.log2(epsilon * _SHARE / INTERVAL))
    return min(INTERVAL * min(times, most), _LARGEST_INTERVAL)


def is_same(stated: float, computed: float) -> bool:
    """True if an epsilon was computed here, by any version of the code and the libraries.

    Earlier versions had the losses of a large epsilon less far apart.
    """
    return math.isclose(stated, computed, rel_tol=1e-6 if computed <= _MOST_OF_INTERVAL else 1e-3)


@functools.lru_cache(maxsize=64)
def _composed(sampling_probability: float, noise_multiplier: float, steps: int, sigma: float | None) -> Any:
    composed = _losses_of_step(sampling_probability, noise_multiplier, _COARSE).self_compose(steps)
    return composed if sigma is None else composed.compose(_losses_of_counts(sigma, _COARSE))


def deltas_of_steps(
    sampling_probability: float,
    noise_multiplier: float,
    steps: int,
    epsilons: Sequence[float],
    sigma: float | None = None,
) -> list[float]:
    """Smallest delta at each epsilon of `epsilon_of_steps`' mechanism: its whole curve, for an audit.

    Upper bounds too, in steps of the loss that are ten times as wide.
    """
    distribution = _composed(sampling_probability, noise_multiplier, steps, sigma)
    return [float(distribution.get_delta_for_epsilon(epsilon)) for epsilon in epsilons]


def _losses_of_step(sampling_probability: float, noise_multiplier: float, interval: float) -> Any:
    """The privacy loss distribution of one Poisson-sampled Gaussian, in both directions."""
    gaussian = events.GaussianDpEvent(noise_multiplier=noise_multiplier)
    step = events.PoissonSampledDpEvent(sampling_probability=sampling_probability, event=gaussian)
    return losses.of_event(step, interval)


def _losses_of_counts(sigma: float, interval: float) -> Any:
    """The same of noisy counts.

    The library leaves out noise beyond 11.6 σ, less than 1e-30 of the mass. That is far below the rounding
    of a float64.
    """
    return losses.of_event(events.DiscreteGaussianDpEvent(sigma=sigma), interval)


def epsilon_of_event(event: events.DpEvent, delta: float) -> float:
    """`epsilon_of_steps` for the event of fine-tuning.

    Raises:
        ValueError: It is another event, whose PLD is not known here.
    """
    match tuple(losses.leaves([event])):
        case ((events.PoissonSampledDpEvent() as step, steps),):
            sigma = None
        case (
            (events.DiscreteGaussianDpEvent(sigma=sigma), 1),
            (events.PoissonSampledDpEvent() as step, steps),
        ):
            pass
        case _:
            raise ValueError(
                'Expected Poisson-sampled Gaussians, composed with themselves, and counts before them at '
                f'most, got event={event!r}. Take its Rényi curve (`accounting.curve_of`).'
            )
    return epsilon_of_steps(step.sampling_probability, step.event.noise_multiplier, steps, delta, sigma)


@functools.lru_cache(maxsize=256)
def solve_noise_multiplier(
    *, sampling_probability: float, steps: int, epsilon: float, delta: float, sigma: float | None = None
) -> float:
    """The smallest noise multiplier that keeps `steps` within (epsilon, delta), to a thousandth.

    Returns:
        z, a number of five digits with `epsilon_of_steps(q, z, steps, delta, sigma) <= epsilon`.

    Raises:
        ValueError: The target is out of range, or no noise reaches it.
    """
    _check_target(epsilon, delta, sigma)

    def epsilon_at(z: float) -> float:
        return epsilon_of_steps(sampling_probability, z, steps, delta, sigma)

    # Many sampled steps are nearly one Gaussian of q √T / z.
    guess = max(0.5, sampling_probability * math.sqrt(steps * 2 * math.log(1.25 / delta)) / epsilon)
    ratio = 1.5
    if epsilon * _ROUGH_SHARE >= 3 * INTERVAL:
        # Losses at least three times as far apart are quick to compute, and leave little to look for.
        guess, ratio = _rough_noise(sampling_probability, steps, epsilon, delta, sigma, guess), 1.02
    return least_noise(epsilon_at, epsilon, guess, ratio, f'delta={delta}, steps={steps}')


def _rough_noise(
    sampling_probability: float, steps: int, epsilon: float, delta: float, sigma: float | None, near: float
) -> float:
    """A noise multiplier that is enough, within about a hundredth; losses are coarse, and rounded up."""
    interval = min(max(INTERVAL, epsilon * _ROUGH_SHARE), _LARGEST_INTERVAL)
    counted = None if sigma is None else _losses_of_counts(sigma, interval)

    @functools.cache
    def epsilon_at(z: float) -> float:
        composed = _losses_of_step(sampling_probability, z, interval).self_compose(steps)
        composed = composed if counted is None else composed.compose(counted)
        return float(composed.get_epsilon_for_delta(delta))

    return least_noise(epsilon_at, epsilon, near, 1.1, f'delta={delta}, steps={steps}')


def _check_target(epsilon: float, delta: float, sigma: float | None) -> None:
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ValueError(f'Expected a finite epsilon > 0, got epsilon={epsilon}. Give --epsilon 3, say.')
    _check_delta(delta)
    counted = 0.0 if sigma is None else float(_losses_of_counts(sigma, INTERVAL).get_epsilon_for_delta(delta))
    if not counted < epsilon:
        raise ValueError(
            f'Expected an epsilon that is left for the steps, got epsilon={epsilon}, of which the '
            f'noisy counts of labels take {counted:.6g} at delta={delta}. Lower --label-mix-rho, or raise '
            '--epsilon.'
        )


def least_noise(
    epsilon_at: Callable[[float], float], epsilon: float, guess: float, ratio: float, beside: str
) -> float:
    """The least noise multiplier that fits, to a thousandth.

    Args:
        epsilon_at: epsilon with a noise multiplier; it falls.
        epsilon: Target.
        guess: A noise multiplier near the result.
        ratio: First step away from it, above 1.
        beside: What else an error names.

    Raises:
        ValueError: No noise reaches the target.
    """

    def fits(z: float) -> bool:
        return epsilon_at(z) <= epsilon

    high = low = guess
    while not fits(high):
        low, high = high, ratio * high
        if high > _MOST:
            raise ValueError(
                f'Expected an epsilon that noise can give, got epsilon={epsilon}, {beside}. Raise --epsilon '
                'or --delta, or lower --tuning-steps.'
            )
    while low == high or fits(low):
        high, low = low, low / ratio
        if low < _LEAST:
            return _LEAST
    from scipy import optimize

    def excess(log_z: float) -> float:
        return math.log(max(epsilon_at(math.exp(log_z)), 1e-12)) - math.log(epsilon)

    root = optimize.brentq(excess, math.log(low), math.log(high), xtol=_PRECISION / 2)
    z = _rounded_up(math.exp(root))
    while not fits(z):
        z = _rounded_up(z * (1 + _PRECISION / 2))
    return z


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f'Expected 0 < delta < 1, got delta={delta}. A usual choice is records ** -1.1.')


def _rounded_up(z: float) -> float:
    """`z` with five digits, rounded up: it is a public setting that people read."""
    unit = 10.0 ** (math.floor(math.log10(z)) - 4)
    return float(f'{math.ceil(z / unit) * unit:.4e}')
