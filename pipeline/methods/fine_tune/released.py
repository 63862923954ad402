"""A released adapter: its folder, its card, and whether it goes with a run."""

import hashlib
import os
from typing import Any

from apache_beam.io.filesystems import FileSystems

from models.finetuning import adapter as adapters
from models.finetuning.adapter import AdapterCard, ReleasedAdapter
from pipeline.methods.fine_tune.settings import NAME, FineTuneSettings
from pipeline.run.digests import checkpoint_digest
from pipeline.settings import panel
from pipeline.settings.job_config import JobConfig
from pipeline.settings.model import Model
from transforms.durable import read_file
from transforms.run_files import ADAPTER_CARD, ADAPTER_FOLDER, ADAPTER_TENSORS, SAMPLED_ADAPTER

# Settings that a run which samples from a released adapter lacks: it reads no record and trains nothing.
TRAINING_SETTINGS = (
    'input', 'delimiter', 'encoding', 'quoting', 'label_field', 'attributes', 'labels', 'unit', 'unit_field',
    'record_id_field', 'records', 'sample_rate', 'keep_rejected', 'examples_per_context', 'epsilon',
    'delta', 'dataset', 'ledger', 'prompt', 'label_name', 'text_name', 'corpus_description', 'schema',
    'max_prompt_tokens', 'max_example_tokens', 'tuning_steps', 'expected_batch_size', 'clip_norm',
    'noise_multiplier', 'lora_rank', 'full', 'remat', 'learning_rate',
    'warm_start', 'warm_steps', 'warm_learning_rate',
    'mismatch_weight', 'wrong_prompts', 'mismatch_every', 'label_mix_rho',
)  # fmt: skip
# Settings whose values an adapter's card holds.
PROMPT_SETTINGS = ('label_name', 'text_name', 'corpus_description', 'max_prompt_tokens', 'max_example_tokens')


def adapter_folder(place: str) -> str:
    """The folder with the card, of a run's output or of the adapter itself."""
    inside = FileSystems.join(place, ADAPTER_FOLDER)
    for folder in (inside, place):
        if FileSystems.exists(FileSystems.join(folder, ADAPTER_CARD)):
            return folder
    raise FileNotFoundError(
        f'Expected the folder of a released adapter, got adapter={place!r} without {ADAPTER_CARD}. Without '
        'it an adapter has no guarantee that could be stated: give the --output of a finished `generate '
        '--method fine-tune`.'
    )


def read_card(place: str) -> AdapterCard:
    """The card of a released adapter; a ValueError where its settings do not give its guarantee."""
    path = FileSystems.join(adapter_folder(place), ADAPTER_CARD)
    return AdapterCard.from_json(read_file(path).decode())


def card_of_texts(folder: str) -> AdapterCard | None:
    """The card of the adapter that a finished run sampled its texts from; None of other runs.

    The charge of such texts is that of the run which trained the adapter.
    """
    path = FileSystems.join(folder, SAMPLED_ADAPTER)
    return AdapterCard.from_json(read_file(path).decode()) if FileSystems.exists(path) else None


def with_adapter(
    config: JobConfig[FineTuneSettings],
) -> tuple[JobConfig[FineTuneSettings], AdapterCard]:
    """(the config with what the card of its adapter says, the card)."""
    place = config.method.adapter
    assert place is not None
    why = 'A released adapter is sampled from: no record is read, nothing is trained, and nothing is charged.'
    panels = (config.input, config.budget, config.method)
    panel.refuse(panels, dict.fromkeys(TRAINING_SETTINGS, why), beside=f'method={NAME!r}')
    card = checked_card(config.method, place)
    prompt: dict[str, Any] = {name: value for name, value in card.prompt.items() if name in PROMPT_SETTINGS}
    completed = config.replace(
        adapter=os.path.abspath(place) if '://' not in place else place,
        labels=card.labels,
        attributes=card.attributes,
        label_field='label' if card.labels and not card.attributes else None,
        delta=card.delta,
        **prompt,
    )
    return completed, card


def released_adapter(model: Model, place: str | None) -> ReleasedAdapter | None:
    """The adapter that a run of another method decodes with; None where it names none."""
    if place is None:
        return None
    return ReleasedAdapter(folder=adapter_folder(place), card=checked_card(model, place))


def checked_card(model: Model, place: str) -> AdapterCard:
    """The card of an adapter that goes with a model and its weights, after a look at both of its files."""
    card = read_card(place)
    check_model(model, card, place)
    if (digest := checkpoint_digest(model.checkpoint_path)) != card.weights:
        raise ValueError(
            f'Expected the weights that the adapter was trained on, got others of model={model.model!r} '
            f'(SHA-256 {digest[:12]}…, not {card.weights[:12]}…). Give their --checkpoint.'
        )
    adapters.check_factors(card, read_file(FileSystems.join(adapter_folder(place), ADAPTER_TENSORS)))
    return card


def check_model(model: Model, card: AdapterCard, place: str) -> None:
    """Refuses an adapter of another model."""
    if model.model != card.model:
        raise ValueError(
            f'Expected the model of the adapter, got model={model.model!r} for adapter={place!r}, '
            f'which was trained on {card.model!r}. Give --model {card.model}.'
        )


def card_digest(place: str) -> str:
    """Digest of a released adapter, by its card, which holds that of its factors."""
    return hashlib.sha256(read_card(place).to_json().encode()).hexdigest()
