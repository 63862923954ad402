"""Places where a command listens over its whole life: each `listen` of its processes, in any language.

The kernel tells, before it carries the call out (`seccomp_unotify(2)`, Linux 5.9; x86-64 or ARM). So no
moment is too short to be seen, and libraries in C++, Java or Go have no way around: every process that the
command starts inherits the filter, and none can take it off. Sockets of the file system count as well.
"""

import contextlib
import ctypes
import dataclasses
import os
import pathlib
import platform
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
# Numbers of the machine: its name for filters, and of the calls `listen` and `seccomp`.
_OF_MACHINES = {'x86_64': (0xC000003E, 50, 317), 'aarch64': (0xC00000B7, 201, 277)}
# The same on both: https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html
_IO_URING_SETUP, _PIDFD_GETFD = 425, 438
_X32 = 0x40000000  # calls of a third kind, which an x86-64 takes as well, have this bit
_ALLOW, _KILL, _TELL, _REFUSE = 0x7FFF0000, 0x80000000, 0x7FC00000, 0x00050000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NO_NEW_PRIVILEGES, _SET_FILTER, _WITH_LISTENER, _GO_ON = 38, 1, 8, 1
_ENOSYS, _EBADF, _ESRCH = 38, 9, 3
_ADOPT = 36


@dataclasses.dataclass(frozen=True, order=True)
class Place:
    """A place where something listened.

    Attributes:
        host: An address, or `unix`.
        port: The port; the path where the host is `unix`.
        program: Name of the process.
    """

    host: str
    port: int | str
    program: str

    @property
    def is_reached_from_outside(self) -> bool:
        """True if another machine could connect, if nothing between them hinders it."""
        return self.host not in ('unix', '127.0.0.1', '::1', '::ffff:127.0.0.1')


class Listener:
    """Starts commands, and keeps where they and all that they start listen.

    Each is watched until its last process has ended, also where that outlives the command (`wait`).
    """

    def __init__(self) -> None:
        self._places: set[Place] = set()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def popen(self, command: Sequence[str], **options: Any) -> 'subprocess.Popen[Any]':
        """As `subprocess.Popen`, watched from before its first line."""
        # Systems let a process look at the sockets of its own descendants alone: no orphan may leave it.
        _LIBC.prctl(_ADOPT, 1, 0, 0, 0)
        ours, its = socket.socketpair()
        with ours, its:
            script = [sys.executable, '-I', '-S', __file__, str(its.fileno())]
            process = subprocess.Popen([*script, *command], pass_fds=[its.fileno()], **options)
            its.close()
            _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        if not descriptors:
            raise RuntimeError(
                f'Expected a kernel that tells of listen, got status={process.wait()} of the script that '
                'asks for it. Run these tests on Linux 5.9 or later, under no filter that watches already.'
            )
        thread = threading.Thread(target=self._hear, args=(descriptors[0],), daemon=True)
        thread.start()
        self._threads.append(thread)
        return process

    def run(
        self, command: Sequence[str], *, input: str = '', timeout: float = 600, **options: Any
    ) -> 'subprocess.CompletedProcess[str]':
        """As `subprocess.run`, with what it wrote as text."""
        pipes = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.PIPE)
        with self.popen(command, text=True, **pipes, **options) as process:
            try:
                written = process.communicate(input, timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, *written)

    def wait(self) -> set[Place]:
        """The places where anything listened, once all processes have ended."""
        for thread in self._threads:
            thread.join(timeout=60)
            assert not thread.is_alive(), 'a process still runs'
        return self.places()

    def places(self) -> set[Place]:
        """The places where anything has listened so far."""
        assert not self._failures, self._failures
        return set(self._places)

    def _hear(self, descriptor: int) -> None:
        try:
            events = select.poll()
            events.register(descriptor, select.POLLIN)
            # It hangs up when no process is left that it watches.
            while not events.poll()[0][1] & select.POLLHUP:
                told = ctypes.create_string_buffer(80)
                if _LIBC.ioctl(descriptor, ctypes.c_ulong(_RECEIVE), told):
                    continue  # its process was killed meanwhile
                number, thread, argument = struct.unpack_from('=QI20xQ', told.raw)
                # Before the answer, while the process waits.
                if (place := _place(thread, ctypes.c_int(argument & 0xFFFFFFFF).value)) is not None:
                    self._places.add(place)
                answer = ctypes.create_string_buffer(struct.pack('=QqiI', number, 0, 0, _GO_ON))
                _LIBC.ioctl(descriptor, ctypes.c_ulong(_SEND), answer)
        except BaseException as failure:  # noqa: BLE001 - a test asks for it
            self._failures.append(failure)
        finally:
            os.close(descriptor)


def _place(thread: int, descriptor: int) -> Place | None:
    """The place where a thread is about to listen; None if its process was killed, or without a socket."""
    try:
        status = pathlib.Path('/proc', str(thread), 'status').read_text()
        process = int(status.partition('Tgid:')[2].split()[0])
        program = pathlib.Path('/proc', str(process), 'comm').read_text().strip()
        process_descriptor = os.pidfd_open(process)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        copied = _LIBC.syscall(_PIDFD_GETFD, process_descriptor, descriptor, 0)
    finally:
        os.close(process_descriptor)
    if copied < 0:
        if (code := ctypes.get_errno()) in (_EBADF, _ESRCH):
            return None
        raise OSError(code, os.strerror(code))
    with contextlib.closing(socket.socket(fileno=copied)) as asked:
        name = asked.getsockname()
        if asked.family in (socket.AF_INET, socket.AF_INET6):
            return Place(name[0], name[1], program)
        return Place('unix', name if isinstance(name, str) else repr(name), program)


def _watch(report: int) -> None:
    """Has the kernel tell of each `listen` of this process and of those that it starts, for good."""
    machine, listen, seccomp = _OF_MACHINES[platform.machine()]

    def step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
        return struct.pack('=HBBI', code, then, otherwise, value)

    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    program = b''.join(
        [
            step(load, 4),
            step(equal, machine, 1, 0),
            step(end, _KILL),
            step(load, 0),
            step(at_least, _X32, 0, 1),
            step(end, _KILL),
            step(equal, listen, 0, 1),
            step(end, _TELL),
            # It can listen for its process, past the filter.
            step(equal, _IO_URING_SETUP, 0, 1),
            step(end, _REFUSE | _ENOSYS),
            step(end, _ALLOW),
        ]
    )
    steps = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack('@HP', len(program) // 8, ctypes.addressof(steps))
    if _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), 'prctl')
    descriptor = _LIBC.syscall(seccomp, _SET_FILTER, _WITH_LISTENER, ctypes.create_string_buffer(filters))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), 'seccomp')
    with socket.socket(fileno=report) as connection:
        socket.send_fds(connection, [b'\0'], [descriptor])
    os.close(descriptor)


if __name__ == '__main__':
    _watch(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
