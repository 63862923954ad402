"""Ctrl-C: answered at once, and the command ends soon, whatever native code is doing.

Without it a run that is interrupted while it decodes ends as one whose step failed, and one that compiles
goes on for as long as that takes: Python runs a signal's handler between two of its instructions alone.
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator
from types import FrameType

# Time in which libraries may end by themselves.
GRACE_SECONDS = 8.0
EXIT_CODE = 130
ANSWER = 'Stopping. What is finished is kept: the same command again goes on from there.'


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """Answers Ctrl-C while the body runs, and sees to it that the process ends.

    The system wakes a thread, which answers, waits for `GRACE_SECONDS` and ends the process as a kill would:
    a run is durable at any moment. A second Ctrl-C ends it at once.

    Raises:
        KeyboardInterrupt: Whatever error an interrupted body ends with.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received, waking = os.pipe()
    os.set_blocking(waking, False)
    interrupted = threading.Event()
    # Standard error may be held back meanwhile: `off_screen.without_chatter`.
    threading.Thread(target=_watch, args=(received, interrupted, os.dup(2)), daemon=True).start()

    def interrupt(number: int, frame: FrameType | None) -> None:
        # The end of the main thread may otherwise overtake the answer.
        interrupted.wait()
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGINT, interrupt)
    wakeup = signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
    try:
        yield
    except Exception as error:
        if interrupted.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        # After an interrupt the thread stays: leaving Python waits for others, which may compile.
        if not interrupted.is_set():
            signal.set_wakeup_fd(wakeup)
            signal.signal(signal.SIGINT, handler)
            os.close(waking)


def _watch(received: int, interrupted: threading.Event, screen: int) -> None:
    """Answers the first Ctrl-C; an end of the pipe says that the body is over."""
    while number := os.read(received, 1):
        if number[0] == signal.SIGINT:
            os.write(screen, f'\n{ANSWER}\n'.encode())
            interrupted.set()
            # The next signal ends the grace.
            select.select([received], [], [], GRACE_SECONDS)
            os._exit(EXIT_CODE)
    os.close(received)
    os.close(screen)
