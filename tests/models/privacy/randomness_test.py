"""Keys, keyed hashes and draws: secret, separated, exact, and the same on every retry.

Keys are fixed, so every test is deterministic; the odds stated are those of a random key.
"""

import copy
import fractions
import functools
import hashlib
import os
import pathlib

import mpmath
import numpy as np
import pytest
from scipy import stats

from models.privacy import randomness, sparse_vector
from models.privacy.randomness import RunKey
from tests import oracles

SECRET = bytes(range(32))
KEY = RunKey(SECRET)
ODDS = 1e-6  # false alarms of a statistical test


# -------------------------------------------------------------------- the key


def test_the_key_has_no_text_form() -> None:
    for shown in (repr(KEY), str(KEY), f'{KEY}', repr([KEY]), repr({'key': KEY})):
        assert 'RunKey(secret)' in shown
        assert SECRET.hex() not in shown and repr(SECRET)[2:-1] not in shown
    assert not hasattr(KEY, '__dict__')


def test_the_key_is_never_pickled_by_what_beam_ships_closures_with() -> None:
    cloudpickle = pytest.importorskip('cloudpickle')
    with pytest.raises(TypeError, match='never pickled'):
        cloudpickle.dumps(lambda: KEY)
    with pytest.raises(TypeError, match='never pickled'):
        copy.deepcopy(KEY)


@pytest.mark.parametrize('length', [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f'32 bytes, got length={length}'):
        RunKey(b'x' * length)


def test_the_key_file_is_its_owners_alone_and_comes_back(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'key'
    previous = os.umask(0)  # the mode may not lean on the umask
    try:
        KEY.write(path)
    finally:
        os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes() == SECRET
    assert RunKey.read(path).hash('test', b'x') == KEY.hash('test', b'x')


def test_a_key_is_never_replaced(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'key'
    KEY.write(path)
    with pytest.raises(FileExistsError):
        RunKey.new().write(path)
    assert path.read_bytes() == SECRET


@pytest.mark.skipif(os.name != 'posix', reason='file modes are those of POSIX')
@pytest.mark.parametrize('mode', [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601])
def test_a_key_that_others_may_touch_is_refused(tmp_path: pathlib.Path, mode: int) -> None:
    path = tmp_path / 'key'
    KEY.write(path)
    path.chmod(mode)
    with pytest.raises(PermissionError, match='chmod 600') as caught:
        RunKey.read(path)
    assert SECRET.hex() not in str(caught.value)


def test_new_keys_differ() -> None:
    assert len({RunKey.new().hash('test') for _ in range(50)}) == 50


# ------------------------------------------------------------------ keyed hashes


def test_hash_and_words_equal_their_definition() -> None:
    def framed(part: bytes) -> bytes:
        return len(part).to_bytes(8, 'little') + part

    data = framed(b'run-7') + framed(b'0001-000002')
    expected = hashlib.blake2b(data, digest_size=16, key=SECRET, person=b'token').digest()
    assert KEY.hash('token', b'run-7', b'0001-000002') == expected

    seed = hashlib.blake2b(data, digest_size=64, key=SECRET, person=b'token').digest()
    stream = hashlib.shake_256(seed).digest(8 * 5)
    golden = [int.from_bytes(stream[8 * i : 8 * i + 8], 'little') for i in range(5)]
    words = KEY.words('token', b'run-7', b'0001-000002', count=5)
    assert words.dtype == np.uint64 and words.tolist() == golden


def test_words_are_pinned_so_that_a_resumed_run_draws_what_it_drew() -> None:
    assert KEY.words('token', b'run', b'batch', count=3).tolist() == [
        11725698684100014053,
        10807548885796215092,
        647920568360685191,
    ]


# ------------------------------------------------------------------------- noise

SCALES = [fractions.Fraction(1, 3), fractions.Fraction(1), fractions.Fraction(0.1) * 4 * 2**24, 2**43 - 1]


def _laplace(scale: fractions.Fraction, count: int, name: bytes = b'') -> np.ndarray:
    return randomness.discrete_laplace(scale, count, functools.partial(KEY.words, 'laplace', name))


def _exact_odds(scale: fractions.Fraction, digit: int, bits: int = 64) -> int:
    """The first bits of 1/(1 + e^{2^digit/scale}), with twice the digits that they need."""
    with mpmath.workdps(bits + 1000):
        power = mpmath.mpf(2**digit) * scale.denominator / scale.numerator
        return int(mpmath.floor(mpmath.mpf(2) ** bits / (1 + mpmath.exp(power))))


@pytest.mark.parametrize('scale', map(fractions.Fraction, SCALES))
def test_digits_have_their_probabilities_to_the_last_bit(scale: fractions.Fraction) -> None:
    odds = randomness._digit_odds(scale).tolist()
    assert 1024 * scale <= 2 ** len(odds) <= max(2, 4096 * scale) and len(odds) <= 54
    assert odds == [_exact_odds(scale, digit) for digit in range(len(odds))]
    # A hundredth in the scale is another mechanism, and every digit but the last shows it.
    other = randomness._digit_odds(scale * fractions.Fraction(101, 100)).tolist()
    assert all(a != b for a, b in zip(odds, other, strict=False) if a > 0 and b > 0)


def test_independent_digits_make_a_discrete_laplace_number() -> None:
    """The exact probability of every number within 40, from those of the digits, at scale 3.5."""
    scale = fractions.Fraction(7, 2)
    ones = [mpmath.mpf(_exact_odds(scale, digit, 200)) / 2**200 for digit in range(12)]
    geometric = [
        mpmath.fprod(odds if number >> digit & 1 else 1 - odds for digit, odds in enumerate(ones))
        for number in range(2**12)
    ]
    ratio = mpmath.exp(-1 / mpmath.mpf('3.5'))
    for number in range(41):
        found = mpmath.fsum(a * b for a, b in zip(geometric, geometric[number:], strict=False))
        assert found == pytest.approx(float((1 - ratio) / (1 + ratio) * ratio**number), rel=1e-12)


def test_noise_is_the_difference_of_the_two_numbers_that_words_spell() -> None:
    scale = fractions.Fraction(2)
    odds = randomness._digit_odds(scale)
    pairs = np.array([(a, b) for a in (0, 1, 2, 5, 2047) for b in (0, 1, 3, 2047)])
    digits = pairs[..., None] >> np.arange(len(odds)) & 1
    # The last word below the odds, or the first one above them that is not undecided.
    drawn = np.where(digits, odds - (odds > 0), odds + np.uint64(1)).astype(np.uint64)
    spelled = (odds > 0)[None, None] | (digits == 0)
    assert spelled.sum() < spelled.size, 'a digit of probability below 2^-64 needs further words'
    words = drawn[spelled.all(axis=(1, 2))]
    found = randomness.discrete_laplace(scale, len(words), lambda *name, count: words.ravel())
    kept = pairs[spelled.all(axis=(1, 2))]
    assert found.tolist() == (kept[:, 0] - kept[:, 1]).tolist() and len(kept) >= 9


@pytest.mark.parametrize('side', [-1, 1])
@pytest.mark.parametrize('after', [1, 3])
def test_a_word_that_decides_nothing_is_followed_by_others(side: int, after: int) -> None:
    """Digit 1 of the first number, whose first bits are those of its probability, and `after` words more."""
    scale = fractions.Fraction(5, 4)
    odds = randomness._digit_odds(scale)
    bits = [_exact_odds(scale, 1, 64 * (place + 2)) % 2**64 for place in range(after)]
    bits[-1] += side
    further = np.array(bits, np.uint64)
    asked = []

    def words(*name: bytes, count: int) -> np.ndarray:
        if name:
            asked.append((name, count))
            return further[:count]
        first = np.full((1, 2, len(odds)), 2**64 - 1, np.uint64)  # all digits 0
        first[0, 0, 1] = odds[1]
        return first.ravel()

    found = randomness.discrete_laplace(scale, 1, words)
    assert found.tolist() == [2 if side < 0 else 0]
    assert [count for _, count in asked] == list(range(1, after + 1)) and len(set(asked)) == after


def test_numbers_of_thousands_of_scales_fit() -> None:
    """All digits 1, and all 0: the largest noise of the largest scale that settings allow."""
    scale = fractions.Fraction(2**43)
    digits = len(randomness._digit_odds(scale))
    drawn = np.zeros((1, 2, digits), np.uint64)
    drawn[0, 1] = 2**64 - 1
    # Digits so rare that 0 is undecided: further words of 0 decide.
    found = randomness.discrete_laplace(
        scale, 1, lambda *name, count: np.zeros(count, np.uint64) if name else drawn.ravel()
    )
    assert found.tolist() == [2**54 - 1]
    assert sparse_vector.limbs(found).tolist() == [[2**30 - 1, 2**24 - 1]]
    assert sparse_vector.limbs(-found).tolist() == [[-(2**30), 1]]


def test_discrete_laplace_has_its_distribution_and_no_other() -> None:
    """Chi-square at odds 1e-6 of a false alarm; 3 % in the scale, and rounded continuous noise, fail it."""
    scale, draws = fractions.Fraction(5, 2), 400_000
    noise = _laplace(scale, draws)
    values = np.arange(-60, 61)
    counts = np.bincount(np.clip(noise, -60, 60) + 60, minlength=121)

    def fits(probabilities: np.ndarray) -> bool:
        statistic, degrees = oracles.chi_square(counts, probabilities / probabilities.sum())
        return statistic <= oracles.chi_square_bound(degrees, ODDS)

    assert fits(np.exp(-np.abs(values) / 2.5))
    for wrong in (2.5 * 1.03, 2.5 / 1.03):
        assert not fits(np.exp(-np.abs(values) / wrong))
    cdf = stats.laplace(scale=2.5).cdf
    assert not fits(cdf(values + 0.5) - cdf(values - 0.5))


# ------------------------------------------------------------------ a batch's draws


def _draws(
    key: RunKey = KEY, run: str = 'run', batch: str = '0000-000001', **settings: object
) -> randomness.BatchDraws:
    defaults = {'max_private_tokens': 5, 'max_batch_tokens': 9, 'threshold_noise_scale': 0.5,
        'batch_size': 4, 'levels': 4}  # fmt: skip
    return randomness.batch_draws(key, run, batch, **{**defaults, **settings})


def test_draws_are_a_function_of_identity_alone() -> None:
    first = _draws()
    _draws(batch='0000-000002')  # the order of calls does not matter
    again = _draws(RunKey(SECRET))
    for a, b in zip(vars(first).values(), vars(again).values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_word_is_shared_between_batches_runs_keys_or_purposes() -> None:
    """2^64 words: a chance collision among these some thousand has odds below 1e-12."""
    draws = [_draws(), _draws(batch='0000-000002'), _draws(run='other'), _draws(RunKey(SECRET[::-1]))]
    draws += [_draws(run='run0', batch='000-000001'), _draws(run='', batch='run0000-000001')]
    words = np.concatenate([d.token_words.ravel() for d in draws])
    assert len(np.unique(words)) == len(words)
    noise = np.concatenate([np.concatenate([2 * d.threshold_noise, d.distance_noise]) for d in draws])
    assert len(np.unique(noise)) == len(noise)
    purposes = [KEY.words(p, b'run', b'0000-000001', count=200) for p in ('threshold', 'distance', 'token')]
    assert len(np.unique(np.concatenate(purposes))) == 600


def test_threshold_gets_sigma_and_the_distance_twice_that() -> None:
    """Kolmogorov-Smirnov at odds 1e-6; each other's scale fails it."""
    draws = _draws(max_private_tokens=40_000, max_batch_tokens=40_000, threshold_noise_scale=0.3, levels=1)
    for quanta, scale, wrong in ((draws.threshold_noise, 0.3, 0.6), (draws.distance_noise, 0.6, 0.3)):
        noise = quanta / (4 * 2**24)  # s = 4
        assert stats.kstest(noise, stats.laplace(scale=scale).cdf).pvalue > ODDS
        assert stats.kstest(noise, stats.laplace(scale=wrong).cdf).pvalue < ODDS
    correlation = stats.pearsonr(draws.threshold_noise[:40_000], draws.distance_noise)
    assert correlation.pvalue > ODDS


def test_noise_is_zero_without_the_sparse_vector_and_the_tokens_stay() -> None:
    without = _draws(threshold_noise_scale=None)
    assert not without.threshold_noise.any() and not without.distance_noise.any()
    np.testing.assert_array_equal(without.token_words, _draws().token_words)
