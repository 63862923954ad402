"""When two names are of one file."""

import os
import posixpath

from transforms.durable import is_local

# A file of this machine by device and inode, any other by its path.
Identity = tuple[int, int] | str


def identity_of(path: str) -> Identity:
    """The identity of a file, whatever link, hard link or way around leads to it.

    Args:
        path: A file, on any filesystem that Beam knows. Off this machine two paths that differ in `//`, `.`
            or `..` alone have one identity: some filesystems take them for one, and others do not.

    Raises:
        OSError: There is no such file of this machine.
    """
    if is_local(path):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    scheme, separator, rest = path.partition('://')
    return scheme + separator + posixpath.normpath(rest)
