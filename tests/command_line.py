"""`dp-corpus` for tests: in a process of its own, as a user meets it, or without one, which takes no start.

Both take the same arguments and give the same result. A process shows what imports cost, what libraries
write past Python, and what the system is told at the end; the rest needs none.
"""

import contextlib
import faulthandler
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO
from unittest import mock

from pipeline import main

Done = subprocess.CompletedProcess[str]


def in_a_process(*arguments: str, python: tuple[str, ...] = ()) -> Done:
    """Runs the command line, and Python with options of its own."""
    command = [sys.executable, *python, '-m', 'pipeline.main', *arguments]
    # It compiles for itself, as a user's does: whatever that says belongs on the screen.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(('JAX_COMPILATION_CACHE', 'JAX_PERSISTENT_CACHE'))
    }
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)


def in_this_process(*arguments: str) -> Done:
    """Calls what a process would; the screen is 80 columns wide, as it is where there is none."""
    with (
        tempfile.TemporaryFile('w+', encoding='utf-8') as screen,
        tempfile.TemporaryFile('w+', encoding='utf-8') as errors,
    ):
        with (
            _as_it_was(),
            mock.patch.object(sys, 'argv', ['dp-corpus', *arguments]),
            mock.patch.dict(os.environ, {'COLUMNS': '80'}),
            contextlib.redirect_stdout(screen),
            _standard_error_to(errors),
        ):
            try:
                main.main()
                code = 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        shown = []
        for file in (screen, errors):
            file.seek(0)
            shown.append(file.read())
    return subprocess.CompletedProcess(arguments, code, *shown)


@contextlib.contextmanager
def _standard_error_to(file: IO[str]) -> Iterator[None]:
    """Also what libraries write to the file descriptor."""
    before = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        with contextlib.redirect_stderr(file):
            yield
    finally:
        file.flush()
        os.dup2(before, 2)
        os.close(before)


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Takes back what a command sets for its process: quieter logs would hide a leak from another test."""
    loggers = [logging.getLogger(), *map(logging.getLogger, logging.Logger.manager.loggerDict)]
    before = [(logger, logger.level, list(logger.filters)) for logger in loggers]
    handled_faults = faulthandler.is_enabled()
    faulthandler.disable()
    try:
        yield
    finally:
        known = {id(logger) for logger in loggers}
        for logger, level, filters in before:
            logger.setLevel(level)
            logger.filters[:] = filters
        for name in logging.Logger.manager.loggerDict:
            if id(logger := logging.getLogger(name)) not in known:
                logger.setLevel(logging.NOTSET)
        if handled_faults:
            faulthandler.enable(sys.__stderr__)
