"""Files of a run that appear whole, once, and never change: what a resumption reads back.

A runner may do any step again, after a failure or on a second worker at the same time.
What such a step writes is therefore exclusive: the first file stays, and whoever was
slower reads that one (METHOD 7). Paths are of any filesystem that Beam knows.
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

from models.privacy.randomness import RunKey
from transforms.run_files import ERRORS_FOLDER, RUN_KEY

# What a writer that was killed leaves beside the file that it did not finish.
TEMPORARY_SUFFIX = '.tmp'
# A file's name tells nothing of a codec here: bytes go out and come back as they are.
_PLAIN = CompressionTypes.UNCOMPRESSED


def is_local(path: str) -> bool:
    """Whether a path names a file of this machine."""
    return FileSystems.get_scheme(path) is None


def write_file(path: str, data: bytes) -> None:
    """Writes a file whole or not at all; one that is there already stays as it is.

    Of several writers at once exactly one wins, and no reader ever sees the bytes of the others.
    On local filesystems by a hard link, on Google Cloud Storage by its precondition; on
    others by a rename, where two writers within the same instant may both believe to have won.

    Args:
        path: The file; its folder exists, where the filesystem has folders.
        data: Its content.
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
        # Made here, it would hold one machine's part of the run.
        raise FileNotFoundError(
            f'Expected the folder of path={path!r}, which the launcher makes, on a filesystem that all '
            'workers share. Mount it on every worker, or use one that Beam reaches by URL.'
        )
    # Again where another launcher of the run clears temporaries away, this one among them.
    while not os.path.exists(path):
        try:
            with open(temporary, 'xb') as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # a machine that goes down leaves no empty file under the name
            _link(temporary, path)
        finally:
            pathlib.Path(temporary).unlink(missing_ok=True)


def _link(temporary: str, path: str) -> None:
    """Gives a file its name: a link appears at once, and never over a file that is there.

    Whoever wrote that file drew the same noise, or made the draw that counts.
    """
    try:
        os.link(temporary, path)
    except (FileExistsError, FileNotFoundError):
        pass
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        raise OSError(
            f'Expected a filesystem with hard links for path={path!r}, which gives a file its name once for '
            'all writers. Mount another one, or name the bucket by a URL that Beam knows.'
        ) from error


def _write_gcs(path: str, data: bytes) -> None:
    # Beam renames by a copy there, which would replace; an upload appears at its end and at once.
    from apache_beam.io.gcp import gcsio
    from google.api_core.exceptions import PreconditionFailed

    bucket, name = gcsio.parse_gcs_path(path)
    # Beam's own client, with the credentials of the job's options.
    files: Any = FileSystems.get_filesystem(path)
    client = files._gcsIO().client
    blob = client.bucket(bucket).blob(name)
    with contextlib.suppress(PreconditionFailed):
        # Generation 0 is an object that does not exist.
        blob.upload_from_string(data, content_type='application/octet-stream', if_generation_match=0)


def read_file(path: str) -> bytes:
    """A file's bytes.

    Raises:
        FileNotFoundError: There is no such file.
    """
    if is_local(path):
        return pathlib.Path(path).read_bytes()
    if not FileSystems.exists(path):
        raise FileNotFoundError(f'Expected a file at path={path!r}, which is not there. Restore it.')
    with FileSystems.open(path, compression_type=_PLAIN) as file:
        return file.read()


def make_folder(path: str, *, private: bool = False) -> None:
    """Makes a folder with its parents where there is none, on filesystems that have folders.

    Args:
        path: The folder.
        private: Whether it is for its owner alone, where the filesystem is local.
    """
    if is_local(path):
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
        if private:
            pathlib.Path(path).chmod(0o700)
    elif not FileSystems.exists(path):
        FileSystems.mkdirs(path)


def is_empty(folder: str, besides: Sequence[str] = ()) -> bool:
    """Whether a folder is not there or holds nothing.

    Args:
        folder: The folder.
        besides: Glob patterns of names that do not count.
    """
    if is_local(folder):
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return True
    else:
        found = FileSystems.match([FileSystems.join(literal(folder), '**')])[0].metadata_list
        names = [FileSystems.split(metadata.path)[1] for metadata in found]
    return all(any(fnmatch.fnmatch(name, pattern) for pattern in besides) for name in names)


def literal(path: str) -> str:
    """The pattern that this path alone matches, where it holds `[`, `*` or `?`, too."""
    return re.sub(r'([*?[])', r'[\1]', path)


def list_files(folder: str, suffix: str) -> list[str]:
    """Files right in a folder whose names end with `suffix`; none where the folder is not there."""
    if is_local(folder):
        try:
            return [entry.path for entry in os.scandir(folder) if entry.name.endswith(suffix)]
        except FileNotFoundError:
            return []
    found = FileSystems.match([FileSystems.join(literal(folder), f'*{suffix}')])[0].metadata_list
    return [metadata.path for metadata in found]


def remove_temporaries(folder: str) -> None:
    """Removes what writers that were killed left in a folder."""
    if left := list_files(folder, TEMPORARY_SUFFIX):
        # Another launcher of the run may clear the same away.
        if is_local(folder):
            for path in left:
                pathlib.Path(path).unlink(missing_ok=True)
        else:
            FileSystems.delete(left)


def draw_once(path: str, draw: Callable[[], str]) -> str:
    """The text at `path`; where nothing is there, what `draw` returns is written first.

    A runner may repeat this, after a failure or on a second worker. The file on disk is
    the one that counts: it is written before anything uses it, whole or not at all, and
    what is returned is what the disk holds, so that a repetition returns the same.

    Args:
        path: The file, on any filesystem that Beam knows.
        draw: Draws noise and returns the release as text. Not called where the file is.
    """
    if not FileSystems.exists(path):
        # Should another attempt be faster, its file stays, and this draw is never read.
        write_file(path, draw().encode())
    return read_file(path).decode()


def read_key(work_dir: str) -> RunKey:
    """The run key of a work directory.

    Workers read it there themselves: a key in the pipeline, or its place, would show in
    runners and in staged files.

    Raises:
        PermissionError: A local key file that others than its owner may read.
    """
    path = FileSystems.join(work_dir, RUN_KEY)
    if is_local(path):
        return RunKey.read(pathlib.Path(path))
    return RunKey(read_file(path))  # Who may read it is the bucket's own business.


def write_key(work_dir: str, key: RunKey) -> None:
    """Writes a run's key into its work directory, for its owner alone; never replaces one."""
    path = FileSystems.join(work_dir, RUN_KEY)
    if is_local(path):
        # Another launcher of the same run may be faster: its key is the run's.
        with contextlib.suppress(FileExistsError):
            if not os.path.exists(path):
                key.write(pathlib.Path(path))
    else:
        write_file(path, key.to_bytes())


def guarded[T](work: Callable[[], T], *, expected: str, work_dir: str, name: str) -> T:
    """What `work` returns; an exception's text goes into the work directory and nowhere else.

    It may quote data, and runners log and show what a step raises (METHOD 8): what is
    raised instead names the file.

    Args:
        work: Computes with private data.
        expected: What should have come of the work, for the error.
        work_dir: The curator's folder.
        name: What the name of the file begins with.

    Raises:
        RuntimeError: `work` raised; without cause or context.
    """
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever it is, its text stays with the curator
        kind, details = type(error).__name__, traceback.format_exc()
    # Outside of the handler, so that no error from here carries that one along.
    file = f'{name}.{uuid.uuid4().hex}.txt'
    write_file(FileSystems.join(work_dir, ERRORS_FOLDER, file), details.encode(errors='replace'))
    raise RuntimeError(
        f'Expected {expected}, got error={kind}. Its details are restricted to the curator: '
        f'{ERRORS_FOLDER}/{file} in the work directory.'
    )
