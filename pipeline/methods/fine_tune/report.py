"""The report of a fine-tuning run: its facts and settings, and the files beside its data."""

from typing import Any, Literal, cast

from apache_beam.io.filesystems import FileSystems

from models.finetuning import adapter as adapters
from models.finetuning.adapter import AdapterCard, Prompt
from models.finetuning.settings import TuningSettings
from models.privacy.accounting import subsampled
from models.privacy.report import PrivacyReport, Tuned
from pipeline.methods import report_settings
from pipeline.methods.fine_tune import released
from pipeline.methods.fine_tune.released import PROMPT_SETTINGS
from pipeline.methods.fine_tune.run import TuningRun
from pipeline.methods.fine_tune.settings import SAMPLING_SETTINGS
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

# Settings that the report shows, in its order.
SHOWN = (
    *report_settings.OF_EVERY_RUN,
    'temperature', 'prompt', 'label_name', 'text_name', 'corpus_description', 'regex', 'fixed',
    'close_truncated', 'max_prompt_tokens', 'max_example_tokens', 'min_example_tokens', 'tuning_steps',
    'expected_batch_size', 'clip_norm', 'noise_multiplier', 'lora_rank', 'full', 'remat',
    'learning_rate', 'warm_steps',
    'warm_learning_rate', 'mismatch_weight', 'wrong_prompts', 'mismatch_every', 'examples_per_label',
    'examples', 'label_mix', 'label_mix_rho', 'top_p', 'top_k', 'model', 'dtype', 'micro_batch_size',
    'shards',
)  # fmt: skip


def facts(run: TuningRun, prepared: TuningSettings) -> Tuned:
    """The method's facts for a report."""
    method, card = run.method, run.card
    label_mix: Literal['given', 'counted'] | None = None
    if method.label_mix:
        label_mix = 'given'
    elif run.params.label_mix_rho is not None and method.writes_texts:
        label_mix = 'counted'
    is_warm = bool(prepared.warm_start) if card is None else card.warm_texts > 0
    origin = prepared.warm_origin if card is None else card.warm_start
    return Tuned(
        mechanism=run.params,
        releases=origin.releases if card is None else card.handed_on(),
        trains=card is None,
        writes_texts=method.writes_texts,
        label_mix=label_mix,
        warm_start=origin.given if is_warm else None,
        has_structure=method.structure is not None,
    )


def settings(run: TuningRun) -> dict[str, Any]:
    """Settings that the report shows beside those of the mechanism."""
    method = run.method
    shown = report_settings.shown(run.config, SHOWN, run.params)
    left_out: list[str] = []
    if not method.writes_texts:
        left_out += [*SAMPLING_SETTINGS, 'examples_per_label']
    left_out.append('examples' if method.examples is None else 'examples_per_label')
    if method.adapter is not None:
        # Settings of the training are on the adapter's card.
        left_out += released.TRAINING_SETTINGS
    else:
        left_out.append('full')  # it has no rank
        shown['lora_rank'] = method.rank
        shown['learning_rate'] = method.rate
    if not method.label_mix:
        left_out.append('label_mix')
    if method.warm_start is None:
        left_out += ['warm_steps', 'warm_learning_rate']
    elif method.adapter is None:
        shown['warm_learning_rate'] = method.free_rate
    for name in left_out:
        shown.pop(name, None)
    prompt = None if method.reads_records else "the adapter's"
    return report_settings.with_texts(shown, method, run.input, prompt)


def files(run: TuningRun, prepared: TuningSettings, privacy_report: PrivacyReport) -> Files:
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
        text = card(run, prepared, adapters.digest(data), privacy_report).to_json()
        files[f'{ADAPTER_FOLDER}/{ADAPTER_TENSORS}'] = data
        files[f'{ADAPTER_FOLDER}/{ADAPTER_CARD}'] = text.encode()
    else:
        # The card says which charge these texts are of, to a run that goes on from them.
        files[SAMPLED_ADAPTER] = run.card.to_json().encode()
    return files


def card(
    run: TuningRun, prepared: TuningSettings, factors: str, privacy_report: PrivacyReport
) -> AdapterCard:
    """The card of the adapter that a run trained, whose factors' file has this SHA-256."""
    method, entry = run.method, privacy_report.ledger
    noisy = tuple(group.noisy_count for group in privacy_report.plan if group.noisy_count is not None)
    assert privacy_report.epsilon is not None  # every report of fine-tuning has one
    prompt = {name: getattr(method, name) for name in PROMPT_SETTINGS} | {'schema': prepared.schema}
    return AdapterCard(
        run_id=run.run_id,
        dataset=None if entry is None else entry.dataset,
        run_number=None if entry is None else entry.run_number,
        model=method.model,
        weights=checkpoint_digest(method.checkpoint_path),
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
        label_counts=noisy or None,
        warm_texts=len(prepared.warm_start),
        warm_vouched=prepared.warm_origin.vouched,
        releases=privacy_report.releases,
        commitment=privacy_report.commitment,
    )
