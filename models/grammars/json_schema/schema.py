"""A JSON Schema as an expression of bytes and as an automaton; the package says what form the texts have."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from models.grammars import automaton, expressions
from models.grammars.automaton import Automaton
from models.grammars.expressions import EMPTY, NOTHING, Expression, concatenation, literal
from models.grammars.json_schema import json_text, scalars
from models.grammars.json_schema.keywords import (
    APPLIED,
    UnsupportedKeywordError,
    counts_of,
    keywords_of,
    kinds_of,
    listed_values,
    malformed,
    types_of,
)
from models.grammars.json_schema.references import References

MAX_RECURSION: Final = 3
_MAX_EXPANSIONS: Final = 10_000


def compiled(
    schema: Any, *, max_recursion: int = MAX_RECURSION, max_states: int = automaton.MAX_STATES
) -> Automaton:
    """The automaton of a schema's values in the compact form.

    Raises:
        UnsupportedKeywordError: A keyword, or a use of it, is not supported.
        ValueError: A keyword is malformed, no value is valid, or there are too many states.
    """
    expression = with_some_text(Compiler(schema, max_recursion).value(schema, '#', {}), max_recursion)
    return automaton.build(expression, max_states)


def with_some_text(expression: Expression, max_recursion: int) -> Expression:
    """An expression, checked to have a text.

    Raises:
        ValueError: It has none.
    """
    if expression is NOTHING:
        raise ValueError(
            f'Expected a schema with some valid value, got none to a depth of max_recursion={max_recursion}. '
            'Compare bounds with each other, and required with properties.'
        )
    return expression


def object_of(members: Sequence[tuple[Expression, bool]]) -> Expression:
    """The texts of an object, from each key with its value and whether it is required."""
    return concatenation(literal('{'), expressions.separated(members, literal(',')), literal('}'))


class Compiler:
    """Writes the parts of one schema as expressions.

    Attributes:
        references: Of the whole schema.
        max_recursion: See `compiled`.
    """

    def __init__(self, root: Any, max_recursion: int) -> None:
        self.references, self.max_recursion = References(root), max_recursion
        self._found: dict[tuple[str, frozenset[tuple[str, int]]], Expression] = {}

    def value(self, schema: Any, place: str, depths: Mapping[str, int]) -> Expression:
        """The texts of a schema's values.

        Args:
            schema: The schema.
            place: Its JSON pointer.
            depths: How often each `$ref` stands around this place.

        Raises:
            UnsupportedKeywordError: A keyword, or a use of it, is not supported.
            ValueError: A keyword is malformed.
        """
        if schema is False:
            return NOTHING
        if schema is True:
            raise UnsupportedKeywordError('true', place, 'any value at all is not regular. Give a type')
        if not isinstance(schema, Mapping):
            raise ValueError(f'Expected a schema, an object or false, got type={type(schema).__name__} at '
                             f'{place}. Write an object.')  # fmt: skip
        keywords = keywords_of(schema, place)
        for name in APPLIED:
            if name in keywords:
                if len(keywords) > 1:
                    beside = min(keywords.keys() - {name})
                    raise UnsupportedKeywordError(
                        name, place, f'with {beside!r} beside it both would hold. Write one schema of both'
                    )
                return self._applied(name, keywords[name], place, depths)
        if 'enum' in keywords or 'const' in keywords:
            return scalars.listed(keywords, place)
        return expressions.union(
            *(self._of_kind(kind, keywords, place, depths) for kind in kinds_of(keywords, place))
        )

    # --- Of one type ---

    def _of_kind(
        self, kind: str, keywords: Mapping[str, Any], place: str, depths: Mapping[str, int]
    ) -> Expression:
        """The texts of one type; keywords of other types do not restrict it."""
        if kind == 'array':
            return self._array(keywords, place, depths)
        if kind == 'object':
            return self._object(keywords, place, depths)
        return scalars.of_kind(kind, keywords, place)

    def _array(self, keywords: Mapping[str, Any], place: str, depths: Mapping[str, int]) -> Expression:
        least, most = counts_of('minItems', 'maxItems', keywords, place)
        if keywords.get('uniqueItems', False) is not False:
            raise UnsupportedKeywordError('uniqueItems', place, 'an automaton does not remember items')
        if most == 0 and 'items' not in keywords:
            item = NOTHING
        elif 'items' not in keywords or isinstance(keywords['items'], list):
            raise UnsupportedKeywordError('items', place, 'give one schema for all items')
        else:
            item = self.value(keywords['items'], f'{place}/items', depths)
        further = expressions.repetition(
            concatenation(literal(','), item), max(least - 1, 0), None if most is None else most - 1
        )
        some = concatenation(item, further) if most != 0 else NOTHING
        none = EMPTY if least == 0 else NOTHING
        return concatenation(literal('['), expressions.union(none, some), literal(']'))

    def _object(self, keywords: Mapping[str, Any], place: str, depths: Mapping[str, int]) -> Expression:
        members = self.members(keywords, place, depths).values()
        return object_of([(whole, is_required) for _, whole, is_required in members])

    def members(
        self, keywords: Mapping[str, Any], place: str, depths: Mapping[str, int]
    ) -> dict[str, tuple[Expression, Expression, bool]]:
        """For each property of an object its key, its key with its value, and whether it is required."""
        properties, required = keywords.get('properties'), keywords.get('required', [])
        additional = keywords.get('additionalProperties', True)
        if not isinstance(additional, bool):
            raise UnsupportedKeywordError(
                'additionalProperties', place, 'only declared properties are written. Give false'
            )
        if properties is None and additional:
            raise UnsupportedKeywordError(
                'properties', place, 'they are missing, and only declared ones are written. Declare them'
            )
        properties = {} if properties is None else properties
        if not isinstance(properties, Mapping):
            raise malformed('properties', 'an object', properties, place)
        if not isinstance(required, list) or any(not isinstance(name, str) for name in required):
            raise malformed('required', 'a list of strings', required, place)
        undeclared = sorted(set(required) - properties.keys())
        if undeclared:
            raise UnsupportedKeywordError(
                'required', place, f'{undeclared[0]!r} is not declared. Declare it in properties'
            )
        return {
            name: self._member(name, schema, place, depths, is_required=name in required)
            for name, schema in properties.items()
        }

    def _member(
        self, name: str, schema: Any, place: str, depths: Mapping[str, int], *, is_required: bool
    ) -> tuple[Expression, Expression, bool]:
        inside = f'{place}/properties/{name.replace("~", "~0").replace("/", "~1")}'
        key = literal(f'{json_text.spelled(name, place)}:')
        return key, concatenation(key, self.value(schema, inside, depths)), is_required

    # --- By other schemas ---

    def _applied(self, name: str, value: Any, place: str, depths: Mapping[str, int]) -> Expression:
        if name == '$ref':
            return self._referred(value, place, depths)
        if not isinstance(value, list) or not value:
            raise malformed(name, 'a list of schemas', value, place)
        places = [f'{place}/{name}/{index}' for index in range(len(value))]
        parts = [self.value(schema, inside, depths) for schema, inside in zip(value, places, strict=True)]
        if name == 'anyOf' or len(parts) == 1:
            return expressions.union(*parts)
        if name == 'allOf':
            raise UnsupportedKeywordError('allOf', place, 'it is supported with one schema. Write one of all')
        for index, other in itertools.combinations(range(len(value)), 2):
            if not self._exclude_one_another(value[index], value[other], place):
                raise UnsupportedKeywordError(
                    'oneOf', place, f'schemas {index} and {other} may have values in common. Use anyOf, '
                    'or a required property whose values differ'
                )  # fmt: skip
        return expressions.union(*parts)

    def _exclude_one_another(self, schema: Any, other: Any, place: str, inside: tuple[int, ...] = ()) -> bool:
        """True if two schemas certainly have no value in common: by type, listed values or a shared property.

        `inside` holds the identities of the schemas that are being compared around these.
        """
        first, second = self.references.resolved(schema, place), self.references.resolved(other, place)
        if first is False or second is False or not types_of(first) & types_of(second):
            return True
        if not isinstance(first, Mapping) or not isinstance(second, Mapping):
            return False
        listed = listed_values(first), listed_values(second)
        if listed[0] is not None and listed[1] is not None:
            return not any(json_text.same(value, of_other) for value in listed[0] for of_other in listed[1])
        if types_of(first) != {'object'} or types_of(second) != {'object'}:
            return False
        if id(first) in inside and id(second) in inside:
            return False
        return any(
            self._exclude_one_another(
                first.get('properties', {}).get(name, True),
                second.get('properties', {}).get(name, True),
                place,
                (*inside, id(first), id(second)),
            )
            for name in sorted(set(first.get('required', [])) & set(second.get('required', [])))
        )

    def _referred(self, reference: Any, place: str, depths: Mapping[str, int]) -> Expression:
        target = self.references.target(reference, place)
        depth = depths.get(reference, 0)
        # The root stands around its own references.
        if depth + (reference == '#') > self.max_recursion:
            return NOTHING
        inside = {**depths, reference: depth + 1}
        key = (reference, frozenset(inside.items()))
        if len(self._found) > _MAX_EXPANSIONS:
            raise UnsupportedKeywordError(
                '$ref', place, f'more than {_MAX_EXPANSIONS:,} expansions of references. Lower max_recursion'
            )
        if key not in self._found:
            self._found[key] = self.value(target, reference, inside)
        return self._found[key]
