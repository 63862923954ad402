"""Invented facts, and records that hold each of them a known number of times.

`python -m pipeline.evaluation.facts --output DIR` writes `records.jsonl` (`text`, `label`) and `facts.json`.
The names of the products, people and places exist nowhere else, so all that a corpus says of them comes from
the records. A corpus must not state a fact that one record holds; it should state one that hundreds hold.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import random
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

SCHEMA, SCHEMA_VERSION = 'dp-corpus/invented-facts', 1
AUDIENCE = 'Anyone may read it: the facts are invented.'
RECORDS_OF_A_FACT = (1, 3, 10, 30, 100, 300)

# A name and a value replace the braces. No value of an attribute occurs anywhere else in a record.
_ATTRIBUTES: Mapping[str, Mapping[str, tuple[Sequence[str], Sequence[str]]]] = {
    'Product': {
        'material': (
            (
                'copper',
                'walnut',
                'linen',
                'granite',
                'bamboo',
                'leather',
                'porcelain',
                'titanium',
                'wool',
                'cork',
            ),
            (
                'The {name} is made of {value}.',
                'They make the {name} entirely from {value}.',
                'What sets the {name} apart is its body of {value}.',
                'Every {name} is cut from solid {value}.',
                'I had not expected the {name} to be of {value}, but it is.',
                'If you like {value}, the {name} is for you.',
            ),
        ),
        'use': (
            (
                'ironing',
                'gardening',
                'fishing',
                'sewing',
                'baking',
                'painting',
                'archery',
                'camping',
                'welding',
                'juggling',
            ),
            (
                'The {name} is meant for {value}.',
                'People buy the {name} for {value}.',
                'For {value} there is nothing better than the {name}.',
                'I use my {name} for {value} alone.',
                'The {name} was designed with {value} in mind.',
                'We sell the {name} to those who love {value}.',
            ),
        ),
    },
    'Person': {
        'profession': (
            (
                'baker',
                'surgeon',
                'carpenter',
                'pilot',
                'lawyer',
                'plumber',
                'violinist',
                'beekeeper',
                'geologist',
                'tailor',
            ),
            (
                '{name} works as a {value}.',
                'By profession {name} is a {value}.',
                '{name} has been a {value} for many years.',
                'Everyone here knows the {value} {name}.',
                'As a {value}, {name} gets up before dawn.',
                'Ask {name}, who earns a living as a {value}.',
            ),
        ),
        'pet': (
            (
                'parrot',
                'goat',
                'ferret',
                'tortoise',
                'hamster',
                'donkey',
                'gecko',
                'peacock',
                'llama',
                'hedgehog',
            ),
            (
                '{name} keeps a {value} at home.',
                'The pet that {name} has is a {value}.',
                'You can see {name} walking a {value} every day.',
                '{name} is never seen without that {value}.',
                'A {value} lives with {name}.',
                '{name} got a {value} as a gift and kept it.',
            ),
        ),
    },
    'Place': {
        'trade': (
            (
                'cheese',
                'amber',
                'tobacco',
                'marble',
                'saffron',
                'salt',
                'honey',
                'pottery',
                'whisky',
                'clocks',
            ),
            (
                '{name} is known for its {value}.',
                'Most people in {name} live off {value}.',
                'We drove to {name} to buy {value}.',
                'The market of {name} sells the best {value}.',
                'For {value} you have to go to {name}.',
                'Merchants came to {name} for {value}.',
            ),
        ),
        'landmark': (
            (
                'lighthouse',
                'cathedral',
                'bridge',
                'windmill',
                'monastery',
                'pagoda',
                'fortress',
                'waterfall',
                'glacier',
                'volcano',
            ),
            (
                'The landmark of {name} is a {value}.',
                'Above the roofs of {name} rises a {value}.',
                'Visitors come to {name} for the {value}.',
                'In {name} there is a {value} that you must see.',
                'From the {value} you look down on all of {name}.',
                'The arms of {name} show a {value}.',
            ),
        ),
    },
}
_OPENINGS = (
    '',
    'Let me tell you something.',
    'A short note from last week.',
    'Just so that you know.',
    'As I wrote before:',
    'For the file.',
    'This may be of interest.',
    'Good morning to all.',
)
_CLOSINGS = (
    '',
    'That is all for now.',
    'I thought you should hear it.',
    'More on this another time.',
    'Please pass it on.',
    'I would say so again.',
    'Thank you for reading.',
    'Make of it what you will.',
)
# English rarely joins these syllables. A name has four, and two names differ in two of them at least.
_SYLLABLES = (
    'bru',
    'cel',
    'dov',
    'fex',
    'gwi',
    'hul',
    'jor',
    'kiv',
    'lum',
    'mox',
    'nar',
    'pyl',
    'quo',
    'rhi',
    'sab',
    'tuv',
    'uld',
    'vro',
    'wex',
    'yat',
    'zim',
)
_LARGEST_NAME_COUNT = len(_SYLLABLES) ** 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fact:
    """One invented fact.

    Attributes:
        name: Of the product, person or place: one word that nothing else is called.
        kind: 'Product', 'Person' or 'Place', the label of its records.
        attribute: What is told of it.
        value: The right value.
        values: All that the attribute could have been, the right one among them, each a word.
        records: Number of records that hold the fact.
    """

    name: str
    kind: str
    attribute: str
    value: str
    values: tuple[str, ...]
    records: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class InventedFacts:
    """Facts that invented records hold, and so what a corpus of them may state.

    Attributes:
        facts: The facts, those of the fewest records first.
    """

    facts: tuple[Fact, ...]

    def to_json(self) -> str:
        """As JSON text."""
        header = {'schema': SCHEMA, 'schema_version': SCHEMA_VERSION, 'audience': AUDIENCE}
        return json.dumps(header | dataclasses.asdict(self), indent=1) + '\n'


def invented_facts(
    seed: int, *, facts_of_each: int = 10, records_of_a_fact: Sequence[int] = RECORDS_OF_A_FACT
) -> tuple[Fact, ...]:
    """Invents facts, each of an entity of its own; the same for the same arguments.

    Args:
        seed: Of names and values.
        facts_of_each: Facts for each number of records.
        records_of_a_fact: Numbers of records, 1 or more each.

    Raises:
        ValueError: No facts, no records, or more of either than there are names and wordings.
    """
    count = facts_of_each * len(records_of_a_fact)
    most = min(len(templates) for _, templates in _attributes()) * len(_OPENINGS) * len(_CLOSINGS)
    if not 1 <= count <= _LARGEST_NAME_COUNT or not all(1 <= held <= most for held in records_of_a_fact):
        raise ValueError(
            f'Expected 1 to {_LARGEST_NAME_COUNT} facts of 1 to {most} records each, got facts={count}, '
            f'records_of_a_fact={tuple(records_of_a_fact)}. Give numbers between these.'
        )
    rng = random.Random(seed)
    names = _names(rng, count)
    kinds = [(kind, attribute) for kind, attributes in _ATTRIBUTES.items() for attribute in attributes]
    facts = []
    # Kinds take turns within each number of records, so that these are alike.
    for number, (held, turn) in enumerate(itertools.product(records_of_a_fact, range(facts_of_each))):
        kind, attribute = kinds[turn % len(kinds)]
        values = tuple(_ATTRIBUTES[kind][attribute][0])
        facts.append(
            Fact(
                name=names[number], kind=kind, attribute=attribute, value=rng.choice(values), values=values,
                records=held,
            )
        )  # fmt: skip
    return tuple(facts)


def records_of(facts: Sequence[Fact], seed: int) -> list[dict[str, str]]:
    """Records that hold the facts, in random order: `text` and `label`, no two texts alike."""
    rng = random.Random(seed)
    records = []
    for fact in facts:
        templates = _ATTRIBUTES[fact.kind][fact.attribute][1]
        wordings = list(itertools.product(_OPENINGS, templates, _CLOSINGS))
        for opening, template, closing in rng.sample(wordings, fact.records):
            sentence = template.format(name=fact.name, value=fact.value)
            text = ' '.join(part for part in (opening, sentence, closing) if part)
            records.append({'text': text, 'label': fact.kind})
    rng.shuffle(records)
    return records


def read_facts(path: pathlib.Path) -> tuple[Fact, ...]:
    """Facts that `write` wrote as `facts.json`.

    Raises:
        ValueError: The file holds something else.
        FileNotFoundError: There is no such file.
    """
    try:
        found = json.loads(path.read_text())
        if found['schema_version'] != SCHEMA_VERSION:
            raise ValueError
        return tuple(Fact(**{**row, 'values': tuple(row['values'])}) for row in found['facts'])
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f'Expected the facts of `python -m pipeline.evaluation.facts`, got facts={str(path)!r}, which '
            'holds something else. Name its facts.json.'
        ) from None


def _attributes() -> list[tuple[Sequence[str], Sequence[str]]]:
    """Values and templates of every attribute."""
    return [pair for attributes in _ATTRIBUTES.values() for pair in attributes.values()]


def _names(rng: random.Random, count: int) -> list[str]:
    """Names of four syllables; the last follows from the others, so that no two names differ in one alone."""
    kinds = len(_SYLLABLES)
    names = []
    for code in rng.sample(range(_LARGEST_NAME_COUNT), count):
        digits = [code // kinds**power % kinds for power in range(3)]
        names.append(''.join(_SYLLABLES[digit] for digit in (*digits, sum(digits) % kinds)).capitalize())
    return names


def write(
    output: Annotated[pathlib.Path, typer.Option(help='Folder for records.jsonl and facts.json.')],
    seed: Annotated[int, typer.Option(help='Of names, values and wording.')] = 0,
    facts_of_each: Annotated[int, typer.Option(min=1, help='Facts for each number of records.')] = 10,
) -> None:
    """Writes records of invented facts, each fact in 1, 3, 10, 30, 100 or 300 of them."""
    facts = invented_facts(seed, facts_of_each=facts_of_each)
    output.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(record) + '\n' for record in records_of(facts, seed))
    (output / 'records.jsonl').write_text(''.join(lines))
    (output / 'facts.json').write_text(InventedFacts(facts=facts).to_json())


if __name__ == '__main__':
    typer.run(write)
