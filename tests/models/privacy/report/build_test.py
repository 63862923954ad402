"""Building: what a report states, and what it refuses to state."""

import dataclasses
import json
import math
import re
import typing

import pytest

from models.privacy import report
from models.privacy.params import MechanismParams
from models.privacy.report import GroupPlan, PrivacyReport
from tests.models.privacy.report.samples import (
    CLUSTERED,
    MEDIAN,
    PARAMS,
    TOTALS,
    build,
    clustered,
    clusters,
    ledger_entry,
)


def test_cost_is_that_of_the_cap_and_not_of_the_tokens_used() -> None:
    few = build(corpus=dataclasses.replace(TOTALS, private_tokens=1))
    many = build(corpus=dataclasses.replace(TOTALS, private_tokens=1_000_000))
    assert few.epsilon == many.epsilon
    assert few.stages == many.stages


@pytest.mark.parametrize('made', [MEDIAN, PARAMS])
def test_a_run_without_that_price_has_no_entry(made: MechanismParams) -> None:
    with pytest.raises(ValueError, match='charged=0.2'):
        build(made, ledger=ledger_entry(0.2))


def test_declared_number_wins_over_noisy_counts() -> None:
    plan = [GroupPlan(label='a', batches=2, noisy_count=500), GroupPlan(label='b', batches=1, noisy_count=-3)]
    noisy = build(plan=plan, noisy_counts_rho=0.01)
    assert (noisy.units, noisy.units_source) == (497, 'noisy')
    declared = build(plan=plan, noisy_counts_rho=0.01, declared_units=510)
    assert (declared.units, declared.units_source) == (510, 'declared')


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'settings': {'records_read': 12}}, 'records_read'),
        ({'settings': {'contexts_per_batch': 12}}, 'contexts_per_batch'),
        ({'settings': {'losses': 1.5}}, 'losses'),
        ({'settings': {'ex_post_epsilon': 1.5}}, 'ex_post_epsilon'),
        ({'plan': [GroupPlan(label='a', cluster=1, batches=1)]}, 'groups=1, kept centres=0'),
        ({'clusters': clusters()}, 'groups=1, kept centres=3'),
        (
            {'clusters': clusters(), 'plan': CLUSTERED[::-1], 'noisy_counts_rho': 0.1},
            'groups=3, kept centres=3',
        ),
        ({'settings': {'clip_bound': 12.0}}, 'clip_bound'),
        ({'settings': {'labels': ['a', 'b']}}, "name='labels' of type list"),
        ({'settings': {'scale': math.inf}}, "name='scale'"),
        ({'delta': 0.0}, 'delta=0.0'),
        ({'delta': 1.0}, 'delta=1.0'),
        ({'plan': []}, 'groups=0'),
        ({'plan': [GroupPlan(label=None, batches=1, noisy_count=5)]}, 'noisy_counts_rho=0.0'),
        ({'noisy_counts_rho': 0.1}, 'noisy_counts_rho=0.1'),
        (
            {'plan': [GroupPlan(label='a', batches=1, noisy_count=5), GroupPlan(label='b', batches=1)],
             'noisy_counts_rho': 0.1},
            'groups with a noisy count=1',
        ),
    ],
)  # fmt: skip
def test_building_refuses(changes: dict[str, typing.Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build(**changes)


def test_the_three_statements() -> None:
    assert build().statement == clustered(source='dp-k-means').statement == 'differential privacy'
    assert build(MEDIAN).statement == clustered(MEDIAN, 'dp-k-means').statement == 'ex-post'
    assert clustered(source='k-means').statement == clustered(MEDIAN, 'k-means').statement == 'none'


@pytest.mark.parametrize('made', [build(MEDIAN), clustered(MEDIAN), clustered(source='k-means')])
def test_without_a_price_in_advance_no_total_is_stated(made: PrivacyReport) -> None:
    totals = (made.epsilon, made.epsilon_closed_form, made.rho_total, made.rho_per_private_token)
    assert totals == (None,) * 4
    with pytest.raises(ValueError, match='do not edit'):
        dataclasses.replace(made, epsilon=1.0)


def test_k_means_on_private_records_is_research_only() -> None:
    made = clustered(source='k-means')
    assert made.guarantee.startswith('RESEARCH ONLY: no guarantee.') and 'infinite' in made.guarantee
    assert made.audience == json.loads(made.to_json())['audience'] == report.RESEARCH_ONLY
    assert [stage.rho for stage in made.stages][:2] == [None, 0.0025]
    assert made.reproduction == ''
    assert any('Nothing of this run is published' in row for row in made.assumptions_of_curator)
    assert not any('public and was chosen' in row for row in made.assumptions_of_curator)


def test_public_centers_are_free_and_vouched_for() -> None:
    public, private = clustered(), clustered(source='dp-k-means')
    assert [stage.name for stage in public.stages][:2] == ['Noisy counts per centre', 'Noisy counts']
    assert private.stages[0].name == 'Cluster centres' and private.stages[1:] == public.stages
    assert public.rho_total is not None and private.rho_total == pytest.approx(public.rho_total + 0.01)
    assert any('chosen without looking' in row for row in public.assumptions_of_curator[1:])
    by = [row.quantity for row in public.sensitivities if 'counts' in row.quantity]
    assert by == [
        'The vector of counts by label and centre (L2)',
        'The vector of counts by label and cluster (L2)',
    ]
