"""A made-up aggregate: this file and one call of `register` are all that a new one takes.

A slow twin goes into the table of the oracles, for the contract's tests alone.
"""

import contextlib
import typing
from collections.abc import Iterator
from typing import Any, ClassVar

import jax
import numpy as np

from models.privacy import events
from models.privacy.aggregates import AGGREGATES, Aggregate, aggregate, clipping, register
from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity
from models.privacy.public_numbers import PublicNumbers
from models.privacy.sampling import MAX_CLIP_OVER_TEMPERATURE
from tests import oracles


@typing.final
class Halved(Aggregate):
    """Half the mean of clipped logits: as little a mechanism of its own as one can be."""

    name: ClassVar[str] = 'halved'
    summary: ClassVar[str] = 'half the average of the private logits, clipped'
    default_clip_bound: ClassVar[float] = 4.0
    default_temperature: ClassVar[float] = 2.0
    default_public_top_k: ClassVar[int | None] = None
    reads_public_logits: ClassVar[bool] = False
    takes_reference: ClassVar[bool] = False
    has_price_in_advance: ClassVar[bool] = True
    largest_clip_over_temperature: ClassVar[float] = MAX_CLIP_OVER_TEMPERATURE

    def tally(self, logits: Any, is_private: Any, candidates: Any, params: PublicNumbers) -> Any:
        return aggregate.sum_over_contexts(
            lambda rows: clipping.clip_logits(rows, params.clip_bound, candidates.counted),
            logits,
            is_private,
            params.clip_bound,
        )

    def combine(self, tallied: Any, candidates: Any, params: PublicNumbers) -> jax.Array:
        return aggregate.average(tallied, params) / 2

    def sensitivity(self, params: PublicNumbers) -> float:
        return aggregate.bounded_sensitivity(params) / 2

    def event(self, params: PublicNumbers) -> events.ZCDpEvent:
        return aggregate.exponential_mechanism_event(self.sensitivity(params), params.temperature)

    def facts(self, params: PublicNumbers) -> Facts:
        rho = params.max_private_tokens * self.event(params).rho
        stage = RhoStage(name='Private tokens', rho=rho, explanation='A test.', formula='r · …', numbers='')
        moved = Sensitivity(quantity='Half a mean', value=self.sensitivity(params), formula='c/2s')
        arithmetic = Reproduction(
            settings=(f'c = {params.clip_bound!r}', f'tau = {params.temperature!r}'),
            cost='0.5 * (change * c / (2 * s * tau)) ** 2',
        )
        return Facts(
            stages=(stage,), sensitivities=(moved,), on_replacement='all doubles', reproduction=arithmetic
        )


def _halved_twin(logits: np.ndarray, public: np.ndarray, s: float, c: float) -> np.ndarray:
    return oracles.mean_aggregate(logits, s, c) / 2


@contextlib.contextmanager
def registered(strategy: Aggregate) -> Iterator[str]:
    """The name of an aggregate that one call registered, with a twin, until the block ends."""
    register(strategy)
    oracles.TWINS[strategy.name] = oracles.Twin(_halved_twin)
    try:
        yield strategy.name
    finally:
        del AGGREGATES[strategy.name], oracles.TWINS[strategy.name]
