"""Lines of CSV files that quotes join or spoil, for the curator alone."""

from collections.abc import Iterable, Iterator, Sequence

from transforms.read import Reason, RecordFields, file_format
from transforms.read import dialect as dialect_lib
from transforms.read.compression import CorruptStream
from transforms.read.errors import naming_only
from transforms.read.files import open_file
from transforms.read.formats import FORMATS
from transforms.read.formats.csv import Csv, CsvRow, csv_rows, has_width
from transforms.read.sources import source_of

# Limit on rows that look wrong and are read again with other quotes.
_BYTES_READ_AGAIN = 2**20


class QuotedLines:
    """Numbers of lines of CSV files that quotes join or spoil. Restricted to the curator.

    Attributes:
        continued: Lines that continue a row within quotes: no record and no rejection of their own.
        alike: Those of rows of which each line, read without quotes, has the columns of the header.
        stray: Rows rejected because of a quote.

    Args:
        paths: Files and other places; those that are no CSV are passed over.
        fields: Columns, and how files are written, as a run reads them.
    """

    def __init__(self, paths: Sequence[str], fields: RecordFields) -> None:
        self._fields = fields
        # Rows with the columns of rows that look wrong, by quoting.
        self._fitting = dict.fromkeys(dialect_lib.QUOTINGS, 0)
        self._bytes_read_again = 0
        self.continued = self.alike = self.stray = 0
        if fields.dialect.quoting != dialect_lib.NONE:
            for path in paths:
                if source_of(path) is None:
                    with naming_only(path):
                        self._add_file(path)

    def _add_file(self, path: str) -> None:
        name, codec = file_format(path)
        form = FORMATS[name]
        if not isinstance(form, Csv):
            return
        with open_file(path) as file:
            try:
                layout, rows = form.open(file, codec, self._fields)
                header = None if self._fields.positional else next(rows, ([], b''))[0]
                if not isinstance(header, Reason):
                    self._add_rows(rows, layout, header)
            except CorruptStream:
                pass  # the rows before the damage were counted; the rest is rejected as one

    def _add_rows(
        self, rows: Iterable[CsvRow], layout: dialect_lib.Layout, header: Sequence[str] | None
    ) -> None:
        for row, raw in rows:
            continued = raw.removesuffix(layout.line_end).count(layout.line_end)
            self.continued += continued
            is_stray = row is Reason.MALFORMED and b'"' in raw
            is_alike = continued > 0 and self._all_alike(raw, continued + 1, layout, header)
            is_wide = b'"' in raw and not isinstance(row, Reason) and not self._has_columns(row, header)
            if is_stray or is_alike or is_wide:
                # Quotes are the cause of wrong columns if other quotes explain them.
                is_stray |= self._read_again(raw, layout, header) and is_wide
            self.stray += is_stray
            self.alike += continued * is_alike

    def _all_alike(
        self, raw: bytes, lines: int, layout: dialect_lib.Layout, header: Sequence[str] | None
    ) -> bool:
        """True if each line of a row, read without quotes, has the columns of the header."""
        if header is None or len(dialect_lib.named(header)) < 2:
            return False
        rows = 0
        for row, _ in csv_rows([raw], layout.delimiter, dialect_lib.NONE, layout.line_end):
            if not self._has_columns(row, header):
                return False
            rows += 1
        return rows == lines

    def _read_again(self, raw: bytes, layout: dialect_lib.Layout, header: Sequence[str] | None) -> bool:
        """Reads a row that looks wrong with all quotes; whether any gives it the columns."""
        if self._bytes_read_again >= _BYTES_READ_AGAIN:
            return False
        self._bytes_read_again += len(raw)
        explained = False
        for quoting in self._fitting:
            anew = csv_rows([raw], layout.delimiter, quoting, layout.line_end)
            fitting = sum(self._has_columns(each, header) for each, _ in anew)
            self._fitting[quoting] += fitting
            explained |= fitting > 0
        return explained

    def _has_columns(self, row: list[str] | Reason, header: Sequence[str] | None) -> bool:
        if isinstance(row, Reason):
            return False
        if header is None:
            return len(row) > max(map(int, self._fields.names))
        return has_width(row, header)

    @property
    def remedy(self) -> str | None:
        """The quoting with which most rows that look wrong have the columns; None if none helps."""
        # The first of several as good: it keeps the quotes that the others read as text.
        best = max(self._fitting, key=lambda quoting: self._fitting[quoting])
        return best if self._fitting[best] > self._fitting[self._fields.dialect.quoting] else None


def findings(counts: QuotedLines, quoting: str) -> Iterator[str]:
    """Advice on what to look at, a sentence or two each."""
    seen = []
    if counts.stray:
        seen.append(f'Rows rejected because of a quote: {counts.stray:,}.')
    # Lines of a proper text look like rows now and then.
    if counts.alike and 2 * counts.alike >= counts.continued:
        seen.append(
            f'Lines that are no record and no rejection of their own, since a quote before them makes them '
            f'part of one value: {counts.continued:,}. Of these look like rows: {counts.alike:,}.'
        )
    if not seen:
        return
    others = ' or '.join(f'--quoting {each}' for each in dialect_lib.QUOTINGS if each != quoting)
    explained = {
        None: f'If the writer of the file quotes otherwise, give {others}, else mend the rows.',
        dialect_lib.DOUBLE: 'Quotes that are written twice explain it: give --quoting double.',
        dialect_lib.BACKSLASH: 'Quotes after a backslash explain it: give --quoting backslash.',
        dialect_lib.NONE: 'A file whose writer quotes nothing explains it: give --quoting none.',
    }
    yield f'{" ".join(seen)} {explained[counts.remedy]}'
