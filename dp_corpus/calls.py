"""The functions of the package: each calls what the command of its name calls, and prints no report."""

import difflib
import inspect
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

import rich.console

from dp_corpus.keywords import EvaluationSettings, Place, RefineSettings, RunSettings, TrainingSettings
from dp_corpus.results import Evaluated, Run
from pipeline.asked import config as config_lib
from pipeline.asked import narrowed
from pipeline.asked.chosen import chosen
from pipeline.evaluation import asked, of_run
from pipeline.evaluation import settings as evaluation_settings
from pipeline.methods.method import RunPlan
from pipeline.pages import evaluation_page
from pipeline.plan import planned
from pipeline.run import watched
from pipeline.screen import terminal
from pipeline.settings.job_config import JobConfig

type Settings = Mapping[str, config_lib.Setting]

# The settings that each function has as keywords, by its name.
KEYWORDS: dict[str, Settings] = {
    'plan': config_lib.all_settings(),
    'generate': config_lib.all_settings(),
    'fine_tune': narrowed.TRAINING,
    'refine': narrowed.REFINING,
    'evaluate': config_lib.of_panels(evaluation_settings.EvaluationSettings),
}


def _with_keywords[F: Callable[..., Any]](function: F) -> F:
    """Gives a function's signature a keyword for each of its settings, for `help` and for completion."""
    signature = inspect.signature(function)
    kept = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=setting.default)
        for name, setting in KEYWORDS[function.__name__].items()
    ]
    function.__signature__ = signature.replace(parameters=[*kept, *keywords])  # type: ignore[attr-defined]
    return function


@_with_keywords
def plan(
    *,
    config: Place | None = None,
    **settings: Unpack[RunSettings],
) -> RunPlan:
    """Says what a run would release and cost, before anything is read or paid: `dp-corpus plan`.

    Its settings may stand in a TOML file, `config`, too; keyword arguments win. The `budget` of the plan says
    whether the ledger has room, where one is named.
    """
    return planned.planned(chosen(_text(config), _values(settings, KEYWORDS['plan']))[0])


@_with_keywords
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
        quiet: True if nothing is shown while it runs.
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
    job_config, why = chosen(_text(config), _values(settings, KEYWORDS['generate']))
    if why is not None:
        _console(quiet).print(why, soft_wrap=True, markup=False)
    return _run(job_config, beam_arguments, quiet)


@_with_keywords
def fine_tune(
    *,
    config: Place | None = None,
    beam_arguments: Sequence[str] = (),
    quiet: bool = False,
    **settings: Unpack[TrainingSettings],
) -> Run:
    """Trains an adapter without sampling a text: `dp-corpus fine-tune`. Errors are as of `generate`.

    `generate(adapter=run, output=...)` samples from it, for free.
    """
    job_config = narrowed.training(_text(config), _values(settings, narrowed.TRAINING))
    return _run(job_config, beam_arguments, quiet)


@_with_keywords
def refine(
    corpus: Place,
    *,
    config: Place | None = None,
    beam_arguments: Sequence[str] = (),
    quiet: bool = False,
    **settings: Unpack[RefineSettings],
) -> Run:
    """Lets records vote once on the texts of a corpus, and keeps those that they favour: `dp-corpus refine`.

    The corpus is a `Run`, the folder of a finished run, or files of texts; other arguments and errors are as
    of `generate`.
    """
    values = _values(settings, narrowed.REFINING)
    job_config = narrowed.refining(os.fspath(corpus), _text(config), values)
    return _run(job_config, beam_arguments, quiet)


@_with_keywords
def evaluate(corpus: Place, *, quiet: bool = False, **settings: Unpack[EvaluationSettings]) -> Evaluated:
    """Measures what a corpus is worth and whether it repeats a record: `dp-corpus evaluate`.

    The corpus is a `Run`, the folder of a finished run, or a file of texts. With `records` or `test` the
    result is for the curator alone, and so is a notebook that shows it. Of a run of this machine whose
    records were split, both are found without being named, and a page goes into the curator's folder. A
    measure that ended with an error is named in its `report.failed`.

    Raises:
        TypeError: There is no such setting.
        ValueError: Settings do not go together, or texts cannot be read.
        FileNotFoundError: A file is not there.
        FileExistsError: The output is there already.
        RuntimeError: An error that nobody foresaw; its text is not shown, since it may quote records.
    """
    known = KEYWORDS['evaluate']
    values = config_lib.with_lists(_values(settings, known), known)
    chosen = of_run.completed(os.fspath(corpus), evaluation_settings.EvaluationSettings(**values))
    evaluation = asked.evaluate(os.fspath(corpus), chosen, _console(quiet))
    if chosen.output is not None:
        evaluation_page.write(evaluation, pathlib.Path(chosen.output))
    return Evaluated(report=evaluation, output=chosen.output)


def load(output: Place) -> Run:
    """A run that is finished, by the folder that its output was, on any filesystem that Beam knows."""
    run = Run(os.fspath(output))
    _ = run.report
    return run


def _run(job_config: JobConfig, beam_arguments: Sequence[str], quiet: bool) -> Run:
    solved = watched.ready(job_config)
    watched.carry_out(solved, beam_arguments, _console(quiet))
    return Run(solved.output)


def _console(quiet: bool) -> rich.console.Console:
    return terminal.console(stderr=True, quiet=quiet)


def _values(settings: Mapping[str, Any], known: Settings) -> dict[str, Any]:
    """Values of keyword arguments as flags give them: paths are text, and lists are tuples."""
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
