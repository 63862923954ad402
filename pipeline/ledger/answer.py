"""A ledger's answer before a run: whether it fits, what is left, and which settings would fit."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from models.privacy.numbers import format_down, format_exact, format_up
from pipeline.ledger.budget import PrivacyFilter

# Tells if the dataset has room for a run with other values of settings; None where there is no such run.
HasRoom = Callable[[Mapping[str, Any]], bool | None]
# Digits of a value that would fit, and how far below the one that does not it is looked for.
_DIGITS, _LEAST_SHARE = 3, 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class FittingSetting:
    """One setting that alone would make a run fit.

    Attributes:
        name: The setting.
        value: Its largest value with which the run would fit; of a choice, another one with its own
            bounds.
        omega: The largest Rényi order to give with it; None where it may stay as it is.
    """

    name: str
    value: float | str
    omega: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BudgetAnswer:
    """A ledger's answer to a run: does it fit into what the dataset has left? All fields are public.

    Attributes:
        dataset: Name under which the ledger keeps the records' budget.
        fits: True if the run may start.
        is_charged: True if it was charged already; resuming it is free.
        rho_budget: Largest cost of all runs on the dataset together.
        rho_spent: Cost of the runs that were charged.
        rho: The budget that the run takes; its part in zCDP where that alone does not fit.
        rho_left: Budget left for further runs once this one is charged; where it does not
            fit, what is left now.
        epsilon_left: epsilon of one further run that takes all of `rho_left`.
        epsilon_left_up_to_omega: The same of a run with this one's ω, at orders up to it: more, where the
            best order lies above; None of a run whose cost holds at every order.
        privacy_filter: Rule by which the dataset's costs are held against its budget.
        epsilon_bound: The guarantee of all runs, earlier and later, whatever outputs decided: that of the
            largest budget since the first charge, at `delta`.
        lowered_from: That budget in ρ, where a smaller one stands now; None otherwise.
        delta: The dataset's, for all of these.
        epsilon: The run's by itself, at `delta`; the run states its own at its own delta.
        epsilon_together: That of all runs up to and with this one, at `delta`; None where it does not fit.
        fitting: Settings of which one would be enough where the run does not fit.
        sufficient_epsilon: A budget of the dataset that would be enough there, at `delta`; None where the run
            fits, or no budget is.
    """

    dataset: str
    fits: bool
    is_charged: bool
    rho_budget: float
    rho_spent: float
    rho: float
    rho_left: float
    epsilon_left: float
    epsilon_left_up_to_omega: float | None
    privacy_filter: PrivacyFilter
    epsilon_bound: float
    lowered_from: float | None
    delta: float
    epsilon: float
    epsilon_together: float | None
    fitting: tuple[FittingSetting, ...]
    sufficient_epsilon: float | None

    def rows(self, delta: float, omega: float | None = None) -> list[tuple[str, str]]:
        """The answer as rows of a plan's table."""
        if self.is_charged:
            verdict = 'was charged already: resuming it is free'
        else:
            verdict = 'fits' if self.fits else 'DOES NOT FIT: it would not start'
        left = f'ρ = {format_down(self.rho_left)} left {"now" if not self.fits else "after it"}'
        rows = [
            ('Budget', f'{self.dataset}: {verdict}'),
            ('', f'ρ = {format_up(self.rho_spent)} of {format_down(self.rho_budget)} spent, {left}'),
            (
                '',
                f'which is ε = {format_down(self.epsilon_left)} at δ = {format_exact(self.delta)} '
                'for one more run',
            ),
        ]
        if self.epsilon_together is not None and self.rho_spent > 0:
            together = format_up(self.epsilon_together)
            rows.append(('', f'all runs, this one included, are together ε = {together} at that δ'))
        if self.lowered_from is not None:
            bound = format_up(self.epsilon_bound)
            rows.append((
                '', f'whatever outputs decide, the budget before it was lowered holds: ε = {bound}'
            ))  # fmt: skip
        restricted = self.epsilon_left_up_to_omega
        if restricted is not None and omega is not None and restricted > self.epsilon_left * (1 + 1e-3):
            rows.append((
                '', f'or --epsilon {format_down(restricted)} with --omega {omega:.10g}: orders end there'
            ))  # fmt: skip
        if not self.fits:
            at_own = f'; the plan states its ε at its own δ = {format_exact(delta)}'
            alone = (
                f'This run is ε = {format_up(self.epsilon)} by itself at that δ = {format_exact(self.delta)}'
            )
            rows.append(('', alone + (at_own if self.delta != delta else '')))
            rows.append(('', fitting_words(self.fitting, delta)))
            if self.sufficient_epsilon is not None:
                rows.append(('', f'or a budget of ε = {self.sufficient_epsilon:g} at δ = {self.delta:.6g}'))
        return rows


def fitting_words(settings: Sequence[FittingSetting], delta: float) -> str:
    """The settings that would fit, for people, without a full stop."""
    if not settings:
        return 'No smaller run of these settings would fit'
    flags = {setting.name: f'--{setting.name.replace("_", "-")}' for setting in settings}
    shown = ' or '.join(
        f'{flags[setting.name]} {setting.value}'
        if isinstance(setting.value, str)
        else f'at most {flags[setting.name]} {setting.value:.10g}'
        + ('' if setting.omega is None else f' with --omega {setting.omega:.10g}')
        for setting in settings
    )
    return f'To fit, give {shown}' + (f', at δ = {delta:.6g}' if settings[0].name == 'epsilon' else '')


def largest_fitting(
    name: str,
    present: float,
    has_room: HasRoom,
    *,
    is_whole: bool = False,
    others: Mapping[str, Any] | None = None,
) -> float | None:
    """The largest value of a setting, below its present one, with which a run would fit; None without any."""
    changed = dict(others or {})
    high = present
    low = high * _LEAST_SHARE
    while high / low > 1 + 10.0**-_DIGITS:
        middle = math.sqrt(low * high)
        # Too little to buy a token is not too much.
        if has_room({name: math.ceil(middle) if is_whole else middle, **changed}) is False:
            high = middle
        else:
            low = middle
    unit = 10.0 ** (math.floor(math.log10(low)) - _DIGITS + 1)
    value = math.floor(high) if is_whole else float(f'{math.floor(low / unit) * unit:.{_DIGITS - 1}e}')
    return value if has_room({name: value, **changed}) else None
