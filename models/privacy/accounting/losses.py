"""(epsilon, delta) of several releases together, by the distributions of their privacy losses (PLD).

Of each event here a pair of distributions is known that dominates its mechanism: at every ε the pair's
hockey-stick divergence is no smaller, in both directions. Products of such pairs dominate what is released
together, even where each mechanism was chosen after the outputs before it (Zhu, Dong and Wang 2022,
Optimal accounting of differential privacy via characteristic function, Theorem 10). That is tighter than
adding up Rényi divergences. It bounds no sequence whose *costs* outputs decide: a budget does that
(README, section 7).
"""

import collections
import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from models.privacy import events
from models.privacy.accounting import normal_pair, run_cost

# t², the variance of the normal noise by which the bound on a discrete Gaussian smooths it. Each one gives a
# bound; the least of them counts.
_SMOOTHING = (0.25, 0.5, 1.0, 2.0, 4.0)
# Times a, from where the bound is lowered. The first is enough, but for little noise.
_STARTS = (2.0, 1.5, 1.2, 1.1, 1.05, 1.02)
# Float64 rounding in the bound is far below this share of it.
_ROUNDING = 1e-12
# Distance between two losses of a distribution, and the same as a share of epsilon where that is more.
_INTERVAL = 1e-4
_SHARE = 2e-4

type Leaf = (
    events.GaussianDpEvent
    | events.DiscreteGaussianDpEvent
    | events.DiscreteGaussianVectorDpEvent
    | events.PoissonSampledDpEvent
)


def noise_multiplier_of_vector(event: events.DiscreteGaussianVectorDpEvent) -> float | None:
    """The noise multiplier of a Gaussian mechanism that dominates one of discrete Gaussians on many cells.

    README, section 11. With s the scale of the noise and Δ the sensitivity, in whole numbers, and any t > 0,

        η  = 2 Σ_{j≥1} exp(−2π²τ²j²),  τ² = s²t²/(s² + t²)      a = Δ √(s² + t²)/s²
        κ′ = Δ²t²/(2s⁴) + cells · log(1 + η)                    b = a + κ′ Φ(D)/φ(D),  D = κ′/a + b/2

    and 1/b is the result, for the best t of a few. It is a little less than the event's own multiplier s/Δ:
    by less than a millionth for votes on texts with σ >= 2.

    Returns:
        None where no t of these gives a bound, since the noise is too little.
    """
    scale, change = event.noise_multiplier * event.sensitivity, float(event.sensitivity)
    least = math.inf
    for smoothing in _SMOOTHING:
        joint = scale**2 + smoothing
        # 2 e^(−x)/(1 − e^(−x)) is no less than the sum, whose exponents grow with j².
        eta = 2 / math.expm1(2 * math.pi**2 * scale**2 * smoothing / joint)
        a = change * math.sqrt(joint) / scale**2
        kappa = change**2 * smoothing / (2 * scale**4) + event.cells * math.log1p(eta)
        for start in _STARTS:
            # Whatever b is above what it gives, that is a bound too, and a lower one: the ratio grows with b.
            b = start * a
            for _ in range(8):
                bound = a + kappa * _normal_ratio(kappa / a + b / 2)
                if bound > b:
                    break
                b = bound
                least = min(least, b)
            if b < start * a:
                break
    return None if math.isinf(least) else 1 / (least * (1 + _ROUNDING))


def dominating_noise_multiplier(leaf: 'Leaf') -> float | None:
    """That of a Gaussian mechanism which dominates an event; None of a sample, or where no bound is known."""
    match leaf:
        case events.GaussianDpEvent(noise_multiplier=multiplier):
            return multiplier
        case events.DiscreteGaussianDpEvent(sigma=sigma):
            one = events.DiscreteGaussianVectorDpEvent(noise_multiplier=sigma, sensitivity=1, cells=1)
            return noise_multiplier_of_vector(one)
        case events.DiscreteGaussianVectorDpEvent():
            return noise_multiplier_of_vector(leaf)
        case events.PoissonSampledDpEvent(sampling_probability=q, event=gaussian):
            return gaussian.noise_multiplier if q == 1 else None


def is_as_gaussian(leaf: Leaf | None) -> bool:
    """True if sums take an event as the Gaussian that dominates it; for a count that would be dearer."""
    return isinstance(leaf, events.GaussianDpEvent | events.DiscreteGaussianVectorDpEvent)


def rho_of_gaussians(counted: Iterable[tuple[Leaf, int]]) -> float | None:
    """μ²/2 of the Gaussian mechanism that dominates all of these together; None where one has none."""
    multipliers = [(dominating_noise_multiplier(leaf), count) for leaf, count in counted]
    if any(multiplier is None for multiplier, _ in multipliers):
        return None
    return math.fsum(count / (2 * multiplier**2) for multiplier, count in multipliers if multiplier)


def epsilon_of_events(released: Iterable[events.DpEvent], delta: float) -> float:
    """Smallest epsilon at delta of several releases together, all of which were decided in advance.

    The least of two bounds: that of their Rényi curves, and that of their loss distributions, where each
    event has one here. The second is rounded upwards; of Gaussians and of votes on texts alone it is exact,
    that of the one Gaussian which they come to.

    Args:
        released: In any order; not empty.
        delta: In (0, 1).
    """
    released = tuple(released)
    by_curves = run_cost.compose(map(run_cost.curve_of, released)).epsilon(delta)
    counted: collections.Counter[Leaf] = collections.Counter()
    for leaf, count in leaves(released):
        if leaf is None:
            return by_curves
        counted[leaf] += count
    if not counted:
        return by_curves
    ordered = tuple(sorted(counted.items(), key=repr))  # the same sum whatever the order of the runs
    if all(is_as_gaussian(leaf) for leaf, _ in ordered):
        rho = rho_of_gaussians(ordered)
        return by_curves if rho is None else min(by_curves, normal_pair.epsilon_from_gaussian(rho, delta))
    epsilon = _epsilon_of_leaves(ordered, delta, _interval(by_curves))
    return by_curves if epsilon is None else min(by_curves, epsilon)


def interval_of_events(released: Iterable[events.DpEvent], delta: float) -> float | None:
    """Distance between two losses in `epsilon_of_events`; None for that of the library."""
    interval = _interval(run_cost.compose(map(run_cost.curve_of, released)).epsilon(delta))
    return None if interval == _INTERVAL else interval


def _interval(by_curves: float) -> float:
    return max(_INTERVAL, _SHARE * by_curves)


def leaves(released: Iterable[events.DpEvent]) -> Iterator[tuple[Leaf | None, int]]:
    """Events that are not composed of others, and how often each is there; None for one without losses."""
    for event in released:
        yield from _leaves_of(event)


def _leaves_of(event: events.DpEvent) -> Iterator[tuple[Leaf | None, int]]:
    match event:
        case events.SelfComposedDpEvent(event=one, count=count):
            yield from ((leaf, count * times) for leaf, times in _leaves_of(one))
        case events.ComposedDpEvent(events=parts):
            for part in parts:
                yield from _leaves_of(part)
        case events.ZCDpEvent(rho=0.0):
            pass  # a stage that releases nothing
        case events.ZCDpEvent() | events.TruncatedZCDpEvent():
            yield None, 1
        case _:
            yield event, 1


@functools.lru_cache(maxsize=256)
def _epsilon_of_leaves(leaves: tuple[tuple[Leaf, int], ...], delta: float, interval: float) -> float | None:
    composed = distribution(leaves, interval)
    return None if composed is None else float(composed.get_epsilon_for_delta(delta))


def distribution(counted: Iterable[tuple[Leaf, int]], interval: float) -> Any:
    """The distribution of all losses together, in both directions; None where one event has none."""
    # Not at the top: the library takes a second to import.
    from dp_accounting import pld

    composed = pld.privacy_loss_distribution.identity(value_discretization_interval=interval)
    for leaf, count in counted:
        of_one = of_event(leaf, interval)
        if of_one is None:
            return None
        composed = composed.compose(of_one.self_compose(count))
    return composed


# Most of the time of an epsilon; a page asks for other numbers of the same events.
@functools.lru_cache(maxsize=16)
def of_event(leaf: Leaf, interval: float) -> Any:
    """The distribution of the losses of one event, in both directions; None where the bound finds none."""
    from dp_accounting import pld

    library = pld.privacy_loss_distribution
    match leaf:
        case events.PoissonSampledDpEvent(sampling_probability=q, event=gaussian):
            return library.from_gaussian_mechanism(
                gaussian.noise_multiplier, value_discretization_interval=interval, sampling_prob=q
            )
        case events.DiscreteGaussianDpEvent(sigma=sigma):
            return library.from_discrete_gaussian_mechanism(
                sigma, value_discretization_interval=interval, use_connect_dots=True
            )
        case events.GaussianDpEvent(noise_multiplier=multiplier):
            pass
        case events.DiscreteGaussianVectorDpEvent():
            bound = noise_multiplier_of_vector(leaf)
            if bound is None:
                return None
            multiplier = bound
    return library.from_gaussian_mechanism(multiplier, value_discretization_interval=interval)


def _normal_ratio(x: float) -> float:
    """Φ(x)/φ(x), the normal distribution function over its density; infinite where that is no float."""
    if x > 37:
        return math.inf
    return math.sqrt(2 * math.pi) * math.exp(x**2 / 2) * math.erfc(-x / math.sqrt(2)) / 2
