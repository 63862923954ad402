"""The types of keyword arguments, one for each flag: from `python -m dp_corpus.generated`."""

import os
from collections.abc import Sequence
from typing import Literal, TypedDict


class RunSettings(TypedDict, total=False):
    """The settings of `plan` and `generate`."""

    input: str | os.PathLike[str] | None
    query: str | os.PathLike[str] | None
    partition_column: str | None
    sheet: str | None
    split: str | None
    delimiter: str | None
    encoding: Literal['utf-8', 'utf-16', 'utf-16-le', 'utf-16-be', 'windows-1250', 'windows-1251', 'windows-1252', 'windows-1253', 'windows-1254', 'iso-8859-1', 'iso-8859-2', 'iso-8859-15', 'shift-jis', 'euc-kr', 'big5', 'gb18030'] | None
    quoting: Literal['double', 'backslash', 'none'] | None
    text_field: str | None
    label_field: str | None
    labels: Sequence[str] | None
    attributes: Sequence[str] | None
    unit_field: str | None
    record_id_field: str | None
    records: int | None
    sample_rate: float | None
    max_record_bytes: int | None
    keep_rejected: bool | None
    unit: Literal['example', 'user'] | None
    examples_per_context: int | None
    epsilon: float | None
    delta: float | None
    dataset: str | None
    ledger: str | os.PathLike[str] | None
    method: Literal['predict', 'fine-tune', 'evolve', 'refine'] | None
    batch_size: int | None
    aggregate: Literal['mean', 'median', 'difference'] | None
    clip_bound: float | None
    temperature: float | None
    threshold: float | None
    threshold_noise_scale: float | None
    accounting: Literal['individual', 'worst-case'] | None
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
    centers: str | os.PathLike[str] | None
    embedder: str | os.PathLike[str] | None
    reference: str | os.PathLike[str] | None
    reference_label_field: str | None
    reference_size: int | None
    reference_rounds: int | None
    prompt: str | os.PathLike[str] | None
    label_name: str | None
    text_name: str | None
    corpus_description: str | None
    schema: str | os.PathLike[str] | None
    typical_words: int | None
    max_prompt_tokens: int | None
    max_example_tokens: int | None
    min_example_tokens: int | None
    json_schema: str | os.PathLike[str] | None
    regex: str | None
    fixed: Sequence[str] | None
    close_truncated: bool | None
    condition_on: Sequence[str] | None
    condition_rho: float | None
    model: str | None
    checkpoint: str | os.PathLike[str] | None
    tokenizer: str | os.PathLike[str] | None
    dtype: Literal['auto', 'float32', 'bfloat16'] | None
    micro_batch_size: int | None
    adapter: str | os.PathLike[str] | None
    tuning_steps: int | None
    expected_batch_size: int | None
    clip_norm: float | None
    noise_multiplier: float | None
    lora_rank: int | None
    full: bool | None
    remat: bool | None
    learning_rate: float | None
    warm_start: str | os.PathLike[str] | None
    warm_steps: int | None
    warm_learning_rate: float | None
    mismatch_weight: float | None
    wrong_prompts: int | None
    mismatch_every: int | None
    examples_per_label: int | None
    label_mix: Sequence[str] | None
    label_mix_rho: float | None
    top_p: float | None
    top_k: int | None
    rounds: int | None
    candidates: int | None
    children: int | None
    unvoted: int | None
    fresh_share: float | None
    shots: int | None
    start: str | os.PathLike[str] | None
    nearest: int | None
    vote_noise: float | None
    form_share: float | None
    endpoint: str | os.PathLike[str] | None
    endpoint_model: str | None
    endpoint_requests: int | None
    endpoint_token: str | None
    corpus: str | os.PathLike[str] | None
    keep: int | None
    output: str | os.PathLike[str] | None
    work_dir: str | os.PathLike[str] | None
    run_id: str | None
    shards: int | None
    runner: str | None
    accelerator: str | None


class TrainingSettings(TypedDict, total=False):
    """The settings of `fine_tune`."""

    input: str | os.PathLike[str] | None
    query: str | os.PathLike[str] | None
    partition_column: str | None
    sheet: str | None
    split: str | None
    delimiter: str | None
    encoding: Literal['utf-8', 'utf-16', 'utf-16-le', 'utf-16-be', 'windows-1250', 'windows-1251', 'windows-1252', 'windows-1253', 'windows-1254', 'iso-8859-1', 'iso-8859-2', 'iso-8859-15', 'shift-jis', 'euc-kr', 'big5', 'gb18030'] | None
    quoting: Literal['double', 'backslash', 'none'] | None
    text_field: str | None
    label_field: str | None
    labels: Sequence[str] | None
    attributes: Sequence[str] | None
    unit_field: str | None
    record_id_field: str | None
    records: int | None
    sample_rate: float | None
    max_record_bytes: int | None
    keep_rejected: bool | None
    unit: Literal['example', 'user'] | None
    examples_per_context: int | None
    epsilon: float | None
    delta: float | None
    dataset: str | None
    ledger: str | os.PathLike[str] | None
    prompt: str | os.PathLike[str] | None
    label_name: str | None
    text_name: str | None
    corpus_description: str | None
    schema: str | os.PathLike[str] | None
    typical_words: int | None
    max_prompt_tokens: int | None
    max_example_tokens: int | None
    json_schema: str | os.PathLike[str] | None
    regex: str | None
    model: str | None
    checkpoint: str | os.PathLike[str] | None
    tokenizer: str | os.PathLike[str] | None
    dtype: Literal['auto', 'float32', 'bfloat16'] | None
    micro_batch_size: int | None
    tuning_steps: int | None
    expected_batch_size: int | None
    clip_norm: float | None
    noise_multiplier: float | None
    lora_rank: int | None
    full: bool | None
    remat: bool | None
    learning_rate: float | None
    warm_start: str | os.PathLike[str] | None
    warm_steps: int | None
    warm_learning_rate: float | None
    mismatch_weight: float | None
    wrong_prompts: int | None
    mismatch_every: int | None
    label_mix_rho: float | None
    output: str | os.PathLike[str] | None
    work_dir: str | os.PathLike[str] | None
    run_id: str | None
    runner: str | None
    accelerator: str | None


class RefineSettings(TypedDict, total=False):
    """The settings of `refine`."""

    input: str | os.PathLike[str] | None
    query: str | os.PathLike[str] | None
    partition_column: str | None
    sheet: str | None
    split: str | None
    delimiter: str | None
    encoding: Literal['utf-8', 'utf-16', 'utf-16-le', 'utf-16-be', 'windows-1250', 'windows-1251', 'windows-1252', 'windows-1253', 'windows-1254', 'iso-8859-1', 'iso-8859-2', 'iso-8859-15', 'shift-jis', 'euc-kr', 'big5', 'gb18030'] | None
    quoting: Literal['double', 'backslash', 'none'] | None
    text_field: str | None
    label_field: str | None
    labels: Sequence[str] | None
    attributes: Sequence[str] | None
    unit_field: str | None
    record_id_field: str | None
    records: int | None
    sample_rate: float | None
    max_record_bytes: int | None
    keep_rejected: bool | None
    unit: Literal['example', 'user'] | None
    examples_per_context: int | None
    epsilon: float | None
    delta: float | None
    dataset: str | None
    ledger: str | os.PathLike[str] | None
    embedder: str | os.PathLike[str] | None
    model: str | None
    checkpoint: str | os.PathLike[str] | None
    tokenizer: str | os.PathLike[str] | None
    dtype: Literal['auto', 'float32', 'bfloat16'] | None
    micro_batch_size: int | None
    nearest: int | None
    vote_noise: float | None
    form_share: float | None
    keep: int | None
    output: str | os.PathLike[str] | None
    work_dir: str | os.PathLike[str] | None
    run_id: str | None
    shards: int | None
    runner: str | None
    accelerator: str | None


class EvaluationSettings(TypedDict, total=False):
    """The settings of `evaluate`."""

    output: str | os.PathLike[str] | None
    also: Sequence[str] | None
    name: str | None
    records: str | os.PathLike[str] | None
    test: str | os.PathLike[str] | None
    public: str | os.PathLike[str] | None
    delimiter: str | None
    encoding: Literal['utf-8', 'utf-16', 'utf-16-le', 'utf-16-be', 'windows-1250', 'windows-1251', 'windows-1252', 'windows-1253', 'windows-1254', 'iso-8859-1', 'iso-8859-2', 'iso-8859-15', 'shift-jis', 'euc-kr', 'big5', 'gb18030'] | None
    quoting: Literal['double', 'backslash', 'none'] | None
    text_field: str | None
    label_field: str | None
    attributes: str | None
    unit_field: str | None
    embedder: str | None
    embedder_model: str | None
    only: str | None
    json_schema: str | os.PathLike[str] | None
    in_context_model: str | None
    checkpoint: str | None
    tokenizer: str | None
    dtype: Literal['auto', 'float32', 'bfloat16'] | None
    in_context_labels: str | None
    in_context_examples: int | None
    in_context_orders: int | None
    in_context_texts: int | None
    seed: int | None
