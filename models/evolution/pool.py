"""All texts that records have voted on, and those after the last vote: their labels, by what was released."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from models.evolution.generation import Candidate, Generation
from models.evolution.selection import VoteField, asked_shares, label_scores, labels_of
from models.evolution.settings import EvolutionSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """Texts of all rounds. Everything is public or a function of released votes.

    Attributes:
        candidates: N texts: the last list, which holds those before it, and then those that nobody voted on.
        vectors: Their embeddings, `[N d]`.
        rounds: The round that each text came up in, from 1, `[N]`; 0 of one that nobody voted on.
        votes: Noisy votes of the last round as they were released, `[G N]`; 0 of one that nobody voted on.
        expected: Denoised votes of each label, summed over rounds, `[G N]`.
        scores: Share of each label in a text, `[G N]`.
        labels: The label of each text, `[N]`: a place in the declared ones.
        totals: Released votes of each label, summed over lists and rounds, `[G]`.
    """

    candidates: tuple[Candidate, ...]
    vectors: np.ndarray
    rounds: np.ndarray
    votes: np.ndarray
    expected: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    totals: np.ndarray


def of(
    settings: EvolutionSettings,
    generations: Sequence[Generation],
    children: Sequence[Candidate] = (),
    vectors_of_children: np.ndarray | None = None,
) -> Pool:
    """The pool of the rounds so far.

    A round's votes tell of any text, whichever round it is of: see `VoteField`. What the rounds say adds up.
    """
    noise, last = settings.params.noise_scale, generations[-1]
    together = last.vectors
    if children:
        assert vectors_of_children is not None
        together = np.concatenate([together, vectors_of_children])
    asked = _asked(settings.labels, (*last.candidates, *children))
    shares = asked_shares(asked, len(settings.labels), together)
    fields = (
        # A list holds the one before it, and new texts behind that.
        VoteField.of(generation.votes, generation.vectors, noise, shares[:, : len(generation.candidates)])
        for generation in generations
        if len(generation.candidates)
    )
    nothing = np.zeros((len(settings.labels), len(together)))
    expected = sum((field.at(together, shares) for field in fields), nothing)
    totals = sum((generation.votes.sum(axis=1) for generation in generations), np.zeros(len(settings.labels)))
    # `label_scores` takes one table's noise: of T tables it is √T times as large.
    scores = label_scores(expected, totals, noise * math.sqrt(len(generations)))
    sizes = [len(generation.candidates) for generation in generations]
    came_up = np.repeat(np.arange(1, len(sizes) + 1), np.diff(sizes, prepend=0))
    unvoted = np.zeros((len(settings.labels), len(children)))
    return Pool(
        candidates=(*last.candidates, *children),
        vectors=together,
        rounds=np.concatenate([came_up, np.zeros(len(children), int)]),
        votes=np.concatenate([last.votes, unvoted], axis=1),
        expected=expected,
        scores=scores,
        labels=labels_of(scores),
        totals=totals,
    )


def _asked(labels: Sequence[str | None], candidates: Sequence[Candidate]) -> np.ndarray:
    """The label that each text was asked for, as a place in the declared ones; −1 where none is known."""
    asked = (-1 if each.label not in labels else labels.index(each.label) for each in candidates)
    return np.fromiter(asked, np.int64, len(candidates))
