"""The config as the machine that launches a run fixes it: workers have other folders, and other devices."""

import dataclasses
from typing import Any

from pipeline import methods
from pipeline.settings.job_config import JobConfig
from pipeline.settings.model import Model
from transforms.durable import is_local
from transforms.places import split_patterns, with_absolute_path


def with_absolute_paths(config: JobConfig) -> JobConfig:
    """The config with its local paths made absolute: workers have another working directory."""
    changed: dict[str, Any] = {
        'run_id': config.output.resolved_run_id,
        'work_dir': _absolute(config.output.resolved_work_dir),
    }
    for panel in (config.input, config.output, config.method):
        for field in dataclasses.fields(panel):
            value, kind = getattr(panel, field.name), field.metadata['path']
            if kind is None or value is None or value in field.metadata['presets']:
                continue
            if kind == 'patterns':
                changed[field.name] = ','.join(map(_absolute, split_patterns(value)))
            else:
                changed[field.name] = _absolute(value)
    return config.replace(**changed)


def _absolute(path: str) -> str:
    return with_absolute_path(path, is_local=is_local(path))


def with_dtype(config: JobConfig) -> JobConfig:
    """The config with the type that 'auto' stands for, decided once, where the run is launched.

    Workers may be of several kinds, and a batch that is decoded again has to be the same (METHOD 7).
    """
    if not isinstance(config.method, Model) or config.method.dtype != 'auto':
        return config
    return config.replace(dtype=methods.of(config).dtype(config))
