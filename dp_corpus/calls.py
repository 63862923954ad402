"""The functions of the package: each calls what the command of its name calls, and prints no report."""

import difflib
import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Unpack

import rich.console

from dp_corpus.keywords import EvaluationSettings, RefineSettings, RunSettings, TrainingSettings
from dp_corpus.results import Evaluated, Run
from pipeline import config as config_lib
from pipeline.commands import evaluate as evaluate_command
from pipeline.commands import fine_tune as fine_tune_command
from pipeline.commands import generate as generate_command
from pipeline.commands import plan as plan_command
from pipeline.commands import refine as refine_command
from pipeline.commands.flags import config_of
from pipeline.methods.method import RunPlan
from pipeline.screen import terminal
from pipeline.settings.job_config import JobConfig

type Place = str | os.PathLike[str]

_OF_ANY_RUN = {name: setting.default for name, setting in config_lib.all_settings().items()}
_OF_TRAINING = {name: _OF_ANY_RUN[name] for name in fine_tune_command.SETTINGS}
_OF_REFINING = {name: _OF_ANY_RUN[name] for name in refine_command.SETTINGS}
# What the functions have beside settings, or in place of a flag.
_NOT_OF_EVALUATIONS = ('corpus', 'as_json', 'quiet')
_OF_EVALUATIONS = {
    name: parameter.default
    for name, parameter in inspect.signature(evaluate_command.evaluate).parameters.items()
    if name not in _NOT_OF_EVALUATIONS
}


def _with_keywords[F: Callable[..., Any]](settings: Mapping[str, Any]) -> Callable[[F], F]:
    """Gives a function's signature a keyword for each setting, for `help` and for completion."""

    def named(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in settings.items()
        ]
        function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return function

    return named


@_with_keywords(_OF_ANY_RUN)
def plan(
    *,
    config: Place | None = None,
    calibrate: bool = False,
    calibration: Place | None = None,
    calibration_label_field: str | None = None,
    **settings: Unpack[RunSettings],
) -> RunPlan:
    """Says what a run would release and cost, before anything is read or paid: `dp-corpus plan`.

    Args:
        config: A TOML file of settings; keyword arguments win.
        calibrate: Measures for some ten seconds how fast this machine decodes.
        calibration: Public texts of the records' genre, for an estimate of how far a budget reaches.
        calibration_label_field: Column of their label.
        settings: Those of the run; `dp-corpus plan --help` explains them.

    Returns:
        The plan of the run's method. Its `budget` says whether the ledger has room, where one is named.

    Raises:
        TypeError: There is no such setting.
        ValueError: Settings are out of range or do not fit.
        FileNotFoundError: A file is not there.
        ConnectionError: The ledger cannot be reached.
    """
    return plan_command.planned(
        config_of(_text(config), _given(settings, _OF_ANY_RUN)),
        calibrate=calibrate,
        calibration_files=_text(calibration),
        calibration_label_field=calibration_label_field,
        quiet=False,
    )


@_with_keywords(_OF_ANY_RUN)
def generate(
    *,
    config: Place | None = None,
    beam_arguments: Sequence[str] = (),
    quiet: bool = False,
    **settings: Unpack[RunSettings],
) -> Run:
    """Runs the job, records in, corpus and report out: `dp-corpus generate`.

    The same call again resumes a run that died, and spends nothing twice.

    Args:
        config: A TOML file of settings; keyword arguments win.
        beam_arguments: Options of Beam, as they follow a bare `--` on the command line.
        quiet: Whether nothing is shown while it runs.
        settings: Those of the run; `dp-corpus generate --help` explains them.

    Returns:
        The run. With an engine that only takes the job, its files are there when the engine has finished it.

    Raises:
        TypeError: There is no such setting.
        ValueError: Settings or the input do not fit, or the machine is too small.
        FileNotFoundError: A file is not there.
        FileExistsError: The output is another run's.
        PermissionError: The output cannot be written.
        MissingExtraError: A library that the run needs is not installed.
        BudgetExceeded: The dataset's budget does not allow the run; nothing has started.
        ConnectionError: The ledger cannot be reached; nothing has started.
        RuntimeError: A step failed; its details are with the curator, and not in the error.
    """
    return _run(config_of(_text(config), _given(settings, _OF_ANY_RUN)), beam_arguments, quiet)


@_with_keywords(_OF_TRAINING)
def fine_tune(
    *,
    config: Place | None = None,
    beam_arguments: Sequence[str] = (),
    quiet: bool = False,
    **settings: Unpack[TrainingSettings],
) -> Run:
    """Trains an adapter without sampling a text: `dp-corpus fine-tune`.

    `generate(adapter=run, output=...)` samples from it, for free.

    Args:
        config: As of `generate`.
        beam_arguments: As of `generate`.
        quiet: As of `generate`.
        settings: Those of the run; `dp-corpus fine-tune --help` explains them.

    Raises:
        Exception: As `generate`.
    """
    job_config = fine_tune_command.config_for(_text(config), _given(settings, _OF_TRAINING))
    return _run(job_config, beam_arguments, quiet)


@_with_keywords(_OF_REFINING)
def refine(
    corpus: Place,
    *,
    config: Place | None = None,
    beam_arguments: Sequence[str] = (),
    quiet: bool = False,
    **settings: Unpack[RefineSettings],
) -> Run:
    """Lets records vote once on the texts of a corpus, and keeps those that they favour: `dp-corpus refine`.

    Args:
        corpus: A `Run`, the folder of a finished run, or files of texts.
        config: As of `generate`.
        beam_arguments: As of `generate`.
        quiet: As of `generate`.
        settings: Those of the run; `dp-corpus refine --help` explains them.

    Raises:
        Exception: As `generate`.
    """
    job_config = refine_command.config_for(os.fspath(corpus), _text(config), _given(settings, _OF_REFINING))
    return _run(job_config, beam_arguments, quiet)


@_with_keywords(_OF_EVALUATIONS)
def evaluate(corpus: Place, *, quiet: bool = False, **settings: Unpack[EvaluationSettings]) -> Evaluated:
    """Measures what a corpus is worth and whether it repeats a record: `dp-corpus evaluate`.

    With `records` or `test` the result is for the curator alone, and so is a notebook that shows it.

    Args:
        corpus: A `Run`, the folder of a finished run, or a file of texts.
        quiet: Whether nothing is shown while it runs.
        settings: `dp-corpus evaluate --help` explains them.

    Returns:
        What was found. A measure that ended with an error is named in its `report.failed`.

    Raises:
        TypeError: There is no such setting.
        ValueError: Settings do not go together, or texts cannot be read.
        FileNotFoundError: A file is not there.
        FileExistsError: The output is there already.
        RuntimeError: An error that nobody foresaw; its text is not shown, since it may quote records.
    """
    given = {**_OF_EVALUATIONS, **_given(settings, _OF_EVALUATIONS)}
    found = evaluate_command.evaluated(os.fspath(corpus), _console(quiet), **given)
    return Evaluated(report=found, output=given['output'])


def load(output: Place) -> Run:
    """A run that is finished, by the folder that its output was.

    Args:
        output: On any filesystem that Beam knows.

    Raises:
        FileNotFoundError: No finished run has written there.
        ValueError: Its report is not one, or was edited.
    """
    run = Run(os.fspath(output))
    _ = run.report
    return run


def _run(job_config: JobConfig, beam_arguments: Sequence[str], quiet: bool) -> Run:
    job_config, run_plan = generate_command.ready(job_config)
    generate_command.carry_out(job_config, run_plan, list(beam_arguments), _console(quiet))
    return Run(str(job_config.output.output))


def _console(quiet: bool) -> rich.console.Console:
    return terminal.console(stderr=True, quiet=quiet)


def _given(settings: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Settings as flags give them: paths are text, and lists are tuples."""
    for name, value in settings.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f'Did you mean {near[0]}?' if near else 'Leave it out.'
            raise TypeError(f'Expected only settings of this function, got {name}={value!r}. {hint}')
    # None stands for what nobody gave.
    return {name: _plain(value) for name, value in settings.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return tuple(value) if isinstance(value, list) else value


def _text(place: Place | None) -> str | None:
    return None if place is None else os.fspath(place)
