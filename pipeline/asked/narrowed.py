"""Runs that are asked for with fewer settings than `generate` has: of one method, or of a part of it."""

from collections.abc import Mapping
from typing import Any

from pipeline.asked.config import METHOD, read_config, settings_of
from pipeline.methods.evolve import settings as evolve
from pipeline.methods.fine_tune import settings as fine_tune
from pipeline.methods.predict import settings as predict
from pipeline.settings.job_config import JobConfig

PREDICTING = {name: setting for name, setting in settings_of(predict.NAME).items() if name != METHOD}
EVOLVING = {name: setting for name, setting in settings_of(evolve.NAME).items() if name != METHOD}
TRAINING = {
    name: setting
    for name, setting in settings_of(fine_tune.NAME).items()
    if name not in {*fine_tune.OF_TEXTS, METHOD}
}
REFINING = {
    name: setting for name, setting in settings_of(evolve.REFINE).items() if name not in {'corpus', METHOD}
}


def of_method(name: str, path: str | None, settings: Mapping[str, Any]) -> JobConfig:
    """The config of a run of one method. A TOML file may name the method too; settings win."""
    return read_config(path, {**settings, METHOD: name}, settings_of(name))


def training(path: str | None, settings: Mapping[str, Any]) -> JobConfig:
    """The config of a run that trains an adapter and samples no text, by names of `TRAINING`."""
    chosen = {**settings, METHOD: fine_tune.NAME, **fine_tune.NO_TEXTS}
    return read_config(path, chosen, (*TRAINING, METHOD))


def refining(corpus: str, path: str | None, settings: Mapping[str, Any]) -> JobConfig:
    """The config of a run that refines a corpus, by names of `REFINING`."""
    return read_config(path, {**settings, METHOD: evolve.REFINE, 'corpus': corpus}, (*REFINING, METHOD))
