"""The keywords of JSON Schema that are enforced, and the refusal of others."""

from collections.abc import Mapping
from typing import Any

from models.grammars.json_schema import json_text

_DIALECTS = (
    'https://json-schema.org/draft/2020-12/schema',
    'http://json-schema.org/draft-07/schema',
)
_ANNOTATIONS = frozenset({
    'title', 'description', '$comment', 'default', 'examples', 'deprecated', 'readOnly', 'writeOnly',
    '$defs', 'definitions',
})  # fmt: skip
_AT_THE_ROOT = frozenset({'$schema', '$id'})
# Keywords that say something about values of one type alone.
OF_KIND: Mapping[str, frozenset[str]] = {
    'string': frozenset({'minLength', 'maxLength', 'pattern', 'format'}),
    'number': frozenset({'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'}),
    'array': frozenset({'items', 'minItems', 'maxItems', 'uniqueItems'}),
    'object': frozenset({'properties', 'required', 'additionalProperties'}),
}
_KINDS = ('string', 'number', 'integer', 'boolean', 'null', 'array', 'object')
# Keywords that apply other schemas; no other keyword may stand beside one.
APPLIED = ('$ref', 'anyOf', 'oneOf', 'allOf')
_SUPPORTED = frozenset({'type', 'enum', 'const', *APPLIED}).union(*OF_KIND.values())


class UnsupportedKeywordError(ValueError):
    """A schema has a keyword that is not enforced.

    Attributes:
        place: JSON pointer of the schema that holds it.
    """

    def __init__(self, keyword: str, place: str, why: str) -> None:
        super().__init__(
            f'Expected a schema that can be enforced exactly, got keyword={keyword!r} at {place}: {why}.'
        )
        self.keyword, self.place = keyword, place


def malformed(keyword: str, expected: str, value: Any, place: str) -> ValueError:
    """The error for a keyword whose value is not what JSON Schema defines."""
    return ValueError(f'Expected {keyword} to be {expected}, got {keyword}={value!r} at {place}. Correct it.')


def keywords_of(schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The keywords of a schema without its annotations.

    Raises:
        UnsupportedKeywordError: One of them is not enforced.
    """
    if place == '#' and str(schema.get('$schema', _DIALECTS[0])).rstrip('#') not in _DIALECTS:
        raise UnsupportedKeywordError('$schema', place, f'give one of {", ".join(_DIALECTS)}')
    passed = _ANNOTATIONS | (_AT_THE_ROOT if place == '#' else frozenset())
    keywords = {name: value for name, value in schema.items() if name not in passed}
    for name in keywords:
        if name not in _SUPPORTED:
            raise UnsupportedKeywordError(
                name, place, f'supported are {", ".join(sorted(_SUPPORTED))}, and annotations'
            )
    return keywords


def kinds_of(keywords: Mapping[str, Any], place: str) -> list[str]:
    """The types that `type` names, `integer` left out beside `number`.

    Raises:
        UnsupportedKeywordError: `type` is missing.
        ValueError: It names no type.
    """
    named = keywords.get('type')
    if named is None:
        raise UnsupportedKeywordError(
            'type', place, 'it is missing, and any value at all is not regular. Give a type'
        )
    kinds = [named] if isinstance(named, str) else named
    if not isinstance(kinds, list) or not kinds or any(kind not in _KINDS for kind in kinds):
        raise malformed('type', f'one or a list of {", ".join(_KINDS)}', named, place)
    # An integer is a number.
    return [kind for kind in dict.fromkeys(kinds) if kind != 'integer' or 'number' not in kinds]


def types_of(schema: Any) -> set[str]:
    """The types that a schema's values may have; integers count as numbers."""
    if not isinstance(schema, Mapping):
        return {'number' if kind == 'integer' else kind for kind in _KINDS}
    values = listed_values(schema)
    if values is not None:
        return {json_text.kind(value) for value in values}
    named = schema.get('type', list(_KINDS))
    kinds = [named] if isinstance(named, str) else named
    return {'number' if kind == 'integer' else kind for kind in kinds}


def listed_values(schema: Mapping[str, Any]) -> list[Any] | None:
    """The values of `enum` or `const`; None without one."""
    if 'enum' in schema:
        return list(schema['enum'])
    return [schema['const']] if 'const' in schema else None


def counts_of(least: str, most: str, keywords: Mapping[str, Any], place: str) -> tuple[int, int | None]:
    """A pair of bounds on a number of characters or items; None where there is no upper one.

    Raises:
        ValueError: One is not an integer >= 0.
    """
    for name in (least, most):
        value = keywords.get(name, 0)
        if not json_text.is_integral(value) or value < 0:
            raise malformed(name, 'an integer >= 0', value, place)
    return int(keywords.get(least, 0)), int(keywords[most]) if most in keywords else None
