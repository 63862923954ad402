"""A failed run's error: its details for the curator, and what anyone may read of it."""

import re
import traceback
import uuid
from collections.abc import Collection

from apache_beam.io.filesystems import FileSystems

from pipeline import methods
from pipeline.settings.job_config import JobConfig
from transforms.durable import write_file
from transforms.run_files import ERRORS_FOLDER

# How Beam ends the error of a step: the error's last line, then the step.
_FAILED_STEP = re.compile(r"^(.*) \[while running '([^'\n]+)'\]$", re.MULTILINE)


def keep_failure(config: JobConfig, error: Exception, steps: Collection[str]) -> str:
    """Writes a failed run's error into the work directory; returns what anyone may read of it."""
    work_dir = config.output.resolved_work_dir
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
    found = [(line, step) for line, step in _FAILED_STEP.findall(str(error)) if step in steps]
    cause, step = found[-1] if found else ('', None)
    open_steps = methods.of(config).open_steps
    # Beam names a step of several outputs by what it runs as well.
    step = next((name for name in open_steps if step is not None and step.startswith(f'{name}/')), step)
    if step not in open_steps:
        cause = 'an error whose text may quote records.'
    return (
        f'Expected every step to finish, got step={step!r}, which ended with: {cause} '
        f'{kept} '
        'Remove the cause and repeat the command: the run goes on where it stopped.'
    )
