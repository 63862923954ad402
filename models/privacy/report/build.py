"""Builds the report of a finished run from public values alone."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from models.privacy import accounting
from models.privacy.params import MechanismParams
from models.privacy.report import words
from models.privacy.report.numbers import format_exact
from models.privacy.report.released import (
    Clusters,
    CorpusTotals,
    CountSource,
    GroupPlan,
    LedgerEntry,
    PrivacyReport,
    Setting,
    statement_of,
)
from models.privacy.report.restricted import BatchEpsilon, ExPostLosses, GroupContexts, RestrictedReport


def build_privacy_report(
    params: MechanismParams,
    *,
    run_id: str,
    delta: float,
    plan: Sequence[GroupPlan],
    corpus: CorpusTotals,
    settings: Mapping[str, Setting],
    versions: Mapping[str, str],
    noisy_counts_rho: float = 0.0,
    clusters: Clusters | None = None,
    declared_units: int | None = None,
    ledger: LedgerEntry | None = None,
) -> PrivacyReport:
    """The report of a finished run, from public values alone.

    Args:
        params: The mechanism's settings; the stages of decoding follow from them.
        run_id: Public name of the run.
        delta: In (0, 1); there is no default.
        plan: Planned batches, one entry per declared label, or per cluster that it keeps.
        corpus: Totals of the corpus.
        settings: Every other public setting, by name.
        versions: Version of each piece of software and of the model, by name.
        noisy_counts_rho: zCDP cost of the noisy counts in `plan`; 0 where the settings
            gave the batches.
        clusters: Where the clusters in `plan` come from, with costs of their own; None
            without clusters.
        declared_units: Public number of records (of users, under the user unit), for
            the comparison with delta; None takes the sum of the noisy counts.
        ledger: What reserving the run's budget returned; None where it was not charged.

    Raises:
        ValueError: delta outside (0, 1); noisy counts without a cost or a cost without them;
            a plan whose clusters are not those that `clusters` keeps; a ledger that charged
            another cost, or a run without a price in advance; a setting that is not a plain
            finite value, that repeats a mechanism setting, or that bears the name of a
            restricted field.
    """
    plan = tuple(plan)
    counted = [group.noisy_count is not None for group in plan]
    if not plan or any(counted) != all(counted) or any(counted) != (noisy_counts_rho > 0):
        raise ValueError(
            f'Expected noisy counts for every group and their cost, or neither, got groups={len(plan)}, '
            f'groups with a noisy count={sum(counted)}, noisy_counts_rho={noisy_counts_rho!r}. Pass the '
            'plan and the cost that the accountant charged.'
        )
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
    mechanism = dataclasses.asdict(params)
    _check_settings(settings, mechanism)

    statement = statement_of(params.is_ex_post, clusters)
    stages = words.stages(params, noisy_counts_rho, clusters)
    costs = [stage.rho for stage in stages if stage.rho is not None]
    is_priced = statement == 'differential privacy'
    rho_total = math.fsum(costs) if is_priced else None
    epsilon = None if rho_total is None else accounting.epsilon_from_rho(rho_total, delta)
    units = declared_units
    source: CountSource | None = None if declared_units is None else 'declared'
    if units is None and all(counted):
        units, source = sum(group.noisy_count or 0 for group in plan), 'noisy'
    one, many = words.unit_nouns(params)
    return PrivacyReport(
        run_id=run_id,
        statement=statement,
        guarantee=words.guarantee(statement, epsilon, delta, math.fsum(costs), one),
        unit_of_privacy=words.unit_of_privacy(params),
        epsilon=epsilon,
        delta=delta,
        epsilon_closed_form=None if rho_total is None else accounting.epsilon_closed_form(rho_total, delta),
        rho_total=rho_total,
        rho_per_private_token=accounting.rho_per_private_token(params) if is_priced else None,
        delta_relation=(
            words.delta_relation(delta, units, source, many)
            if is_priced or (costs and statement == 'ex-post')
            else f'δ = {format_exact(delta)} was set by the curator. No figure of this report goes with it.'
        ),
        units=units,
        units_source=source,
        dp_setting=words.dp_setting(statement),
        data_accesses=words.data_accesses(statement, ledger, one),
        mechanism_output=(
            'All tokens of all batches, in order, with where each example ends and how many of its tokens '
            'are private and public'
            + (
                '; and the noisy counts, from which the plan of batches follows.'
                if noisy_counts_rho or clusters
                else '.'
            )
        ),
        adjacency=f'Two datasets are neighbours if one is the other with one {one} added or removed.',
        accounting=words.accounting_in_words(params, statement),
        stages=stages,
        sensitivities=words.sensitivities(params, noisy_counts_rho, clusters),
        assumptions_enforced=words.assumptions_enforced(params, noisy_counts_rho, clusters),
        assumptions_of_curator=words.assumptions_of_curator(params, declared_units, clusters, ledger),
        limits=words.limits(params, statement),
        plan=plan,
        clusters=clusters,
        ledger=ledger,
        corpus=corpus,
        mechanism=mechanism,
        settings=dict(settings),
        versions=dict(versions),
        reproduction=words.reproduction(params, statement, delta, noisy_counts_rho, clusters),
    )


def _check_settings(settings: Mapping[str, Setting], mechanism: Mapping[str, Setting]) -> None:
    restricted = {
        field.name
        for cls in (RestrictedReport, GroupContexts, ExPostLosses, BatchEpsilon)
        for field in dataclasses.fields(cls)
    } - {'run_id'}
    for name, value in settings.items():
        if name in restricted:
            raise ValueError(
                f'Expected public settings, got name={name!r}, a restricted field. Leave it out.'
            )
        if name in mechanism:
            raise ValueError(
                f'Expected settings beside those of MechanismParams, got name={name!r} twice. Leave it out.'
            )
        if not isinstance(value, Setting) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(
                'Expected each setting to be a string, a finite number, a truth value or None, got '
                f'name={name!r} of type {type(value).__name__}. Flatten it.'
            )
