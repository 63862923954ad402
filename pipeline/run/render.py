"""A run's reports: the files beside the corpus, from public values alone, and the curator's own."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from models.batch_plan import BatchPlan
from models.privacy import report
from models.records import BatchId
from pipeline import methods
from pipeline.pages import restricted_page
from pipeline.settings.job_config import JobConfig
from transforms.durable import read_key
from transforms.run_files import REPORT, RESTRICTED_PAGE, RESTRICTED_REPORT
from transforms.write import Files


def render_released(
    config: JobConfig,
    prepared: Any,
    versions: Mapping[str, str],
    charge: report.LedgerEntry | None,
    totals: Any,
    plan: BatchPlan,
) -> Files:
    """The files beside the corpus: reports, card and config, from public values alone."""
    method = methods.of(config)
    facts = method.facts(config, prepared, plan)
    of_mechanism = tuple(field.name for field in dataclasses.fields(facts.mechanism))
    noisy = plan.noisy_counts or (None,) * len(plan.group_names)
    words = config.input.declared_words
    groups = zip(plan.group_names, plan.batches_per_group, noisy, strict=True)
    privacy_report = report.build_privacy_report(
        facts,
        run_id=config.output.resolved_run_id,
        delta=config.resolved_delta,
        plan=[
            report.GroupPlan(
                label=label, words=words.get(label), cluster=cluster, batches=batches, noisy_count=count
            )
            for (label, cluster), batches, count in groups
        ],
        corpus=totals,
        settings=method.report_settings(config, of_mechanism),
        versions=versions,
        declared_units=method.declared_units(config, prepared),
        sample_rate=config.input.sample_rate,
        ledger=charge,
        # Anybody may have it: it tells this release from all others, and nothing of the key.
        commitment=read_key(config.output.resolved_work_dir).commitment(config.output.resolved_run_id),
    )
    return {
        **method.pages(config, prepared, privacy_report),
        # Last: where it is, the run is finished.
        REPORT: privacy_report.to_json().encode(),
    }


def render_restricted(
    config: JobConfig,
    reasons: dict[str, int],
    sizes: dict[BatchId, int],
    records: int,
    facts: list[report.BatchFacts],
    counted: dict[str, int],
    left_out: int | None,
    plan: BatchPlan,
) -> Files:
    """The curator's report, as data and as a page."""
    by_group = dict.fromkeys(range(len(plan.group_names)), 0)
    for batch_id, size in sizes.items():
        by_group[batch_id.group] += size
    parts: dict[str, Any] = {
        'contexts_per_batch': {},
        **counted,
        **methods.of(config).restricted_parts(config, sizes, facts),
    }
    restricted = report.RestrictedReport(
        run_id=config.output.resolved_run_id,
        records_read=records + sum(reasons.values()),
        rejected_by_reason=reasons,
        true_counts_by_group=tuple(
            report.GroupContexts(
                restricted_label=label,
                restricted_words=config.input.declared_words.get(label),
                restricted_cluster=cluster,
                true_count=by_group[group],
            )
            for group, (label, cluster) in enumerate(plan.group_names)
        ),
        records_left_out=left_out,
        **parts,
    )
    return {
        RESTRICTED_REPORT: restricted.to_json().encode(),
        RESTRICTED_PAGE: restricted_page.render_restricted_page(restricted).encode(),
    }
