"""How long a run of private prediction would decode on a device of known rates, and in how much memory."""

import dataclasses

from models.decoders import family
from models.decoders.device import Dtype
from models.privacy import candidates
from pipeline.calibration import Calibration
from pipeline.methods.predict.run import PredictionRun
from pipeline.methods.predict.settings import PredictSettings

_ITEM_BYTES: dict[Dtype, int] = {'float32': 4, 'bfloat16': 2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingEstimate:
    """How long one device would decode, from its rates. All fields are public.

    Loading the model, compiling and reading records come on top. What a median or the sparse vector
    computes beside the votes is left out.

    Attributes:
        device: Whose rates they are.
        dtype: Type of weights and products.
        measured_on: ISO date of this machine's calibration; None for reference rates, which are of
            another machine.
        prompts_seconds: Reading the prompts of one batch.
        seconds_per_step: One token of one batch.
        hours: All batches up to the cap on all tokens; None where their number is not declared.
        memory_bytes: What weights and the caches of a full batch take on the device at the least.
    """

    device: str
    dtype: Dtype
    measured_on: str | None
    prompts_seconds: float
    seconds_per_step: float
    hours: float | None
    memory_bytes: int


def estimate_decoding(run: PredictionRun, calibration: Calibration) -> DecodingEstimate:
    """How long decoding would take on a device of these rates.

    Every full batch is taken to fill its micro-batches, as it does: rows of padding are computed too.
    A step reads each layer's weights or multiplies them by its rows, whichever takes longer, then reads
    the whole cache.
    """
    own, params = run.method, run.params
    sizes, rates = own.model_sizes, calibration.rates
    item_bytes = _ITEM_BYTES[calibration.dtype]
    part = -(-own.resolved_micro_batch_size // family.ROWS_MULTIPLE) * family.ROWS_MULTIPLE
    parts = -(-params.batch_size // part)
    rows = part * parts
    # In whole blocks of their own; read once for many batches of a label.
    public_rows = -(-_public_rows(run) // family.ROWS_MULTIPLE) * family.ROWS_MULTIPLE
    weights = sizes.layer_parameters

    def through_layers(rows: int) -> float:
        return max(2 * weights * rows / rates.step_flops, weights * item_bytes / rates.weight_bytes)

    layers = parts * through_layers(part) + (through_layers(public_rows) if public_rows else 0.0)
    slots = own.max_prompt_tokens + own.max_example_tokens
    cache = (rows + public_rows) * slots * sizes.cache_bytes_per_token(item_bytes) / rates.cache_bytes
    embedding, columns = sizes.num_embed * sizes.embed_dim, sizes.num_embed
    public_row, output_rows = 0.0, rows + public_rows
    if params.public_top_k is not None and not params.uses_sparse_vector:
        # Public rows choose the columns of all others.
        columns = candidates.count(params.public_top_k, columns)
        public_row = embedding * item_bytes / rates.weight_bytes + sizes.num_embed / rates.ranked_logits
        output_rows = rows
    output = 2 * columns * sizes.embed_dim * output_rows / rates.output_flops
    prompts = rows * sizes.prompt_flops(own.max_prompt_tokens) / rates.prompt_flops
    step = layers + cache + public_row + output
    batches = run.expected_batches
    # With the sparse vector the number of public tokens is not known in advance; the cap on
    # all tokens bounds it.
    seconds = prompts + params.max_batch_tokens * step
    return DecodingEstimate(
        device=calibration.device,
        dtype=calibration.dtype,
        measured_on=calibration.measured_on,
        prompts_seconds=prompts,
        seconds_per_step=step,
        hours=None if batches is None else batches * seconds / 3600,
        memory_bytes=needed_memory(own, calibration.dtype),
    )


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


def _public_rows(run: PredictionRun) -> int:
    """Rows of the public prompt, or of the reference once there is one."""
    own = run.method
    if not run.params.needs_public_logits:
        return 0
    has_reference = own.reference is not None or own.resolved_reference_rounds == 2
    return own.reference_size if has_reference else 1
