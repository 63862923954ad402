"""Schemas of numbers, strings, booleans and null as expressions of their texts."""

import functools
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from models.grammars import automaton, expressions, numbers, regular_expressions
from models.grammars.automaton import Automaton
from models.grammars.expressions import CHARACTERS, Expression, concatenation, literal
from models.grammars.json_schema import json_text
from models.grammars.json_schema.keywords import (
    OF_KIND,
    UnsupportedKeywordError,
    counts_of,
    kinds_of,
    malformed,
)

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


@functools.cache
def _in_any_spelling(characters: expressions.Ranges) -> Expression:
    """One of these characters within a JSON string, in any spelling."""
    return automaton.embedded(automaton.build(expressions.in_json(characters)))


@functools.cache
def _format(name: str) -> Automaton:
    """The texts of a format, without quotation marks; none of them needs an escape."""
    first, *others = (automaton.build(regular_expressions.matched(pattern)) for pattern in _FORMATS[name])
    return functools.reduce(automaton.intersection, others, first)


def of_kind(kind: str, keywords: Mapping[str, Any], place: str) -> Expression:
    """The texts of one type; keywords of other types do not restrict it.

    Args:
        kind: A type that is neither array nor object.
        keywords: Those of the schema, of any type.
        place: JSON pointer of the schema.
    """
    if kind == 'null':
        return literal('null')
    if kind == 'boolean':
        return expressions.union(literal('true'), literal('false'))
    if kind in ('number', 'integer'):
        return automaton.embedded(_number(keywords, place, is_integer=kind == 'integer'))
    if kind == 'string':
        return _string(keywords, place)
    raise ValueError(f'Expected a type of scalars, got kind={kind!r}. Write arrays and objects elsewhere.')


def listed(keywords: Mapping[str, Any], place: str) -> Expression:
    """The texts of `enum` and `const`: the values that the keywords beside them allow."""
    values = keywords['enum'] if 'enum' in keywords else [keywords['const']]
    if not isinstance(values, list):
        raise malformed('enum', 'a list', values, place)
    if 'const' in keywords:
        values = [value for value in values if json_text.same(value, keywords['const'])]
    if 'type' in keywords:
        kinds = kinds_of(keywords, place)
        values = [
            value
            for value in values
            if json_text.kind(value) in kinds or ('integer' in kinds and json_text.is_integral(value))
        ]
    beside = {name: value for name, value in keywords.items() if name not in ('type', 'enum', 'const')}
    texts = []
    for value in values:
        kind = json_text.kind(value)
        says = {name for name in beside if name in OF_KIND.get(kind, ())}
        if says and (kind in ('array', 'object') or 'format' in says):
            raise UnsupportedKeywordError(min(says), place, 'beside enum or const. List the values alone')
        text = json_text.spelled(value, place)
        if not says or automaton.build(of_kind(kind, beside, place)).accepts(text.encode()):
            texts.append(text)
    return expressions.union(*(literal(text) for text in dict.fromkeys(texts)))


def _number(keywords: Mapping[str, Any], place: str, *, is_integer: bool) -> Automaton:
    values: dict[str, Decimal] = {}
    for name in OF_KIND['number'] & keywords.keys():
        value = keywords[name]
        if not json_text.is_number(value) or (name == 'multipleOf' and value <= 0):
            expected = 'a positive number' if name == 'multipleOf' else 'a number'
            raise malformed(name, expected, value, place)
        try:
            numbers.parts_of(json_text.decimal(value))
        except ValueError as error:
            raise UnsupportedKeywordError(name, place, str(error).rstrip('.')) from None
        values[name] = json_text.decimal(value)
    bounds = {
        name: numbers.Bound(value, is_exclusive=name.startswith('exclusive'))
        for name, value in values.items()
        if name != 'multipleOf'
    }
    try:
        return numbers.number(
            at_least=tuple(bounds[name] for name in ('minimum', 'exclusiveMinimum') if name in bounds),
            at_most=tuple(bounds[name] for name in ('maximum', 'exclusiveMaximum') if name in bounds),
            multiples_of=tuple(value for name, value in values.items() if name == 'multipleOf'),
            is_integer=is_integer,
        )
    except ValueError as error:
        # The bounds were checked above.
        raise UnsupportedKeywordError('multipleOf', place, str(error).rstrip('.')) from None


def _string(keywords: Mapping[str, Any], place: str) -> Expression:
    """Strings with their quotation marks."""
    least, most = counts_of('minLength', 'maxLength', keywords, place)
    conditions = []
    if 'pattern' in keywords:
        pattern = keywords['pattern']
        if not isinstance(pattern, str):
            raise malformed('pattern', 'a string', pattern, place)
        try:
            conditions.append(automaton.build(regular_expressions.searched(pattern, _in_any_spelling)))
        except regular_expressions.UnsupportedPatternError as error:
            raise UnsupportedKeywordError('pattern', place, str(error).rstrip('.')) from None
    if 'format' in keywords:
        name = keywords['format']
        if name not in _FORMATS:
            raise UnsupportedKeywordError(
                'format', place, f'format={name!r} is none of {", ".join(sorted(_FORMATS))}'
            )
        conditions.append(_format(name))
    content = expressions.repetition(_in_any_spelling(CHARACTERS), least, most)
    if conditions:
        if least or most is not None:
            conditions.append(automaton.build(content))
        content = automaton.embedded(functools.reduce(automaton.intersection, conditions))
    return concatenation(literal('"'), content, literal('"'))
