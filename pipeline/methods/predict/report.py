"""The report of a run of private prediction: its facts, settings, losses, and the pages beside the corpus."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from models.assembly import GeneratorSettings
from models.batch_plan import BatchPlan
from models.clustering.centers import Centers
from models.finetuning.adapter import AdapterCard
from models.privacy import earlier_release, report
from models.privacy.ex_post import BatchLoss
from models.privacy.individual import BatchSpending
from models.privacy.report import GivenReference, Predicted, PrivacyReport
from models.records import BatchId
from pipeline.methods import report_settings
from pipeline.methods.predict.run import PredictionRun
from pipeline.methods.predict.settings import EMBEDDERS
from pipeline.pages import dataset_card, report_page
from transforms.run_files import CARD, REPORT_PAGE
from transforms.write import Files

# Settings that the report shows, in its order.
SHOWN = (
    *report_settings.OF_EVERY_RUN,
    'batch_size', 'clip_bound', 'temperature', 'threshold', 'threshold_noise_scale', 'max_private_tokens',
    'accounting', 'context_budget', 'omega', 'shift_bound', 'batches_per_label', 'count_rho', 'aggregate',
    'clusters', 'clustering_rho', 'condition_rho', 'embedder', 'reference_label_field', 'reference_size',
    'reference_rounds', 'prompt', 'label_name', 'text_name', 'corpus_description', 'regex', 'fixed',
    'condition_on', 'close_truncated', 'public_temperature', 'public_top_k', 'max_prompt_tokens',
    'max_example_tokens', 'min_example_tokens', 'max_batch_tokens', 'model', 'dtype', 'micro_batch_size',
    'shards',
)  # fmt: skip


def facts(
    run: PredictionRun, prepared: GeneratorSettings, centers: Centers | None, plan: BatchPlan
) -> Predicted:
    """The method's facts for a report."""
    method, reference = run.method, prepared.reference
    of_reference: GivenReference | Literal['first round'] | None = None
    if reference is not None:
        of_reference = GivenReference(
            size=method.reference_size, digest=reference.digest, texts=reference.origin.given
        )
    elif method.decoding_rounds == 2:
        of_reference = 'first round'
    card = None if prepared.adapter is None else prepared.adapter.card
    return Predicted(
        mechanism=run.params,
        releases=earlier_release.each_once(
            () if card is None else card.handed_on(), () if reference is None else reference.origin.releases
        ),
        counts_rho=plan.contexts_rho,
        clusters=None if centers is None else _clusters(centers, plan),
        cells=_cells(plan),
        reference=of_reference,
        adapter=None if card is None else card.factors,
        has_structure=method.structure is not None,
    )


def settings(run: PredictionRun) -> dict[str, Any]:
    """Settings that the report shows beside those of the mechanism."""
    method = run.method
    shown = report_settings.shown(run.config, SHOWN, run.params)
    if method.strategy.takes_reference:
        shown['reference'] = (
            'given by the curator'
            if method.reference is not None
            else 'the first round'
            if method.decoding_rounds == 2
            else 'the public prompt'
        )
        shown['reference_rounds'] = method.decoding_rounds
    else:
        for name in ('reference_label_field', 'reference_size', 'reference_rounds'):
            del shown[name]
    if not method.condition_on:
        del shown['condition_on'], shown['condition_rho']
    shown = report_settings.with_texts(shown, method, run.input)
    if run.params.is_individual and 'omega' in shown:
        shown['omega'] = run.params.omega
    if (card := run.adapter) is not None:
        shown |= _adapter_settings(card)
        shown['model_origin'] += f', with the released adapter of the run {card.run_id!r}'
    if method.clusters is None:
        del shown['embedder'], shown['clustering_rho']
    else:
        known = method.embedder in EMBEDDERS
        shown['embedder'] = method.embedder if known else 'own MiniLM weights'
        del shown['count_rho']
    return shown


def _adapter_settings(card: AdapterCard) -> dict[str, Any]:
    """The adapter that private prediction decodes with, for programs; sentences say what it takes."""
    return {
        'adapter_run_id': card.run_id,
        'adapter_dataset': card.dataset,
        'adapter_run_number': card.run_number,
        'adapter_sha256': card.factors,
        'adapter_epsilon': card.epsilon,
        'adapter_delta': card.delta,
        'adapter_unit': card.unit,
    }


def of_batches(
    run: PredictionRun, facts: Sequence[report.BatchFacts]
) -> Mapping[str, report.ExPostLosses | report.ContextSpending]:
    """The curator's part of the report on its batches' losses or spending; nothing where it has neither."""
    params = run.params
    if params.is_ex_post:
        losses = report.ex_post_losses([each for each in facts if isinstance(each, BatchLoss)], params)
        return {'losses': losses}
    if params.is_individual:
        spending = report.context_spending(
            [each for each in facts if isinstance(each, BatchSpending)], params
        )
        return {'spending': spending}
    return {}


def contexts_per_batch(sizes: Mapping[BatchId, int]) -> dict[str, int]:
    """Contexts of each batch, for the curator."""
    return {str(batch_id): size for batch_id, size in sizes.items()}


def _cells(plan: BatchPlan) -> report.Cells | None:
    """The report's part on the values that examples are given; None where no cells are counted."""
    conditions = plan.conditions
    if conditions is None:
        return None
    return report.Cells(
        fields=conditions.fields,
        values=conditions.cells,
        counts_rho=conditions.rho,
        cell_counts=tuple(
            report.CellCounts(label=label, counts=counts)
            for label, counts in zip(plan.labels, conditions.noisy_counts, strict=True)
        ),
    )


def _clusters(centers: Centers, plan: BatchPlan) -> report.Clusters:
    """The report's part on the clusters: the centres' facts and the first histogram."""
    assert plan.clustering is not None  # `build`
    cells = zip(plan.labels, plan.clustering.kept, plan.clustering.noisy_counts, strict=True)
    return report.Clusters(
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


def files(run: PredictionRun, privacy_report: PrivacyReport) -> Files:
    """The report as a page, and the card of the corpus."""
    # Language of the corpus: that of other models was declared by nobody.
    languages = () if run.method.model != 'bundled' else ('en',)
    card = dataset_card.render_card(privacy_report, languages=languages, columns=run.columns.meanings)
    return {REPORT_PAGE: report_page.render_html(privacy_report).encode(), CARD: card.encode()}
