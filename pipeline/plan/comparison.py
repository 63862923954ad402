"""The methods side by side: what each would write, how long it would take, and which one suits.

No record is read. A method knows how it stands beside others, from docs/measured.md
(`pipeline.methods.method.Standing`). Here they are only put in an order: what fits comes first, then what is
done within a night as far as that is known, then the better standing, then what is faster.
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from models import bundled
from pipeline import methods
from pipeline.asked.config import for_method, job_config
from pipeline.methods import notes
from pipeline.methods.estimate import duration
from pipeline.methods.method import Method, RunPlan, Score
from pipeline.plan.planned import planned
from pipeline.settings.job_config import JobConfig
from pipeline.settings.model import Model

A_NIGHT = 10.0  # hours
NO_WORTH = 'Worth: not measured for such a run.'
# Runs on the same data count as of one size up to this ratio of their records.
_ONE_SIZE = 1.25
# Fewer records than those of a run by more than this say nothing of what its scores say.
_MOST_TIMES = 2

TIME = 'Time: as fast as earlier runs with the model on this machine; not known before the first one.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """A method's run beside those of others. All fields are public.

    Attributes:
        method: Its name.
        summary: Its work in one sentence.
        why_not: Why a run of it does not fit; None where one does.
        texts: Texts of the corpus, about; None where it is not known, or no run fits.
        hours: About how long this machine computes; None where no run on it has measured that.
        epsilon: Cost of the run; None where no run fits.
        delta: At which; None likewise.
        worth: Its score on the records that all scores here are of; None where it has none.
        warnings: Warnings of its plan.
        rank: Its rank beside the others, 1 for the first.
        because: Why.
    """

    method: str
    summary: str
    why_not: str | None
    texts: int | None
    hours: float | None
    epsilon: float | None
    delta: float | None
    worth: Score | None
    warnings: tuple[str, ...]
    rank: int
    because: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """All methods that make a corpus of records alone. All fields are public.

    Attributes:
        methods: Each of them, in the order of their table.
        recommended: The one that suits best; None where none fits.
        because: Why that one.
        notes: What a person should know of the declared numbers.
        worth: Meaning of the worth, and on which records it was measured.
    """

    methods: tuple[Compared, ...]
    recommended: str | None
    because: str
    notes: tuple[str, ...] = ()
    worth: str = NO_WORTH

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)


def compare(settings: Mapping[str, Any]) -> Comparison:
    """Every method with the given settings, of which each takes those that it has."""
    compared: list[Compared] = []
    errors: list[ValueError] = []
    for method in methods.METHODS.values():
        if not method.needs_only_records:
            continue
        try:
            config = job_config(**for_method(settings, method.name))
            compared.append(_compared(method, config, planned(config)))
        except ValueError as error:
            errors.append(error)
            compared.append(_unfit(method, settings, str(error)))
    if len(errors) == len(compared) and len({str(error) for error in errors}) == 1:
        # The request is wrong, and no method.
        raise errors[0]
    best = min((each for each in compared if each.why_not is None), key=_order, default=None)
    scores = {} if best is None else _scores(best.method, settings)
    compared = [dataclasses.replace(each, worth=scores.get(each.method)) for each in compared]
    return Comparison(
        methods=tuple(compared),
        worth=_meaning(scores[best.method]) if best is not None and scores else NO_WORTH,
        recommended=None if best is None else best.method,
        because='No method fits: see why beside each.' if best is None else _reason(best, compared),
        notes=tuple(notes.of_few(settings.get('records'), settings.get('unit', 'example'))),
    )


def _compared(method: Method[Any, Any], config: JobConfig[Any], run_plan: RunPlan) -> Compared:
    records, epsilon = config.input.sampled_records, config.budget.epsilon
    labels = len(config.input.label_values)
    standing = method.standing(records or 0, epsilon, labels)
    return Compared(
        method=method.name,
        summary=method.summary,
        why_not=None,
        texts=run_plan.written_texts(),
        hours=run_plan.computing_hours(),
        epsilon=getattr(run_plan, 'epsilon', None),
        delta=run_plan.delta,
        worth=None,
        warnings=run_plan.warnings,
        rank=standing.rank,
        because=standing.because,
    )


def _unfit(method: Method[Any, Any], settings: Mapping[str, Any], why: str) -> Compared:
    labels = max(1, len(settings.get('labels') or ()))
    units = (settings.get('records') or 0) * settings.get('sample_rate', 1.0)
    standing = method.standing(units, settings.get('epsilon'), labels)
    return Compared(
        method=method.name,
        summary=method.summary,
        why_not=why,
        texts=None,
        hours=None,
        epsilon=None,
        delta=None,
        worth=None,
        warnings=(),
        rank=standing.rank,
        because=standing.because,
    )


def _scores(best: str, settings: Mapping[str, Any]) -> dict[str, Score]:
    """Scores of all methods on one kind and size of records: the nearest that the best method was scored on.

    There are none of the bundled model, whose texts are no English, and none from far more records.
    """
    config = job_config(**for_method(settings, best))
    records, epsilon, labels = (
        config.input.sampled_records, config.budget.epsilon, len(config.input.label_values)
    )  # fmt: skip
    of_best = methods.METHODS[best].scores
    is_bundled = isinstance(config.method, Model) and config.method.model == bundled.MODEL
    if not of_best or records is None or epsilon is None or is_bundled:
        return {}
    # The one whose numbers are fewest times more or less than these.
    nearest = min(
        of_best,
        key=lambda score: (
            abs(math.log(score.records / records))
            + abs(math.log(score.epsilon / epsilon))
            + abs(math.log(score.labels / labels))
        ),
    )
    if nearest.records > _MOST_TIMES * records:
        return {}
    return {
        name: score
        for name, method in methods.METHODS.items()
        for score in method.scores
        if (score.what, score.epsilon) == (nearest.what, nearest.epsilon)
        and abs(math.log(score.records / nearest.records)) <= math.log(_ONE_SIZE)
    }


def _meaning(score: Score) -> str:
    return (
        'Worth: the accuracy of a classifier that learns from the texts, measured on the same records for '
        f'all ({score.what}, {score.records:,} of {score.labels} labels, ε = {score.epsilon:g}) with Gemma 3 '
        '270M. In brackets: of one that learns from as many real ones.'
    )


def _order(each: Compared) -> tuple[bool, bool, int, float]:
    hours = each.hours or 0.0
    return bool(each.warnings), hours > A_NIGHT, each.rank, hours


def _reason(best: Compared, compared: list[Compared]) -> str:
    """Why one method comes before the others, in sentences."""
    passed = [
        f'Before it comes {each.method}, but: {_against(each)}' for each in compared if each.rank < best.rank
    ]
    return ' '.join([best.because, *passed])


def _against(each: Compared) -> str:
    """The objection to a method, a sentence."""
    if each.why_not is not None:
        return each.why_not
    if each.warnings:
        return each.warnings[0]
    assert each.hours is not None  # else nothing speaks against it
    return f'it would take {duration(each.hours)}.'


# --- The table ---------------------------------------------------------------------


def rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row of each method: name, texts, time, epsilon, worth and what speaks against it."""
    return [
        (
            f'{each.method} *' if each.method == comparison.recommended else each.method,
            '' if each.why_not else 'not known' if each.texts is None else f'{each.texts:,}',
            '' if each.why_not else 'not known' if each.hours is None else duration(each.hours),
            '' if each.epsilon is None else f'{each.epsilon:.4g}',
            _worth(each),
            each.why_not or ' '.join(each.warnings) or each.because,
        )
        for each in comparison.methods
    ]


def _worth(each: Compared) -> str:
    if each.worth is None:
        return '' if each.why_not else 'not measured'
    return f'{each.worth.worth:.2f} ({each.worth.of_records:.2f})'
