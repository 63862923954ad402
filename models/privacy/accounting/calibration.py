"""The settings that a target (epsilon, delta) pays for: the inverse of pricing."""

import decimal
import math
from collections.abc import Callable

from models.privacy.accounting import conversion, zcdp
from models.privacy.params import MechanismParams


def solve_max_private_tokens(
    params: MechanismParams, *, epsilon: float, delta: float, other_rho: float
) -> int:
    """Largest cap r for which the whole run stays within (epsilon, delta).

    Raises:
        ValueError: Not even one private token fits; it names the smallest epsilon that pays for one.
    """
    per_token = zcdp.rho_per_private_token(params)

    def cap_of(epsilon: float) -> int:
        available = conversion.rho_from_epsilon(epsilon, delta) - other_rho
        cap = math.floor(available / per_token) if available > 0 else 0
        while cap > 0 and conversion.epsilon_from_rho(cap * per_token + other_rho, delta) > epsilon:
            cap -= 1  # at most a rounding step
        return cap

    cap = cap_of(epsilon)
    if cap < 1:
        least = conversion.epsilon_from_rho(per_token + other_rho, delta)
        raise ValueError(
            f'Expected a budget for one private token, got epsilon={epsilon}, delta={delta}, '
            f'rho_per_private_token={per_token:.6g}, rho of noisy counts={other_rho:.6g}. '
            f'{_remedy(_smallest_epsilon(lambda tried: cap_of(tried) >= 1, least))}.'
        )
    return cap


def _smallest_epsilon(pays: Callable[[float], bool], least: float) -> float:
    """The first epsilon of three digits, from `least` upwards, for which `pays` is true."""
    epsilon = float(_SHORT.create_decimal_from_float(least))
    while not pays(epsilon):
        epsilon = float(_SHORT.create_decimal_from_float(epsilon * 1.001))
    return epsilon


def _remedy(epsilon: float) -> str:
    return (
        f'--epsilon {epsilon:g} is the smallest that pays for one. Give that or more, raise --batch-size or '
        '--temperature, or lower --clip-bound'
    )


_SHORT = decimal.Context(prec=3, rounding=decimal.ROUND_CEILING)
# B and ω are public settings that people read.
_READABLE = decimal.Context(prec=6, rounding=decimal.ROUND_FLOOR)
_READABLE_UP = decimal.Context(prec=6, rounding=decimal.ROUND_CEILING)
# Digits of ω − 1.
_DIGITS = 3
_GRID = 33
_SECTIONS = 16


def worst_case_price(params: MechanismParams) -> float:
    """The largest ρ that a context pays for one token, with individual accounting: ½ (2c/(sτ))².

    A vote is at most 2c, and a price tries the square of the largest vote as a level
    (models/privacy/individual.py).
    """
    return 2 * (params.clip_bound / (params.batch_size * params.temperature)) ** 2


def worst_case_tokens(params: MechanismParams, context_budget: float) -> int:
    """Tokens that the budget of a worst-case context pays for. Most contexts vote on far more."""
    return math.floor(context_budget / worst_case_price(params))


def worst_case_budget(params: MechanismParams, tokens: int) -> float:
    """The budget B with which even a worst-case context votes on that many tokens.

    It includes the rounding of prices and their sum in float32 (models/privacy/individual.py).
    """
    return float(
        _READABLE_UP.create_decimal(tokens * worst_case_price(params) * (1 + (tokens + 8) * 2.0**-23))
    )


def solve_context_budget(
    params: MechanismParams,
    *,
    epsilon: float,
    delta: float,
    other_rho: float,
    omega: float | None = None,
    to_best: bool = False,
) -> tuple[float, float]:
    """The largest budget B of one context that keeps the whole run within (epsilon, delta), and its ω.

    If records share slots, a context may replace another, and the run then costs 4 B (METHOD 4d). If no ω is
    given, it is the one with the largest B(ω) e^(−Δ (ω−1)/3), Δ = 2c/(sτ) or 4c/(sτ): a price grows with ω
    by e^(k₁ h + …), where k₁ contains ω/3 and the size h of a vote is at most about Δ.

    Args:
        params: Every setting; the values of B and ω are not read.
        epsilon: Target.
        delta: Target.
        other_rho: rho of the run's other releases (noisy counts, centres), a bound at every order.
        omega: ω, > 1; None chooses it.
        to_best: Whether a chosen ω reaches the order at which the whole target converts best. It then also
            reaches the order of any ledger with at least that budget. Prices are a little higher.

    Returns:
        B and ω; `epsilon_from_rho(change² B + other_rho, delta, largest_order=ω)` is at most epsilon.

    Raises:
        ValueError: B does not pay for one token of a worst-case context; the message names the smallest
            epsilon that does.
    """
    change = params.change.value

    def budget_of(epsilon: float) -> tuple[float, float]:
        if omega is not None:
            chosen = omega
        elif to_best:
            chosen = _rounded(_best_order(epsilon, delta), up=True)
        else:
            chosen = _solve_omega(params, epsilon, delta, other_rho)
        conversion.rho_from_epsilon(epsilon, delta)  # refuses what is no target
        try:
            available = conversion.rho_from_epsilon(epsilon, delta, largest_order=chosen) - other_rho
        except ValueError:  # no rho gives epsilon at so small an order: the caller says what does
            available = 0.0
        budget = float(_READABLE.create_decimal_from_float(max(0.0, available) / change**2))
        step = 1e-15
        while budget > 0 and (
            conversion.epsilon_from_rho(
                math.fsum((change**2 * budget, other_rho)), delta, largest_order=chosen
            )
            > epsilon
        ):
            budget, step = budget * (1 - step), 2 * step  # at most a rounding step
        return budget, chosen

    budget, chosen = budget_of(epsilon)
    if worst_case_tokens(params, budget) < 1:
        price = worst_case_price(params)
        bound = math.inf if omega is None else omega
        least = conversion.epsilon_from_rho(change**2 * price + other_rho, delta, largest_order=bound)
        smallest = _smallest_epsilon(lambda tried: worst_case_tokens(params, budget_of(tried)[0]) >= 1, least)
        raise ValueError(
            f'Expected a budget for one token of a context that adds the whole clip bound, got '
            f'epsilon={epsilon}, delta={delta}, omega={chosen:.6g}, context_budget={budget:.6g}, price of '
            f'that token={price:.6g}, rho of noisy counts={other_rho:.6g}. {_remedy(smallest)}'
            + ('.' if omega is None else ', or leave --omega out, and it is chosen.')
        )
    return budget, chosen


def omega_of_budget(
    params: MechanismParams, context_budget: float, *, delta: float, other_rho: float
) -> float:
    """The smallest ω that does not raise epsilon at a given B: the order at which the run converts best."""
    rho = math.fsum((params.change.value**2 * context_budget, other_rho))
    return _rounded(conversion.optimal_order(rho, delta), up=True)


def _solve_omega(params: MechanismParams, epsilon: float, delta: float, other_rho: float) -> float:
    """ω for `solve_context_budget`: a grid of log(ω−1), then golden-section search around the best one."""
    change = params.change.value
    share = 2 / 3 * change * params.clip_bound / (params.batch_size * params.temperature)

    def worth(log_excess: float) -> float:
        omega = 1 + math.exp(log_excess)
        try:
            rho = conversion.rho_from_epsilon(epsilon, delta, largest_order=omega) - other_rho
        except ValueError:  # no rho gives epsilon at so small an order
            return -math.inf
        return math.log(rho) - share * (omega - 1) if rho > 0 else -math.inf

    # Above the order at which the whole target converts best, B does not grow any more.
    best = _best_order(epsilon, delta)
    high = math.log(best - 1)
    low = high - 7.0
    grid = [low + (high - low) * index / (_GRID - 1) for index in range(_GRID)]
    top = max(range(_GRID), key=lambda index: worth(grid[index]))
    if math.isinf(worth(grid[top])):
        return _rounded(best, up=True)  # nothing is left at any order: the caller says so
    left, right = grid[max(0, top - 1)], grid[min(_GRID - 1, top + 1)]
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(_SECTIONS):
        inner, outer = right - ratio * (right - left), left + ratio * (right - left)
        left, right = (left, outer) if worth(inner) > worth(outer) else (inner, right)
    return _rounded(1 + math.exp((left + right) / 2), up=False)


def _best_order(epsilon: float, delta: float) -> float:
    return conversion.optimal_order(conversion.rho_from_epsilon(epsilon, delta), delta)


def _rounded(omega: float, *, up: bool) -> float:
    """An order rounded so that ω − 1 has few digits."""
    places = _DIGITS - 1 - math.floor(math.log10(omega - 1))
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    return float(decimal.Decimal(omega).quantize(decimal.Decimal(1).scaleb(-places), rounding))
