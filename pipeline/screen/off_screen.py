"""Chatter of libraries, and errors that may quote records: a command keeps both off the screen."""

import contextlib
import faulthandler
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator

import rich.console

from pipeline.ledger.budget import BudgetExceeded

# Lines that native libraries write past Python while they load, and that are no more than information.
# TensorFlow also misses a GPU on machines without one: it only tokenizes here, on the CPU.
_CHATTER = re.compile(
    rb'I\d{4} |E\d{4} .*failed call to cuInit|WARNING: All log messages before absl::'
    rb'|\w+\.cc\(\d+\) LOG\(INFO\)'
)


def silence_libraries() -> None:
    """Keeps TensorFlow's and Beam's chatter off a run's screen; what concerns the user stays."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '1')
    os.environ.setdefault('GRPC_VERBOSITY', 'ERROR')
    root = logging.getLogger()
    root.setLevel(logging.WARNING)
    # Once, however often it is called.
    root.addFilter(_concerns_the_user)
    # It announces each service that it starts and ends.
    logging.getLogger('apache_beam.utils.subprocess_server').setLevel(logging.ERROR)
    # `beam_options` refuses what this one only warns of.
    logging.getLogger('apache_beam.options.pipeline_options').setLevel(logging.ERROR)
    # They print the traceback of a failed step, once for every layer. `start.run` keeps it
    # in the work directory, where a text that quotes data belongs.
    for name in ('common', 'worker', 'direct', 'portability.fn_api_runner'):
        logging.getLogger(f'apache_beam.runners.{name}').setLevel(logging.CRITICAL)


def _concerns_the_user(record: logging.LogRecord) -> bool:
    # Beam says so of a library for BigQuery, which no run uses.
    if str(record.msg).startswith('apitools not found'):
        return False
    # A portable job's messages quote the errors of its steps, whose details `start.run` keeps.
    return record.module != 'portable_runner'


def shows_progress(console: rich.console.Console) -> bool:
    """True if somebody sees a display that moves: in a terminal, or in a notebook."""
    return not console.quiet and (console.is_terminal or console.is_jupyter)


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Holds standard error back while native libraries load, then shows all of it but chatter.

    They write to the file descriptor before any of their settings counts. A crash would take
    what was held with it, so Python's own traceback of one goes to the screen directly.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held, os.fdopen(os.dup(2), 'wb', buffering=0) as screen:
        had_faulthandler = faulthandler.is_enabled()
        faulthandler.enable(screen)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(screen.fileno(), 2)
            faulthandler.disable()
            if had_faulthandler:
                faulthandler.enable()
            held.seek(0)
            screen.writelines(line for line in held if not _CHATTER.match(line))


@contextlib.contextmanager
def unquoted() -> Iterator[None]:
    """Hides the text of an unforeseen error over private texts, which may quote them (METHOD 8).

    Errors of the request are ours, or the operating system's, and quote none.
    """
    try:
        yield
    except (ValueError, OSError, ImportError, BudgetExceeded):
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, its text may quote records
        kind = type(error).__name__
    else:
        return
    raise RuntimeError(
        f'Expected the command to finish, got error={kind}, whose text may quote records and is not shown. '
        'Check the input and the settings.'
    ) from None
