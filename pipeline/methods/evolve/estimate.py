"""How long a run of votes on texts would take on a device of known rates, and how much memory."""

import dataclasses

from models.decoders.device import Dtype
from pipeline.calibration import Calibration
from pipeline.methods.evolve.refine_settings import RefineSettings
from pipeline.methods.evolve.run import VotingRun
from pipeline.methods.evolve.settings import EvolveSettings

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}
# Seconds of one core for a text of some forty words, measured by tests/benchmarks/embedding_benchmark.py. A
# folder of weights is taken for MiniLM.
EMBEDDING_SECONDS = {'tfidf': 0.0004, 'minilm': 0.012}
_OTHER_EMBEDDER = 'minilm'


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvolutionEstimate:
    """How long one device would sample, and one core embed. All fields are public.

    Loading the model, compiling and reading records come on top.

    Attributes:
        device: Whose rates they are.
        dtype: Type of the weights.
        measured_on: ISO date of this machine's calibration; None for reference rates, which are of
            another machine.
        embedding_hours: All records, once.
        sampling_hours: All texts, up to their length cap; None of an endpoint, whose pace is not known here.
        memory_bytes: What weights and the texts of a batch take at the least.
    """

    device: str
    dtype: Dtype
    measured_on: str | None
    embedding_hours: float
    sampling_hours: float | None
    memory_bytes: int


def estimate(run: VotingRun, own: EvolveSettings, calibration: Calibration) -> EvolutionEstimate:
    """How long sampling and embedding would take on a device of these rates.

    Args:
        run: The run.
        own: Its settings.
        calibration: The rates.
    """
    sizes, rates = own.model_sizes, calibration.rates
    item_bytes, rows = _ITEM_BYTES[calibration.dtype], own.resolved_micro_batch_size
    records = run.input.sampled_records or 0.0
    length = own.max_prompt_tokens + own.max_example_tokens
    embedder = own.resolved_embedder
    if embedder == 'decoder':
        of_record = sizes.prompt_flops(own.max_prompt_tokens) / rates.prompt_flops
    else:
        of_record = EMBEDDING_SECONDS.get(embedder, EMBEDDING_SECONDS[_OTHER_EMBEDDER])
    weights = sizes.layer_parameters
    token = max(2 * weights * rows / rates.step_flops, weights * item_bytes / rates.weight_bytes)
    token += rows * length * sizes.cache_bytes_per_token(item_bytes) / rates.cache_bytes
    token += 2 * sizes.num_embed * sizes.embed_dim * rows / rates.output_flops
    texts = run.sampled_texts
    of_text = own.max_example_tokens * token / rows
    of_text += sizes.prompt_flops(own.max_prompt_tokens) / rates.prompt_flops
    return EvolutionEstimate(
        device=calibration.device,
        dtype=calibration.dtype,
        measured_on=calibration.measured_on,
        embedding_hours=records * run.budget.examples_per_context * of_record / 3600,
        sampling_hours=None if own.endpoint is not None else texts * of_text / 3600,
        memory_bytes=needed_memory(own, calibration.dtype),
    )


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
