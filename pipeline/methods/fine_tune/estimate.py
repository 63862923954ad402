"""How long a fine-tuning run would take on a device of known rates, and how much memory."""

import dataclasses

import numpy as np

from models.decoders.device import Dtype
from models.decoders.rates import Rates
from models.finetuning.settings import shares_instructions
from models.finetuning.units import padded_lengths
from pipeline.calibration import Calibration
from pipeline.methods import follows
from pipeline.methods.fine_tune.run import TuningRun

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}
# Products of the layers, forward and backward: frozen weights pass the gradient on and have none themselves.
_PASSES = 2
# With that of all weights, a product for each product of the way forward.
_PASSES_FULL = 3
# How often the numbers of a gradient of all weights are read or written: made, measured, clipped, added.
_GRADIENT_PASSES = 4
# Of a step's noise, for each number that is trained: a keyed stream, and the normal distribution's inverse.
# Measured on one core of a server; no accelerator helps.
NOISE_SECONDS = 6e-8
# What computing layers again adds to the products of the way forward and back.
_PASSES_REMAT = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningEstimate:
    """How long one device would train and sample, from its rates. All fields are public.

    Loading the model, compiling and reading records come on top.

    Attributes:
        device: Whose rates they are.
        dtype: Type of the frozen weights.
        measured_on: ISO date of this machine's calibration; None for reference rates, which are of
            another machine.
        text_tokens: Tokens of the texts that the times are for: of a typical one where typical_words are
            declared, else the length cap.
        seconds_per_step: One step of training with a batch of the expected size.
        training_hours: All steps, those of a warm start among them.
        sampling_hours: All texts.
        memory_bytes: What weights, adapter, its optimizer, a micro-batch take, about.
    """

    device: str
    dtype: Dtype
    measured_on: str | None
    text_tokens: int
    seconds_per_step: float
    training_hours: float
    sampling_hours: float
    memory_bytes: int


def estimate(run: TuningRun, calibration: Calibration) -> TuningEstimate:
    """How long training and sampling would take on a device of these rates."""
    sizes, rates = run.method.model_sizes, calibration.rates
    params = run.params
    length = run.method.max_prompt_tokens + run.method.max_example_tokens
    embedding = sizes.num_embed * sizes.embed_dim
    step = 0.0 if run.method.adapter is not None else seconds_of_step(run, rates)
    size = run.method.resolved_micro_batch_size
    item_bytes = _ITEM_BYTES[calibration.dtype]
    weights = sizes.layer_parameters
    token = max(2 * weights * size / rates.step_flops, weights * item_bytes / rates.weight_bytes)
    token += size * length * sizes.cache_bytes_per_token(item_bytes) / rates.cache_bytes
    token += 2 * embedding * size / rates.output_flops
    instruction, text = _lengths(run)
    # Rows are filled again as their texts end, and the model reads the prompt of a label once.
    texts, labels = sum(run.texts_of_labels), len(run.input.label_values)
    sampling = labels * sizes.prompt_flops(instruction) / rates.prompt_flops
    sampling += -(-texts // size) * text * token
    return TuningEstimate(
        device=calibration.device,
        dtype=calibration.dtype,
        measured_on=calibration.measured_on,
        text_tokens=text,
        seconds_per_step=step,
        training_hours=(run.method.resolved_warm_steps + params.tuning_steps) * step / 3600,
        sampling_hours=sampling / 3600 if texts else 0.0,
        memory_bytes=needed_memory(run, calibration.dtype),
    )


def seconds_of_step(run: TuningRun, rates: Rates) -> float:
    """Gradients of a batch of the expected size, and their noise."""
    sizes = run.method.model_sizes
    numbers = sizes.adapter_parameters(run.method.resolved_lora_rank)
    most_ways, labels = 1 + _wrong_prompts(run), len(run.input.label_values)
    # In the mean over steps, of which only some have wrong ones.
    ways = 1 + _wrong_prompts(run) / run.method.mismatch_every
    instructions = run.method.expected_batch_size * ways
    rows = instructions * run.budget.examples_per_context
    instruction, text = _lengths(run)
    padded = int(padded_lengths(np.array([text]), run.method.max_example_tokens)[0])
    of_instruction = sizes.prompt_flops(instruction) / rates.prompt_flops
    of_text = sizes.prompt_flops(instruction + padded) / rates.prompt_flops - of_instruction
    output = 2 * sizes.num_embed * sizes.embed_dim * padded / rates.output_flops
    passes = _PASSES_FULL if run.method.full else _PASSES
    again = _PASSES_REMAT if run.method.remat else 0  # of the layers alone
    shared = shares_instructions(labels, most_ways, run.units_together)
    found = rows * (passes + again) * of_text
    found += instructions * (passes + again - 1) * of_instruction
    found += (labels if shared else instructions) * of_instruction
    # With all weights the output layer is computed once more on the way back.
    found += rows * (passes + 1 if run.method.full else passes) * output
    found += NOISE_SECONDS * numbers
    if not run.method.full:
        return found
    # A gradient of all weights is too large to stay where it is made.
    moved = 4 * numbers * _GRADIENT_PASSES / rates.weight_bytes
    return found + run.method.expected_batch_size * moved


def _lengths(run: TuningRun) -> tuple[int, int]:
    """Tokens of an instruction and of a text: about, where typical words are declared, else their caps."""
    own = run.method
    if own.typical_words is None:
        return own.max_prompt_tokens, own.max_example_tokens
    instruction = min(follows.tokens_around(own, run.input), own.max_prompt_tokens)
    return instruction, follows.typical_tokens(own)


def needed_memory(run: TuningRun, dtype: Dtype, devices: int = 1) -> int:
    """Bytes of each device that weights, adapter and a micro-batch take: of training, or of sampling."""
    sizes, item_bytes = run.method.model_sizes, _ITEM_BYTES[dtype]
    length = run.method.max_prompt_tokens + run.method.max_example_tokens
    weights = sizes.num_parameters * item_bytes
    together = -(-run.method.resolved_micro_batch_size // devices)
    sampling = together * length * sizes.cache_bytes_per_token(item_bytes)
    if run.method.adapter is not None:
        return weights + sampling
    return weights + max(trained_memory(run, devices) + _kept_memory(run, devices), sampling)


def _kept_memory(run: TuningRun, devices: int) -> int:
    """Bytes of what layers compute of a device's units and the way back reads again."""
    sizes, own = run.method.model_sizes, run.method
    texts = run.budget.examples_per_context * own.max_example_tokens
    units, ways = _units_of_device(run, devices), 1 + _wrong_prompts(run)
    tokens = units * ways * (own.max_prompt_tokens + texts)
    labels = len(run.input.label_values)
    if shares_instructions(labels, ways, run.units_together):
        # Of more instructions than the micro-batch has.
        tokens += max(0, labels - units * ways) * own.max_prompt_tokens
    length = own.max_prompt_tokens + own.max_example_tokens
    return sizes.gradient_bytes(tokens, length, remat=own.remat)


def trained_memory(run: TuningRun, devices: int = 1) -> int:
    """Bytes that a device holds for all that is trained, a gradient of each of its units among them."""
    sizes = run.method.model_sizes
    numbers = sizes.adapter_parameters(run.method.resolved_lora_rank)
    # The embedding has a gradient as the input and one as the output layer.
    of_unit = numbers + (sizes.num_embed * sizes.embed_dim if run.method.full else 0)
    # Itself, two moments of Adam, and a sum and its noise, which have two limbs each.
    return 4 * (7 * numbers + _units_of_device(run, devices) * of_unit)


def _units_of_device(run: TuningRun, devices: int) -> int:
    return -(-run.units_together // devices)


def _wrong_prompts(run: TuningRun) -> int:
    return min(run.method.wrong_prompts, len(run.input.label_values) - 1) if run.method.mismatch_weight else 0
