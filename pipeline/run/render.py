"""A run's reports: the files beside the corpus, from public values alone, and the curator's own."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from models.batching import BatchPlan
from models.clustering.centers import Centers
from models.decoders import family
from models.privacy import report
from models.prompts import PRESETS
from models.records import BatchId
from pipeline import fine_tuning
from pipeline.config import EMBEDDERS, JobConfig
from pipeline.methods import METHODS
from pipeline.pages import restricted_page
from pipeline.run.identity import MAY_CHANGE
from transforms.run_files import REPORT, RESTRICTED_PAGE, RESTRICTED_REPORT
from transforms.write import Files

if TYPE_CHECKING:
    from models.finetuning.adapter import AdapterCard


def render_released(
    config: JobConfig,
    prepared: Any,
    versions: Mapping[str, str],
    centers: Centers | None,
    charge: report.LedgerEntry | None,
    centers_run: str | None,
    totals: Any,
    plan: BatchPlan,
) -> Files:
    """The files beside the corpus: reports, card and config, from public values alone."""
    method = METHODS[config.method]
    facts = method.facts(config, prepared)
    noisy = plan.noisy_counts or (None,) * len(plan.group_names)
    words = config.declared_words
    groups = zip(plan.group_names, plan.batches_per_group, noisy, strict=True)
    privacy_report = report.build_privacy_report(
        facts,
        run_id=config.resolved_run_id,
        delta=config.resolved_delta,
        plan=[
            report.GroupPlan(
                label=label, words=words.get(label), cluster=cluster, batches=batches, noisy_count=count
            )
            for (label, cluster), batches, count in groups
        ],
        corpus=totals,
        settings=public_settings(config, facts.settings),
        versions=versions,
        noisy_counts_rho=plan.contexts_rho,
        clusters=None if centers is None else released_clusters(centers, plan, centers_run),
        cells=released_cells(plan),
        declared_units=config.records if config.reads_records else round(prepared.params.units),
        sample_rate=config.sample_rate,
        ledger=charge,
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
    of_batches = METHODS[config.method].of_batches(config, facts)
    restricted = report.RestrictedReport(
        run_id=config.resolved_run_id,
        records_read=records + sum(reasons.values()),
        rejected_by_reason=reasons,
        # Of fine-tuning a batch is of texts: its units have labels, and no batch.
        contexts_per_batch={str(batch_id): size for batch_id, size in sizes.items()} if config.votes else {},
        true_counts_by_group=tuple(
            report.GroupContexts(
                restricted_label=label,
                restricted_words=config.declared_words.get(label),
                restricted_cluster=cluster,
                true_count=by_group[group],
            )
            for group, (label, cluster) in enumerate(plan.group_names)
        ),
        **counted,
        records_left_out=left_out,
        losses=of_batches if isinstance(of_batches, report.ExPostLosses) else None,
        spending=of_batches if isinstance(of_batches, report.ContextSpending) else None,
    )
    return {
        RESTRICTED_REPORT: restricted.to_json().encode(),
        RESTRICTED_PAGE: restricted_page.render_restricted_page(restricted).encode(),
    }


def public_settings(config: JobConfig, of_mechanism: Collection[str]) -> dict[str, Any]:
    """The config's settings for the report: the mechanism's and the curator's paths are left out."""
    # Paths tell the layout of the curator's machine, and nothing about the guarantee.
    hidden = {
        'input',
        'output',
        'work_dir',
        'checkpoint',
        'tokenizer',
        'schema',
        'json_schema',
        'grammar',
        'run_id',
        'delta',
        'centers',
        'reference',
        'adapter',
        'dataset',  # the ledger's entry says it
        'method',  # the mechanism's settings tell which it is
        *MAY_CHANGE,
        *of_mechanism,
    }
    settings = {}
    for field in dataclasses.fields(config):
        if field.name not in hidden:
            value = getattr(config, field.name)
            settings[field.name] = ', '.join(value) if isinstance(value, tuple) else value
    if not config.votes:
        for name in fine_tuning.PREDICTION_SETTINGS:
            settings.pop(name, None)
        if not config.writes_texts:
            for name in (*fine_tuning.SAMPLING_SETTINGS, 'examples_per_label'):
                settings.pop(name, None)
        if config.adapter is not None:
            # Of these the adapter's card says what it was trained with.
            for name in fine_tuning.TRAINING_SETTINGS:
                settings.pop(name, None)
        else:
            del settings['full']  # it has no rank
            settings['lora_rank'] = config.resolved_lora_rank
            settings['learning_rate'] = config.resolved_learning_rate
        if not config.label_mix:
            settings.pop('label_mix', None)
    elif config.strategy.takes_reference:
        settings['reference'] = (
            'given by the curator'
            if config.reference is not None
            else 'the first round'
            if config.resolved_reference_rounds == 2
            else 'the public prompt'
        )
        settings['reference_rounds'] = config.resolved_reference_rounds
    else:
        for name in ('reference_label_field', 'reference_size', 'reference_rounds'):
            del settings[name]
    if config.votes:
        for name in fine_tuning.SETTINGS:
            settings.pop(name, None)
        if config.condition_on:
            settings['condition_rho'] = config.resolved_condition_rho
        else:
            del settings['condition_on'], settings['condition_rho']
    for name in ('attributes', 'fixed'):
        if not getattr(config, name):
            settings.pop(name, None)
    if config.structure is None:
        for name in ('regex', 'close_truncated'):
            settings.pop(name, None)
    elif config.structure.regex is None:
        del settings['regex']
        for name in ('json_schema', 'grammar'):
            if (text := getattr(config.structure, name)) is not None:
                settings[name] = text
    known_prompt = config.resolved_prompt in PRESETS
    settings['prompt'] = config.resolved_prompt if known_prompt else 'own template'
    if not config.reads_records:
        settings['prompt'] = "the adapter's"
    origin = family.family_of(config.model).origin(config.model)
    # A file that the curator brings may be of other weights in the same dimensions.
    made_from = '' if config.checkpoint is None else ', or weights made from it'
    settings['model_origin'] = f'{origin.name} by {origin.maker}{made_from}, under the {origin.terms}'
    if config.votes and config.adapter is not None:
        card = fine_tuning.read_card(config.adapter)
        settings |= _adapter_settings(card)
        settings['model_origin'] += f', with the released adapter of the run {card.run_id!r}'
    if config.clusters is not None:
        known = config.resolved_embedder in EMBEDDERS
        settings['embedder'] = config.resolved_embedder if known else 'own MiniLM weights'
        settings['clustering_rho'] = config.resolved_clustering_rho
        del settings['count_rho']
    return settings


def _adapter_settings(card: 'AdapterCard') -> dict[str, Any]:
    """Which adapter a run of private prediction decodes with, for programs; sentences say what it takes."""
    return {
        'adapter_run_id': card.run_id,
        'adapter_dataset': card.dataset,
        'adapter_run_number': card.run_number,
        'adapter_sha256': card.factors,
        'adapter_epsilon': card.epsilon,
        'adapter_delta': card.delta,
        'adapter_unit': card.unit,
    }


def released_cells(plan: BatchPlan) -> report.Cells | None:
    """What the report says of the values that examples are given; None where no cells are counted."""
    found = plan.conditions
    if found is None:
        return None
    return report.Cells(
        fields=found.fields,
        values=found.cells,
        counts_rho=found.rho,
        cell_counts=tuple(
            report.CellCounts(label=label, counts=counts)
            for label, counts in zip(plan.labels, found.noisy_counts, strict=True)
        ),
    )


def released_clusters(centers: Centers, plan: BatchPlan, centers_run: str | None = None) -> report.Clusters:
    """What the report says of the clusters: the centres' facts and the first histogram.

    Args:
        centers: The centres.
        plan: Of batches, with its clustering.
        centers_run: The ledger's charge that paid for the centres before; None without one.
    """
    assert plan.clustering is not None  # `build`
    cells = zip(plan.labels, plan.clustering.kept, plan.clustering.noisy_counts, strict=True)
    facts: dict[str, Any] = {
        'source': centers.source,
        'centers_rho': centers.rho,
        'counts_rho': plan.clustering.rho,
        'embedder': centers.embedder,
        'embedder_fingerprint': centers.embedder_fingerprint,
        'centers_fingerprint': centers.fingerprint,
        'corpus_fingerprint': centers.corpus_fingerprint,
        'corpus_texts': centers.corpus_texts,
        'center_counts': tuple(
            report.CenterCounts(label=label, kept=kept, counts=counts) for label, kept, counts in cells
        ),
    }
    if centers_run is None:
        return report.Clusters(**facts)
    return report.ChargedClusters(**facts, centers_run=centers_run)
