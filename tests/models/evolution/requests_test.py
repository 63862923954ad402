"""Requests: of the first round public, of later ones a function of released votes and lists alone."""

import collections
import dataclasses
import inspect

import numpy as np
import pytest

from models.evolution import requests
from models.evolution.generation import Generation
from models.evolution.settings import EvolutionSettings
from models.records import Batch, BatchId, Context, Record
from models.sampling.source import Request
from tests.models.evolution import made_up
from tests.models.evolution.made_up import LABELS


def shown(asked: tuple[requests.Asked, ...]) -> list[tuple[str, ...]]:
    return [request.examples for of in asked for request in of.requests]


def test_the_first_round_asks_each_labels_public_prompt() -> None:
    asked = requests.requests_of(made_up.settings(), 1, ())
    assert [(str(of.batch_id), len(of.requests)) for of in asked] == [
        ('0000-000000', 4), ('0000-000001', 1), ('0001-000000', 4), ('0001-000001', 1),
    ]  # fmt: skip
    found = [request for of in asked for request in of.requests]
    assert all(request.examples == () for request in found)
    assert collections.Counter(request.label for request in found) == dict.fromkeys(LABELS, 5)
    assert len({request.name for request in found}) == 10


def test_later_rounds_show_texts_of_the_label_in_the_wanted_share() -> None:
    settings = made_up.settings(children_per_label=10, unvoted_per_label=10, fresh_share=0.3)
    asked = requests.requests_of(settings, 2, [made_up.generation()])
    of_label = collections.defaultdict(list)
    for batch in asked:
        for request, parents in zip(batch.requests, batch.parents, strict=True):
            of_label[request.label].append(request.examples)
            texts = {of.name: of.text for of in made_up.candidates()}
            assert [texts[name] for name in parents] == list(request.examples)
    for label, examples in of_label.items():
        assert [len(of) for of in examples].count(0) == 3 and len(examples) == 10
        own = made_up.texts_of(str(label), 5)
        assert all(set(of) <= set(own) and len(of) in (0, 2) for of in examples)
        # No batch is of one kind.
        assert any(not of for of in examples[:5]) and any(of for of in examples[:5])
    # After the last vote no prompt is fresh.
    assert all(len(of) == 2 for of in shown(requests.requests_of(settings, 3, [made_up.generation()] * 2)))
    first = [batch.batch_id for batch in requests.requests_of(settings, 1, ())]
    assert not {*first} & {batch.batch_id for batch in asked}


def test_round_2_depends_on_the_votes_alone() -> None:
    settings, round_1 = made_up.settings(), made_up.generation()
    same = Generation(
        candidates=round_1.candidates, vectors=round_1.vectors.copy(), votes=round_1.votes.copy()
    )
    asked = requests.requests_of(settings, 2, [round_1])
    assert asked == requests.requests_of(settings, 2, [same])
    liked = round_1.votes.copy()
    liked[0, 1] += 500
    other = requests.requests_of(settings, 2, [dataclasses.replace(round_1, votes=liked)])
    assert asked != other
    text = made_up.texts_of('billing', 5)[1]
    times = [sum(text in of for of in shown(each)) for each in (asked, other)]
    assert times[1] > times[0]
    # Another run shows others, by its public name.
    renamed = made_up.settings(run_id='another', children_per_label=40)
    many = made_up.settings(children_per_label=40)
    assert requests.requests_of(many, 2, [round_1]) != requests.requests_of(renamed, 2, [round_1])
    # Nothing else comes in.
    assert set(inspect.signature(requests.requests_of).parameters) == {'settings', 'number', 'generations'}


def test_labels_are_of_votes_and_not_of_prompts() -> None:
    crossed = np.kron(np.eye(2)[::-1], np.full(5, 8.0))
    asked = requests.requests_of(made_up.settings(fresh_share=0.0), 2, [made_up.generation(crossed)])
    for batch in asked:
        other = LABELS[1 - batch.batch_id.group]
        assert all(set(of.examples) <= set(made_up.texts_of(other, 5)) for of in batch.requests)


def test_a_label_without_texts_is_asked_for_anew() -> None:
    votes = np.array([[8.0] * 10, [-1.0] * 10])
    asked = requests.requests_of(made_up.settings(), 2, [made_up.generation(votes)])
    assert all(
        of.examples == () for batch in asked for of in batch.requests if of.label == 'delivery'
    ) and any(of.examples for batch in asked for of in batch.requests)


def test_a_run_without_labels_has_one_list() -> None:
    settings = made_up.settings(labels=(None,))
    first = requests.requests_of(settings, 1, ())
    assert {request.label for of in first for request in of.requests} == {None}
    later = requests.requests_of(settings, 2, [made_up.generation(np.full((1, 10), 3.0))])
    assert any(shown(later)) and {request.label for of in later for request in of.requests} == {None}


@pytest.mark.parametrize('number, generations', [(1, 0), (2, 1), (3, 2)])
def test_requests_are_read_as_they_were_written(number: int, generations: int) -> None:
    settings: EvolutionSettings = made_up.settings()
    asked = requests.requests_of(settings, number, [made_up.generation()] * generations)
    text = requests.to_json(asked)
    assert requests.from_json(text) == asked and requests.to_json(requests.from_json(text)) == text


def test_no_private_type_is_a_request() -> None:
    record = Record(text='a record', label=None)
    context = Context(context_hash=bytes(16), texts=('a record',))
    batch = Batch(batch_id=BatchId(group=0, index=0), label=None, contexts=(context,))
    for private in (record, context, batch):
        with pytest.raises(TypeError, match='Expected examples that are texts') as failed:
            Request(name='0000-000000-0000', label=None, examples=(private,))  # type: ignore[arg-type]
        assert 'a record' not in str(failed.value)
