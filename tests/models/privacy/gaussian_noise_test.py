"""Noise is the rounded draw of its words, digit for digit, and its low bits tell nothing of what is below."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from models.privacy import gaussian_noise, gradients, whole_numbers
from models.privacy.randomness import RunKey, normal
from models.privacy.whole_numbers import RADIUS
from tests.oracles import gaussian_noise as slow
from tests.samples import SECRET

KEY = RunKey(SECRET)
MORE = (2**63 + 17, 12345, 2**64 - 1)
# Words at the ends and at the border of the tail, and a grid over the rest.
EDGES = [0, 1, 2, 1000, 2**43 - 1, 2**43, 2**43 + 1, 2**62, 2**63 - 1]
WORDS = np.array(
    [sign + word for sign in (0, 2**63) for word in (*EDGES, *(2**power + 7 for power in range(3, 63, 3)))],
    np.uint64,
)


@pytest.mark.first
@pytest.mark.heavy
@pytest.mark.parametrize('more', [MORE, (0,) * 3, (2**64 - 1,) * 3])
def test_draws_are_as_near_to_the_twin_as_is_claimed(more: tuple[int, ...]) -> None:
    """Whatever follows the first word, by a third of the claim."""
    words = np.concatenate([WORDS, KEY.words('test', count=30)])
    found = gaussian_noise.deviates(words, lambda _: more)
    for word, number in zip(words, found, strict=True):
        expected = slow.deviate(int(word), more)
        assert abs(expected - float(number)) < gaussian_noise.ACCURACY / 3
        assert abs(gaussian_noise.exact_deviate(int(word), more) - expected) < 2.0**-200


@pytest.mark.parametrize('scale', [0.3, 40.0, 0.7 * RADIUS, 2.0**40])
def test_noise_is_the_rounded_draw(scale: float) -> None:
    """At a scale of 2^40 every fourth number is found in float64 alone; none of them is wrong."""
    words = np.concatenate([WORDS, KEY.words('test', count=30)])
    asked: list[int] = []

    def more(index: int) -> tuple[int, ...]:
        asked.append(index)
        return MORE

    found = gaussian_noise.rounded(scale, words, more)
    expected = [slow.rounded(scale, slow.deviate(int(word), MORE)) for word in words]
    np.testing.assert_array_equal(found, expected)
    if scale == 2.0**40:
        # Float64 alone would get some wrong.
        assert (np.rint(scale * normal(words)) != expected).any()
        # Draws of the tail are asked for their words once more.
        in_tail = int((words & np.uint64(2**63 - 1) < 2**43).sum())
        assert 0 < len(asked) - in_tail < len(words)


def test_noise_of_a_step_is_that_of_exact_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in float64, and where each is found again."""
    params = gradients.TuningParams(
        units=40.0, expected_batch_size=4, tuning_steps=4, clip_norm=2.0, noise_multiplier=0.7
    )
    monkeypatch.setattr(gradients, '_DRAWN_AT_A_TIME', 5)
    found = whole_numbers.integers(gradients.noise_of_step(KEY, 'run', 3, 12, params))
    expected = []
    for piece, count in enumerate((5, 5, 2)):
        named = b'run', (3).to_bytes(8, 'little'), piece.to_bytes(8, 'little')
        for index, word in enumerate(KEY.words('gradient', *named, count=count)):
            more = KEY.words('gradient more', *named, index.to_bytes(8, 'little'), count=3)
            draw = slow.deviate(int(word), tuple(map(int, more)))
            expected.append(slow.rounded(0.7 * RADIUS, draw))
    np.testing.assert_array_equal(found, expected)
    monkeypatch.setattr(gaussian_noise, 'ACCURACY', 1e9)
    again = gradients.noise_of_step(KEY, 'run', 3, 12, params)
    np.testing.assert_array_equal(whole_numbers.integers(again), expected)


# --- What low bits tell ----------------------------------------------------------------

PARAMS = gradients.TuningParams(
    units=64, expected_batch_size=64, tuning_steps=1, clip_norm=1.0, noise_multiplier=10.0
)


def of_whole_numbers() -> np.ndarray:
    drawn = gradients.noise_of_step(KEY, 'bits', 0, 2**20, PARAMS)
    return np.asarray(whole_numbers.integers(drawn))


def through_float32() -> np.ndarray:
    """The open twin: the same numbers as float32 holds them."""
    return of_whole_numbers().astype(np.float32).astype(np.int64)


def low_bits_are_fair(noise: np.ndarray) -> bool:
    """By a chi-square test of the last four bits, of all draws and of the largest: two in a million fail."""
    largest = noise[np.abs(noise) > 2 * PARAMS.noise_multiplier * RADIUS]
    return all(
        stats.chisquare(np.bincount(draws & 15, minlength=16)).pvalue > 1e-6 for draws in (noise, largest)
    )


def test_low_bits_of_noise_are_fair_in_its_tail_too_and_those_of_floats_are_not() -> None:
    assert low_bits_are_fair(of_whole_numbers())
    assert not low_bits_are_fair(through_float32())


DIMENSIONS = 20_000


@functools.cache
def sums() -> tuple[np.ndarray, np.ndarray]:
    """The clipped sums of 63 units and of one more, in whole steps."""
    units = np.random.default_rng(1).normal(size=(64, DIMENSIONS)).astype(np.float32)
    clipped = gradients.clipped_sum(lambda parameters, _, unit: jnp.vdot(parameters, unit), 1.0)

    def of_first(count: int) -> np.ndarray:
        is_padding = jnp.arange(64) >= count
        found = clipped(jnp.zeros(DIMENSIONS), None, jnp.asarray(units), is_padding_example=is_padding)
        return np.asarray(found, np.int64)

    return of_first(63), of_first(64)


def impossible(noisy: np.ndarray, guess: np.ndarray) -> int:
    """Components that no float32 noise on a float32 sum gives: Mironov's attack on a guess of the sum."""
    noise = (noisy.astype(np.float64) - guess).astype(np.float32)
    possible = np.zeros(len(noise), bool)
    for _ in range(4):
        noise = np.nextafter(noise, np.float32(-np.inf))
    for _ in range(9):
        possible |= (guess + noise).astype(np.float32) == noisy
        noise = np.nextafter(noise, np.float32(np.inf))
    return int((~possible).sum())


def test_which_values_occur_tells_nothing_of_the_sum() -> None:
    """The float sum with float noise is decided with certainty; whole numbers are possible under both."""
    for world in (0, 1):
        drawn = gradients.noise_of_step(RunKey(bytes([world]) * 32), 'attack', 0, DIMENSIONS, PARAMS)
        noise = np.asarray(whole_numbers.integers(drawn))
        of_floats = [np.float32(PARAMS.step) * one.astype(np.float32) for one in sums()]
        noisy = of_floats[world] + (PARAMS.step * noise).astype(np.float32)
        counts = [impossible(noisy, guess) for guess in of_floats]
        assert counts[world] == 0 < counts[1 - world]
        # Each noise that either guess asks for is a whole number in the range that is drawn from.
        released = sums()[world] + noise
        assert all(np.abs(released - guess).max() < 8 * PARAMS.noise_multiplier * RADIUS for guess in sums())
