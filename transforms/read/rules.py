"""Rules by which rows are records, and what becomes of other rows."""

import dataclasses
import enum
from collections.abc import Mapping

from models import attributes, spelling
from models.privacy.params import Unit
from models.records import Record
from transforms.read.dialect import Dialect

MAX_RECORD_BYTES = 100_000
REJECTION_BYTES = 1_000


class Reason(enum.Enum):
    """Why a row is not a record."""

    NOT_TEXT = 'not text of its encoding'
    MALFORMED = 'not a row of its format'
    MISSING_FIELD = 'no text or label field'
    MISSING_UNIT = 'no unit id'
    MISSING_RECORD_ID = 'no record id'
    WRONG_TYPE = 'a field of the wrong type'
    BLANK_TEXT = 'blank text'
    TOO_LONG = 'too long'
    UNDECLARED_LABEL = 'undeclared label'
    NO_VALUE = 'a formula without a value'
    UNREADABLE_REST = 'the rest of the file cannot be read'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rejection:
    """A row that is not a record. Rejections and their number are restricted to the curator.

    Attributes:
        reason: Why the row is not a record.
        file: Base name of the file.
        ordinal: Number of the row in its file, for Parquet in its row group, from 0, without a header row.
        raw: The first bytes of the row, at most `REJECTION_BYTES`.
    """

    reason: Reason = dataclasses.field(repr=False)
    file: str
    ordinal: int = dataclasses.field(repr=False)
    raw: bytes = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """The table that is read of a place that holds several. Public.

    Attributes:
        query: SELECT of a database.
        partition_column: Column of the query whose ranges workers read at the same time; None: one reads all.
        sheet: Name of a sheet of a workbook; None: its only one.
        split: Name of a split of a data set; None: its only one.
    """

    query: str | None = None
    partition_column: str | None = None
    sheet: str | None = None
    split: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordFields:
    """The columns (or top-level JSON keys) that make up a record.

    Attributes:
        text: The sensitive text.
        label: The label; None if the run declares no labels, or attributes.
        attributes: The columns whose values together are the label, if it has several.
        unit: The unit id; None under the `example` unit.
        record_id: The id of the row, unique in the input; None if rows have no id.
        dialect: How files of text are written.
        table: Which table of the input is read.
    """

    text: str
    label: str | None = None
    attributes: tuple[str, ...] = ()
    unit: str | None = None
    record_id: str | None = None
    dialect: Dialect = Dialect()
    table: Table = Table()

    def __post_init__(self) -> None:
        if '' in self.names:
            raise ValueError(
                f'Expected column names, got fields={self!r} with an empty one. Leave the field out.'
            )
        if self.label is not None and self.attributes:
            raise ValueError(
                f'Expected a label column or attributes, got label={self.label!r}, '
                f'attributes={self.attributes!r}. Leave one of them out.'
            )

    @property
    def of_label(self) -> tuple[str, ...]:
        """The columns that make up the label; empty if the run declares no labels."""
        return self.attributes if self.label is None else (self.label,)

    @property
    def names(self) -> tuple[str, ...]:
        """The named columns, each once, in a fixed order."""
        named = (self.text, *self.of_label, self.unit, self.record_id)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def positional(self) -> bool:
        """True if CSV columns are given by position, for files without a header row."""
        return all(name.isascii() and name.isdigit() for name in self.names)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordRules:
    """Rules by which a row is a record. All fields are public.

    Attributes:
        labels: The declared labels, for attributes their combinations (`models.attributes`); None if the run
            declares none.
        any_label: Whether any label is read, with none declared. No run does this: the set of labels
            would depend on the records.
        max_record_bytes: Length of the longest text, in bytes of UTF-8.
    """

    fields: RecordFields
    labels: tuple[str, ...] | None = None
    any_label: bool = False
    unit: Unit = 'example'
    max_record_bytes: int = MAX_RECORD_BYTES

    def __post_init__(self) -> None:
        columns = self.fields.of_label
        if self.any_label and (self.labels is not None or not columns):
            raise ValueError(
                'Expected a label column and no declared labels with any_label, got '
                f'labels={self.labels!r}, fields.of_label={columns!r}. Leave any_label out.'
            )
        if not self.any_label and (self.labels is None) == bool(columns):
            raise ValueError(
                'Expected declared labels and a label column together or not at all, got '
                f'labels={self.labels!r}, fields.of_label={columns!r}. Give both, or neither.'
            )
        if (self.unit == 'user') != (self.fields.unit is not None):
            raise ValueError(
                "Expected a unit column under unit='user' and none under unit='example', got "
                f'unit={self.unit!r}, fields.unit={self.fields.unit!r}. '
                'Name the column of the unit ids and the user unit, or neither.'
            )
        if self.max_record_bytes < 1:
            raise ValueError(
                f'Expected max_record_bytes >= 1, got max_record_bytes={self.max_record_bytes!r}. '
                f'Leave it out for {MAX_RECORD_BYTES}.'
            )


def to_record(values: Mapping[str, object], rules: RecordRules) -> Record | Reason:
    """The record of a row, or why the row is not a record. It never raises, whatever the values are.

    Args:
        values: Column name -> value. A `bytes` value is UTF-8 that is not checked yet. A missing column and
            None are the same.
        rules: What makes a row a record.
    """
    try:
        values = {name: _decoded(values.get(name)) for name in rules.fields.names}
    except UnicodeError:
        return Reason.NOT_TEXT
    fields = rules.fields
    text = values[fields.text]
    if text is None:
        return Reason.MISSING_FIELD
    if not isinstance(text, str):
        return Reason.WRONG_TYPE
    if not text or text.isspace():
        return Reason.BLANK_TEXT
    if len(text) > rules.max_record_bytes or len(text.encode()) > rules.max_record_bytes:
        return Reason.TOO_LONG
    of_label: list[str] = []
    for column in fields.of_label:
        value = values[column]
        if value is None:
            return Reason.MISSING_FIELD
        # An empty label may be a declared one; an empty id identifies nothing.
        if (part := spelling.spelled(value)) is None:
            return Reason.WRONG_TYPE
        of_label.append(part)
    ids: list[str | None] = []
    for id_column, missing in (
        (fields.unit, Reason.MISSING_UNIT),
        (fields.record_id, Reason.MISSING_RECORD_ID),
    ):
        value = None if id_column is None else values[id_column]
        name = spelling.id_of(value)
        ids.append(name)
        if id_column is not None and name is None:
            return missing if value is None else Reason.WRONG_TYPE
        if name == '':
            return missing
    label = attributes.label_of(of_label) if of_label else None
    if rules.labels is not None and label not in rules.labels:
        return Reason.UNDECLARED_LABEL
    unit, record_id = ids
    return Record(text=text, label=label, unit=unit, record_id=record_id)


def _decoded(value: object) -> object:
    """`bytes` decoded from strict UTF-8; refuses strings with lone surrogates, which JSON can contain."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, str):
        value.encode()
    return value


def is_utf8(raw: bytes) -> bool:
    """True if bytes are UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
