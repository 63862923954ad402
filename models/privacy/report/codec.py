"""Writes reports as JSON text and reads them back, strictly. Errors name the place and quote no value."""

import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from models.privacy import intact

SCHEMA_VERSION = 6


class Report(typing.Protocol):
    """A report as the codec sees it: a dataclass that says who may read it."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def audience(self) -> str:
        """Who may read the report, in a sentence."""


def to_json(report: Report, schema: str) -> str:
    """The report as JSON text: a header of schema, version and audience, then its fields in order."""
    header = {'schema': schema, 'schema_version': SCHEMA_VERSION, 'audience': report.audience}
    text = json.dumps(header | dataclasses.asdict(report), indent=2, ensure_ascii=False, allow_nan=False)
    # A list of numbers takes one line. No string is touched: none holds a bare line break.
    return _NUMBERS.sub(lambda match: ' '.join(match[0].split()), text) + '\n'


_NUMBER = r'-?\d+(?:\.\d+)?(?:e[-+]?\d+)?'
_NUMBERS = re.compile(rf'(?<=\[)\n\s+{_NUMBER}(?:,\n\s+{_NUMBER})*\n\s+(?=\])')


@intact.reading('a report', 'Restore it as its run wrote it')
def from_json[T: Report](cls: type[T], text: str, schema: str) -> T:
    """Reads what `to_json` wrote.

    Raises:
        ValueError: Not JSON, another schema, version or audience, an unknown, missing or
            repeated key, or a value of another type. It names the place and quotes no value.
    """
    data = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    audience = data.pop('audience', None) if isinstance(data, dict) else None
    for name, expected in {'schema': schema, 'schema_version': SCHEMA_VERSION}.items():
        found = data.pop(name, None) if isinstance(data, dict) else None
        if found != expected:
            raise ValueError(
                f'Expected {name}={expected!r}, got {name}={found!r}. Read it with the version that wrote it.'
            )
    report: T = decoded(cls, data, cls.__name__)
    if audience != report.audience:
        raise ValueError(
            f'Expected audience={report.audience!r}, got audience={audience!r}. Do not edit reports by hand.'
        )
    return report


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError('Expected each key once in a JSON object, got a repeated key. Do not edit reports.')
    return result


def _refuse_constant(name: str) -> float:
    raise ValueError(f'Expected finite numbers, got {name}. Do not edit reports by hand.')


def decoded(expected: Any, value: Any, path: str) -> Any:
    """`value`, as read from JSON, as an object of the annotated type, or ValueError.

    The message names the place and the types but quotes no value.
    """
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if isinstance(expected, type) and dataclasses.is_dataclass(expected) and isinstance(value, dict):
        hints = typing.get_type_hints(expected)
        if unknown := value.keys() ^ hints.keys():
            raise ValueError(
                f'Expected the fields of {path} and no others, got '
                f'missing={sorted(hints.keys() - value.keys())}, unknown={sorted(unknown - hints.keys())}. '
                'Read it with the version that wrote it.'
            )
        return expected(**{name: decoded(hints[name], value[name], f'{path}.{name}') for name in hints})
    if origin is tuple and isinstance(value, list):
        return tuple(decoded(arguments[0], item, f'{path}[{index}]') for index, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {key: decoded(arguments[1], item, f'{path}[{key!r}]') for key, item in value.items()}
    if origin in (types.UnionType, typing.Union):
        for option in arguments:
            if _matches(option, value):
                return value
        # Of several classes take the one with these keys; else the first, whose error says what is missing.
        classes = [option for option in arguments if dataclasses.is_dataclass(option)]
        if classes and isinstance(value, dict):
            fitting = [option for option in classes if value.keys() == typing.get_type_hints(option).keys()]
            return decoded([*fitting, *classes][0], value, path)
    elif _matches(expected, value):
        return value
    raise ValueError(
        f'Expected {path} to be {expected}, got type={type(value).__name__}. Do not edit reports by hand.'
    )


def _matches(expected: Any, value: Any) -> bool:
    if typing.get_origin(expected) is Literal:
        return value in typing.get_args(expected)
    return type(value) is expected or (expected is float and type(value) is int)
