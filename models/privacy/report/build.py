"""Builds the report of a finished run from public values alone."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from models.privacy.facts import Setting
from models.privacy.report import reproduction, words
from models.privacy.report.groups import CountSource, GroupPlan
from models.privacy.report.ledger import LedgerEntry
from models.privacy.report.predicted import Predicted
from models.privacy.report.released import LISTS, SENTENCES, Described, PrivacyReport
from models.privacy.report.restricted import (
    BatchEpsilon,
    ContextSpending,
    ExPostLosses,
    GroupContexts,
    RestrictedReport,
    SpendingOfBatch,
)
from models.privacy.report.totals import ChosenTotals, CorpusTotals, TunedTotals


def build_privacy_report(
    method: Described,
    *,
    run_id: str,
    delta: float,
    plan: Sequence[GroupPlan],
    corpus: CorpusTotals | TunedTotals | ChosenTotals,
    settings: Mapping[str, Setting],
    versions: Mapping[str, str],
    declared_units: int | None = None,
    sample_rate: float = 1.0,
    ledger: LedgerEntry | None = None,
    commitment: str | None = None,
) -> PrivacyReport:
    """The report of a finished run, from public values alone.

    Args:
        method: What the run did with the records.
        run_id: Public name of the run.
        delta: In (0, 1); there is no default.
        plan: Planned batches, one entry per declared label, or per cluster that it keeps.
        corpus: Totals of the corpus.
        settings: Every other public setting, by name.
        versions: Version of each piece of software and of the model, by name.
        declared_units: Public number of records (of users, under the user unit), for
            the comparison with delta; None takes the sum of the noisy counts, over the sample rate.
        sample_rate: Probability with which each unit was taken.
        ledger: What reserving the run's budget returned; None where it was not charged.
        commitment: To the run key; None without a run.

    Raises:
        ValueError: delta outside (0, 1); noisy counts without a cost or a cost without them;
            a plan whose clusters are not those that the method keeps; a ledger that charged
            another cost, or a run without a price in advance; a setting that is not a plain
            finite value, that repeats a mechanism setting, or that bears the name of a
            restricted field.
    """
    plan = tuple(plan)
    _check_plan(method, plan)
    _check_settings(settings, method.mechanism)
    units = declared_units
    source: CountSource | None = None if declared_units is None else 'declared'
    if units is None and plan[0].noisy_count is not None:
        # Whom delta protects are all, in the sample or not.
        units, source = round(sum(group.noisy_count or 0 for group in plan) / sample_rate), 'noisy'
    unworded: dict[str, Any] = dict.fromkeys(SENTENCES, '') | dict.fromkeys(LISTS, ())
    made = PrivacyReport(
        run_id=run_id,
        delta=delta,
        units=units,
        units_source=source,
        sample_rate=sample_rate,
        plan=plan,
        ledger=ledger,
        commitment=commitment,
        corpus=corpus,
        method=method,
        settings=dict(settings),
        versions=dict(versions),
        reproduction='',
        **method.figures(delta),
        **unworded,
    )
    sections = words.sections(made)
    worded: dict[str, Any] = {name: sections[name][0] for name in SENTENCES}
    worded |= {name: sections[name] for name in LISTS}
    return dataclasses.replace(made, reproduction=reproduction.lines_of(made), **worded)


def _check_plan(method: Described, plan: Sequence[GroupPlan]) -> None:
    counted = [group.noisy_count is not None for group in plan]
    if not plan or any(counted) != all(counted) or any(counted) != method.counts_groups:
        raise ValueError(
            f'Expected noisy counts for every group and their cost, or neither, got groups={len(plan)}, '
            f'groups with a noisy count={sum(counted)}, paid={method.counts_groups}. Pass the '
            'plan and the cost that the accountant charged.'
        )
    clusters = method.clusters if isinstance(method, Predicted) else None
    kept = [
        (cells.label, index)
        for cells in (() if clusters is None else clusters.center_counts)
        for index in cells.kept
    ]
    if [(group.label, group.cluster) for group in plan if clusters or group.cluster is not None] != kept:
        raise ValueError(
            'Expected one group for each centre that a label keeps, in their order, or no cluster at all, '
            f'got groups={len(plan)}, kept centres={len(kept)}. Pass the plan and its clustering.'
        )


def _check_settings(settings: Mapping[str, Setting], mechanism: Any) -> None:
    kinds = (
        RestrictedReport, GroupContexts, ExPostLosses, BatchEpsilon, ContextSpending, SpendingOfBatch,
    )  # fmt: skip
    restricted = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    of_mechanism = {field.name for field in dataclasses.fields(mechanism)}
    for name, value in settings.items():
        if name in restricted:
            raise ValueError(
                f'Expected public settings, got name={name!r}, a restricted field. Leave it out.'
            )
        if name in of_mechanism:
            raise ValueError(
                f'Expected settings beside those of the mechanism, got name={name!r} twice. Leave it out.'
            )
        if not isinstance(value, Setting) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(
                'Expected each setting to be a string, a finite number, a truth value or None, got '
                f'name={name!r} of type {type(value).__name__}. Flatten it.'
            )
