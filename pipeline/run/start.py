"""A run from its start to its end."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineResult

from models import compilation, speed
from pipeline import job
from pipeline.ledger.ledger import Ledger
from pipeline.methods import estimate
from pipeline.methods.solved import Run
from pipeline.run import charge, folders, resources, staging
from pipeline.run.beam_options import beam_options
from pipeline.run.failure import keep_failure
from pipeline.settings.model import Model


@contextlib.contextmanager
def _apart_from_cells() -> Iterator[None]:
    """Keeps Beam from taking a run for a pipeline that somebody writes in the cells of a notebook.

    It would put the number of a cell before labels, by which a failed step is known (`failure`), leave
    folders behind, and import its data frames, which need an older pandas.
    """
    names = ('alter_label_if_ipython', 'is_in_ipython')
    before = {name: getattr(beam.pipeline, name) for name in names}
    beam.pipeline.alter_label_if_ipython = lambda transform, pvalueish: None
    beam.pipeline.is_in_ipython = lambda: False
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(beam.pipeline, name, function)


def check(run: Run) -> None:
    """Refuses a run whose ledger or folders `carry_out` would refuse; makes nothing, and loads no model.

    Raises:
        As `carry_out` does.
    """
    resources.check_folders(run)
    _ledger_of(run)
    folders.check(run)


def _ledger_of(run: Run) -> Ledger | None:
    """The ledger of a run that it would let start; the binding answer is that to the charge."""
    if run.budget.ledger is None:
        return None
    ledger = Ledger.open(run.budget.ledger)
    charge.check(ledger, run)
    return ledger


@_apart_from_cells()
def carry_out(run: Run, prepared: Any, beam_arguments: Sequence[str]) -> PipelineResult:
    """Prepares the folders, charges the ledger and runs the job to its end.

    The ledger has the whole price before the first step starts, and a run that is resumed
    pays nothing again (METHOD 7).

    Raises:
        BudgetExceeded: The dataset's budget does not allow the run; no step has started.
        ConnectionError: The ledger cannot be reached; no step has started.
        FileExistsError: The output or the work directory is another run's, or a file.
        FileNotFoundError: No input file.
        PermissionError: The output or the work directory cannot be written.
        ValueError: The input lacks a column, the machine has too little memory or disk, or Beam does not
            know one of its options.
        RuntimeError: The graph cannot be built, with a cause; or a step failed, and then
            neither the text nor a cause holds anything private.
    """
    options = beam_options(run.runner.runner, beam_arguments)
    root = beam.Pipeline(options=options)
    resources.check(run)
    # Before any folder is made for a run that may not start.
    ledger = _ledger_of(run)
    files = folders.prepare(run)
    entry = None if ledger is None else charge.reserve(ledger, run)
    job.build(root, run, prepared, entry, files)
    # A function that cannot be pickled fails here, before anything is read: such causes may be shown.
    root.to_runner_api()
    speed.forget()
    # Workers that are threads of this process keep theirs so; those of an engine are told by their settings.
    compilation.keep_programs(run.runner.compiled_folder if run.runner.is_local else None)
    try:
        with staging.within_this_user(options), root:
            pass  # Leaving the block runs the graph and waits.
    except Exception as error:  # noqa: BLE001 - a runner's error quotes that of a step, and that may quote data
        # Beam sets it as soon as an engine has the job.
        failure = keep_failure(run, error, root.applied_labels, submitted=hasattr(root, 'result'))
    else:
        # A template's launcher only submits: its job is not over.
        if ledger is not None and folders.is_finished(run):
            charge.settle(ledger, run)
        if isinstance(run.method, Model):
            # A cache that cannot be written to costs later plans their estimate, and no run its end.
            with contextlib.suppress(OSError):
                estimate.keep(run.method.model, run.method.decided_dtype)
        return root.result
    raise RuntimeError(failure)
