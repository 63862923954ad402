"""Released quantities as frozen data. The docstring of each event states the bound that accounting needs.

Names and fields are those of the dp-accounting library (`dp_event.py`) where it has the event. They are
classes of our own because that library takes a second to import, and a plan answers at once; and it lacks
`TruncatedZCDpEvent`, `DiscreteGaussianDpEvent` and `DiscreteGaussianVectorDpEvent`.

Every bound is on the Rényi divergence D_α of a mechanism's output under two neighbouring datasets, in
both directions. `RunCost` states once, for a whole cost, which datasets are neighbours.

`kind` tells one from another in JSON.

Rules for a new event: its docstring states the bound and the orders at which it holds; its fields are
public numbers; `models.privacy.accounting.run_cost.curve_of` gets a case for it, and refuses it until then,
and `models.privacy.accounting.losses` one if the distribution of its losses is known.
"""

import dataclasses
import math
from typing import Annotated, Literal

from models.privacy.codec import Tagged


@dataclasses.dataclass(frozen=True, kw_only=True)
class ZCDpEvent:
    """A mechanism of ρ-zCDP: D_α <= α ρ for every α > 1 (BS Definition 1.1).

    Attributes:
        rho: >= 0 and finite.
    """

    kind: Literal['ZCDpEvent'] = 'ZCDpEvent'
    rho: float

    def __post_init__(self) -> None:
        _check('rho', self.rho, self.rho >= 0, '>= 0')


@dataclasses.dataclass(frozen=True, kw_only=True)
class TruncatedZCDpEvent:
    """A mechanism of (ρ, ω)-truncated zCDP: D_α <= α ρ for 1 < α <= ω (BDRS Definition 1; METHOD 4d).

    Above ω nothing is known. ω = ∞ would be `ZCDpEvent`.

    Attributes:
        rho: >= 0 and finite.
        omega: Largest order of the bound, > 1 and finite.
    """

    kind: Literal['TruncatedZCDpEvent'] = 'TruncatedZCDpEvent'
    rho: float
    omega: float

    def __post_init__(self) -> None:
        _check('rho', self.rho, self.rho >= 0, '>= 0')
        _check('omega', self.omega, self.omega > 1, '> 1 (without a largest order it is a ZCDpEvent)')


@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianDpEvent:
    """A sum of L2 sensitivity 1 plus N(0, z²) in each coordinate: zCDP with ρ = 1/(2z²) (BS Proposition 1.6).

    Attributes:
        noise_multiplier: z, the noise's standard deviation over the sum's L2 sensitivity; > 0.
    """

    kind: Literal['GaussianDpEvent'] = 'GaussianDpEvent'
    noise_multiplier: float

    def __post_init__(self) -> None:
        _check('noise_multiplier', self.noise_multiplier, self.noise_multiplier > 0, '> 0')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteGaussianDpEvent:
    """Counts, of which one unit moves one by 1, plus N_Z(0, σ²) in each: zCDP with ρ = 1/(2σ²).

    By CKS Theorem 4. Exactly, it is one count: the others have one distribution with and without the unit.

    Attributes:
        sigma: σ of P(x) ∝ exp(-x²/(2σ²)) on the integers, > 0.
    """

    kind: Literal['DiscreteGaussianDpEvent'] = 'DiscreteGaussianDpEvent'
    sigma: float

    def __post_init__(self) -> None:
        _check('sigma', self.sigma, self.sigma > 0, '> 0')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteGaussianVectorDpEvent:
    """Whole numbers plus N_Z(0, s²) in each, where one unit moves a few cells: zCDP with ρ = 1/(2z²).

    By CKS Theorem 4. One unit moves at most `cells` of them, by a vector whose L2 length is at most
    `sensitivity`, and z = s/sensitivity. README, section 11, has a Gaussian mechanism that dominates it.

    Attributes:
        noise_multiplier: z > 0.
        sensitivity: A whole number >= 1.
        cells: The same.
    """

    kind: Literal['DiscreteGaussianVectorDpEvent'] = 'DiscreteGaussianVectorDpEvent'
    noise_multiplier: float
    sensitivity: int
    cells: int

    def __post_init__(self) -> None:
        _check('noise_multiplier', self.noise_multiplier, self.noise_multiplier > 0, '> 0')
        for name in ('sensitivity', 'cells'):
            value = getattr(self, name)
            if not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
                raise ValueError(
                    f'Expected a whole {name} >= 1, got {name}={value!r}. An event states a bound that holds.'
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoissonSampledDpEvent:
    """A Gaussian event on a sample that each unit joins by a coin of its own, of probability q.

    D_α is at most that of N(0, z²) and (1−q) N(0, z²) + q N(1, z²), in the worse of both directions,
    for adding or removing one unit (MTZ Theorems 4 and 5). It holds for no other relation.

    Attributes:
        sampling_probability: q, in (0, 1].
        event: What is done to the sample.
    """

    kind: Literal['PoissonSampledDpEvent'] = 'PoissonSampledDpEvent'
    sampling_probability: float
    event: GaussianDpEvent

    def __post_init__(self) -> None:
        q = self.sampling_probability
        _check('sampling_probability', q, 0 < q <= 1, 'in (0, 1]')
        if not isinstance(self.event, GaussianDpEvent):
            raise ValueError(
                f'Expected a GaussianDpEvent on the sample, got event={self.event!r}. No bound is known '
                'here for another one.'
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfComposedDpEvent:
    """The same event `count` times, each chosen after the outputs before it: divergences add up.

    Attributes:
        event: What is repeated.
        count: How often, >= 1.
    """

    kind: Literal['SelfComposedDpEvent'] = 'SelfComposedDpEvent'
    event: 'DpEvent'
    count: int

    def __post_init__(self) -> None:
        if not (isinstance(self.count, int) and not isinstance(self.count, bool) and self.count >= 1):
            raise ValueError(f'Expected a whole count >= 1, got count={self.count!r}. Leave the event out.')


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComposedDpEvent:
    """Several events, each chosen after the outputs before it: divergences add up at every order.

    Attributes:
        events: In any order; not empty.
    """

    kind: Literal['ComposedDpEvent'] = 'ComposedDpEvent'
    events: tuple['DpEvent', ...]

    def __post_init__(self) -> None:
        if not (isinstance(self.events, tuple) and self.events):
            raise ValueError(f'Expected a tuple of events, got events={self.events!r}. Compose at least one.')


DpEvent = Annotated[
    ZCDpEvent
    | TruncatedZCDpEvent
    | GaussianDpEvent
    | DiscreteGaussianDpEvent
    | DiscreteGaussianVectorDpEvent
    | PoissonSampledDpEvent
    | SelfComposedDpEvent
    | ComposedDpEvent,
    Tagged('kind'),
]


def _check(name: str, value: float, holds: bool, expected: str) -> None:
    if not (holds and math.isfinite(value)):
        raise ValueError(
            f'Expected a finite {name} {expected}, got {name}={value!r}. An event states a bound that holds.'
        )
