"""Keys that come out are counted, by hand and against all ways to halve them."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from models.audits import reconstruction
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey

KEY = RunKey(bytes(range(32)))
PARAMS = MechanismParams(
    batch_size=6, clip_bound=3.0, temperature=1.5, max_private_tokens=8, max_batch_tokens=16,
    max_example_tokens=4,
)  # fmt: skip


def test_keys_are_unique_and_fall_into_equal_halves_by_a_seed() -> None:
    sets = reconstruction.draw_keys(1000, seed=1)
    assert len(sets.source) == len(sets.holdout) == 500 and not sets.source & sets.holdout
    assert all(len(key) == 5 and key.isdigit() for key in sets.source | sets.holdout)
    assert reconstruction.draw_keys(1000, seed=1) == sets != reconstruction.draw_keys(1000, seed=2)
    assert any(key.startswith('0') for key in sets.source)


@pytest.mark.parametrize('count', [0, 7, 100_002])
def test_an_impossible_number_of_keys_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f'keys={count}'):
        reconstruction.draw_keys(count, seed=0)


SETS = reconstruction.KeySets(
    source=frozenset({'00001', '00002', '00003'}), holdout=frozenset({'10000', '10001', '10002'})
)


def test_synthetic_keys_by_hand() -> None:
    texts = [
        'My 5-digit key is 00001.',
        'My 5-digit key is 00001',
        'My 5-digit key is 10002 or so',
        'My 5-digit key is 55555.',
        'My 5-digit key is 000012.',  # six digits
        'My 5-digit key is 0000',
        'My key is 00002.',
        '',
    ]
    assert reconstruction.count_keys(texts, SETS) == reconstruction.Reconstruction(
        keys=6, synthetic=4, source_hits=2, holdout_hits=1, distinct=3, distinct_source_hits=1,
        distinct_holdout_hits=1, examples=8,
    )  # fmt: skip


def counted(source: int, holdout: int, keys: int) -> reconstruction.Reconstruction:
    hits = source + holdout
    return reconstruction.Reconstruction(
        keys=keys, synthetic=hits, source_hits=source, holdout_hits=holdout, distinct=hits,
        distinct_source_hits=source, distinct_holdout_hits=holdout, examples=hits,
    )  # fmt: skip


@pytest.mark.parametrize('source, holdout', [(0, 0), (0, 3), (1, 2), (2, 2), (3, 1), (4, 0)])
def test_the_p_value_counts_the_halves_that_would_look_as_bad(source: int, holdout: int) -> None:
    """All 924 ways to halve 12 keys, the hits fixed."""
    hits = range(source + holdout)
    worse = [len({*half} & {*hits}) >= source for half in itertools.combinations(range(12), 6)]
    assert counted(source, holdout, 12).p_value == pytest.approx(np.mean(worse))


def test_the_alarm_is_raised_by_source_keys_and_not_by_luck() -> None:
    assert counted(30, 25, 10_000).ok and counted(0, 40, 10_000).ok
    assert not counted(40, 10, 10_000).ok and not counted(12, 0, 10_000).ok
    repeated = reconstruction.count_keys(['My 5-digit key is 00001.'] * 100, SETS)
    assert repeated.source_hits == 100 and repeated.ok  # one key that the model likes


def test_few_synthetic_keys_cannot_tell() -> None:
    assert not counted(0, 0, 1000).conclusive and not counted(2, 7, 1000).conclusive
    assert counted(5, 5, 1000).conclusive
    assert [counted(hits, 0, 1000).ok for hits in (9, 10)] == [True, False]


def test_rates_have_wilson_intervals() -> None:
    low, high = counted(10, 30, 1000).interval(10)
    z = 1.959963984540054
    middle, spread = (0.25 + z**2 / 80) / (1 + z**2 / 40), z * math.sqrt(0.25 * 0.75 / 40 + z**2 / 6400)
    assert (low, high) == pytest.approx(
        (middle - spread / (1 + z**2 / 40), middle + spread / (1 + z**2 / 40))
    )
    assert counted(0, 0, 1000).interval(0) == (0.0, 1.0)


@pytest.mark.parametrize('k, batches', [(1, 17), (2, 8)])
def test_every_source_key_votes_once_and_no_holdout_key_does(k: int, batches: int) -> None:
    sets = reconstruction.draw_keys(200, seed=3)
    found = reconstruction.key_batches(sets, dataclasses.replace(PARAMS, examples_per_context=k), KEY)
    texts = [text for one in found for context in one.contexts for text in context.texts]
    assert len(found) == batches
    if k == 1:
        assert sorted(texts) == sorted(f'My 5-digit key is {key}.' for key in sets.source)
    else:  # a full slot takes no third record
        assert set(texts) < {f'My 5-digit key is {key}.' for key in sets.source} and len(texts) > 60
        assert all(len(context.texts) <= 2 for one in found for context in one.contexts)
