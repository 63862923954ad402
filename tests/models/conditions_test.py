"""The cell of each example, against a slow twin: a public function with the released shares."""

import collections
import itertools
import json
import math
import random
from fractions import Fraction

import pytest

from models import conditions
from models.batch_plan import BatchPlan, Clustering
from models.conditions import Conditions, Turns
from models.records import BatchId
from tests.oracles import conditions as twin

CONDITIONS = Conditions(
    fields=('sex', 'ward'),
    cells=(('"F"', '"A"'), ('"F"', '"B"'), ('"M"', '"A"'), ('"M"', '"B"')),
    noisy_counts=((31, -4, 12, 0), (-1, -7, 0, -2)),
    rho=0.005,
)


def line(
    shares: tuple[int, ...], batches: int, examples: int, run_id: str = 'run', label: int = 0
) -> list[int]:
    """The cells of all examples of a label's batches, in the order of the line."""
    found: dict[int, int] = {}
    for place in range(batches):
        turns = Turns(shares=shares, label=label, place=place, batches=batches)
        for example, cell in enumerate(turns.cells(run_id, examples)):
            found[twin.turn(place, batches, run_id, label, example)] = cell
    assert sorted(found) == list(range(batches * examples)), 'every place of the line once'
    return [found[place] for place in range(batches * examples)]


SHARES = [
    (1,), (1, 1), (3, 1), (0, 5, 0), (2, 2, 2, 2), (31, 0, 12, 7), (1000, 1, 1, 1), (512, 256, 128, 64),
    tuple(random.Random(0).randrange(400) for _ in range(24)), (1,) * 97, (0, 0, 1), (6, 4),
    (10**6, 3 * 10**6),
]  # fmt: skip


@pytest.mark.parametrize('shares', SHARES)
@pytest.mark.parametrize('batches', [1, 2, 5, 8])
def test_the_line_equals_the_twin(shares: tuple[int, ...], batches: int) -> None:
    if sum(shares) > conditions.MOST_TURNS:
        return
    turn = twin.cells_in_turn(list(shares))
    assert list(conditions.cycle(shares)) == turn
    for run_id, label in (('run', 0), ('run', 1), ('another', 0)):
        first = twin.public_hash(run_id, label, -1)
        expected = [turn[(first + place) % len(turn)] for place in range(12 * batches)]
        assert line(shares, batches, 12, run_id, label) == expected


@pytest.mark.parametrize('shares', SHARES)
def test_each_cell_is_less_than_one_off_its_share_in_every_beginning(shares: tuple[int, ...]) -> None:
    turn = list(conditions.cycle(shares))
    if sum(shares) <= conditions.MOST_TURNS:
        assert [turn.count(cell) for cell in range(len(shares))] == list(shares)
        assert twin.largest_error(list(shares), turn) < 1
    # And less than two in any other part, wherever the line begins.
    for run_id in ('run', 'other'):
        found = line(shares, 1, min(len(turn), 400), run_id)
        assert twin.largest_error(list(shares), found) < 2
    # Drawn by chance, the same shares would be off by far more.
    by_chance = random.Random(1).choices(range(len(shares)), weights=shares, k=len(turn))
    if max(shares) < 0.9 * sum(shares) and len(turn) > 900:
        assert twin.largest_error(list(shares), by_chance) > 6


def test_large_counts_are_shared_out_by_the_largest_remainders() -> None:
    shares = (10**6, 3 * 10**6, 7, 5 * 10**5 + 300)
    turn = conditions.cycle(shares)
    assert len(turn) == conditions.MOST_TURNS
    exact = [Fraction(share * len(turn), sum(shares)) for share in shares]
    counted = [turn.count(cell) for cell in range(len(shares))]
    assert all(abs(found - of) < 1 for found, of in zip(counted, exact, strict=True))
    raised = [cell for cell, of in enumerate(exact) if counted[cell] > math.floor(of)]
    remainders = sorted(range(4), key=lambda cell: -(exact[cell] - math.floor(exact[cell])))
    assert sorted(raised) == sorted(remainders[: len(raised)])


def test_small_cells_are_found_in_some_labels_though_in_none_they_are_due() -> None:
    """Lines begin anywhere, so that a cell with a third of an example in each of 60 labels has about 20."""
    found = collections.Counter(
        itertools.chain(*(line((55, 35, 10), 1, 3, label=label) for label in range(60)))
    )
    assert 8 <= found[2] <= 32 and 50 <= found[1] <= 80


def test_no_batch_meets_the_same_cells_again_and_again() -> None:
    """With two equal cells and an even number of batches, turns keep both in every batch."""
    for place in range(4):
        cells = Turns(shares=(50, 50), label=0, place=place, batches=4).cells('run', 60)
        assert 12 < sum(cells) < 48
    # A batch's examples change with the name of the run, and with nothing else.
    turns = Turns(shares=(31, 0, 12, 7), label=0, place=1, batches=4)
    assert turns.cells('run', 60) == turns.cells('run', 60) != turns.cells('other', 60)
    assert turns.cells('run', 60)[:20] == turns.cells('run', 20)


def test_counts_below_zero_are_none_and_all_are_one_where_no_count_is_above() -> None:
    assert CONDITIONS.shares(0) == (31, 0, 12, 0)
    assert CONDITIONS.shares(1) == (1, 1, 1, 1)


def plan(groups: tuple[int, ...], clustering: Clustering | None = None) -> BatchPlan:
    rho = 0.0 if clustering is None else 0.0025
    return BatchPlan(
        labels=('a', 'b'),
        batches_per_group=groups,
        noisy_counts=None if clustering is None else (9,) * len(groups),
        contexts_rho=rho,
        clustering=clustering,
        conditions=CONDITIONS,
    )


def test_a_batch_stands_among_all_batches_of_its_label() -> None:
    clustering = Clustering(kept=((0, 2), (1, 2)), noisy_counts=((9, -4, 8), (0, 5, 7)), rho=0.0025)
    found = plan((3, 2, 1, 4), clustering)
    turns = [found.turns_of(batch_id) for batch_id in found.batch_ids()]
    assert [(of.label, of.place, of.batches) for of in turns if of] == [
        *((0, place, 5) for place in range(5)),
        *((1, place, 5) for place in range(5)),
    ]
    assert {of.shares for of in turns if of} == {(31, 0, 12, 0), (1, 1, 1, 1)}
    assert plan((3, 2)).turns_of(BatchId(group=1, index=1)) == Turns(
        shares=(1, 1, 1, 1), label=1, place=1, batches=2
    )
    assert collections.Counter(itertools.chain(*(of.cells('run', 10) for of in turns[:5] if of))).keys() == {
        0,
        2,
    }


def test_a_plan_and_conditions_come_back_from_json() -> None:
    assert Conditions.from_json(CONDITIONS.to_json()) == CONDITIONS
    found = plan((3, 2))
    assert BatchPlan.from_json(found.to_json()) == found
    for wrong in ({'fields': []}, [], {**json.loads(CONDITIONS.to_json()), 'more': 1}):
        with pytest.raises(
            ValueError, match=r'Expected Conditions with the fields .* Restore conditions.json'
        ):
            Conditions.from_json(json.dumps(wrong))


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'noisy_counts': ((1, 2, 3),)}, 'one noisy count of each of cells=4'),
        ({'cells': (('"F"',),), 'noisy_counts': ((1,),)}, 'a value of each of fields'),
        ({'rho': 0.0}, 'rho > 0'),
        ({'rho': math.inf}, 'rho > 0'),
    ],
)
def test_wrong_conditions_are_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Conditions(**{**vars(CONDITIONS), **changed})


def test_conditions_of_other_labels_are_refused() -> None:
    with pytest.raises(ValueError, match='counts of cells for each of labels'):
        BatchPlan(
            labels=('a',), batches_per_group=(1,), noisy_counts=None, contexts_rho=0.0, conditions=CONDITIONS
        )
