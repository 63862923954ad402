"""Input files -> records and rejections."""

import dataclasses
import posixpath
from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam import coders

from models.records import Record
from transforms.read import files
from transforms.read.compression import CorruptStream
from transforms.read.errors import naming_only
from transforms.read.formats import FORMATS, RawRow
from transforms.read.rules import (
    REJECTION_BYTES,
    Reason,
    RecordFields,
    RecordRules,
    Rejection,
    Table,
    to_record,
)
from transforms.read.sources import Part, source_of

# (path, part of the file or of the other place) that one worker reads at a time.
Piece = tuple[str, Part]


def split_file(path: str, table: Table | None = None) -> Iterator[Piece]:
    """The parts of a file: the row groups of a Parquet file, or a text file as a whole."""
    if (source := source_of(path)) is not None:
        for part in source.parts(path, table or Table()):
            yield path, part
        return
    name, _ = files.file_format(path)
    for part in FORMATS[name].parts(lambda: files.open_file(path)):
        yield path, part


def read_rows(piece: Piece, fields: RecordFields, *, whole: bool = False) -> Iterator[RawRow]:
    """The rows of one piece, streamed, in the file's order, with the needed columns, or with all."""
    path, part = piece
    try:
        if (source := source_of(path)) is not None:
            yield from source.rows(path, part, fields, whole=whole)
            return
        name, codec = files.file_format(path)
        with files.open_file(path) as file:
            yield from FORMATS[name].rows(file, codec, part, fields, whole=whole)
    except CorruptStream:
        yield Reason.UNREADABLE_REST, b''


def read_piece(piece: Piece, rules: RecordRules) -> Iterator[Record | Rejection]:
    """The records and rejections of one piece, streamed, in the file's order."""
    path, part = piece
    source = source_of(path)
    name = posixpath.basename(path) if source is None else source.name(path, part)
    for ordinal, (values, raw) in enumerate(read_rows(piece, rules.fields)):
        outcome = values if isinstance(values, Reason) else to_record(values, rules)
        if isinstance(outcome, Record):
            yield outcome
        else:
            yield Rejection(reason=outcome, file=name, ordinal=ordinal, raw=raw[:REJECTION_BYTES])


def read_place(path: str, rules: RecordRules) -> Iterator[Record | Rejection]:
    """The records and rejections of a whole file or other place, where a command reads it itself.

    Raises:
        RestrictedError: As of `naming_only`, in place of whatever a worker's error would say.
    """
    with naming_only(path):
        for piece in split_file(path, rules.fields.table):
            yield from read_piece(piece, rules)


class RecordCoder(coders.Coder):
    """Encodes a `Record` as a tuple of its fields, which is deterministic and a third of pickle's size."""

    _tuple = coders.TupleCoder(
        [
            coders.StrUtf8Coder(),
            *3 * [coders.NullableCoder(coders.StrUtf8Coder())],
            coders.NullableCoder(coders.BytesCoder()),
            coders.NullableCoder(coders.VarIntCoder()),
        ]
    )

    def encode(self, value: Record) -> bytes:
        return self._tuple.encode(
            (value.text, value.label, value.unit, value.record_id, value.embedding, value.cluster)
        )

    def decode(self, encoded: bytes) -> Record:
        text, label, unit, record_id, embedding, cluster = self._tuple.decode(encoded)
        return Record(
            text=text, label=label, unit=unit, record_id=record_id, embedding=embedding, cluster=cluster
        )

    def is_deterministic(self) -> bool:
        return True


coders.registry.register_coder(Record, RecordCoder)


@dataclasses.dataclass(eq=False)  # Not frozen: Beam sets attributes on a transform.
class ReadRecords(beam.PTransform):
    """Input files -> (records, rejections), two PCollections.

    The files are listed and checked when the pipeline is built: see `files.check_input` for its errors. This
    step has no counters, because the pages of a runner show counters.

    Attributes:
        pattern: Comma-separated paths and globs, or another place.
        known: The files of the run's digest of its input; None if the run keeps no digest.
    """

    pattern: str
    rules: RecordRules
    known: Sequence[str] | None = None

    # Beam has no type hint for two outputs, and warns about annotations of them.
    @beam.typehints.no_annotations
    def expand(
        self, pbegin: beam.pvalue.PBegin
    ) -> tuple[beam.PCollection[Record], beam.PCollection[Rejection]]:
        paths = [file.path for file in files.check_input(self.pattern, self.rules.fields)]
        if self.known is not None:
            files.check_same(self.known, paths)
        rows = (
            pbegin
            | 'Files' >> beam.Create(paths, reshuffle=False)
            | 'SplitFiles' >> beam.FlatMap(split_file, self.rules.fields.table).with_output_types(Piece)
            | 'Spread' >> beam.Reshuffle()
            | 'ReadPieces' >> beam.FlatMap(read_piece, self.rules)
        )
        # Filters and not tagged outputs, since those have no types, and so no `RecordCoder`.
        records = rows | 'Records' >> beam.Filter(isinstance, Record).with_output_types(Record)
        rejected = rows | 'Rejected' >> beam.Filter(isinstance, Rejection).with_output_types(Rejection)
        return records, rejected
