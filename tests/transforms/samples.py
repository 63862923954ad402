"""Records of several users and labels, and the sizes that the tests of this folder share."""

import pathlib
import random

from models.privacy.randomness import RunKey
from models.records import Record
from tests.samples import SECRET
from transforms import durable, run_files

CENTERS = 3

SLOTS = 4


def make_work_dir(folder: pathlib.Path, *, secret: bytes = SECRET, run: str = '{}') -> str:
    """A work directory with a run key and the digests of a run."""
    for path in (folder, folder / run_files.ERRORS_FOLDER):
        path.mkdir(exist_ok=True)
    durable.write_key(str(folder), RunKey(secret))
    (folder / run_files.RUN).write_text(run)
    return str(folder)


def some_records(number: int = 60) -> list[Record]:
    """Records with duplicates, undeclared labels, and users of several labels."""
    source = random.Random(3)
    return [
        Record(
            text=f'text {source.randrange(number)} ' + 'é' * source.randrange(30),
            label=source.choice(['a', 'a', 'b', 'undeclared']),
            unit=f'user {source.randrange(15)}',
        )
        for _ in range(number)
    ]
