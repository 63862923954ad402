"""What every example of a run has to be: a value of a JSON Schema, or a text of a pattern or a grammar.

Public settings alone decide it. The same automaton masks what is sampled, says how a record stands in a
prompt, and finishes what a cap cut short. Some properties of a schema may have one value in every example,
and others the values of a cell, one combination of them: then each cell's examples begin in a state of
their own, and their values are forced like all else that the automaton leaves no choice of.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any, Final

from models.grammars import automaton as automaton_lib
from models.grammars import expressions, lark, regular_expressions, schema
from models.grammars.automaton import Automaton

MAX_CELLS: Final = 256

# (property, its value in JSON)
Given = tuple[tuple[str, str], ...]
# In no text of UTF-8, so that what tells cells apart before their first byte is no text.
_DIGITS = tuple(bytes([byte]) for byte in range(0xF8, 0x100))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Structure:
    """The structure of a run's examples; picklable, for what is made of it is made again elsewhere.

    Attributes:
        json_schema: Text of a JSON Schema; None for others.
        regex: Regular expression of whole texts; None for others.
        grammar: Text of a Lark grammar; None for others.
        closes_truncated: Whether an example that a cap cut short is finished with its shortest ending.
        fixed: Declared properties of the schema with the value that they have in every example, in JSON or
            as the characters of a string.
        condition_on: Declared categorical properties, whose values together are a cell.
    """

    json_schema: str | None = None
    regex: str | None = None
    grammar: str | None = None
    closes_truncated: bool = False
    fixed: Given = ()
    condition_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if [self.json_schema, self.regex, self.grammar].count(None) != 2:
            raise ValueError(
                'Expected either a JSON schema or a regular expression or a grammar, got '
                f'json_schema={"given" if self.json_schema is not None else None}, regex={self.regex!r}, '
                f'grammar={"given" if self.grammar is not None else None}. Give one.'
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
        """Of an example's bytes, from one of `starts` on.

        Raises:
            UnsupportedKeywordError: The schema has a keyword that is not enforced.
            UnsupportedGrammarError: The grammar is malformed, or has what is not supported.
            ValueError: The schema or the pattern is malformed, too large, or no text is valid; or a property
                that is given a value is not declared, does not take it, or has no declared values.
        """
        return self._narrowed[0]

    @property
    def starts(self) -> tuple[int, ...]:
        """The automaton's state where examples begin, for each of `cells`."""
        return self._narrowed[1]

    @property
    def cells(self) -> tuple[tuple[str, ...], ...]:
        """The values of `condition_on` in JSON, every combination; a single () where there are none.

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
        """As `automaton`, with no property given a value."""
        return _automaton(self.json_schema, self.regex, self.grammar)

    def cell_of(self, text: str) -> int | None:
        """The cell of a record; None where it is no JSON object or lacks a value. A total function."""
        values = schema.property_texts(text, self.condition_on)
        return None if values is None else _numbers_of(self.json_schema, self.condition_on).get(values)

    def holds(self, text: str) -> bool:
        """Whether a record has the structure, in whatever spelling JSON allows. A total function.

        A record need not have the values that examples are given.
        """
        return self._spelled(text) is not None

    def shown(self, text: str) -> str:
        """How a record stands in a prompt: JSON as examples are spelled, and what it is not as it is."""
        return text if self.json_schema is None else self._spelled(text) or text

    def closed(self, data: bytes, cell: int = 0) -> str:
        """A text of a cell from its first bytes: what a cap cut short, with its shortest ending."""
        found, start = self.automaton, self.starts[cell]
        return (data + found.shortest_ending(found.walk(data, start))).decode(errors='replace')

    def _spelled(self, text: str) -> str | None:
        """A record as an example would be; None where it has not the structure."""
        if self.json_schema is not None:
            compact = schema.compact(_schema(self.json_schema), text)
            if compact is None:
                return None
            text = compact
        return text if self._of_records.accepts(text.encode(errors='replace')) else None


@functools.lru_cache(maxsize=4)
def _schema(text: str) -> Any:
    return schema.read(text)


@functools.lru_cache(maxsize=4)
def _automaton(json_schema: str | None, regex: str | None, grammar: str | None) -> Automaton:
    if json_schema is not None:
        return schema.compiled(_schema(json_schema))
    if grammar is not None:
        found = automaton_lib.build(lark.matched(grammar))
        if found.is_empty:
            raise ValueError('Expected a grammar that some text matches, got one of none. Give another one.')
        return found
    assert regex is not None  # `Structure`
    found = automaton_lib.build(regular_expressions.matched(regex))
    if found.is_empty:
        raise ValueError(f'Expected a regex that some text matches, got regex={regex!r}. Give another one.')
    return found


@functools.lru_cache(maxsize=4)
def _cells(json_schema: str | None, names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    if not names:
        return ((),)
    assert json_schema is not None  # `Structure`
    values = [schema.categories(_schema(json_schema), name) for name in names]
    number = math.prod(map(len, values))
    if not 1 <= number <= MAX_CELLS:
        sizes = ', '.join(f'{name} has {len(of)}' for name, of in zip(names, values, strict=True))
        raise ValueError(
            f'Expected 1 to {MAX_CELLS} combinations of values with condition_on, got cells={number:,}: '
            f'{sizes}. Name fewer properties: every cell gets noise of its own.'
        )
    return tuple(itertools.product(*values))


@functools.lru_cache(maxsize=4)
def _numbers_of(json_schema: str | None, names: tuple[str, ...]) -> Mapping[tuple[str, ...], int]:
    return {values: number for number, values in enumerate(_cells(json_schema, names))}


@functools.lru_cache(maxsize=4)
def _narrowed(json_schema: str, fixed: Given, names: tuple[str, ...]) -> tuple[Automaton, tuple[int, ...]]:
    """One automaton of all cells, which share what follows their values, and where each begins."""
    read, cells = _schema(json_schema), _cells(json_schema, names)
    always = {name: schema.value_text(read, name, value) for name, value in fixed}
    given = [always | dict(zip(names, values, strict=True)) for values in cells]
    of_cells = schema.expressions_given(read, given)
    width = 0
    while len(_DIGITS) ** width < len(cells):
        width += 1
    marks = [
        b''.join(digits) for digits in itertools.islice(itertools.product(_DIGITS, repeat=width), len(cells))
    ]
    found = automaton_lib.build(
        expressions.union(
            *(
                expressions.concatenation(expressions.literal(mark), of_cell)
                for mark, of_cell in zip(marks, of_cells, strict=True)
            )
        )
    )
    return found, tuple(found.walk(mark) for mark in marks)
