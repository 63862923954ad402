"""Lists and corpora: what is dropped and what stays, of texts and released votes alone."""

import collections
from typing import Any

import numpy as np
import pytest

from models.evolution import listing, pool
from models.evolution.generation import Candidate
from tests.models.evolution import made_up
from tests.models.evolution.made_up import WordEmbedder


def row(text: str | None, name: str = '0000-000000-0000', **changed: Any) -> dict[str, Any]:
    given = {'name': name, 'text': text, 'label': 'billing', 'parents': [], 'tokens': 9, 'truncated': False}
    return given | changed


@pytest.mark.parametrize(
    'dropped',
    [
        row(None, tokens=0),
        row(''),
        row(' \n\t'),
        row('refund account price', truncated=True),
        row('refund account price', tokens=3),
        row(made_up.UNKNOWN),
        row('Invoice, refund: PAYMENT!'),
        row('payment refund invoice'),
        row('?!'),
    ],
)
def test_texts_that_are_no_use_are_dropped(dropped: dict[str, Any]) -> None:
    rows = [row('invoice refund payment', 'first'), dropped, row('parcel road river', 'last', parents=['p'])]
    found, vectors = listing.listed(rows, made_up.settings(least_tokens=4), WordEmbedder())
    assert [of.name for of in found] == ['first', 'last']
    assert found[1] == Candidate(
        name='last', text='parcel road river', label='billing', parents=('p',), tokens=9
    )
    assert (vectors == WordEmbedder().embed([of.text for of in found])).all()


def test_a_text_of_an_earlier_round_is_not_voted_on_again() -> None:
    earlier = made_up.generation()
    rows = [row(text, text) for text in (*made_up.texts_of('billing', 10), *made_up.texts_of('delivery', 5))]
    found, vectors = listing.listed(rows, made_up.settings(), WordEmbedder(), [earlier])
    assert [of.text for of in found] == made_up.texts_of('billing', 10)[5:] and len(vectors) == 5


def test_no_texts_make_an_empty_list() -> None:
    for rows in ([], [row(None)], [row(made_up.UNKNOWN)]):
        found, vectors = listing.listed(rows, made_up.settings(), WordEmbedder())
        assert found == () and vectors.shape == (0, 10)


def test_the_corpus_has_the_shares_of_votes_and_the_labels_of_votes() -> None:
    settings = made_up.settings(examples=4)
    votes = np.zeros((2, 10))
    votes[0, 5:], votes[1, :5] = 30.0, 10.0  # of what other prompts asked for
    corpus = listing.examples_of(settings, [made_up.generation(votes)])
    assert collections.Counter(of.label for of in corpus) == {'billing': 3, 'delivery': 1}
    for of in corpus:
        other = 'delivery' if of.label == 'billing' else 'billing'
        assert of.text in made_up.texts_of(other, 5)
        assert (of.round, of.truncated, of.tokens) == (1, False, 9)
        assert of.noisy_votes == (30.0 if of.label == 'billing' else 10.0)
    places = {of.name: of.text for of in made_up.candidates()}
    assert all(places[f'{of.batch_id}-{of.index_in_batch:04d}'] == of.text for of in corpus)


def test_a_label_without_votes_has_no_texts_and_leaves_its_place_empty() -> None:
    votes = np.array([[8.0] * 10, [-0.5] * 10])
    corpus = listing.examples_of(made_up.settings(examples=4), [made_up.generation(votes)])
    # Every label has one place at the least, which nobody takes.
    assert {of.label for of in corpus} == {'billing'} and 3 <= len(corpus) <= 4


def test_texts_that_nobody_voted_on_are_worth_what_votes_around_them_say() -> None:
    texts = made_up.texts_of('billing', 8)[5:] + made_up.texts_of('delivery', 8)[5:]
    children = [
        Candidate(name=f'0000-000004-{place:04d}', text=text, label=None, parents=('0000-000000-0001',))
        for place, text in enumerate(texts)
    ]
    vectors = WordEmbedder().embed(texts)
    for examples in (10, 100):
        corpus = listing.examples_of(
            made_up.settings(examples=examples), [made_up.generation()], children, vectors
        )
        unvoted = [of for of in corpus if of.round is None]
        assert len(corpus) == min(examples, 16) and (len(unvoted) == 6 or examples == 10)
        expected = pool.of(made_up.settings(), [made_up.generation()], children, vectors).expected
        assert (expected[:, 10:].max(axis=0) > 0).all()
        assert all(of.noisy_votes is None and of.parents == '0000-000000-0001' for of in unvoted)
        assert all(of.label in ('billing', 'delivery') and of.text in texts for of in unvoted)


def test_a_run_without_labels_keeps_texts_without_a_label() -> None:
    settings = made_up.settings(labels=(None,), examples=4)
    corpus = listing.examples_of(settings, [made_up.generation(np.arange(10.0)[None])])
    assert len(corpus) == 4 and {of.label for of in corpus} == {None}
    assert [of for of in corpus if of.noisy_votes is None] == []


def test_the_corpus_is_a_function_of_what_was_released() -> None:
    one, other = made_up.generation(), made_up.generation()
    assert listing.examples_of(made_up.settings(), [one]) == listing.examples_of(made_up.settings(), [other])
