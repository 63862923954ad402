"""The texts of the reference, and the batches that are decoded first: against the slow twins."""

import hashlib
import random

import pytest

from models import reference
from models.batch_plan import BatchPlan, Clustering
from models.records import BatchId, SyntheticExample
from tests import oracles

TEXTS = [f'Text {number}.' for number in range(40)]


def a_plan(*batches: int, labels: tuple[str | None, ...] = ('a',)) -> BatchPlan:
    return BatchPlan(labels=labels, batches_per_group=batches, noisy_counts=None, contexts_rho=0.0)


def a_clustered_plan(rng: random.Random) -> BatchPlan:
    labels = ('a', 'b', 'c')[: rng.randint(1, 3)]
    centers = rng.randint(1, 6)
    kept = tuple(tuple(sorted(rng.sample(range(centers), rng.randint(1, centers)))) for _ in labels)
    groups = sum(map(len, kept))
    return BatchPlan(
        labels=labels,
        batches_per_group=tuple(rng.choice((1, 1, 2, 5, 30)) for _ in range(groups)),
        noisy_counts=(1,) * groups,
        contexts_rho=0.1,
        clustering=Clustering(kept=kept, noisy_counts=((1,) * centers,) * len(labels), rho=0.1),
    )


def an_example(group: int, plan: BatchPlan, text: str, **fields: int | bool) -> SyntheticExample:
    return SyntheticExample(
        text=text, label=plan.group_labels[group], batch_id=f'{group:04d}-000000', index_in_batch=0,
        **({'private_tokens': 9, 'public_tokens': 0, 'truncated': False} | fields),
    )  # fmt: skip


# --- Texts -----------------------------------------------------------------------


@pytest.mark.parametrize('seed', range(20))
def test_texts_are_picked_by_a_public_hash(seed: int) -> None:
    rng = random.Random(seed)
    texts = rng.choices(TEXTS, k=rng.randint(0, 60))
    size = rng.randint(1, 12)
    picked = reference.pick(iter(texts), size)
    assert list(picked) == oracles.pick_texts(texts, size)
    # Whatever the order, and in parts.
    shuffled = rng.sample(texts, len(texts))
    cut = rng.randint(0, len(texts))
    parts = [reference.pick(part, size) for part in (shuffled[:cut], shuffled[cut:])]
    assert reference.pick([*parts[0], *parts[1]], size) == picked


def test_texts_of_a_label_serve_it_alone() -> None:
    rows = [(label, f'{label} {text}') for text in TEXTS for label in ('a', 'b', 'undeclared')]
    found = reference.pick_by_label(rows, ('b', 'a'), 3, serve_all=False)
    assert list(found) == ['b', 'a']
    for label, texts in found.items():
        assert list(texts) == oracles.pick_texts([f'{label} {text}' for text in TEXTS], 3)


def test_texts_without_labels_serve_all_labels() -> None:
    rows = [(None, text) for text in TEXTS]
    found = reference.pick_by_label(rows, ('a', 'b'), 3, serve_all=True)
    assert found == dict.fromkeys(('a', 'b'), tuple(oracles.pick_texts(TEXTS, 3)))
    # And of whatever label where the run has none.
    others = [('x', text) for text in TEXTS]
    assert reference.pick_by_label(others, (None,), 3, serve_all=True) == {None: found['a']}


def test_a_label_without_texts_has_none() -> None:
    assert reference.pick_by_label([('a', 'A.')], ('a', 'b'), 2, serve_all=False) == {'a': ('A.',), 'b': ()}


def test_the_digest_is_of_whole_texts_and_their_labels() -> None:
    texts = {'a': ('Ä "one"\n', 'two'), None: ('three',)}
    whole, cut = reference.Reference.of(texts), reference.Reference.of(texts, text_limit=2)
    written = '[["a",["Ä \\"one\\"\\n","two"]],[null,["three"]]]'
    assert whole.digest == cut.digest == hashlib.sha256(written.encode()).hexdigest()
    assert cut.of_label('a') == ('Ä ', 'tw') and whole.of_label(None) == ('three',)
    expected = {hashlib.sha256(text.encode()).digest() for text in ('Ä "one"\n', 'two', 'three')}
    assert whole.shared_hashes == cut.shared_hashes == expected
    for other in ({'a': ('two', 'Ä "one"\n'), None: ('three',)}, {'b': texts['a'], None: ('three',)}):
        assert reference.Reference.of(other).digest != whole.digest


# --- Rounds ----------------------------------------------------------------------


@pytest.mark.parametrize('seed', range(40))
def test_the_first_round_is_a_function_of_the_plan(seed: int) -> None:
    plan = a_clustered_plan(random.Random(seed))
    found = reference.first_round(plan)
    assert found == oracles.first_round(plan)
    for label in plan.labels:
        groups = [group for group, other in enumerate(plan.group_labels) if other == label]
        planned = [plan.batches_per_group[group] for group in groups]
        chosen = [sum(name.group == group for name in found) for group in groups]
        assert sum(chosen) == max(1, sum(planned) // 10)
        # Spread: no cluster has two more than another one that has batches left.
        left = [count for count, batches in zip(chosen, planned, strict=True) if count < batches]
        assert not left or max(chosen) <= min(left) + 1
        assert sum(chosen) < sum(planned) or sum(planned) == 1


def test_a_label_of_one_batch_has_one_round() -> None:
    plan = a_plan(1, 2, labels=('a', 'b'))
    found = reference.first_round(plan)
    assert BatchId(group=0, index=0) in found and len(found) == 2


def test_another_plan_of_a_label_leaves_the_others_rounds_as_they_are() -> None:
    of_a = {name for name in reference.first_round(a_plan(40, 20, labels=('a', 'b'))) if name.group == 0}
    assert of_a == {
        name for name in reference.first_round(a_plan(40, 3, labels=('a', 'b'))) if name.group == 0
    }


@pytest.mark.parametrize(
    'fields, text, expected',
    [
        ({}, 'A text.', True),
        ({'private_tokens': 3, 'public_tokens': 5}, 'A text.', True),
        ({'private_tokens': 3, 'public_tokens': 4}, 'A text.', False),
        ({'private_tokens': 0, 'public_tokens': 0}, 'A text that was given.', True),
        ({'truncated': True}, 'A text.', False),
        ({}, ' \n', False),
        ({}, '', False),
    ],
)
def test_complete_examples(fields: dict[str, int | bool], text: str, expected: bool) -> None:
    assert reference.is_complete(an_example(0, a_plan(1), text, **fields)) == expected


@pytest.mark.parametrize('seed', range(40))
def test_released_texts_are_of_the_cluster_or_else_of_the_label(seed: int) -> None:
    rng = random.Random(seed)
    plan, size = a_clustered_plan(rng), rng.randint(1, 4)
    examples = [
        an_example(
            rng.randrange(len(plan.group_names)), plan, rng.choice([*TEXTS, ' ']),
            private_tokens=rng.choice((0, 4, 9)), public_tokens=rng.choice((0, 4)),
            truncated=rng.random() < 0.2,
        )
        for _ in range(rng.randint(0, 40))
    ]  # fmt: skip
    texts: dict[int, list[str]] = {}
    for example in filter(reference.is_complete, examples):
        texts.setdefault(int(example.batch_id[:4]), []).append(example.text)
    found = reference.ReleasedReference.of(texts, plan, size)
    assert list(map(list, found.texts_by_group)) == oracles.released_texts(examples, plan, size)
    # A combiner's content suffices.
    smallest = {group: reference.pick(of, size) for group, of in texts.items()}
    assert reference.ReleasedReference.of(smallest, plan, size) == found
    assert reference.ReleasedReference.from_json(found.to_json()) == found


def test_a_label_that_completed_too_little_takes_texts_of_others_after_its_own() -> None:
    plan = a_plan(12, 12, labels=('a', 'b'))
    texts = {0: ['One.'], 1: ['Two.', 'Three.', 'Four.']}
    first, second = reference.ReleasedReference.of(texts, plan, 3).texts_by_group
    assert first[0] == 'One.' and len(set(first)) == 3 and set(first[1:]) < set(texts[1])
    assert set(second) == set(texts[1])
    assert reference.ReleasedReference.of({1: ['Two.']}, plan, 3).texts_by_group == (('Two.',),) * 2


def test_a_first_round_that_completed_nothing_leaves_the_public_prompt() -> None:
    plan = a_plan(12, 12, labels=('a', 'b'))
    assert reference.ReleasedReference.of({}, plan, 3).texts_by_group == ((), ())


@pytest.mark.parametrize('text', ['7', '{}', '{"texts_by_group": [["a"], [1]]}', '{"texts_by_group": ["a"]}'])
def test_another_file_is_no_reference(text: str) -> None:
    with pytest.raises(ValueError, match=r'Restore reference\.json'):
        reference.ReleasedReference.from_json(text)
