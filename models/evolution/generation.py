"""The list of a round and the votes on it, as files that may be released.

A list is written before a vote, and the noise of its votes is drawn once. Both are read from their files ever
after, so a run that is resumed has the same (METHOD 4e, steps 1 and 3).
"""

import contextlib
import dataclasses
import json
from collections.abc import Sequence

import numpy as np

from models.privacy import intact, text_votes

CANDIDATES_SCHEMA, VOTES_SCHEMA = 'dp-corpus candidates 1', 'dp-corpus votes 1'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One text that records may vote for: of a public prompt, or of one around released texts.

    Attributes:
        name: Of its request, unique within the run: '0001-000002-0017' is text 17 of that batch.
        label: The declared label that its prompt asked for, or that its corpus gives it; None without one.
        parents: Names of the texts that its prompt showed; none for the public prompt alone.
        tokens: Tokens that were sampled; 0 of a text that was given.
    """

    name: str
    text: str
    label: str | None
    parents: tuple[str, ...] = ()
    tokens: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """One round: its candidates, their embeddings and the noisy votes on them. All of it may be released.

    Attributes:
        vectors: Their embeddings, `[N d]` float32 unit rows.
        votes: Noisy votes `[G N]` float64 of the records of each label, whole multiples of a quantum.
    """

    candidates: tuple[Candidate, ...]
    vectors: np.ndarray
    votes: np.ndarray


def candidates_to_json(number: int, candidates: Sequence[Candidate]) -> str:
    """The list of a round as JSON: the same text for the same list."""
    rows = [dataclasses.asdict(candidate) for candidate in candidates]
    document = {'schema': CANDIDATES_SCHEMA, 'round': number, 'candidates': rows}
    return json.dumps(document, ensure_ascii=False, indent=1) + '\n'


def candidates_from_json(text: str, name: str) -> tuple[Candidate, ...]:
    """Reads `candidates_to_json`.

    Raises:
        ValueError: The file is another one, or damaged.
    """
    with _reading(name):
        document = json.loads(text)
        if document['schema'] != CANDIDATES_SCHEMA:
            raise ValueError
        return tuple(Candidate(**{**row, 'parents': tuple(row['parents'])}) for row in document['candidates'])


def votes_to_json(number: int, labels: Sequence[str | None], quanta: np.ndarray, noise_scale: float) -> str:
    """The noisy votes of a round as JSON.

    Args:
        number: Of the round, from 1.
        labels: The declared labels, in their order.
        quanta: `[G N]` int64, what `text_votes.noisy_votes` drew.
        noise_scale: σ, in votes.
    """
    document = {
        'schema': VOTES_SCHEMA,
        'round': number,
        'labels': list(labels),
        'noise_scale': noise_scale,
        'quanta_per_vote': text_votes.QUANTA_PER_VOTE,
        'quanta': quanta.tolist(),
    }
    return json.dumps(document, ensure_ascii=False) + '\n'


def votes_from_json(text: str, name: str) -> np.ndarray:
    """Reads `votes_to_json`: votes `[G N]` float64.

    Raises:
        ValueError: The file is another one, or damaged.
    """
    with _reading(name):
        document = json.loads(text)
        quanta = np.array(document['quanta'])
        # Rows of a list without texts are empty, and have no type.
        is_whole = quanta.dtype == np.int64 or not quanta.size
        says = document['schema'], document['quanta_per_vote']
        if quanta.ndim != 2 or not is_whole or says != (VOTES_SCHEMA, text_votes.QUANTA_PER_VOTE):
            raise ValueError
        return text_votes.in_votes(quanta)


def _reading(name: str) -> contextlib.AbstractContextManager[None]:
    return intact.reading(f'file={name!r}', 'Restore it, or start a new run in a fresh work directory')
