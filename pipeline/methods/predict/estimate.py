"""How many tokens a run of private prediction decodes, and in how much memory."""

from models.decoders.device import Dtype
from pipeline.methods.predict import mechanism
from pipeline.methods.predict.batches import expected_batches
from pipeline.methods.predict.mechanism import Config

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}


def decoded_tokens(config: Config) -> int:
    """Tokens of all rows up to their cap, with their prompts; 0 where the number of batches is not known."""
    params = mechanism.params(config)
    of_row = config.method.max_prompt_tokens + params.max_batch_tokens
    return (expected_batches(config) or 0) * params.batch_size * of_row


def needed_memory(config: Config, dtype: Dtype, devices: int = 1) -> int:
    """Bytes of each device that weights and the caches of a batch of s contexts take at the least.

    Args:
        config: The run.
        dtype: Type of weights and caches.
        devices: How many share the rows of a batch.
    """
    sizes, item_bytes = config.method.model_sizes, _ITEM_BYTES[dtype]
    slots = config.method.max_prompt_tokens + config.method.max_example_tokens
    cache = config.method.batch_size * slots * sizes.cache_bytes_per_token(item_bytes)
    return sizes.num_parameters * item_bytes + cache // devices
