"""Requests for the texts of a round: labels and released texts, never a record (METHOD 4e, step 1).

In the first round each label's public prompt is asked. Later a share of the requests is so again, and the
others show texts that the votes so far favour. All of it is a function of the settings and of what
earlier rounds released.
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from models.evolution import pool
from models.evolution.generation import Generation
from models.evolution.pool import Pool
from models.evolution.selection import favoured, parents, survivors
from models.evolution.settings import EvolutionSettings
from models.records import BatchId
from models.sampling.source import Request


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """The requests of one batch.

    Attributes:
        parents: For each request the names of the texts that it shows.
    """

    batch_id: BatchId
    requests: tuple[Request, ...]
    parents: tuple[tuple[str, ...], ...]


def requests_of(
    settings: EvolutionSettings, number: int, generations: Sequence[Generation]
) -> tuple[Asked, ...]:
    """The requests of a round.

    Args:
        settings: The run.
        number: Of the round, from 1; `params.rounds + 1` for the texts after the last vote.
        generations: The rounds before it.
    """
    text_pool = pool.of(settings, generations) if generations else None
    shown = [_shown(settings, number, group, text_pool) for group in range(len(settings.labels))]
    asked = []
    for batch_id, count in settings.batches_of(number):
        batch_examples = [shown[batch_id.group].pop(0) for _ in range(count)]
        asked.append(
            Asked(
                batch_id=batch_id,
                requests=tuple(
                    Request(
                        name=f'{batch_id}-{place:04d}',
                        label=settings.labels[batch_id.group],
                        examples=tuple(text for _, text in examples),
                    )
                    for place, examples in enumerate(batch_examples)
                ),
                parents=tuple(tuple(name for name, _ in examples) for examples in batch_examples),
            )
        )
    return tuple(asked)


def _shown(
    settings: EvolutionSettings, number: int, group: int, text_pool: Pool | None
) -> list[tuple[tuple[str, str], ...]]:
    """(name, text) of the texts that each prompt of a label shows; none for the public prompt alone."""
    count = settings.samples_in(number)
    rows = None if text_pool is None else np.flatnonzero(text_pool.labels == group)
    if text_pool is None or rows is None or not len(rows) or not settings.shots:
        # No text of this label is there yet, or prompts show none: the label's own is asked once more.
        return [()] * count
    after_the_last_vote = number > settings.params.rounds
    fresh = 0 if after_the_last_vote else round(settings.fresh_share * count)
    children = count - fresh
    chosen = rows[survivors(favoured(text_pool.expected[group, rows]), max(1, min(children, len(rows))))]
    # Public: whoever has the release finds the same parents.
    digest = hashlib.sha256(json.dumps([settings.run_id, number, group]).encode()).digest()
    of_prompts = parents(
        chosen, text_pool.vectors, prompts=children, shots=settings.shots, seed=list(digest[:16])
    )
    families = [
        tuple((text_pool.candidates[place].name, text_pool.candidates[place].text) for place in places)
        for places in of_prompts
    ]
    # In turn, so that no batch is of one kind.
    return _in_turn([()] * fresh, families)


def _in_turn(one: list[Any], other: list[Any]) -> list[Any]:
    """Both lists in one, each evenly spread over it."""
    places = [((place + 0.5) / len(part), kind, place) for kind, part in enumerate((one, other)) for place in
              range(len(part))]  # fmt: skip
    return [(one, other)[kind][place] for _, kind, place in sorted(places)]


def to_json(asked: Sequence[Asked]) -> str:
    """The requests of a round as JSON."""
    rows = [
        {
            'batch': dataclasses.asdict(batch.batch_id),
            'requests': [dataclasses.asdict(request) for request in batch.requests],
            'parents': batch.parents,
        }
        for batch in asked
    ]
    return json.dumps(rows, ensure_ascii=False)


def from_json(text: str) -> tuple[Asked, ...]:
    """Reads `to_json`."""
    return tuple(
        Asked(
            batch_id=BatchId(**row['batch']),
            requests=tuple(
                Request(name=request['name'], label=request['label'], examples=tuple(request['examples']))
                for request in row['requests']
            ),
            parents=tuple(map(tuple, row['parents'])),
        )
        for row in json.loads(text)
    )
