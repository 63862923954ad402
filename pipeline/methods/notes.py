"""Notes on a plan, for the person who is about to start the run, whatever its method is."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from models.privacy import earlier_release, guess, numbers
from models.privacy.earlier_release import EarlierRelease
from models.privacy.report import composition
from pipeline import methods
from pipeline.methods.method import RunPlan
from pipeline.methods.solved import Run

# A run that uses a smaller share of the ε that was asked for says so.
_USED_SHARE = 0.9


def noted(run: Run[Any], plan: RunPlan) -> RunPlan:
    """A plan with its notes, and with the ε that the run and all that goes into it have together."""
    releases = _counted(run)
    together = None
    if releases and run.stages is not None:
        costs = [run.stages, *(release.costs for release in releases)]
        together = composition.epsilon_together(costs, run.delta)
    return dataclasses.replace(
        plan,
        epsilon_together=together,
        notes=(
            *_of_releases(run, releases, together),
            *_of_epsilon(run, plan),
            *of_few(run.input.records, run.budget.unit),
        ),
    )


def _counted(run: Run[Any]) -> tuple[EarlierRelease, ...]:
    """The releases that go into a run and hide the same unit, each once."""
    if not run.begun:
        return ()
    from pipeline.methods import earlier
    from pipeline.methods.fine_tune import released

    of_each = [
        released.read_card(begun.place).handed_on()
        if begun.is_adapter
        else earlier.origin_of_texts(begun.place, begun.name).releases
        for begun in run.begun
    ]
    return tuple(
        release for release in earlier_release.each_once(*of_each) if release.unit == run.budget.unit
    )


def _of_releases(
    run: Run[Any], releases: tuple[EarlierRelease, ...], together: float | None
) -> Iterator[str]:
    if together is None:
        return
    names = ', '.join(repr(release.run_id) for release in releases)
    yield (
        f'{"Run" if len(releases) == 1 else "Runs"} {names} went in. On the same records all of it together '
        f'has ε = {numbers.format_up(together)} at δ = {numbers.format_exact(run.delta)}, which the report '
        'leads with.'
    )


def _of_epsilon(run: Run[Any], plan: RunPlan) -> Iterator[str]:
    asked, used = run.budget.epsilon, getattr(plan, 'epsilon', None)
    if used is None:
        return
    if asked is not None and used < _USED_SHARE * asked:
        yield (
            f'ε = {asked:g} was asked for, and this run uses {used:.3g}: its caps and its texts need no '
            'more. Ask for more or longer texts, or for a smaller ε.'
        )
    largest = max(used, plan.epsilon_together or 0.0)
    if guess.guess_after(0.5, largest).most > guess.NEAR_CERTAINTY:
        who = 'a person is' if run.budget.unit == 'user' else 'a record is'
        yield (
            f'ε = {largest:.3g} promises little: whoever is half sure that {who} in the data can come close '
            'to certainty. From 1 to 3 is usual for texts.'
        )


def of_few(units: int | None, unit: str) -> Iterator[str]:
    """A note on fewer units than any run was measured with."""
    fewest = min(score.records for method in methods.METHODS.values() for score in method.scores)
    if units is not None and units < fewest:
        few = f'{units:,} {"users" if unit == "user" else "records"} are few'
        yield (
            f'{few}: the noise that hides one of them hides most of what they have in common. No run of '
            f'fewer than {fewest:,} was measured.'
        )
