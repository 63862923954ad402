"""Behind `dp-corpus split`: sets real texts apart before any run reads them, by keyed hash.

Texts that were set apart tell how good a corpus is and whether it repeats records. The records themselves
cannot tell that: a corpus that quotes a record is close to it for that reason alone. The id of its unit and
the key decide the side of a row, so all rows of a unit are on one side, and stay there as the files grow.
"""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Mapping

from models.privacy.randomness import RunKey
from models.spelling import id_of, spelled
from transforms.places import is_database
from transforms.read import Reason, RecordFields, check_input, file_format, read_rows, split_file
from transforms.read.errors import naming_only
from transforms.read.sources import source_of
from transforms.run_files import SPLIT_KEY as KEY
from transforms.run_files import SPLIT_RECORDS as RECORDS
from transforms.run_files import SPLIT_TEST as TEST

# Bytes of the hash that decides: shares are resolved to 2**-64.
_BYTES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """Numbers of rows that were written: restricted to the curator, since they are true counts.

    `without_unit` counts rows of neither side: no unit id, or no row of their format.
    """

    records: int = dataclasses.field(repr=False)
    test: int = dataclasses.field(repr=False)
    without_unit: int = dataclasses.field(repr=False)


def split(
    pattern: str, folder: pathlib.Path, *, fields: RecordFields, test_share: float, key: RunKey
) -> Split:
    """Writes the rows of each file with all their columns, as JSON lines, to `records` or `test` in a folder.

    Args:
        pattern: Comma-separated paths and globs of files, or another place.
        folder: A new folder, for the curator alone; nothing is left of it after an error.
        fields: Columns of the text and of the unit's id. Rows of one id stay together, ids compared as a
            run compares them; without a column of ids, rows of one text.
        test_share: Probability with which a unit is set apart.
        key: Key of the hash.
    """
    if not 0 < test_share < 1:
        raise ValueError(
            f'Expected a share of units to set apart between 0 and 1, got test_share={test_share!r}. Give '
            '0.1 for a tenth.'
        )
    paths = [file.path for file in check_input(pattern, fields)]
    names = [_written_name(path) for path in paths]
    if len(set(names)) < len(names):
        raise ValueError(
            f'Expected files with names of their own, got input={pattern!r} with two of one name. '
            'Rename one, or split them apart.'
        )
    counts: dict[str | None, int] = {RECORDS: 0, TEST: 0, None: 0}
    folder.mkdir(mode=0o700)
    try:
        key.write(folder / KEY)
        for side in (RECORDS, TEST):
            (folder / side).mkdir(mode=0o700)
        for path, name in zip(paths, names, strict=True):
            with (
                open(folder / RECORDS / name, 'w', encoding='ascii') as records,
                open(folder / TEST / name, 'w', encoding='ascii') as test,
                naming_only(path),
            ):
                sides = {RECORDS: records, TEST: test}
                for piece in split_file(path, fields.table):
                    for values, _ in read_rows(piece, fields, whole=True):
                        chosen = _side(values, path, fields, key, test_share)
                        counts[chosen] += 1
                        if chosen is not None:
                            sides[chosen].write(json.dumps(values, default=_as_text) + '\n')
    except BaseException:
        shutil.rmtree(folder)
        raise
    return Split(records=counts[RECORDS], test=counts[TEST], without_unit=counts[None])


def _side(
    values: Mapping[str, object] | Reason, path: str, fields: RecordFields, key: RunKey, test_share: float
) -> str | None:
    """'records' or 'test'; None for a row without a unit id."""
    if values is Reason.UNREADABLE_REST:
        name = pathlib.Path(path).name
        raise ValueError(
            f'Expected whole files, got file={name!r}, whose rest cannot be read. Fetch it again.'
        )
    if isinstance(values, Reason):
        return None
    unit = spelled(values.get(fields.text)) if fields.unit is None else id_of(values.get(fields.unit))
    if not unit:
        return None
    digest = key.hash('split', unit.encode(), size=_BYTES)
    return TEST if int.from_bytes(digest, 'little') < int(test_share * 256**_BYTES) else RECORDS


def _written_name(path: str) -> str:
    if is_database(path):
        return 'query.jsonl'
    name = pathlib.Path(path).name
    if source_of(path) is None:
        form, codec = file_format(path)
        name = name[: -len(f'.{form}.{codec}' if codec else f'.{form}')]
    return f'{name}.jsonl'


def _as_text(value: object) -> str:
    # A byte that is not UTF-8 spoils its row there as it does here.
    return value.decode(errors='surrogateescape') if isinstance(value, bytes) else str(value)
