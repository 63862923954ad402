"""The pool of rounds: what it puts together, and what becomes of rounds without texts."""

import numpy as np
import pytest

from models.evolution import pool
from models.evolution.generation import Candidate, Generation
from models.evolution.selection import VoteField, asked_shares
from tests.models.evolution import made_up
from tests.models.evolution.made_up import WordEmbedder

NOBODY = Candidate(name='0000-000009-0000', text='invoice price road', label=None)


def test_rounds_and_children_stand_in_their_order() -> None:
    first = made_up.generation()
    second = made_up.later(first, number=2, of_label=3)
    vectors = WordEmbedder().embed([NOBODY.text])
    found = pool.of(made_up.settings(), [first, second], [NOBODY], vectors)
    assert found.candidates == (*second.candidates, NOBODY)
    assert found.rounds.tolist() == [1] * 10 + [2] * 6 + [0]
    assert (found.vectors == np.concatenate([second.vectors, vectors])).all()
    assert (found.votes == np.concatenate([second.votes, np.zeros((2, 1))], axis=1)).all()
    assert found.totals.tolist() == [104.0, 104.0]
    # Votes of each round for every text, added up
    labels = made_up.settings().labels
    asked = np.array([labels.index(of.label) if of.label in labels else -1 for of in found.candidates])
    shares = asked_shares(asked, len(labels), found.vectors)
    fields = (VoteField.of(of.votes, of.vectors, 1.0, shares[:, : len(of.vectors)]) for of in (first, second))
    expected = sum(field.at(found.vectors, shares) for field in fields)
    assert asked[-1] == -1 and asked[0] == 0
    assert found.expected == pytest.approx(expected)
    assert found.labels[:10].tolist() == [0] * 5 + [1] * 5
    assert found.scores.sum(axis=0) == pytest.approx(np.ones(17))


def test_a_round_without_texts_says_nothing() -> None:
    nothing = Generation(candidates=(), vectors=np.zeros((0, 10), np.float32), votes=np.zeros((2, 0)))
    empty = pool.of(made_up.settings(), [nothing])
    assert empty.candidates == () and empty.scores.shape == (2, 0)


def test_noise_alone_prefers_no_label_by_much() -> None:
    """Totals that noise could have made weigh as such: a label without records takes no text for sure."""
    rng = np.random.default_rng(0)
    votes = np.stack([np.full(10, 40.0), rng.normal(0, 1.0, 10)])
    found = pool.of(made_up.settings(), [made_up.generation(votes)])
    assert (found.labels == 0).all()
