"""Runs whose examples have a structure, with the bundled model: every complete one is valid, whatever votes.

The bundled model knows nothing of JSON, and its temperature is high: what is valid is so by the mask.
"""

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from models.bundled import FOLDER as BUNDLED
from pipeline import methods
from pipeline.run import identity
from pipeline.settings.job_config import JobConfig
from tests import samples
from tests.launched import launch
from tests.one_model import one_model
from tests.pipeline.job_test import Row, config, report_of, restricted_of, rows_of

pytestmark = pytest.mark.skipif(
    not (BUNDLED / 'checkpoint').exists(), reason='the bundled model has no checkpoint: train it first'
)

SCHEMA: dict[str, Any] = {
    '$schema': 'https://json-schema.org/draft/2020-12/schema',
    'title': 'A message',
    'type': 'object',
    'properties': {
        'about': {'enum': ['parcel', 'invoice']},
        'urgent': {'type': 'boolean'},
        'note': {'type': 'string', 'maxLength': 8},
        'items': {'type': 'array', 'items': {'type': 'integer', 'minimum': 1, 'maximum': 20}, 'maxItems': 2},
    },
    'required': ['about', 'urgent', 'note'],
    'additionalProperties': False,
}
MEAN = {'aggregate': 'mean', 'clip_bound': 2.0, 'max_private_tokens': 60, 'max_batch_tokens': 400}
SPARSE = {'threshold': 0.7, 'threshold_noise_scale': 0.2}
RUNS: dict[str, dict[str, Any]] = {
    'mean': {**MEAN, 'temperature': 8.0},
    'mean, sparse vector': {**MEAN, **SPARSE, 'temperature': 8.0, 'public_temperature': 8.0},
    'median': {**MEAN, 'aggregate': 'median', 'temperature': 8.0},
    'difference, worst case': {
        **MEAN, 'aggregate': 'difference', 'accounting': 'worst-case', 'temperature': 6.0, 'public_top_k': 64,
    },
    'difference, individual, two rounds': {
        'aggregate': 'difference', 'max_private_tokens': None, 'context_budget': 0.5, 'temperature': 6.0,
        'max_batch_tokens': 300, 'public_top_k': 64,
    },
}  # fmt: skip


def records(number: int = 24) -> list[Row]:
    """Keys in another order, and white space; of every twelve one is no JSON and one breaks the schema."""
    rows = []
    for index in range(number):
        value: dict[str, Any] = {
            'note': f'no {index}', 'urgent': index % 3 == 0, 'about': ('parcel', 'invoice')[index % 2],
        }  # fmt: skip
        if index % 12 == 3:
            value['urgent'] = 'very'
        text = json.dumps(value, indent=1) if index % 12 != 5 else 'No record at all.'
        rows.append({'id': str(index), 'text': text, 'label': ('Billing', 'Delivery')[index % 2]})
    return rows


def structured(folder: pathlib.Path, written: Any = SCHEMA, **settings: Any) -> JobConfig:
    (folder / 'message.json').write_text(json.dumps(written, indent=1), encoding='utf-8')
    chosen = {
        'json_schema': str(folder / 'message.json'), 'prompt': 'pretrained-json', 'max_prompt_tokens': 400,
        'max_example_tokens': 60, 'batches_per_label': 2, 'batch_size': 6,
    }  # fmt: skip
    return config(folder, rows=records(), **(chosen | settings))


def is_valid(text: str) -> bool:
    try:
        jsonschema.validate(json.loads(text), SCHEMA)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


@pytest.mark.run
# The mask comes after the aggregate, and tests of models give it each of them.
@pytest.mark.parametrize('name', samples.with_first(RUNS, 'mean'))
def test_every_complete_example_is_valid(tmp_path: pathlib.Path, name: str) -> None:
    run = structured(tmp_path, **RUNS[name])
    launch(run, [])
    rows, report = rows_of(run), report_of(run)
    complete = [row for row in rows if not row['truncated']]
    assert len(complete) >= 4 and all(is_valid(row['text']) for row in complete)
    # All that a cap cut short is marked.
    assert all(row['truncated'] for row in rows if not is_valid(row['text']))
    # Structure is counted apart, and no private token went into it.
    forced = sum(row['forced_tokens'] for row in rows)
    assert all(row['forced_tokens'] > 0 for row in complete) and report.corpus.forced_tokens == forced
    assert report.corpus.private_tokens == sum(row['private_tokens'] for row in rows)
    assert any('allowed alone' in text for text in report.assumptions_enforced)
    assert json.loads(str(report.settings['json_schema'])) == SCHEMA
    assert restricted_of(run).records_outside_structure == 4


@pytest.mark.run
def test_what_a_cap_cut_short_is_closed_where_that_is_asked_for(tmp_path: pathlib.Path) -> None:
    run = structured(tmp_path, close_truncated=True, **RUNS['mean'])
    launch(run, [])
    rows = rows_of(run)
    assert any(row['truncated'] for row in rows) and all(is_valid(row['text']) for row in rows)


@pytest.mark.run
def test_a_pattern_holds_every_text(tmp_path: pathlib.Path) -> None:
    pattern = r' ?(Parcel|Invoice) [A-Z]{2}[0-9]{3}(, (late|lost)){0,2}\.'
    run = config(tmp_path, rows=records(), regex=pattern, **MEAN, temperature=8.0, max_example_tokens=40)
    launch(run, [])
    rows = rows_of(run)
    complete = [row['text'] for row in rows if not row['truncated']]
    assert len(complete) > 8 and all(re.fullmatch(pattern, text) for text in complete)
    assert restricted_of(run).records_outside_structure == 24
    assert report_of(run).settings['regex'] == pattern


def test_a_keyword_that_is_not_enforced_is_refused_by_its_name(tmp_path: pathlib.Path) -> None:
    for keyword, schema in (
        ('uniqueItems', {'type': 'array', 'items': {'type': 'null'}, 'uniqueItems': True}),
        ('patternProperties', {'type': 'object', 'patternProperties': {'^a': {'type': 'null'}}}),
        ('if', {**SCHEMA, 'if': {}}),
    ):
        with pytest.raises(ValueError, match=f"keyword='{keyword}' at #"):
            structured(tmp_path, schema, **RUNS['mean'])


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'regex': 'a+'}, 'json_schema or regex'),
        ({'schema': 'message.json'}, 'schema or json_schema'),
        ({'json_schema': None, 'close_truncated': True}, 'with close_truncated'),
        ({'json_schema': 'nowhere.json'}, 'is no file'),
        ({'json_schema': None, 'regex': '(a'}, 'a group that ends'),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    tmp_path: pathlib.Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        structured(tmp_path, **RUNS['mean'], **settings)


def test_a_file_that_is_no_json_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'bad.json').write_text('{"type": ')
    with pytest.raises(ValueError, match='Expected JSON in json_schema='):
        structured(tmp_path, **RUNS['mean'], json_schema=str(tmp_path / 'bad.json'))


def test_another_schema_in_the_same_file_is_another_run(tmp_path: pathlib.Path) -> None:
    run = structured(tmp_path, **RUNS['mean'])
    before = identity.fingerprint(methods.solve(run, launch=True))
    structured(tmp_path, {**SCHEMA, 'required': ['about']}, **RUNS['mean'])
    after = identity.fingerprint(methods.solve(run, launch=True))
    assert before['model'] != after['model'] and before['config'] == after['config']
