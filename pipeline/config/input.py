"""Settings of the input: which files, which of their columns, and what is declared of them."""

import dataclasses
import functools
import typing

from pipeline.config import panel

_setting = functools.partial(panel.setting, 'Input')

# utf-16 is of the byte order that the file's mark says.
Encoding = typing.Literal[
    'utf-8',
    'utf-16',
    'utf-16-le',
    'utf-16-be',
    'windows-1250',
    'windows-1251',
    'windows-1252',
    'windows-1253',
    'windows-1254',
    'iso-8859-1',
    'iso-8859-2',
    'iso-8859-15',
    'shift-jis',
    'euc-kr',
    'big5',
    'gb18030',
]
DELIMITER_HELP = (
    'What separates the columns of CSV files: one character, or tab. Default: the first of , ; tab and | '
    'with which the header line has the columns that are asked for, else a comma.'
)
ENCODING_HELP = (
    'Encoding of CSV files; spreadsheets often write utf-16 or windows-1252. Default: utf-8, or utf-16 where '
    'a byte order mark or the header line shows it.'
)


def delimiter_of(name: str | None) -> str | None:
    """The character between columns, which a command line or a TOML file may call tab.

    Raises:
        ValueError: It is not one character, or one that a CSV file needs for something else.
    """
    delimiter = '\t' if name in ('tab', '\\t') else name
    if delimiter is not None and (len(delimiter) != 1 or delimiter in ' "\r\n\0'):
        raise ValueError(
            'Expected one character that is no quote, space or line end between columns, got '
            f"delimiter={name!r}. Give --delimiter ';', or tab."
        )
    return delimiter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input(panel.Panel):
    """What is read. `input` may be None for `plan`, which reads nothing."""

    input: str | None = _setting(
        'Files of sensitive records: JSONL, CSV or Parquet, also compressed; globs and comma lists.', None
    )
    delimiter: str | None = _setting(DELIMITER_HELP, None, names_path=False)
    encoding: Encoding | None = _setting(ENCODING_HELP, None)
    text_field: str = _setting(
        "Column of the text. Numbers ('0') mean a CSV without a header row.", 'text', names_path=False
    )
    label_field: str | None = _setting('Column of the label.', None, names_path=False)
    labels: tuple[str, ...] = _setting(
        'Declared labels, comma-separated; VALUE=WORDS says what prompts, corpus and reports call one; in a '
        'TOML file a list of these, or a table of words by value. Others are rejected.',
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
        if bool(self.labels) != (self.label_field is not None):
            raise ValueError(
                f'Expected labels and label_field together or not at all, got labels={list(self.labels)!r}, '
                f'label_field={self.label_field!r}. Give both --label-field and --labels: labels are '
                'declared, never read from the records. With one of them given, `dp-corpus check` lists '
                'the others that the file holds, for the curator.'
            )
        if len(set(self.label_values)) < len(self.label_values):
            raise ValueError(
                f'Expected distinct labels, got labels={list(self.labels)!r}. Declare each label once.'
            )
        if not 0 < self.sample_rate <= 1:
            raise ValueError(
                f'Expected 0 < sample_rate <= 1, got sample_rate={self.sample_rate!r}. Give '
                '--sample-rate 0.1 for a tenth of the units, or leave it out for all.'
            )
        delimiter_of(self.delimiter)
        self._check_positive('max_record_bytes')

    @property
    def sampled_records(self) -> float | None:
        """Records, or users, that the run takes of the declared ones in the mean; None where none are."""
        return None if self.records is None else self.records * self.sample_rate

    @property
    def resolved_delimiter(self) -> str | None:
        """The character between columns of CSV; None where each header line shows it."""
        return delimiter_of(self.delimiter)

    @property
    def label_values(self) -> tuple[str | None, ...]:
        """Declared labels as they stand in the records; a single None without labels."""
        return tuple(label.partition('=')[0] for label in self.labels) or (None,)

    @property
    def declared_words(self) -> dict[str | None, str]:
        """The words of those labels that were declared with any."""
        pairs = (label.partition('=') for label in self.labels)
        return {value: words for value, _, words in pairs if words}

    @property
    def label_words(self) -> dict[str, str]:
        """What prompts call each declared label."""
        pairs = (label.partition('=') for label in self.labels)
        return {value: words or value for value, _, words in pairs}
