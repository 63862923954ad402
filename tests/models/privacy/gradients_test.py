"""DP-SGD's parts: how far one unit moves the clipped sum, who is in a batch, and how large the noise is."""

import functools
import itertools
import math
import tracemalloc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from models.finetuning import train
from models.privacy import gradients, whole_numbers
from models.privacy.randomness import RunKey, normal
from models.privacy.whole_numbers import RADIUS
from tests.samples import SECRET

KEY = RunKey(SECRET)
CLIP_NORM = 0.5
RNG = np.random.default_rng(3)
# Units of three records each, some of which are far out, broken or missing.
UNITS = RNG.normal(size=(9, 3, 4)).astype(np.float32) * np.array([0.01, 1, 100], np.float32)[:, None]
UNITS[4] = np.nan
UNITS[5] = 1e30
UNITS[6] = 0.0
PARAMETERS = {'a': jnp.asarray(RNG.normal(size=4), jnp.float32), 'b': jnp.ones(2)}


def loss(parameters: dict[str, jax.Array], scale: jax.Array, unit: jax.Array) -> jax.Array:
    """The sum over the unit's records, so that more records make a larger gradient."""
    inner = unit @ parameters['a']
    return scale * (jnp.sum(jnp.tanh(inner) * 3 + inner) + parameters['b'].sum() * jnp.sum(unit[:, 0]))


@pytest.fixture(scope='module')
def clipped_sum():  # type: ignore[no-untyped-def]
    compiled: dict[int, Any] = {}

    def of_batch(units: np.ndarray, size: int = 4, calls: int = 1) -> np.ndarray:
        if size not in compiled:
            compiled[size] = jax.jit(train.batch_sum(gradients.clipped_sum(loss, CLIP_NORM), size))
        capacity = (len(UNITS) // calls // size + 1) * size
        found = train.summed(
            functools.partial(compiled[size], PARAMETERS, jnp.float32(1.0)),
            PARAMETERS,
            np.arange(len(units)),
            lambda rows: units[rows],
            capacity,
        )
        return flat(found)

    return of_batch


def flat(whole: whole_numbers.Limbs) -> np.ndarray:
    """All components of a sum, int64."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(whole_numbers.integers(whole))])


def squared(vector: np.ndarray) -> int:
    """The square of the norm, exactly."""
    return sum(int(component) ** 2 for component in vector)


def test_one_unit_moves_the_sum_by_the_clip_norm_at_most(clipped_sum) -> None:  # type: ignore[no-untyped-def]
    """Every unit, beside every subset of three others, in every place of a micro-batch: by one vector."""
    largest = 0
    for unit in range(len(UNITS)):
        others = [other for other in range(len(UNITS)) if other != unit][:4]
        alone = clipped_sum(UNITS[[unit]])
        for size in range(4):
            for beside in itertools.combinations(others, size):
                without = clipped_sum(UNITS[list(beside)])
                with_unit = clipped_sum(UNITS[sorted([*beside, unit])])
                np.testing.assert_array_equal(with_unit - without, alone)
        largest = max(largest, squared(alone))
    assert (0.999 * RADIUS) ** 2 < largest <= RADIUS**2


def test_without_clipping_one_unit_moves_it_further() -> None:
    gradient = jax.grad(loss)(PARAMETERS, jnp.float32(1.0), UNITS[2])
    assert np.linalg.norm(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])) > CLIP_NORM


def test_clipping_each_record_by_itself_moves_it_further() -> None:
    """The purpose of a unit's name: three records of one user, clipped one by one."""
    of_record = jax.jit(gradients.clipped_sum(loss, CLIP_NORM))
    found = of_record(PARAMETERS, jnp.float32(1.0), UNITS[2][:, None], is_padding_example=np.zeros(3, bool))
    leaves = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)])
    assert squared(leaves) > (1.1 * RADIUS) ** 2


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('size', [1, 2, 4, 16])
@pytest.mark.parametrize('calls', [1, 3])
def test_micro_batches_and_padding_change_nothing(clipped_sum, size: int, calls: int) -> None:  # type: ignore[no-untyped-def]
    np.testing.assert_array_equal(clipped_sum(UNITS, size, calls), clipped_sum(UNITS, 9))
    assert not clipped_sum(UNITS[:0], size, calls).any()


@pytest.mark.parametrize('count', range(10))
def test_what_fills_up_a_batch_counts_as_nothing_and_takes_no_time(count: int) -> None:
    """Rows behind the last unit are not numbers, and their micro-batches are not computed."""
    seen = []

    def clipped_sum(
        parameters: jax.Array, _: None, units: jax.Array, *, is_padding_example: jax.Array
    ) -> Any:
        jax.debug.callback(lambda rows: seen.append(rows), is_padding_example)
        own = jnp.where(is_padding_example[:, None], 0.0, units).astype(jnp.int32)
        return own.sum(axis=0)

    rows = np.where(np.arange(10)[:, None] < count, np.arange(20.0).reshape(10, 2), np.nan).astype(np.float32)
    found = jax.jit(train.batch_sum(clipped_sum, 2))(jnp.zeros(2), None, rows, jnp.int32(count))
    jax.effects_barrier()
    np.testing.assert_array_equal(flat(found), np.arange(20).reshape(10, 2)[:count].sum(axis=0))
    assert len(seen) == -(-count // 2)


def test_the_sum_is_that_of_the_twin(clipped_sum) -> None:  # type: ignore[no-untyped-def]
    total = np.zeros(6)
    for unit in UNITS:
        found = jax.grad(loss)(PARAMETERS, jnp.float32(1.0), unit)
        leaves = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)]).astype(float)
        own = np.nan_to_num(leaves, posinf=0.0, neginf=0.0)
        total += own * min(1.0, CLIP_NORM / max(np.linalg.norm(own), 1e-300))
    # Rounding towards zero and the slack of norms take up to 2^-12 of each unit.
    np.testing.assert_allclose(clipped_sum(UNITS) * CLIP_NORM / RADIUS, total, rtol=1e-3, atol=1e-5)


def test_the_norm_of_very_many_components_is_not_rounded_down() -> None:
    """As a gradient of all weights has them: a sum that takes one after another stops growing at 2^24."""
    size = 2**25
    ones = np.ones((2**13, 2**12), np.float32)
    assert np.add.accumulate(ones.ravel())[-1] == 2**24

    def of_all(parameters: jax.Array, direction: jax.Array, unit: jax.Array) -> jax.Array:
        return unit * jnp.sum(parameters * direction)

    compiled = jax.jit(gradients.clipped_sum(of_all, CLIP_NORM))
    unit = np.array([3.0], np.float32)
    found = np.ravel(compiled(jnp.zeros(ones.shape), ones, unit, is_padding_example=np.zeros(1, bool)))
    assert found.size == size and found.min() == found.max()
    # A component is 724 steps before rounding towards zero.
    assert (0.998 * RADIUS) ** 2 < size * int(found[0]) ** 2 <= RADIUS**2


# --- Poisson batches ---------------------------------------------------------------


def test_a_unit_is_in_a_step_at_its_rate_independently() -> None:
    """2 million coins: a rate 2 % off is at least 6 standard deviations; so are coins that agree."""
    q, steps, units = 0.05, 400, 5_000
    drawn = np.zeros((units, steps), bool)
    for unit in range(units):
        found = gradients.steps_of_unit(
            KEY, 'run', unit.to_bytes(16, 'little'), 0, probability=q, steps=steps
        )
        drawn[unit, found] = True
    deviation = math.sqrt(q * (1 - q) / drawn.size)
    assert abs(drawn.mean() - q) < 5 * deviation < 0.02 * q
    # Sizes of batches, and steps of units, have the variance of a binomial: fixed batches would have none.
    for axis, count in ((0, units), (1, steps)):
        sums = drawn.sum(axis=axis)
        ratio = sums.var() / (count * q * (1 - q))
        spread = math.sqrt(2 / len(sums))
        assert abs(ratio - 1) < 6 * spread
    both = (drawn[:, :-1] & drawn[:, 1:]).mean()
    assert abs(both - q * q) < 6 * math.sqrt(q * q / drawn.size)


def test_coins_are_a_units_own() -> None:
    def coins(key: RunKey, run_id: str, unit: bytes, ordinal: int) -> list[int]:
        return list(gradients.steps_of_unit(key, run_id, unit, ordinal, probability=0.3, steps=200))

    first = coins(KEY, 'run', b'a' * 16, 0)
    assert first == coins(RunKey(SECRET), 'run', b'a' * 16, 0)
    others = [
        coins(KEY, 'run', b'b' * 16, 0),
        coins(KEY, 'run', b'a' * 16, 1),
        coins(KEY, 'other', b'a' * 16, 0),
        coins(RunKey(bytes(32)), 'run', b'a' * 16, 0),
    ]
    assert all(other != first for other in others)
    assert list(gradients.steps_of_unit(KEY, 'run', b'', 0, probability=1.0, steps=3)) == [0, 1, 2]


# --- Noise -------------------------------------------------------------------------


def test_noise_is_normal_with_its_scale_and_a_scale_5_percent_off_is_not() -> None:
    """Kolmogorov and Smirnov on 300,000 draws: false alarms once in a million, 5 % off is always noticed."""
    params = gradients.TuningParams(
        units=100.0, expected_batch_size=10, tuning_steps=4, clip_norm=0.25, noise_multiplier=1.7
    )
    like = {'a': np.zeros((100, 2_500)), 'b': np.zeros(50_000)}
    drawn = params.step * flat(train.noise_of_step(like, KEY, 'run', 3, params))
    scale = 1.7 * 0.25
    assert stats.kstest(drawn, stats.norm(scale=scale).cdf).pvalue > 1e-6
    for wrong in (0.95, 1.05):
        assert stats.kstest(drawn, stats.norm(scale=wrong * scale).cdf).pvalue < 1e-6


def noise_of(key: RunKey, run_id: str, step: int, size: int) -> np.ndarray:
    """In whole steps, of standard deviation 0.6 RADIUS."""
    params = gradients.TuningParams(
        units=100.0, expected_batch_size=10, tuning_steps=6, clip_norm=0.5, noise_multiplier=0.6
    )
    return flat(gradients.noise_of_step(key, run_id, step, size, params))


def test_noise_is_a_function_of_run_and_step() -> None:
    draws = noise_of(KEY, 'run', 0, 50)
    assert (draws == noise_of(RunKey(SECRET), 'run', 0, 50)).all()
    for other in (noise_of(KEY, 'run', 1, 50), noise_of(KEY, 'other', 0, 50)):
        assert not np.isin(draws, other).any()


def test_noise_is_drawn_in_pieces_of_words_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise across pieces is normal, no number comes twice, and little more than the result is held."""
    monkeypatch.setattr(gradients, '_DRAWN_AT_A_TIME', 1_000)
    found = noise_of(KEY, 'run', 5, 250_300)
    assert stats.kstest(found, stats.norm(scale=0.6 * RADIUS).cdf).pvalue > 1e-6
    pieces = np.array_split(found[:250_000], 250)
    # Between neighbours and within a piece: five deviations of a correlation of so many.
    for left, right in ((pieces[0], pieces[1]), (np.ravel(pieces[:-1]), np.ravel(pieces[1:]))):
        assert abs(np.corrcoef(left, right)[0, 1]) < 5 / math.sqrt(len(left))
    for number, piece in enumerate(pieces[:3]):
        step, place = (5).to_bytes(8, 'little'), number.to_bytes(8, 'little')
        twin = np.rint(0.6 * RADIUS * normal(KEY.words('gradient', b'run', step, place, count=1_000)))
        assert (piece == twin).all()
    monkeypatch.undo()
    size = 2**22
    params = gradients.TuningParams(
        units=100.0, expected_batch_size=10, tuning_steps=6, clip_norm=0.5, noise_multiplier=0.6
    )
    gradients.noise_of_step(KEY, 'run', 0, size, params)  # what is imported for it counts for nothing
    tracemalloc.start()
    try:
        gradients.noise_of_step(KEY, 'run', 1, size, params)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Two int32 arrays; a float64 one beside them would be twice as much.
    assert 8 * size < peak < 12 * size


def test_normal_is_right_in_the_tail() -> None:
    words = np.array([0, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    found = normal(words)
    assert found[0] == -found[2] and found[1] == -found[3]
    assert abs(found[0]) == pytest.approx(float(-stats.norm.ppf(2.0**-55)), rel=1e-9)
    assert abs(found[1]) < 1e-15


# --- Settings ------------------------------------------------------------------------


@pytest.mark.parametrize(
    'changed, said',
    [
        ({'clip_norm': 0.0}, 'a finite clip_norm > 0'),
        ({'clip_norm': 1e-20}, 'Expected 1e-08 <= clip_norm <= 1e\\+08, got clip_norm=1e-20'),
        ({'clip_norm': 1e20}, 'clip_norm <= 1e\\+08'),
        ({'units': 1e6, 'expected_batch_size': 100_000}, 'expected_batch_size <= 65536'),
        ({'noise_multiplier': 5000.0}, 'noise_multiplier <= 4096'),
        ({'noise_multiplier': math.inf}, 'a finite noise_multiplier > 0'),
        ({'tuning_steps': 0}, 'tuning_steps >= 1'),
        ({'label_mix_rho': 0.0}, 'Expected 1e-09 <= label_mix_rho <= 10, got label_mix_rho=0.0'),
        ({'label_mix_rho': math.nan}, 'label_mix_rho <= 10, got'),
        ({'label_mix_rho': 11.0}, 'label_mix_rho <= 10, got'),
        ({'expected_batch_size': 200}, 'expected_batch_size <= the declared number'),
        ({'examples_per_context': 2}, 'examples_per_context=1 where each record is a unit'),
    ],
)
def test_settings_without_a_guarantee_are_refused(changed: dict[str, float], said: str) -> None:
    settings = {
        'units': 100.0, 'expected_batch_size': 10, 'tuning_steps': 4, 'clip_norm': 1.0,
        'noise_multiplier': 1.0,
    }  # fmt: skip
    with pytest.raises(ValueError, match=said):
        gradients.TuningParams(**(settings | changed))  # type: ignore[arg-type]
