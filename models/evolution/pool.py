"""All texts that records have voted on, and those after the last vote: their labels, by what was released."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from models.evolution.generation import Candidate, Generation
from models.evolution.selection import VoteField, label_scores, labels_of
from models.evolution.settings import EvolutionSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """Texts of all rounds. Everything is public or a function of released votes.

    Attributes:
        candidates: N texts, round by round, and then those that nobody voted on.
        vectors: Their embeddings, `[N d]`.
        rounds: The round of each text, from 1, `[N]`; 0 of one that nobody voted on.
        votes: Noisy votes of each text as they were released, `[G N]`; 0 of one that nobody voted on.
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

    Args:
        settings: The run.
        generations: Rounds with their votes, at least one.
        children: Texts that nobody voted on.
        vectors_of_children: Their embeddings.
    """
    noise = settings.params.noise_scale
    vectors = [generation.vectors for generation in generations]
    if children:
        assert vectors_of_children is not None
        vectors.append(vectors_of_children)
    together = np.concatenate(vectors)
    sizes = [len(generation.candidates) for generation in generations]
    fields = (VoteField.of(of.votes, of.vectors, noise) for of in generations if len(of.candidates))
    expected = sum((field.at(together) for field in fields), np.zeros((len(settings.labels), len(together))))
    totals = sum((of.votes.sum(axis=1) for of in generations), np.zeros(len(settings.labels)))
    # `label_scores` takes one table's noise: of T tables it is √T times as large.
    scores = label_scores(expected, totals, noise * math.sqrt(len(generations)))
    unvoted = np.zeros((len(settings.labels), len(children)))
    return Pool(
        candidates=(*(one for of in generations for one in of.candidates), *children),
        vectors=together,
        rounds=np.concatenate([np.repeat(np.arange(1, len(sizes) + 1), sizes), np.zeros(len(children), int)]),
        votes=np.concatenate([*(of.votes for of in generations), unvoted], axis=1),
        expected=expected,
        scores=scores,
        labels=labels_of(scores),
        totals=totals,
    )
