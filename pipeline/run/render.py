"""A run's reports: the files beside the corpus, from public values alone, and the curator's own."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from models.assembly import GeneratorSettings
from models.batching import BatchPlan
from models.clustering.centers import Centers
from models.privacy import report
from models.privacy.ex_post import BatchLoss
from models.privacy.params import MechanismParams
from models.prompts import PRESETS
from models.records import BatchId
from pipeline.config import EMBEDDERS, JobConfig
from pipeline.pages import dataset_card, report_page, restricted_page
from pipeline.run.identity import MAY_CHANGE
from transforms.run_files import CARD, REPORT, REPORT_PAGE, RESTRICTED_PAGE, RESTRICTED_REPORT
from transforms.write import Files


def render_released(
    config: JobConfig,
    settings: GeneratorSettings,
    versions: Mapping[str, str],
    centers: Centers | None,
    charge: report.LedgerEntry | None,
    totals: report.CorpusTotals,
    plan: BatchPlan,
) -> Files:
    """The files beside the corpus: reports, card and config, from public values alone."""
    noisy = plan.noisy_counts or (None,) * len(plan.group_names)
    groups = zip(plan.group_names, plan.batches_per_group, noisy, strict=True)
    privacy_report = report.build_privacy_report(
        settings.params,
        run_id=settings.run_id,
        delta=config.resolved_delta,
        plan=[
            report.GroupPlan(label=label, cluster=cluster, batches=batches, noisy_count=count)
            for (label, cluster), batches, count in groups
        ],
        corpus=totals,
        settings=public_settings(config, [f.name for f in dataclasses.fields(settings.params)]),
        versions=versions,
        noisy_counts_rho=plan.contexts_rho,
        clusters=None if centers is None else released_clusters(centers, plan),
        declared_units=config.records,
        ledger=charge,
    )
    languages = () if config.model != 'bundled' else ('en',)
    return {
        REPORT_PAGE: report_page.render_html(privacy_report).encode(),
        CARD: dataset_card.render_card(privacy_report, languages=languages).encode(),
        # Last: where it is, the run is finished.
        REPORT: privacy_report.to_json().encode(),
    }


def render_restricted(
    config: JobConfig,
    params: MechanismParams,
    reasons: dict[str, int],
    sizes: dict[BatchId, int],
    records: int,
    losses: list[BatchLoss],
    plan: BatchPlan,
) -> Files:
    """The curator's report, as data and as a page."""
    by_group = dict.fromkeys(range(len(plan.group_names)), 0)
    for batch_id, size in sizes.items():
        by_group[batch_id.group] += size
    restricted = report.RestrictedReport(
        run_id=config.resolved_run_id,
        records_read=records + sum(reasons.values()),
        rejected_by_reason=reasons,
        contexts_per_batch={str(batch_id): size for batch_id, size in sizes.items()},
        true_counts_by_group=tuple(
            report.GroupContexts(
                restricted_label=label, restricted_cluster=cluster, true_count=by_group[group]
            )
            for group, (label, cluster) in enumerate(plan.group_names)
        ),
        losses=report.ex_post_losses(losses, params) if params.is_ex_post else None,
    )
    return {
        RESTRICTED_REPORT: restricted.to_json().encode(),
        RESTRICTED_PAGE: restricted_page.render_restricted_page(restricted).encode(),
    }


def public_settings(config: JobConfig, params_fields: Sequence[str]) -> dict[str, Any]:
    """The config's settings for the report: the mechanism's and the curator's paths are left out."""
    # Paths tell the layout of the curator's machine, and nothing about the guarantee.
    hidden = {
        'input',
        'output',
        'work_dir',
        'checkpoint',
        'tokenizer',
        'schema',
        'run_id',
        'delta',
        'centers',
        'dataset',  # the ledger's entry says it
        *MAY_CHANGE,
        *params_fields,
    }
    settings = {}
    for field in dataclasses.fields(config):
        if field.name not in hidden:
            value = getattr(config, field.name)
            settings[field.name] = ', '.join(value) if isinstance(value, tuple) else value
    if config.prompt not in PRESETS:
        settings['prompt'] = 'own template'
    if config.clusters is not None:
        known = config.resolved_embedder in EMBEDDERS
        settings['embedder'] = config.resolved_embedder if known else 'own MiniLM weights'
        settings['clustering_rho'] = config.resolved_clustering_rho
        del settings['count_rho']
    return settings


def released_clusters(centers: Centers, plan: BatchPlan) -> report.Clusters:
    """What the report says of the clusters: the centres' facts and the first histogram."""
    assert plan.clustering is not None  # `build`
    cells = zip(plan.labels, plan.clustering.kept, plan.clustering.noisy_counts, strict=True)
    return report.Clusters(
        source=centers.source,
        centers_rho=centers.rho,
        counts_rho=plan.clustering.rho,
        embedder=centers.embedder,
        embedder_fingerprint=centers.embedder_fingerprint,
        centers_fingerprint=centers.fingerprint,
        corpus_fingerprint=centers.corpus_fingerprint,
        corpus_texts=centers.corpus_texts,
        center_counts=tuple(
            report.CenterCounts(label=label, kept=kept, counts=counts) for label, kept, counts in cells
        ),
    )
