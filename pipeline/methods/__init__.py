"""The one table of methods: what makes a corpus from records. Each is a folder, and one line here."""

import dataclasses
from typing import Any

from pipeline.methods.evolve.method import Evolution, Refine
from pipeline.methods.fine_tune.method import FineTuning
from pipeline.methods.method import Method
from pipeline.methods.predict.method import PrivatePrediction
from pipeline.methods.solved import Run
from pipeline.methods.tune_refine.method import TuneRefine
from pipeline.settings.job_config import JobConfig
from pipeline.settings.model import Model
from transforms.places import split_patterns, with_absolute_path

METHODS: dict[str, Method[Any, Any]] = {}


def register(method: Method[Any, Any]) -> None:
    """Adds a method, whose name has to be new."""
    if method.name in METHODS:
        raise ValueError(
            f'Expected a new name, got name={method.name!r}, which is taken. Give the method another one.'
        )
    METHODS[method.name] = method


def of(run: Run[Any] | JobConfig[Any]) -> Method[Any, Any]:
    """The method of a run."""
    return METHODS[run.method.name]


def solve(config: JobConfig[Any], *, launch: bool = False) -> Any:
    """The run of a config: everything that follows from it, found once and passed down whole.

    Args:
        config: The settings that were asked for.
        launch: True if this machine launches the run. It then decides the type of weights once for all
            workers, which may be of several kinds: a batch that is decoded again has to be the same
            (METHOD 7). And paths become absolute, since workers have another working directory.

    Raises:
        ValueError: Settings that do not fit, or a budget that nothing gives.
        FileNotFoundError: An earlier release that the run builds on is not there.
    """
    if launch:
        config = _with_absolute_paths(config)
        if isinstance(config.method, Model) and config.method.dtype == 'auto':
            config = config.replace(dtype=config.method.fastest_dtype())
    return of(config).solve(config)


def _with_absolute_paths(config: JobConfig[Any]) -> JobConfig[Any]:
    changed: dict[str, Any] = {}
    if config.output.output is not None:
        changed = {'run_id': config.output.name, 'work_dir': _absolute(config.output.curator)}
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
    # Beam takes a second to load, and a launch alone needs it.
    from transforms.durable import is_local

    return with_absolute_path(path, is_local=is_local(path))


register(PrivatePrediction())
register(FineTuning())
register(TuneRefine())
register(Evolution())
register(Refine())
