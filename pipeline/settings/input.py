"""Settings of the input: which files, which of their columns, and what is declared of them."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable

from models import attributes as attributes_lib
from models import spelling
from pipeline.settings import panel
from transforms import places
from transforms.run_files import CORPUS_COLUMNS
from transforms.text_files import (
    DELIMITER_HELP,
    ENCODING_HELP,
    QUOTING_HELP,
    Encoding,
    Quoting,
    check_delimiter,
    check_text_flags,
    delimiter_of,
)

_setting = functools.partial(panel.setting, 'Input')

# Characters with a meaning around a column's name: in --labels, --label-name, --label-mix, a label, a
# prompt, the dataset card.
_NOT_IN_ATTRIBUTES = ',:=|{}`'
INPUT_HELP = (
    'Sensitive records: files of JSONL, CSV, Parquet or Excel, also compressed, with globs and comma lists; '
    'a folder of texts, DIR/LABEL/*.txt; a database, postgresql://USER@HOST/NAME or sqlite:///FILE, with '
    '--query; a Hugging Face data set, hf://DIR or hf://OWNER/NAME.'
)
QUERY_HELP = (
    "SELECT of the records, of a database: 'SELECT id, note AS text, ward FROM notes'. The names of its "
    'columns are those that the other flags name.'
)
PARTITION_HELP = (
    'Column of the query, best its indexed key, by whose ranges workers read at the same time. Default: one '
    'worker reads all.'
)
SHEET_HELP = 'Sheet of the Excel workbooks. Default: the only one that is not empty.'
SPLIT_HELP = 'Split of the Hugging Face data set. Default: the only one.'


def _spelled(value: str) -> str:
    """A declared value as records are compared with it."""
    # A value that is no text has no spelling, and no record has it.
    return value if (spelt := spelling.spelled(value)) is None else spelt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input(panel.Panel):
    """Settings of the input. `input` may be None for `plan`, which reads nothing."""

    input: str | None = _setting(INPUT_HELP, None, path='patterns')
    query: str | None = _setting(QUERY_HELP, None)
    partition_column: str | None = _setting(PARTITION_HELP, None, names_path=False)
    sheet: str | None = _setting(SHEET_HELP, None, names_path=False)
    split: str | None = _setting(SPLIT_HELP, None, names_path=False)
    delimiter: str | None = _setting(DELIMITER_HELP, None, names_path=False)
    encoding: Encoding | None = _setting(ENCODING_HELP, None)
    quoting: Quoting = _setting(QUOTING_HELP, 'double')
    text_field: str = _setting(
        "Column of the text. Numbers ('0') mean a CSV without a header row.", 'text', names_path=False
    )
    label_field: str | None = _setting('Column of the label.', None, names_path=False)
    labels: tuple[str, ...] = _setting(
        'Declared labels, comma-separated; VALUE=WORDS says what prompts, corpus and reports call one, and '
        'COLUMN:VALUE=WORDS declares a value of an attribute; in a TOML file a list of these, or a table of '
        'words by value, of attributes one for each. Others are rejected.',
        (),
        names_path=False,
    )
    attributes: tuple[str, ...] = _setting(
        'Columns of several attributes in place of --label-field, comma-separated. Every combination of '
        'their declared values is a label, VALUE|VALUE, and the corpus has their columns too.',
        (),
        names_path=False,
    )
    unit_field: str | None = _setting('Column of the unit id (of the user, say).', None, names_path=False)
    record_id_field: str | None = _setting(
        "Column of the row's own id, which spreads duplicated texts over batches.", None, names_path=False
    )
    records: int | None = _setting(
        'Declared number of records (users, under the user unit): public, never counted.', None
    )
    sample_rate: float = _setting(
        'Share of the units that the run takes, each whole or not at all by a keyed hash of its own, for a '
        'first try on fewer: its cost stays that of a run on all.',
        1.0,
    )
    max_record_bytes: int = _setting('Longer records are rejected.', 100_000)
    keep_rejected: bool = _setting(
        'Keep rejected rows in the work directory, restricted to the curator.', False
    )

    def check(self) -> None:
        if self.records is not None and self.records < 2:
            raise ValueError(
                f'Expected records >= 2, got records={self.records}. Declare the public size of the input.'
            )
        if self.attributes:
            self._check_attributes()
        elif bool(self.labels) != (self.label_field is not None):
            raise ValueError(
                f'Expected labels and label_field together or not at all, got labels={list(self.labels)!r}, '
                f'label_field={self.label_field!r}. Give both --label-field and --labels, or --attributes: '
                'labels are declared, never read from the records. With one of them given, `dp-corpus check` '
                'lists the others that the file holds, for the curator.'
            )
        if len(set(self.label_values)) < len(self.label_values):
            raise ValueError(
                f'Expected distinct labels, got labels={list(self.labels)!r}. Declare each label once.'
            )
        self._check_share('sample_rate')
        check_delimiter(self.delimiter, self.quoting)
        # A tab by its name is the character from here on.
        object.__setattr__(self, 'delimiter', delimiter_of(self.delimiter))
        self._check_table()
        self._check_positive('max_record_bytes')

    def _check_table(self) -> None:
        """Refuses a place and a table of it that do not go together, or a password in its URL."""
        if self.partition_column is not None and self.query is None:
            raise ValueError(
                f'Expected partition_column with a query, got partition_column={self.partition_column!r} '
                'without one. Files are read in parallel as they are: leave it out.'
            )
        place = self.input
        if place is None:
            return
        if not places.is_database(place) and any(map(places.is_database, place.split(','))):
            # Not quoted: it may hold a password.
            raise ValueError(
                'Expected the URL of a database alone, got it in a list with other places. Give --input that '
                'URL, and read the others in a run of their own.'
            )
        if places.has_password(place):
            # Neither a process list nor a config file is a place for one.
            raise ValueError(
                'Expected the URL of the records without a password, got one with it. Leave it out, and set '
                f'{places.PASSWORD_VARIABLE}, PGPASSWORD or PGPASSFILE in the environment.'
            )
        # By their text alone: nothing is looked up before a library loads.
        parts = [part.strip() for part in place.split(',')]
        if places.is_database(place) != (self.query is not None):
            raise ValueError(
                'Expected a query exactly with a database, got '
                f'input={place!r}, query={self.query!r}. Give --query '
                "'SELECT id, note AS text FROM notes' with --input postgresql://USER@HOST/NAME or "
                'sqlite:///FILE, and none with files.'
            )
        for name, value, of_kind, kind in (
            ('sheet', self.sheet, places.is_workbook, 'Excel workbooks (.xlsx)'),
            ('split', self.split, places.is_dataset, 'a data set (hf://)'),
        ):
            if value is not None and not any(map(of_kind, parts)):
                raise ValueError(
                    f'Expected {name} with {kind}, got {name}={value!r}, input={place!r}. Leave it out.'
                )

    def check_text_flags(self, read: Iterable[str]) -> None:
        """Refuses a format of files of text where no place that is read has any."""
        check_text_flags(read, delimiter=self.delimiter, encoding=self.encoding, quoting=self.quoting)

    def _check_attributes(self) -> None:
        asked = f'attributes={list(self.attributes)!r}'
        if self.label_field is not None:
            raise ValueError(
                f'Expected label_field or attributes, got label_field={self.label_field!r}, {asked}. A label '
                'is what one column says, or what several say together: leave out one of them.'
            )
        if len(set(self.attributes)) < len(self.attributes):
            raise ValueError(f'Expected distinct attributes, got {asked}. Name each column once.')
        for name in self.attributes:
            if not name.isprintable() or not name.strip() or set(name) & set(_NOT_IN_ATTRIBUTES):
                raise ValueError(
                    f'Expected attributes named without {" ".join(_NOT_IN_ATTRIBUTES)} and line breaks, got '
                    f'attribute={name!r}. Rename the column.'
                )
            if name in CORPUS_COLUMNS:
                raise ValueError(
                    f'Expected attributes that are no columns of every corpus, got attribute={name!r}. Each '
                    'has a column of its own name there: rename it in the records.'
                )
        of_each: dict[str, list[str]] = {name: [] for name in self.attributes}
        for entry in self.labels:
            name, colon, declared = entry.partition(':')
            if not colon or name not in of_each:
                raise ValueError(
                    f'Expected COLUMN:VALUE=WORDS with an attribute as column in labels, got {entry!r}, '
                    f"{asked}. Give --labels 'category:books=Books,sentiment:pos=positive', say, with those "
                    'of --attributes.'
                )
            of_each[name].append(_spelled(declared.partition('=')[0]))
        for name, values in of_each.items():
            if not values:
                raise ValueError(
                    f'Expected declared values of each attribute, got none of attribute={name!r} in '
                    f"labels={list(self.labels)!r}. Give --labels '{name}:VALUE=WORDS,...': values are "
                    'declared, never read from the records.'
                )
            if len(set(values)) < len(values):
                raise ValueError(
                    f'Expected distinct values of each attribute, got {values!r} of attribute={name!r}. '
                    'Declare each value once.'
                )
            if split := [value for value in values if attributes_lib.SEPARATOR in value]:
                raise ValueError(
                    f'Expected values without {attributes_lib.SEPARATOR}, which stands between them in a '
                    f'label, got {split!r} of attribute={name!r}. Spell them otherwise in the records.'
                )
        numbers = [len(values) for values in of_each.values()]
        if math.prod(numbers) > attributes_lib.MOST_COMBINATIONS:
            raise ValueError(
                f'Expected at most {attributes_lib.MOST_COMBINATIONS:,} combinations of declared values, got '
                f'{" x ".join(map(str, numbers))} = {math.prod(numbers):,} of {asked}. Each has an '
                'instruction and texts of its own: declare fewer attributes or values.'
            )

    @property
    def attribute_words(self) -> dict[str, dict[str, str]]:
        """Words of each declared value of each attribute, '' for none, all in their declared order."""
        words_by_value: dict[str, dict[str, str]] = {name: {} for name in self.attributes}
        for entry in self.labels if self.attributes else ():
            name, _, declared = entry.partition(':')
            value, _, words = declared.partition('=')
            words_by_value[name][_spelled(value)] = words
        return words_by_value

    @property
    def sampled_records(self) -> float | None:
        """Records, or users, that the run takes of the declared ones in the mean; None where none are."""
        return None if self.records is None else self.records * self.sample_rate

    @property
    def _declared(self) -> list[tuple[tuple[str, str], ...]]:
        """Declared labels, each as (value, words) of every column that it has, with '' for no words."""
        if self.attributes:
            return list(itertools.product(*(words.items() for words in self.attribute_words.values())))
        pairs = (label.partition('=') for label in self.labels)
        return [((_spelled(value), words),) for value, _, words in pairs]

    def label_named(self, label: str) -> str:
        """A label as `label_values` has it, where another setting names it."""
        values = attributes_lib.values_of(label) if self.attributes else (label,)
        return attributes_lib.label_of(map(_spelled, values))

    @property
    def label_values(self) -> tuple[str | None, ...]:
        """Declared labels, spelled as those of records are (`models.spelling`); a single None without labels.

        Of attributes all combinations of their values, in which those of the last one change fastest.
        """
        return tuple(attributes_lib.label_of(value for value, _ in pairs) for pairs in self._declared) or (
            None,
        )

    @property
    def declared_words(self) -> dict[str | None, str]:
        """The words of those labels that were declared with any."""
        known = zip(self.label_words.items(), self._declared, strict=True)
        return {label: words for (label, words), pairs in known if any(its_words for _, its_words in pairs)}

    @property
    def label_words(self) -> dict[str, str]:
        """The words that prompts have for each declared label."""
        return {
            attributes_lib.label_of(value for value, _ in pairs): ', '.join(
                words or value for value, words in pairs
            )
            for pairs in self._declared
        }
