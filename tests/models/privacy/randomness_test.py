"""Keys, keyed hashes and draws: secret, separated, exact, and the same on every retry.

Keys are fixed, so every test is deterministic; the odds stated are those of a random key.
"""

import copy
import hashlib
import os
import pathlib
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from models.privacy import randomness
from models.privacy.randomness import RunKey

SECRET = bytes(range(32))
KEY = RunKey(SECRET)
ODDS = 1e-6  # false alarms of a statistical test


# -------------------------------------------------------------------- the key


def test_the_key_has_no_text_form() -> None:
    for shown in (repr(KEY), str(KEY), f'{KEY}', repr([KEY]), repr({'key': KEY})):
        assert 'RunKey(secret)' in shown
        assert SECRET.hex() not in shown and repr(SECRET)[2:-1] not in shown
    assert not hasattr(KEY, '__dict__')


@pytest.mark.parametrize('protocol', range(pickle.HIGHEST_PROTOCOL + 1))
def test_the_key_is_never_pickled(protocol: int) -> None:
    with pytest.raises(TypeError, match='never pickled'):
        pickle.dumps(KEY, protocol)
    with pytest.raises(TypeError, match='never pickled'):
        pickle.dumps({'nested': [KEY]}, protocol)


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


@given(st.lists(st.binary(max_size=6), max_size=4), st.lists(st.binary(max_size=6), max_size=4))
def test_hash_separates_parts(a: list[bytes], b: list[bytes]) -> None:
    assert (KEY.hash('test', *a) == KEY.hash('test', *b)) == (a == b)


def test_hash_separates_purposes_keys_and_sizes() -> None:
    other = RunKey(SECRET[::-1])
    found = {
        KEY.hash('a', b'x'),
        KEY.hash('b', b'x'),
        other.hash('a', b'x'),
        KEY.hash('a', b'x', size=64)[:16],
    }
    assert len(found) == 4
    with pytest.raises(ValueError):
        KEY.hash('a purpose too long for it', b'x')


# ------------------------------------------------------------------------- noise

EXTREMES = np.array([0, 1, 2**10, 2**11, 2**63 - 1, 2**63, 2**64 - 2**11, 2**64 - 1], np.uint64)


def test_laplace_is_finite_and_odd_at_extreme_words() -> None:
    noise = randomness.laplace(EXTREMES, 2.0)
    assert np.isfinite(noise).all()
    words = KEY.words('laplace', count=1000)
    flipped = words ^ np.uint64(2**63)
    assert (randomness.laplace(words, 2.0) == -randomness.laplace(flipped, 2.0)).all()
    # The largest noise is that of the smallest magnitude, 2^-53.
    assert np.abs(noise).max() == pytest.approx(2 * 53 * np.log(2))
    assert (randomness.laplace(words, 0.0) == 0).all()


@pytest.mark.parametrize('scale', [0.1, 1.0, 7.0])
def test_laplace_has_its_distribution_and_no_other_scale(scale: float) -> None:
    """Kolmogorov-Smirnov at odds 1e-6 of a false alarm; 10 % in the scale or 0.05 in the place fail it."""
    noise = randomness.laplace(KEY.words('laplace', str(scale).encode(), count=100_000), scale)
    assert stats.kstest(noise, stats.laplace(scale=scale).cdf).pvalue > ODDS
    for wrong in (
        stats.laplace(scale=1.1 * scale),
        stats.laplace(scale=scale / 1.1),
        stats.laplace(0.05 * scale, scale),
    ):
        assert stats.kstest(noise, wrong.cdf).pvalue < ODDS


def test_laplace_is_right_in_the_tail() -> None:
    """Past 8 scales lie e^-8 of the draws, half on either side; binomial at odds 1e-6."""
    noise = randomness.laplace(KEY.words('laplace', b'tail', count=1_000_000), 1.0)
    for count in ((noise > 8).sum(), (noise < -8).sum()):
        assert stats.binomtest(int(count), 1_000_000, np.exp(-8) / 2).pvalue > ODDS


def test_every_bit_of_the_words_is_fair() -> None:
    """64 counts of 1e5 fair bits; binomial at odds 1e-6 for all together."""
    words = KEY.words('bits', count=100_000)
    for bit in range(64):
        ones = int(((words >> np.uint64(bit)) & np.uint64(1)).sum())
        assert stats.binomtest(ones, 100_000, 0.5).pvalue > ODDS / 64


# ------------------------------------------------------------------ a batch's draws


def _draws(
    key: RunKey = KEY, run: str = 'run', batch: str = '0000-000001', **settings: object
) -> randomness.BatchDraws:
    defaults = {'max_private_tokens': 5, 'max_batch_tokens': 9, 'threshold_noise_scale': 0.5, 'levels': 4}
    return randomness.batch_draws(key, run, batch, **{**defaults, **settings})


def test_draws_have_the_shapes_that_decoding_reads() -> None:
    draws = _draws()
    assert draws.threshold_noise.shape == (6,) and draws.threshold_noise.dtype == np.float64
    assert draws.distance_noise.shape == (9,) and draws.distance_noise.dtype == np.float64
    assert draws.token_words.shape == (9, 4) and draws.token_words.dtype == np.uint64


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
    for noise, scale, wrong in ((draws.threshold_noise, 0.3, 0.6), (draws.distance_noise, 0.6, 0.3)):
        assert stats.kstest(noise, stats.laplace(scale=scale).cdf).pvalue > ODDS
        assert stats.kstest(noise, stats.laplace(scale=wrong).cdf).pvalue < ODDS
    correlation = stats.pearsonr(draws.threshold_noise[:40_000], draws.distance_noise)
    assert correlation.pvalue > ODDS


def test_noise_is_zero_without_the_sparse_vector_and_the_tokens_stay() -> None:
    without = _draws(threshold_noise_scale=None)
    assert not without.threshold_noise.any() and not without.distance_noise.any()
    np.testing.assert_array_equal(without.token_words, _draws().token_words)
