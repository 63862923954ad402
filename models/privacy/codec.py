"""Documents as JSON: dataclasses are written as they are, and pydantic reads them back, strictly.

A document is a dataclass with `__pydantic_config__ = STRICT`, which the classes of its fields inherit.
Reading calls every `__post_init__`. Errors name the place and quote no value.
"""

import dataclasses
import functools
import json
import re
import typing
from typing import Annotated, Any

from models.privacy import intact

# `hide_input_in_errors` is for whoever prints a pydantic error; `read` shows none.
STRICT: Any = {'extra': 'forbid', 'strict': True, 'allow_inf_nan': False, 'hide_input_in_errors': True}

_NUMBER = r'-?\d+(?:\.\d+)?(?:e[-+]?\d+)?'
_NUMBERS = re.compile(rf'(?<=\[)\n\s+{_NUMBER}(?:,\n\s+{_NUMBER})*\n\s+(?=\])')


@dataclasses.dataclass(frozen=True)
class Tagged:
    """Marks a union whose classes are told apart by one field: `Annotated[A | B, Tagged('kind')]`."""

    field: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        import pydantic

        return handler.generate_schema(Annotated[source, pydantic.Discriminator(self.field)])


def to_json(document: Any) -> str:
    """A document as JSON text, keys in the order of the fields, a line break at the end."""
    text = json.dumps(dataclasses.asdict(document), indent=2, ensure_ascii=False, allow_nan=False)
    # A list of numbers takes one line. No string is touched: none holds a bare line break.
    return _NUMBERS.sub(lambda match: ' '.join(match[0].split()), text) + '\n'


def read[T](kind: type[T], text: str, file: str, remedy: str) -> T:
    """Reads what `to_json` wrote.

    Raises:
        ValueError: Not JSON; an unknown, missing or repeated key; a value of another type; or values that
            contradict one another.
    """
    with intact.reading(file, remedy):
        value = json.loads(text, object_pairs_hook=_without_repeats)
        document = _validated(kind, text, file, remedy)
    # A key that has a default may be missing for pydantic.
    if json.loads(to_json(document)) != value:
        raise ValueError(f'Expected {file} with every key, got one without some of them. {remedy}.')
    return document


def read_object[T](kind: type[T], value: Any, file: str, remedy: str) -> T:
    """The same for what `json.loads` has read."""
    with intact.reading(file, remedy):
        return _validated(kind, json.dumps(value), file, remedy)


def _validated[T](kind: type[T], text: str, file: str, remedy: str) -> T:
    import pydantic

    try:
        return typing.cast(T, _adapter(typing.cast(typing.Hashable, kind)).validate_json(text))
    except pydantic.ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
    # Outside of the handler: that error may hold what stands in the file.
    for each in errors:
        if each['type'] == 'value_error':  # of a class of ours, which says what it expected
            raise ValueError(str(each['ctx']['error']))
    place = '.'.join(map(str, errors[0]['loc'])) or 'document'
    why = errors[0]['msg'].replace('Input', 'value', 1)
    raise ValueError(f'Expected {file} as it was written, got {place} with: {why}. {remedy}.')


@functools.cache
def _adapter(kind: Any) -> Any:
    import pydantic

    return pydantic.TypeAdapter(kind)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError('Expected each key once in a JSON object, got a repeated key. Do not edit the file.')
    return result
