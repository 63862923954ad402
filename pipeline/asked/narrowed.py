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
    """The config of a run of one method.

    Args:
        name: The method.
        path: A TOML file, or None. It may name the method too.
        settings: Values by names of the method's settings, which win.

    Raises:
        Exception: See `read_config`.
    """
    return read_config(path, {**settings, METHOD: name}, settings_of(name))


def training(path: str | None, settings: Mapping[str, Any]) -> JobConfig:
    """The config of a run that trains an adapter and samples no text.

    Args:
        path: A TOML file, or None. It may name the method too, so that `plan` can have the same file.
        settings: Values by names of `TRAINING`, which win.

    Raises:
        Exception: See `read_config`.
    """
    chosen = {**settings, METHOD: fine_tune.NAME, **fine_tune.NO_TEXTS}
    return read_config(path, chosen, (*TRAINING, METHOD))


def refining(corpus: str, path: str | None, settings: Mapping[str, Any]) -> JobConfig:
    """The config of a run that refines a corpus.

    Args:
        corpus: Folder of a finished run, or files of texts.
        path: A TOML file, or None. It may name the method too.
        settings: Values by names of `REFINING`, which win.

    Raises:
        Exception: See `read_config`.
    """
    return read_config(path, {**settings, METHOD: evolve.REFINE, 'corpus': corpus}, (*REFINING, METHOD))
