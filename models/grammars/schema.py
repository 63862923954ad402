"""JSON Schema as an expression of bytes: the texts of its values in one compact form.

The form: no white space; an object's keys in the order in which `properties` declares them, each spelled
as `json.dumps(ensure_ascii=False)` does, and no undeclared one; `integer` without a fraction, numbers
without an exponent and zero without a sign; `enum` and `const` in their shortest spelling; other strings
in any spelling of RFC 8259. A text is accepted if, and only if, it is in that form and valid, with
exceptions that only ever leave valid texts out, of `format`: seconds of 60, lower-case `t` and `z`,
the year 0000, e-mail addresses with quoted local parts, address literals, non-ASCII or more
than four labels, and escapes in any of them.

What cannot be held to exactly is refused with its keyword and its place; only annotations are read over.
Drafts 2020-12 and 7 agree on all that is left.
"""

import contextlib
import dataclasses
import functools
import json
import urllib.parse
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from models.grammars import automaton, expressions, numbers, regular_expressions
from models.grammars.automaton import Automaton
from models.grammars.expressions import CHARACTERS, EMPTY, NOTHING, Expression, concatenation, literal

MAX_RECURSION: Final = 3
_MAX_EXPANSIONS: Final = 10_000

_DIALECTS = (
    'https://json-schema.org/draft/2020-12/schema',
    'http://json-schema.org/draft-07/schema',
)
_ANNOTATIONS = frozenset({
    'title', 'description', '$comment', 'default', 'examples', 'deprecated', 'readOnly', 'writeOnly',
    '$defs', 'definitions',
})  # fmt: skip
_AT_THE_ROOT = frozenset({'$schema', '$id'})
_OF_KIND: Mapping[str, frozenset[str]] = {
    'string': frozenset({'minLength', 'maxLength', 'pattern', 'format'}),
    'number': frozenset({'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'}),
    'array': frozenset({'items', 'minItems', 'maxItems', 'uniqueItems'}),
    'object': frozenset({'properties', 'required', 'additionalProperties'}),
}
_KINDS = ('string', 'number', 'integer', 'boolean', 'null', 'array', 'object')
_ALONE = ('$ref', 'anyOf', 'oneOf', 'allOf')
_SUPPORTED = frozenset({'type', 'enum', 'const', *_ALONE}).union(*_OF_KIND.values())

# RFC 3339, 5.6, with the days that each month has.
_YEAR_OF_29_DAYS = '([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)'  # no 0000
_YEAR = '([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)'
_DATE = (
    f'({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)'
    f'|02-(0[1-9]|1[0-9]|2[0-8]))|{_YEAR_OF_29_DAYS}-02-29)'
)
_CLOCK = '([01][0-9]|2[0-3]):[0-5][0-9]'
_TIME = rf'{_CLOCK}:[0-5][0-9](\.[0-9]+)?(Z|[+\-]{_CLOCK})'
# RFC 5321, 4.1.2, Dot-string and Domain; four labels and their dots are at most 255 octets (4.5.3.1.2).
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-]+"
_LABEL = r'[A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?'
_FORMATS: Mapping[str, tuple[str, ...]] = {
    'date': (_DATE,),
    'time': (_TIME,),
    'date-time': (f'{_DATE}T{_TIME}',),
    'uuid': ('[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}',),
    'email': (rf'{_ATOM}(\.{_ATOM})*@{_LABEL}(\.{_LABEL}){{1,3}}', '[^@]{1,64}@[^@]*'),
}


class UnsupportedKeywordError(ValueError):
    """A schema holds what this does not enforce.

    Attributes:
        keyword: The keyword.
        place: JSON pointer of the schema that holds it.
    """

    def __init__(self, keyword: str, place: str, why: str) -> None:
        super().__init__(
            f'Expected a schema that can be enforced exactly, got keyword={keyword!r} at {place}: {why}.'
        )
        self.keyword, self.place = keyword, place


def read(text: str) -> Any:
    """A schema from its file's text, numbers as the decimals that are written.

    Raises:
        ValueError: It is not JSON, or an object has a key twice.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f'Expected keys that differ, got key={twice!r} twice in one object. Remove one.')
        return found

    def refuse(name: str) -> None:
        raise ValueError(f'Expected the numbers of JSON, got {name}. Leave the bound out.')

    return json.loads(text, parse_float=Decimal, parse_constant=refuse, object_pairs_hook=once)


def compiled(
    schema: Any, *, max_recursion: int = MAX_RECURSION, max_states: int = automaton.MAX_STATES
) -> Automaton:
    """The automaton of a schema's values in the compact form.

    Args:
        schema: A schema as `read` gives it, or as `json.loads` does.
        max_recursion: How often a `$ref` may stand inside of itself; deeper values are left out.
        max_states: See `automaton.build`.

    Raises:
        UnsupportedKeywordError: A keyword, or a use of it, is not supported.
        ValueError: A keyword is malformed, no value is valid, or there are too many states.
    """
    return automaton.build(expression_of(schema, max_recursion=max_recursion), max_states)


def expression_of(schema: Any, *, max_recursion: int = MAX_RECURSION) -> Expression:
    """`compiled`, before it is an automaton."""
    return _some(_Compiler(schema, max_recursion).value(schema, '#', {}), max_recursion)


def _some(found: Expression, max_recursion: int) -> Expression:
    if found is NOTHING:
        raise ValueError(
            f'Expected a schema with some valid value, got none to a depth of max_recursion={max_recursion}. '
            'Compare bounds with each other, and required with properties.'
        )
    return found


# --- Values that are given ---------------------------------------------------------


def expressions_given(
    schema: Any, given: Sequence[Mapping[str, str]], *, max_recursion: int = MAX_RECURSION
) -> list[Expression]:
    """The texts of a schema's values in which some properties have these values, for each of several such.

    Each is that of the schema with `const` for these properties, and with these required. Other parts are
    the same objects in all, so that an automaton of several shares what it can.

    Args:
        schema: A schema of an object, as `read` gives it.
        given: For each expression, texts by property: of `value_text` or `categories`.
        max_recursion: See `compiled`.

    Raises:
        ValueError: See `compiled`, and where the schema is not of an object with declared properties.
    """
    compiler = _Compiler(schema, max_recursion)
    members = compiler.members_of_root()
    found = []
    for values in given:
        chosen = [
            (
                concatenation(key, literal(values[name])) if name in values else whole,
                is_required or name in values,
            )
            for name, (key, whole, is_required) in members.items()
        ]
        found.append(_some(_object_of(chosen), max_recursion))
    return found


def value_text(schema: Any, name: str, written: str) -> str:
    """A value of a declared property in its shortest spelling, which the property's schema allows.

    Args:
        schema: As of `expressions_given`.
        name: The property.
        written: JSON; or, where the schema does not allow that value, the characters of a string.

    Raises:
        ValueError: The property is not declared, or its schema allows neither.
    """
    compiler = _Compiler(schema, MAX_RECURSION)
    place = f'the value of {name}'
    allowed = automaton.build(compiler.property_of_root(name))
    candidates = []
    with contextlib.suppress(ValueError, RecursionError, ArithmeticError):
        candidates.append(_text(read(written), place))
    for text in (*candidates, json.dumps(written, ensure_ascii=False)):
        if allowed.accepts(text.encode(errors='surrogatepass')):
            return text
    raise ValueError(
        f'Expected a value that the JSON Schema allows for {name}, got {name}={written!r}. Give another one, '
        'or write it as JSON.'
    )


def categories(schema: Any, name: str) -> tuple[str, ...]:
    """The values of a declared property that is categorical, each in its shortest spelling.

    Raises:
        ValueError: The property is not declared, or is not an enum, a boolean or a const of scalars.
    """
    compiler = _Compiler(schema, MAX_RECURSION)
    allowed = automaton.build(compiler.property_of_root(name))
    values = compiler.listed_in_root(name)
    if values is None or any(_kind(value) in ('array', 'object') for value in values):
        raise ValueError(
            f'Expected condition_on to name properties that are an enum, a boolean or a const, got {name!r}, '
            'which is none. Its values are not declared one by one: leave it out.'
        )
    texts = dict.fromkeys(_text(value, name) for value in values)
    return tuple(text for text in texts if allowed.accepts(text.encode()))


def property_texts(text: str, names: Sequence[str]) -> tuple[str, ...] | None:
    """Values of some properties of a JSON text, each in its shortest spelling. A total function.

    Returns:
        None where the text is no JSON object, or has not all of them.
    """
    try:
        value = read(text)
        if not isinstance(value, Mapping) or any(name not in value for name in names):
            return None
        return tuple(_text(value[name], '#') for name in names)
    except (ValueError, ArithmeticError, RecursionError):
        # Of whoever's text it is, nothing is told.
        return None


# --- Strings -----------------------------------------------------------------------


@functools.cache
def _spelled(characters: expressions.Ranges) -> Expression:
    return automaton.embedded(automaton.build(expressions.in_json(characters)))


@functools.cache
def _format(name: str) -> Automaton:
    """The texts of a format between quotation marks, none of which needs an escape."""
    first, *others = (automaton.build(regular_expressions.matched(pattern)) for pattern in _FORMATS[name])
    return functools.reduce(automaton.intersection, others, first)


def _text(value: Any, place: str) -> str:
    """A value in its shortest spelling, object keys in their own order."""
    match value:
        case bool() | None:
            return json.dumps(value)
        case int() | float() | Decimal():
            return numbers.text_of(_decimal(value))
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
            return f'[{",".join(_text(item, place) for item in value)}]'
        case Mapping():
            pairs = (f'{_text(key, place)}:{_text(item, place)}' for key, item in value.items())
            return f'{{{",".join(pairs)}}}'
    raise ValueError(f'Expected a JSON value, got type={type(value).__name__} at {place}. Read it from JSON.')


def _same(value: Any, other: Any) -> bool:
    """Whether two JSON values are equal: by value for numbers, whatever the order of keys."""
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(_same(value[key], other[key]) for key in value)
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_same, value, other))
    return _kind(value) == _kind(other) and value == other


def _decimal(value: float | int | Decimal) -> Decimal:
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    """A value's type, that of integers being `number`."""
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


def _is_integral(value: Any) -> bool:
    if not _is_number(value) or not _decimal(value).is_finite():
        return False
    return _decimal(value) == _decimal(value).to_integral_value()


def _object_of(members: Sequence[tuple[Expression, bool]]) -> Expression:
    """An object from keys with values and whether each is required."""
    return concatenation(literal('{'), expressions.separated(members, literal(',')), literal('}'))


# --- Schemas -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class _Scalars:
    """What a schema without objects and arrays accepts.

    Attributes:
        written: The texts of the form.
        valid: All texts of numbers without exponent and of strings whose value is valid, in any spelling;
            or more, where `is_more`.
        is_more: Whether `valid` may hold texts that are not valid.
    """

    written: Automaton
    valid: Automaton
    is_more: bool


class _Compiler:
    def __init__(self, root: Any, max_recursion: int) -> None:
        self.root, self.max_recursion = root, max_recursion
        self._found: dict[tuple[str, frozenset[tuple[str, int]]], Expression] = {}

    def value(self, schema: Any, place: str, depths: Mapping[str, int]) -> Expression:
        """The texts of a schema's values.

        Args:
            schema: The schema.
            place: Its JSON pointer.
            depths: How often each `$ref` stands around this place.
        """
        if schema is False:
            return NOTHING
        if schema is True:
            raise UnsupportedKeywordError('true', place, 'any value at all is not regular. Give a type')
        if not isinstance(schema, Mapping):
            raise ValueError(f'Expected a schema, an object or false, got type={type(schema).__name__} at '
                             f'{place}. Write an object.')  # fmt: skip
        keywords = self._keywords(schema, place)
        for name in _ALONE:
            if name in keywords:
                if len(keywords) > 1:
                    beside = min(keywords.keys() - {name})
                    raise UnsupportedKeywordError(
                        name, place, f'with {beside!r} beside it both would hold. Write one schema of both'
                    )
                return self._applied(name, keywords[name], place, depths)
        if 'enum' in keywords or 'const' in keywords:
            return self._listed(keywords, place, depths)
        return expressions.union(
            *(self._of_kind(kind, keywords, place, depths) for kind in self._kinds(keywords, place))
        )

    def _keywords(self, schema: Mapping[str, Any], place: str) -> dict[str, Any]:
        """The keywords that are no annotations, all of them supported."""
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

    def _kinds(self, keywords: Mapping[str, Any], place: str) -> list[str]:
        named = keywords.get('type')
        if named is None:
            raise UnsupportedKeywordError(
                'type', place, 'it is missing, and any value at all is not regular. Give a type'
            )
        kinds = [named] if isinstance(named, str) else named
        if not isinstance(kinds, list) or not kinds or any(kind not in _KINDS for kind in kinds):
            raise _malformed('type', f'one or a list of {", ".join(_KINDS)}', named, place)
        # An integer is a number.
        return [kind for kind in dict.fromkeys(kinds) if kind != 'integer' or 'number' not in kinds]

    def _of_kind(
        self, kind: str, keywords: Mapping[str, Any], place: str, depths: Mapping[str, int]
    ) -> Expression:
        """The texts of one type; keywords of other types say nothing of it."""
        if kind == 'null':
            return literal('null')
        if kind == 'boolean':
            return expressions.union(literal('true'), literal('false'))
        if kind in ('number', 'integer'):
            return automaton.embedded(self._number(keywords, place, is_integer=kind == 'integer'))
        if kind == 'string':
            return self._string(keywords, place, with_format=True)
        if kind == 'array':
            return self._array(keywords, place, depths)
        return self._object(keywords, place, depths)

    def ordered(self, schema: Any, value: Any) -> Any:
        """A value with the keys of its objects in declared order, undeclared ones behind them."""
        schema = self._resolved(schema, '#')
        if not isinstance(schema, Mapping):
            return value
        for name in ('anyOf', 'oneOf', 'allOf'):
            for branch in schema.get(name, ()):
                value = self.ordered(branch, value) if self._may_be(branch, value) else value
        if isinstance(value, Mapping):
            declared = schema.get('properties', {})
            keys = [
                *(key for key in declared if key in value),
                *(key for key in value if key not in declared),
            ]
            return {key: self.ordered(declared.get(key), value[key]) for key in keys}
        if isinstance(value, list):
            return [self.ordered(schema.get('items'), item) for item in value]
        return value

    def _may_be(self, schema: Any, value: Any) -> bool:
        """Whether a value may be of a branch, by its type and its keys."""
        schema = self._resolved(schema, '#')
        if not isinstance(schema, Mapping) or not isinstance(value, Mapping) or 'properties' not in schema:
            return True
        return value.keys() <= schema['properties'].keys() and value.keys() >= set(schema.get('required', []))

    # --- Of each type ---

    def _number(self, keywords: Mapping[str, Any], place: str, *, is_integer: bool) -> Automaton:
        found: dict[str, Decimal] = {}
        for name in _OF_KIND['number'] & keywords.keys():
            value = keywords[name]
            if not _is_number(value) or (name == 'multipleOf' and value <= 0):
                expected = 'a positive number' if name == 'multipleOf' else 'a number'
                raise _malformed(name, expected, value, place)
            try:
                numbers.parts_of(_decimal(value))
            except ValueError as error:
                raise UnsupportedKeywordError(name, place, str(error).rstrip('.')) from None
            found[name] = _decimal(value)
        bounds = {
            name: numbers.Bound(value, is_exclusive=name.startswith('exclusive'))
            for name, value in found.items()
            if name != 'multipleOf'
        }
        try:
            return numbers.number(
                at_least=tuple(bounds[name] for name in ('minimum', 'exclusiveMinimum') if name in bounds),
                at_most=tuple(bounds[name] for name in ('maximum', 'exclusiveMaximum') if name in bounds),
                multiples_of=tuple(value for name, value in found.items() if name == 'multipleOf'),
                is_integer=is_integer,
            )
        except ValueError as error:
            # Bounds were looked at above.
            raise UnsupportedKeywordError('multipleOf', place, str(error).rstrip('.')) from None

    def _string(self, keywords: Mapping[str, Any], place: str, *, with_format: bool) -> Expression:
        """Strings with their quotation marks; without `with_format`, those of any format."""
        least, most = self._counts('minLength', 'maxLength', keywords, place)
        conditions = []
        if 'pattern' in keywords:
            pattern = keywords['pattern']
            if not isinstance(pattern, str):
                raise _malformed('pattern', 'a string', pattern, place)
            try:
                conditions.append(automaton.build(regular_expressions.searched(pattern, _spelled)))
            except regular_expressions.UnsupportedPatternError as error:
                raise UnsupportedKeywordError('pattern', place, str(error).rstrip('.')) from None
        if 'format' in keywords:
            name = keywords['format']
            if name not in _FORMATS:
                raise UnsupportedKeywordError(
                    'format', place, f'format={name!r} is none of {", ".join(sorted(_FORMATS))}'
                )
            if with_format:
                conditions.append(_format(name))
        content = expressions.repetition(_spelled(CHARACTERS), least, most)
        if conditions:
            if least or most is not None:
                conditions.append(automaton.build(content))
            content = automaton.embedded(functools.reduce(automaton.intersection, conditions))
        return concatenation(literal('"'), content, literal('"'))

    def _array(self, keywords: Mapping[str, Any], place: str, depths: Mapping[str, int]) -> Expression:
        least, most = self._counts('minItems', 'maxItems', keywords, place)
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
        members = self._members(keywords, place, depths).values()
        return _object_of([(whole, is_required) for _, whole, is_required in members])

    def _members(
        self, keywords: Mapping[str, Any], place: str, depths: Mapping[str, int]
    ) -> dict[str, tuple[Expression, Expression, bool]]:
        """Of each property its key, its key with its value, and whether it is required."""
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
            raise _malformed('properties', 'an object', properties, place)
        if not isinstance(required, list) or any(not isinstance(name, str) for name in required):
            raise _malformed('required', 'a list of strings', required, place)
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
        key = literal(f'{_text(name, place)}:')
        return key, concatenation(key, self.value(schema, inside, depths)), is_required

    # --- The root's properties ---

    def members_of_root(self) -> dict[str, tuple[Expression, Expression, bool]]:
        """`_members` of the root, which has to be an object."""
        keywords, place = self._root()
        return self._members(keywords, place, {})

    def property_of_root(self, name: str) -> Expression:
        """The texts of a property's values.

        Raises:
            ValueError: It is not declared.
        """
        return self.value(self._declared(name), f'#/properties/{name}', {})

    def listed_in_root(self, name: str) -> list[Any] | None:
        """The values that a property's schema lists; None where it lists none."""
        schema = self._resolved(self._declared(name), '#')
        if not isinstance(schema, Mapping):
            return None
        if 'enum' in schema or 'const' in schema:
            return list(schema['enum']) if 'enum' in schema else [schema['const']]
        return [False, True] if schema.get('type') in ('boolean', ['boolean']) else None

    def _declared(self, name: str) -> Any:
        keywords, _ = self._root()
        declared = keywords.get('properties')
        if not isinstance(declared, Mapping) or name not in declared:
            known = ', '.join(declared) if isinstance(declared, Mapping) else 'none'
            raise ValueError(
                f'Expected properties that the JSON Schema declares at its root, got {name!r}. Declared: '
                f'{known}.'
            )
        return declared[name]

    def _root(self) -> tuple[Mapping[str, Any], str]:
        """The root's keywords and their place, references at it followed."""
        schema, place, seen = self.root, '#', set[str]()
        while isinstance(schema, Mapping) and '$ref' in schema and schema['$ref'] not in seen:
            seen.add(place := schema['$ref'])
            schema = self._target(place, place)
        keywords = self._keywords(schema, place) if isinstance(schema, Mapping) else {}
        if keywords.get('type') not in ('object', ['object']) or keywords.keys() & {'enum', 'const', *_ALONE}:
            raise ValueError(
                'Expected a JSON Schema of an object, whose type is object and whose properties are declared '
                f'beside it, got type={keywords.get("type")!r}. Values cannot be given to the properties of '
                'another one.'
            )
        return keywords, place

    def _counts(
        self, least: str, most: str, keywords: Mapping[str, Any], place: str
    ) -> tuple[int, int | None]:
        """A pair of bounds on a number of characters or items."""
        for name in (least, most):
            value = keywords.get(name, 0)
            if not _is_integral(value) or value < 0:
                raise _malformed(name, 'an integer >= 0', value, place)
        return int(keywords.get(least, 0)), int(keywords[most]) if most in keywords else None

    # --- Of any type ---

    def _listed(self, keywords: dict[str, Any], place: str, depths: Mapping[str, int]) -> Expression:
        """`enum` and `const`: those values that the keywords beside them allow."""
        values = keywords['enum'] if 'enum' in keywords else [keywords['const']]
        if not isinstance(values, list):
            raise _malformed('enum', 'a list', values, place)
        if 'const' in keywords:
            values = [value for value in values if _same(value, keywords['const'])]
        if 'type' in keywords:
            kinds = self._kinds(keywords, place)
            values = [
                value
                for value in values
                if _kind(value) in kinds or ('integer' in kinds and _is_integral(value))
            ]
        beside = {name: value for name, value in keywords.items() if name not in ('type', 'enum', 'const')}
        texts = []
        for value in values:
            kind = _kind(value)
            says = {name for name in beside if name in _OF_KIND.get(kind, ())}
            if says and (kind in ('array', 'object') or 'format' in says):
                raise UnsupportedKeywordError(min(says), place, 'beside enum or const. List the values alone')
            text = _text(value, place)
            if not says or automaton.build(self._of_kind(kind, beside, place, depths)).accepts(text.encode()):
                texts.append(text)
        return expressions.union(*(literal(text) for text in dict.fromkeys(texts)))

    def _applied(self, name: str, value: Any, place: str, depths: Mapping[str, int]) -> Expression:
        if name == '$ref':
            return self._referred(value, place, depths)
        if not isinstance(value, list) or not value:
            raise _malformed(name, 'a list of schemas', value, place)
        places = [f'{place}/{name}/{index}' for index in range(len(value))]
        parts = [self.value(schema, inside, depths) for schema, inside in zip(value, places, strict=True)]
        if name == 'anyOf' or len(parts) == 1:
            return expressions.union(*parts)
        if name == 'allOf':
            raise UnsupportedKeywordError('allOf', place, 'it is supported with one schema. Write one of all')
        return self._exclusive(value, parts, place, depths)

    def _referred(self, reference: Any, place: str, depths: Mapping[str, int]) -> Expression:
        target = self._target(reference, place)
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

    def _target(self, reference: Any, place: str) -> Any:
        if not isinstance(reference, str) or (reference != '#' and not reference.startswith('#/')):
            raise UnsupportedKeywordError('$ref', place, f'{reference!r} is not in this file as "#/..."')
        found = self.root
        for part in reference.split('/')[1:]:
            name = urllib.parse.unquote(part).replace('~1', '/').replace('~0', '~')
            if isinstance(found, Mapping) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise _malformed('$ref', 'a place in this file', reference, place)
            if isinstance(found, Mapping) and '$id' in found:
                raise UnsupportedKeywordError('$id', place, 'it changes what references mean. Remove it')
        return found

    # --- Exactly one of ---

    def _exclusive(
        self, schemas: Sequence[Any], parts: Sequence[Expression], place: str, depths: Mapping[str, int]
    ) -> Expression:
        """`oneOf`: where no value is of two schemas, any of them; for scalars, without the values of two."""
        overlapping = [
            (index, other)
            for index in range(len(schemas))
            for other in range(index)
            if not self._are_disjoint(schemas[index], schemas[other], place, depths)
        ]
        if not overlapping:
            return expressions.union(*parts)
        scalars = [self._scalars(schema, place, depths) for schema in schemas]
        for pair in overlapping:
            if any(found is None or found.is_more for found in (scalars[index] for index in pair)):
                raise UnsupportedKeywordError(
                    'oneOf', place, f'schemas {pair[1]} and {pair[0]} may have values in common. Use anyOf, '
                    'or a required property whose values differ'
                )  # fmt: skip
        kept = []
        for index, part in enumerate(parts):
            others = [scalars[sum(pair) - index] for pair in overlapping if index in pair]
            alone = automaton.build(part)
            for other in others:
                assert other is not None
                alone = automaton.difference(alone, other.valid)
            kept.append(automaton.embedded(alone) if others else part)
        return expressions.union(*kept)

    def _are_disjoint(
        self, schema: Any, other: Any, place: str, depths: Mapping[str, int], inside: tuple[int, ...] = ()
    ) -> bool:
        """Whether no value is of both schemas, as far as can be told; False where it cannot."""
        first, second = self._resolved(schema, place), self._resolved(other, place)
        if first is False or second is False:
            return True
        if id(first) in inside and id(second) in inside:
            return False
        if not self._types(first) & self._types(second):
            return True
        if self._types(first) == self._types(second) == {'object'}:
            shared = set(first.get('required', [])) & set(second.get('required', []))
            return any(
                self._are_disjoint(
                    first.get('properties', {}).get(name, True),
                    second.get('properties', {}).get(name, True),
                    place,
                    depths,
                    (*inside, id(first), id(second)),
                )
                for name in sorted(shared)
            )
        scalars = (self._scalars(first, place, depths), self._scalars(second, place, depths))
        if scalars[0] is None or scalars[1] is None:
            return False
        return automaton.intersection(scalars[0].valid, scalars[1].valid).is_empty

    def _resolved(self, schema: Any, place: str) -> Any:
        """A schema without references at its root."""
        seen: set[str] = set()
        while isinstance(schema, Mapping) and '$ref' in schema and schema['$ref'] not in seen:
            seen.add(schema['$ref'])
            schema = self._target(schema['$ref'], place)
        return schema

    def _types(self, schema: Any) -> set[str]:
        """The types that a schema's values may have, integers being numbers."""
        if not isinstance(schema, Mapping):
            return {'number' if kind == 'integer' else kind for kind in _KINDS}
        if 'const' in schema or 'enum' in schema:
            values = schema['enum'] if 'enum' in schema else [schema['const']]
            return {_kind(value) for value in values}
        named = schema.get('type', list(_KINDS))
        kinds = [named] if isinstance(named, str) else named
        return {'number' if kind == 'integer' else kind for kind in kinds}

    def _scalars(self, schema: Any, place: str, depths: Mapping[str, int]) -> _Scalars | None:
        """What a schema of scalars accepts, None for others and for those that combine schemas."""
        schema = self._resolved(schema, place)
        if schema is False:
            nothing = automaton.build(NOTHING)
            return _Scalars(nothing, nothing, is_more=False)
        if not isinstance(schema, Mapping) or self._types(schema) & {'array', 'object'}:
            return None
        keywords = self._keywords(schema, place)
        if any(name in keywords for name in _ALONE):
            return None
        written = automaton.build(self.value(schema, place, depths))
        if 'enum' in keywords or 'const' in keywords:
            values = keywords['enum'] if 'enum' in keywords else [keywords['const']]
            kept = [value for value in values if written.accepts(_text(value, place).encode())]
            valid = expressions.union(*(_every_spelling(value) for value in kept))
            return _Scalars(written, automaton.build(valid), is_more=False)
        parts = []
        for kind in self._kinds(keywords, place):
            if kind == 'integer':
                divisors = {'multipleOf': keywords['multipleOf']} if 'multipleOf' in keywords else {}
                whole = self._number({**keywords, 'multipleOf': 1}, place, is_integer=False)
                parts.append(
                    automaton.embedded(
                        automaton.intersection(whole, self._number(divisors, place, is_integer=False))
                    )
                )
            elif kind == 'string':
                parts.append(self._string(keywords, place, with_format=False))
            else:
                parts.append(self._of_kind(kind, keywords, place, depths))
        has_format = 'format' in keywords and 'string' in self._types(schema)
        return _Scalars(written, automaton.build(expressions.union(*parts)), is_more=has_format)


def _every_spelling(value: Any) -> Expression:
    """All texts of a scalar without an exponent."""
    if isinstance(value, str):
        characters = (_spelled(((ord(character),) * 2,)) for character in value)
        return concatenation(literal('"'), *characters, literal('"'))
    if _is_number(value):
        bound = (numbers.Bound(_decimal(value)),)
        return automaton.embedded(numbers.number(at_least=bound, at_most=bound))
    return literal(json.dumps(value))


def _malformed(keyword: str, expected: str, value: Any, place: str) -> ValueError:
    return ValueError(f'Expected {keyword} to be {expected}, got {keyword}={value!r} at {place}. Correct it.')


# --- Texts -------------------------------------------------------------------------


def compact(root: Any, text: str) -> str | None:
    """A JSON text in the compact form: declared keys in their order, numbers at their shortest.

    Whether it is valid is not looked at. A total function.

    Args:
        root: The schema, one that `compiled` takes.
        text: Any text.

    Returns:
        None where it is not JSON, has a key twice, half of a surrogate pair or a number that is not written
        out.
    """
    try:
        return _text(_Compiler(root, MAX_RECURSION).ordered(root, read(text)), '#')
    except (ValueError, ArithmeticError, RecursionError):
        # Of whoever's text it is, nothing is told.
        return None


__all__ = [
    'MAX_RECURSION',
    'UnsupportedKeywordError',
    'categories',
    'compact',
    'compiled',
    'expression_of',
    'expressions_given',
    'property_texts',
    'read',
    'value_text',
]
