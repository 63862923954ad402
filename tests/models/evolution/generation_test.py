"""Files of a list and its votes: the same back; a damaged one is named, and nothing of it is quoted."""

import json

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from models.evolution import generation
from models.evolution.generation import Candidate
from models.privacy import text_votes

TEXTS = st.text(st.characters(codec='utf-8'))


@hypothesis.given(
    st.lists(
        st.builds(
            Candidate, name=TEXTS, text=TEXTS, label=st.none() | TEXTS, tokens=st.integers(0, 99),
            parents=st.lists(TEXTS, max_size=3).map(tuple),
        ),
        max_size=4,
    )
)  # fmt: skip
def test_a_list_is_read_as_it_was_written(candidates: list[Candidate]) -> None:
    text = generation.candidates_to_json(3, candidates)
    assert generation.candidates_from_json(text, 'f') == tuple(candidates)
    document = json.loads(text)
    assert document['schema'] == generation.CANDIDATES_SCHEMA and document['round'] == 3


@hypothesis.given(labels=st.integers(1, 4), texts=st.integers(0, 5), seed=st.integers(0, 99))
def test_votes_are_read_as_they_were_drawn(labels: int, texts: int, seed: int) -> None:
    quanta = np.random.default_rng(seed).integers(-(2**40), 2**40, (labels, texts))
    names = [f'label {number}' for number in range(labels)]
    text = generation.votes_to_json(1, names, quanta, 2.5)
    votes = generation.votes_from_json(text, 'f')
    assert votes.shape == (labels, texts) and votes.dtype == np.float64
    # Exact: a quantum is a power of two.
    assert (votes * text_votes.QUANTA_PER_VOTE == quanta).all()
    assert json.loads(text)['labels'] == names and json.loads(text)['noise_scale'] == 2.5


LIST = generation.candidates_to_json(1, [Candidate(name='0000-000000-0000', text='wonderland', label=None)])
VOTES = generation.votes_to_json(1, ['wonderland'], np.ones((1, 2), np.int64), 1.0)


def changed(text: str, **entries: object) -> str:
    return json.dumps(json.loads(text) | entries)


@pytest.mark.parametrize(
    'read, text',
    [
        *(
            (generation.candidates_from_json, text)
            for text in (
                '', 'wonderland', LIST[:-5], '[]', VOTES, changed(LIST, candidates=None),
                changed(LIST, candidates=['wonderland']), changed(LIST, candidates=[{'wonderland': 1}]),
                changed(LIST, schema='wonderland'),
                changed(LIST, candidates=[{'name': 'wonderland', 'parents': 3}]),
            )
        ),
        *(
            (generation.votes_from_json, text)
            for text in (
                '', 'wonderland', VOTES[:-5], '3', LIST, changed(VOTES, quanta=None),
                changed(VOTES, quanta=[['wonderland']]), changed(VOTES, quanta=[1, 2]),
                changed(VOTES, quanta=[[1], [1, 2]]), changed(VOTES, quanta=[[2**70]]),
                changed(VOTES, quanta=[[0.5]]),
                changed(VOTES, quanta_per_vote=3),
            )
        ),
    ],
)  # fmt: skip
def test_a_damaged_file_is_named_and_nothing_of_it_is_quoted(read, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="Expected file='votes-01.json' as it was written") as failed:
        read(text, 'votes-01.json')
    assert 'wonderland' not in str(failed.value)
