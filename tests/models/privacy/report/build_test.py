"""Building: what a report states, and what it refuses to state."""

import dataclasses
import math
import re
import typing

import pytest

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
    with pytest.raises(ValueError, match='charged=0.2, computed='):
        build(made, ledger=ledger_entry(0.2))


def test_declared_number_wins_over_noisy_counts() -> None:
    plan = [GroupPlan(label='a', batches=2, noisy_count=500), GroupPlan(label='b', batches=1, noisy_count=-3)]
    noisy = build(plan=plan, counts_rho=0.01)
    assert (noisy.units, noisy.units_source) == (497, 'noisy')
    declared = build(plan=plan, counts_rho=0.01, declared_units=510)
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
            {'clusters': clusters(), 'plan': CLUSTERED[::-1], 'counts_rho': 0.1},
            'groups=3, kept centres=3',
        ),
        ({'settings': {'clip_bound': 12.0}}, 'clip_bound'),
        ({'settings': {'labels': ['a', 'b']}}, "name='labels' of type list"),
        ({'settings': {'scale': math.inf}}, "name='scale'"),
        ({'delta': 0.0}, 'delta=0.0'),
        ({'delta': 1.0}, 'delta=1.0'),
        ({'plan': []}, 'groups=0'),
        ({'plan': [GroupPlan(label=None, batches=1, noisy_count=5)]}, 'paid=False'),
        ({'counts_rho': 0.1}, 'paid=True'),
        (
            {'plan': [GroupPlan(label='a', batches=1, noisy_count=5), GroupPlan(label='b', batches=1)],
             'counts_rho': 0.1},
            'groups with a noisy count=1',
        ),
    ],
)  # fmt: skip
def test_building_refuses(changes: dict[str, typing.Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build(**changes)


@pytest.mark.parametrize('made', [build(MEDIAN), clustered(MEDIAN)])
def test_without_a_price_in_advance_no_total_is_stated(made: PrivacyReport) -> None:
    totals = (made.epsilon, made.epsilon_closed_form, made.rho_total, made.rho_per_private_token)
    assert totals == (None,) * 4
    with pytest.raises(ValueError, match='do not edit it'):
        dataclasses.replace(made, epsilon=1.0)


def test_public_centers_are_free_and_vouched_for() -> None:
    public = clustered()
    assert [stage.name for stage in public.stages][:2] == ['Noisy counts per centre', 'Noisy counts']
    assert any('chosen without looking' in row for row in public.assumptions_of_curator[1:])
    by = [row.quantity for row in public.sensitivities if 'counts' in row.quantity]
    assert by == [
        'The vector of counts by label and centre (L2)',
        'The vector of counts by label and cluster (L2)',
    ]
