"""Votes on texts by enumeration: two rounds of two candidates, every table, every neighbour, exactly.

The list of the second round depends on the noisy votes of the first. The votes are those of our own
functions (`nearest`, `votes_of_unit`), with 4 quanta to a vote in place of 2¹⁰, so that all tables of noisy
votes can be listed; the noise is the discrete Gaussian from its definition (`text_votes_test.py` tests that
OpenDP draws from it). A table of the release is listed as far as 12 scales beyond the place where a term of
the divergence is largest, which leaves out less than 1e-30 of the sum.

What is shown: whichever unit is added or removed, in both directions and at every order, D_α is at most
α ρ, and ρ is reached; and at every ε δ is at most that of the Gaussian mechanisms which section 11 of README
puts in place of the tables. Mechanisms that break one rule of METHOD 4e each pass that bound.
"""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from models.privacy import text_votes
from models.privacy.accounting import losses
from models.privacy.text_votes import TextVoteParams
from tests.oracles import losses as losses_by_hand
from tests.oracles import text_votes as oracle

ALPHAS = (1.25, 2.0, 4.0, 16.0)
QUANTA = 4
NOISE = 1.0
PARAMS = TextVoteParams(rounds=2, noise_scale=NOISE, unit='user', examples_per_context=3)
# No broken mechanism below moves a cell further.
MOST_MOVED = 2 * QUANTA
REACH = math.ceil(max(ALPHAS) * MOST_MOVED + 12 * NOISE * QUANTA)
# A divergence is a sum of some 10⁵ terms.
SLACK = 1e-9

Vector = tuple[int, int]
Texts = tuple[Vector, Vector]
FIRST: Texts = ((3, 0), (0, 3))
# After a first round that the first text leads, and after one that it does not.
SECOND: tuple[Texts, Texts] = (((3, 1), (1, -2)), ((-1, 0), (0, 3)))


@dataclasses.dataclass(frozen=True)
class Unit:
    """A user: the embeddings of the records, and the label."""

    records: tuple[Vector, ...]
    label: int = 0


Dataset = tuple[Unit, ...]
UNITS: Dataset = (
    Unit(((1, 0),)),
    Unit(((0, 1),)),
    Unit(((1, 1),)),  # a tie of the first round
    Unit(((1, 0), (0, 1), (2, 0))),
    Unit(((0, 0), (0, 0))),  # votes for nothing
    Unit(((1, -1), (0, 0)), label=1),
)


@pytest.fixture(autouse=True)
def _few_quanta(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_votes, 'QUANTA_PER_VOTE', QUANTA)


@functools.cache
def table_of(dataset: Dataset, texts: Texts, number: int = 1) -> np.ndarray:
    """`[2 labels, 2 candidates]` true quanta, by our functions."""
    sums = np.zeros((2, 2), np.int64)
    for unit in dataset:
        named = [
            text_votes.nearest(np.array([record]) @ np.array(texts).T, number)[0]
            if any(record)
            else np.array([], np.int64)
            for record in unit.records
        ]
        candidates, quanta = text_votes.votes_of_unit(named)
        sums[unit.label, candidates] += quanta
    return sums


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """Two rounds, as they are or with one thing broken.

    Attributes:
        table: True quanta of a dataset on a list.
        second: The list of the second round, of whether the first text leads and of the dataset.
        releases: Tables of the same votes, with noise of their own, that each round releases.
        noise: Scale of the noise, in votes.
    """

    table: Callable[[Dataset, Texts], np.ndarray] = table_of
    second: Callable[[bool, Dataset], Texts] = lambda leads, dataset: SECOND[0 if leads else 1]
    releases: int = 1
    noise: float = NOISE

    def divergence(self, one: Dataset, other: Dataset, alpha: float) -> float:
        """D_α of the whole release, the texts included: of `one` from `other`, by listing all tables."""
        after = []
        for leads in (True, False):
            texts = self.second(leads, one)
            if texts != self.second(leads, other):
                return math.inf  # the texts themselves tell the datasets apart
            cells = self._cells(self.table(one, texts), self.table(other, texts), alpha)
            after.append(self.releases * sum(map(np.logaddexp.reduce, cells)))
        (first, second), rest = self._first(one, other, alpha)
        # The first text leads where its noisy votes of the first label are at least as many: for each number
        # of its votes, the outputs of the second up to that one, and those beyond.
        up_to = first + np.logaddexp.accumulate(second)
        beyond = first[:-1] + np.logaddexp.accumulate(second[::-1])[-2::-1]
        whole = np.logaddexp(np.logaddexp.reduce(up_to) + after[0], np.logaddexp.reduce(beyond) + after[1])
        return float(whole + rest) / (alpha - 1)

    def deltas(self, one: Dataset, other: Dataset, epsilons: Sequence[float]) -> list[float]:
        """δ of the whole release of `one` at each ε, from `other`, by the losses of all tables."""
        scale = self.noise * QUANTA
        first = self.table(one, FIRST), self.table(other, FIRST)
        total: collections.Counter[int] = collections.Counter()
        branches = losses_by_hand.joint_losses(first[0][0], first[1][0], scale)
        for leads, of_deciding in zip((True, False), branches, strict=True):
            texts = self.second(leads, one)
            second = self.table(one, texts), self.table(other, texts)
            moved = [*(first[0] - first[1])[1], *(second[0] - second[1]).ravel()]
            rest = losses_by_hand.losses_of_cells([by for by in moved if by], scale)
            total.update(losses_by_hand.together(of_deciding, rest))
        return [losses_by_hand.delta_of_losses(total, scale, epsilon) for epsilon in epsilons]

    def _first(self, one: Dataset, other: Dataset, alpha: float) -> tuple[list[np.ndarray], float]:
        """The two cells that decide, and the logarithm of the sum over all other cells of the round."""
        cells = self._cells(self.table(one, FIRST), self.table(other, FIRST), alpha)
        logs = [float(np.logaddexp.reduce(cell)) for cell in cells]
        return cells[:2], sum(logs[2:]) + (self.releases - 1) * sum(logs)

    def _cells(self, ours: np.ndarray, theirs: np.ndarray, alpha: float) -> list[np.ndarray]:
        """log P^α Q^(1−α) of each cell for every output."""
        largest = int(max(ours.max(), theirs.max()))
        outputs = np.arange(-REACH, REACH + largest + 1)
        mass = oracle.log_mass(self.noise * QUANTA, REACH + 2 * largest + 1)
        middle = len(mass) // 2
        return [
            alpha * mass[outputs - mine + middle] + (1 - alpha) * mass[outputs - its + middle]
            for mine, its in zip(ours.ravel(), theirs.ravel(), strict=True)
        ]


def neighbours(units: Dataset = UNITS) -> Iterator[tuple[Dataset, Dataset]]:
    """Every dataset of these units, and the same without one of them."""
    for size in range(1, len(units) + 1):
        for dataset in itertools.combinations(units, size):
            for place in range(size):
                yield dataset, dataset[:place] + dataset[place + 1 :]


def worst(mechanism: Mechanism, orders: Sequence[float] = ALPHAS) -> float:
    """The largest D_α/(α ρ) over all neighbours, both directions and all orders."""
    return max(
        mechanism.divergence(*pair, alpha) / (alpha * PARAMS.rho)
        for with_unit, without in neighbours()
        for pair in ((with_unit, without), (without, with_unit))
        for alpha in orders
    )


def test_no_unit_costs_more_than_rho_and_one_costs_all_of_it() -> None:
    assert 1 - 1e-6 < worst(Mechanism()) <= 1 + SLACK


EPSILONS = (-1.0, 0.0, 0.5, 1.5, 3.0, 6.0)


def most_above_losses(mechanism: Mechanism) -> float:
    """The largest δ over that of the Gaussian which dominates two tables, over all neighbours and ε."""
    multiplier = losses.noise_multiplier_of_vector(PARAMS.event.event)
    assert multiplier is not None
    # Two Gaussian mechanisms are one of √2 times the shift.
    allowed = [losses_by_hand.delta_of_gaussian(multiplier / math.sqrt(2), epsilon) for epsilon in EPSILONS]
    return max(
        found / most
        for with_unit, without in neighbours()
        for pair in ((with_unit, without), (without, with_unit))
        for found, most in zip(mechanism.deltas(*pair, EPSILONS), allowed, strict=True)
    )


@pytest.mark.first
@pytest.mark.heavy
def test_no_unit_loses_more_in_two_rounds_than_the_gaussians_that_stand_for_them() -> None:
    assert 0.9 < most_above_losses(Mechanism()) <= 1 + SLACK


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize(
    'broken', [Mechanism(table=lambda dataset, texts: 2 * table_of(dataset, texts)), Mechanism(noise=0.8)]
)
def test_votes_that_count_twice_or_have_less_noise_lose_more(broken: Mechanism) -> None:
    assert most_above_losses(broken) > 1.05


def test_votes_on_both_candidates_cost_no_more() -> None:
    spread = Mechanism(table=lambda dataset, texts: table_of(dataset, texts, number=2))
    assert 0.4 < worst(spread) <= 1 + SLACK


def test_a_unit_that_is_replaced_costs_twice_as_much_at_most() -> None:
    found = [
        Mechanism().divergence((*rest, one), (*rest, other), alpha) / (alpha * PARAMS.rho_under_replacement)
        for one, other in itertools.permutations(UNITS, 2)
        for rest in ((), UNITS[1:3])
        for alpha in ALPHAS
    ]
    assert 1 - 1e-6 < max(found) <= 1 + SLACK


def test_sums_over_tables_are_those_of_a_list_of_all_pairs() -> None:
    one, other, alpha = UNITS[:3], UNITS[1:3], 4.0
    after = [
        sum(map(np.logaddexp.reduce, Mechanism()._cells(table_of(one, texts), table_of(other, texts), alpha)))
        for texts in SECOND
    ]
    cells = Mechanism()._cells(table_of(one, FIRST), table_of(other, FIRST), alpha)
    outputs = np.arange(len(cells[0]))
    joint = cells[0][:, None] + cells[1][None, :]
    joint += np.where(outputs[:, None] >= outputs[None, :], *after)
    listed = np.logaddexp.reduce(joint.ravel()) + sum(map(np.logaddexp.reduce, cells[2:]))
    assert Mechanism().divergence(one, other, alpha) == pytest.approx(listed / (alpha - 1), rel=1e-12)


def test_the_second_list_depends_on_noise_alone_and_a_unit_can_change_its_votes_there() -> None:
    """The world is as hard as it looks: what a unit votes for depends on what the first round released."""
    votes = [table_of((UNITS[0],), texts).tolist() for texts in SECOND]
    assert votes[0] != votes[1]


# --------------------------------------------------------------------------- what breaks a rule is seen


def _two_votes(dataset: Dataset, texts: Texts) -> np.ndarray:
    """A whole vote on each of the two nearest: a vector of length √2."""
    return QUANTA * np.sign(table_of(dataset, texts, number=2))


def _each_record_a_vote(dataset: Dataset, texts: Texts) -> np.ndarray:
    """A user's records vote each by themselves."""
    alone = [Unit((record,), unit.label) for unit in dataset for record in unit.records]
    return table_of(tuple(alone), texts)


def _counted_twice(dataset: Dataset, texts: Texts) -> np.ndarray:
    """The votes of a step that was repeated are added again."""
    return 2 * table_of(dataset, texts)


def _in_both_rows(dataset: Dataset, texts: Texts) -> np.ndarray:
    """A unit votes in the rows of both labels."""
    sums = table_of(dataset, texts)
    return sums + sums[::-1]


def _embedded_by_batch(dataset: Dataset, texts: Texts) -> np.ndarray:
    """An embedding depends on the batch that it is computed in: here its mean is taken away."""
    records = [record for unit in dataset for record in unit.records]
    if not records:
        return table_of(dataset, texts)
    total = np.sum(records, axis=0)
    moved = (
        Unit(
            tuple(tuple(int(x) for x in len(records) * np.array(record) - total) for record in unit.records),
            unit.label,
        )
        for unit in dataset
    )
    return table_of(tuple(moved), texts)


def _list_of_true_counts(leads: bool, dataset: Dataset) -> Texts:
    """The second list follows from who leads in truth."""
    first, second = table_of(dataset, FIRST)[0]
    return SECOND[0 if first >= second else 1]


def _list_of_voted_texts(leads: bool, dataset: Dataset) -> Texts:
    """A text that nobody voted for in truth is taken off the list."""
    votes = table_of(dataset, FIRST).sum(axis=0)
    kept = SECOND[0 if leads else 1]
    return tuple(text if vote else (0, 0) for text, vote in zip(kept, votes, strict=True))


@pytest.mark.parametrize(
    ('broken', 'least'),
    [
        (Mechanism(table=_two_votes), 1.9),
        (Mechanism(table=_each_record_a_vote), 1.9),
        (Mechanism(table=_counted_twice), 3.9),
        (Mechanism(table=_in_both_rows), 1.9),
        (Mechanism(table=_embedded_by_batch), 1.4),
        (Mechanism(releases=2), 1.9),
        (Mechanism(noise=NOISE / 2), 3.9),
        (Mechanism(second=_list_of_true_counts), math.inf),
        (Mechanism(second=_list_of_voted_texts), math.inf),
    ],
    ids=[
        'two votes', 'each record a vote', 'counted twice', 'in both rows', 'embedded by batch',
        'noise drawn again', 'half the noise', 'list of true counts', 'list of voted texts',
    ],
)  # fmt: skip
def test_what_breaks_a_rule_costs_more(broken: Mechanism, least: float) -> None:
    assert worst(broken, orders=(2.0,)) >= least
