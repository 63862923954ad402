"""Whether the figures of a report follow from one another, where its costs are in zCDP."""

import math
from collections.abc import Mapping, Sequence

from models.privacy import accounting
from models.privacy.events import DpEvent
from models.privacy.facts import RhoStage
from models.privacy.report import earlier_releases


def check(
    stages: Sequence[RhoStage],
    *,
    rho_total: float,
    omega: float | None,
    order: float | None,
    epsilon: float,
    delta: float,
    costs: Mapping[str, DpEvent],
) -> None:
    """Refuses a total, orders or an epsilon that do not follow from the stages.

    Args:
        stages: Each with a cost.
        rho_total: What the report states as their sum.
        omega: What it states as the largest order of that sum; None for every order.
        order: What it states as the order that gives epsilon; None where `omega` is.
        epsilon: What it states at delta.
        delta: In (0, 1).
        costs: The events of the stages.

    Raises:
        ValueError: One of them does not follow.
    """
    total = math.fsum(stage.rho for stage in stages if stage.rho is not None)
    if not math.isclose(total, rho_total, rel_tol=1e-9):
        raise ValueError(
            f'Expected rho_total to be the sum over the stages, got rho_total={rho_total!r}, '
            f'sum={total!r}. Build the report with build_privacy_report and do not edit it.'
        )
    least = min((stage.omega for stage in stages if stage.omega is not None), default=None)
    largest_order = math.inf if least is None else least
    best = accounting.optimal_order(rho_total, delta, largest_order=largest_order)
    if (
        omega != least
        or (order is None) != (least is None)
        or not math.isclose(best if order is None else order, best, rel_tol=1e-6)
    ):
        raise ValueError(
            "Expected omega to be the least of the stages', and order the best up to it, got "
            f'omega={omega!r}, order={order!r}. Build the report with build_privacy_report and '
            'do not edit it.'
        )
    computed = earlier_releases.epsilon_alone(costs, delta)
    if not earlier_releases.follows(epsilon, computed, costs.values(), delta):
        raise ValueError(
            f'Expected epsilon to follow from the stages and delta, got epsilon={epsilon!r}, '
            f'computed={computed!r}. Build the report with build_privacy_report and do not edit it.'
        )
