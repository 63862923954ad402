"""Flags that say how files of text are written, checked before a library loads."""

import typing
from collections.abc import Iterable

from transforms import places

Quoting = typing.Literal['double', 'backslash', 'none']
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
    'What separates the columns of CSV files: one character, or tab. Default: what a first line sep=; says, '
    'or the first of , ; tab and | with which the header line has the columns that are asked for, else a '
    'comma, in .tsv files a tab.'
)
ENCODING_HELP = (
    'Encoding of files of text; spreadsheets often write CSV as utf-16 or windows-1252. Default: utf-8, or '
    'utf-16 where a byte order mark or the header line of CSV shows it. One of: '
    f'{", ".join(typing.get_args(Encoding))}.'
)
QUOTING_HELP = (
    'Quotes in CSV files. double: a quote within quotes is written twice (RFC 4180). backslash: \\" is a '
    'quote and \\\\ a backslash, as MySQL, Spark and pandas may write them. none: no character quotes, and '
    'every line is a row.'
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


def check_delimiter(name: str | None, quoting: Quoting) -> None:
    """Refuses a delimiter that is none, or that the quotes need."""
    if delimiter_of(name) == '\\' and quoting == 'backslash':
        raise ValueError(
            f'Expected a delimiter that is no backslash with quoting={quoting!r}, got delimiter={name!r}. '
            'Give another of the two.'
        )


def check_text_flags(
    read: Iterable[str], *, delimiter: str | None, encoding: str | None, quoting: Quoting
) -> None:
    """Refuses flags of files of text where no place that the command reads is of their kind.

    A flag that nobody gave is None, and `quoting` is 'double'.
    """
    flags = [
        (name, value, is_kind, kind)
        for name, value, is_kind, kind in (
            ('delimiter', delimiter, places.may_be_csv, 'CSV files'),
            ('quoting', None if quoting == 'double' else quoting, places.may_be_csv, 'CSV files'),
            ('encoding', encoding, places.may_be_text, 'files of text (CSV, JSON or a folder of texts)'),
        )
        if value is not None
    ]
    # Paths are looked up where it matters alone: a URL with a comma loads a library.
    parts = [part for place in read for part in places.split_patterns(place)] if flags else []
    for name, value, is_kind, kind in flags:
        if parts and not any(map(is_kind, parts)):
            raise ValueError(
                f'Expected {name} with {kind}, got {name}={value!r}, input={",".join(parts)!r}. Leave it out.'
            )
