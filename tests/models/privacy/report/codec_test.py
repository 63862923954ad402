"""JSON: the shown samples, round trips, and what reading refuses."""

import dataclasses
import json
import math
import pathlib
import re
import traceback
import typing
from collections.abc import Callable

import pytest

from models.privacy import report
from models.privacy.params import MechanismParams
from models.privacy.report import PrivacyReport, RestrictedReport
from tests.models.privacy.report.samples import (
    INDIVIDUAL,
    PARAMS_OF_ALL_KINDS,
    SPENDING,
    build,
    clustered,
    restricted_report,
    sample_report,
)

SAMPLE = pathlib.Path(__file__).with_name('sample_report.json')


def test_the_golden_sample() -> None:
    """A whole report, for people; written anew by `python -m tests.models.privacy.report.codec_test`."""
    assert sample_report().to_json() == SAMPLE.read_text(encoding='utf-8')


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
@pytest.mark.parametrize('build_report', [build, clustered])
def test_round_trip(params: MechanismParams, build_report: Callable[..., PrivacyReport]) -> None:
    before = build_report(params)
    after = PrivacyReport.from_json(before.to_json())
    assert after == before
    assert after.to_json() == before.to_json()


def edit(path: str, value: typing.Any) -> str:
    """The sample's JSON with one value set; the path is dotted, an index a number."""
    data = json.loads(sample_report().to_json())
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split('.')]
    place = data
    for part in parents:
        place = place[part]
    place[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ('path', 'value', 'message'),
    [
        ('records_read', 1201, 'records_read with: Unexpected keyword'),
        ('corpus.true_count', 5, 'Unexpected keyword'),
        ('stages.0.sigma', 5, 'stages.0'),
        ('method.mechanism.sigma', 5, 'method.predicted.mechanism.sigma with: Unexpected keyword'),
        ('method.kind', 'voted', 'method.voted'),
        ('method.kind', 'guessed', 'method with: value tag'),
        ('schema_version', 1, 'schema_version with: value should be 8'),
        ('schema', 'other', "schema with: value should be 'dp-corpus/privacy-report'"),
        ('audience', 'Nobody.', 'Anyone may read'),
        ('run_id', 5, 'run_id with: value should be a valid string'),
        ('plan.1.batches', True, 'plan.1.batches with: value should be a valid integer'),
        ('plan', {}, 'plan with'),
        ('settings.model', ['gemma'], 'settings.model'),
        ('units_source', 'true', 'units_source'),
        ('epsilon', 1.0, 'epsilon=1.0'),
        ('epsilon', None, 'epsilon=None'),
        ('rho_total', None, 'rho_total=None'),
        ('rho_per_private_token', None, 'rho_per_private_token=None'),
        ('rho_per_private_token', 0.1, 'rho_per_private_token=0.1'),
        ('stages.1.rho', None, 'Expected stages to follow'),
        ('statement', 'ex-post', "statement='ex-post'"),
        ('statement', 'none', 'statement with'),
        ('method.mechanism.aggregate', 'median', 'to follow from the mechanism'),
        ('method.mechanism.clip_bound', 9.0, 'to follow from the mechanism'),
        ('method.counts_rho', 0.1, 'to follow from the mechanism'),
        ('delta', 1e-9, 'computed='),
        ('rho_total', 0.1, 'rho_total=0.1'),
        ('stages.0.rho', 0.1, 'Expected stages to follow'),
        ('epsilon', math.nan, 'finite number'),
    ],
)
def test_reading_refuses(path: str, value: typing.Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PrivacyReport.from_json(edit(path, value))


@pytest.mark.parametrize('name', [field.name for field in dataclasses.fields(PrivacyReport)])
def test_reading_refuses_a_missing_field(name: str) -> None:
    data = json.loads(sample_report().to_json())
    del data[name]
    with pytest.raises(ValueError, match=f'{name} with: |with every key'):
        PrivacyReport.from_json(json.dumps(data))


def test_an_error_quotes_nothing_of_a_report() -> None:
    for reader, text in ((PrivacyReport, sample_report()), (RestrictedReport, restricted_report())):
        edited = (
            text.to_json().replace('"run_id": "', '"run_id": 3, "ran": "secret').replace('run_id', 'run_id')
        )
        with pytest.raises(ValueError, match='Expected a .*report of this version') as caught:
            reader.from_json(edited)
        assert 'secret' not in ''.join(traceback.format_exception(caught.value))


@pytest.mark.parametrize('text', ['', '[]', '3', 'null', '{"run_id": "a", "run_id": "b"}'])
def test_reading_refuses_what_is_no_report(text: str) -> None:
    with pytest.raises(ValueError, match='Expect'):
        PrivacyReport.from_json(text)


def test_restricted_report_round_trip_is_marked() -> None:
    text = restricted_report().to_json()
    assert RestrictedReport.from_json(text) == restricted_report()
    spending = report.context_spending(SPENDING, INDIVIDUAL)
    individual = dataclasses.replace(restricted_report(), losses=None, spending=spending)
    assert RestrictedReport.from_json(individual.to_json()) == individual
    assert list(json.loads(text))[:3] == ['schema', 'schema_version', 'audience']
    assert json.loads(text)['audience'].startswith('Restricted to the curator')


def test_one_report_is_never_read_as_the_other() -> None:
    for reader, text in (
        (PrivacyReport, restricted_report().to_json()),
        (RestrictedReport, sample_report().to_json()),
    ):
        with pytest.raises(ValueError, match='as it was written'):
            reader.from_json(text)


def test_noisy_counts_of_a_label_take_one_line() -> None:
    lines = [line.strip().rstrip(',') for line in clustered().to_json().splitlines()]
    assert '"counts": [300, -2, 41, 180]' in lines and '"kept": [1]' in lines
    tricky = clustered(settings={'prompt': '[\n  1,\n  2\n]'})
    assert PrivacyReport.from_json(tricky.to_json()) == tricky


if __name__ == '__main__':
    SAMPLE.write_text(sample_report().to_json(), encoding='utf-8')
