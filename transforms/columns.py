"""The columns of a method's corpus."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from models import attributes

# The column of a label's declared words.
LABEL_WORDS = 'label_words'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """The rows and the columns of a method's corpus.

    They are the same for every run of the method, except for the columns that labels add.

    Attributes:
        row: Type of a row: a frozen dataclass whose fields are the schema's columns. JSON can hold each
            value. The field `batch_id`, the `str` of a planned batch, decides the row's shard.
        schema: The columns on disk.
        order: Fields that sort the rows of a shard; no two rows have the same values in them.
        totals: Dataclass of whole numbers that add up over shards.
        count: Rows of one shard -> their totals.
        meanings: Column -> its type and its meaning, for people.
        label_words: Label -> the words that the run declares for it. They fill a column after that of the
            label; empty: there is no such column.
        attributes: Names of the attributes whose values make up a label. Each gets a column after that of
            the label; empty: there are no such columns.
    """

    row: Callable[..., Any]
    schema: pa.Schema
    order: tuple[str, ...]
    totals: type
    count: Callable[[Sequence[Any]], Any]
    meanings: Mapping[str, tuple[str, str]]
    label_words: Mapping[str | None, str] = dataclasses.field(default_factory=dict)
    attributes: tuple[str, ...] = ()

    def with_label_words(self, words: Mapping[str | None, str]) -> 'Columns':
        """The same with a column of declared words after that of the label; itself if there are no words."""
        if not words or 'label' not in self.schema.names:
            return self
        meaning = 'What the run declares to call the label; null where it declares no words for it.'
        return dataclasses.replace(self._with_text(LABEL_WORDS, meaning), label_words=words)

    def with_attributes(self, names: Sequence[str]) -> 'Columns':
        """The same with a column for each attribute after that of the label; itself if there are none."""
        if not names or 'label' not in self.schema.names:
            return self
        columns = self
        for name in reversed(names):  # each is inserted before those that are there
            columns = columns._with_text(name, 'The value of this attribute in the label.')
        return dataclasses.replace(columns, attributes=tuple(names))

    def _with_text(self, name: str, meaning: str) -> 'Columns':
        """The same with one more column of texts after that of the label."""
        place = self.schema.names.index('label') + 1
        meanings = list(self.meanings.items())
        return dataclasses.replace(
            self,
            schema=self.schema.insert(place, pa.field(name, pa.string())),
            meanings=dict([*meanings[:place], (name, ('string', meaning)), *meanings[place:]]),
        )

    def values(self, row: Any) -> dict[str, Any]:
        """A row's value in each column on disk."""
        added = {LABEL_WORDS: self.label_words.get(row.label)} if self.label_words else {}
        if self.attributes:
            added |= zip(self.attributes, attributes.values_of(row.label), strict=True)
        names = (name for name in self.schema.names if name not in added)
        return {name: getattr(row, name) for name in names} | added
