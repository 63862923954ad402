"""Files of public texts, of --reference and --calibration: which they are, and their rows."""

from collections.abc import Iterator, Sequence

from models.records import Record
from pipeline.methods.predict.run import Config
from transforms.read import (
    Dialect,
    InputFile,
    Reason,
    RecordFields,
    RecordRules,
    list_input,
    read_place,
)


def list_texts(pattern: str, name: str) -> list[InputFile]:
    """The files that a flag names.

    Args:
        pattern: Comma-separated paths and globs.
        name: 'reference' or 'calibration', the flag without dashes.

    Raises:
        ValueError: The list is empty.
        FileNotFoundError: One of its patterns matches no file.
    """
    try:
        return list_input(pattern)
    except FileNotFoundError as error:
        raise FileNotFoundError(f'Expected files of public texts for --{name}. {error}') from error


def text_rules(config: Config, label_field: str | None) -> RecordRules:
    """What makes a row a text: the rules of the input, with a column of labels or none."""
    labels = tuple(label for label in config.input.label_values if label is not None)
    return RecordRules(
        fields=RecordFields(
            text=config.input.text_field,
            label=label_field,
            dialect=Dialect(
                delimiter=config.input.resolved_delimiter,
                encoding=config.input.encoding,
                quoting=config.input.quoting,
            ),
        ),
        labels=labels if label_field is not None else None,
        max_record_bytes=config.input.max_record_bytes,
    )


def text_rows(paths: Sequence[str], rules: RecordRules, name: str) -> Iterator[tuple[str | None, str]]:
    """(label, text) of every row that is a record.

    Raises:
        ValueError: A file is damaged.
    """
    for path in paths:
        for found in read_place(path, rules):
            if isinstance(found, Record):
                yield found.label, found.text
            elif found.reason is Reason.UNREADABLE_REST:
                raise ValueError(
                    f'Expected a whole file of {name} texts, got {name} file={path!r}, whose rest cannot be '
                    'read. Fetch it again.'
                )
