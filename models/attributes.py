"""Attributes of a text, such as its category and its sentiment, and labels that combine their values.

A run with declared attributes controls each of them (FT 3.1). A label is one combination: its string is the
values in the attributes' order, joined by `SEPARATOR`, which no declared value contains. So a record has a
declared label exactly if each of its values is declared, and code that groups, counts or names labels
treats these labels like all others.
"""

import dataclasses
from collections.abc import Iterable

SEPARATOR = '|'
# Each combination has an instruction, batches and texts of its own.
MOST_COMBINATIONS = 1_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attribute:
    """One declared attribute. Public.

    Attributes:
        column: Its column in the records and in the corpus.
        words: Pairs of each declared value and the words for it in prompts, in the declared order.
    """

    column: str
    name: str
    words: tuple[tuple[str, str], ...]

    def words_of(self, value: str) -> str:
        """The words for a declared value in prompts."""
        return dict(self.words)[value]


def label_of(values: Iterable[str]) -> str:
    """The label of one value of each attribute."""
    return SEPARATOR.join(values)


def values_of(label: str) -> tuple[str, ...]:
    """The value of each attribute in a declared label."""
    return tuple(label.split(SEPARATOR))
