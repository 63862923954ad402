"""Attributes of a text, such as its category and its sentiment, and labels that combine their values.

Whoever declares attributes controls each of them (FT 3.1). A label is one combination: its string is the
values in the attributes' order, joined by `SEPARATOR`, which no declared value holds. So a record has
a declared label exactly where each of its values is declared, and all that groups, counts or names labels
takes it as any other.
"""

import dataclasses
from collections.abc import Iterable

SEPARATOR = '|'
# Each combination has an instruction, batches and texts of its own.
MOST_COMBINATIONS = 1_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attribute:
    """One attribute, as it is declared. Public.

    Attributes:
        column: Its column in the records and in the corpus.
        name: What prompts call it.
        words: (value, what prompts call it) of each declared value, in their order.
    """

    column: str
    name: str
    words: tuple[tuple[str, str], ...]

    def words_of(self, value: str) -> str:
        """What prompts call a declared value."""
        return dict(self.words)[value]


def label_of(values: Iterable[str]) -> str:
    """The label of one value of each attribute."""
    return SEPARATOR.join(values)


def values_of(label: str) -> tuple[str, ...]:
    """The value of each attribute in a declared label."""
    return tuple(label.split(SEPARATOR))
