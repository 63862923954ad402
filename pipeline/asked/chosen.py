"""The config of a run that names no method: of the one that suits its declared numbers best."""

from collections.abc import Mapping
from typing import Any

from pipeline import methods
from pipeline.asked.config import METHOD, implied_method, job_config, read_settings, settings_of
from pipeline.methods import METHODS
from pipeline.settings.job_config import JobConfig


def chosen(path: str | None, flags: Mapping[str, Any]) -> tuple[JobConfig[Any], str | None]:
    """The config of a TOML file and of flags, and why its method was taken where nobody named one.

    The method is that of `plan --compare`, but for the time, which another machine might tell otherwise: a
    run that goes on has to be of the same method. Methods that lack a given setting are no choice. Flags win;
    None means that one was not given.

    Returns:
        The config, and a sentence or two for the person who starts the run; None where the method was named,
        or is the only one that has the settings.
    """
    settings = read_settings(path, flags)
    if settings.get(METHOD) is not None or implied_method(settings) is not None:
        return job_config(**settings), None
    choices = [
        method.name
        for method in METHODS.values()
        if method.needs_only_records and settings.keys() <= settings_of(method.name).keys()
    ]
    if len(choices) < 2:
        return job_config(**settings), None
    units = (settings.get('records') or 0) * settings.get('sample_rate', 1.0)
    labels = max(1, len(settings.get('labels') or ()))
    standings = {name: METHODS[name].standing(units, settings.get('epsilon'), labels) for name in choices}
    fitting = []
    for name in sorted(choices, key=lambda name: standings[name].rank):
        try:
            config = job_config(**{**settings, METHOD: name})
            plan = methods.of(config).plan(methods.solve(config))
        except ValueError:
            continue
        fitting.append((bool(plan.warnings), config))
        if not plan.warnings:
            break
    if not fitting:
        # The error of the default method says what is wrong.
        return job_config(**settings), None
    _, config = min(fitting, key=lambda each: each[0])
    name = config.method.name
    return config, f'No method was named: {name} is taken. {standings[name].because}'
