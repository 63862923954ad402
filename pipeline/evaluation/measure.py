"""The contract of a measure, and what one finds: figures, charts and texts to look at."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from pipeline.evaluation.sources import Sources

type Setting = str | int | float | bool
type Better = Literal['higher', 'lower', 'neither']
type ChartKind = Literal['lines', 'bars']
# Told what is done, of how much.
type Progress = Callable[[int, int], None]


class NotDefined(Exception):
    """A measure has no value for these sources; its text is the reason, and quotes none of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """One number.

    Attributes:
        name: In snake case, stable: 'accuracy', 'accuracy_by_label/World'.
        label: What a table calls it.
        value: The number; None where it is not defined.
        standard_error: Over seeds or folds; None where there is one value alone.
        better: Which way is good.
        note: What to know to read it, a sentence; '' where the label says all.
    """

    name: str
    label: str
    value: float | None
    standard_error: float | None = None
    better: Better = 'neither'
    note: str = ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """One line or set of bars.

    Attributes:
        name: What the legend calls it.
        x: Positions, or names of bars.
        y: Values, as many.
        real: Whether it is of real texts, which all corpora are compared with.
    """

    name: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    real: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart:
    """A number that has a shape.

    Attributes:
        kind: 'lines' have numbers in x, 'bars' names.
        title: A sentence without a full stop.
        x_label: Of the axis, with its unit.
        y_label: Of the axis, with its unit.
        series: What is drawn.
        together: Whether a page of several corpora shows their lines in one picture too.
    """

    kind: ChartKind
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    together: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """Texts to look at side by side.

    Attributes:
        caption: Why they are shown.
        texts: Each with the name of its source first: (('corpus', '...'), ('records', '...')).
    """

    caption: str
    texts: tuple[tuple[str, str], ...] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Findings:
    """Findings of a measure on one corpus.

    Attributes:
        settings: All that the numbers depend on beside the texts, with the versions of libraries.
        figures: The numbers, the first ones first.
        charts: Pictures.
        samples: Texts to look at.
    """

    settings: Mapping[str, Setting]
    figures: tuple[Figure, ...]
    charts: tuple[Chart, ...] = ()
    samples: tuple[Sample, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureResult:
    """Findings of one measure on one corpus.

    Attributes:
        measure: Its name, the value of --only.
        title: Of its section.
        question: What it answers.
        source: Paper and section, or ''.
        reason: Why it is not defined on these texts; None where it is.
        failed: Whether it ended with an error that nobody foresaw, which is a defect.
        findings: Figures, charts and texts; None where it is not defined.
    """

    measure: str
    title: str
    question: str
    source: str
    reason: str | None
    failed: bool
    findings: Findings | None


class Measure(abc.ABC):
    """One measure. An implementation is final and has no state.

    Attributes:
        name: The value of --only, in kebab case.
        title: Of its section.
        question: What it answers, one sentence for people.
        source: Paper and section or equation, where it has one; else ''.
        needs: Sources without which it is not defined: 'records', 'test', 'public'.
        needs_labels: Whether all of these and the corpus must have labels.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    question: ClassVar[str]
    source: ClassVar[str] = ''
    needs: ClassVar[frozenset[Literal['records', 'test', 'public']]] = frozenset()
    needs_labels: ClassVar[bool] = False

    @abc.abstractmethod
    def measure(self, sources: Sources, progress: Progress) -> Findings:
        """Measures one corpus.

        Time and memory grow linearly with the number of texts, or the measure samples and says so in its
        settings. The same sources give the same findings.

        Args:
            sources: What is compared; what `needs` names is there and not empty.
            progress: Told after each part that takes seconds.

        Raises:
            NotDefined: The sources do not define it: one label only, too few texts.
        """
