"""What benchmarks of DP fine-tuning on `tests.benchmarks.real_records` have in common: settings, units."""

from typing import Any

from models.decoders import family
from models.finetuning import units
from models.finetuning.settings import TuningSettings
from models.privacy.accounting import subsampled
from models.privacy.gradients import TuningParams
from models.prompt_templates import PRESETS
from tests.benchmarks.real_records import Dataset

MODEL = 'gemma3-270m'


def settings_of(
    dataset: Dataset,
    records: int,
    *,
    epsilon: float,
    tuning_steps: int,
    expected_batch_size: int,
    labelled: bool,
    **changed: Any,
) -> TuningSettings:
    """Fine-tuning of Gemma 3 270M at an epsilon, with factors of rank 8 and texts of 32 tokens.

    Args:
        dataset: Whose words the prompts have.
        records: n, of which δ = n^-1.1 follows.
        epsilon: What all steps cost.
        tuning_steps: T.
        expected_batch_size: s.
        labelled: Whether each label has an instruction; else there is one.
        **changed: Further settings.
    """
    files = family.family_of(MODEL).known_files(MODEL)
    assert files is not None
    noise_multiplier = subsampled.solve_noise_multiplier(
        sampling_probability=expected_batch_size / records,
        steps=tuning_steps,
        epsilon=epsilon,
        delta=records**-1.1,
    )
    params = TuningParams(
        units=float(records),
        expected_batch_size=expected_batch_size,
        tuning_steps=tuning_steps,
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
    )
    return TuningSettings(
        run_id='benchmark',
        params=params,
        labels=tuple(dataset.labels) if labelled else (None,),
        label_words=tuple(dataset.labels.items()) if labelled else (),
        label_name=dataset.label_name,
        model=MODEL,
        checkpoint=str(files.checkpoint),
        tokenizer=str(files.tokenizer),
        micro_batch_size=4,
        max_prompt_tokens=dataset.max_prompt_tokens,
        max_example_tokens=32,
        template=PRESETS['document'],
        text_name=dataset.text_name,
        corpus_description=dataset.description,
        lora_rank=8,
        **changed,
    )


def units_of(texts: list[tuple[str, str]], *, labelled: bool) -> list[units.Unit]:
    """A unit for each (label, text)."""
    return units.in_order(
        (number.to_bytes(16), label if labelled else None, [text])
        for number, (label, text) in enumerate(texts)
    )
