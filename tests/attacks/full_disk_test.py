"""A disk that is full at any write of a run: files are whole or absent, and the run goes on to its corpus.

Every operation that needs room fails from the k-th on: making a folder, opening a file, writing it, which
then leaves half of it, flushing it and giving it its name. So does the file of the error itself.
"""

import builtins
import errno
import functools
import json
import os
import pathlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from models.privacy import text_votes
from models.privacy.grid import NoiseSource
from models.privacy.randomness import RunKey
from models.sampling import loading
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.run import folders
from pipeline.settings.job_config import JobConfig
from tests.launched import launch
from tests.models.finetuning import tiny
from tests.samples import SECRET, without_times
from transforms import durable
from transforms.evolve import sample

pytestmark = pytest.mark.run

# In every record, and in no other text.
CANARY = 'xqzzarn'
ROWS = [
    {
        'text': f'{("invoice", "parcel")[number % 2]} courier {CANARY}{number}',
        'label': 'ab'[number % 2],
        'id': str(number),
    }
    for number in range(24)
]
COMMON: dict[str, Any] = {
    'label_field': 'label', 'labels': ('a', 'b'), 'record_id_field': 'id', 'records': 24, 'delta': 1e-2,
    'run_id': 'run', 'model': 'tiny', 'prompt': 'pretrained', 'shards': 1, 'micro_batch_size': 8,
    'dataset': 'mail', 'dtype': 'float32',
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    'predict': {
        'method': 'predict', 'aggregate': 'mean', 'max_private_tokens': 4, 'batches_per_label': 1,
        'batch_size': 4, 'max_prompt_tokens': 48, 'max_example_tokens': 4,
    },
    'evolve': {
        'method': 'evolve', 'epsilon': 30.0, 'rounds': 1, 'candidates': 8, 'examples': 6, 'nearest': 1,
        'shots': 2, 'max_prompt_tokens': 96, 'max_example_tokens': 40, 'top_p': 1.0, 'temperature': 3.0,
        'regex': '(invoice|refund|parcel|courier)( (invoice|refund|parcel|courier)){1,2}',
    },
}  # fmt: skip


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    """One key, one name of tables and one model for all runs: noise follows from a run's folder as well."""
    draw, one = text_votes.noisy_votes, NoiseSource(RunKey(SECRET), ())

    def draw_alike(sums: Any, noise_scale: float, source: NoiseSource) -> Any:
        return draw(sums, noise_scale, one)

    with tiny.known(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_votes, 'noisy_votes', draw_alike)
        patch.setattr(folders.RunKey, 'new', staticmethod(lambda: RunKey(SECRET)))
        patch.setattr(sample, 'load_source', functools.lru_cache(loading.load_source))
        yield


class Disk:
    """The disk below a folder, which is full once so many operations were done.

    Attributes:
        room: Operations that are left.
    """

    def __init__(self, folder: pathlib.Path, room: float, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.room = str(folder), room
        real_open, real_descriptor, fdopen = builtins.open, os.open, os.fdopen

        def opening(file: Any, mode: str = 'r', *arguments: Any, **options: Any) -> Any:
            if not set(mode) & set('wxa') or not str(file).startswith(self.folder):
                return real_open(file, mode, *arguments, **options)
            self.take()
            return self._within(real_open(file, mode, *arguments, **options))

        def of_descriptor(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR) and str(path).startswith(f'{self.folder}/out'):
                self.take()
            return real_descriptor(path, flags, *arguments, **options)

        patch.setattr(builtins, 'open', opening)
        patch.setattr(os, 'open', of_descriptor)
        patch.setattr(os, 'fdopen', lambda *given, **options: self._within(fdopen(*given, **options)))
        for name in ('link', 'mkdir', 'fsync'):
            patch.setattr(os, name, self._limited(getattr(os, name)))

    def take(self) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _limited(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def limited(*arguments: Any, **options: Any) -> Any:
            if isinstance(arguments[0], int) or str(arguments[-1]).startswith(f'{self.folder}/out'):
                self.take()
            return real(*arguments, **options)

        return limited

    def _within(self, file: Any) -> Any:
        write = file.write if hasattr(file, 'write') else None
        disk = self

        class Limited:
            def __enter__(self) -> 'Limited':
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def write(self, data: Any) -> Any:
                try:
                    disk.take()
                except OSError:
                    write(data[: len(data) // 2])
                    raise
                return write(data)

        return Limited()


def write_input(folder: pathlib.Path) -> None:
    """The records, and a ledger with room for one charge, and not for two."""
    (folder / 'in.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in ROWS))
    if not (folder / 'ledger.db').exists():
        made = Ledger.create(str(folder / 'ledger.db'))
        made.add_dataset('mail', unit='example', delta=1e-2, rho=20.0)


def run_of(folder: pathlib.Path, name: str) -> JobConfig:
    folder.mkdir(exist_ok=True)
    write_input(folder)
    return job_config(
        input=str(folder / 'in.jsonl'), output=str(folder / 'out'), ledger=str(folder / 'ledger.db'),
        **COMMON, **SETTINGS[name],
    )  # fmt: skip


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """Finished files by their place; temporaries are none, nor are details of errors."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for top in (folder / 'out', folder / 'out.curator')
        for path in top.rglob('*')
        if path.is_file() and path.suffix != '.tmp' and path.parent.name not in ('errors', 'workers')
    }


def attempt(run: JobConfig, folder: pathlib.Path, room: float) -> tuple[BaseException | None, float]:
    """A run with so much room; its error, and the operations that it did."""
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(folder, room, patch)
        try:
            launch(run, [])
        except (OSError, RuntimeError) as error:
            return error, room - disk.room
        return None, room - disk.room


def comparable(found: dict[str, bytes], folder: pathlib.Path) -> dict[str, bytes]:
    """Contents without the folder's own path, and without the time that a run took."""
    return {
        name: without_times(name, data).replace(str(folder).encode(), b'FOLDER')
        for name, data in found.items()
        if name != 'out.curator/run.json'
    }


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[dict[str, bytes], int]]:
    """The files of an undisturbed run of each method, and the number of operations that write them."""

    @functools.cache
    def of(name: str) -> tuple[dict[str, bytes], int]:
        folder = tmp_path_factory.mktemp(name)
        error, operations = attempt(run_of(folder, name), folder, float(10**6))
        assert error is None
        return comparable(contents(folder), folder), int(operations)

    return of


def check_failure(error: BaseException | None, folder: pathlib.Path, expected: dict[str, bytes]) -> None:
    """The error says what to do and tells nothing private; what is there is whole; one charge at most."""
    assert error is not None
    said = ''.join(traceback.format_exception(error))
    assert CANARY not in said
    assert 'No space left on device' in said, said
    found = comparable(contents(folder), folder)
    assert found == {name: expected[name] for name in found}
    assert len(Ledger.open(str(folder / 'ledger.db')).account('mail').runs) <= 1


@pytest.mark.parametrize('name', SETTINGS)
def test_a_run_goes_on_each_time_that_room_is_made(
    tmp_path: pathlib.Path, undisturbed: Callable[[str], tuple[dict[str, bytes], int]], name: str
) -> None:
    expected, operations = undisturbed(name)
    run, room, attempts = run_of(tmp_path, name), 3, 0
    while True:
        error, _ = attempt(run, tmp_path, room)
        if error is None:
            break
        check_failure(error, tmp_path, expected)
        attempts += 1
        room += 9
    assert attempts > 2 and comparable(contents(tmp_path), tmp_path) == expected


@pytest.mark.parametrize('name', SETTINGS)
def test_full_at_every_single_write(
    tmp_path: pathlib.Path, undisturbed: Callable[[str], tuple[dict[str, bytes], int]], name: str
) -> None:
    expected, operations = undisturbed(name)
    for room in range(operations):
        folder = tmp_path / str(room)
        run = run_of(folder, name)
        error, _ = attempt(run, folder, room)
        check_failure(error, folder, expected)
        launch(run, [])
        assert comparable(contents(folder), folder) == expected


def write_in_place(path: str, temporary: str, data: bytes) -> None:
    """The open twin: a file has its name before it is whole."""
    if not os.path.exists(path):
        with builtins.open(path, 'xb') as file:
            file.write(data)


@pytest.mark.first
def test_a_writer_in_place_is_caught(
    tmp_path: pathlib.Path,
    undisturbed: Callable[[str], tuple[dict[str, bytes], int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected, _ = undisturbed('predict')
    monkeypatch.setattr(durable, '_write_local', write_in_place)
    run = run_of(tmp_path, 'predict')
    with pytest.raises(AssertionError):
        for room in range(3, 40):
            error, _ = attempt(run, tmp_path, room)
            check_failure(error, tmp_path, expected)
