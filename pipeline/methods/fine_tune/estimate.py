"""How many tokens a fine-tuning run trains on and decodes, and in how much memory."""

import numpy as np

from models.decoders.device import Dtype
from models.finetuning.settings import shares_instructions
from models.finetuning.units import padded_lengths
from pipeline.methods import follows
from pipeline.methods.fine_tune import mechanism
from pipeline.methods.fine_tune.mechanism import Config

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}
# Of a step's noise, for each number that is trained: a keyed stream, and the normal distribution's inverse.
# Measured on one core of a server; no accelerator helps.
NOISE_SECONDS = 6e-8


def trained_tokens(config: Config) -> int:
    """Tokens of the padded texts of all steps, once for each instruction that they are read with."""
    own = config.method
    if own.adapter is not None:
        return 0
    padded = int(padded_lengths(np.array([_text_tokens(config)]), own.max_example_tokens)[0])
    steps = own.resolved_warm_steps + mechanism.params(config).tuning_steps
    texts = own.expected_batch_size * config.budget.examples_per_context
    # In the mean over steps, of which only some have wrong instructions.
    return round(steps * texts * padded * (1 + _wrong_prompts(config) / own.mismatch_every))


def decoded_tokens(config: Config) -> int:
    """Tokens of all texts, and of the instruction of each label, which is read once."""
    texts = sum(mechanism.texts_of_labels(config))
    if not texts:
        return 0
    return texts * _text_tokens(config) + len(config.input.label_values) * config.method.max_prompt_tokens


def _text_tokens(config: Config) -> int:
    """Tokens of a text: of a typical one where typical words are declared, else the length cap."""
    own = config.method
    return own.max_example_tokens if own.typical_words is None else follows.typical_tokens(own)


def needed_memory(config: Config, dtype: Dtype, devices: int = 1) -> int:
    """Bytes of each device that weights, adapter and a micro-batch take: of training, or of sampling."""
    sizes, item_bytes = config.method.model_sizes, _ITEM_BYTES[dtype]
    length = config.method.max_prompt_tokens + config.method.max_example_tokens
    weights = sizes.num_parameters * item_bytes
    together = -(-config.method.resolved_micro_batch_size // devices)
    sampling = together * length * sizes.cache_bytes_per_token(item_bytes)
    if config.method.adapter is not None:
        return weights + sampling
    return weights + max(trained_memory(config, devices) + _kept_memory(config, devices), sampling)


def _kept_memory(config: Config, devices: int) -> int:
    """Bytes of what layers compute of a device's units and the way back reads again."""
    sizes, own = config.method.model_sizes, config.method
    texts = config.budget.examples_per_context * own.max_example_tokens
    units, ways = _units_of_device(config, devices), 1 + _wrong_prompts(config)
    tokens = units * ways * (own.max_prompt_tokens + texts)
    labels = len(config.input.label_values)
    if shares_instructions(labels, ways, mechanism.units_together(config)):
        # Of more instructions than the micro-batch has.
        tokens += max(0, labels - units * ways) * own.max_prompt_tokens
    length = own.max_prompt_tokens + own.max_example_tokens
    return sizes.gradient_bytes(tokens, length, remat=own.remat)


def trained_memory(config: Config, devices: int = 1) -> int:
    """Bytes that a device holds for all that is trained, a gradient of each of its units among them."""
    sizes = config.method.model_sizes
    numbers = sizes.adapter_parameters(config.method.resolved_lora_rank)
    # The embedding has a gradient as the input and one as the output layer.
    of_unit = numbers + (sizes.num_embed * sizes.embed_dim if config.method.full else 0)
    # Itself, two moments of Adam, and a sum and its noise, which have two limbs each.
    return 4 * (7 * numbers + _units_of_device(config, devices) * of_unit)


def _units_of_device(config: Config, devices: int) -> int:
    return -(-mechanism.units_together(config) // devices)


def _wrong_prompts(config: Config) -> int:
    return (
        min(config.method.wrong_prompts, len(config.input.label_values) - 1)
        if config.method.mismatch_weight
        else 0
    )
