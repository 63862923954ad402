"""Runs that are asked for with fewer settings than `generate` has: of one method, or of a part of it."""

from collections.abc import Collection, Mapping
from typing import Any

from pipeline.asked.config import METHOD, Setting, read_config, settings_of
from pipeline.methods.evolve import settings as evolve
from pipeline.methods.fine_tune import settings as fine_tune
from pipeline.methods.predict import settings as predict
from pipeline.methods.tune_refine import settings as tune_refine
from pipeline.settings.job_config import JobConfig


def _without(method: str, names: Collection[str] = ()) -> dict[str, Setting]:
    return {
        name: setting for name, setting in settings_of(method).items() if name != METHOD and name not in names
    }


PREDICTING = _without(predict.NAME)
EVOLVING = _without(evolve.NAME)
TRAINING = _without(fine_tune.NAME, fine_tune.OF_TEXTS)
TUNING_AND_VOTING = _without(tune_refine.NAME)
REFINING = _without(evolve.REFINE, ('corpus',))


def of_method(
    name: str, known: Mapping[str, Setting], path: str | None, settings: Mapping[str, Any], **decided: Any
) -> JobConfig:
    """The config of a run of one method: settings win over a TOML file, and `decided` over both.

    `known` are the settings that the file may hold, beside the method's name.
    """
    return read_config(path, {**settings, METHOD: name, **decided}, (*known, METHOD))


def training(path: str | None, settings: Mapping[str, Any]) -> JobConfig:
    """The config of a run that trains an adapter and samples no text."""
    return of_method(fine_tune.NAME, TRAINING, path, settings, **fine_tune.NO_TEXTS)


def refining(corpus: str, path: str | None, settings: Mapping[str, Any]) -> JobConfig:
    """The config of a run that refines a corpus: the folder of a finished run, or files of texts."""
    return of_method(evolve.REFINE, REFINING, path, settings, corpus=corpus)
