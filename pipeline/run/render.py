"""A run's reports: the files beside the corpus, from public values alone, and the curator's own."""

from collections.abc import Mapping
from typing import Any

from models.batch_plan import BatchPlan
from models.privacy import report
from models.records import BatchId
from pipeline import methods
from pipeline.methods.solved import Run
from pipeline.pages import restricted_page
from transforms.durable import read_key
from transforms.run_files import REPORT, RESTRICTED_PAGE, RESTRICTED_REPORT
from transforms.worker_times import read_worker_times
from transforms.write import Files


def render_released(
    run: Run,
    prepared: Any,
    versions: Mapping[str, str],
    charge: report.LedgerEntry | None,
    totals: Any,
    plan: BatchPlan,
) -> Files:
    """The files beside the corpus: reports, card and config, from public values alone."""
    method = methods.of(run)
    told = method.reported(run, prepared, plan)
    noisy = plan.noisy_counts or (None,) * len(plan.group_names)
    words = run.input.declared_words
    groups = zip(plan.group_names, plan.batches_per_group, noisy, strict=True)
    privacy_report = report.build_privacy_report(
        told.facts,
        run_id=run.run_id,
        delta=run.delta,
        plan=[
            report.GroupPlan(
                label=label, words=words.get(label), cluster=cluster, batches=batches, noisy_count=count
            )
            for (label, cluster), batches, count in groups
        ],
        corpus=totals,
        settings=told.settings,
        versions=versions,
        declared_units=told.units,
        sample_rate=run.input.sample_rate,
        ledger=charge,
        # Anybody may have it: it tells this release from all others, and nothing of the key.
        commitment=read_key(run.work_dir).commitment(run.run_id),
    )
    return {
        **method.files(run, prepared, privacy_report),
        # Last: where it is, the run is finished.
        REPORT: privacy_report.to_json().encode(),
    }


def render_restricted(
    run: Run,
    reasons: dict[str, int],
    sizes: dict[BatchId, int],
    records: int,
    facts: list[report.BatchFacts],
    counted: dict[str, int],
    left_out: int | None,
    plan: BatchPlan,
    totals: Any,
) -> Files:
    """The curator's report, as data and as a page."""
    by_group = dict.fromkeys(range(len(plan.group_names)), 0)
    for batch_id, size in sizes.items():
        by_group[batch_id.group] += size
    parts: dict[str, Any] = {
        'contexts_per_batch': {},
        **counted,
        **methods.of(run).restricted_parts(run, sizes, facts),
    }
    restricted = report.RestrictedReport(
        run_id=run.run_id,
        records_read=records + sum(reasons.values()),
        rejected_by_reason=reasons,
        true_counts_by_group=tuple(
            report.GroupContexts(
                restricted_label=label,
                restricted_words=run.input.declared_words.get(label),
                restricted_cluster=cluster,
                true_count=by_group[group],
            )
            for group, (label, cluster) in enumerate(plan.group_names)
        ),
        records_left_out=left_out,
        workers=tuple(read_worker_times(run.work_dir)),
        texts_written=totals.examples,
        device_hour_price=run.runner.device_hour_price,
        **parts,
    )
    return {
        RESTRICTED_REPORT: restricted.to_json().encode(),
        RESTRICTED_PAGE: restricted_page.render_restricted_page(restricted).encode(),
    }
