"""Builds the report of a finished run from public values alone."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from models.privacy import accounting, facts
from models.privacy.accounting import subsampled
from models.privacy.facts import Facts, MethodFacts, RhoStage, Setting
from models.privacy.params import MechanismParams
from models.privacy.report import earlier_releases, groups, prediction, tuning, words
from models.privacy.report.groups import Cells, Clusters, CountSource, GroupPlan
from models.privacy.report.ledger import LedgerEntry
from models.privacy.report.ledger import facts as ledger_facts
from models.privacy.report.released import PrivacyReport
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
    method: MethodFacts | MechanismParams,
    *,
    run_id: str,
    delta: float,
    plan: Sequence[GroupPlan],
    corpus: CorpusTotals | TunedTotals | ChosenTotals,
    settings: Mapping[str, Setting],
    versions: Mapping[str, str],
    noisy_counts_rho: float = 0.0,
    clusters: Clusters | None = None,
    cells: Cells | None = None,
    declared_units: int | None = None,
    sample_rate: float = 1.0,
    ledger: LedgerEntry | None = None,
    commitment: str | None = None,
) -> PrivacyReport:
    """The report of a finished run, from public values alone.

    Args:
        method: The facts of the run's method. For private prediction its settings are enough: the facts
            follow from them.
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
        cells: By which counts examples are given values, with a cost of their own; None where they are
            given none.
        declared_units: Public number of records (of users, under the user unit), for
            the comparison with delta; None takes the sum of the noisy counts, over the sample rate.
        sample_rate: Probability with which each unit was taken.
        ledger: What reserving the run's budget returned; None where it was not charged.
        commitment: To the run key; None without a run.

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
    if isinstance(method, MechanismParams):
        method = prediction.facts(method)
    _check_settings(settings, method.settings)

    # Of a cost outside zCDP there is no sum with that of groups, and a method with one makes none.
    of_groups = (
        ()
        if method.event is not None
        else groups.facts(noisy_counts_rho, clusters, cells, reads_batches=method.reads_batches)
    )
    together = (*method.parts, method.decoding)
    weakest = facts.weakest((*of_groups, *together))
    is_priced = weakest.statement == 'differential privacy' and method.event is None
    stages = tuple(stage for part in (*of_groups, *together) for stage in part.stages)
    costs = [stage.rho for stage in stages if stage.rho is not None]
    rho_total = math.fsum(costs) if is_priced else None
    omega = min((stage.omega for stage in stages if stage.omega is not None), default=None)
    largest_order = math.inf if omega is None else omega
    epsilon = order = closed_form = None
    if rho_total is not None:
        epsilon = earlier_releases.epsilon_alone(earlier_releases.costs_of(method.settings, stages), delta)
        closed_form = accounting.epsilon_closed_form(rho_total, delta, largest_order=largest_order)
        if omega is not None:
            order = accounting.optimal_order(rho_total, delta, largest_order=omega)
    if method.event is not None:
        epsilon = subsampled.epsilon_of_event(method.event, delta)
    went_in = _WentIn.of(method, stages, epsilon, delta, ledger)
    has_figure = epsilon is not None or bool(costs)
    in_python = [
        cost for cost in (method.reproduction, *(part.reproduction for part in of_groups)) if cost is not None
    ]
    units = declared_units
    source: CountSource | None = None if declared_units is None else 'declared'
    if units is None and all(counted):
        # Whom delta protects are all, in the sample or not.
        units, source = round(sum(group.noisy_count or 0 for group in plan) / sample_rate), 'noisy'
    sampled = () if sample_rate == 1 else (words.sampled(sample_rate, *method.unit_nouns),)
    declared = () if declared_units is None else (words.declared_units(method.unit_nouns[1]),)
    during = method.during or words.during_the_run(has_adapter=method.has_adapter)
    one, many = method.unit_nouns
    words_of_statement = weakest.statement_words
    return PrivacyReport(
        run_id=run_id,
        statement=weakest.statement,
        guarantee=words.guarantee(
            weakest,
            epsilon,
            delta,
            math.fsum(costs),
            one,
            released=method.released,
            together=went_in.together,
        )
        + (words.GIVEN if method.releases and went_in.together is None and method.reads_records else ''),
        unit_of_privacy=method.unit_of_privacy,
        epsilon=went_in.epsilon,
        epsilon_of_run=epsilon,
        delta=delta,
        epsilon_closed_form=closed_form,
        rho_total=rho_total,
        omega=None if rho_total is None else omega,
        order=order,
        rho_per_private_token=method.rho_per_private_token if is_priced else None,
        delta_relation=(
            words.delta_relation(delta, units, source, many, sample_rate)
            if has_figure
            else words.no_figure(delta)
        ),
        units=units,
        units_source=source,
        dp_setting=words.dp_setting(weakest.statement),
        data_accesses=(
            *(
                method.data_accesses
                if ledger is None and method.data_accesses
                else words.data_accesses(weakest.statement, ledger, one, *method.data_accesses[:1])
            ),
            *went_in.covered,
            *(
                f'Not covered: {row[0].lower()}{row[1:]}'
                for part in (*together, went_in.facts)
                for row in part.not_covered
            ),
        ),
        mechanism_output=method.mechanism_output
        + (
            f'; and the noisy counts, {groups.use_of_counts(reads_batches=method.reads_batches)}.'
            if (noisy_counts_rho or clusters) and method.event is None
            else '.'
        )
        + (
            ''
            if cells is None
            else ' And the noisy counts per cell, from which the values that examples are given follow.'
        ),
        adjacency=f'Two datasets are neighbours if one is the other with one {one} added or removed.',
        accounting=method.accounting if words_of_statement is None else words_of_statement.accounting,
        stages=stages,
        sensitivities=tuple(row for part in (*together, *of_groups) for row in part.sensitivities),
        assumptions_enforced=tuple(
            row
            for part in (*sampled, method.contexts, *of_groups, *together, went_in.facts, during)
            for row in part.assumptions_enforced
        ),
        assumptions_of_curator=tuple(
            row
            for part in (
                words.BEFORE_THE_RUN,
                *of_groups,
                *declared,
                method.contexts,
                *together,
                went_in.facts,
                during,
                ledger_facts(ledger),
            )
            for row in part.assumptions_of_curator
        ),
        limits=words.limits(weakest, (method.contexts, *of_groups, *together), one, during),
        plan=plan,
        clusters=clusters,
        cells=cells,
        ledger=ledger,
        releases=method.releases,
        reads_records=method.reads_records,
        commitment=commitment,
        corpus=corpus,
        mechanism=method.settings,
        settings=dict(settings),
        versions=dict(versions),
        reproduction=(
            tuning.reproduction(tuning.params_of(method.settings), delta)
            if method.event is not None
            else words.reproduction(in_python, delta)
            if rho_total is None
            else earlier_releases.reproduction_alone(
                in_python, earlier_releases.costs_of(method.settings, stages), delta
            )
        )
        + went_in.reproduction,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _WentIn:
    """What a report says of the releases that went into the run.

    Attributes:
        epsilon: Of the run and of them; None where the run has none.
        facts: What holds of them, and whose word it is.
        together: For the statement of the guarantee; None where nothing adds up with the run.
        covered: Rows on what is covered.
        reproduction: Lines of Python for `epsilon`; empty where nothing adds up.
    """

    epsilon: float | None
    facts: Facts = Facts()
    together: words.Together | None = None
    covered: tuple[str, ...] = ()
    reproduction: str = ''

    @classmethod
    def of(
        cls,
        method: MethodFacts,
        stages: Sequence[RhoStage],
        alone: float | None,
        delta: float,
        ledger: LedgerEntry | None,
    ) -> '_WentIn':
        """From the facts of the method, the run's stages and its epsilon alone."""
        one, unit = method.unit_nouns[0], prediction.unit_of(method.settings)
        trained = method.releases[0] if not method.reads_records else None
        releases = method.releases if trained is None else method.releases[1:]
        run = 'this run' if trained is None else f'the run {trained.run_id!r}'
        charged = ledger if trained is None else trained
        dataset = None if charged is None else charged.dataset
        found = earlier_releases.facts(releases, unit, dataset, run=run)
        if trained is not None and not trained.inputs_known:
            found = earlier_releases.with_unknown(found, trained)
        counted = earlier_releases.counted(releases, unit)
        if alone is None:
            on_top = (f'Not covered: {earlier_releases.listed(releases)}, which went in.',) * bool(releases)
            return cls(epsilon=None, facts=found, covered=on_top)
        if not counted:
            return cls(epsilon=alone, facts=found)
        own = earlier_releases.costs_of(method.settings, stages)
        epsilon = earlier_releases.epsilon_with(alone, own, counted, delta)
        said = earlier_releases.covered_together(counted, epsilon, delta, ledger, one, run=run)
        return cls(
            epsilon=epsilon,
            facts=found,
            together=words.Together(epsilon=epsilon, names=earlier_releases.names(counted), run=run),
            covered=(f'Covered with what went in: {said}',),
            reproduction='\n' + earlier_releases.reproduction(own, counted, delta, run=run),
        )


def _check_settings(settings: Mapping[str, Setting], mechanism: Mapping[str, Setting]) -> None:
    restricted = {
        field.name
        for cls in (
            RestrictedReport,
            GroupContexts,
            ExPostLosses,
            BatchEpsilon,
            ContextSpending,
            SpendingOfBatch,
        )
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
