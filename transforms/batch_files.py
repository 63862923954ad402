"""Finished batches in the work directory: their examples, and what the curator learns of each batch."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from apache_beam.io.filesystems import FileSystems

from models.privacy.ex_post import BatchLoss
from models.privacy.individual import BatchSpending
from models.privacy.params import MechanismParams
from models.privacy.report import BatchFacts
from models.records import StructuredExample, SyntheticExample
from transforms.durable import read_file, write_file
from transforms.run_files import BATCHES_FOLDER, LOSSES_FOLDER, SPENDING_FOLDER


def batch_path(work_dir: str, batch_id: str) -> str:
    """The file of a finished batch."""
    return FileSystems.join(work_dir, BATCHES_FOLDER, f'{batch_id}.json')


_FACTS_FOLDERS: dict[type, str] = {BatchLoss: LOSSES_FOLDER, BatchSpending: SPENDING_FOLDER}


def _facts_path(work_dir: str, batch_id: str, kind: type, examples: bytes) -> str:
    """The file of the losses or the spending of exactly these examples."""
    digest = hashlib.sha256(examples).hexdigest()[:32]
    return FileSystems.join(work_dir, _FACTS_FOLDERS[kind], f'{batch_id}.{digest}.json')


def facts_kind(params: MechanismParams) -> type[BatchFacts] | None:
    """The type of what a batch tells the curator beside its size: its losses, its spending, or None."""
    if params.is_ex_post:
        return BatchLoss
    return BatchSpending if params.is_individual else None


def write_batch(work_dir: str, batch_id: str, rows: Iterable[Any], facts: BatchFacts | None = None) -> None:
    """Writes a finished batch: first its losses or spending, if it has any, then its rows.

    Two accelerators may round differently, and then decode one batch to different examples. So the name
    of the file of losses or spending holds a digest of the examples: `read_facts` finds the facts of the
    examples that stayed.
    """
    plain = [row if isinstance(row, dict) else dataclasses.asdict(row) for row in rows]
    data = json.dumps(plain, ensure_ascii=False).encode()
    if facts is not None:
        restricted = json.dumps(dataclasses.asdict(facts)).encode()
        write_file(_facts_path(work_dir, batch_id, type(facts), data), restricted)
    write_file(batch_path(work_dir, batch_id), data)


def read_batch[Row](work_dir: str, batch_id: str, row: Callable[..., Row]) -> list[Row] | None:
    """The rows of a finished batch, made of their fields; None if it is not finished.

    Raises:
        ValueError: The file is damaged. The error quotes nothing of it.
    """
    path = batch_path(work_dir, batch_id)
    if not FileSystems.exists(path):
        return None
    data = read_file(path)
    try:
        rows = json.loads(data)
        if isinstance(rows, list):
            return [row(**fields) for fields in rows]
    except (RecursionError, TypeError, ValueError):
        pass
    # Outside of the handler: that error holds the text.
    raise ValueError(_damaged(path, batch_id))


def example_of(**fields: Any) -> SyntheticExample:
    """An example of private prediction, with a structure or without."""
    return StructuredExample(**fields) if 'forced_tokens' in fields else SyntheticExample(**fields)


def _damaged(path: str, batch_id: str) -> str:
    file = '/'.join(path.rsplit('/', 2)[1:])
    return (
        f'Expected an intact batch {batch_id}, got a damaged file={file} in the work directory. Remove '
        f'{BATCHES_FOLDER}/{batch_id}.json there, {LOSSES_FOLDER}/{batch_id}.* and '
        f'{SPENDING_FOLDER}/{batch_id}.* if they are there, and repeat the command: it computes the batch '
        'again, with the same noise.'
    )


def read_facts[Facts: BatchFacts](work_dir: str, batch_id: str, kind: type[Facts]) -> Facts:
    """The losses or the spending of a finished batch, for the examples in its file.

    Raises:
        FileNotFoundError: They are missing.
        ValueError: The file is damaged.
    """
    path = _facts_path(work_dir, batch_id, kind, read_file(batch_path(work_dir, batch_id)))
    if not FileSystems.exists(path):
        folder = _FACTS_FOLDERS[kind]
        raise FileNotFoundError(
            f'Expected the {folder} of batch {batch_id} beside its examples, got none in {folder}/ of '
            f'the work directory. Restore them, or remove {BATCHES_FOLDER}/{batch_id}.json and repeat the '
            'command: it decodes the batch again, with the same noise.'
        )
    data = read_file(path)
    make: Callable[..., Facts] = kind
    try:
        values = json.loads(data)
        return make(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        )
    except (AttributeError, RecursionError, TypeError, ValueError):
        pass
    # Outside of the handler: that error holds the facts.
    raise ValueError(_damaged(path, batch_id))
