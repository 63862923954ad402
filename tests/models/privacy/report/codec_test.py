"""JSON: the shown samples, round trips, and what reading refuses."""

import dataclasses
import inspect
import json
import math
import re
import textwrap
import typing
from collections.abc import Callable

import pytest
import yaml

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
    with_ledger,
)


def test_golden_sample_in_the_docstring() -> None:
    _, _, sample = (inspect.getdoc(PrivacyReport) or '').partition('the same order)::\n')
    shown = yaml.safe_load(textwrap.dedent(sample) + '\n')  # getdoc drops the last line break
    written = json.loads(sample_report().to_json())
    assert shown == written
    assert list(shown) == list(written), 'the order of the keys is part of the schema'


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
@pytest.mark.parametrize('build_report', [build, clustered])
def test_round_trip(params: MechanismParams, build_report: Callable[..., PrivacyReport]) -> None:
    before = build_report(params)
    after = PrivacyReport.from_json(before.to_json())
    assert after == before
    assert after.to_json() == before.to_json()


def test_a_ledger_goes_round() -> None:
    before = with_ledger()
    assert PrivacyReport.from_json(before.to_json()) == before


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
        ('records_read', 1201, "unknown=['records_read']"),
        ('corpus.true_count', 5, "unknown=['true_count']"),
        ('stages.0.sigma', 5, r'PrivacyReport.stages[0]'),
        ('schema_version', 1, 'schema_version=6'),
        ('schema', 'other', "schema='dp-corpus/privacy-report'"),
        ('audience', 'Nobody.', 'Anyone may read'),
        ('run_id', 5, 'PrivacyReport.run_id'),
        ('plan.1.batches', True, 'PrivacyReport.plan[1].batches'),
        ('plan', {}, 'PrivacyReport.plan'),
        ('settings.model', ['gemma'], "PrivacyReport.settings['model']"),
        ('units_source', 'true', 'PrivacyReport.units_source'),
        ('epsilon', 1.0, 'epsilon=1.0'),
        ('epsilon', None, 'epsilon=None'),
        ('rho_total', None, 'rho_total=None'),
        ('rho_per_private_token', None, "statement='differential privacy'"),
        ('stages.1.rho', None, "statement='differential privacy'"),
        ('statement', 'ex-post', "statement='ex-post'"),
        ('statement', 'none', 'PrivacyReport.statement'),
        ('mechanism.aggregate', 'median', "Expected statement='ex-post'"),
        ('delta', 1e-9, 'computed='),
        ('rho_total', 0.1, 'rho_total=0.1'),
        ('stages.0.rho', 0.1, 'sum='),
        ('epsilon', math.nan, 'NaN'),
    ],
)
def test_reading_refuses(path: str, value: typing.Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        PrivacyReport.from_json(edit(path, value))


@pytest.mark.parametrize('name', [field.name for field in dataclasses.fields(PrivacyReport)])
def test_reading_refuses_a_missing_field(name: str) -> None:
    data = json.loads(sample_report().to_json())
    del data[name]
    with pytest.raises(ValueError, match=re.escape(f"missing=['{name}']")):
        PrivacyReport.from_json(json.dumps(data))


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
    with pytest.raises(ValueError, match="schema='dp-corpus/privacy-report'"):
        PrivacyReport.from_json(restricted_report().to_json())
    with pytest.raises(ValueError, match="schema='dp-corpus/restricted-report'"):
        RestrictedReport.from_json(sample_report().to_json())


def test_noisy_counts_of_a_label_take_one_line() -> None:
    lines = [line.strip().rstrip(',') for line in clustered().to_json().splitlines()]
    assert '"counts": [300, -2, 41, 180]' in lines and '"kept": [1]' in lines
    tricky = clustered(settings={'prompt': '[\n  1,\n  2\n]'})
    assert PrivacyReport.from_json(tricky.to_json()) == tricky


def test_sample_of_the_restricted_report_is_one() -> None:
    _, _, sample = (inspect.getdoc(RestrictedReport) or '').partition('Sample::\n')
    shown = RestrictedReport.from_json(sample.partition('\n\nWith')[0])
    assert shown.losses is not None and len(shown.losses.loss_by_batch) == len(shown.contexts_per_batch)
    _, _, individual = sample.partition('`spending`::\n')
    spending = json.loads(sample.partition('\n\nWith')[0]) | {
        'losses': None,
        'spending': json.loads(individual),
    }
    found = RestrictedReport.from_json(json.dumps(spending))
    assert found.spending is not None and len(found.spending.share_voting) == 4
