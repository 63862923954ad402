"""The first pages of a privacy report: what whoever signs a release needs to know, in plain words.

Every value comes from the report, but for the published values of epsilon beside it, which are those of
published_epsilons.json.
"""

import dataclasses
import functools
import importlib.resources
import json
import math

from models.privacy import guess, report
from models.privacy.report.composition import Guarantee

PRIORS = (0.01, 0.1, 0.5)
_PUBLISHED = 'published_epsilons.json'
_EVEN = 0.5
_PERCENT = '\N{NO-BREAK SPACE}%'


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedEpsilon:
    """An epsilon that somebody has published of a release of their own.

    Attributes:
        who: Who released it.
        what: What was released.
        year: Of the release.
        protects: Whose data, and how much of it, one epsilon is about.
        adds_up_over: The period after which a person is charged again; None if epsilon is for all time.
        epsilon: One value, or the least and the largest of several releases.
        delta: None where it is 0.
        source: Who says so, and where.
        address: Where to read it.
    """

    who: str
    what: str
    year: int
    protects: str
    adds_up_over: str | None
    epsilon: tuple[float, ...]
    delta: float | None
    source: str
    address: str

    @property
    def shown_epsilon(self) -> str:
        """One number, or a range."""
        return '–'.join(report.format_exact(value) for value in self.epsilon)

    @property
    def shown_delta(self) -> str:
        """The number, or 0."""
        return '0' if self.delta is None else report.format_exact(self.delta)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GuessRow:
    """Ranges of one guess after reading, as text.

    Attributes:
        before: The guess before reading.
        presence: The range afterwards, of a guess that a unit is in the records.
        contents: The same of a guess at what it says, by somebody who knows that it is in them.
    """

    before: str
    presence: str
    contents: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signer:
    """The numbers of the first pages.

    Attributes:
        even: What a guess of one half may become, (at least, at most); None without epsilon.
        so_far: The guarantee of all releases that the ledger has charged so far, and of those that went in
            and it lacks; None where there is one.
        even_together: The same guess after reading these; None where there is one.
        chance_of_short: The largest delta of the two, as a chance.
        is_large: Whether a guess of one half may come close to certainty.
        guesses: One row for each prior.
        chance: delta as a chance: '1 in 100,000'.
        chance_of_contents: The same for a guess at what a unit says.
        twice_epsilon: 2 epsilon, which goes with that.
        delta_is_small: Whether delta is below one over the number of units; None without such a number.
        published: Values of epsilon that others published.
    """

    even: tuple[str, str] | None
    so_far: Guarantee | None
    even_together: tuple[str, str] | None
    chance_of_short: str
    is_large: bool
    guesses: tuple[GuessRow, ...]
    chance: str
    chance_of_contents: str
    twice_epsilon: str
    delta_is_small: bool | None
    published: tuple[PublishedEpsilon, ...]


def of_report(privacy_report: report.PrivacyReport) -> Signer:
    """The numbers of the first pages of a report."""
    epsilon, delta, entry = privacy_report.epsilon, privacy_report.delta, privacy_report.ledger
    twice, delta_of_contents = guess.of_contents(epsilon or 0.0, delta)
    units = privacy_report.units
    is_alone = epsilon is None or entry is None or (entry.run_number == 1 and not privacy_report.outside)
    so_far = None if is_alone else privacy_report.together
    largest = max(epsilon or 0.0, 0.0 if so_far is None else so_far.epsilon)
    return Signer(
        even=None if epsilon is None else _range(guess.guess_after(_EVEN, epsilon)),
        so_far=so_far,
        even_together=None if so_far is None else _range(guess.guess_after(_EVEN, so_far.epsilon)),
        chance_of_short=chance(delta if so_far is None else max(delta, so_far.delta)),
        is_large=guess.guess_after(_EVEN, largest).most > guess.NEAR_CERTAINTY,
        guesses=() if epsilon is None else tuple(_guess_row(prior, epsilon, twice) for prior in PRIORS),
        chance=chance(delta),
        chance_of_contents=chance(delta_of_contents),
        twice_epsilon=report.format_up(twice),
        delta_is_small=None if units is None or units < 2 else delta * units < 1,
        published=published(),
    )


def even_guess(epsilon: float) -> str:
    """The range of a guess of one half after reading."""
    return ' to '.join(_range(guess.guess_after(_EVEN, epsilon)))


@functools.cache
def published() -> tuple[PublishedEpsilon, ...]:
    """Values of epsilon that others published: first those for all time, then those that add up."""
    text = (importlib.resources.files('pipeline.pages') / _PUBLISHED).read_text(encoding='utf-8')
    return tuple(PublishedEpsilon(**{**row, 'epsilon': tuple(row['epsilon'])}) for row in json.loads(text))


def percent(value: float, complement: float, *, up: bool) -> str:
    """A probability in percent, rounded so that a bound still holds; near 100 % it keeps its digits.

    >>> print(percent(0.7310586, 0.2689414, up=True), percent(0.2689414, 0.7310586, up=False))
    73.2\N{NO-BREAK SPACE}% 26.8\N{NO-BREAK SPACE}%
    >>> print(percent(0.9999546, 0.0000454, up=True), percent(0.0000454, 0.9999546, up=False))
    99.9955\N{NO-BREAK SPACE}% 0.0045\N{NO-BREAK SPACE}%
    >>> print(percent(1.0, 1e-30, up=True), percent(1e-30, 1.0, up=False))
    100\N{NO-BREAK SPACE}% 0\N{NO-BREAK SPACE}%
    """
    near = min(value, complement)
    digits = 3 if near >= 0.1 else 2
    if near < 1e-6:
        shown = '0' if up == (value > complement) else '0.0001'
    elif up == (value <= complement):
        shown = report.format_up(100 * near, digits)
    else:
        shown = report.format_down(100 * near, digits)
    if value <= complement:
        return f'{shown}{_PERCENT}'
    places = len(shown.partition('.')[2])
    return f'{100 - float(shown):.{places}f}{_PERCENT}'


def chance(delta: float) -> str:
    """A small probability as a chance that is at least as large.

    >>> chance(1e-5), chance(3.98e-5), chance(0.7)
    ('1 in 100,000', '1 in 25,125', '1 in 1')
    """
    # 1 part in 10¹² of slack, or the binary form of 1e-5 would give 99,999.
    return f'1 in {math.floor((1 + 1e-12) / delta):,}'


def _range(bounds: guess.Guess) -> tuple[str, str]:
    return (
        percent(bounds.least, bounds.least_complement, up=False),
        percent(bounds.most, bounds.most_complement, up=True),
    )


def _guess_row(prior: float, epsilon: float, twice: float) -> GuessRow:
    presence, contents = (' to '.join(_range(guess.guess_after(prior, each))) for each in (epsilon, twice))
    return GuessRow(before=f'{100 * prior:.0f}{_PERCENT}', presence=presence, contents=contents)
