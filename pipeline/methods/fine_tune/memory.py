"""The memory that a fine-tuning run needs at the least."""

from models.decoders.device import Dtype
from models.finetuning.settings import shares_instructions
from pipeline.methods.fine_tune.run import TuningRun

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}


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
    units, ways = _units_of_device(run, devices), 1 + run.wrong_prompts
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
