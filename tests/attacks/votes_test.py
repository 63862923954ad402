"""Records and users that try to count more than once: near every candidate, ten thousand, one byte apart."""

import numpy as np
import pytest

from models import batching
from models.batch_plan import BatchPlan
from models.privacy import text_votes
from models.privacy.randomness import RunKey
from models.records import Record
from tests.samples import SECRET

PLAN = BatchPlan(labels=(None,), batches_per_group=(16,), noisy_counts=None, contexts_rho=0.0)


def squared(votes: tuple[np.ndarray, np.ndarray]) -> int:
    return sum(int(quanta) ** 2 for quanta in votes[1])


def plain_counts(nearest: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The open twin: a vote for each candidate that a record is nearest to."""
    found, times = np.unique(np.concatenate(nearest), return_counts=True)
    return found, times * text_votes.QUANTA_PER_VOTE


@pytest.mark.parametrize('size', [1.0, 1e38])
def test_a_poisoned_record_near_every_candidate_has_one_vote(size: float) -> None:
    """Its vector is the sum of all, whatever its length; candidates are copies of it, too."""
    rng = np.random.default_rng(5)
    candidates = rng.normal(size=(64, 16)).astype(np.float32)
    candidates[32:] = candidates.sum(axis=0)
    with np.errstate(over='ignore', invalid='ignore'):
        vector = (size * candidates.sum(axis=0)).astype(np.float32)
        named = text_votes.nearest(vector[None] @ candidates.T, 64)
    assert squared(text_votes.votes_of_unit(list(named))) <= text_votes.QUANTA_PER_VOTE**2
    everywhere = [np.arange(64)]
    assert squared(text_votes.votes_of_unit(everywhere)) <= text_votes.QUANTA_PER_VOTE**2
    assert squared(plain_counts(everywhere)) == 64 * text_votes.QUANTA_PER_VOTE**2


def test_a_user_of_ten_thousand_records_has_one_vote() -> None:
    rng = np.random.default_rng(6)
    of_user = [rng.choice(200, 4, replace=False) for _ in range(10_000)]
    found = text_votes.votes_of_unit(of_user)
    assert 0.9 * text_votes.QUANTA_PER_VOTE**2 < squared(found) <= text_votes.QUANTA_PER_VOTE**2
    assert squared(plain_counts(of_user)) > 10_000 * text_votes.QUANTA_PER_VOTE**2


def test_two_records_one_byte_apart_have_places_of_their_own() -> None:
    """A writer of a record next to another learns nothing of its place, and moves nobody else."""
    key = RunKey(SECRET)
    first, second = (
        [batching.record_hash(key, Record(text=f'{letter} text {n}', label=None)) for n in range(4_000)]
        for letter in 'AB'
    )
    assert len({*first, *second}) == 8_000
    same = sum(
        batching.batch_of(one, 0, PLAN) == batching.batch_of(other, 0, PLAN)
        for one, other in zip(first, second, strict=True)
    )
    # A sixteenth of 4,000 independent pairs, with a deviation of 15.3: wrong once in 10^8 keys.
    assert abs(same - 250) < 6 * 15.3
    # The open twin: a byte more in the text is the next place.
    twin = sum(sum(f'A text {n}'.encode()) % 16 == sum(f'B text {n}'.encode()) % 16 for n in range(4_000))
    assert abs(twin - 250) > 6 * 15.3, 'a sum of bytes would pass'
    # A boundary moved by a byte is another record as well.
    parts = [Record(text='ab', label='c'), Record(text='a', label='bc')]
    assert len({batching.record_hash(key, record) for record in parts}) == 2
