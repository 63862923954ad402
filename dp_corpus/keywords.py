"""The types of keyword arguments, one for each flag: from `python -m dp_corpus.generated`."""

import os
import typing
from collections.abc import Sequence

type Place = str | os.PathLike[str]


class _GenerateFineTuneRefine(typing.TypedDict, total=False):
    input: Place | None
    query: Place | None
    partition_column: str | None
    sheet: str | None
    split: str | None
    labels: Sequence[str] | None
    record_id_field: str | None
    records: int | None
    sample_rate: float | None
    max_record_bytes: int | None
    keep_rejected: bool | None
    unit: typing.Literal['example', 'user'] | None
    examples_per_context: int | None
    epsilon: float | None
    delta: float | None
    dataset: str | None
    ledger: Place | None
    model: str | None
    micro_batch_size: int | None
    work_dir: Place | None
    run_id: str | None
    runner: str | None
    accelerator: str | None
    compilation_cache: Place | None
    device_hour_price: float | None


class _GenerateFineTuneRefineEvaluate(typing.TypedDict, total=False):
    delimiter: str | None
    encoding: typing.Literal['utf-8', 'utf-16', 'utf-16-le', 'utf-16-be', 'windows-1250', 'windows-1251', 'windows-1252', 'windows-1253', 'windows-1254', 'iso-8859-1', 'iso-8859-2', 'iso-8859-15', 'shift-jis', 'euc-kr', 'big5', 'gb18030'] | None
    quoting: typing.Literal['double', 'backslash', 'none'] | None
    text_field: str | None
    label_field: str | None
    attributes: Sequence[str] | None
    unit_field: str | None
    checkpoint: Place | None
    tokenizer: Place | None
    dtype: typing.Literal['auto', 'float32', 'bfloat16'] | None
    output: Place | None


class _Generate(typing.TypedDict, total=False):
    method: typing.Literal['predict', 'fine-tune', 'tune-refine', 'evolve', 'refine'] | None
    batch_size: int | None
    aggregate: typing.Literal['mean', 'median', 'difference'] | None
    clip_bound: float | None
    temperature: float | None
    threshold: float | None
    threshold_noise_scale: float | None
    accounting: typing.Literal['individual', 'worst-case'] | None
    max_private_tokens: int | None
    context_budget: float | None
    omega: float | None
    shift_bound: float | None
    batches_per_label: int | None
    count_rho: float | None
    public_temperature: float | None
    public_top_k: int | None
    examples: int | None
    max_batch_tokens: int | None
    clusters: int | None
    clustering_rho: float | None
    centers: Place | None
    reference: Place | None
    reference_label_field: str | None
    reference_size: int | None
    reference_rounds: int | None
    min_example_tokens: int | None
    fixed: Sequence[str] | None
    close_truncated: bool | None
    condition_on: Sequence[str] | None
    condition_rho: float | None
    adapter: Place | None
    examples_per_label: int | None
    label_mix: Sequence[str] | None
    top_p: float | None
    top_k: int | None
    candidates: int | None
    vote_share: float | None
    any_text: bool | None
    rounds: int | None
    children: int | None
    unvoted: int | None
    fresh_share: float | None
    shots: int | None
    start: Place | None
    endpoint: Place | None
    endpoint_model: str | None
    endpoint_requests: int | None
    endpoint_token: str | None
    corpus: Place | None


class _GenerateRefineEvaluate(typing.TypedDict, total=False):
    embedder: Place | None


class _GenerateFineTune(typing.TypedDict, total=False):
    prompt: Place | None
    label_name: str | None
    text_name: str | None
    corpus_description: str | None
    schema: Place | None
    typical_words: int | None
    max_prompt_tokens: int | None
    max_example_tokens: int | None
    regex: str | None
    tuning_steps: int | None
    expected_batch_size: int | None
    clip_norm: float | None
    noise_multiplier: float | None
    lora_rank: int | None
    full: bool | None
    remat: bool | None
    learning_rate: float | None
    warm_start: Place | None
    warm_steps: int | None
    warm_learning_rate: float | None
    mismatch_weight: float | None
    wrong_prompts: int | None
    mismatch_every: int | None
    label_mix_rho: float | None


class _GenerateFineTuneEvaluate(typing.TypedDict, total=False):
    json_schema: Place | None


class _GenerateRefine(typing.TypedDict, total=False):
    nearest: int | None
    form_share: float | None
    vote_noise: float | None
    keep: int | None
    shards: int | None


class _Evaluate(typing.TypedDict, total=False):
    also: Sequence[str] | None
    name: str | None
    records: Place | None
    test: Place | None
    public: Place | None
    embedder_model: str | None
    only: Sequence[str] | None
    in_context_model: str | None
    in_context_labels: Sequence[str] | None
    in_context_examples: int | None
    in_context_orders: int | None
    in_context_texts: int | None
    seed: int | None


class RunSettings(_GenerateFineTuneRefine, _GenerateFineTuneRefineEvaluate, _Generate, _GenerateRefineEvaluate, _GenerateFineTune, _GenerateFineTuneEvaluate, _GenerateRefine):
    """The settings of `generate`."""


class TrainingSettings(_GenerateFineTuneRefine, _GenerateFineTuneRefineEvaluate, _GenerateFineTune, _GenerateFineTuneEvaluate):
    """The settings of `fine_tune`."""


class RefineSettings(_GenerateFineTuneRefine, _GenerateFineTuneRefineEvaluate, _GenerateRefineEvaluate, _GenerateRefine):
    """The settings of `refine`."""


class EvaluationSettings(_GenerateFineTuneRefineEvaluate, _GenerateRefineEvaluate, _GenerateFineTuneEvaluate, _Evaluate):
    """The settings of `evaluate`."""
