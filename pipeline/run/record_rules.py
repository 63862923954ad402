"""The rules that make a row of the input a record, as its settings say it."""

from models.privacy.public_numbers import Unit
from pipeline.settings.input import Input
from transforms.read import Dialect, RecordFields, RecordRules, Table


def dialect_of(declared: Input) -> Dialect:
    """The format of the input's files of text."""
    return Dialect(delimiter=declared.delimiter, encoding=declared.encoding, quoting=declared.quoting)


def record_rules(declared: Input, unit: Unit) -> RecordRules:
    """The rules of the input, for a unit of privacy."""
    fields = RecordFields(
        text=declared.text_field,
        label=declared.label_field,
        attributes=declared.attributes,
        unit=declared.unit_field,
        record_id=declared.record_id_field,
        dialect=dialect_of(declared),
        table=Table(
            query=declared.query,
            partition_column=declared.partition_column,
            sheet=declared.sheet,
            split=declared.split,
        ),
    )
    labels = tuple(label for label in declared.label_values if label is not None)
    return RecordRules(
        fields=fields, labels=labels or None, unit=unit, max_record_bytes=declared.max_record_bytes
    )
