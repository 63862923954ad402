"""Correlated noise: its matrices are those of the twin, and all outputs of a run stay within their price."""

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest
from scipy import stats

from models.audits import gradient_canaries
from models.privacy import correlated_noise, gradients, whole_numbers
from models.privacy.accounting import subsampled
from models.privacy.gradients import TuningParams
from models.privacy.randomness import RunKey, normal
from tests.oracles import canary
from tests.oracles import correlated_noise as slow
from tests.samples import SECRET

KEY = RunKey(SECRET)
SHAPES = [(1, 1), (1, 4), (2, 2), (2, 5), (3, 7), (5, 30), (4, 3)]


def of_step(noise: gradients.StepNoise, step: int) -> np.ndarray:
    """In whole steps of the grid, int64."""
    return np.asarray(whole_numbers.integers(noise.of_step(step)))


def params(bands: int, steps: int, **changed: float) -> TuningParams:
    given = {'units': 40.0, 'expected_batch_size': 4, 'clip_norm': 2.0, 'noise_multiplier': 0.7}
    return TuningParams(noise_bands=bands, tuning_steps=steps, **(given | changed))  # type: ignore[arg-type]


# --- Matrices ----------------------------------------------------------------------


@pytest.mark.parametrize('bands, steps', SHAPES)
def test_the_matrix_has_its_bands_and_columns_of_norm_1(bands: int, steps: int) -> None:
    found = correlated_noise.strategy(bands, steps)
    np.testing.assert_allclose(found, slow.strategy(bands, steps), atol=1e-15)
    assert (np.triu(found, 1) == 0).all() and (np.tril(found, -bands) == 0).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=0), 1.0, rtol=1e-14)
    raw = slow.strategy(bands, steps, normalised=False)
    if bands > 1 and steps > 1:
        assert np.linalg.norm(raw, axis=0).max() > 1.1


@pytest.mark.parametrize('bands, steps', SHAPES)
def test_variances_are_those_of_the_inverse(bands: int, steps: int) -> None:
    inverse = np.linalg.inv(slow.strategy(bands, steps))
    np.testing.assert_allclose(correlated_noise.variances(bands, steps), np.square(inverse).sum(axis=1))
    found = correlated_noise.deviation_of_sum(bands, steps)
    assert found == pytest.approx(math.sqrt(np.square(inverse.sum(axis=0)).sum()))
    assert found < math.sqrt(steps) or bands == 1 or steps == 1


def test_two_libraries_agree_on_the_inverse_and_it_is_near_the_best() -> None:
    """Of jax_privacy's own search over Toeplitz matrices of so many bands, for the error of prefix sums."""
    from jax_privacy.matrix_factorization import toeplitz

    bands, steps = 5, 30
    coefficients = correlated_noise.coefficients(bands)
    np.testing.assert_allclose(
        toeplitz.inverse_coef(coefficients, steps), correlated_noise.inverse(bands, steps), atol=1e-5
    )
    best = np.asarray(toeplitz.optimize_banded_toeplitz(n=steps, bands=bands), float)
    prefixes = np.tril(np.ones((steps, steps)))

    def error(of: np.ndarray) -> float:
        matrix = sum(entry * np.eye(steps, k=-place) for place, entry in enumerate(of))
        return float(np.linalg.norm(prefixes @ np.linalg.inv(matrix / np.linalg.norm(matrix, axis=0))))

    assert error(best) <= error(coefficients) * (1 + 1e-6)
    assert error(coefficients) < 1.02 * error(best)
    assert error(np.ones(1)) > 1.5 * error(best)


# --- Noise -------------------------------------------------------------------------


@pytest.mark.parametrize('bands', [1, 2, 3])
def test_the_matrix_times_the_noise_is_independent_noise_of_the_run_key(
    bands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, '_DRAWN_AT_A_TIME', 40)
    steps, size, of = 7, 100, params(bands, 7)
    noise = gradients.StepNoise(KEY, 'run', size, of)
    rows = np.stack([of.step * of_step(noise, step) for step in range(steps)])
    drawn = np.stack([
        np.concatenate([
            normal(KEY.words('gradient', b'run', step.to_bytes(8, 'little'), piece.to_bytes(8, 'little'),
                             count=count))
            for piece, count in enumerate((40, 40, 20))
        ])
        for step in range(steps)
    ])  # fmt: skip
    found = slow.strategy(bands, steps) @ rows
    np.testing.assert_allclose(found, of.noise_scale * drawn, rtol=0, atol=4 * of.step)
    # Of other bands it is not.
    other = slow.strategy(bands + 1, steps) @ rows
    assert np.abs(other - of.noise_scale * drawn).max() > 0.1


def test_the_noise_of_steps_has_their_variance_and_one_5_percent_off_is_noticed() -> None:
    """Kolmogorov and Smirnov on 300,000 draws of the fourth of six steps: false alarms once in a million."""
    of = params(3, 6)
    noise = gradients.StepNoise(KEY, 'run', 300_000, of)
    drawn = of.step * of_step(noise, 3)
    scale = 0.7 * 2.0 * math.sqrt(correlated_noise.variances(3, 6)[3])
    assert scale > 1.2 * 0.7 * 2.0
    assert stats.kstest(drawn, stats.norm(scale=scale).cdf).pvalue > 1e-6
    for wrong in (0.95, 1.05):
        assert stats.kstest(drawn, stats.norm(scale=wrong * scale).cdf).pvalue < 1e-6


def test_a_step_that_is_taken_again_has_the_same_noise_in_any_order() -> None:
    of = params(3, 6)
    noise = gradients.StepNoise(KEY, 'run', 50, of)
    rows = [of_step(noise, step) for step in range(6)]
    resumed = gradients.StepNoise(RunKey(SECRET), 'run', 50, of)
    for step in (4, 5, 5, 0, 3):
        np.testing.assert_array_equal(of_step(resumed, step), rows[step])
    other = gradients.StepNoise(KEY, 'other', 50, of)
    assert not np.isin(rows[2], of_step(other, 2)).any()


def test_noise_has_no_text_and_no_copy_on_disk() -> None:
    noise = gradients.StepNoise(KEY, 'run', 5, params(2, 4))
    noise.of_step(0)
    assert repr(noise) == 'StepNoise(secret)'
    for leak in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match='never pickled'):
            leak(noise)


# --- Who is in a batch -------------------------------------------------------------


def test_a_unit_has_coins_at_the_steps_of_its_group_alone() -> None:
    """A million coins of three groups: a rate 2 % off, or groups 5 % off in size, are five deviations."""
    groups, steps, units, probability = 3, 60, 50_000, 0.3
    drawn = np.zeros((units, steps), bool)
    for unit in range(units):
        found = gradients.steps_of_unit(
            KEY, 'run', unit.to_bytes(16, 'little'), 0, probability=probability, steps=steps, groups=groups
        )
        drawn[unit, found] = True
    by_group = np.stack([drawn[:, group::groups].any(axis=1) for group in range(groups)])
    assert by_group.sum(axis=0).max() == 1
    sizes = by_group.sum(axis=1)
    assert np.abs(sizes / (units / groups) - 1).max() < 0.05
    coins = int(sizes.sum()) * steps // groups
    deviation = math.sqrt(probability * (1 - probability) / coins)
    assert abs(drawn.sum() / coins - probability) < 5 * deviation < 0.02 * probability
    # Coins at a unit's first and second chance agree as often as independent ones.
    both = sum((drawn[:, group] & drawn[:, group + groups]).sum() for group in range(groups))
    expected = units * probability**2
    assert abs(both - expected) < 5 * math.sqrt(expected)


def test_a_group_without_coins_takes_all_of_its_units() -> None:
    found = gradients.steps_of_unit(KEY, 'run', b'a', 0, probability=1.0, steps=7, groups=3)
    assert (np.diff(found) == 3).all() and len(found) in (2, 3)


# --- The price ---------------------------------------------------------------------

STEPS, BANDS, PROBABILITY, SIGMA = 4, 2, 0.3, 1.1
EPSILONS = (0.2, 0.6, 1.2)


def constant(_: int, outputs: np.ndarray) -> np.ndarray:
    return np.ones(outputs.shape[1])


def adaptive(step: int, outputs: np.ndarray) -> np.ndarray:
    """Turns with what came out before, and is shorter than the clip norm at times."""
    if step == 0:
        return np.ones(outputs.shape[1])
    return np.clip(2.0 * outputs[:step].sum(axis=0), -1, 1)


def price() -> np.ndarray:
    chances = -(-STEPS // BANDS)
    return np.array(subsampled.deltas_of_steps(PROBABILITY, SIGMA, chances, EPSILONS))


@pytest.mark.parametrize('gradient', [constant, adaptive])
@pytest.mark.parametrize('group', [0, 1])
def test_all_outputs_of_a_run_stay_within_their_price(gradient, group: int) -> None:  # type: ignore[no-untyped-def]
    """Given the unit's group, which only makes it easier; sums over a grid are right to a hundredth."""
    patterns = slow.patterns(PROBABILITY, STEPS, lambda step: step % BANDS == group)
    found = slow.deltas(correlated_noise.strategy(BANDS, STEPS), patterns, gradient, SIGMA, EPSILONS)
    assert (found.max(axis=0) <= 1.01 * price()).all()
    if gradient is constant:
        # The price is hardly more than that of the worst unit.
        assert (found.max(axis=0) >= 0.97 * price()).all()


@pytest.mark.parametrize('broken', ['coins at every step', 'long columns', 'one band more than groups'])
def test_a_run_of_another_mechanism_costs_more(broken: str) -> None:
    """Coins at every step, columns that are not of norm 1, or rows that two chances of a unit share."""
    matrix = correlated_noise.strategy(BANDS, STEPS)
    allowed = [step % BANDS == 0 for step in range(STEPS)]
    if broken == 'coins at every step':
        allowed = [True] * STEPS
    elif broken == 'long columns':
        matrix = slow.strategy(BANDS, STEPS, normalised=False)
    else:
        matrix = slow.strategy(BANDS + 1, STEPS)
    patterns = slow.patterns(PROBABILITY, STEPS, lambda step: allowed[step])
    found = slow.deltas(matrix, patterns, constant, SIGMA, EPSILONS)
    assert (found.max(axis=0) > 1.02 * price()).any()


# --- An audit of what the program draws ----------------------------------------------

TRIALS, DELTA = 10_000, 1e-2
AUDITED = TuningParams(
    units=20.0, expected_batch_size=4, tuning_steps=4, clip_norm=1.0, noise_multiplier=1.0, noise_bands=2
)


def epsilon(probability: float, groups: int, noise: TuningParams) -> float:
    """What releases with a canary and without it contradict, by the odds that an attacker can know best."""

    def components(present: bool) -> np.ndarray:
        found = np.zeros((AUDITED.tuning_steps, TRIALS))
        for trial in range(TRIALS):
            key = RunKey(bytes([present]) * 28 + trial.to_bytes(4, 'little'))
            drawn = gradients.StepNoise(key, 'audit', 1, noise)
            of_steps = [of_step(drawn, step)[0] for step in range(AUDITED.tuning_steps)]
            found[:, trial] = noise.step * np.array(of_steps)
            if present:
                taken = gradients.steps_of_unit(
                    key, 'audit', b'unit', 0, probability=probability, steps=AUDITED.tuning_steps,
                    groups=groups,
                )  # fmt: skip
                found[taken, trial] += AUDITED.clip_norm
        return found

    present, absent = (gradient_canaries.gradient_scores(components(of), AUDITED) for of in (True, False))
    return canary.epsilon_at_least(present, absent, DELTA)


def test_an_audit_stays_below_the_claim_and_finds_coins_at_every_step_and_half_of_the_noise() -> None:
    """False alarms once in a million runs."""
    claim = subsampled.epsilon_of_event(AUDITED.event, DELTA)
    found = epsilon(AUDITED.sampling_probability, AUDITED.noise_bands, AUDITED)
    assert 0.3 * claim < found <= claim
    assert epsilon(1.0, 1, AUDITED) > claim
    half = dataclasses.replace(AUDITED, noise_multiplier=0.5)
    assert epsilon(AUDITED.sampling_probability, AUDITED.noise_bands, half) > claim
