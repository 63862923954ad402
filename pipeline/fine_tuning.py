"""What `--method fine-tune` makes of a config: the mechanism, workers' settings, facts, and pages.

Heavy libraries are imported where they are used, so that a config is refused at once.
"""

import dataclasses
import math
import os
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from models.finetuning.adapter import AdapterCard, Prompt, ReleasedAdapter, Template
    from models.finetuning.settings import TuningSettings
    from models.privacy.accounting import DpEvent
    from models.privacy.gradients import TuningParams
    from models.privacy.report import PrivacyReport
    from pipeline.config import JobConfig
    from transforms.write import Files

NAME = 'fine-tune'
# Of its stage, as a ledger names it; counts of labels are noisy counts as those of any run are.
NAME_OF_STAGE = 'fine-tuning'
# Its own panel, `pipeline.config.tuning.Tuning`.
SETTINGS = (
    'tuning_steps', 'expected_batch_size', 'clip_norm', 'noise_multiplier', 'lora_rank', 'full',
    'learning_rate', 'mismatch_weight', 'wrong_prompts', 'examples_per_label', 'label_mix', 'label_mix_rho',
    'top_p', 'top_k', 'adapter',
)  # fmt: skip
_VOTES = 'No batch of contexts votes on tokens: each unit has one gradient.'
# Settings of the Privacy and Generation panels that are private prediction's, each with why.
_OF_PREDICTION = {
    **dict.fromkeys(
        (
            'batch_size',
            'threshold',
            'threshold_noise_scale',
            'max_private_tokens',
            'accounting',
            'context_budget',
            'omega',
            'shift_bound',
            'aggregate',
            'public_temperature',
            'public_top_k',
            'max_batch_tokens',
        ),
        _VOTES,
    ),
    'batch_size': 'It is the number of contexts that vote. Give --expected-batch-size, of a step.',
    'clip_bound': 'It clips votes on tokens. Give --clip-norm for gradients.',
    **dict.fromkeys(
        ('batches_per_label', 'count_rho'),
        'Text is sampled from the adapter, as much as is asked for: give --examples-per-label, and '
        '--label-mix-rho for the mix of labels.',
    ),
    **dict.fromkeys(
        ('clusters', 'clustering_rho', 'centers', 'embedder'),
        'Clusters make records of a batch of votes alike, and there are none.',
    ),
    **dict.fromkeys(
        ('reference', 'reference_label_field', 'reference_size', 'reference_rounds'),
        'A reference is what votes are a difference from, and there are none.',
    ),
    **dict.fromkeys(
        ('condition_on', 'condition_rho'),
        'It counts records by the values that examples are then given in turn. Here the adapter learns '
        'which values texts have: give one of them to every text with --fixed.',
    ),
}
PREDICTION_SETTINGS = tuple(_OF_PREDICTION)
# What a run that samples no text has no use for.
SAMPLING_SETTINGS = ('temperature', 'top_p', 'top_k', 'shards', 'label_mix', 'fixed', 'close_truncated')
# What a run that samples from a released adapter cannot have: it reads no record and trains nothing.
TRAINING_SETTINGS = (
    'input', 'delimiter', 'encoding', 'label_field', 'attributes', 'labels', 'unit', 'unit_field',
    'record_id_field', 'records', 'sample_rate', 'keep_rejected', 'examples_per_context', 'epsilon',
    'delta', 'dataset', 'ledger', 'prompt', 'label_name', 'text_name', 'corpus_description', 'schema',
    'max_prompt_tokens', 'max_example_tokens', 'tuning_steps', 'expected_batch_size', 'clip_norm',
    'noise_multiplier', 'lora_rank', 'full', 'learning_rate', 'mismatch_weight', 'wrong_prompts',
    'label_mix_rho',
)  # fmt: skip
# Of these an adapter's card says what it was trained with.
_PROMPT = ('label_name', 'text_name', 'corpus_description', 'max_prompt_tokens', 'max_example_tokens')


def refuse(config: 'JobConfig', names: dict[str, str], method: str, beside: str | None = None) -> None:
    """Refuses settings that another method has.

    Args:
        config: The run.
        names: Why a method has them not, by name of the setting.
        method: The method.
        beside: The setting that they do not go with, as errors show it; None for that of the method.

    Raises:
        ValueError: One of them has another value than its default.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name, why in names.items():
        if (value := getattr(config, name)) != defaults[name]:
            raise ValueError(
                f'Expected no {name} with {beside or f"method={method!r}"}, got {name}={value!r}. {why} '
                'Leave it out.'
            )


def check(config: 'JobConfig') -> None:
    """Refuses settings that do not go together.

    Raises:
        ValueError: See above.
    """
    refuse(config, _OF_PREDICTION, NAME)
    _ = config.structure  # a schema checks itself
    if config.adapter is not None:
        if not config.writes_texts:
            raise ValueError(
                f'Expected examples_per_label >= 1 with adapter={config.adapter!r}, got '
                'examples_per_label=0. It is trained already: say how many texts to sample from it.'
            )
        return  # `with_adapter`
    if not config.writes_texts:
        why = 'It is of texts, and none is sampled.'
        refuse(config, dict.fromkeys(SAMPLING_SETTINGS, why), NAME, beside='examples_per_label=0')
    if config.records is None:
        raise ValueError(
            f'Expected a declared number of units with method={NAME!r}, got records=None. Give --records N '
            '(of users, with --unit user): each is in a step with probability expected_batch_size / N.'
        )
    if (config.epsilon is None) == (config.noise_multiplier is None):
        raise ValueError(
            f'Expected either epsilon or noise_multiplier, got epsilon={config.epsilon!r}, '
            f'noise_multiplier={config.noise_multiplier!r}. Each follows from the other: give one.'
        )
    temperature = config.temperature
    if temperature is not None and not (temperature > 0 and math.isfinite(temperature)):
        raise ValueError(f'Expected temperature > 0, got temperature={temperature!r}. Give 1, say.')
    if config.label_mix_rho is not None:
        _check_label_mix_rho(config)
    # The mechanism's settings and a mix of labels check themselves.
    _params(config, noise_multiplier=config.noise_multiplier or 1.0)
    _ = config.texts_of_labels


def _check_label_mix_rho(config: 'JobConfig') -> None:
    """Refuses to pay for a mix of labels that nothing would follow from."""
    if config.label_mix:
        raise ValueError(
            f'Expected either label_mix or label_mix_rho, got label_mix={list(config.label_mix)!r}, '
            f'label_mix_rho={config.label_mix_rho!r}. Give shares that are public, which are free, or have '
            'them counted with noise.'
        )
    if len(config.label_values) < 2:
        raise ValueError(
            f'Expected two labels or more with label_mix_rho={config.label_mix_rho!r}, got '
            f'labels={list(config.labels)!r}. Of one label there is nothing to count: leave it out.'
        )


def params(config: 'JobConfig') -> 'TuningParams':
    """The mechanism, with the noise multiplier solved for where epsilon was given.

    Raises:
        ValueError: A setting out of range, or an epsilon that no noise gives.
    """
    if config.adapter is not None:
        return read_card(config.adapter).params
    noise_multiplier = config.noise_multiplier
    if noise_multiplier is None:
        from models.privacy import counts
        from models.privacy.accounting import subsampled

        assert config.epsilon is not None  # `check`
        rho = config.label_mix_rho
        noise_multiplier = subsampled.solve_noise_multiplier(
            sampling_probability=_params(config, noise_multiplier=1.0).sampling_probability,
            steps=config.tuning_steps,
            epsilon=config.epsilon,
            delta=config.resolved_delta,
            sigma=None if rho is None else counts.gaussian_scale(rho),
        )
    return _params(config, noise_multiplier=noise_multiplier)


def _params(config: 'JobConfig', *, noise_multiplier: float) -> 'TuningParams':
    from models.privacy.gradients import TuningParams

    assert config.sampled_records is not None  # `check`
    return TuningParams(
        units=config.sampled_records,
        expected_batch_size=config.expected_batch_size,
        tuning_steps=config.tuning_steps,
        clip_norm=config.clip_norm,
        noise_multiplier=noise_multiplier,
        unit=config.unit,
        examples_per_context=config.examples_per_context,
        label_mix_rho=config.label_mix_rho,
    )


def cost(params: 'TuningParams') -> 'dict[str, DpEvent]':
    """Event of each stage, by the name that a ledger has for it; together they are `TuningParams.event`."""
    from models.privacy import accounting

    of_steps = {NAME_OF_STAGE: params.event_of_steps}
    if params.label_mix_rho is None:
        return of_steps
    return {'noisy_counts': accounting.ZCDpEvent(rho=params.label_mix_rho), **of_steps}


def settings(config: 'JobConfig') -> 'TuningSettings':
    """What workers train and sample with; checks the files of the model, and the prompts."""
    from models.finetuning.settings import TuningSettings
    from pipeline.run.settings import model_settings, prompt_settings

    released = None if config.adapter is None else read_card(config.adapter)
    prompt = prompt_settings(config)
    if released is not None:
        # A structure is the sampling run's own, and the prompt is what the adapter was trained with.
        prompt |= {'template': released.prompt_template, 'schema': released.prompt['schema']}
    found = TuningSettings(
        run_id=config.resolved_run_id,
        params=params(config) if released is None else released.params,
        labels=config.label_values,
        **model_settings(config),
        micro_batch_size=config.resolved_units_together,
        max_example_tokens=config.max_example_tokens,
        label_words=tuple(config.label_words.items()),
        **prompt,
        lora_rank=config.resolved_lora_rank if released is None else released.lora_rank,
        learning_rate=config.resolved_learning_rate,
        mismatch_weight=config.mismatch_weight,
        wrong_prompts=config.wrong_prompts,
        temperature=1.0 if config.temperature is None else config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        examples_per_label=config.examples_per_label,
        texts_of_labels=config.texts_of_labels,
        texts_together=config.resolved_micro_batch_size,
    )
    found.check_prompts()
    return found


def text_limit(config: 'JobConfig') -> int:
    """Characters of a text that training could use."""
    from pipeline.run.settings import CHARACTERS_PER_TOKEN

    return config.max_example_tokens * CHARACTERS_PER_TOKEN


# --- A released adapter ------------------------------------------------------------


def adapter_folder(place: str) -> str:
    """The folder with the card, of a run's output or of the adapter itself."""
    from apache_beam.io.filesystems import FileSystems

    from transforms.run_files import ADAPTER_CARD, ADAPTER_FOLDER

    inside = FileSystems.join(place, ADAPTER_FOLDER)
    for folder in (inside, place):
        if FileSystems.exists(FileSystems.join(folder, ADAPTER_CARD)):
            return folder
    raise FileNotFoundError(
        f'Expected the folder of a released adapter, got adapter={place!r} without {ADAPTER_CARD}. Without '
        'it an adapter has no guarantee that could be stated: give the --output of a finished `generate '
        '--method fine-tune`.'
    )


def read_card(place: str) -> 'AdapterCard':
    """The card of a released adapter.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is no card, or states a guarantee that its settings do not give.
    """
    from apache_beam.io.filesystems import FileSystems

    from models.finetuning.adapter import AdapterCard
    from transforms.durable import read_file
    from transforms.run_files import ADAPTER_CARD

    path = FileSystems.join(adapter_folder(place), ADAPTER_CARD)
    return AdapterCard.from_json(read_file(path).decode())


def released_counts(config: 'JobConfig') -> tuple[int, ...] | None:
    """Noisy counts of labels that an adapter was released with and that the run takes its mix from.

    None where it takes its mix from elsewhere, or samples from no released adapter.
    """
    if config.votes or config.adapter is None or config.label_mix:
        return None
    return read_card(config.adapter).label_counts


def with_adapter(config: 'JobConfig') -> 'JobConfig':
    """The config with what the card of its adapter says; itself where it names none.

    Raises:
        ValueError: It gives what the card says, or what only training has; the adapter is of another model,
            of other weights, or not the one that its card names.
        FileNotFoundError: There is no card.
    """
    if config.adapter is None:
        return config
    why = 'A released adapter is sampled from: no record is read, nothing is trained, and nothing is charged.'
    refuse(config, dict.fromkeys(TRAINING_SETTINGS, why), NAME)
    card = _checked_card(config, config.adapter)
    prompt: dict[str, Any] = {name: value for name, value in card.prompt.items() if name in _PROMPT}
    return dataclasses.replace(
        config,
        adapter=os.path.abspath(config.adapter) if '://' not in config.adapter else config.adapter,
        labels=card.labels,
        attributes=card.attributes,
        label_field='label' if card.labels and not card.attributes else None,
        delta=card.delta,
        **prompt,
    )


def released_adapter(config: 'JobConfig') -> 'ReleasedAdapter | None':
    """The adapter that private prediction decodes with; None where the config names none.

    Raises:
        ValueError: It is of another model, of other weights, or not the one that its card names.
        FileNotFoundError: There is no card.
    """
    from models.finetuning.adapter import ReleasedAdapter

    if config.adapter is None:
        return None
    card = _checked_card(config, config.adapter)
    return ReleasedAdapter(folder=adapter_folder(config.adapter), card=card, dataset=config.dataset)


def _checked_card(config: 'JobConfig', place: str) -> 'AdapterCard':
    """The card of an adapter that goes with the run's model, after a look at both of its files."""
    from apache_beam.io.filesystems import FileSystems

    from models.finetuning import adapter as adapters
    from transforms.durable import read_file
    from transforms.run_files import ADAPTER_TENSORS

    card = read_card(place)
    check_model(config, card)
    if (found := weights_digest(config)) != card.weights:
        raise ValueError(
            f'Expected the weights that the adapter was trained on, got others of model={config.model!r} '
            f'(SHA-256 {found[:12]}…, not {card.weights[:12]}…). Give their --checkpoint.'
        )
    adapters.check_factors(card, read_file(FileSystems.join(adapter_folder(place), ADAPTER_TENSORS)))
    return card


def check_model(config: 'JobConfig', card: 'AdapterCard') -> None:
    """Refuses an adapter of another model.

    Raises:
        ValueError: See above.
    """
    if config.model != card.model:
        raise ValueError(
            f'Expected the model of the adapter, got model={config.model!r} for adapter={config.adapter!r}, '
            f'which was trained on {card.model!r}. Give --model {card.model}.'
        )


def weights_digest(config: 'JobConfig') -> str:
    """SHA-256 of the files that an adapter is trained on top of."""
    from pipeline.run.identity import checkpoint_digest

    return checkpoint_digest(config.checkpoint_path)


def card(
    config: 'JobConfig',
    prepared: 'TuningSettings',
    factors: str,
    entry: Any,
    label_counts: tuple[int, ...] | None = None,
) -> 'AdapterCard':
    """The card of the adapter that a run trained.

    Args:
        config: The run.
        prepared: Its settings.
        factors: SHA-256 of the file of the factors.
        entry: What the ledger says of the run (`LedgerEntry`); None where it was charged to none.
        label_counts: Released noisy counts of the labels, where the run counted them.
    """
    from models.finetuning.adapter import AdapterCard
    from models.privacy.accounting import subsampled

    return AdapterCard(
        run_id=config.resolved_run_id,
        dataset=None if entry is None else entry.dataset,
        run_number=None if entry is None else entry.run_number,
        model=config.model,
        weights=weights_digest(config),
        lora_rank=prepared.lora_rank,
        factors=factors,
        epsilon=subsampled.epsilon_of_event(prepared.params.event, config.resolved_delta),
        delta=config.resolved_delta,
        mechanism=dataclasses.asdict(prepared.params),
        template=cast('Template', dataclasses.asdict(prepared.template)),
        prompt=cast(
            'Prompt', {name: getattr(config, name) for name in _PROMPT} | {'schema': prepared.schema}
        ),
        labels=config.labels,
        attributes=config.attributes,
        label_counts=label_counts,
    )


# --- Pages ---------------------------------------------------------------------------


def pages(
    config: 'JobConfig', prepared: 'TuningSettings', privacy_report: 'PrivacyReport', columns: Any
) -> 'Files':
    """The files of a release beside its data: what people read, and the adapter where the run trained one."""
    from apache_beam.io.filesystems import FileSystems

    from models.finetuning import adapter as adapters
    from pipeline.pages import dataset_card, report_page
    from transforms.durable import read_file
    from transforms.run_files import ADAPTER_CARD, ADAPTER_FOLDER, ADAPTER_TENSORS, CARD, REPORT_PAGE

    languages = () if config.model != 'bundled' else ('en',)
    card_page = (
        dataset_card.render_card(privacy_report, languages=languages, columns=columns.meanings)
        if config.writes_texts
        else dataset_card.render_adapter_card(privacy_report)
    )
    files = {
        REPORT_PAGE: report_page.render_html(privacy_report).encode(),
        CARD: card_page.encode(),
    }
    if config.adapter is None:
        data = read_file(FileSystems.join(config.resolved_work_dir, ADAPTER_TENSORS))
        noisy = [group.noisy_count for group in privacy_report.plan if group.noisy_count is not None]
        text = card(
            config, prepared, adapters.digest(data), privacy_report.ledger, tuple(noisy) or None
        ).to_json()
        files[f'{ADAPTER_FOLDER}/{ADAPTER_TENSORS}'] = data
        files[f'{ADAPTER_FOLDER}/{ADAPTER_CARD}'] = text.encode()
    return files
