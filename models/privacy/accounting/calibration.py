"""Which settings fit into a target: the inverse of pricing."""

import math
import typing

from models.privacy.accounting import conversion, zcdp

if typing.TYPE_CHECKING:
    from models.privacy.params import MechanismParams


def solve_max_private_tokens(
    params: 'MechanismParams', *, epsilon: float, delta: float, other_rho: float
) -> int:
    """Largest cap r for which the whole run stays within (epsilon, delta).

    Args:
        params: Every setting but the cap, whose value is not read.
        epsilon: Target.
        delta: Target.
        other_rho: rho of the run's other releases (noisy counts).

    Raises:
        ValueError: Not even one private token fits.
    """
    available = conversion.rho_from_epsilon(epsilon, delta) - other_rho
    per_token = zcdp.rho_per_private_token(params)
    cap = math.floor(available / per_token) if available > 0 else 0
    while cap > 0 and conversion.epsilon_from_rho(cap * per_token + other_rho, delta) > epsilon:
        cap -= 1  # at most a rounding step
    if cap < 1:
        raise ValueError(
            f'Expected a budget for one private token, got epsilon={epsilon}, delta={delta}, '
            f'rho_per_private_token={per_token:.6g}, rho of noisy counts={other_rho:.6g}. '
            'Raise epsilon, batch_size or temperature, or lower clip_bound.'
        )
    return cap
