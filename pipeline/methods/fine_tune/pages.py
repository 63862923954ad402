"""The files of a release beside its data: what people read, and the adapter where the run trained one."""

from typing import cast

from apache_beam.io.filesystems import FileSystems

from models.finetuning import adapter as adapters
from models.finetuning.adapter import AdapterCard, Prompt
from models.finetuning.settings import TuningSettings
from models.privacy.accounting import subsampled
from models.privacy.report import PrivacyReport
from pipeline.methods.fine_tune.released import PROMPT_SETTINGS
from pipeline.methods.fine_tune.run import TuningRun
from pipeline.pages import dataset_card, report_page
from pipeline.run.digests import checkpoint_digest
from transforms.durable import read_file
from transforms.run_files import (
    ADAPTER_CARD,
    ADAPTER_FOLDER,
    ADAPTER_TENSORS,
    CARD,
    REPORT_PAGE,
    SAMPLED_ADAPTER,
)
from transforms.write import Files


def pages(run: TuningRun, prepared: TuningSettings, privacy_report: PrivacyReport) -> Files:
    """The files beside the corpus, by name."""
    languages = () if run.method.model != 'bundled' else ('en',)
    card_page = (
        dataset_card.render_card(privacy_report, languages=languages, columns=run.columns.meanings)
        if run.method.writes_texts
        else dataset_card.render_adapter_card(privacy_report)
    )
    files = {
        REPORT_PAGE: report_page.render_html(privacy_report).encode(),
        CARD: card_page.encode(),
    }
    if run.card is None:
        data = read_file(FileSystems.join(run.work_dir, ADAPTER_TENSORS))
        noisy = [group.noisy_count for group in privacy_report.plan if group.noisy_count is not None]
        text = card(run, prepared, adapters.digest(data), privacy_report, tuple(noisy) or None).to_json()
        files[f'{ADAPTER_FOLDER}/{ADAPTER_TENSORS}'] = data
        files[f'{ADAPTER_FOLDER}/{ADAPTER_CARD}'] = text.encode()
    else:
        # Whoever goes on from these texts finds there which charge they are of.
        files[SAMPLED_ADAPTER] = run.card.to_json().encode()
    return files


def card(
    run: TuningRun,
    prepared: TuningSettings,
    factors: str,
    privacy_report: PrivacyReport,
    label_counts: tuple[int, ...] | None = None,
) -> AdapterCard:
    """The card of the adapter that a run trained.

    Args:
        run: The run.
        prepared: Its settings.
        factors: SHA-256 of the file of the factors.
        privacy_report: Its releasable report.
        label_counts: Released noisy counts of the labels, where the run counted them.
    """
    own, entry = run.method, privacy_report.ledger
    assert privacy_report.epsilon is not None  # every report of fine-tuning has one
    prompt = {name: getattr(own, name) for name in PROMPT_SETTINGS} | {'schema': prepared.schema}
    return AdapterCard(
        run_id=run.run_id,
        dataset=None if entry is None else entry.dataset,
        run_number=None if entry is None else entry.run_number,
        model=own.model,
        weights=checkpoint_digest(own.checkpoint_path),
        lora_rank=prepared.lora_rank,
        factors=factors,
        epsilon=privacy_report.epsilon,
        epsilon_of_run=subsampled.epsilon_of_event(prepared.params.event, run.delta),
        delta=run.delta,
        mechanism=prepared.params,
        template=prepared.template,
        prompt=cast('Prompt', prompt),
        labels=run.input.labels,
        attributes=run.input.attributes,
        label_counts=label_counts,
        warm_texts=len(prepared.warm_start),
        warm_vouched=prepared.warm_origin.vouched,
        releases=privacy_report.releases,
        commitment=privacy_report.commitment,
    )
