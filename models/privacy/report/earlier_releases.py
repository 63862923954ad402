"""The releases that went into a run, for its report: what they cost together, in words and in Python."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from models.privacy import accounting, counts
from models.privacy.accounting import losses, subsampled
from models.privacy.earlier_release import EarlierRelease, TextOrigin
from models.privacy.events import (
    DiscreteGaussianDpEvent,
    DpEvent,
    PoissonSampledDpEvent,
    TruncatedZCDpEvent,
    ZCDpEvent,
)
from models.privacy.facts import Facts, Reproduction, RhoStage, Setting
from models.privacy.numbers import format_exact, format_up
from models.privacy.public_numbers import Unit
from models.privacy.report import groups, prediction, text_votes, tuning, words
from models.privacy.report.ledger import LedgerEntry


def check(releases: Iterable[EarlierRelease]) -> None:
    """Checks that each release states the epsilon that its costs give.

    Raises:
        ValueError: One does not.
    """
    for release in releases:
        computed = epsilon_alone(release.costs, release.delta)
        if not follows(release.epsilon, computed, release.costs.values(), release.delta):
            raise ValueError(
                f'Expected epsilon to follow from the costs of run_id={release.run_id!r}, got '
                f'epsilon={release.epsilon!r}, computed={computed!r}. Restore its report as the run wrote it.'
            )


def epsilon_alone(costs: Mapping[str, DpEvent], delta: float) -> float:
    """epsilon of one run's stages, as its report states it."""
    curve = accounting.compose(map(accounting.curve_of, costs.values()))
    if curve.sampled:
        if len(costs) == 1:
            return subsampled.epsilon_of_event(next(iter(costs.values())), delta)
        return curve.epsilon(delta)
    return accounting.epsilon_of_events(costs.values(), delta)


def follows(stated: float, computed: float, costs: Iterable[DpEvent], delta: float) -> bool:
    """Whether an epsilon is the one that costs give, or their curves alone: so earlier versions stated votes.

    Args:
        stated: What a report states.
        computed: What the costs give here.
        costs: The events.
        delta: In (0, 1).
    """
    curve = accounting.compose(map(accounting.curve_of, costs))
    if curve.sampled:
        return subsampled.is_same(stated, computed)
    return any(math.isclose(stated, each, rel_tol=1e-6) for each in (computed, curve.epsilon(delta)))


def epsilon_together(costs: Iterable[Mapping[str, DpEvent]], delta: float) -> float:
    """epsilon of several runs on the same records: the least that their losses or their curves give.

    Args:
        costs: Of each run, by stage.
        delta: In (0, 1).
    """
    return accounting.epsilon_of_events([event for of_run in costs for event in of_run.values()], delta)


def costs_of(mechanism: Mapping[str, Setting], stages: Sequence[RhoStage]) -> dict[str, DpEvent]:
    """What a run cost by stage, of what its report says.

    Args:
        mechanism: Its settings.
        stages: Its stages, each with a price in advance.

    Raises:
        ValueError: This installation knows no such mechanism, or a stage has no price.
    """
    if tuning.is_of_tuning(mechanism):
        return {'Fine-tuning': tuning.params_of(mechanism).event}
    found: dict[str, DpEvent] = {}
    for stage in stages:
        if stage.rho is None:
            raise ValueError(f'Expected a price of every stage, got none of stage={stage.name!r}.')
        if stage.name == text_votes.STAGE and text_votes.is_of_text_votes(mechanism):
            found[stage.name] = text_votes.params_of(mechanism).event
        elif stage.name == groups.COUNTS and text_votes.is_of_text_votes(mechanism):
            # Votes on texts have losses too, with which those of the counts make a sum.
            found[stage.name] = DiscreteGaussianDpEvent(sigma=counts.gaussian_scale(stage.rho))
        elif stage.omega is None:
            found[stage.name] = ZCDpEvent(rho=stage.rho)
        else:
            found[stage.name] = TruncatedZCDpEvent(rho=stage.rho, omega=stage.omega)
    return found


def method_of(mechanism: Mapping[str, Setting]) -> str:
    """What a run did with the records, in words."""
    if tuning.is_of_tuning(mechanism):
        return 'fine-tuning'
    return 'votes on whole texts' if text_votes.is_of_text_votes(mechanism) else 'private prediction'


def counted(releases: Iterable[EarlierRelease], unit: Setting) -> tuple[EarlierRelease, ...]:
    """Those whose cost adds up with that of a run: of its unit of privacy."""
    return tuple(release for release in releases if release.unit == unit)


def epsilon_with(
    alone: float, own: Mapping[str, DpEvent], releases: Sequence[EarlierRelease], delta: float
) -> float:
    """epsilon of a run and of the releases that went into it.

    Args:
        alone: That of the run alone, at `delta`.
        own: What it cost by stage.
        releases: Those whose costs add up with it.
        delta: In (0, 1).
    """
    if not releases:
        return alone
    return max(alone, epsilon_together([own, *(of.costs for of in releases)], delta))


def without_ledger(releases: Iterable[EarlierRelease], dataset: str | None) -> tuple[EarlierRelease, ...]:
    """Those that no sum of the run's ledger has."""
    return tuple(release for release in releases if dataset is None or release.dataset != dataset)


def with_ledger(entry: LedgerEntry, releases: Sequence[EarlierRelease], delta: float) -> tuple[float, float]:
    """(epsilon, delta) of all runs of a ledger up to this one and of releases that it has not.

    Args:
        entry: The run's.
        releases: All of one unit, that of the ledger; not empty.
        delta: At which the cost of the releases is taken where no sum of ρ is known.
    """
    costs = [release.costs for release in releases]
    if type(entry) is LedgerEntry:
        before = {'ledger': ZCDpEvent(rho=entry.rho_after)}
        return epsilon_together([before, *costs], entry.delta), entry.delta
    # Basic composition: the bound of the second holds whatever the first released.
    return entry.epsilon_after + epsilon_together(costs, delta), entry.delta + delta


# --- Words ---------------------------------------------------------------------------


def public_texts(what: str) -> Facts:
    """The facts of a run that begins with files which no report tells of.

    Args:
        what: What the report calls these texts: 'the first list'.
    """
    return Facts(
        assumptions_of_curator=(
            f'The texts of {what} are public: whoever wrote or chose them saw none of these records. That is '
            "the curator's word: no report and no card of a run lies beside these files or in a folder above "
            'them, so nothing else tells where they come from.',
        ),
    )


def given_texts(what: str, origin: TextOrigin) -> Facts:
    """The facts of a run that begins with given texts; what their release cost, `facts` says.

    Args:
        what: What the report calls them: 'the first list'.
        origin: Where they come from.
    """
    said = tuple(f'{what[0].upper()}{what[1:]} {_made_by(release)}.' for release in origin.direct)
    vouched = public_texts(what).assumptions_of_curator if origin.vouched else ()
    return Facts(assumptions_enforced=said, assumptions_of_curator=vouched)


def _made_by(release: EarlierRelease) -> str:
    if release.sampled_by is None:
        return f'is the corpus that the run {release.run_id!r} released, or a part of it'
    return (
        f'was sampled, by the run {release.sampled_by!r}, from the adapter that the run {release.run_id!r} '
        'released'
    )


def charged_to(dataset: str | None) -> str:
    """Where a run was charged, in words: to a dataset of a ledger, or to none."""
    return 'to no ledger' if dataset is None else f'to dataset {dataset!r} of a ledger'


def place_in_ledger(release: EarlierRelease) -> str:
    """The same with the release's place there."""
    place = '' if release.run_number is None else f' as run {release.run_number:,}'
    return f'charged {charged_to(release.dataset)}{place}'


def whose_word(release: EarlierRelease, dataset: str | None) -> str:
    """Who says so: the ledger that charges this run, the release's own report, or a card."""
    if dataset is not None and release.dataset == dataset:
        return "the ledger's, which charged it before this run"
    return "its own report's" if release.told_by == 'report' else "its adapter's card's"


def in_words(release: EarlierRelease) -> str:
    """A release with its figures."""
    one = prediction.unit_nouns(release.unit)[0]
    way = '' if release.through is None else f', by way of the run {release.through!r}'
    return (
        f'the run {release.run_id!r} ({release.method}; ε = {format_up(release.epsilon)}, δ = '
        f'{format_exact(release.delta)} for any one {one}; {place_in_ledger(release)}){way}'
    )


def listed(releases: Sequence[EarlierRelease]) -> str:
    """Releases with their figures, in one row."""
    return '; '.join(map(in_words, releases))


def names(releases: Sequence[EarlierRelease]) -> str:
    """Releases by their names: 'the release that went in (run 'a')'."""
    runs = ', '.join(repr(release.run_id) for release in releases)
    if len(releases) == 1:
        return f'the release that went in (run {runs})'
    return f'the {len(releases):,} releases that went in (runs {runs})'


def facts(
    releases: Sequence[EarlierRelease], unit: Unit, dataset: str | None, *, run: str = 'this run'
) -> Facts:
    """What holds of the releases that went into a run, and whose word it is.

    Args:
        releases: All of them. Of those that name this run's dataset the caller has asked the ledger.
        unit: Whose presence the run hides.
        dataset: Name under which the run is charged; None if no ledger charges it.
        run: What sentences call the run.
    """
    outside = without_ledger(releases, dataset)
    enforced = tuple(
        f'The run {of.run_id!r} went in. The ledger charged it before this run, as run {of.run_number:,} on '
        f'dataset {dataset!r}: {run} is a later step on the same records, and the sum of all runs has both '
        'costs.'
        for of in releases
        if of not in outside
    )
    vouched = tuple(
        f'Whoever adds up the runs on these records counts the run {of.run_id!r} too, which went in, unless '
        f'its records are others than these: it was charged {charged_to(of.dataset)}, {run} '
        f'{charged_to(dataset)}, and no sum of a ledger has both. What it cost is {whose_word(of, dataset)} '
        'word.'
        for of in outside
    )
    other = tuple(
        f'{in_words(of)}, which went in. Its cost comes on top of every figure here, under a unit of its own.'
        for of in releases
        if of.unit != unit
    )
    found = Facts(assumptions_enforced=enforced, assumptions_of_curator=vouched, not_covered=other)
    for release in releases:
        if not release.inputs_known:
            found = with_unknown(found, release)
    return found


def with_unknown(found: Facts, release: EarlierRelease) -> Facts:
    """The facts with what is said of a release of which nobody knows what went into it."""
    word = (
        f'Nothing else of these records went into the run {release.run_id!r}, or its cost is counted too. '
        f"That is the curator's word: the {release.told_by} of that run is of a version without the list of "
        'what went in.'
    )
    blind = f'what went into the run {release.run_id!r}, which its {release.told_by} does not list.'
    return dataclasses.replace(
        found,
        assumptions_of_curator=(*found.assumptions_of_curator, word),
        not_covered=(*found.not_covered, blind),
    )


def covered_together(
    releases: Sequence[EarlierRelease],
    epsilon: float,
    delta: float,
    entry: LedgerEntry | None,
    one: str,
    *,
    run: str = 'this run',
) -> str:
    """What a run and the releases that went into it are together, and with a ledger's runs, as a sentence.

    Args:
        releases: Those whose costs add up with the run's; not empty.
        epsilon: Of them and the run, at `delta`.
        delta: The run's.
        entry: What the ledger says of the run; None without one.
        one: The unit of privacy, as a noun.
        run: What the sentence calls the run.
    """
    many = (
        'the release that went in' if len(releases) == 1 else f'all {len(releases):,} releases that went in'
    )
    figures = f'(ε = {format_up(epsilon)}, δ = {format_exact(delta)})-differentially private'
    said = (
        f'{run} and {many} are together {figures}, under adding or removing any one {one}, each counted '
        f'once and as if all were of the same records: {listed(releases)}. That holds where no output '
        'decided what another one costs.'
    )
    outside = () if entry is None else without_ledger(releases, entry.dataset)
    if entry is None or not outside:
        return said
    of_all, at = with_ledger(entry, outside, delta)
    lacking = ', '.join(repr(release.run_id) for release in outside)
    runs = 'the one run' if entry.run_number == 1 else f'all {entry.run_number:,} runs'
    return (
        f'{said} The sum of the ledger lacks {lacking}: {runs} on dataset {entry.dataset!r} up to this one '
        f'and {"that" if len(outside) == 1 else "these"} are together (ε = {format_up(of_all)}, δ = '
        f'{format_up(at)})-differentially private.'
    )


# --- The arithmetic ------------------------------------------------------------------


def reproduction_alone(parts: Sequence[Reproduction], own: Mapping[str, DpEvent], delta: float) -> str:
    """Lines of Python that print rho and epsilon of one run in zCDP.

    Args:
        parts: Its costs, as settings give them.
        own: The same as events.
        delta: The run's.
    """
    if not _is_by_losses(own.values(), delta):
        return words.reproduction(parts, delta)
    values = (
        *(line for part in parts for line in (*part.settings, *part.steps)),
        f'rho = {" + ".join(part.cost for part in parts)}',
    )
    return _by_losses([('this run', own)], delta, values, 'rho = {rho:.10g}, ')


def reproduction(
    own: Mapping[str, DpEvent], releases: Sequence[EarlierRelease], delta: float, *, run: str = 'this run'
) -> str:
    """Lines of Python that print epsilon of a run and of the releases that went into it.

    Args:
        own: What the run cost by stage.
        releases: Those whose costs add up with it; not empty.
        delta: The run's.
        run: What comments call the run.
    """
    rows = [(run, own), *((f'the run {of.run_id!r}, which went in', of.costs) for of in releases)]
    title = '# Together with what went in\n'
    curves = [accounting.compose(map(accounting.curve_of, costs.values())) for _, costs in rows]
    if _is_by_losses([event for _, costs in rows for event in costs.values()], delta):
        return title + _by_losses(rows, delta)
    if not any(curve.sampled for curve in curves):
        parts = [
            Reproduction(
                settings=(f'cost_{place} = {curve.rho!r}  # rho of {name}',),
                cost=f'cost_{place}',
                largest_order='' if curve.is_zcdp else repr(curve.largest_order),
            )
            for place, ((name, _), curve) in enumerate(zip(rows, curves, strict=True))
        ]
        return title + words.reproduction(parts, delta)
    highest = min(curve.largest_order for curve in curves)
    up_to = '' if math.isinf(highest) else f' if order <= {highest!r}'
    composed = []
    for (name, _), curve in zip(rows, curves, strict=True):
        if curve.rho:
            composed.append(f'accountant.compose(dp_accounting.ZCDpEvent({curve.rho!r}))  # {name}')
        composed += [
            f'accountant.compose(step({q!r}, {z!r}), {steps})  # {name}' for q, z, steps in curve.sampled
        ]
    return f"""\
{title}import dp_accounting
from dp_accounting import rdp

delta = {delta!r}
orders = [1 + x / 20 for x in range(1, 400)] + [20 + x / 2 for x in range(1, 1000)]
accountant = rdp.RdpAccountant([order for order in orders{up_to}])

def step(q, z):
    return dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))

{chr(10).join(composed)}
print(f'epsilon = {{accountant.get_epsilon(delta):.10g}}')
"""


def _is_by_losses(costs: Iterable[DpEvent], delta: float) -> bool:
    """Whether epsilon of these is that of their losses, and not that of their curves."""
    costs = list(costs)
    curve = accounting.compose(map(accounting.curve_of, costs))
    if curve.sampled:
        return _losses(costs) is not None
    return accounting.epsilon_of_events(costs, delta) < curve.epsilon(delta)


def _by_losses(
    rows: Sequence[tuple[str, Mapping[str, DpEvent]]],
    delta: float,
    values: Sequence[str] = (),
    printed: str = '',
) -> str:
    """Lines of Python that print epsilon of the losses of all rows together.

    Args:
        rows: What comments call costs, and the costs.
        delta: At which epsilon holds.
        values: Lines before them, and what of these is printed too.
        printed: See there.
    """
    before = ''.join(f'{line}\n' for line in values)
    leaves = [(name, *found) for name, costs in rows for found in losses.leaves(costs.values())]
    if all(losses.is_as_gaussian(leaf) for _, leaf, _ in leaves):
        shifts = '\n'.join(
            f'squared += {count} / {losses.dominating_noise_multiplier(leaf)!r} ** 2  # {name}'
            for name, leaf, count in leaves
            if leaf is not None
        )
        return f"""\
from math import exp, log, sqrt

from scipy.special import log_ndtr, ndtr

{before}delta = {delta!r}
squared = 0.0  # of the shift mu of one Gaussian mechanism: of each the number / its noise multiplier ** 2
{shifts}
mu = sqrt(squared)

def delta_at(epsilon):  # Balle and Wang 2018, Theorem 8
    return ndtr(mu / 2 - epsilon / mu) - exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))

low, high = 0.0, mu ** 2 / 2 + mu * sqrt(2 * log(1 / delta))  # what zCDP gives is an upper bound
for _ in range(200):
    epsilon = (low + high) / 2
    low, high = (epsilon, high) if delta_at(epsilon) > delta else (low, epsilon)
print(f'{printed}epsilon = {{high:.10g}}')
"""
    composed = '\n'.join(
        f'together = together.compose({line})  # {name}'
        for name, costs in rows
        for line in _losses(costs.values()) or ()
    )
    return f"""\
from dp_accounting.pld import privacy_loss_distribution as pld

{before}delta = {delta!r}
together = pld.identity()
{composed}
print(f'{printed}epsilon = {{together.get_epsilon_for_delta(delta):.10g}}')
"""


def _losses(costs: Iterable[DpEvent]) -> list[str] | None:
    """An expression for the distribution of losses of each event; None where one has none."""
    lines = []
    for leaf, count in losses.leaves(costs):
        if isinstance(leaf, PoissonSampledDpEvent):
            q, z = leaf.sampling_probability, leaf.event.noise_multiplier
            line = f'pld.from_gaussian_mechanism({z!r}, sampling_prob={q!r})'
        elif isinstance(leaf, DiscreteGaussianDpEvent):
            line = f'pld.from_discrete_gaussian_mechanism({leaf.sigma!r}, use_connect_dots=True)'
        else:
            multiplier = None if leaf is None else losses.dominating_noise_multiplier(leaf)
            if multiplier is None:
                return None
            line = f'pld.from_gaussian_mechanism({multiplier!r})'
        lines.append(line if count == 1 else f'{line}.self_compose({count})')
    return lines
