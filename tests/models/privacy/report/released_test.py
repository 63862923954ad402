"""The released types: what contradicts itself is refused, and no restricted field gets in."""

import dataclasses
import re
import typing

import pytest

from models.privacy import report
from models.privacy.ex_post import BatchLoss
from models.privacy.report import CenterCounts, GroupContexts, PrivacyReport, RestrictedReport
from tests.models.privacy.report.samples import (
    CENTER_COUNTS,
    CLUSTERED,
    MEDIAN,
    ONE_LABEL,
    TOTALS,
    clustered,
    clusters,
    ledger_entry,
)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'run_number': 0}, 'run_number=0'),
        ({'run_number': 1}, 'run_number=1'),
        ({'rho': 0.0}, 'rho=0.0'),
        ({'rho_after': 0.5}, 'rho_after=0.5'),
        ({'epsilon_after': 1.0}, 'epsilon_after=1.0'),
        ({'delta': 1e-7}, 'epsilon_after'),
        ({'rho_budget': 0.4}, 'rho_budget=0.4'),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(changes: dict[str, typing.Any], message: str) -> None:
    assert ledger_entry(0.2).rho_after == 0.45
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(ledger_entry(0.2), **changes)


def reachable(annotation: typing.Any) -> set[typing.Any]:
    """All classes that an annotation or a dataclass's fields mention, at any depth."""
    if dataclasses.is_dataclass(annotation):
        found: set[typing.Any] = {annotation}
        for hint in typing.get_type_hints(annotation).values():
            found |= reachable(hint)
        return found
    found = {annotation} if isinstance(annotation, type) else set()
    for argument in typing.get_args(annotation):
        found |= reachable(argument)
    return found


def field_names(cls: type) -> set[str]:
    return {
        field.name
        for member in reachable(cls)
        if dataclasses.is_dataclass(member)
        for field in dataclasses.fields(member)
    }


def test_no_restricted_field_can_appear_in_the_privacy_report() -> None:
    public, restricted = reachable(PrivacyReport), reachable(RestrictedReport)
    shared = {cls for cls in public & restricted if dataclasses.is_dataclass(cls)}
    assert not shared
    # The run's public name is what ties the two together.
    assert field_names(PrivacyReport) & field_names(RestrictedReport) == {'run_id'}
    assert 'object' not in {cls.__name__ for cls in public}, 'an untyped field would let anything in'
    # Nor can the builder be handed one.
    for parameter in typing.get_type_hints(report.build_privacy_report).values():
        if parameter is not PrivacyReport:
            assert not reachable(parameter) & {RestrictedReport, GroupContexts}


def test_reachability_oracle_sees_into_containers() -> None:
    assert GroupContexts in reachable(RestrictedReport)
    assert RestrictedReport in reachable(tuple[dict[str, RestrictedReport] | None, ...])


def test_a_median_report_is_a_function_of_public_values_alone() -> None:
    # The only way in for a loss would be a parameter that can hold one.
    accepted = set().union(*map(reachable, typing.get_type_hints(report.build_privacy_report).values()))
    of_losses = {cls for cls in reachable(report.ExPostLosses) if dataclasses.is_dataclass(cls)}
    assert len(of_losses) == 3 and not accepted & (of_losses | {BatchLoss})
    few, many = (
        clustered(MEDIAN, corpus=dataclasses.replace(TOTALS, examples=number)) for number in (1, 1000)
    )
    assert dataclasses.replace(few, corpus=many.corpus) == many


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'counts_rho': 0.0}, 'counts_rho=0.0'),
        ({'centers_rho': 0.1}, 'centers_rho=0.1'),
        ({'source': 'dp-k-means'}, 'centers_rho=0.0'),
        ({'corpus_texts': None}, "source='public'"),
        ({'source': 'k-means'}, "source='k-means'"),
        ({'center_counts': ()}, 'labels=0'),
        ({'center_counts': (CENTER_COUNTS[0], CenterCounts(label='b', kept=(0,), counts=(1,)))}, 'labels=2'),
        ({'center_counts': (CenterCounts(label='b', kept=(1,), counts=(1,)),)}, 'kept=(1,)'),
        ({'center_counts': (CenterCounts(label='b', kept=(1, 0), counts=(1, 2)),)}, 'kept=(1, 0)'),
    ],
)
def test_clusters_refuse(changes: dict[str, typing.Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(clusters(), **changes)


def test_plan_is_summed_over_the_clusters_of_a_label() -> None:
    assert report.totals_by_label(CLUSTERED) == (('a', 2, 3, 694), ('b', 1, 3, 771))
    assert report.totals_by_label(ONE_LABEL) == ((None, 1, 4, None),)
