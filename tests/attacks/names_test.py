"""Names in a folder of texts, and what they lead to: no name is told, and nothing from elsewhere is read."""

import contextlib
import errno
import json
import os
import pathlib
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from models.records import Record
from tests.command_line import Done, in_this_process
from tests.one_model import one_model
from tests.pipeline import input_kinds_test
from tests.samples import needs_model
from transforms import read, run_files
from transforms.read import RecordFields, RecordRules, errors
from transforms.read.errors import RestrictedError
from transforms.read.sources import folder as folders

# In the name of a file, and in a file that is not of the folder.
NAME, CANARY = 'Smith_John_HIV', 'xqzzarn'
RULES = RecordRules(fields=RecordFields(text='text', label='label', record_id='id'), labels=('pos', 'neg'))


@pytest.fixture(autouse=True)
def _no_waiting_for_ever() -> Iterator[None]:
    def end(*_: object) -> None:
        raise TimeoutError('it waits for ever')

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def link(target: str) -> Callable[[pathlib.Path], None]:
    return lambda path: path.symlink_to(target)


def leaving(path: pathlib.Path) -> None:
    outside = path.parents[2] / 'outside.txt'
    outside.write_text(CANARY)
    path.symlink_to(outside)


def leaving_folder(path: pathlib.Path) -> None:
    outside = path.parents[2] / 'outside'
    outside.mkdir()
    (outside / f'{NAME}.txt').write_text(CANARY)
    path.symlink_to(outside)


def unreadable(path: pathlib.Path) -> None:
    path.write_text('Of nobody.')
    path.chmod(0)


def odd(path: pathlib.Path) -> None:
    with open(os.fsencode(path.with_suffix('')) + b'\xff.txt', 'wb') as file:
        file.write(b'Named oddly.')


def bound(path: pathlib.Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def twice(path: pathlib.Path) -> None:
    path.hardlink_to(next(path.parent.glob('pos-*.txt')))


ENTRIES: dict[str, Callable[[pathlib.Path], None]] = {
    'dangling link': link('nowhere'),
    'link that leaves': leaving,
    'linked folder': leaving_folder,
    'pipe': lambda path: os.mkfifo(path),
    'socket': bound,
    'unreadable': unreadable,
    'odd name': odd,
    'loop': link(f'{NAME}.txt'),
    'second name': twice,
}
WHY = {'odd name': 'NOT_TEXT'}


def filled(tmp_path: pathlib.Path, entry: str) -> tuple[str, ...]:
    """The input's flags, of a folder of texts with one such entry."""
    given = input_kinds_test.texts(tmp_path)
    ENTRIES[entry](tmp_path / 'g' / 'pos' / f'{NAME}.txt')
    return given


def is_read(entry: str) -> bool:
    """True if this user may read it: the system's administrator may read all files."""
    return entry == 'unreadable' and os.geteuid() == 0


def told(done: Done, output: pathlib.Path) -> list[str]:
    """The places that show or publish the name, or what lies elsewhere."""
    shown = {'stdout': done.stdout.encode(), 'stderr': done.stderr.encode()}
    shown |= {str(path): path.read_bytes() for path in output.rglob('*') if path.is_file()}
    secrets = [NAME.encode(), CANARY.encode()]
    return [place for place, data in shown.items() if any(secret in data for secret in secrets)]


# --- Whole runs ------------------------------------------------------------------


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


@needs_model
@pytest.mark.run
@pytest.mark.parametrize('command', ['check', 'plan', 'generate', 'refine'])
@pytest.mark.parametrize('entry', ENTRIES)
def test_a_bad_entry_is_counted_for_the_curator_and_named_to_nobody(
    tmp_path: pathlib.Path, entry: str, command: str
) -> None:
    line = input_kinds_test.arguments(command, tmp_path, (*filled(tmp_path, entry), '--keep-rejected'))
    done = in_this_process(*line)
    assert done.returncode == 0, done.stdout + done.stderr
    assert told(done, tmp_path / 'out') == []
    reason = read.Reason[WHY.get(entry, 'MALFORMED')]
    records = len(input_kinds_test.ROWS) + is_read(entry)
    if command == 'check':
        found = json.loads(done.stdout)
        assert found['records'] == records
        assert found['rejected'] == ({} if is_read(entry) else {reason.value: 1})
    elif command != 'plan':
        curator = tmp_path / 'out.curator'
        kept = json.loads((curator / run_files.RESTRICTED_REPORT).read_text())
        assert kept['records_read'] == len(input_kinds_test.ROWS) + 1
        assert kept['rejected_by_reason'] == ({} if is_read(entry) else {reason.name.lower(): 1})
        # The curator finds it.
        assert is_read(entry) or 'pos/' in (curator / run_files.REJECTED).read_text()


@pytest.mark.first
@needs_model
@pytest.mark.run
@pytest.mark.parametrize('command', ['check', 'generate', 'refine'])
def test_a_disk_that_fails_names_no_file(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    line = input_kinds_test.arguments(command, tmp_path, input_kinds_test.texts(tmp_path))

    def failing(place: str, way: str) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO), f'{place}/pos/{NAME}.txt')

    monkeypatch.setattr(folders, '_open', failing)
    done = in_this_process(*line)
    said = ' '.join(done.stderr.split())
    assert done.returncode == 2 and told(done, tmp_path / 'out') == []
    assert f"Expected to read all of input='{tmp_path}/g', got error=OSError (Input/output error)" in said
    # Without the guard it is told.
    for module in (read.files, read.records):
        monkeypatch.setattr(module, 'naming_only', contextlib.nullcontext)
    assert 'stderr' in told(in_this_process(*line), tmp_path / 'out')


# --- The folder alone ------------------------------------------------------------


def rows(place: pathlib.Path) -> list[Any]:
    (file,) = read.check_input(str(place), RULES.fields)
    return [one for piece in read.split_file(file.path) for one in read.read_piece(piece, RULES)]


def test_an_open_folder_reads_what_lies_elsewhere(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, 'link that leaves')
    assert CANARY not in {one.text for one in rows(tmp_path / 'g') if isinstance(one, Record)}
    monkeypatch.setattr(folders, '_file_at', lambda path, root: path)
    assert CANARY in {one.text for one in rows(tmp_path / 'g') if isinstance(one, Record)}


def test_a_link_within_the_folder_is_a_file_of_it(tmp_path: pathlib.Path) -> None:
    """As of programs that keep contents apart from names."""
    (tmp_path / 'g' / '.kept').mkdir(parents=True)
    (tmp_path / 'g' / '.kept' / '1').write_text('A text.')
    (tmp_path / 'g' / 'pos').mkdir()
    (tmp_path / 'g' / 'pos' / '1.txt').symlink_to('../.kept/1')
    assert [one.text for one in rows(tmp_path / 'g')] == ['A text.']


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """The rights of a user who has none of the administrator's."""
    before = os.geteuid()
    os.seteuid(65534 if before == 0 else before)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_may_not_be_read_is_counted(tmp_path: pathlib.Path) -> None:
    """Files and folders that the system refuses a user; of the given folder itself it is an error."""
    place = pathlib.Path(tempfile.mkdtemp())  # which that user may enter
    try:
        input_kinds_test.texts(place)
        unreadable(place / 'g' / 'pos' / f'{NAME}.txt')
        place.chmod(0o755)
        (place / 'g' / 'closed').mkdir(mode=0)
        with as_nobody():
            found = rows(place / 'g')
        rejected = sorted(one.file for one in found if not isinstance(one, Record))
        assert rejected == ['closed', f'pos/{NAME}.txt']
        assert len(found) - len(rejected) == len(input_kinds_test.ROWS)
        (place / 'g').chmod(0)
        with as_nobody(), pytest.raises(RestrictedError, match='Permission denied'):
            rows(place / 'g')
    finally:
        (place / 'g').chmod(0o755)
        shutil.rmtree(place)


def test_the_digest_counts_bad_entries_by_their_names(tmp_path: pathlib.Path) -> None:
    def digest() -> str:
        (file,) = read.list_input(str(tmp_path / 'g'))
        return file.checksum(RULES.fields)

    input_kinds_test.texts(tmp_path)
    seen = [digest()]
    for entry in ENTRIES:
        path = tmp_path / 'g' / 'pos' / f'{NAME}.{entry}.txt'
        ENTRIES[entry](path)
        seen.append(digest())
        for outside in ('outside', 'outside.txt'):
            with contextlib.suppress(FileNotFoundError):
                (tmp_path / outside).rename(tmp_path / f'{entry} {outside}')
    assert len(set(seen)) == len(ENTRIES) + 1


# --- Errors ----------------------------------------------------------------------


@pytest.mark.parametrize(
    'error',
    [
        OSError(errno.EIO, os.strerror(errno.EIO), f'/g/{NAME}.txt'),
        FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f'/g/{NAME}.txt'),
        OSError(f'{NAME}.txt is a strange file'),
        UnicodeDecodeError('utf-8', NAME.encode(), 0, 1, NAME),
        ValueError(f'could not convert string to float: {NAME!r}'),
        KeyError(NAME),
        pa.ArrowInvalid(f'Expected to read a batch of {NAME}'),
        MemoryError(NAME),
    ],
)
def test_an_error_that_is_not_ours_says_its_kind_and_the_place(error: Exception) -> None:
    with pytest.raises(RestrictedError) as caught, errors.naming_only('/g'):
        raise error
    said = str(caught.value)
    assert NAME not in said and f"input='/g', got error={type(error).__name__}" in said
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    # On the curator's own screen it is whole.
    assert NAME in caught.value.for_the_curator


def test_our_own_errors_stay_as_they_are() -> None:
    for error in (
        ValueError('Expected columns.'),
        FileNotFoundError('Expected files.'),
        RestrictedError('Expected x.', 'y'),
    ):
        with pytest.raises(type(error)) as caught, errors.naming_only('/g'):
            raise error
        assert caught.value is error


def test_a_pattern_that_matches_texts_names_none(tmp_path: pathlib.Path) -> None:
    input_kinds_test.texts(tmp_path)
    (tmp_path / 'g' / f'{NAME}.txt').write_text('x')
    with pytest.raises(RestrictedError, match='of a folder of texts name the folder') as caught:
        read.check_input(f'{tmp_path}/g/*', RULES.fields)
    assert NAME not in str(caught.value) and NAME in caught.value.for_the_curator
    with pytest.raises(ValueError, match=NAME):  # which somebody typed
        read.check_input(f'{tmp_path}/g/{NAME}.txt', RULES.fields)
    os.mkfifo(tmp_path / 'g' / f'{NAME}.csv')
    with pytest.raises(RestrictedError, match='Expected regular files') as caught:
        read.check_input(f'{tmp_path}/g/*.csv', RULES.fields)
    assert NAME not in str(caught.value)
