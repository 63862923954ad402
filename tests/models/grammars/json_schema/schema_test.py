"""A schema's automaton accepts the values that validate and are in the compact form, and no other text.

Against `jsonschema` on the JSON Schema Test Suite, against `json` and `datetime` on texts of its own, and
against the masks of llguidance.
"""

import datetime
import decimal
import json
import pathlib
import re
from decimal import Decimal
from typing import Any

import jsonschema
import jsonschema_specifications
import numpy as np
import pytest

from models.grammars.json_schema import json_text, schema
from models.grammars.json_schema.keywords import UnsupportedKeywordError
from tests import oracles

SUITE = pathlib.Path(__file__).parents[5] / 'shared' / 'data' / 'json-schema-test-suite' / 'tests'


def accepts(of: Any, *texts: str) -> list[bool]:
    found = schema.compiled(of)
    return [found.accepts(text.encode()) for text in texts]


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        'type': 'object',
        'properties': properties,
        'required': list(required),
        'additionalProperties': False,
    }


VISIT = closed(
    {
        'id': {'type': 'string', 'format': 'uuid'},
        'age': {'type': 'integer', 'minimum': 0, 'maximum': 120},
        'ward': {'enum': ['Surgery', 'Pædiatrics']},
        'weight': {'type': ['number', 'null'], 'exclusiveMinimum': 0, 'maximum': 300, 'multipleOf': 0.5},
        'codes': {'type': 'array', 'items': {'type': 'string', 'pattern': '^[A-Z][0-9]{2}$'}, 'maxItems': 2},
        'note': {'type': 'string', 'minLength': 1, 'maxLength': 4},
        'kin': closed({'name': {'type': 'string', 'maxLength': 3}, 'near': {'type': 'boolean'}}, 'near'),
    },
    'id', 'age', 'ward',
)  # fmt: skip
UUID = '123e4567-e89b-12d3-a456-426614174000'


# --- By hand -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ('rest', 'expected'),
    [
        ('"age":7,"ward":"Surgery"}', True),
        ('"age":7,"ward":"P\u00e6diatrics"}', True),
        ('"age":7,"ward":"P\\u00e6diatrics"}', False),
        ('"age":7,"ward":"Surgery","weight":null,"codes":["A10","B\\u0031\\u0030"]}', True),
        ('"age":7,"ward":"Surgery","note":"\\"\\ud83d\\ude00"}', True),
        ('"age":7,"ward":"Surgery","codes":[],"kin":{"near":true}}', True),
        ('"age":7,"ward":"Surgery","kin":{"name":"","near":true}}', True),
        ('"age":7,"ward":"Surgery","kin":{"near":true,"name":""}}', False),
        ('"age":7,"ward":"Surgery","kin":{"name":""}}', False),
        ('"age":7,"ward":"Surgery","codes":["A10","A10","A10"]}', False),
        ('"age":7,"ward":"Surgery","note":""}', False),
        ('"age":7,"ward":"Surgery","weight":12.50}', True),
        ('"age":7,"ward":"Surgery","weight":12.25}', False),
        ('"age":7,"ward":"Surgery","weight":0}', False),
        ('"age":07,"ward":"Surgery"}', False),
        ('"age":121,"ward":"Surgery"}', False),
        ('"ward":"Surgery","age":7}', False),
        ('"age":7, "ward":"Surgery"}', False),
        ('"age":7,"ward":"Surgery",}', False),
        ('"age":7,"ward":"Surgery"', False),
    ],
)  # fmt: skip
def test_an_object(rest: str, expected: bool) -> None:
    text = f'{{"id":"{UUID}",{rest}'
    assert accepts(VISIT, text) == [expected]
    if expected:
        jsonschema.validate(json.loads(text), VISIT)


def test_structure_is_forced() -> None:
    found = schema.compiled(VISIT)
    assert found.forced() == b'{"id":"'
    start = found.walk(f'{{"id":"{UUID}'.encode())
    assert found.forced(start) == b'","age":'


@pytest.mark.parametrize(
    ('of', 'keyword', 'place'),
    [
        ({'type': 'array', 'items': {'type': 'null'}, 'uniqueItems': True}, 'uniqueItems', '#'),
        ({'type': 'array'}, 'items', '#'),
        ({'type': 'array', 'items': True}, 'true', '#/items'),
        ({'type': 'array', 'items': [{'type': 'null'}]}, 'items', '#'),
        ({'type': 'array', 'items': {'type': 'null'}, 'contains': {}}, 'contains', '#'),
        ({}, 'type', '#'),
        ({'type': 'object'}, 'properties', '#'),
        (closed({'a/b': {'type': 'string', 'format': 'ipv4'}}), 'format', '#/properties/a~1b'),
        ({'type': 'object', 'properties': {}, 'additionalProperties': {}}, 'additionalProperties', '#'),
        ({'type': 'object', 'properties': {}, 'patternProperties': {}}, 'patternProperties', '#'),
        ({'type': 'object', 'properties': {}, 'minProperties': 1}, 'minProperties', '#'),
        (closed({}, 'a'), 'required', '#'),
        ({'type': 'string', 'pattern': r'(a)\1'}, 'pattern', '#'),
        ({'type': 'number', 'multipleOf': Decimal('1.00001')}, 'multipleOf', '#'),
        ({'type': 'number', 'minimum': Decimal('1E500')}, 'minimum', '#'),
        ({'type': 'null', 'not': {}}, 'not', '#'),
        ({'type': 'null', 'if': {}}, 'if', '#'),
        ({'type': 'null', 'anyOf': [{'type': 'null'}]}, 'anyOf', '#'),
        ({'allOf': [{'type': 'null'}, {'type': 'null'}]}, 'allOf', '#'),
        ({'oneOf': [closed({'a': {'type': 'null'}}), closed({'b': {'type': 'null'}})]}, 'oneOf', '#'),
        ({'oneOf': [{'type': 'string', 'format': 'date'}, {'type': 'string', 'maxLength': 3}]}, 'oneOf', '#'),
        ({'$ref': 'other.json'}, '$ref', '#'),
        ({'$ref': '#/$defs/a', 'type': 'null', '$defs': {'a': {'type': 'null'}}}, '$ref', '#'),
        ({'$schema': 'http://json-schema.org/draft-04/schema#', 'type': 'null'}, '$schema', '#'),
        ({'type': 'string', 'enum': ['2020-01-01'], 'format': 'date'}, 'format', '#'),
        ({'type': 'null', 'unknown': 1}, 'unknown', '#'),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_with_its_place(of: Any, keyword: str, place: str) -> None:
    with pytest.raises(UnsupportedKeywordError, match=re.escape(f'at {place}: ')) as error:
        schema.compiled(of)
    assert (error.value.keyword, error.value.place) == (keyword, place)


@pytest.mark.parametrize(
    ('of', 'message'),
    [
        ({'type': 'string', 'minLength': -1}, 'minLength to be an integer >= 0'),
        ({'type': 'string', 'maxLength': 1.5}, 'maxLength to be an integer >= 0'),
        ({'type': 'nothing'}, 'type to be one or a list'),
        ({'type': 'number', 'minimum': '1'}, 'minimum to be a number'),
        ({'type': 'number', 'multipleOf': 0}, 'multipleOf to be a positive number'),
        ({'enum': 'a'}, 'enum to be a list'),
        ({'anyOf': []}, 'anyOf to be a list of schemas'),
        ({'$ref': '#/$defs/a'}, 'a place in this file'),
        ({'type': 'integer', 'minimum': 1, 'maximum': 0}, 'some valid value'),
        ({'type': 'integer', 'enum': ['a']}, 'some valid value'),
        (False, 'some valid value'),
        ('a', 'Expected a schema'),
        ({'const': '\ud800'}, 'half of a surrogate pair'),
    ],
)
def test_what_is_malformed_is_refused(of: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        schema.compiled(of)


def test_recursion_goes_to_its_depth() -> None:
    tree = closed({'sub': {'type': 'array', 'items': {'$ref': '#'}, 'maxItems': 1}}, 'sub')
    text = '{"sub":[]}'
    for depth in range(3):
        assert schema.compiled(tree, max_recursion=2).accepts(text.encode()) == (depth <= 2)
        text = f'{{"sub":[{text}]}}'
    assert not schema.compiled(tree, max_recursion=2).accepts(text.encode())
    endless = {'$ref': '#/$defs/a', '$defs': {'a': closed({'a': {'$ref': '#/$defs/a'}}, 'a')}}
    with pytest.raises(ValueError, match='max_recursion=3'):
        schema.compiled(endless)


def test_one_of_takes_schemas_that_exclude_one_another() -> None:
    of_types = {'oneOf': [{'type': 'integer', 'multipleOf': 3}, {'type': ['null', 'string'], 'maxLength': 1}]}
    assert accepts(of_types, '3', '5', 'null', '"a"') == [True, False, True, True]
    listed = {'oneOf': [{'enum': [1, 'a']}, {'const': 'b'}, {'type': 'null'}]}
    assert accepts(listed, '1', '"a"', '"b"', 'null', '2') == [True, True, True, True, False]
    kinds = {'oneOf': [closed({'k': {'const': 'a'}}, 'k'), closed({'k': {'enum': ['b', 'c']}}, 'k')]}
    assert accepts(kinds, '{"k":"a"}', '{"k":"c"}', '{}') == [True, True, False]


@pytest.mark.parametrize(
    'schemas',
    [
        ({'type': 'integer'}, {'type': 'number', 'minimum': 2}),
        ({'const': 'a'}, {'type': 'string', 'maxLength': 1}),
        ({'enum': [1, 'a']}, {'enum': [2, 1.0]}),
        (closed({'k': {'const': 'a'}}), closed({'k': {'const': 'b'}}, 'k')),
        (closed({'k': {'enum': ['a', 'b']}}, 'k'), closed({'k': {'const': 'b'}}, 'k')),
    ],
)
def test_one_of_schemas_that_may_have_a_value_in_common_is_refused(schemas: tuple[Any, Any]) -> None:
    with pytest.raises(UnsupportedKeywordError, match='schemas 0 and 1 may have values in common'):
        schema.compiled({'oneOf': list(schemas)})


def test_enum_is_held_to_the_keywords_beside_it() -> None:
    listed = {'type': 'integer', 'enum': [1, 2.0, 2.5, '3', 4], 'maximum': 3}
    assert accepts(listed, '1', '2', '2.0', '2.5', '"3"', '4') == [True, True, False, False, False, False]
    assert accepts({'enum': [{'b': 1.50, 'a': []}, True]}, '{"b":1.5,"a":[]}', 'true', '1') == [
        True,
        True,
        False,
    ]


# --- Texts of its own --------------------------------------------------------------


def test_strings_are_what_json_reads() -> None:
    found = schema.compiled({'type': 'string', 'minLength': 2, 'maxLength': 3})
    rng = np.random.default_rng(0)
    pieces = ['a', 'é', '\U0001f600', '"', '\\', '\\"', '\\\\', '\\/', '\\n', '\\x', '\\u00e9', '\\u00E',
              '\n', '\\ud83d\\ude00', '\\ud83d', '\\ude00', '\\uD83Da', '\x7f', '\\u0000']  # fmt: skip
    for _ in range(2_000):
        text = f'"{"".join(rng.choice(pieces, rng.integers(0, 5)))}"'
        try:
            value = json.loads(text)
            value.encode()
            expected = 2 <= len(value) <= 3
        except ValueError:
            expected = False
        assert found.accepts(text.encode()) == expected, text
    for text in oracles.texts(found, 200, rng):
        assert 2 <= len(json.loads(text.decode())) <= 3


def test_dates_are_those_of_the_calendar() -> None:
    found = schema.compiled({'type': 'string', 'format': 'date'})
    for year in (1, 4, 99, 100, 400, 1900, 1996, 2000, 2023, 2024, 9996, 9999):
        for month in range(14):
            for day in (0, 1, 9, 10, 28, 29, 30, 31, 32):
                text = f'{year:04}-{month:02}-{day:02}'
                try:
                    datetime.date.fromisoformat(text)
                    is_date = True
                except ValueError:
                    is_date = False
                assert found.accepts(f'"{text}"'.encode()) == is_date, text


def test_leap_years_are_those_of_the_calendar() -> None:
    found = schema.compiled({'type': 'string', 'format': 'date'})
    for year in range(1, 10_000):
        is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        assert found.accepts(f'"{year:04}-02-29"'.encode()) == is_leap


@pytest.mark.parametrize('name', ['date', 'time', 'date-time', 'uuid', 'email'])
def test_texts_of_a_format_are_of_it(name: str) -> None:
    found = schema.compiled({'type': 'string', 'format': name})
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    for text in oracles.texts(found, 30, np.random.default_rng(0)):
        value = json.loads(text.decode())
        if name == 'time':
            datetime.time.fromisoformat(re.sub(r'(\.\d{6})\d+', r'\1', value))
        elif name == 'date-time':
            datetime.datetime.fromisoformat(re.sub(r'(\.\d{6})\d+', r'\1', value))
        else:
            checker.check(value, name)
        if name == 'email':
            local, _, domain = value.rpartition('@')
            assert 0 < len(local) <= 64 and len(domain) <= 255 and '..' not in value


def test_texts_of_a_schema_validate() -> None:
    found = schema.compiled(VISIT)
    for text in oracles.texts(found, 30, np.random.default_rng(0)):
        jsonschema.validate(json.loads(text.decode()), VISIT)


# --- The JSON Schema Test Suite ------------------------------------------------------

_TYPE_OF = {
    **dict.fromkeys(('minLength', 'maxLength', 'pattern', 'format'), 'string'),
    **dict.fromkeys(('minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'), 'number'),
    **dict.fromkeys(('items', 'minItems', 'maxItems', 'uniqueItems'), 'array'),
    **dict.fromkeys(('properties', 'required', 'additionalProperties'), 'object'),
}
_ANY = {'type': ['string', 'number', 'boolean', 'null']}


def typed(of: Any) -> Any:
    """A schema of the suite with the type that its keywords are about, where it names none.

    The suite's schemas say nothing of most types, and any value at all is refused. An instance is then
    held against the schema with its types, by `jsonschema` too. An empty schema is one of all scalars.
    """
    if of is True or of == {}:
        return _ANY
    if not isinstance(of, dict):
        return of
    of = dict(of)
    for name in ('items', 'additionalProperties', 'not'):
        if isinstance(of.get(name), (dict, bool)) and name == 'items':
            of[name] = typed(of[name])
    for name in ('properties', '$defs', 'definitions'):
        if isinstance(of.get(name), dict):
            of[name] = {key: typed(value) for key, value in of[name].items()}
    for name in ('anyOf', 'oneOf', 'allOf'):
        if isinstance(of.get(name), list):
            of[name] = [typed(value) for value in of[name]]
    types = {_TYPE_OF[name] for name in of if name in _TYPE_OF}
    if not {'type', 'enum', 'const', '$ref', 'anyOf', 'oneOf', 'allOf'} & of.keys():
        if not types:
            of = {**of, **_ANY}
        else:
            of['type'] = sorted(types)
            if 'array' in types:
                of.setdefault('items', _ANY)
            if 'object' in types:
                names = of.get('required', [])
                of['properties'] = {**dict.fromkeys(names, _ANY), **of.get('properties', {})}
    return of


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize(
    ('draft', 'supported', 'refused'), [('draft2020-12', 139, 322), ('draft7', 135, 186)]
)
def test_the_suite(draft: str, supported: int, refused: int) -> None:
    if not SUITE.is_dir():
        pytest.skip(f'No JSON Schema Test Suite at {SUITE}.')
    validators = {'draft2020-12': jsonschema.Draft202012Validator, 'draft7': jsonschema.Draft7Validator}
    validator, counts, instances = validators[draft], [0, 0], 0
    registry = jsonschema_specifications.REGISTRY
    for path in sorted((SUITE / draft).rglob('*.json')):
        for group in json_text.read(path.read_text()):
            of = typed(group['schema'])
            try:
                found = schema.compiled(of)
            except ValueError:
                counts[1] += 1
                continue
            counts[0] += 1
            holder = validator(of, registry=registry)

            def is_valid(part: Any, value: Any, holder: Any = holder) -> bool:
                with decimal.localcontext(prec=1_000):
                    return holder.evolve(schema=part).is_valid(value)

            for test in group['tests']:
                value, where = test['data'], (path.name, group['description'], test['description'])
                instances += 1
                accepted = found.accepts(oracles.written(value).encode())
                # `jsonschema` reads patterns as Python's, and formats not at all.
                valid = test['valid'] if path.stem == 'ecmascript-regex' else is_valid(of, value)
                if path.parent.name == 'format':
                    valid = valid and test['valid']
                if 'format' in str(of) and path.stem not in ('date', 'uuid'):
                    # The form leaves some texts out.
                    valid = valid and accepted
                expected = valid and oracles.in_form(of, of, value, is_valid)
                assert accepted == expected, where
    assert instances > 600
    assert counts == [supported, refused]
