"""The sentences of a privacy report that belong to no part of a mechanism, from public values alone."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from models.privacy import accounting
from models.privacy.facts import Facts, Reproduction, Statement
from models.privacy.numbers import format_exact, format_up
from models.privacy.report.groups import CountSource
from models.privacy.report.ledger import LedgerEntry, guarantee_of_all_runs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Together:
    """A run and the releases that went into it, for the statement of the guarantee.

    Attributes:
        epsilon: Of all of them.
        names: What they are called.
        run: What the run is called.
    """

    epsilon: float
    names: str
    run: str


def guarantee(
    weakest: Facts,
    epsilon: float | None,
    delta: float,
    counts_rho: float,
    one: str,
    *,
    released: str,
    together: Together | None = None,
) -> str:
    """The formal statement of the guarantee.

    Args:
        weakest: The part with the weakest statement, which is that of the run.
        epsilon: None if that statement is not (epsilon, delta).
        delta: As set by the curator.
        counts_rho: zCDP cost of the stages that have a price in advance.
        one: The unit of privacy, as a noun.
        released: What the statement is about.
        together: The run and what went into it; None where nothing adds up with it.
    """
    shown = format_exact(delta)
    if weakest.statement_words is None:
        up = format_up((epsilon if together is None else together.epsilon) or 0.0)
        with_releases, alone = '', ''
        if together is not None:
            with_releases = f', with {together.names},'
            own = f'(ε = {format_up(epsilon or 0.0)}, δ = {shown})'
            alone = f' {together.run[0].upper()}{together.run[1:]} alone, given what went in, is {own}.'
        return (
            f'{released}{with_releases} are (ε = {up}, δ = {shown})-differentially private under adding or '
            f'removing any one {one}: no set of outputs becomes more than e^{up} times as likely, plus '
            f'{shown}.{alone}'
        )
    text = weakest.statement_words.guarantee.format(one=one)
    if not counts_rho:
        return text
    alone = format_up(accounting.epsilon_from_rho(counts_rho, delta))
    return f'{text} The noisy counts alone are (ε = {alone}, δ = {shown})-differentially private.'


def dp_setting(statement: Statement) -> str:
    """Who is trusted."""
    what = 'guarantee' if statement == 'differential privacy' else 'statement'
    return (
        'Central differential privacy with a trusted curator: the curator holds the records, runs the '
        f'job and publishes its output. The {what} is about what readers of that output can learn.'
    )


def data_accesses(
    statement: Statement,
    ledger: LedgerEntry | None,
    one: str,
    covered: str = 'Covered: this run, from reading the records to the corpus and this report.',
) -> tuple[str, ...]:
    """What the guarantee covers and what it does not."""
    tuning = (
        'Not covered: choosing the settings. Looking at the records, or at the output of trial runs on '
        'them, to tune a setting is a further access.'
    )
    if ledger is None:
        add_up = 'costs add up (ρ by ρ)' if statement == 'differential privacy' else 'losses add up'
        others = (
            f'Not covered: other runs on the same records. Their {add_up}, and this run was not charged to a '
            'ledger.'
        )
        return covered, others, tuning
    return (
        covered,
        f'Covered together: {guarantee_of_all_runs(ledger, one)}',
        'Not covered: runs on the same records that were not charged to this ledger under this name, and '
        'runs charged after this one, whose reports state the sum anew.',
        tuning,
    )


def delta_relation(
    delta: float, units: int | None, source: CountSource | None, many: str, sample_rate: float = 1.0
) -> str:
    """How delta compares with the public number of units."""
    shown = format_exact(delta)
    if units is None:
        return (
            f'δ = {shown} was set by the curator. No number of {many} is public, so none is compared with it.'
        )
    counted = 'the noisy count' if sample_rate == 1 else 'the noisy count of the sample over its rate'
    basis = f'n = {units:,} {many} ({"declared" if source == "declared" else counted})'
    if units < 2:
        return f'δ = {shown} was set by the curator. {basis} is too few for a comparison.'
    exponent = math.log(delta) / math.log(units)
    relation = f'δ = {shown} is n^{exponent:.2f} for {basis}'
    if delta * units < 1:
        return f'{relation}, below 1/n.'
    return (
        f'{relation}. That is not below 1/n: such a δ alone would allow a mechanism that publishes the '
        f'content of some {many}. Choose a smaller δ.'
    )


def no_figure(delta: float) -> str:
    """The sentence in place of `delta_relation` if the report states no figure."""
    return f'δ = {format_exact(delta)} was set by the curator. No figure of this report goes with it.'


BEFORE_THE_RUN = Facts(
    assumptions_of_curator=(
        'The labels, the public prompt and every setting were chosen without looking at the records; the '
        'public prompt holds no private text.',
    )
)
_DURING_THE_RUN = Facts(
    assumptions_enforced=(
        'All randomness of decoding derives from a secret 256-bit run key by name, so that a step that is '
        'repeated draws the same noise and is not a second release.',
        'A malformed record, or one whose label is not declared, is left out without stopping the run and '
        'without a trace in any released file.',
    ),
    assumptions_of_curator=(
        'The model was not trained on these records.',
        'The run key stays secret; the work directory, its logs and the restricted report are not published.',
    ),
    limits=(
        'The randomness is pseudo-random: the guarantee holds against readers who cannot break BLAKE2b '
        'and SHAKE-256.',
        'The analysis is over real numbers; the job computes in floating point.',
    ),
)


# The end of a guarantee.
GIVEN = (
    ' It is a statement of this run alone, which is given what was released before: see what is not covered.'
)


def during_the_run(*, has_adapter: bool) -> Facts:
    """The assumptions of any run while it lasts.

    Args:
        has_adapter: Whether the model that reads records has an adapter, which may know of them.
    """
    if not has_adapter:
        return _DURING_THE_RUN
    below = 'The weights below the adapter were not trained on these records.'
    return dataclasses.replace(
        _DURING_THE_RUN, assumptions_of_curator=(below, *_DURING_THE_RUN.assumptions_of_curator[1:])
    )


def sampled(rate: float, one: str, many: str) -> Facts:
    """The facts of a run on a sample of its units."""
    return Facts(
        assumptions_enforced=(
            f'The run takes a sample of the {many}: each with probability {rate:g}, whole or not at all, by '
            f'a keyed hash of its own, which depends on no other {one} and plays no part in who shares a '
            f'batch. No amplification by sampling is claimed: every figure is that of a run on all {many}.',
        )
    )


def declared_units(many: str) -> Facts:
    """The assumption behind a declared number of units."""
    return Facts(assumptions_of_curator=(f'The declared number of {many} is public.',))


def limits(weakest: Facts, parts: Iterable[Facts], one: str, during: Facts) -> tuple[str, ...]:
    """What the statement does not say.

    Args:
        weakest: The part that decides what kind of statement holds.
        parts: All parts; theirs are the limits of (epsilon, delta).
        one: The unit of privacy, as a noun.
        during: Facts of the run while it lasts.
    """
    quality = 'It does not say that the text is true, fair or harmless, nor that it resembles the records.'
    words = weakest.statement_words
    of_statement = (
        tuple(row for part in parts for row in part.limits)
        if words is None
        else tuple(row.format(one=one) for row in words.limits)
    )
    return (
        quality,
        'It does not hide what is common to many records: learning that is the purpose.',
        'It does not cover what the language model knew before this run.',
        *of_statement,
        *during.limits,
    )


def reproduction(parts: Sequence[Reproduction], delta: float) -> str:
    """Lines of Python that print rho and epsilon of all `parts` together; empty without any."""
    if not parts:
        return ''
    values = (
        *(line for part in parts for line in part.settings),
        f'delta = {delta!r}',
        *(line for part in parts for line in part.steps),
        f'rho = {" + ".join(part.cost for part in parts)}',
    )
    largest = [part.largest_order for part in parts if part.largest_order]
    if not largest:
        return _REPRODUCTION.format(
            values='\n'.join(values),
            functions='exp, log, log1p, sqrt',
            best='at its best alpha',
            highest='700.0  # log(alpha - 1), halved around the root of an increasing slope',
            bound='rho + sqrt(4 * rho * log(1 / delta))  # the closed form is an upper bound',
        )
    omega = largest[0] if len(largest) == 1 else f'min({", ".join(largest)})'
    return _REPRODUCTION.format(
        values='\n'.join(values),
        functions='exp, log, log1p',
        best=f'at its best alpha up to {omega}',
        highest=f'log({omega} - 1)  # log(alpha - 1), halved around the root of an increasing slope',
        bound=f'{omega} * rho + log(1 / delta) / ({omega} - 1)  # of {omega} alone: an upper bound',
    )


_REPRODUCTION = """\
from math import {functions}

{values}

def delta_at(epsilon):  # Canonne, Kamath and Steinke 2020, Corollary 13, {best}
    low, high = -700.0, {highest}
    for _ in range(200):
        x = (low + high) / 2
        slope = (2 * exp(x) + 1) * rho - epsilon + x - log1p(exp(x))
        low, high = (x, high) if slope < 0 else (low, x)
    alpha = 1 + exp(x)
    return exp(min(0.0, exp(x) * (alpha * rho - epsilon) - x + alpha * (x - log1p(exp(x)))))

low, high = 0.0, {bound}
for _ in range(200):
    epsilon = (low + high) / 2
    low, high = (epsilon, high) if delta_at(epsilon) > delta else (low, epsilon)
print(f'rho = {{rho:.10g}}, epsilon = {{high:.10g}}')
"""
