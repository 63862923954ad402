"""A row that is not finite decides nothing: compiled, at sizes where compiled maxima lose a NaN.

Every function is under test as decoding runs it, under `jax.jit` and over long rows. What a
compiled maximum makes of a NaN depends on the compiler, the device and the row's length, so the
bounds may rest on none.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.privacy import mechanism, sparse_vector, whole_numbers
from models.privacy.aggregates import AGGREGATES, clipping, median_range
from models.privacy.params import MechanismParams
from tests import samples
from tests.samples import PARAMS

pytestmark = pytest.mark.heavy

VOCABULARIES = (512, 4096, 262_144)
ROWS, BROKEN = 6, 3  # row 0 is the public prompt's
C = PARAMS.clip_bound
# A sum of six votes, divided by s.
ROUNDING = 1e-5


def patterns(row: np.ndarray) -> dict[str, np.ndarray]:
    """Rows that are not finite, of a finite one."""
    size = len(row)

    def broken(places: object, value: float) -> np.ndarray:
        result = row.copy()
        result[places] = value
        return result

    made = {f'one NaN, {place}': broken(place, np.nan) for place in (0, 1, size // 3, size // 2, size - 1)}
    made |= {
        'a NaN at the largest': broken(int(row.argmax()), np.nan),
        'the lower half NaN': broken(slice(size // 2), np.nan),
        'the upper half NaN': broken(slice(size // 2, None), np.nan),
        'alternating NaN': broken(slice(None, None, 2), np.nan),
        'all NaN': broken(slice(None), np.nan),
        'all NaN but one': np.where(np.arange(size) == size // 3, row, np.nan),
        'one +inf': broken(size // 3, np.inf),
        'one -inf': broken(size // 3, -np.inf),
        'all +inf': broken(slice(None), np.inf),
        'all -inf': broken(slice(None), -np.inf),
    }
    made['+inf then NaN'] = broken(size // 3, np.inf)
    made['+inf then NaN'][size // 2] = np.nan
    made['NaN then +inf'] = broken(size // 3, np.nan)
    made['NaN then +inf'][size // 2] = np.inf
    made['-inf then NaN'] = broken(size // 3, -np.inf)
    made['-inf then NaN'][size // 2 :] = np.nan
    made['huge then NaN'] = broken(size // 3, 3e38)
    made['huge then NaN'][size // 2] = np.nan
    made['+inf, NaN, -inf in turn'] = np.resize([np.inf, np.nan, -np.inf], size)
    return {name: found.astype(np.float32) for name, found in made.items()}


@functools.cache
def batch(vocab: int) -> np.ndarray:
    """`[ROWS, vocab]` finite logits."""
    return np.random.default_rng(vocab).normal(0, 3, (ROWS, vocab)).astype(np.float32)


@functools.partial(jax.jit, static_argnames='params')
def _step(logits: jax.Array, is_private: jax.Array, params: MechanismParams) -> tuple:
    votes = samples.tally((logits[:4], logits[4:]), (is_private[:4], is_private[4:]), params)
    return (
        mechanism.aggregate(votes, params),
        votes.distance,
        sparse_vector.tally((logits[:4], logits[4:]), (is_private[:4], is_private[4:])),
        votes.tallied if isinstance(votes.tallied, median_range.Medians) else None,
    )


def _whole(distance: np.ndarray) -> int:
    """A distance in quanta."""
    high, low = distance.tolist()
    return (high << 24) + low


@pytest.mark.first
@pytest.mark.parametrize('vocab', VOCABULARIES)
@pytest.mark.parametrize('aggregate', list(AGGREGATES))
def test_a_broken_row_moves_nothing_by_more_than_its_bound(aggregate: str, vocab: int) -> None:
    """Against the same batch without it: the aggregate, the distance, and the range of the medians."""
    params = dataclasses.replace(PARAMS, aggregate=aggregate)
    logits, everyone = batch(vocab), np.arange(ROWS) > 0
    without = everyone & (np.arange(ROWS) != BROKEN)
    step = jax.tree.map(np.asarray, _step(logits, without, params))
    before, distance_before, mass_before, medians_before = step
    mass_before, distance_before = whole_numbers.integers(mass_before), _whole(distance_before)
    for name, row in patterns(logits[BROKEN]).items():
        spoilt = logits.copy()
        spoilt[BROKEN] = row
        after, distance, mass, medians = jax.tree.map(np.asarray, _step(spoilt, everyone, params))
        assert np.isfinite(after).all(), name
        if medians is None:
            assert np.abs(after - before).max() <= params.aggregate_sensitivity * (1 + ROUNDING) + 1e-6, name
        else:
            assert all(np.isfinite(part).all() for part in medians), name
            # Each batch's medians lie in the range that the other states.
            assert (medians_before.lowest <= after).all() and (after <= medians_before.highest).all(), name
            assert (medians.lowest <= before).all() and (before <= medians.highest).all(), name
            assert np.abs(medians.lowest).max() <= C and np.abs(medians.highest).max() <= C, name
        # Whole numbers: no rounding.
        assert abs(_whole(distance) - distance_before) <= params.change.value * sparse_vector.MASS, name
        moved = whole_numbers.integers(mass) - mass_before
        assert moved.min() >= 0 and moved.sum() <= sparse_vector.MASS, name
        # A public row that is broken spoils no context's vote either.
        spoilt[[0, BROKEN]] = row, logits[BROKEN]
        _, _, mass_beside, medians_beside = _step(spoilt, without, params)
        np.testing.assert_array_equal(whole_numbers.integers(mass_beside), mass_before, err_msg=name)
        if medians is not None:
            jax.tree.map(np.testing.assert_array_equal, medians_beside, medians_before)


@jax.jit
def _votes(logits: jax.Array, public: jax.Array) -> dict[str, jax.Array]:
    return {
        'clip': clipping.clip_logits(logits, C),
        'difference': clipping.clip_difference(logits, public, C),
        'probabilities': clipping.probabilities(logits),
    }


@pytest.mark.parametrize('vocab', VOCABULARIES)
def test_a_broken_row_votes_within_its_bound_and_the_others_as_before(vocab: int) -> None:
    logits = batch(vocab)
    before = jax.tree.map(np.asarray, _votes(logits, logits[0]))
    others = np.arange(ROWS) != BROKEN
    for name, row in patterns(logits[BROKEN]).items():
        spoilt = logits.copy()
        spoilt[BROKEN] = row
        votes = jax.tree.map(np.asarray, _votes(spoilt, logits[0]))
        for kind, found in votes.items():
            np.testing.assert_array_equal(found[others], before[kind][others], err_msg=name)
        # All of it, the elements that are finite as well.
        np.testing.assert_array_equal(votes['clip'][BROKEN], -C, err_msg=name)
        np.testing.assert_array_equal(votes['difference'][BROKEN], 0, err_msg=name)
        np.testing.assert_array_equal(votes['probabilities'][BROKEN], 0, err_msg=name)
        beside_broken = jax.tree.map(np.asarray, _votes(logits, row))
        np.testing.assert_array_equal(beside_broken['difference'], 0, err_msg=name)


@functools.partial(jax.jit, static_argnames='clip_bound')
def _clipped_below(logits: jax.Array, top: jax.Array, finite: jax.Array, clip_bound: float) -> jax.Array:
    return clipping.clip_below(logits, top, finite, clip_bound)


@pytest.mark.parametrize('vocab', VOCABULARIES)
@pytest.mark.parametrize('top', [np.nan, np.inf, -np.inf, -40.0, 0.0, 40.0])
def test_a_vote_is_bounded_even_where_its_rows_top_is_wrong(top: float, vocab: int) -> None:
    """The bound is each element's own: no compiled reduction over the row has to be right."""
    logits = batch(vocab)[BROKEN]
    for name, row in {'finite': logits, **patterns(logits)}.items():
        found = np.asarray(_clipped_below(row, np.float32(top), np.bool_(True), C))
        assert (np.abs(found) <= C).all(), name
        with np.errstate(invalid='ignore'):
            above = ~np.isfinite(row) | ~(row <= top)
        np.testing.assert_array_equal(found[above], -C, err_msg=name)


@jax.jit
def _plain(logits: jax.Array, public: jax.Array) -> dict[str, jax.Array]:
    """The formulas as METHOD 4 and 4b write them, for rows that are finite."""
    top = logits.max(axis=-1, keepdims=True)
    weights = jnp.exp(logits - top)
    difference = jax.nn.log_softmax(logits) - jax.nn.log_softmax(public)
    return {
        'clip': jnp.maximum(logits - top + C, -C),
        'difference': jnp.clip(difference, -C, C),
        'probabilities': weights * (1 / weights.sum(axis=-1, keepdims=True)),
    }


@pytest.mark.parametrize('vocab', VOCABULARIES)
def test_finite_rows_vote_the_same_bits_as_without_any_containment(vocab: int) -> None:
    for spread in (0.1, 1.0, 30.0):
        logits = batch(vocab) * np.float32(spread)
        jax.tree.map(np.testing.assert_array_equal, _votes(logits, logits[0]), _plain(logits, logits[0]))
