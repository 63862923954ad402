"""Check that a JSON text is one of the documents whose schemas are published."""

import functools
import json
import typing

import jsonschema

from pipeline.schemas import documents


def check_document(name: str, text: str) -> typing.Any:
    """The parsed text.

    Raises:
        ValueError: It is no JSON, as NaN is none.
        jsonschema.ValidationError: It is another document than its name says.
    """
    parsed = json.loads(text, parse_constant=_refuse)
    _validator(name).validate(parsed)
    return parsed


@functools.cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads(documents.committed(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def _refuse(constant: str) -> float:
    raise ValueError(f'{constant} is not JSON')
