"""What every example of a run has to be: a value of a JSON Schema, or a text that a pattern matches.

Public settings alone decide it. The same automaton masks what is sampled, says how a record stands in a
prompt, and finishes what a cap cut short.
"""

import dataclasses
import functools
from typing import Any

from models.grammars import automaton as automaton_lib
from models.grammars import regular_expressions, schema
from models.grammars.automaton import Automaton


@dataclasses.dataclass(frozen=True, kw_only=True)
class Structure:
    """The structure of a run's examples; picklable, for what is made of it is made again elsewhere.

    Attributes:
        json_schema: Text of a JSON Schema; None for a pattern.
        regex: Regular expression of whole texts; None for a schema.
        closes_truncated: Whether an example that a cap cut short is finished with its shortest ending.
    """

    json_schema: str | None = None
    regex: str | None = None
    closes_truncated: bool = False

    def __post_init__(self) -> None:
        if (self.json_schema is None) == (self.regex is None):
            raise ValueError(
                'Expected either a JSON schema or a regular expression, got '
                f'json_schema={"given" if self.json_schema is not None else None}, regex={self.regex!r}. '
                'Give one.'
            )

    @property
    def automaton(self) -> Automaton:
        """Of an example's bytes.

        Raises:
            UnsupportedKeywordError: The schema has a keyword that is not enforced.
            ValueError: The schema or the pattern is malformed, too large, or no text is valid.
        """
        return _automaton(self.json_schema, self.regex)

    def holds(self, text: str) -> bool:
        """Whether a text has the structure, in whatever spelling JSON allows. A total function."""
        return self._spelled(text) is not None

    def shown(self, text: str) -> str:
        """How a text stands in a prompt: JSON as examples are spelled, and what it is not as it is."""
        return text if self.json_schema is None else self._spelled(text) or text

    def closed(self, data: bytes) -> str:
        """A text from its first bytes: what a cap cut short, with its shortest ending."""
        found = self.automaton
        return (data + found.shortest_ending(found.walk(data))).decode(errors='replace')

    def _spelled(self, text: str) -> str | None:
        """A text as an example would be; None where it has not the structure."""
        if self.json_schema is not None:
            compact = schema.compact(_schema(self.json_schema), text)
            if compact is None:
                return None
            text = compact
        return text if self.automaton.accepts(text.encode(errors='replace')) else None


@functools.lru_cache(maxsize=4)
def _schema(text: str) -> Any:
    return schema.read(text)


@functools.lru_cache(maxsize=4)
def _automaton(json_schema: str | None, regex: str | None) -> Automaton:
    if json_schema is not None:
        return schema.compiled(_schema(json_schema))
    assert regex is not None  # `Structure`
    found = automaton_lib.build(regular_expressions.matched(regex))
    if found.is_empty:
        raise ValueError(f'Expected a regex that some text matches, got regex={regex!r}. Give another one.')
    return found
