"""Sampled texts -> the list of a round, and its votes -> the corpus. No record plays a part in either."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from models.clustering.embedder import Embedder
from models.evolution import pool
from models.evolution.generation import Candidate, Generation
from models.evolution.selection import corpus, distinct, fitness
from models.evolution.settings import EvolutionSettings
from models.finetuning import label_mix
from models.records import EvolvedExample
from models.sampling.non_texts import non_text


def listed(
    rows: Iterable[Any],
    settings: EvolutionSettings,
    embedder: Embedder,
    earlier: Sequence[Generation] = (),
) -> tuple[tuple[Candidate, ...], np.ndarray]:
    """The new texts of a round and their embeddings, `[N d]`.

    Dropped are requests without an answer, texts that are blank, too short or cut at their cap, what is no
    text by its form, texts of which the embedder knows nothing, and texts that are nearly one of this list,
    or of an earlier one, again. All of that is a function of texts alone, so it is free.

    Args:
        rows: Name, text, label, parents, tokens and truncated of each answer, in the order of the batches.
        settings: The run.
        embedder: What embeds records too.
        earlier: Rounds before this one.
    """
    candidates = [
        Candidate(
            name=row['name'],
            text=row['text'],
            label=row['label'],
            parents=tuple(row['parents']),
            tokens=row['tokens'],
        )
        for row in rows
        if row['text'] is not None
        and row['text'].strip()
        and not row['truncated']
        and row['tokens'] >= settings.least_tokens
        and (settings.public_words is None or non_text(row['text'], settings.public_words) is None)
    ]
    return kept(candidates, embedder, earlier)


def kept(
    candidates: Sequence[Candidate], embedder: Embedder, earlier: Sequence[Generation] = ()
) -> tuple[tuple[Candidate, ...], np.ndarray]:
    """Candidates that the embedder knows, each unlike those before it, and their embeddings."""
    vectors = embedder.embed([candidate.text for candidate in candidates])
    # The last list holds those before it.
    before, of_before = (earlier[-1].candidates, earlier[-1].vectors) if earlier else ((), vectors[:0])
    unlike = distinct(
        [candidate.text for candidate in (*before, *candidates)], np.concatenate([of_before, vectors])
    )[len(before) :]
    chosen = np.flatnonzero(unlike & vectors.any(axis=1)).tolist()
    return tuple(candidates[place] for place in chosen), vectors[chosen]


def texts_of_labels(settings: EvolutionSettings, totals: Sequence[float]) -> tuple[int, ...]:
    """Texts of each label in the corpus, in the shares of the released votes."""
    return label_mix.texts_of_counts(settings.examples, [round(total) for total in totals])


def examples_of(
    settings: EvolutionSettings,
    generations: Sequence[Generation],
    children: Sequence[Candidate] = (),
    vectors_of_children: np.ndarray | None = None,
) -> list[EvolvedExample]:
    """The corpus: of each label the texts that its records favour most.

    Args:
        settings: The run.
        generations: All rounds.
        children: Texts that were sampled after the last vote.
        vectors_of_children: Their embeddings, `[C d]`.
    """
    text_pool = pool.of(settings, generations, children, vectors_of_children)
    # The fitter one of two that are nearly the same stays.
    fit = fitness(text_pool.scores, text_pool.expected)
    order = np.argsort(-fit, kind='stable')
    unlike = distinct([text_pool.candidates[place].text for place in order], text_pool.vectors[order])
    rows = np.sort(order[unlike])
    numbers = texts_of_labels(settings, text_pool.totals.tolist())
    places, labels = corpus(
        text_pool.scores[:, rows], numbers, fitness=fit[rows], embeddings=text_pool.vectors[rows]
    )
    return [
        _example(settings, text_pool, int(rows[place]), int(label))
        for place, label in zip(places, labels, strict=True)
    ]


def _example(settings: EvolutionSettings, text_pool: pool.Pool, place: int, label: int) -> EvolvedExample:
    candidate = text_pool.candidates[place]
    batch_id, _, index = candidate.name.rpartition('-')
    voted = int(text_pool.rounds[place]) or None
    return EvolvedExample(
        text=candidate.text,
        label=settings.labels[label],
        batch_id=batch_id,
        index_in_batch=int(index),
        tokens=candidate.tokens,
        truncated=False,
        round=voted,
        noisy_votes=None if voted is None else float(text_pool.votes[label, place]),
        parents=','.join(candidate.parents),
    )
