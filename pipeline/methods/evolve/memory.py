"""The memory that a run of votes on texts needs at the least."""

from models.decoders.device import Dtype
from pipeline.methods.evolve.refine_settings import RefineSettings
from pipeline.methods.evolve.settings import EvolveSettings

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}


def needed_memory(own: EvolveSettings | RefineSettings, dtype: Dtype) -> int:
    """Bytes that weights and the texts of a batch take at the least."""
    item_bytes, embeds = _ITEM_BYTES[dtype], own.resolved_embedder == 'decoder'
    if isinstance(own, RefineSettings):
        return own.model_sizes.num_parameters * item_bytes if embeds else 0
    if own.endpoint is not None and not embeds:
        return 0
    length = own.max_prompt_tokens + own.max_example_tokens
    cache = own.resolved_micro_batch_size * length * own.model_sizes.cache_bytes_per_token(item_bytes)
    return own.model_sizes.num_parameters * item_bytes + cache
