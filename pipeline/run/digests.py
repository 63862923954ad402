"""Digests of files: by content, or by size and time where reading them would take too long."""

import functools
import hashlib
import pathlib
from collections.abc import Container, Iterable

HASHED_BYTES = 64 * 2**20


def _state(path: pathlib.Path) -> tuple[int, ...]:
    """Numbers that change with a file's content: the system sets the time of its last change."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@functools.lru_cache(maxsize=4096)  # weights are asked for several times on the way to a run
def _content_digest(path: pathlib.Path, state: tuple[int, ...]) -> bytes:
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').digest()


def digest_of_files(paths: Iterable[pathlib.Path], whole: Container[pathlib.Path] = ()) -> str:
    """Digest of names and contents; of size and time for what is large and not in `whole`."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        status = path.stat()
        if status.st_size <= HASHED_BYTES or path in whole:
            content = _content_digest(path, _state(path))
        else:
            content = hashlib.sha256(str(status.st_mtime_ns).encode()).digest()
        for part in (path.name.encode(), str(status.st_size).encode()):
            digest.update(hashlib.sha256(part).digest())
        digest.update(content)
    return digest.hexdigest()


def checkpoint_digest(checkpoint: pathlib.Path) -> str:
    """SHA-256 of the contents of all files of a checkpoint, however large, with their names inside it."""
    digest = hashlib.sha256()
    paths = [checkpoint]
    if not checkpoint.is_file():
        paths = sorted(path for path in checkpoint.rglob('*') if path.is_file())
    for path in paths:
        name = '' if path == checkpoint else str(path.relative_to(checkpoint))
        digest.update(hashlib.sha256(name.encode()).digest())
        digest.update(_content_digest(path, _state(path)))
    return digest.hexdigest()
