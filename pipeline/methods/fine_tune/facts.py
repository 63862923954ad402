"""What a report says of a fine-tuning run: its facts and its settings."""

from typing import Any, Literal

from models.finetuning.settings import TuningSettings
from models.privacy.report import Tuned
from pipeline.methods import report_settings
from pipeline.methods.fine_tune import released
from pipeline.methods.fine_tune.run import TuningRun
from pipeline.methods.fine_tune.settings import SAMPLING_SETTINGS

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
# Paths of the curator's machine, and what the settings that are shown follow from.
HIDDEN = report_settings.HIDDEN | {'adapter', 'warm_start', 'typical_words'}


def facts(run: TuningRun, prepared: TuningSettings) -> Tuned:
    """What the method tells a report."""
    own, card = run.method, run.card
    label_mix: Literal['given', 'counted'] | None = None
    if own.label_mix:
        label_mix = 'given'
    elif run.params.label_mix_rho is not None and own.writes_texts:
        label_mix = 'counted'
    is_warm = bool(prepared.warm_start) if card is None else card.warm_texts > 0
    origin = prepared.warm_origin if card is None else card.warm_start
    return Tuned(
        mechanism=run.params,
        releases=origin.releases if card is None else card.handed_on(),
        trains=card is None,
        writes_texts=own.writes_texts,
        label_mix=label_mix,
        warm_start=origin.given if is_warm else None,
        has_structure=own.structure is not None,
    )


def settings(run: TuningRun, of_mechanism: tuple[str, ...]) -> dict[str, Any]:
    """Settings that the report shows beside those of the mechanism."""
    own = run.method
    found = report_settings.shown(run.config, SHOWN, of_mechanism)
    left_out: list[str] = []
    if not own.writes_texts:
        left_out += [*SAMPLING_SETTINGS, 'examples_per_label']
    left_out.append('examples' if own.examples is None else 'examples_per_label')
    if own.adapter is not None:
        # Of these the adapter's card says what it was trained with.
        left_out += released.TRAINING_SETTINGS
    else:
        left_out.append('full')  # it has no rank
        found['lora_rank'] = own.rank
        found['learning_rate'] = own.rate
    if not own.label_mix:
        left_out.append('label_mix')
    if own.warm_start is None:
        left_out += ['warm_steps', 'warm_learning_rate']
    elif own.adapter is None:
        found['warm_learning_rate'] = own.free_rate
    for name in left_out:
        found.pop(name, None)
    prompt = None if own.reads_records else "the adapter's"
    return report_settings.with_texts(found, own, run.input, prompt)
