from __future__ import annotations

import json
import pathlib
import sys
import urllib.request
from typing import Any

import numpy as np
import pytest
from scipy.spatial import distance

from models.extras import MissingExtraError
from pipeline.evaluation.measure import Findings, NotDefined
from pipeline.evaluation.sources import Sources
from pipeline.evaluation.structure import Structure, chance_variation, parse_object, total_variation
from tests.pipeline.evaluation.placed import plain_sources

SUITE = pathlib.Path(__file__).parents[4] / 'shared' / 'data' / 'json-schema-test-suite'
SCHEMA = {
    'type': 'object',
    'properties': {'ward': {'enum': ['a', 'b']}, 'age': {'type': 'integer', 'minimum': 0}},
    'required': ['ward', 'age'],
}


def _found(sources: Sources, schema: dict[str, Any] | None = None) -> Findings:
    return Structure(schema).measure(sources, lambda done, total: None)


def _values(corpus: list[Any], test: list[Any] | None = None, schema: Any = None) -> dict[str, float | None]:
    """Texts stay as they are; everything else is written as JSON."""

    def written(rows: list[Any]) -> list[str]:
        return [row if isinstance(row, str) else json.dumps(row) for row in rows]

    sources = plain_sources(written(corpus), test=None if test is None else written(test))
    return {figure.name: figure.value for figure in _found(sources, schema).figures}


@pytest.mark.parametrize(
    'text, found',
    [
        (' {"a": [1, null]}\n', {'a': [1, None]}),
        ('{}', {}),
        ('{"a": 1', None),
        ('```json\n{"a": 1}\n```', None),
        ('[1]', None),
        ('1', None),
        ('', None),
        ("{'a': 1}", None),
        ('{"a": NaN}', None),
        ('{"a": -Infinity}', None),
        ('{"a": ' + '9' * 5000 + '}', None),
        ('{"a": ' + '[' * 200_000 + ']' * 200_000 + '}', None),
    ],
)
def test_what_is_a_json_object(text: str, found: Any) -> None:
    assert parse_object(text) == found


def test_parse_rates_of_both() -> None:
    good = [{'a': 1}] * 8
    values = _values(['{'] * 6 + good[:2], good)
    assert values['parse_rate'] == 0.25 and values['parse_rate/real'] == 1


def test_a_corpus_that_does_not_parse_at_all_has_a_rate() -> None:
    assert _values(['no'] * 4, [{'a': 1}] * 8) == {'parse_rate': 0, 'parse_rate/real': 1}


def test_it_is_not_defined_of_texts_that_are_no_json() -> None:
    with pytest.raises(NotDefined, match='got 40% of test, less than 50%'):
        _values([{'a': 1}] * 5, [{'a': 1}] * 2 + ['a word'] * 3)
    with pytest.raises(NotDefined, match='got 0% of corpus'):
        _values(['a word'])


def test_validity_counts_texts_that_fit() -> None:
    rows = [{'ward': 'a', 'age': 3}, {'ward': 'c', 'age': 3}, {'ward': 'b'}, {'ward': 'b', 'age': -1}, '{']
    values = _values(rows, [{'ward': 'a', 'age': 3}], SCHEMA)
    assert values['valid'] == 0.2 and values['valid/real'] == 1
    assert 'valid' not in _values(rows, [{'ward': 'a', 'age': 3}])


@pytest.mark.skipif(not SUITE.exists(), reason=f'needs the JSON Schema test suite in {SUITE}')
@pytest.mark.parametrize('name', ['required', 'enum', 'properties', 'additionalProperties', 'not', 'anyOf'])
def test_validity_agrees_with_the_json_schema_test_suite(name: str) -> None:
    (path,) = SUITE.rglob(f'draft2020-12/{name}.json')
    checked = 0
    for group in json.loads(path.read_text()):
        objects = [case for case in group['tests'] if isinstance(case['data'], dict)]
        if objects and isinstance(group['schema'], dict):
            expected = np.mean([case['valid'] for case in objects])
            assert _values([case['data'] for case in objects], None, group['schema'])['valid'] == expected
            checked += len(objects)
    assert checked > 3


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at '\$.properties.a.pattern'"):
        Structure({'properties': {'a': {'pattern': '('}}})
    with pytest.raises(
        ValueError, match=r"Expected a JSON schema, got an error at '\$.type'.*Mend the schema"
    ):
        Structure({'type': 'thing'})


@pytest.mark.parametrize(
    'schema, reason',
    [
        ({'$ref': 'https://example.com/other.json'}, "refers to 'https://example.com/other.json'"),
        ({'$ref': '#'}, 'leads back to itself'),
    ],
)
def test_a_schema_that_cannot_be_followed_leaves_the_measure_undefined_and_nothing_is_fetched(
    schema: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[Any] = []
    monkeypatch.setattr(urllib.request, 'urlopen', lambda *given, **_: fetched.append(given))
    with pytest.raises(NotDefined, match=reason):
        _values([{'a': 'b'}], None, schema)
    assert fetched == []


def test_without_the_package_a_schema_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, 'jsonschema', None)
    with pytest.raises(MissingExtraError, match=r"Run pip install 'dp-corpus\[evaluate\]'"):
        Structure({})


def test_total_variation_is_half_the_city_block_distance_of_shares() -> None:
    assert total_variation(np.array([3, 1]), np.array([1, 3])) == 0.5
    assert total_variation(np.array([5, 0]), np.array([0, 2])) == 1
    generator = np.random.default_rng(1)
    a, b = generator.integers(1, 50, (2, 9))
    assert total_variation(a, b) == pytest.approx(distance.cityblock(a / a.sum(), b / b.sum()) / 2)


def test_chance_variation_is_that_of_samples_of_one_distribution() -> None:
    generator = np.random.default_rng(2)
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    drawn = [generator.multinomial(200, shares) for _ in range(2)]
    simulated = [total_variation(*generator.multinomial([200, 400], shares)) for _ in range(2000)]
    found = chance_variation(drawn[0], 2 * drawn[1], generator)
    assert found == pytest.approx(np.mean(simulated), rel=0.1)
    # It falls with the root of the sizes.
    assert chance_variation(100 * drawn[0], 200 * drawn[1], generator) == pytest.approx(found / 10, rel=0.1)


def test_categories_by_hand() -> None:
    corpus = [{'ward': 'a'}] * 6 + [{'ward': 'b'}] * 2 + [{'ward': 'new'}] * 2
    values = _values(corpus, [{'ward': 'a'}] * 50 + [{'ward': 'b'}] * 50)
    # |0.6-0.5| + |0.2-0.5| + 0.2, halved.
    assert values['total_variation/ward'] == pytest.approx(0.3)
    assert values['new_categories/ward'] == pytest.approx(0.2)


def test_the_same_texts_differ_in_nothing() -> None:
    rows = [{'ward': 'ab'[n % 2], 'age': n, 'who': {'sex': 'mf'[n % 2]}} for n in range(40)]
    values = _values(rows, rows)
    for name in ('ward', 'who.sex'):
        assert values[f'total_variation/{name}'] == values[f'new_categories/{name}'] == 0


def test_missing_and_null_are_one() -> None:
    corpus = [{'ward': 'a', 'age': 1}, {'ward': None, 'age': 1}, {'age': 1}, {'age': 1}]
    values = _values(corpus, [{'ward': 'a', 'age': 1}] * 3 + [{'age': 1}])
    assert values['missing/ward'] == 0.75 and values['missing/ward/real'] == 0.25
    assert values['missing/age'] == 0


def test_free_text_and_lists_have_no_categories() -> None:
    real = [{'note': f'text {n}', 'tags': [n]} for n in range(50)]
    values = _values(real, real)
    assert values['missing/note'] == values['missing/tags'] == 0
    assert not any(name.startswith('total_variation') for name in values)


def test_keys_that_are_data_are_no_fields() -> None:
    real = [{'ward': 'a', f'name {n}': 1} for n in range(300)]
    assert not any('name ' in name for name in _values(real[:50], real))


def test_a_field_that_the_corpus_never_has_is_missing_and_else_not_defined() -> None:
    values = _values([{'age': 1}] * 4, [{'age': n, 'ward': 'ab'[n % 2]} for n in range(20)])
    assert values['missing/ward'] == 1
    assert values['total_variation/ward'] is values['new_categories/ward'] is None


def test_a_corpus_alone_has_fields_of_its_own() -> None:
    rows = [{'ward': 'ab'[n % 2], 'age': n} for n in range(20)]
    found = _found(plain_sources([json.dumps(row) for row in rows]))
    values = {figure.name: figure.value for figure in found.figures}
    assert values == {'parse_rate': 1, 'missing/age': 0, 'missing/ward': 0}
    assert [len(chart.series) for chart in found.charts] == [1]


def test_sources_of_one_name_stay_two() -> None:
    sources = plain_sources(['{"ward": "a"}'] * 4, test=['{"ward": "b"}'] * 4)
    same = Sources(
        corpus=sources.corpus,
        test=type(sources.corpus)(name='corpus', texts=sources.test.texts if sources.test else ()),
        embedder=sources.embedder,
    )
    (chart,) = _found(same).charts
    assert [series.y for series in chart.series] == [(0, 1), (1, 0)]


def test_odd_numbers_and_halves_of_characters_have_figures() -> None:
    rows = [
        '{"n": 1e999, "s": "\\ud800"}',
        '{"n": ' + '9' * 400 + ', "s": "\\ud800"}',
        '{"n": 3, "s": "b"}',
    ] * 4
    found = _found(plain_sources(rows, test=rows))
    values = {figure.name: figure.value for figure in found.figures}
    assert values['total_variation/n'] == values['total_variation/s'] == 0
    for chart in found.charts:
        for series in chart.series:
            str(series.x).encode()
