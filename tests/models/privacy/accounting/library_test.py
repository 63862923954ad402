"""A run as an event of the dp-accounting library."""

import dataclasses

import dp_accounting
import pytest
from dp_accounting import rdp

from models.privacy import accounting
from models.privacy.params import MechanismParams

PARAMS = MechanismParams(
    batch_size=255, clip_bound=10.0, temperature=2.0, max_private_tokens=100, max_batch_tokens=1000
)
SPARSE = dataclasses.replace(PARAMS, threshold=0.3, threshold_noise_scale=0.1)

# RDP orders dense enough that the minimum over them is within 1e-3 of the infimum on the grid below.
ORDERS = [1 + 10 ** (i / 100) for i in range(-300, 500)]


def _library_epsilon(event: dp_accounting.DpEvent, delta: float) -> float:
    accountant = rdp.RdpAccountant(orders=ORDERS)
    accountant.compose(event)
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize('params, other_rho', [(PARAMS, 0.0), (SPARSE, 0.005)])
def test_the_event_composes_to_the_runs_price(params: MechanismParams, other_rho: float) -> None:
    event = accounting.to_dp_event(params, other_rho=other_rho)
    total = accounting.generation_rho(params) + other_rho

    def rho_of(event: dp_accounting.DpEvent) -> float:
        if isinstance(event, dp_accounting.ZCDpEvent):
            return event.rho
        if isinstance(event, dp_accounting.SelfComposedDpEvent):
            return event.count * rho_of(event.event)
        assert isinstance(event, dp_accounting.ComposedDpEvent)
        return sum(map(rho_of, event.events))

    assert rho_of(event) == pytest.approx(total, rel=1e-14)
    whole = _library_epsilon(dp_accounting.ZCDpEvent(rho=total), 1e-6)
    assert _library_epsilon(event, 1e-6) == pytest.approx(whole, rel=1e-12)
