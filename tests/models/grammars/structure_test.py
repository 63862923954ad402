"""The structure of a run's examples: how records stand in prompts, and how texts that were cut end."""

import json
import pickle
from typing import Any

import jsonschema
import numpy as np
import pytest

from models.grammars import automaton, regular_expressions
from models.grammars.json_schema import schema
from models.grammars.structure import Structure
from tests import oracles

SCHEMA: dict[str, Any] = {
    'type': 'object',
    'properties': {
        'ward': {'enum': ['Surgery', 'Pædiatrics']},
        'visit': {'$ref': '#/$defs/visit'},
        'drugs': {
            'type': 'array',
            'maxItems': 2,
            'items': {
                'anyOf': [
                    {'type': 'null'},
                    {
                        'type': 'object',
                        'properties': {'name': {'type': 'string'}, 'mg': {'type': 'number', 'minimum': 0.5}},
                        'required': ['name', 'mg'],
                        'additionalProperties': False,
                    },
                ]
            },
        },
    },
    'required': ['ward', 'visit'],
    'additionalProperties': False,
    '$defs': {
        'visit': {
            'type': 'object',
            'properties': {'date': {'type': 'string', 'format': 'date'}, 'code': {'type': 'integer'}},
            'required': ['date', 'code'],
            'additionalProperties': False,
        }
    },
}
STRUCTURE = Structure(json_schema=json.dumps(SCHEMA, ensure_ascii=False))


def test_a_valid_record_stands_in_a_prompt_as_examples_are_spelled() -> None:
    text = """ {"drugs": [{"mg": 2.50, "name": "a \\u00e6"}, null],
        "visit": {"code": 7.0, "date": "2026-11-22"}, "ward": "P\\u00e6diatrics"} """
    expected = (
        '{"ward":"Pædiatrics","visit":{"date":"2026-11-22","code":7},"drugs":[{"name":"a æ","mg":2.5},null]}'
    )
    assert STRUCTURE.shown(text) == expected and STRUCTURE.holds(text)
    assert STRUCTURE.shown(expected) == expected
    assert json.loads(expected) == json.loads(text)


@pytest.mark.parametrize(
    'text',
    [
        'Plain text.', '', '{"ward":', '[]', 'null', '{"ward": "Surgery"}', '{"ward": "Surgery", "ward": 1}',
        '{"ward": "Surgery", "visit": {"date": "2026-02-30", "code": 1}}',
        '{"ward": "Surgery", "visit": {"date": "2026-02-28", "code": 1}, "more": 1}',
        '{"ward": "Surgery", "visit": {"date": "2026-02-28", "code": 1e999999999}}',
        '{"ward": "Surgery", "visit": {"date": "2026-02-28", "code": NaN}}',
        '{"ward": "\\ud800", "visit": {}}', '"\ud800"', '[' * 5000, '9' * 5000, '1e99999999999999999999999',
    ],
)  # fmt: skip
def test_any_other_record_stands_as_it_is(text: str) -> None:
    """Whatever a record holds, nothing is raised: that would tell of it."""
    assert STRUCTURE.shown(text) == text and not STRUCTURE.holds(text)


def test_a_pattern_changes_no_text() -> None:
    structure = Structure(regex='[a-c]{2,3}')
    assert structure.holds('abc') and not structure.holds('abcd') and not structure.holds('\ud800')
    assert structure.shown(' abcd') == ' abcd'


def test_a_text_that_was_cut_gets_the_shortest_ending() -> None:
    whole = '{"ward":"Surgery","visit":{"date":"2026-11-22","code":7},"drugs":[{"name":"æ","mg":2.5}]}'
    for length in range(len(whole.encode()) + 1):
        data = whole.encode()[:length]
        found = STRUCTURE.closed(data)
        assert found.encode().startswith(data)
        jsonschema.validate(json.loads(found), SCHEMA)
    assert STRUCTURE.closed(b'') == '{"ward":"Surgery","visit":{"date":"0001-01-01","code":0}}'
    assert STRUCTURE.closed(whole.encode()) == whole


def test_no_ending_is_shorter() -> None:
    """By a search through all texts of rising length."""
    found = automaton.build(regular_expressions.matched('a(b{3}|c(d|e{2}))(f{2})*g?'))
    for state in range(1, found.states):
        ending = found.shortest_ending(state)
        assert found.accepting[found.walk(ending, state)]
        reached = {state}
        for _ in range(len(ending)):
            assert not any(found.accepting[place] for place in reached)
            reached = {found.walk(bytes([byte]), place) for place in reached for byte in b'abcdefg'}
    with pytest.raises(ValueError, match='state=0'):
        found.shortest_ending(automaton.DEAD)


def test_forced_bytes_are_those_of_the_runs() -> None:
    found = schema.compiled(SCHEMA)
    for text in oracles.texts(found, 20, np.random.default_rng(0)):
        places = [found.walk(text[:length]) for length in range(len(text))]
        expected = sum(bool(found.forced(place)) for place in places)
        assert found.forced_bytes_of(text) == expected > 20


def test_a_structure_travels_without_what_is_made_of_it() -> None:
    assert STRUCTURE.automaton is STRUCTURE.automaton
    assert len(pickle.dumps(STRUCTURE)) < 2 * len(json.dumps(SCHEMA))
    assert pickle.loads(pickle.dumps(STRUCTURE)) == STRUCTURE


@pytest.mark.parametrize('given', [{}, {'json_schema': '{}', 'regex': 'a'}])
def test_one_of_two_is_given(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match='either a JSON schema or a regular expression'):
        Structure(**given)


def test_a_pattern_without_texts_is_refused() -> None:
    with pytest.raises(ValueError, match='some text matches'):
        _ = Structure(regex=r'a[^\d\D]').automaton
