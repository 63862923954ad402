"""The first pages of a privacy report: what whoever signs a release needs to know, in plain words.

Every value comes from the report, but for the published values of epsilon beside it, which are those of
published_epsilons.json.
"""

import dataclasses
import functools
import importlib.resources
import json
import math
from collections.abc import Mapping

from models.privacy import guess, report
from models.privacy.report import earlier_releases, prediction, text_votes, tuning

PRIORS = (0.01, 0.1, 0.5)
PROOF = 'models/privacy/README.md'
_PUBLISHED = 'published_epsilons.json'
_EVEN = 0.5
# From here on a guess of one half can come close to certainty, and epsilon by itself promises little.
_NEAR_CERTAINTY = 0.99
_NOT_COVERED = 'Not covered: '
_PERCENT = '\N{NO-BREAK SPACE}%'


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublishedEpsilon:
    """What somebody has published of a release of their own.

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
    """What one guess may become, as text.

    Attributes:
        before: The guess before reading.
        presence: The range afterwards, of a guess that a unit is in the records.
        contents: The same of a guess at what it says, by somebody who knows that it is in them.
    """

    before: str
    presence: str
    contents: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumRow:
    """What somebody can learn who reads several releases, as text.

    Attributes:
        read: What they read.
        epsilon: Of all of it together.
        delta: At which epsilon holds.
        presence: What a guess of one half may become.
    """

    read: str
    epsilon: str
    delta: str
    presence: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Voucher:
    """Who vouches for what, and where to look."""

    who: str
    what: str
    where: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signer:
    """The values of the first pages.

    Attributes:
        whose: What of one unit the reader lacks.
        says: The statement of a guess at it: 'the record says'.
        they: 'it is' or 'they are', of what says it.
        released: What was released, in sentences.
        even: What a guess of one half may become, (at least, at most); None without epsilon.
        even_together: The same after reading all releases that the ledger has charged so far, and those that
            went in and it lacks; None where there is one.
        chance_of_short: The largest delta of these two, as a chance.
        is_large: Whether a guess of one half may come close to certainty.
        guesses: One row for each prior.
        chance: delta as a chance: '1 in 100,000'.
        chance_of_contents: The same for a guess at what a unit says.
        twice_epsilon: 2 epsilon, which goes with that.
        delta_is_small: Whether delta is below one over the number of units; None without such a number.
        sums: One row for what readers of several releases learn; empty where there is one, and no ledger.
        published: Values of epsilon that others published.
        not_protected: What the guarantee does not protect, in sentences.
        vouchers: Who vouches for what.
    """

    whose: str
    says: str
    they: str
    released: tuple[str, ...]
    even: tuple[str, str] | None
    even_together: tuple[str, str] | None
    chance_of_short: str
    is_large: bool
    guesses: tuple[GuessRow, ...]
    chance: str
    chance_of_contents: str
    twice_epsilon: str
    delta_is_small: bool | None
    sums: tuple[SumRow, ...]
    published: tuple[PublishedEpsilon, ...]
    not_protected: tuple[str, ...]
    vouchers: tuple[Voucher, ...]


def of_report(privacy_report: report.PrivacyReport) -> Signer:
    """The values of the first pages of a report."""
    epsilon, delta = privacy_report.epsilon, privacy_report.delta
    one, many = prediction.unit_nouns(privacy_report.mechanism.get('unit'))
    twice, delta_of_contents = guess.of_contents(epsilon or 0.0, delta)
    units = privacy_report.units
    so_far = None if epsilon is None else _so_far(privacy_report)
    together = None if so_far is None else so_far[0]
    is_user = many == 'users'
    return Signer(
        whose='the records of one user' if is_user else 'one record',
        says='the user’s records say' if is_user else 'the record says',
        they='they are' if is_user else 'it is',
        released=_released(privacy_report, one, many),
        even=None if epsilon is None else _range(guess.guess_after(_EVEN, epsilon)),
        even_together=None if together is None else _range(guess.guess_after(_EVEN, together)),
        chance_of_short=chance(delta if so_far is None else max(delta, so_far[1])),
        is_large=guess.guess_after(_EVEN, max(epsilon or 0.0, together or 0.0)).most > _NEAR_CERTAINTY,
        guesses=() if epsilon is None else tuple(_guess_row(prior, epsilon, twice) for prior in PRIORS),
        chance=chance(delta),
        chance_of_contents=chance(delta_of_contents),
        twice_epsilon=report.format_up(twice),
        delta_is_small=None if units is None or units < 2 else delta * units < 1,
        sums=_sums(privacy_report),
        published=published(),
        not_protected=_not_protected(privacy_report, many),
        vouchers=_vouchers(privacy_report, one),
    )


@functools.cache
def published() -> tuple[PublishedEpsilon, ...]:
    """Values of epsilon that others published: first those for all time, then those that add up."""
    text = (importlib.resources.files('pipeline.pages') / _PUBLISHED).read_text(encoding='utf-8')
    return tuple(PublishedEpsilon(**{**row, 'epsilon': tuple(row['epsilon'])}) for row in json.loads(text))


def percent(value: float, complement: float, *, up: bool) -> str:
    """A probability in percent, rounded so that a bound still holds; near 100 % it keeps its digits.

    Args:
        value: The probability.
        complement: 1 − `value`.
        up: Whether it is rounded upwards, as an upper bound is.

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


def _range(found: guess.Guess) -> tuple[str, str]:
    return (
        percent(found.least, found.least_complement, up=False),
        percent(found.most, found.most_complement, up=True),
    )


def _guess_row(prior: float, epsilon: float, twice: float) -> GuessRow:
    presence, contents = (' to '.join(_range(guess.guess_after(prior, each))) for each in (epsilon, twice))
    return GuessRow(before=f'{100 * prior:.0f}{_PERCENT}', presence=presence, contents=contents)


def _released(privacy_report: report.PrivacyReport, one: str, many: str) -> tuple[str, ...]:
    model = privacy_report.settings.get('model')
    named = '' if model is None else f' “{model}”'
    examples = f'{privacy_report.corpus.examples:,} synthetic texts'
    if not privacy_report.has_texts:
        what = (
            f'An adapter: numbers that change the language model{named}, trained on the records. Whoever has '
            'it can let the model write texts, as many as they like.'
        )
    elif tuning.is_of_tuning(privacy_report.mechanism):
        what = (
            f'{examples}. The language model{named} wrote them with an adapter that was trained on the '
            'records. The adapter may be released too, and more texts may be written with it.'
        )
    elif text_votes.is_of_text_votes(privacy_report.mechanism):
        what = (
            f'{examples}. Noisy votes of the records chose them from longer lists. The lists and the noisy '
            'votes are released with them.'
        )
    else:
        what = (
            f'{examples}. The language model{named} wrote them while batches of records voted on each word. '
            f'What one {one} may add to a vote is limited.'
        )
    counted = all(group.noisy_count is not None for group in privacy_report.plan)
    labels = {group.label for group in privacy_report.plan} - {None}
    units = privacy_report.units or 0  # fewer than one, by a noisy count, is no number to show
    number = 'a declared number' if privacy_report.units_source == 'declared' else 'a noisy count'
    whose = f'the records of {units:,} users' if many == 'users' else f'{units:,} records'
    return (
        what,
        *((f'Noisy counts of the {many}{" of each label" if labels else ""}.',) if counted else ()),
        'This report, with every setting.',
        *((f'All of it comes from {whose} ({number}).',) if units > 0 else ()),
    )


def _so_far(privacy_report: report.PrivacyReport) -> tuple[float, float] | None:
    """(epsilon, delta) of all runs of the ledger so far and of releases that it lacks; None for one alone."""
    entry = privacy_report.ledger
    if entry is None:
        return None
    lacking = earlier_releases.without_ledger(privacy_report.counted, entry.dataset)
    if lacking:
        return earlier_releases.with_ledger(entry, lacking, privacy_report.delta)
    return (entry.epsilon_after, entry.delta) if entry.run_number > 1 else None


def _sums(privacy_report: report.PrivacyReport) -> tuple[SumRow, ...]:
    entry, epsilon, alone = privacy_report.ledger, privacy_report.epsilon, privacy_report.epsilon_of_run
    counted = privacy_report.counted
    if epsilon is None or alone is None or (entry is None and not counted):
        return ()
    rows = [('This release alone', alone, privacy_report.delta)]
    if counted:
        what = 'the one' if len(counted) == 1 else f'the {len(counted):,}'
        rows.append((f'This release, and {what} that went in', epsilon, privacy_report.delta))
    so_far = _so_far(privacy_report)
    given = {privacy_report.delta, *(() if entry is None else (entry.delta,))}
    if entry is not None:
        if so_far is not None:
            lacking = len(earlier_releases.without_ledger(counted, entry.dataset))
            number = entry.run_number
            runs = 'This release' if number == 1 else f'All {number:,} releases so far'
            rows.append((f'{runs}, and {lacking:,} that the ledger lacks' if lacking else runs, *so_far))
        rows.append(('All that the ledger will ever admit', entry.epsilon_bound, entry.delta))
    return tuple(
        SumRow(
            read=read,
            epsilon=report.format_up(each),
            # A sum of two is not as somebody gave it.
            delta=(report.format_exact if delta in given else report.format_up)(delta),
            presence=' to '.join(_range(guess.guess_after(_EVEN, each))),
        )
        for read, each, delta in rows
    )


def _not_protected(privacy_report: report.PrivacyReport, many: str) -> tuple[str, ...]:
    declared = (
        f' So does the number of {many}, {privacy_report.units:,}, which was declared.'
        if privacy_report.units_source == 'declared'
        else ''
    )
    labels = [group.label for group in privacy_report.plan if group.label is not None]
    return (
        'What many records have in common. To learn that is the purpose: whoever learns from the texts that '
        'a treatment is usual may conclude it of a person, whether or not that person is in the records.',
        'Several users as a whole, such as a family: this report is about each of them alone.'
        if many == 'users'
        else 'A person with several records, as a whole: this report is about each record alone.',
        f'{"Labels and settings" if labels else "Settings"}. They are public, and stand in the release as '
        f'they were given.{declared}',
        'What the language model knew before. A name or an address in a text can come from there. Nor is a '
        'text promised to be true, fair or harmless.',
        *(
            line[0].upper() + line[1:]
            for line in (row.removeprefix(_NOT_COVERED) for row in privacy_report.not_covered)
        ),
    )


def _vouchers(privacy_report: report.PrivacyReport, one: str) -> tuple[Voucher, ...]:
    version = privacy_report.versions.get('dp-corpus')
    is_priced = privacy_report.epsilon is not None
    entry = privacy_report.ledger
    return (
        Voucher(
            who='The curator, who signs',
            what=f'What counts as one {one}, that the input is the right one, and that folders and keys stay '
            'secret.',
            where='The list at the end of this part.',
        ),
        Voucher(
            who='The software, dp-corpus' + ('' if version is None else f' {version}'),
            what=f'The noise, the limit on what one {one} adds'
            + (', and the sum of the costs.' if is_priced else '.'),
            where='“What the code enforces”'
            + (', and “Check the arithmetic”, which computes ε again.' if is_priced else '.'),
        ),
        Voucher(
            who='The proof',
            what='That noise and limits give this ε and δ.'
            if is_priced
            else 'That the loss is no larger than the figure that the curator holds.',
            where=f'{PROOF} of the software, {_sections(privacy_report)}.',
        ),
        *(
            (
                Voucher(
                    who='Reports and cards of earlier runs',
                    what='What the releases cost that went in, and what went into these.',
                    where='“What is covered”, with whose word each is.',
                ),
            )
            if privacy_report.further
            else ()
        ),
        Voucher(
            who='Nobody',
            what='The sum with other releases from the same records: this run was charged to no ledger.',
            where='“What is covered”.',
        )
        if entry is None
        else Voucher(
            who='The ledger',
            what='That no run which was charged to it is left out of the sum, and that none starts beyond '
            'the budget.',
            where=f'“What is covered”, and section 7 of {PROOF}.',
        ),
    )


def _sections(privacy_report: report.PrivacyReport) -> str:
    mechanism: Mapping[str, report.Setting] = privacy_report.mechanism
    if privacy_report.statement == 'ex-post':
        return 'section 6'
    if tuning.is_of_tuning(mechanism):
        return 'section 9'
    if text_votes.is_of_text_votes(mechanism):
        return 'section 10'
    has_adapter = 'adapter_epsilon' in privacy_report.settings
    return 'sections 1 to 3 and 9' if has_adapter else 'sections 1 to 3'
