"""The interface of the methods that a report can describe."""

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

from models.privacy import accounting
from models.privacy.earlier_release import EarlierRelease
from models.privacy.events import DpEvent
from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity, Statement
from models.privacy.public_numbers import Unit
from models.privacy.report import composition


@dataclasses.dataclass(frozen=True, kw_only=True)
class MethodFacts(abc.ABC):
    """The use that a run made of the records. Public.

    Each method is a class with a tag, and a folder of templates of that name with all of its sentences.

    Attributes:
        kind: Name of the method in reports.
        mechanism: Every number that its guarantee depends on.
        releases: All releases that went in, each once: those that the run was given, and what went into
            these.
    """

    did: ClassVar[str]
    """What it did with the records, in words."""

    kind: str
    mechanism: Any
    releases: tuple[EarlierRelease, ...] = ()

    @property
    def unit(self) -> Unit:
        """Whose presence the run hides."""
        unit: Unit = self.mechanism.unit
        return unit

    @property
    def reads_records(self) -> bool:
        """True if the run read records. One that did not adds no cost to that of `releases[0]`."""
        return True

    @property
    def counts_groups(self) -> bool:
        """True if each group of the plan has a noisy count that is paid for."""
        return False

    @property
    def further(self) -> tuple[EarlierRelease, ...]:
        """The releases whose costs are not those of the stages: all, but for the adapter of a mere sample."""
        return self.releases if self.reads_records else self.releases[1:]

    @property
    def counted(self) -> tuple[EarlierRelease, ...]:
        """Those of `further` that epsilon counts: of the same unit of privacy."""
        return tuple(release for release in self.further if release.unit == self.unit)

    @property
    def statement(self) -> Statement:
        """The kind of statement that the run makes."""
        return 'differential privacy'

    @property
    @abc.abstractmethod
    def parts(self) -> tuple[Facts, ...]:
        """Its parts with a cost, in the order of payment."""

    @property
    @abc.abstractmethod
    def costs(self) -> Mapping[str, DpEvent]:
        """Event of each stage, by its name; empty without a price in advance."""

    @property
    def rho_per_private_token(self) -> float | None:
        """The price of one more private token per batch; None where tokens have no price of their own."""
        return None

    @property
    def reproductions(self) -> tuple[Reproduction, ...]:
        """The costs in zCDP as lines of Python."""
        return tuple(part.reproduction for part in self.parts if part.reproduction is not None)

    @property
    def stages(self) -> tuple[RhoStage, ...]:
        """The stages that were paid for."""
        return tuple(stage for part in self.parts for stage in part.stages)

    @property
    def sensitivities(self) -> tuple[Sensitivity, ...]:
        """The sensitivity of each quantity to one unit."""
        return tuple(row for part in self.parts for row in part.sensitivities)

    def figures(self, delta: float) -> dict[str, Any]:
        """Every figure of a report that follows from the mechanism and delta, by its field."""
        figures: dict[str, Any] = dict.fromkeys(
            (
                'epsilon',
                'epsilon_of_run',
                'epsilon_closed_form',
                'rho_total',
                'omega',
                'order',
                'rho_per_private_token',
            )
        )
        figures |= {'statement': self.statement, 'stages': self.stages, 'sensitivities': self.sensitivities}
        if self.statement == 'ex-post':
            return figures
        alone = composition.epsilon_alone(self.costs, delta)
        figures['epsilon_of_run'] = alone
        figures['epsilon'] = composition.epsilon_with(alone, self.costs, self.counted, delta)
        curve = accounting.compose(map(accounting.curve_of, self.costs.values()))
        if curve.sampled:
            return figures
        rho, omega = math.fsum(stage.rho or 0.0 for stage in self.stages), curve.largest_order
        figures |= {
            'rho_total': rho,
            'epsilon_closed_form': accounting.epsilon_closed_form(rho, delta, largest_order=omega),
            'rho_per_private_token': self.rho_per_private_token,
        }
        if math.isfinite(omega):
            order = accounting.optimal_order(rho, delta, largest_order=omega)
            figures |= {'omega': omega, 'order': order}
        return figures
