"""The measure of known facts: which of the facts that records hold a corpus states."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import final

from pipeline.evaluation.facts import Fact
from pipeline.evaluation.measure import Chart, Figure, Findings, Measure, NotDefined, Progress, Sample, Series
from pipeline.evaluation.sources import Sources
from pipeline.evaluation.words import words_of

_SAMPLES = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Said:
    """What texts say of one fact.

    Attributes:
        rightly: Indices of texts that give the right value.
        wrongly: Indices of texts that give another.
        named: Number of texts that name the entity.
    """

    rightly: tuple[int, ...]
    wrongly: tuple[int, ...]
    named: int


def said_of(facts: Sequence[Fact], texts: Sequence[str]) -> tuple[Said, ...]:
    """What texts say of each fact, in any wording.

    A value is said of the entity that its sentence names: the last one before it, else the first one after.
    In a sentence that names none it is said of the last entity named before. Negation is not understood.
    """
    numbers = {fact.name.casefold(): number for number, fact in enumerate(facts)}
    right: list[list[int]] = [[] for _ in facts]
    wrong: list[list[int]] = [[] for _ in facts]
    named = [0] * len(facts)
    for index, text in enumerate(texts):
        said: dict[int, set[str]] = {}
        last = None
        for sentence in re.split(r'(?<=[.!?。！？])\s+|\n+', text):
            split = words_of(sentence)
            entities = [(place, numbers[word]) for place, word in enumerate(split) if word in numbers]
            for number in {number for _, number in entities}:
                said.setdefault(number, set())
            for place, word in enumerate(split):
                before = [number for at, number in entities if at < place]
                after = [number for at, number in entities if at > place]
                about = before[-1] if before else after[0] if after else last
                if about is not None and word in facts[about].values:
                    said[about].add(word)
            last = entities[-1][1] if entities else last
        for number, values in said.items():
            named[number] += 1
            if facts[number].value in values:
                right[number].append(index)
            if values - {facts[number].value}:
                wrong[number].append(index)
    return tuple(
        Said(rightly=tuple(right[number]), wrongly=tuple(wrong[number]), named=named[number])
        for number in range(len(facts))
    )


@final
class KnownFacts(Measure):
    """The share of known facts that a corpus states, by how many records held them.

    A fact is stated rightly if any text gives its value, wrongly if none does and one gives another value
    of the attribute, else not at all. Of values that were guessed one in ten is right.
    """

    name = 'facts'
    title = 'Known facts'
    question = 'Which facts of the records does the corpus state, by how many records held them?'
    holds_records = True

    def __init__(self, facts: Sequence[Fact]) -> None:
        """Takes the facts that the records hold.

        Args:
            facts: Of names that differ, without regard to case.

        Raises:
            ValueError: Two facts of one name.
        """
        names = {fact.name.casefold() for fact in facts}
        if len(names) != len(facts):
            raise ValueError(
                f'Expected a name of its own for each fact, got facts={len(facts)}, names={len(names)}. '
                'Invent them in one call of invented_facts.'
            )
        self._facts = tuple(facts)

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        if not self._facts:
            raise NotDefined('There are no facts.')
        said = said_of(self._facts, sources.corpus.texts)
        progress(1, 1)
        figures = []
        lines: dict[str, list[float]] = {'stated rightly': [], 'stated wrongly': [], 'not at all': []}
        numbers = sorted({fact.records for fact in self._facts})
        for held in numbers:
            chosen = [of for fact, of in zip(self._facts, said) if fact.records == held]
            rightly = sum(bool(of.rightly) for of in chosen)
            wrongly = sum(bool(of.wrongly) and not of.rightly for of in chosen)
            shares = [count / len(chosen) for count in (rightly, wrongly, len(chosen) - rightly - wrongly)]
            for (line, values), share in zip(lines.items(), shares):
                values.append(share)
                figures.append(
                    Figure(
                        name=f'{line.replace(" ", "_")}/{held}',
                        label=f'Facts of {held} records each: {line}',
                        value=share,
                    )
                )
            statements = [sum(len(of.rightly) for of in chosen), sum(len(of.wrongly) for of in chosen)]
            figures.append(
                Figure(
                    name=f'right_statements/{held}',
                    label=f'Texts that state a fact of {held} records: share that are right',
                    value=statements[0] / sum(statements) if sum(statements) else None,
                    note='A guess is right one time in as many as there are values.',
                )
            )
            figures.append(
                Figure(
                    name=f'named/{held}',
                    label=f'Facts of {held} records each: the entity is named',
                    value=sum(of.named > 0 for of in chosen) / len(chosen),
                )
            )
        return Findings(
            settings={
                'facts': len(self._facts),
                'values_of_an_attribute': max(len(fact.values) for fact in self._facts),
                'corpus_texts': len(sources.corpus),
            },
            figures=tuple(figures),
            charts=(
                Chart(
                    kind='lines',
                    title='What the corpus states of facts that so many records hold',
                    x_label='records that hold the fact',
                    y_label='share of facts',
                    series=tuple(
                        Series(name=line, x=tuple(map(float, numbers)), y=tuple(values))
                        for line, values in lines.items()
                    ),
                    together=True,
                ),
            ),
            samples=self._samples(sources.corpus.name, sources.corpus.texts, said),
        )

    def _samples(self, name: str, texts: Sequence[str], said: Sequence[Said]) -> tuple[Sample, ...]:
        """Texts that state facts of the fewest records."""
        order = sorted(range(len(said)), key=lambda number: self._facts[number].records)
        samples = []
        for how in ('rightly', 'wrongly'):
            stated = [number for number in order if getattr(said[number], how)]
            for number in stated[:_SAMPLES]:
                fact = self._facts[number]
                samples.append(
                    Sample(
                        caption=f'Stated {how}, of {fact.records} records: {fact.attribute} of {fact.name}',
                        texts=((name, texts[getattr(said[number], how)[0]]),),
                    )
                )
        return tuple(samples)
