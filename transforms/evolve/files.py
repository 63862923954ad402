"""Files of the rounds in the work directory: lists and noisy votes, which are released, and embeddings."""

import hashlib
import json

import numpy as np
from apache_beam.io.filesystems import FileSystems
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from models.evolution.generation import (
    Candidate,
    Generation,
    candidates_from_json,
    votes_from_json,
)
from models.privacy import intact
from transforms.batch_files import batch_path
from transforms.durable import read_file
from transforms.run_files import EMBEDDINGS_FOLDER, ROUNDS_FOLDER

_VECTORS = 'vectors'
# Fields of a row of a batch of sampled texts.
_FIELDS = {'name', 'text', 'label', 'parents', 'tokens', 'truncated'}


def candidates_name(number: int) -> str:
    """The file with the list of a round."""
    return f'candidates-{number:02d}.json'


def votes_name(number: int) -> str:
    """The file with the noisy votes of a round."""
    return f'votes-{number:02d}.json'


def round_path(work_dir: str, name: str) -> str:
    """A file of the rounds."""
    return FileSystems.join(work_dir, ROUNDS_FOLDER, name)


def vectors_path(work_dir: str, number: int) -> str:
    """The file with the embeddings of a round's list, or of the texts after the last vote."""
    return round_path(work_dir, f'candidates-{number:02d}.safetensors')


def shard_path(work_dir: str, shard: int) -> str:
    """The file with the embeddings of a share of the records; private."""
    return FileSystems.join(work_dir, EMBEDDINGS_FOLDER, f'{shard:05d}.safetensors')


def vectors_to_bytes(vectors: np.ndarray) -> bytes:
    """Embeddings `[n d]` float32 as a file."""
    return safetensors_numpy.save({_VECTORS: np.ascontiguousarray(vectors, np.float32)})


def read_candidates(work_dir: str, number: int) -> tuple[Candidate, ...]:
    """The list of a round, in its order.

    Raises:
        FileNotFoundError: The file is not there.
        ValueError: It is damaged.
    """
    name = candidates_name(number)
    return candidates_from_json(read_file(round_path(work_dir, name)).decode(), name)


def list_digest(work_dir: str, number: int) -> str:
    """Digest of a round's list and its embeddings: what was asked of the records."""
    digest = hashlib.sha256()
    for path in (round_path(work_dir, candidates_name(number)), vectors_path(work_dir, number)):
        digest.update(hashlib.sha256(read_file(path)).digest())
    return digest.hexdigest()


def read_vectors(work_dir: str, number: int) -> np.ndarray:
    """The embeddings of a round's list, `[N d]` float32."""
    path = vectors_path(work_dir, number)
    with intact.reading(FileSystems.split(path)[1], 'Remove it and repeat the command: it is computed again'):
        return _vectors_of(read_file(path))


def _vectors_of(data: bytes) -> np.ndarray:
    try:
        return safetensors_numpy.load(data)[_VECTORS]
    except SafetensorError as error:
        raise ValueError from error


def read_generation(work_dir: str, number: int) -> Generation:
    """A round that is finished: its list, the embeddings, and the noisy votes."""
    name = votes_name(number)
    return Generation(
        candidates=read_candidates(work_dir, number),
        vectors=read_vectors(work_dir, number),
        votes=votes_from_json(read_file(round_path(work_dir, name)).decode(), name),
    )


def read_generations(work_dir: str, rounds: int) -> list[Generation]:
    """The first `rounds` rounds."""
    return [read_generation(work_dir, number) for number in range(1, rounds + 1)]


def read_sampled(work_dir: str, batch_id: str) -> list[dict[str, object]]:
    """The rows of a finished batch of sampled texts: see `transforms.evolve.sample`.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        rows = json.loads(read_file(batch_path(work_dir, batch_id)))
    except (RecursionError, ValueError):
        rows = None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.keys() == _FIELDS for row in rows):
        raise ValueError(
            f'Expected an intact batch {batch_id}, got a damaged file=batches/{batch_id}.json in the work '
            'directory. Remove it and repeat the command: it samples the same texts again.'
        )
    return rows
