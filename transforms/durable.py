"""Files of a run that appear whole, once, and never change; a resumed run reads them.

A runner may repeat any step, after a failure or on a second worker at the same time. So each file is
written exclusively: the first one stays, and a slower worker reads it (METHOD 7). Paths may be on any
filesystem that Beam knows.
"""

import contextlib
import errno
import fnmatch
import os
import pathlib
import re
import traceback
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from models.privacy.grid import NoiseSource
from models.privacy.randomness import RunKey
from transforms.places import check_filesystem
from transforms.run_files import ERRORS_FOLDER, RUN, RUN_KEY

# The end of the name of an unfinished file; a writer that was killed leaves it behind.
TEMPORARY_SUFFIX = '.tmp'
# Beam would choose a codec by the name of a file; here bytes are written and read as they are.
_PLAIN = CompressionTypes.UNCOMPRESSED
_BYTES = 'application/octet-stream'


def is_local(path: str) -> bool:
    """True if a path names a file of this machine."""
    return FileSystems.get_scheme(path) is None


def write_file(path: str, data: bytes) -> None:
    """Writes a file whole or not at all; a file that is there already stays as it is.

    Of several writers at the same time exactly one wins, and no reader sees the bytes of another: by a
    hard link on a local filesystem, by a precondition on Google Cloud Storage. Other filesystems rename the
    file: two writers at the same instant may then both replace it. The folder of the file has to exist.
    """
    temporary = f'{path}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}'
    if is_local(path):
        _write_local(path, temporary, data)
        return
    if FileSystems.get_scheme(path) == 'gs':
        _write_gcs(path, data)
        return
    with FileSystems.create(temporary, compression_type=_PLAIN) as file:
        file.write(data)
    if FileSystems.exists(path):
        FileSystems.delete([temporary])
    else:
        FileSystems.rename([temporary], [path])


def _write_local(path: str, temporary: str, data: bytes) -> None:
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        # A folder that a worker makes would hold one machine's part of the run.
        raise FileNotFoundError(
            f'Expected the folder of path={path!r}, which the launcher makes, on a filesystem that all '
            'workers share. Mount it on every worker, or use one that Beam reaches by URL.'
        )
    # Repeated when another launcher of the same run removes the temporary file.
    while not _is_there(path):
        try:
            with open(temporary, 'xb') as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # else a machine that goes down may leave an empty file
            _link(temporary, path)
        finally:
            pathlib.Path(temporary).unlink(missing_ok=True)


def _is_there(path: str) -> bool:
    """True if a file of this name was written.

    Raises:
        FileExistsError: There is a link or a folder of this name: the release would hold what lies elsewhere,
            or lack the file.
    """
    if os.path.islink(path) or os.path.isdir(path):
        raise FileExistsError(
            f'Expected a file of the run or none at path={path!r}, got a '
            f'{"symbolic link" if os.path.islink(path) else "folder"}, which no run makes. Find out who '
            'put it there, remove it, and repeat the command.'
        )
    return os.path.exists(path)


def _link(temporary: str, path: str) -> None:
    """Gives a file its name, unless there is a file of that name.

    The writer of that file drew the same noise, or made the draw that counts.
    """
    try:
        os.link(temporary, path)
    except (FileExistsError, FileNotFoundError):
        pass
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        raise OSError(
            f'Expected a filesystem with hard links for path={path!r}: a link gives a file its name exactly '
            'once. Mount another filesystem, or name the bucket by a URL that Beam knows.'
        ) from error


def _write_gcs(path: str, data: bytes) -> None:
    # Here and not at the top: it comes with an extra of Beam, for gs:// paths alone.
    from google.api_core.exceptions import PreconditionFailed

    with contextlib.suppress(PreconditionFailed):
        # Generation 0 is an object that does not exist.
        _blob(path).upload_from_string(data, content_type=_BYTES, if_generation_match=0)


def _blob(path: str) -> Any:
    """An object of Google Cloud Storage, whose upload appears at once, at its end.

    Beam's rename copies, and so replaces a file. The client is Beam's, with the credentials of the job's
    options.
    """
    bucket, _, name = path.removeprefix('gs://').partition('/')
    files: Any = FileSystems.get_filesystem(path)
    return files._gcsIO().client.bucket(bucket).blob(name)


def replace_file(path: str, data: bytes) -> None:
    """Writes a file that may be written again by the same writer, whole or not at all."""
    if is_local(path):
        temporary = pathlib.Path(f'{path}{TEMPORARY_SUFFIX}')
        temporary.write_bytes(data)
        temporary.replace(path)
    elif FileSystems.get_scheme(path) == 'gs':
        _blob(path).upload_from_string(data, content_type=_BYTES)
    else:
        with FileSystems.create(path, compression_type=_PLAIN) as file:
            file.write(data)


def read_file(path: str) -> bytes:
    """A file's bytes.

    Raises:
        FileNotFoundError: There is no such file.
    """
    if is_local(path):
        return pathlib.Path(path).read_bytes()
    check_filesystem(path)
    if not FileSystems.exists(path):
        raise FileNotFoundError(f'Expected a file at path={path!r}, got none. Restore it.')
    with FileSystems.open(path, compression_type=_PLAIN) as file:
        return file.read()


def make_folder(path: str, *, private: bool = False) -> None:
    """Makes a folder and its parents, unless they are there; a private one is its owner's alone.

    Raises:
        FileExistsError: There is a file of this name.
    """
    if is_local(path):
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
        if private:
            pathlib.Path(path).chmod(0o700)
    elif not FileSystems.exists(path):
        FileSystems.mkdirs(path)


def is_empty(folder: str, besides: Sequence[str] = ()) -> bool:
    """True if a folder is missing or empty, but for files whose names match glob patterns (`besides`)."""
    if is_local(folder):
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return True
    else:
        files = FileSystems.match([FileSystems.join(literal(folder), '**')])[0].metadata_list
        names = [FileSystems.split(metadata.path)[1] for metadata in files]
    return all(any(fnmatch.fnmatch(name, pattern) for pattern in besides) for name in names)


def literal(path: str) -> str:
    """A pattern that matches this path and no other, also where the path has a `[`, `*` or `?`."""
    return re.sub(r'([*?[])', r'[\1]', path)


def list_files(folder: str, suffix: str) -> list[str]:
    """Files directly in a folder whose names end with `suffix`; none if the folder is missing."""
    if is_local(folder):
        try:
            return [entry.path for entry in os.scandir(folder) if entry.name.endswith(suffix)]
        except FileNotFoundError:
            return []
    files = FileSystems.match([FileSystems.join(literal(folder), f'*{suffix}')])[0].metadata_list
    return [metadata.path for metadata in files]


def remove_temporaries(folder: str) -> None:
    """Removes the unfinished files that killed writers left in a folder."""
    if left := list_files(folder, TEMPORARY_SUFFIX):
        # Another launcher of the same run may remove them at the same time.
        if is_local(folder):
            for path in left:
                pathlib.Path(path).unlink(missing_ok=True)
        else:
            FileSystems.delete(left)


def draw_once(path: str, draw: Callable[[], str]) -> str:
    """The text at `path`; if there is no file, writes what `draw` returns first.

    A runner may repeat this, after a failure or on a second worker. The file is written before anything
    uses the draw, and the text is always read from the file, so every repetition returns the same text. The
    guarantee does not rest on it, since a file can be lost: noise is the same whoever repeats a draw
    (`noise_source`).
    """
    if not FileSystems.exists(path):
        # If another attempt is faster, its file stays, and nobody reads this draw.
        write_file(path, draw().encode())
    return read_file(path).decode()


def read_key(work_dir: str) -> RunKey:
    """The run key of a work directory.

    Workers read it themselves: a key that travels in the pipeline would show in runners and in staged files.

    Raises:
        PermissionError: Others than its owner may read the file, on a local filesystem.
    """
    path = FileSystems.join(work_dir, RUN_KEY)
    if is_local(path):
        return RunKey.read(pathlib.Path(path))
    return RunKey(read_file(path))  # the bucket's own rules say who may read it


def noise_source(work_dir: str, *name: str) -> NoiseSource:
    """The source of the noise of a table of this run: a function of the run key and of the table's name.

    The run's own digests are in the name. So under one key a run of other settings, records, model or code,
    which `run.json` is there to tell apart, has other noise.

    Args:
        work_dir: The curator's folder.
        name: Name of the table in the run, and of all that was released before and that it depends on.

    Raises:
        FileNotFoundError: The folder lacks the key or the digests.
    """
    run = read_file(FileSystems.join(work_dir, RUN))
    return NoiseSource(read_key(work_dir), (run,)).of(*name)


def write_key(work_dir: str, key: RunKey) -> None:
    """Writes the run key into the work directory, readable for its owner alone; never replaces a key."""
    path = FileSystems.join(work_dir, RUN_KEY)
    if is_local(path):
        # Another launcher of the same run may be faster; then its key is the run's.
        with contextlib.suppress(FileExistsError):
            if not os.path.exists(path):
                key.write(pathlib.Path(path))
    else:
        write_file(path, key.to_bytes())


def guarded[T](work: Callable[[], T], *, expected: str, work_dir: str, name: str) -> T:
    """Returns what `work` returns; the text of an exception is written to the work directory alone.

    That text may quote records, and runners log and show the exceptions of a step (METHOD 8). So another
    exception is raised in its place, which names the file and what was `expected`.

    Raises:
        RuntimeError: `work` raised an exception. It has no cause and no context.
    """
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever it is, its text stays with the curator
        kind, details = type(error).__name__, traceback.format_exc()
    # Outside of the handler, so that no error from here carries that one along.
    file = f'{name}.{uuid.uuid4().hex}.txt'
    kept = f'Its details are restricted to the curator: {ERRORS_FOLDER}/{file} in the work directory.'
    try:
        write_file(FileSystems.join(work_dir, ERRORS_FOLDER, file), details.encode(errors='replace'))
    except OSError as full:
        reason = full.strerror or type(full).__name__
        kept = f'Its details could not be written to the work directory: {reason}. Make room there.'
    raise RuntimeError(f'Expected {expected}, got error={kind}. {kept}') from None
