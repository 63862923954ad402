"""JSON texts and their values: read without loss, compared, and spelled as short as possible."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from models.grammars import numbers


def read(text: str) -> Any:
    """A value from its text; a number with a fraction or an exponent becomes the exact decimal.

    Raises:
        ValueError: It is not JSON, or an object has a key twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f'Expected keys that differ, got key={twice!r} twice in one object. Remove one.')
        return members

    def refuse(name: str) -> None:
        raise ValueError(f'Expected the numbers of JSON, got {name}. Leave the bound out.')

    return json.loads(text, parse_float=Decimal, parse_constant=refuse, object_pairs_hook=once)


def spelled(value: Any, place: str) -> str:
    """A value in its shortest spelling; keys of objects keep their order.

    Raises:
        ValueError: It is not a JSON value, or holds half of a surrogate pair.
    """
    match value:
        case bool() | None:
            return json.dumps(value)
        case int() | float() | Decimal():
            return numbers.text_of(decimal(value))
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f'Expected strings of Unicode characters, got half of a surrogate pair at {place}. '
                    'Remove it.'
                ) from None
            return json.dumps(value, ensure_ascii=False)
        case Sequence():
            return f'[{",".join(spelled(item, place) for item in value)}]'
        case Mapping():
            pairs = (f'{spelled(key, place)}:{spelled(item, place)}' for key, item in value.items())
            return f'{{{",".join(pairs)}}}'
    raise ValueError(f'Expected a JSON value, got type={type(value).__name__} at {place}. Read it from JSON.')


def same(value: Any, other: Any) -> bool:
    """True if two JSON values are equal: numbers by value, objects in any order of keys."""
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(same, value, other))
    return kind(value) == kind(other) and value == other


def decimal(value: float | int | Decimal) -> Decimal:
    """A number as it is written."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def is_number(value: Any) -> bool:
    """True if a value is a number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def kind(value: Any) -> str:
    """A value's JSON type; integers are numbers."""
    match value:
        case None:
            return 'null'
        case bool():
            return 'boolean'
        case str():
            return 'string'
        case Mapping():
            return 'object'
        case list() | tuple():
            return 'array'
    return 'number'


def is_integral(value: Any) -> bool:
    """True if a value is a number without a fraction, such as 2 or 2.0."""
    if not is_number(value) or not decimal(value).is_finite():
        return False
    return decimal(value) == decimal(value).to_integral_value()
