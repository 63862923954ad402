"""The verdict on a corpus in words, and the three lights that it rests on; their rules are public."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from pipeline.evaluation.classifiers import KINDS
from pipeline.evaluation.measure import MeasureResult
from pipeline.evaluation.sources import Sources, Texts

type Colour = Literal['green', 'yellow', 'red', 'unknown']
# From the best to the worst; a verdict is as good as the worst of its lights that is known.
_COLOURS: Sequence[Colour] = ('green', 'yellow', 'red')
# Texts of the corpus beside as many real ones, for people to read.
BESIDE = 20
# Bounds of the lights: from the first value on they are green, from the second on yellow.
_AGREED, _LEARNT, _ALIKE, _CHANCE = (0.85, 0.65), (0.75, 0.4), (0.8, 0.5), (0.05, 0.001)
_ADVICE: Mapping[Colour, str] = {
    'green': 'Nothing here speaks against its use.',
    'yellow': 'Read some of its texts before you use it.',
    'red': 'Do not use this corpus for training.',
    'unknown': 'That is too little for a verdict.',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Light:
    """One side of the verdict.

    Attributes:
        name: 'labels', 'likeness' or 'copies'.
        colour: 'unknown' where what it needs was not measured.
        words: What was found, a sentence or two.
        rule: From which value on it has which colour.
    """

    name: str
    colour: Colour
    words: str
    rule: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on one corpus.

    Attributes:
        colour: The worst of its lights.
        words: What was found, and what to do.
        lights: Labels, likeness and copies.
        texts: Texts of the corpus, each with its label in front where it has one.
        real: As many real ones that no run has read, or records where there are none.
    """

    colour: Colour
    words: str
    lights: tuple[Light, ...]
    texts: tuple[str, ...] = dataclasses.field(repr=False)
    real: tuple[str, ...] = dataclasses.field(repr=False)


def verdict_of(measured: Sequence[MeasureResult], sources: Sources) -> Verdict | None:
    """The verdict that measures of a corpus give; None where no light has a colour."""
    figures = {
        f'{each.measure}/{figure.name}': figure.value
        for each in measured
        if each.findings is not None
        for figure in each.findings.figures
        if figure.value is not None
    }
    lights = (_labels(figures), _likeness(figures), _copies(figures))
    known = [light.colour for light in lights if light.colour != 'unknown']
    if not known:
        return None
    colour = max(known, key=_COLOURS.index)
    words = [light.words for light in lights if light.colour != 'unknown']
    real = sources.test if sources.test is not None else sources.records
    return Verdict(
        colour=colour,
        words=' '.join([*words, _ADVICE[colour]]),
        lights=lights,
        texts=_drawn(sources.corpus, sources.seed),
        real=() if real is None else _drawn(real, sources.seed),
    )


def _colour(value: float, bounds: tuple[float, float]) -> Colour:
    green, yellow = bounds
    return 'green' if value >= green else 'yellow' if value >= yellow else 'red'


def _labels(figures: Mapping[str, float]) -> Light:
    """Labels that look wrong, and what a classifier learns from them, by the better kind of each."""
    words, colours = [], []
    judged = [
        (own, figures[f'labels/{kind}_label_accuracy'])
        for kind in KINDS
        if (own := figures.get(f'labels/{kind}_judge_accuracy'))
    ]
    if judged:
        own, agreed = max(judged)
        wrong = max(0.0, 1 - agreed / own)
        colours.append(_colour(agreed / own, _AGREED))
        words.append(f'{_in_ten(wrong)} wrong.')
    learnt = [
        (figures.get(f'use/{kind}_real_accuracy'), figures[f'use/{kind}_accuracy'])
        for kind in KINDS
        if f'use/{kind}_accuracy' in figures
    ]
    if learnt:
        real, accuracy = max(learnt, key=lambda pair: pair[0] or pair[1])
        guessing = figures['use/majority_accuracy']
        said = f'A classifier that learns from these texts is right on {accuracy:.2f} of real ones'
        if real is None:
            words.append(f'{said}; guessing is right on {guessing:.2f}.')
        else:
            words.append(
                f'{said}; guessing is right on {guessing:.2f}, and one that learns from real texts on '
                f'{real:.2f}.'
            )
            way = (accuracy - guessing) / (real - guessing) if real > guessing else 1.0
            colours.append(_colour(way, _LEARNT))
    return Light(
        name='labels',
        colour=max(colours, key=_COLOURS.index) if colours else 'unknown',
        words=' '.join(words) or 'No labels were compared.',
        rule=(
            f'Green if a judge agrees with {_AGREED[0]:.0%} as many labels as of real texts, and a '
            f'classifier goes {_LEARNT[0]:.0%} of the way from guessing to one that learns from real texts; '
            f'yellow from {_AGREED[1]:.0%} and {_LEARNT[1]:.0%} on.'
        ),
    )


def _in_ten(share: float) -> str:
    if tenths := round(10 * share):
        return f'{tenths} of 10 labels look'
    hundredths = round(100 * share)
    return f'{hundredths} of 100 labels look' if hundredths else 'No label looks'


def _likeness(figures: Mapping[str, float]) -> Light:
    """MAUVE of the corpus beside that of the records, both against texts that no run has read."""
    score, of_records = figures.get('mauve/mauve_clustering'), figures.get('mauve/mauve_clustering/records')
    colour: Colour = 'unknown'
    words = 'Likeness was not measured.'
    if score is not None:
        colour = _colour(score / (of_records or 1.0), _ALIKE)
        most = 'of 1' if of_records is None else f'where the records themselves have {of_records:.2f}'
        words = {
            'green': f'The texts read like the records ({score:.2f}, {most}).',
            'yellow': f'They read somewhat like the records ({score:.2f}, {most}).',
            'red': f'They do not read like the records ({score:.2f}, {most}).',
        }[colour]
    return Light(
        name='likeness',
        colour=colour,
        words=words,
        rule=(
            f'Green if MAUVE (scaling 5) is {_ALIKE[0]:.0%} of that of the records, or of 1 without them; '
            f'yellow from {_ALIKE[1]:.0%} on.'
        ),
    )


def _copies(figures: Mapping[str, float]) -> Light:
    """The holdout test: is the corpus nearer to its records than to others like them?"""
    p_value = figures.get('holdout/p_value')
    colour: Colour = 'unknown'
    words = 'Copies were not looked for, which takes --records and --test.'
    if p_value is not None:
        colour = _colour(p_value, _CHANCE)
        words = {
            'green': 'They are no nearer to the records than to others like them.',
            'yellow': f'They may be nearer to the records than to others like them (p = {p_value:.2g}).',
            'red': f'They are nearer to the records than to others like them (p = {p_value:.1g}): look for '
            'copies below.',
        }[colour]
    return Light(
        name='copies',
        colour=colour,
        words=words,
        rule=(
            f'Green if the p-value of the holdout test is {_CHANCE[0]:g} or more, which one in 20 corpora '
            f'misses by chance; yellow from {_CHANCE[1]:g} on.'
        ),
    )


def _drawn(source: Texts, seed: int) -> tuple[str, ...]:
    order = np.random.default_rng(seed).permutation(len(source))[:BESIDE]
    drawn = source.take(np.sort(order).tolist())
    if drawn.labels is None:
        return drawn.texts
    return tuple(f'{label}: {text}' for label, text in zip(drawn.labels, drawn.texts, strict=True))
