"""The slow twin of the ledger: budgets, charges and refusals by hand (models/privacy/README.md, section 7).

Costs are read from their JSON form. ρ adds up in fractions; of a sampled Gaussian the divergence is taken
by quadrature, and a ledger may charge up to `SLACK` times as much, since its library bounds it from above.
Whether a run fits is therefore known, or left open where the budget lies within that slack.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import special

from tests.oracles import losses, subsampled

SLACK = 1.25
# Rounding of sums and orders that are computed in another way than the ledger's.
ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a run.

    Attributes:
        rhos: ρ of each part.
        omega: Smallest largest order; infinite without any.
        sampled: (q, z, steps) of each part.
        is_gaussian: True if a Gaussian mechanism is known for each part.
    """

    rhos: tuple[Fraction, ...]
    omega: float
    sampled: tuple[tuple[float, float, int], ...]
    is_gaussian: bool

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> 'Cost':
        """Reads `RunCost.to_json_object`."""
        rhos, omegas, sampled, is_gaussian = [], [math.inf], [], True
        for event in found['stages'].values():
            for part, count in _parts(event, 1):
                match part['kind']:
                    case 'ZCDpEvent':
                        rhos.append(count * Fraction(part['rho']))
                        is_gaussian = is_gaussian and part['rho'] == 0
                    case 'TruncatedZCDpEvent':
                        is_gaussian = False
                        rhos.append(count * Fraction(part['rho']))
                        omegas.append(part['omega'])
                    case 'GaussianDpEvent' | 'DiscreteGaussianVectorDpEvent':
                        rhos.append(count / (2 * Fraction(part['noise_multiplier']) ** 2))
                    case 'DiscreteGaussianDpEvent':
                        rhos.append(count / (2 * Fraction(part['sigma']) ** 2))
                    case 'PoissonSampledDpEvent':
                        noise = part['event']['noise_multiplier']
                        sampled.append((part['sampling_probability'], noise, count))
                    case kind:
                        raise AssertionError(f'no bound by hand for {kind}')
        return cls(tuple(rhos), min(omegas), tuple(sampled), is_gaussian)

    @property
    def rho(self) -> Fraction:
        return sum(self.rhos, Fraction(0))

    def price(self, order: float) -> tuple[Fraction, Fraction]:
        """Least and most that a ledger may charge at an order that is no more than ω."""
        sampled = Fraction(0)
        for q, z, steps in self.sampled:
            sampled += Fraction(steps * _sampled(q, z, round(order, 6)) / order)
        rounding = Fraction(ROUNDING) if self.sampled else Fraction(1e-14)
        least = (self.rho + sampled) * (1 - rounding)
        return least, (self.rho + sampled * Fraction(SLACK)) * (1 + rounding)

    def gaussian_price(self, failure: float) -> tuple[Fraction, Fraction]:
        """The same of a filter of Gaussians: half the square of the shift, but for a failure."""
        found = sum((Fraction(_shifted(*of, failure)) for of in self.sampled), Fraction(0))
        # The Gaussian of discrete noise has a little more; the twin of sampled ones is on a grid.
        least = self.rho * (1 - Fraction(1e-12)) + found * Fraction(0.99)
        return least, self.rho * (1 + Fraction(1e-4)) + found * Fraction(1.01)


def _parts(event: Mapping[str, Any], count: int) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The events that are no composition, each with how often it happens."""
    if event['kind'] == 'SelfComposedDpEvent':
        yield from _parts(event['event'], count * event['count'])
    elif event['kind'] == 'ComposedDpEvent':
        for part in event['events']:
            yield from _parts(part, count)
    else:
        yield event, count


@functools.cache
def _sampled(q: float, z: float, order: float) -> float:
    """`tests.oracles.costs.sampled_gaussian` by a sum over an even grid, which takes a moment."""
    x = np.linspace(-30 * z, order + 30 * z, 20_001)
    log_density = -(x**2) / (2 * z**2) - math.log(z * math.sqrt(2 * math.pi)) + math.log(x[1] - x[0])
    log_ratio = np.log1p(q * np.expm1((2 * x - 1) / (2 * z**2)))
    sums = [special.logsumexp(log_density + power * log_ratio) for power in (order, 1 - order)]
    return float(max(sums)) / (order - 1)


@functools.cache
def _shifted(q: float, z: float, steps: int, failure: float) -> float:
    """The least μ²/2 with δ(ε) <= failure + δ_μ(ε) of sampled Gaussians at a grid of ε, by halving."""
    curves = []
    for removed in (True, False):
        masses, total = subsampled._losses(q, z, steps, 1e-3, removed)
        curves.append((masses, total))
    epsilons = np.linspace(0, 12, 601)
    exact = [
        max(subsampled._excess(masses, total, epsilon) for masses, total in curves) for epsilon in epsilons
    ]
    low, high = 1e-9, 1e3
    for _ in range(60):
        rho = math.sqrt(low * high)
        multiplier = math.sqrt(0.5 / rho)
        enough = all(
            delta <= failure + losses.delta_of_gaussian(multiplier, epsilon)
            for delta, epsilon in zip(exact, epsilons, strict=True)
        )
        low, high = (low, rho) if enough else (rho, high)
    return high


def epsilon_of_gaussian(rho: float, delta: float) -> float:
    """ε at δ of a Gaussian mechanism of ρ, by halving."""
    low, high = 0.0, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        enough = losses.delta_of_gaussian(math.sqrt(0.5 / rho), middle) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


def rho_of_gaussian(epsilon: float, delta: float) -> float:
    """The largest ρ of a Gaussian mechanism whose ε is no more, by halving."""
    low, high = 1e-9, 1e3
    for _ in range(200):
        middle = math.sqrt(low * high)
        enough = losses.delta_of_gaussian(math.sqrt(0.5 / middle), epsilon) <= delta
        low, high = (middle, high) if enough else (low, middle)
    return low


def order_of(rho: float, delta: float) -> float:
    """The order at which ρ-zCDP converts best: the root of ρ (α − 1)² + log α + log δ, by halving."""
    low, high = 1.0, 2.0 + math.sqrt(-math.log(delta) / rho)
    for _ in range(200):
        middle = (low + high) / 2
        if rho * (middle - 1) ** 2 + math.log(middle) + math.log(delta) > 0:
            high = middle
        else:
            low = middle
    return high


def epsilon_of(rho: float, delta: float, order: float | None = None) -> float:
    """ε of ρ at an order, or at the best."""
    order = order_of(rho, delta) if order is None else order
    return max(0.0, order * rho + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1))


def rho_of(epsilon: float, delta: float) -> float:
    """The largest ρ whose ε is no more, by halving."""
    low, high = 1e-12, 1e3
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon_of(middle, delta) > epsilon else (middle, high)
    return low


@dataclasses.dataclass(frozen=True)
class Run:
    """A charged run; `entry` is what its report was told, which never changes."""

    name: str
    cost: Cost
    key: str | None
    identity: str
    entry: Any
    settled: bool = False
    failure: float = 0.0


@dataclasses.dataclass
class Dataset:
    """A dataset with its budget, its runs and its log; `is_gaussian` where its filter is of Gaussians."""

    unit: str
    budget: float
    given_epsilon: float | None
    delta: float
    is_gaussian: bool = False
    order: float | None = None
    bound: float | None = None
    runs: list[Run] = dataclasses.field(default_factory=list)
    log: list[tuple[str, str | None]] = dataclasses.field(default_factory=list)

    def run(self, name: str) -> Run | None:
        return next((run for run in self.runs if run.name == name), None)

    @property
    def present_order(self) -> float:
        return order_of(self.budget, self.delta) if self.order is None else self.order

    @property
    def allowed(self) -> Fraction:
        return Fraction(self.budget) * (1 + Fraction(1e-12))

    @property
    def failure_budget(self) -> float:
        """Half of δ."""
        return self.delta / 2

    def failure_of(self, cost: Cost) -> float:
        """That of a further run: shares 1/i² of what is kept for all, if it has sampled parts."""
        earlier = sum(run.failure > 0 for run in self.runs)
        return self.failure_budget * 6 / math.pi**2 / (earlier + 1) ** 2 if cost.sampled else 0.0

    def price(self, cost: Cost, failure: float | None = None) -> tuple[Fraction, Fraction]:
        """Least and most that a run may be charged, in place of one with a failure or as the next."""
        if not self.is_gaussian:
            return cost.price(self.present_order)
        return cost.gaussian_price(self.failure_of(cost) if failure is None else failure)

    def spent(self) -> tuple[Fraction, Fraction]:
        """Least and most that all charges may come to, at the present order."""
        prices = [self.price(run.cost, run.failure) for run in self.runs]
        return sum((least for least, _ in prices), Fraction(0)), sum(
            (most for _, most in prices), Fraction(0)
        )

    def refusals(self, name: str, cost: Cost, key: str | None, identity: str, unit: str) -> set[str | None]:
        """The answers that the ledger may give to a run: a key of `machine_test.WHY`, or None.

        None is a charge, or a resumption.
        """
        if unit != self.unit:
            return {'unit'}
        if (known := self.run(name)) is not None:
            if key != known.key:
                return {'key'}
            if identity != known.identity:
                return {'identity'}
            return {None if cost == known.cost else 'cost'}
        if self.is_gaussian and not cost.is_gaussian:
            return {'gaussian'}
        least, most = self.spent()
        rounding = 1e-14 if self.given_epsilon is None else ROUNDING
        surely, at_most = self.allowed * (1 - Fraction(rounding)), self.allowed * (1 + Fraction(rounding))
        if least + cost.rho > at_most:
            return {'budget'}
        if not self.is_gaussian and self.present_order > cost.omega * (1 + ROUNDING):
            return {'order'} if most + cost.rho <= surely else {'order', 'budget'}
        of_run = self.price(cost)
        if least + of_run[0] > at_most:
            return {'budget'}
        return {None} if most + of_run[1] <= surely else {None, 'budget'}

    def charge(self, run: Run) -> None:
        """Adds a run; the first one fixes order and bound: ρ at that order, or that of a Gaussian."""
        run = dataclasses.replace(run, failure=self.failure_of(run.cost) if self.is_gaussian else 0.0)
        if self.bound is None:
            self.order = None if self.is_gaussian else self.present_order
            self.bound = (self.order or 1.0) * self.budget
        self.runs.append(run)

    def change_budget(self, budget: float, given_epsilon: float | None, delta: float) -> None:
        """Another budget; the order may only fall, to one that holds all that was let in before."""
        self.budget, self.given_epsilon, self.delta = budget, given_epsilon, delta
        if self.bound is None:
            return
        if self.order is None:
            self.bound = max(self.bound, budget)
            return
        new = order_of(budget, delta)
        if new <= self.order * (1 + ROUNDING) and new * budget >= self.bound * (1 - ROUNDING):
            self.order, self.bound = new, new * budget
        else:
            self.bound = max(self.bound, self.order * budget)
