"""The memory that a run of private prediction needs at the least."""

from models.decoders.device import Dtype
from pipeline.methods.predict.settings import PredictSettings

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}


def needed_memory(own: PredictSettings, dtype: Dtype, devices: int = 1) -> int:
    """Bytes of each device that weights and the caches of a batch of s contexts take at the least.

    Args:
        own: Settings of the run.
        dtype: Type of weights and caches.
        devices: How many share the rows of a batch.
    """
    sizes, item_bytes = own.model_sizes, _ITEM_BYTES[dtype]
    slots = own.max_prompt_tokens + own.max_example_tokens
    cache = own.batch_size * slots * sizes.cache_bytes_per_token(item_bytes)
    return sizes.num_parameters * item_bytes + cache // devices
