"""The one table of methods: what makes a corpus from records. Each is a folder, and one line here."""

from typing import Any

from pipeline.methods.evolve.method import Evolution
from pipeline.methods.fine_tune.method import FineTuning
from pipeline.methods.method import Method
from pipeline.methods.predict.method import PrivatePrediction
from pipeline.methods.refine.method import Refine
from pipeline.settings.job_config import JobConfig

METHODS: dict[str, Method[Any]] = {}


def register(method: Method[Any]) -> None:
    """Adds a method.

    Raises:
        ValueError: The name is taken.
    """
    if method.name in METHODS:
        raise ValueError(
            f'Expected a new name, got name={method.name!r}, which is taken. Give the method another one.'
        )
    METHODS[method.name] = method


def of(config: JobConfig[Any]) -> Method[Any]:
    """The method of a run."""
    return METHODS[config.method.name]


register(PrivatePrediction())
register(FineTuning())
register(Evolution())
register(Refine())
