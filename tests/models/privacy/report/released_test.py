"""The released types: no restricted field and no loss gets in."""

import dataclasses
import typing

from models.privacy import report
from models.privacy.ex_post import BatchLoss
from models.privacy.report import GroupContexts, PrivacyReport, RestrictedReport
from tests.models.privacy.report.samples import (
    MEDIAN,
    TOTALS,
    clustered,
)


def reachable(annotation: typing.Any, seen: frozenset[typing.Any] = frozenset()) -> set[typing.Any]:
    """All classes that an annotation or a dataclass's fields mention, at any depth.

    A dataclass that mentions itself is followed once: `seen` holds those on the way to it.
    """
    found: set[typing.Any] = {annotation} if isinstance(annotation, type) else set()
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if not dataclasses.is_dataclass(annotation):
        mentioned = typing.get_args(annotation)
    elif annotation in seen:
        mentioned = ()
    else:
        mentioned = tuple(typing.get_type_hints(annotation).values())
        seen |= {annotation}
    for argument in mentioned:
        found |= reachable(argument, seen)
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
    # The run's public name is what ties the two together, beside a header with other values.
    assert field_names(PrivacyReport) & field_names(RestrictedReport) == {
        'run_id', 'schema', 'schema_version', 'audience',
    }  # fmt: skip
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
