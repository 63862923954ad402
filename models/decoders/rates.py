"""How fast a device decodes with a model, for estimates of a run's time. JAX is not imported."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """What one device does in a second, with a model's own dimensions and one type of weights.

    Arithmetic is counted in multiplications and additions, two for each weight and token.

    Attributes:
        prompt_flops: Of the layers, while prompts are read: a thousand tokens and more at a time.
        step_flops: Of the layers in a step: one token of some dozens of rows.
        output_flops: Of the output layer on some dozens of rows, with their votes.
        weight_bytes: Bytes of weights that are read where there is one row to multiply by them.
        cache_bytes: Bytes of keys and values that the attention of a step reads.
        ranked_logits: Logits of one row of which the highest are found.

    Raises:
        ValueError: A rate is not a positive, finite number.
    """

    prompt_flops: float
    step_flops: float
    output_flops: float
    weight_bytes: float
    cache_bytes: float
    ranked_logits: float

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            rate = getattr(self, field.name)
            if isinstance(rate, bool) or not isinstance(rate, int | float):
                raise ValueError(f'Expected a number, got {field.name}={rate!r}. Measure it.')
            if not (math.isfinite(rate) and rate > 0):
                raise ValueError(f'Expected a positive rate, got {field.name}={rate!r}. Measure it again.')
