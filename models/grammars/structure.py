"""The structure of every example of a run: a value of a JSON Schema, or a text of a pattern.

It is a public setting. One automaton masks the sampled tokens, checks records and finishes examples that a
cap cut short. Some properties of a schema can have one fixed value in every example, and others the values
of a cell, which is one combination of their values: the examples of each cell then begin in a state of
their own, and the automaton forces their values.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from models.grammars import automaton as automaton_lib
from models.grammars import expressions, regular_expressions
from models.grammars.automaton import Automaton
from models.grammars.json_schema import compact, json_text, properties, schema

MAX_CELLS: Final = 256
# Length of a schema or a pattern: a longer one has no automaton that is small enough.
MAX_CHARACTERS: Final = 500_000

# (property, its value in JSON)
Given = tuple[tuple[str, str], ...]
# Bytes that no UTF-8 text has: marks of cells made of them cannot be confused with text.
_DIGITS = tuple(bytes([byte]) for byte in range(0xF8, 0x100))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Structure:
    """The structure of a run's examples; picklable, and each process builds the automaton anew.

    Attributes:
        json_schema: Text of a JSON Schema; None for others.
        regex: Regular expression of whole texts; None for others.
        closes_truncated: Whether an example that a cap cut short is finished with its shortest ending.
        fixed: Declared properties of the schema with the value that they have in every example, in JSON or
            as the characters of a string.
        condition_on: Declared categorical properties, whose values together are a cell.
    """

    json_schema: str | None = None
    regex: str | None = None
    closes_truncated: bool = False
    fixed: Given = ()
    condition_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.json_schema is None) == (self.regex is None):
            raise ValueError(
                'Expected either a JSON schema or a regular expression, got '
                f'json_schema={"given" if self.json_schema is not None else None}, regex={self.regex!r}. '
                'Give one.'
            )
        length = len(self.json_schema or self.regex or '')
        if length > MAX_CHARACTERS:
            raise ValueError(
                f'Expected a structure of at most {MAX_CHARACTERS:,} characters, got {length:,}. Leave out '
                'what examples need not be held to.'
            )
        names = [*(name for name, _ in self.fixed), *self.condition_on]
        if names and self.json_schema is None:
            raise ValueError(
                f'Expected a JSON schema with values of its properties, got properties={names}, '
                'json_schema=None. Give --json-schema.'
            )
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f'Expected each property once in fixed and condition_on together, got {twice} twice. Leave '
                'one out.'
            )

    @property
    def automaton(self) -> Automaton:
        """The automaton of an example's bytes, from one of `starts`.

        Raises:
            UnsupportedKeywordError: The schema has a keyword that is not enforced.
            ValueError: The schema or the pattern is malformed, too large, or no text is valid; or a property
                that is given a value is not declared, does not take it, or has no declared values.
        """
        return self._narrowed[0]

    @property
    def starts(self) -> tuple[int, ...]:
        """For each of `cells`, the automaton's state in which its examples begin."""
        return self._narrowed[1]

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """Every combination of the values of `condition_on`, in JSON; a single () without `condition_on`.

        Raises:
            ValueError: There are more than `MAX_CELLS`, or a property has no declared values.
        """
        return _cells(self.json_schema, self.condition_on)

    @property
    def _narrowed(self) -> tuple[Automaton, tuple[int, ...]]:
        if not self.fixed and not self.condition_on:
            return self._of_records, (automaton_lib.START,)
        assert self.json_schema is not None  # `__post_init__`
        return _narrowed(self.json_schema, self.fixed, self.condition_on)

    @property
    def _of_records(self) -> Automaton:
        """The automaton of records: no property has a given value."""
        return _automaton(self.json_schema, self.regex)

    def cell_of(self, text: str) -> int | None:
        """The cell of a record; None where it is no JSON object or lacks a value. A total function."""
        values = properties.property_texts(text, self.condition_on)
        return None if values is None else _numbers_of(self.json_schema, self.condition_on).get(values)

    def holds(self, text: str) -> bool:
        """True if a record has the structure, in whatever spelling JSON allows. A total function.

        A record need not have the values that examples get.
        """
        return self._spelled(text) is not None

    def shown(self, text: str) -> str:
        """A record as prompts show it: JSON in the form of examples, other text unchanged."""
        return text if self.json_schema is None else self._spelled(text) or text

    def closed(self, data: bytes, cell: int = 0) -> str:
        """A text of a cell that a cap cut short, with its shortest ending."""
        automaton, start = self.automaton, self.starts[cell]
        return (data + automaton.shortest_ending(automaton.walk(data, start))).decode(errors='replace')

    def _spelled(self, text: str) -> str | None:
        """A record in the form of examples; None where it does not have the structure."""
        if self.json_schema is not None:
            record = compact.compact(_schema(self.json_schema), text)
            if record is None:
                return None
            text = record
        return text if self._of_records.accepts(text.encode(errors='replace')) else None


def _bounded[**Arguments, Found](read: Callable[Arguments, Found]) -> Callable[Arguments, Found]:
    """A function that refuses what is nested deeper than Python follows, or takes too much to build."""

    @functools.wraps(read)
    def refusing(*arguments: Arguments.args, **options: Arguments.kwargs) -> Found:
        try:
            with automaton_lib.counted_together():
                return read(*arguments, **options)
        except RecursionError:
            pass
        raise ValueError(
            'Expected a structure whose groups, arrays and objects are nested some hundred times at the '
            'most, got one that goes deeper. Write it with fewer levels.'
        )

    return refusing


@functools.lru_cache(maxsize=4)
@_bounded
def _schema(text: str) -> Any:
    return json_text.read(text)


@functools.lru_cache(maxsize=4)
@_bounded
def _automaton(json_schema: str | None, regex: str | None) -> Automaton:
    if json_schema is not None:
        return schema.compiled(_schema(json_schema))
    assert regex is not None  # `Structure`
    automaton = automaton_lib.build(regular_expressions.matched(regex))
    if automaton.is_empty:
        raise ValueError(
            f'Expected a regex that some text matches, got '
            f'regex={regular_expressions.shortened(regex)}. Give another one.'
        )
    return automaton


@functools.lru_cache(maxsize=4)
@_bounded
def _cells(json_schema: str | None, names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    if not names:
        return ((),)
    assert json_schema is not None  # `Structure`
    values = [properties.categories(_schema(json_schema), name) for name in names]
    number = math.prod(map(len, values))
    if not 1 <= number <= MAX_CELLS:
        sizes = ', '.join(f'{name} has {len(options)}' for name, options in zip(names, values, strict=True))
        raise ValueError(
            f'Expected 1 to {MAX_CELLS} combinations of values with condition_on, got cells={number:,}: '
            f'{sizes}. Name fewer properties: every cell gets noise of its own.'
        )
    return tuple(itertools.product(*values))


@functools.lru_cache(maxsize=4)
def _numbers_of(json_schema: str | None, names: tuple[str, ...]) -> Mapping[tuple[str, ...], int]:
    return {values: number for number, values in enumerate(_cells(json_schema, names))}


@functools.lru_cache(maxsize=4)
@_bounded
def _narrowed(json_schema: str, fixed: Given, names: tuple[str, ...]) -> tuple[Automaton, tuple[int, ...]]:
    """One automaton of all cells, which share states after their values, and the start of each."""
    read, cells = _schema(json_schema), _cells(json_schema, names)
    always = {name: properties.value_text(read, name, value) for name, value in fixed}
    choices = [always | dict(zip(names, values, strict=True)) for values in cells]
    of_cells = properties.expressions_given(read, choices)
    width = 0
    while len(_DIGITS) ** width < len(cells):
        width += 1
    marks = [
        b''.join(digits) for digits in itertools.islice(itertools.product(_DIGITS, repeat=width), len(cells))
    ]
    automaton = automaton_lib.build(
        expressions.union(
            *(
                expressions.concatenation(expressions.literal(mark), of_cell)
                for mark, of_cell in zip(marks, of_cells, strict=True)
            )
        )
    )
    return automaton, tuple(automaton.walk(mark) for mark in marks)
