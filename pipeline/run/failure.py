"""A failed run's error: its details for the curator, and what anyone may read of it."""

import re
import traceback
import uuid
from collections.abc import Collection

import grpc
from apache_beam.io.filesystems import FileSystems

from pipeline import methods
from pipeline.methods.solved import Run
from transforms.durable import write_file
from transforms.run_files import ERRORS_FOLDER

# The end of a step's error in Beam: the error's last line, then the step.
_FAILED_STEP = re.compile(r"^(.*) \[while running '([^'\n]+)'\]$", re.MULTILINE)
# Beam's words for an engine's own connection that failed: its job server does not reach the cluster.
_OF_NETWORK = re.compile(
    r'Pipeline \S+ failed in state [A-Z]+: (java\.net\.(?:Connect|NoRouteToHost|SocketTimeout|UnknownHost)'
    r'Exception(?:: Connection (?:refused|timed out))?)'
)


def keep_failure(run: Run, error: Exception, steps: Collection[str], *, submitted: bool) -> str:
    """Writes a failed run's error into the work directory; returns what anyone may read of it.

    Args:
        run: The run.
        error: The error that ended it.
        steps: Labels of its steps.
        submitted: True if its engine had taken the job. An error before that is of the engine itself: no
            step has seen a record. Workers of a local runner begin without it.
    """
    work_dir = run.work_dir
    name = f'run.{uuid.uuid4().hex}.txt'
    details = ''.join(traceback.format_exception(error)).encode(errors='replace')
    kept = f'The details are restricted to the curator: {ERRORS_FOLDER}/{name} in the work directory.'
    try:
        write_file(FileSystems.join(work_dir, ERRORS_FOLDER, name), details)
    except OSError as full:
        # Not raised: this one would carry the first along, whose text may quote records.
        kept = (
            'The details could not be written to the work directory: '
            f'{full.strerror or type(full).__name__}. Make room there, or see that it can be written.'
        )
    if not submitted and not run.runner.is_local:
        said = ' '.join(str(error).split()) or 'no text'
        return (
            f'Expected the engine to take the job, got runner={run.runner.runner!r}, '
            f'error={type(error).__name__}: {said}. No step has begun. {kept} See that the engine answers at '
            'the address of its options, and that Java and the jar of a job server are here where it needs '
            'them; then repeat the command.'
        )
    failed = [(line, step) for line, step in _FAILED_STEP.findall(str(error)) if step in steps]
    cause, step = failed[-1] if failed else ('', None)
    open_steps = methods.of(run).open_steps
    # Beam names a step of several outputs by what it runs as well.
    step = next((name for name in open_steps if step is not None and step.startswith(f'{name}/')), step)
    if (of_engine := _of_engine(error)) is not None:
        cause = f'an error of the engine, {of_engine}. See that it answers at the address of its options.'
    elif step not in open_steps:
        cause = 'an error whose text may quote records.'
    of_step = 'no step that is known' if step is None else f'step={step!r}'
    return (
        f'Expected every step to finish, got {of_step}, which ended with: {cause} '
        f'{kept} '
        'Remove the cause and repeat the command: the run goes on where it stopped.'
    )


def _of_engine(error: Exception) -> str | None:
    """The error of the connections to an engine or within it; None of any that may be a step's.

    The words are those of a short list: what else the error says may be a worker's.
    """
    if isinstance(error, grpc.RpcError):
        return error.code().name if isinstance(error, grpc.Call) else type(error).__name__
    match = _OF_NETWORK.match(str(error))
    return None if match is None else match[1]
