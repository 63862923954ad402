"""What each part of the graph is built from, as the config says it."""

import dataclasses
import os
import pathlib
from typing import Any

from apache_beam.io.filesystems import FileSystems

from models.assembly import GeneratorSettings
from models.batching import BatchPlan
from models.clustering.centers import ClusterSettings
from models.decoders import device, family
from models.prompts import PRESETS, PromptWriter, read_template
from pipeline.config import EMBEDDERS, JobConfig
from pipeline.run.reference import read_reference
from transforms.durable import is_local
from transforms.read import Dialect, RecordFields, RecordRules, split_patterns

# A token of any vocabulary stands for fewer characters than this, but for runs of spaces.
CHARACTERS_PER_TOKEN = 32


def with_absolute_paths(config: JobConfig) -> JobConfig:
    """The config with its local paths made absolute: workers have another working directory."""

    def absolute(path: str) -> str:
        return os.path.abspath(path) if is_local(path) else path

    changed: dict[str, Any] = {
        'run_id': config.resolved_run_id,
        'work_dir': absolute(config.resolved_work_dir),
    }
    for name in (
        'output', 'checkpoint', 'tokenizer', 'schema', 'json_schema', 'grammar', 'centers', 'adapter',
    ):  # fmt: skip
        if (path := getattr(config, name)) is not None:
            changed[name] = absolute(path)
    for name in ('input', 'reference'):
        if (patterns := getattr(config, name)) is not None:
            changed[name] = ','.join(absolute(pattern) for pattern in split_patterns(patterns))
    if config.resolved_prompt not in PRESETS:
        changed['prompt'] = absolute(config.resolved_prompt)
    if config.embedder is not None and config.embedder not in EMBEDDERS:
        changed['embedder'] = absolute(config.embedder)
    return dataclasses.replace(config, **changed)


def with_dtype(config: JobConfig) -> JobConfig:
    """The config with the type that 'auto' stands for, decided once, where the run is launched.

    Workers may be of several kinds, and a batch that is decoded again has to be the same (METHOD 7).
    """
    if config.dtype != 'auto':
        return config
    # Centres are of one type, whatever machine embeds the records.
    embeds = config.clusters is not None and config.resolved_embedder == 'decoder'
    if embeds or (config.strategy.takes_reference and device.platform_here() == 'cpu'):
        return dataclasses.replace(config, dtype='float32')
    return dataclasses.replace(config, dtype=device.fastest_dtype())


def record_rules(config: JobConfig) -> RecordRules:
    """What makes a row of the input a record."""
    fields = RecordFields(
        text=config.text_field,
        label=config.label_field,
        attributes=config.attributes,
        unit=config.unit_field,
        record_id=config.record_id_field,
        dialect=Dialect(delimiter=config.resolved_delimiter, encoding=config.encoding),
    )
    labels = tuple(label for label in config.label_values if label is not None)
    return RecordRules(
        fields=fields, labels=labels or None, unit=config.unit, max_record_bytes=config.max_record_bytes
    )


def text_limit(config: JobConfig) -> int:
    """Characters of a text that any prompt could use."""
    return config.max_prompt_tokens * CHARACTERS_PER_TOKEN


def configured_plan(config: JobConfig) -> BatchPlan:
    """The plan where the config gives the batches: public, and free, or paid for by an adapter before."""
    from pipeline import fine_tuning

    assert config.configured_batches is not None
    labels, released = config.label_values, fine_tuning.released_counts(config)
    rho = None if released is None else fine_tuning.params(config).label_mix_rho
    return BatchPlan(
        labels=labels,
        batches_per_group=config.configured_batches,
        noisy_counts=released,
        contexts_rho=rho or 0.0,
    )


def generator_settings(config: JobConfig) -> GeneratorSettings:
    """What workers build their generator from; checks model and adapter, and reads the reference."""
    from pipeline import fine_tuning

    settings = GeneratorSettings(
        run_id=config.resolved_run_id,
        params=config.params(),
        **model_settings(config),
        micro_batch_size=config.resolved_micro_batch_size,
        label_words=tuple(config.label_words.items()),
        reference=read_reference(config, text_limit(config)),
        adapter=fine_tuning.released_adapter(config),
        **prompt_settings(config),
    )
    return settings


def model_settings(config: JobConfig) -> dict[str, Any]:
    """The model, its files and its type; checks that the files are there and the model's."""
    config = with_dtype(config)
    family.family_of(config.model).check_files(config.model, config.model_files)
    for name, path in (('checkpoint', config.checkpoint_path), ('tokenizer', config.tokenizer_path)):
        if not FileSystems.exists(str(path)) and not path.exists():
            raise FileNotFoundError(f'Expected the model at {name}={str(path)!r}, which is not there.')
    return {
        'model': config.model,
        'checkpoint': str(config.checkpoint_path),
        'tokenizer': str(config.tokenizer_path),
        'dtype': config.dtype,
    }


def prompt_writer(config: JobConfig) -> PromptWriter:
    """What writes a run's prompts, without the rest of its generator."""
    if not FileSystems.exists(str(config.tokenizer_path)) and not config.tokenizer_path.exists():
        raise FileNotFoundError(
            f'Expected the model at tokenizer={str(config.tokenizer_path)!r}, which is not there.'
        )
    return PromptWriter(
        tokenizer=family.family_of(config.model).load_tokenizer(config.model, str(config.tokenizer_path)),
        label_words=config.label_words,
        **prompt_settings(config),
    )


def prompt_settings(config: JobConfig) -> dict[str, Any]:
    """What prompts are written from."""
    return {
        'max_prompt_tokens': config.max_prompt_tokens,
        'template': read_template(config.resolved_prompt),
        'label_name': config.label_name,
        'attributes': config.label_attributes,
        'text_name': config.text_name,
        'corpus_description': config.corpus_description,
        'schema': _schema_text(config),
        'structure': config.structure,
    }


def _schema_text(config: JobConfig) -> str | None:
    """What stands for {schema} in a prompt."""
    structure = config.structure
    if structure is not None and (written := structure.json_schema or structure.grammar) is not None:
        return written
    return pathlib.Path(config.schema).read_text(encoding='utf-8').strip() if config.schema else None


def cluster_settings(config: JobConfig) -> ClusterSettings:
    """What workers build their clusterer from."""
    config = with_dtype(config)
    model: dict[str, Any] = {}
    if config.resolved_embedder == 'decoder':
        model = {
            'model': config.model,
            'checkpoint': str(config.checkpoint_path),
            'tokenizer': str(config.tokenizer_path),
            'dtype': config.dtype,
        }
    return ClusterSettings(centers=str(config.centers_path), embedder=config.resolved_embedder, **model)
