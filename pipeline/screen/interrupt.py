"""Ctrl-C: answered at once, and the command ends soon, whatever native code is doing."""

import contextlib
import os
import signal
import socket
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

    Python runs a signal's handler between two of its instructions, and one of them may compile for minutes.
    The system wakes a thread meanwhile, which answers, waits for `GRACE_SECONDS` and ends the process as a
    kill would: a run is durable at any moment. A second Ctrl-C ends it at once.

    Raises:
        KeyboardInterrupt: Whatever error an interrupted body ends with.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Standard error may be held back meanwhile: `off_screen.without_chatter`.
    screen = os.dup(2)
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    interrupted = threading.Event()
    watcher = threading.Thread(target=_watch, args=(woken, interrupted, screen), daemon=True)

    def interrupt(number: int, frame: FrameType | None) -> None:
        # The watcher was woken before; what the main thread ends with may otherwise overtake its answer.
        interrupted.wait()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    wakeup = signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    watcher.start()
    try:
        yield
    except Exception as error:
        if interrupted.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        # After an interrupt the watcher stays: leaving Python waits for threads, which may compile.
        if not interrupted.is_set():
            signal.set_wakeup_fd(wakeup)
            signal.signal(signal.SIGINT, before)
            waking.close()
            watcher.join()
            woken.close()
            os.close(screen)


def _watch(woken: socket.socket, interrupted: threading.Event, screen: int) -> None:
    """Answers signals until the other end is closed, which says that the body is over."""
    while True:
        try:
            received = woken.recv(16)
        except TimeoutError:
            os._exit(EXIT_CODE)
        if not received:
            return
        for number in received:
            if number != signal.SIGINT:
                continue
            if interrupted.is_set():
                os._exit(EXIT_CODE)
            os.write(screen, f'\n{ANSWER}\n'.encode())
            interrupted.set()
            woken.settimeout(GRACE_SECONDS)
