"""The plan of a fine-tuning run: its price and its size, before anything is read or paid."""

import dataclasses
import json
from typing import TYPE_CHECKING

from models.decoders.device import Dtype
from pipeline import fine_tuning
from pipeline.calibration import Calibration
from pipeline.config import JobConfig
from pipeline.plan import BudgetAnswer

if TYPE_CHECKING:
    from models.decoders.rates import Rates
    from models.privacy.gradients import TuningParams

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}
# Products of the layers, forward and backward: frozen weights pass the gradient on and have none themselves.
_PASSES = 2
# With that of all weights, a product for each product of the way forward.
_PASSES_FULL = 3
# How often the numbers of a gradient of all weights are read or written: made, measured, clipped, added.
_GRADIENT_PASSES = 4
# Of a step's noise, for each number that is trained: a keyed stream, and the normal distribution's inverse.
# Measured on one core of a server; no accelerator helps.
_NOISE_SECONDS = 6e-8
# Numbers of a token in a layer that the way back reads again, in widths of the residual stream.
_KEPT_WIDTHS = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningEstimate:
    """How long one device would train and sample, from its rates. All fields are public.

    Loading the model, compiling and reading records come on top.

    Attributes:
        device: Whose rates they are.
        dtype: Type of the frozen weights.
        measured_on: ISO date of this machine's calibration; None for reference rates, which are of
            another machine.
        seconds_per_step: One step of training with a batch of the expected size.
        training_hours: All steps.
        sampling_hours: All texts, up to their length cap.
        memory_bytes: What weights, adapter, its optimizer and a micro-batch take at the least.
    """

    device: str
    dtype: Dtype
    measured_on: str | None
    seconds_per_step: float
    training_hours: float
    sampling_hours: float
    memory_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningPlan:
    """What a fine-tuning run would release and cost. All fields are public.

    Attributes:
        tuning_steps: T.
        expected_batch_size: s, units of a step in the mean.
        sampling_probability: q, with which each unit is in a step.
        clip_norm: C, of the gradient of a unit.
        noise_multiplier: z, as given or the least for the epsilon that was.
        lora_rank: r; None where all weights are trained.
        adapter_parameters: Numbers that are trained and released.
        epsilon: At `delta`, from the privacy loss distribution of all steps, and of the noisy counts of
            labels where there are any.
        delta: As given, or from the declared number of units.
        rho_at_order: What a ledger charges, where one was asked: a Rényi divergence at the dataset's
            order, over it.
        label_mix_rho: rho of the noisy counts that the texts' mix of labels follows from, as of the run
            that trained the adapter; None where units are not counted.
        examples: Texts of all labels.
        trained_by: The run that trained the adapter, where one is only sampled from: nothing is charged.
        estimate: How long it would take; None where no rates were asked for.
        budget: What the ledger says of it; None where no ledger was asked.
        warnings: What to think about before the run, in sentences.
    """

    tuning_steps: int
    expected_batch_size: int
    sampling_probability: float
    clip_norm: float
    noise_multiplier: float
    lora_rank: int | None
    adapter_parameters: int
    epsilon: float
    delta: float
    rho_at_order: float | None
    label_mix_rho: float | None
    examples: int
    trained_by: str | None
    estimate: TuningEstimate | None = None
    budget: BudgetAnswer | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The plan as one JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2)


def plan_run(config: JobConfig) -> TuningPlan:
    """The plan of a config, which alone decides it."""
    from models.privacy.accounting import subsampled

    card = None if config.adapter is None else fine_tuning.read_card(config.adapter)
    params = fine_tuning.params(config)
    rank = config.resolved_lora_rank if card is None else card.lora_rank
    return TuningPlan(
        tuning_steps=params.tuning_steps,
        expected_batch_size=params.expected_batch_size,
        sampling_probability=params.sampling_probability,
        clip_norm=params.clip_norm,
        noise_multiplier=params.noise_multiplier,
        lora_rank=rank,
        adapter_parameters=config.model_sizes.adapter_parameters(rank),
        epsilon=subsampled.epsilon_of_event(params.event, config.resolved_delta),
        delta=config.resolved_delta,
        rho_at_order=None,
        label_mix_rho=params.label_mix_rho,
        examples=sum(config.texts_of_labels),
        trained_by=None if card is None else card.run_id,
        warnings=() if card is not None else _warnings(config, params),
    )


def with_budget(plan: TuningPlan, config: JobConfig, answer: BudgetAnswer) -> TuningPlan:
    """The plan with what the ledger says of it."""
    from models.privacy import accounting
    from pipeline.ledger.ledger import Ledger

    order = Ledger.open(str(config.ledger)).account(str(config.dataset)).dataset.order
    price = accounting.curve_of(fine_tuning.params(config).event).rho_at(order)
    return dataclasses.replace(plan, budget=answer, rho_at_order=price)


def estimate(config: JobConfig, calibration: Calibration) -> TuningEstimate:
    """How long training and sampling would take on a device of these rates."""
    sizes, rates = config.model_sizes, calibration.rates
    params = fine_tuning.params(config)
    length = config.max_prompt_tokens + config.max_example_tokens
    ways = 1 + _wrong_prompts(config)
    rows = params.expected_batch_size * params.examples_per_context * ways
    embedding = sizes.num_embed * sizes.embed_dim
    step = 0.0 if config.adapter is not None else _seconds_of_step(config, rows, rates)
    size = config.resolved_micro_batch_size
    item_bytes = _ITEM_BYTES[calibration.dtype]
    weights = sizes.layer_parameters
    token = max(2 * weights * size / rates.step_flops, weights * item_bytes / rates.weight_bytes)
    token += size * length * sizes.cache_bytes_per_token(item_bytes) / rates.cache_bytes
    token += 2 * embedding * size / rates.output_flops
    batches = sum(config.batches_of_texts)
    prompts = size * sizes.prompt_flops(config.max_prompt_tokens) / rates.prompt_flops
    return TuningEstimate(
        device=calibration.device,
        dtype=calibration.dtype,
        measured_on=calibration.measured_on,
        seconds_per_step=step,
        training_hours=params.tuning_steps * step / 3600,
        sampling_hours=batches * (prompts + config.max_example_tokens * token) / 3600,
        memory_bytes=needed_memory(config, calibration.dtype),
    )


def _seconds_of_step(config: JobConfig, rows: float, rates: 'Rates') -> float:
    """Gradients of a batch of so many rows, each of the greatest length, and their noise."""
    sizes = config.model_sizes
    numbers = sizes.adapter_parameters(config.resolved_lora_rank)
    layers = sizes.prompt_flops(config.max_prompt_tokens + config.max_example_tokens) / rates.prompt_flops
    output = 2 * sizes.num_embed * sizes.embed_dim * config.max_example_tokens / rates.output_flops
    passes = _PASSES_FULL if config.full else _PASSES
    # The output layer is computed once more on the way back.
    found = rows * (passes * layers + (passes + 1) * output) + _NOISE_SECONDS * numbers
    if not config.full:
        return found
    # A gradient of all weights is too large to stay where it is made.
    moved = 4 * numbers * _GRADIENT_PASSES / rates.weight_bytes
    return found + config.expected_batch_size * moved


def needed_memory(config: JobConfig, dtype: Dtype) -> int:
    """Bytes that weights, adapter and a micro-batch take at the least: of training, or of sampling."""
    sizes, item_bytes = config.model_sizes, _ITEM_BYTES[dtype]
    length = config.max_prompt_tokens + config.max_example_tokens
    weights = sizes.num_parameters * item_bytes
    sampling = config.resolved_micro_batch_size * length * sizes.cache_bytes_per_token(item_bytes)
    if config.adapter is not None:
        return weights + sampling
    kept = (
        config.resolved_units_together * config.examples_per_context * (1 + _wrong_prompts(config)) * length
    )
    kept *= _KEPT_WIDTHS * sizes.embed_dim * 4
    return weights + max(_trained_memory(config) + kept, sampling)


def _trained_memory(config: JobConfig) -> int:
    """Bytes that are held for each number that is trained, a gradient of each unit among them."""
    sizes = config.model_sizes
    numbers = sizes.adapter_parameters(config.resolved_lora_rank)
    # The embedding has a gradient as the input and one as the output layer.
    of_unit = numbers + (sizes.num_embed * sizes.embed_dim if config.full else 0)
    # Itself, two moments of Adam, a sum and its noise.
    return 4 * (5 * numbers + config.resolved_units_together * of_unit)


def _wrong_prompts(config: JobConfig) -> int:
    return min(config.wrong_prompts, len(config.label_values) - 1) if config.mismatch_weight else 0


def _warnings(config: JobConfig, params: 'TuningParams') -> tuple[str, ...]:
    """What whoever plans should hear before a run: of public numbers alone."""
    from models.privacy.report import words

    found = []
    delta, many = config.resolved_delta, 'users' if config.unit == 'user' else 'records'
    if config.records is not None and delta * config.records >= 1:
        found.append(words.delta_relation(delta, config.records, 'declared', many))
    if params.expected_batch_size < 4 * params.noise_multiplier:
        found.append(
            f'A step adds noise of z = {params.noise_multiplier:g} clip norms to the gradients of about '
            f'{params.expected_batch_size} {many}: little will be learnt. Raise --expected-batch-size, '
            'or --epsilon.'
        )
    if config.full:
        numbers, together = config.model_sizes.adapter_parameters(None), config.resolved_units_together
        of_each = 'of one unit' if together == 1 else f'of each of {together} units'
        memory = f'{_trained_memory(config) / 2**30:.1f} GiB'
        found.append(
            f'All {numbers:,} weights are trained: a difference in float32, two moments of Adam, a noisy sum '
            f'and a gradient {of_each} take {memory} beside the model. A step draws noise for each weight, '
            f'about {_NOISE_SECONDS * numbers:.1f} s on one core. --lora-rank 8 trains '
            f'{config.model_sizes.adapter_parameters(8):,} numbers.'
        )
    return tuple(found)
