"""The cost of a run: the events of its stages under one neighbouring relation, and their composition."""

import collections
import dataclasses
import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from models.privacy import codec
from models.privacy.accounting.conversion import RenyiCurve
from models.privacy.events import (
    ComposedDpEvent,
    DiscreteGaussianDpEvent,
    DiscreteGaussianVectorDpEvent,
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
    TruncatedZCDpEvent,
    ZCDpEvent,
)

# Costs under different relations do not add up. The dataset states which unit is added or removed, a
# record or a user (`pipeline.ledger.budget.Dataset`).
NeighboringRelation = Literal['add-or-remove-one']


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCost:
    """The cost of a run, stage by stage. Public.

    Every stage is charged, whatever its output. Nothing here depends on the records.

    Attributes:
        schema: What kind of document this is.
        schema_version: Changes with every change that a reader has to know of.
        neighboring_relation: What two neighbouring datasets differ in, for every stage.
        stages: Event by name of the stage, in the order of the run; not empty.
    """

    __pydantic_config__: typing.ClassVar[Any] = codec.STRICT

    schema: Literal['dp-corpus/run-cost'] = 'dp-corpus/run-cost'
    schema_version: Literal[1] = 1
    neighboring_relation: NeighboringRelation = 'add-or-remove-one'
    stages: Mapping[str, DpEvent]

    def __post_init__(self) -> None:
        if self.neighboring_relation not in typing.get_args(NeighboringRelation):
            raise ValueError(
                "Expected neighboring_relation='add-or-remove-one', got "
                f'neighboring_relation={self.neighboring_relation!r}. Costs under different relations do not '
                'add up.'
            )
        if not self.stages:
            raise ValueError('Expected stages, got none. A run that releases nothing has no cost to state.')
        for event in self.stages.values():
            curve_of(event)  # refuses an unknown one here, not where the sum is wanted
        object.__setattr__(self, 'stages', dict(self.stages))  # nobody else's to change

    @classmethod
    def of_rho(cls, rho_by_stage: Mapping[str, float]) -> 'RunCost':
        """The cost of stages that are all in zCDP."""
        return cls(stages={name: ZCDpEvent(rho=rho) for name, rho in rho_by_stage.items()})

    @property
    def curve(self) -> RenyiCurve:
        """All stages composed."""
        return compose(curve_of(event) for event in self.stages.values())

    def to_json_object(self) -> dict[str, Any]:
        """The cost as an object for `json`; `from_json_object` reads it back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json_object(cls, value: Any) -> 'RunCost':
        """Reads a cost.

        Raises:
            ValueError: It is of another schema, or holds an event or a field that is not known.
        """
        return codec.read_object(cls, value, 'a cost of this version', 'Restore the ledger that holds it')


def curve_of(event: DpEvent) -> RenyiCurve:
    """The Rényi curve of an event.

    Raises:
        ValueError: The event is not known, so no bound is either.
    """
    match event:
        case ZCDpEvent(rho=rho):
            return RenyiCurve(rho=rho)
        case TruncatedZCDpEvent(rho=rho, omega=omega):
            return RenyiCurve(rho=rho, largest_order=omega)
        case GaussianDpEvent(noise_multiplier=z):
            return RenyiCurve(rho=1 / (2 * z**2))
        case DiscreteGaussianDpEvent(sigma=sigma):
            return RenyiCurve(rho=1 / (2 * sigma**2))
        case DiscreteGaussianVectorDpEvent(noise_multiplier=z):
            return RenyiCurve(rho=1 / (2 * z**2))
        case PoissonSampledDpEvent(sampling_probability=q, event=gaussian):
            if q == 1:
                return curve_of(gaussian)
            return RenyiCurve(rho=0.0, sampled=((q, gaussian.noise_multiplier, 1),))
        case SelfComposedDpEvent(event=one, count=count):
            curve = curve_of(one)
            return RenyiCurve(
                rho=count * curve.rho,
                largest_order=curve.largest_order,
                sampled=tuple((q, z, count * steps) for q, z, steps in curve.sampled),
            )
        case ComposedDpEvent(events=parts):
            return compose(map(curve_of, parts))
    raise ValueError(
        f'Expected an event of models.privacy.events, got event={event!r}. Its cost is not known '
        'here: teach `curve_of` its bound, with a test against a slow twin.'
    )


def compose(curves: Iterable[RenyiCurve]) -> RenyiCurve:
    """Adaptive composition: divergences add up at the orders at which all curves hold (BS Lemma 2.3)."""
    curves = tuple(curves)
    sampled: collections.Counter[tuple[float, float]] = collections.Counter()
    for curve in curves:
        for q, z, steps in curve.sampled:
            sampled[q, z] += steps
    return RenyiCurve(
        rho=math.fsum(curve.rho for curve in curves),
        largest_order=min((curve.largest_order for curve in curves), default=math.inf),
        sampled=tuple((q, z, steps) for (q, z), steps in sorted(sampled.items())),
    )
