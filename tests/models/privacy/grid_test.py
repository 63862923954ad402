"""Noise of whole numbers: its exact distribution, and of what it is a function.

Keys are fixed, so every test is deterministic; the odds stated are those of a random
key.
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from models.privacy import grid
from models.privacy.grid import NoiseSource, add_noise
from models.privacy.randomness import RunKey
from tests.oracles import goodness_of_fit
from tests.samples import SECRET, noise_source

DRAWS = 40_000
# A right sampler is called wrong with this probability. At 40,000 draws a scale that is 10 % off gives a
# statistic that a right one passes with less than 1e-30.
FALSE_ALARM = 1e-7
VARIANCES = [Fraction(1, 4), Fraction(1), Fraction(7, 3), Fraction(100), Fraction(1000.1) ** 2]


def draws(variance: Fraction, name: str = 'draws') -> np.ndarray:
    return add_noise(np.zeros(DRAWS, np.int64), variance, noise_source(name))


# ---------------------------------------------------------------- the distribution


@pytest.mark.parametrize('variance', VARIANCES, ids=float)
def test_draws_are_the_discrete_gaussian_of_its_variance(variance: Fraction) -> None:
    found, scale = draws(variance), math.sqrt(variance)
    assert goodness_of_fit.discrete_gaussian(found, scale) > FALSE_ALARM
    for wrong in (0.9 * scale, 1.1 * scale):
        assert goodness_of_fit.discrete_gaussian(found, wrong) < FALSE_ALARM


def test_zero_that_counts_twice_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The open twin: a sign of 0 is no second 0 (Algorithm 2, line 10)."""

    def twin(scale: int, words: Iterator[int]) -> int:
        while not grid._falls_exponentially(rest := grid._below(scale, words), scale, words):
            pass
        whole = sum(1 for _ in iter(lambda: grid._falls_exponentially(1, 1, words), False))
        return (rest + scale * whole) * (-1 if next(words) & 1 else 1)

    assert goodness_of_fit.discrete_gaussian(draws(Fraction(1)), 1.0) > FALSE_ALARM
    monkeypatch.setattr(grid, '_discrete_laplace', twin)
    assert goodness_of_fit.discrete_gaussian(draws(Fraction(1)), 1.0) < FALSE_ALARM


@pytest.mark.parametrize('gamma', [Fraction(0), Fraction(1, 7), Fraction(1), Fraction(12, 5)])
def test_a_coin_falls_with_probability_of_an_exponential(gamma: Fraction) -> None:
    """Binomial at odds 1e-7; a twentieth more in the exponent fails it."""
    words = RunKey(SECRET).stream('test', str(gamma).encode())
    tosses = 200_000
    heads = sum(grid._falls_exponentially(gamma.numerator, gamma.denominator, words) for _ in range(tosses))
    assert stats.binomtest(heads, tosses, math.exp(-gamma)).pvalue > FALSE_ALARM
    if gamma > Fraction(1, 2):
        assert stats.binomtest(heads, tosses, math.exp(-1.05 * gamma)).pvalue < FALSE_ALARM


def test_a_fraction_is_compared_to_its_last_digit() -> None:
    """Words that are the digits of 1/3 decide nothing; the first that is not does."""
    third = (1 << 64) // 3
    for same in range(4):
        assert grid._is_below(1, 3, iter([third] * same + [third - 1]))
        assert not grid._is_below(1, 3, iter([third] * same + [third + 1]))
    assert not grid._is_below(0, 5, iter([0, 0, 1])) and grid._is_below(5, 5, iter([2**64 - 1]))
    # A half is 1000…: a word of it, and zeros after it, is not below.
    assert grid._is_below(1, 2, iter([2**63 - 1])) and not grid._is_below(1, 2, iter([2**63, 0, 1]))


def test_numbers_below_a_bound_are_uniform() -> None:
    words = RunKey(SECRET).stream('test', b'below')
    for bound in (1, 2, 3, 10):
        found = np.bincount([grid._below(bound, words) for _ in range(10_000)], minlength=bound)
        assert len(found) == bound
        assert bound == 1 or stats.chisquare(found).pvalue > FALSE_ALARM
    # The largest words would favour the small remainders, and are left out.
    assert grid._below(3, iter([2**64 - 1, 5])) == 2
    wide = [grid._below(2**70 + 1, words) for _ in range(1000)]
    assert max(wide) <= 2**70 and max(wide) > 2**69 > 2**68 > min(wide)


# ---------------------------------------------------------------- of what it is a function

TABLE = np.arange(-6, 6).reshape(3, 4)
WIDE = Fraction(2**40)  # two draws of twelve cells are equal with odds below 1e-60


def test_noise_is_a_function_of_the_key_the_name_and_the_table() -> None:
    first = add_noise(TABLE, WIDE, noise_source('table'))
    add_noise(TABLE + 1, WIDE, noise_source('other'))  # the order of calls does not matter
    for again in (TABLE.copy(), np.asfortranarray(TABLE)):
        np.testing.assert_array_equal(add_noise(again, WIDE, NoiseSource(RunKey(SECRET), (b'table',))), first)


def others() -> Iterator[tuple[str, np.ndarray, Fraction, NoiseSource]]:
    near = TABLE.copy()
    near[2, 3] += 1
    yield 'the table', TABLE, WIDE, noise_source('table')
    yield 'a neighbour', near, WIDE, noise_source('table')
    yield 'another name', TABLE, WIDE, noise_source('tables')
    yield 'another part', TABLE, WIDE, noise_source('table').of('')
    yield 'other parts', TABLE, WIDE, noise_source('tab').of('le')
    yield 'another shape', TABLE.reshape(4, 3), WIDE, noise_source('table')
    yield 'another scale', TABLE, WIDE + Fraction(1, 2**60), noise_source('table')
    yield 'another key', TABLE, WIDE, NoiseSource(RunKey(SECRET[::-1]), (b'table',))


def shared(add: Callable[[np.ndarray, Fraction, NoiseSource], np.ndarray]) -> list[tuple[str, str]]:
    """Pairs of tables of which a cell has the same noise."""
    noise = {name: (add(of, variance, source) - of).ravel() for name, of, variance, source in others()}
    return [
        (one, other) for one, other in itertools.combinations(noise, 2) if (noise[one] == noise[other]).any()
    ]


def test_no_two_tables_share_a_draw() -> None:
    assert not shared(add_noise)


def test_noise_that_forgets_its_table_shows_a_difference() -> None:
    """The open twin: the noise of a name alone. A record was edited, and two releases tell which way."""

    def twin(table: np.ndarray, variance: Fraction, source: NoiseSource) -> np.ndarray:
        words = source.key.stream('table noise', *source.name)
        return np.array([x + grid.discrete_gaussian(variance, words) for x in table.flat]).reshape(
            table.shape
        )

    assert ('the table', 'a neighbour') in shared(twin)
    near = next(table for name, table, _, _ in others() if name == 'a neighbour')
    released = [twin(table, WIDE, noise_source('table')) for table in (TABLE, near)]
    np.testing.assert_array_equal(released[1] - released[0], near - TABLE)


def test_noise_of_the_operating_system_is_told() -> None:
    """The open twin of the function: two draws for one table, whose mean is nearer to it."""

    def twin(table: np.ndarray, variance: Fraction, source: NoiseSource) -> np.ndarray:
        return add_noise(table, variance, NoiseSource(RunKey.new(), source.name))

    assert (twin(TABLE, WIDE, noise_source('table')) != twin(TABLE, WIDE, noise_source('table'))).all()


def test_draws_are_pinned_so_that_a_resumed_run_draws_what_it_drew() -> None:
    noise = add_noise(np.array([5, -5, 0]), Fraction(10**6), noise_source('pinned'))
    assert noise.tolist() == [606, -855, -1155]


def test_a_stream_is_its_definition_and_has_no_end() -> None:
    key = RunKey(SECRET)
    seed = key.hash('test', b'a', b'b', size=64)
    blocks = [hashlib.shake_256(seed + bytes([number]) + bytes(7)).digest(8192) for number in range(3)]
    expected = np.frombuffer(b''.join(blocks), '<u8').tolist()
    found = list(itertools.islice(key.stream('test', b'a', b'b'), len(expected)))
    assert found == expected and len(set(found)) == 3 * 1024
    # Nothing of it is what `words` draws for the same name.
    assert not set(found) & set(key.words('test', b'a', b'b', count=3 * 1024).tolist())


# ---------------------------------------------------------------- the table


def test_noise_is_added_to_each_number_in_its_place() -> None:
    # A scale of 0.05: a value other than 0 has probability below e^-199.
    table = np.array([[3, 0, 10**12], [-7, 2**40, 1]])
    found = add_noise(table, Fraction(1, 400), noise_source())
    assert found.dtype == np.int64 and np.array_equal(found, table)
    assert add_noise(np.zeros((3, 0), np.int64), Fraction(1), noise_source()).shape == (3, 0)


def test_numbers_beyond_64_bits_stop_there() -> None:
    ends = np.array([2**63 - 1, -(2**63)] * 20)
    found = add_noise(ends, Fraction(100), noise_source())
    assert (np.sign(found) == np.sign(ends)).all() and (found == ends).any() and (found != ends).any()


@pytest.mark.parametrize('variance', [Fraction(0), Fraction(-1, 2)])
def test_noise_of_no_variance_is_refused(variance: Fraction) -> None:
    with pytest.raises(ValueError, match='variance > 0, got variance='):
        add_noise(TABLE, variance, noise_source())


@pytest.mark.parametrize('table', [np.array([0.5]), np.zeros(2, np.int32), np.zeros(2, np.uint64)])
def test_a_table_of_anything_but_int64_is_refused_and_not_quoted(table: np.ndarray) -> None:
    with pytest.raises(ValueError, match='int64, got dtype') as caught:
        add_noise(table, Fraction(1), noise_source())
    assert '0.5' not in str(caught.value)


def test_a_source_shows_neither_key_nor_name() -> None:
    shown = repr(noise_source('digests of the input'))
    assert 'digests' not in shown and SECRET.hex() not in shown and 'RunKey(secret)' in shown
