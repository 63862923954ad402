"""Public texts that a run reads beside its records, which may not be the records."""

import os
from collections.abc import Iterator, Sequence

from models.records import Record
from pipeline.run.record_rules import dialect_of
from pipeline.settings.input import Input
from transforms.durable import is_local
from transforms.places import split_patterns
from transforms.read import (
    InputFile,
    Reason,
    RecordFields,
    RecordRules,
    Rejection,
    check_input,
    identities_of,
    list_input,
    read_place,
)
from transforms.read.errors import RestrictedError


def refuse_input(declared: Input, listed: Sequence[InputFile], name: str) -> None:
    """Refuses texts that are the records, whatever their names are, or that lie in a folder of them."""
    places = tuple(_input_paths(declared))
    read = {identity for place in places for identity in identities_of(place)}
    folders = tuple(os.path.join(_place(place), '') for place in places)
    if same := [
        file.path
        for file in listed
        if _place(file.path).startswith(folders) or not read.isdisjoint(identities_of(file.path))
    ]:
        # The name of a file of the input may belong to the records.
        raise RestrictedError(
            f'Expected {name} texts beside the input, got a file of --{name} which --input names too. Texts '
            f'of --{name} are public: name another file.',
            f'For the curator alone: {same[0]!r}',
        )


def _input_paths(declared: Input) -> Iterator[str]:
    for pattern in split_patterns(declared.input or ''):
        try:
            yield from (file.path for file in list_input(pattern))
        except FileNotFoundError:
            # A plan may come before the records; a run asks for them itself.
            continue


def _place(path: str) -> str:
    return os.path.realpath(path) if is_local(path) else path


def rows_of_texts(
    place: str,
    files: Sequence[InputFile],
    declared: Input,
    name: str,
    label_field: str | None = None,
    attributes: tuple[str, ...] = (),
) -> Iterator[tuple[str, Record | Rejection]]:
    """(file, row) of files of public texts, by the rules of the input but for its columns of labels."""
    labels = tuple(label for label in declared.label_values if label is not None)
    fields = RecordFields(
        text=declared.text_field, label=label_field, attributes=attributes, dialect=dialect_of(declared)
    )
    rules = RecordRules(
        fields=fields,
        labels=labels or None if label_field or attributes else None,
        max_record_bytes=declared.max_record_bytes,
    )
    check_input(place, fields)
    for file in files:
        for row in read_place(file.path, rules):
            if isinstance(row, Rejection) and row.reason is Reason.UNREADABLE_REST:
                raise ValueError(
                    f'Expected a whole file of texts, got {name} file={file.path!r}, whose rest cannot '
                    'be read. Fetch it again.'
                )
            yield file.path, row
