"""Our events as those of the dp-accounting library, for its accountants.

Other files import this one inside functions, because the library takes a second to import.
"""

import typing

import attr
import dp_accounting

from models.privacy import events


@attr.s(frozen=True, slots=True, auto_attribs=True)
class TruncatedZCDpEvent(dp_accounting.DpEvent):
    """Represents an application of a mechanism satisfying (rho, omega)-truncated zCDP.

    Specifically, this event satisfies (alpha, rho * alpha)-RDP for all 1 < alpha <= omega, in both
    directions. The library's own accountants do not know it, and refuse it.

    Attributes:
        rho: The multiplicative constant in the RDP bound.
        omega: The largest order at which the bound holds.
    """

    rho: float
    omega: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DiscreteGaussianDpEvent(dp_accounting.DpEvent):
    """Represents counts plus discrete Gaussian noise, where one unit moves one count by 1.

    The library's own accountants do not know it, and refuse it; its `pld` has the mechanism
    (`from_discrete_gaussian_mechanism`).

    Attributes:
        sigma: The scale of the noise, whose mass at x is proportional to exp(-x^2 / (2 sigma^2)).
    """

    sigma: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DiscreteGaussianVectorDpEvent(dp_accounting.DpEvent):
    """Represents whole numbers plus discrete Gaussian noise, where one unit moves some cells.

    The library's own accountants do not know it, and refuse it.

    Attributes:
        noise_multiplier: The scale of the noise over `sensitivity`.
        sensitivity: The largest L2 length of what one unit adds.
        cells: The most cells that it adds to.
    """

    noise_multiplier: float
    sensitivity: int
    cells: int


def to_library(event: events.DpEvent) -> dp_accounting.DpEvent:
    """The library's event of the same name, with the same fields."""
    match event:
        case events.ZCDpEvent(rho=rho):
            return dp_accounting.ZCDpEvent(rho=rho)
        case events.TruncatedZCDpEvent(rho=rho, omega=omega):
            return TruncatedZCDpEvent(rho=rho, omega=omega)
        case events.GaussianDpEvent(noise_multiplier=z):
            return dp_accounting.GaussianDpEvent(z)
        case events.DiscreteGaussianDpEvent(sigma=sigma):
            return DiscreteGaussianDpEvent(sigma=sigma)
        case events.DiscreteGaussianVectorDpEvent(noise_multiplier=z, sensitivity=change, cells=cells):
            return DiscreteGaussianVectorDpEvent(noise_multiplier=z, sensitivity=change, cells=cells)
        case events.PoissonSampledDpEvent(sampling_probability=q, event=gaussian):
            return dp_accounting.PoissonSampledDpEvent(q, to_library(gaussian))
        case events.SelfComposedDpEvent(event=one, count=count):
            return dp_accounting.SelfComposedDpEvent(to_library(one), count)
        case events.ComposedDpEvent(events=parts):
            return dp_accounting.ComposedDpEvent([to_library(part) for part in parts])
    raise ValueError(f'Expected an event of models.privacy.events, got event={event!r}. Add its translation.')


def from_library(event: dp_accounting.DpEvent) -> events.DpEvent:
    """Our event for one of the library's, such as the one that a DP-SGD library states for itself.

    Raises:
        ValueError: We have no such event, or cannot account for its form.
    """
    match event:
        case dp_accounting.ZCDpEvent(rho=rho, xi=0.0):
            return events.ZCDpEvent(rho=rho)
        case TruncatedZCDpEvent(rho=rho, omega=omega):
            return events.TruncatedZCDpEvent(rho=rho, omega=omega)
        case dp_accounting.GaussianDpEvent(noise_multiplier=z):
            return events.GaussianDpEvent(noise_multiplier=z)
        case DiscreteGaussianDpEvent(sigma=sigma):
            return events.DiscreteGaussianDpEvent(sigma=sigma)
        case DiscreteGaussianVectorDpEvent(noise_multiplier=z, sensitivity=change, cells=cells):
            return events.DiscreteGaussianVectorDpEvent(noise_multiplier=z, sensitivity=change, cells=cells)
        case dp_accounting.PoissonSampledDpEvent(sampling_probability=q, event=gaussian):
            inner = typing.cast(events.GaussianDpEvent, from_library(gaussian))
            return events.PoissonSampledDpEvent(sampling_probability=q, event=inner)
        case dp_accounting.SelfComposedDpEvent(event=one, count=count):
            return events.SelfComposedDpEvent(event=from_library(one), count=count)
        case dp_accounting.ComposedDpEvent(events=parts):
            return events.ComposedDpEvent(events=tuple(map(from_library, parts)))
    raise ValueError(
        f'Expected an event that models.privacy.events has a twin of, got event={event!r}. Its '
        'cost is not known here.'
    )
