"""The price and the size of a run, before anything is read or paid."""

import dataclasses
import json

from models.privacy import accounting
from pipeline.config import JobConfig

# Rough rates of two cores of a recent server CPU in float32: arithmetic, reading the
# cache, counting votes. They are chosen so that their sum is the step that
# `python -m tests.benchmarks.decoding_benchmark` measured (12.5 ms, embedded model),
# and not measured one by one.
CPU_FLOPS_PER_SECOND = 100e9
CPU_BYTES_PER_SECOND = 8e9
CPU_SECONDS_PER_LOGIT = 4e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a run would release and cost. All fields are public.

    Attributes:
        max_private_tokens: Cap r on private tokens of one batch.
        max_batch_tokens: Cap on all tokens of one batch.
        rho_per_private_token: zCDP cost of one private token.
        rho_counts: zCDP cost of the noisy counts; 0 where the batches are given.
        rho_total: zCDP cost of the run.
        epsilon: At `delta`, by the optimal-α bound.
        epsilon_closed_form: The weaker closed form, for comparison.
        delta: As given, or from the declared number of records.
        expected_batches: Planned batches; None where neither they nor the number of
            records is declared.
        expected_private_tokens: r times `expected_batches`.
        expected_cpu_hours: Decoding on two CPU cores, up to the cap on all tokens; a rough
            estimate from the model's size.
    """

    max_private_tokens: int
    max_batch_tokens: int
    rho_per_private_token: float
    rho_counts: float
    rho_total: float
    epsilon: float
    epsilon_closed_form: float
    delta: float
    expected_batches: int | None
    expected_private_tokens: int | None
    expected_cpu_hours: float | None

    def to_json(self) -> str:
        """The plan as one JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2)


def expected_batches(config: JobConfig) -> int | None:
    """Planned batches as far as public facts tell, None where they do not."""
    labels = len(config.label_values)
    if config.batches_per_label is not None:
        return config.batches_per_label * labels
    if config.records is None:
        return None
    per_batch = config.batch_size * (config.examples_per_context if config.unit == 'example' else 1)
    return max(labels, round(config.records / per_batch))


def seconds_per_step(config: JobConfig) -> float:
    """Estimated seconds of one decoding step of one batch on two CPU cores."""
    architecture = config.architecture
    rows = config.batch_size + 1
    length = config.max_prompt_tokens + config.max_example_tokens
    arithmetic = 2 * architecture.num_parameters * rows / CPU_FLOPS_PER_SECOND
    cache = rows * length * architecture.cache_bytes_per_token(4) / CPU_BYTES_PER_SECOND
    return arithmetic + cache + rows * architecture.num_embed * CPU_SECONDS_PER_LOGIT


def plan_run(config: JobConfig) -> RunPlan:
    """Prices a run from its config alone."""
    params = config.params()
    rho_counts = config.noisy_count_rho
    rho_total = rho_counts + accounting.generation_rho(params)
    batches = expected_batches(config)
    hours = None
    if batches is not None:
        # With the sparse vector the number of public tokens is not known in advance;
        # the cap on all tokens bounds it.
        hours = batches * params.max_batch_tokens * seconds_per_step(config) / 3600
    return RunPlan(
        max_private_tokens=params.max_private_tokens,
        max_batch_tokens=params.max_batch_tokens,
        rho_per_private_token=accounting.rho_per_private_token(params),
        rho_counts=rho_counts,
        rho_total=rho_total,
        epsilon=accounting.epsilon_from_rho(rho_total, config.resolved_delta),
        epsilon_closed_form=accounting.epsilon_closed_form(rho_total, config.resolved_delta),
        delta=config.resolved_delta,
        expected_batches=batches,
        expected_private_tokens=None if batches is None else batches * params.max_private_tokens,
        expected_cpu_hours=hours,
    )
