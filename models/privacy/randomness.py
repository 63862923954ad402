"""Run key -> keyed hashes and batch draws. A draw is a function of identity alone.

A run owns one secret 256-bit key. All randomness of the run is derived from it by name, never
from the clock, a position, or the order of calls. So a bundle that a runner repeats draws the
same noise and is not a second release (METHOD 7).

Keyed hashes are BLAKE2b with a key. Draws are the output of SHAKE-256 over a keyed
hash, an extendable-output function with 256-bit strength; JAX's own generators hold
at most 128 bits of key, which is why the device receives finished random words.
"""

import dataclasses
import decimal
import fractions
import functools
import hashlib
import itertools
import math
import os
import pathlib
import secrets
import stat
from collections.abc import Callable, Iterator

import numpy as np

from models.privacy import sparse_vector

KEY_BYTES = 32
HASH_BYTES = 16
_STREAM_BYTES = 8192

# (parts of a name, count) to so many uniform 64-bit words, such as `RunKey.words` of one purpose.
Words = Callable[..., np.ndarray]


class RunKey:
    """The secret of one run. Has no text form, so that no log can show it."""

    __slots__ = ('_secret',)

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(
                f'Expected a run key of {KEY_BYTES} bytes, got length={len(secret)}. '
                'Start a new run in a fresh work directory.'
            )
        self._secret = secret

    def __repr__(self) -> str:
        return 'RunKey(secret)'

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError('A RunKey is never pickled: workers read it from the work directory.')

    @classmethod
    def new(cls) -> 'RunKey':
        """Draws a key from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def read(cls, path: pathlib.Path) -> 'RunKey':
        """Reads a key file; refuses one that others than its owner may read.

        Raises:
            PermissionError: The file's mode grants group or others any access.
        """
        if os.name == 'posix' and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise PermissionError(
                f'Expected the run key to be readable by its owner alone, got path={str(path)!r}. '
                'Restrict it with chmod 600, or start a new run if others could have read it.'
            )
        return cls(path.read_bytes())

    def write(self, path: pathlib.Path) -> None:
        """Writes the key with owner-only access; never replaces a key.

        Raises:
            FileExistsError: There is a key already.
        """
        temporary = path.with_name(f'{path.name}.{secrets.token_hex(8)}.tmp')
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, 'wb') as file:
                file.write(self._secret)
                file.flush()
                os.fsync(file.fileno())  # a machine that goes down leaves no empty key
            # A link appears whole or not at all, and never over a key that is there.
            os.link(temporary, path)
        finally:
            temporary.unlink()

    def to_bytes(self) -> bytes:
        """The secret itself, for the work directory alone."""
        return self._secret

    def commitment(self, run_id: str) -> str:
        """A public value that identifies the key but does not reveal it: 32 hexadecimal digits.

        A ledger keeps it. A run that starts again under its old name but with another key would draw
        other noise, which is a second release.
        """
        return self.hash('commitment', run_id.encode()).hex()

    def hash(self, purpose: str, *parts: bytes, size: int = HASH_BYTES) -> bytes:
        """Keyed hash of `parts` under a purpose.

        Every part is preceded by its length, so that ('ab', 'c') and ('a', 'bc')
        differ, and the purpose separates uses of the one key.

        Args:
            purpose: At most 16 ASCII characters that name the use.
            *parts: What identifies the thing.
            size: Bytes to return, at most 64.

        Returns:
            `size` bytes, uniform to anyone without the key.
        """
        digest = hashlib.blake2b(digest_size=size, key=self._secret, person=purpose.encode('ascii'))
        for part in parts:
            digest.update(len(part).to_bytes(8, 'little'))
            digest.update(part)
        return digest.digest()

    def words(self, purpose: str, *parts: bytes, count: int) -> np.ndarray:
        """`count` uniform 64-bit words, a function of the key, purpose and parts."""
        seed = self.hash(purpose, *parts, size=64)
        return np.frombuffer(hashlib.shake_256(seed).digest(8 * count), dtype='<u8')

    def stream(self, purpose: str, *parts: bytes) -> Iterator[int]:
        """Uniform 64-bit words without end, a function of the key, purpose and parts."""
        seed = self.hash(purpose, *parts, size=64)
        for block in itertools.count():
            # A length other than that of the seed of `words`: no input of SHAKE is that of a draw from there.
            digest = hashlib.shake_256(seed + block.to_bytes(8, 'little')).digest(_STREAM_BYTES)
            yield from np.frombuffer(digest, dtype='<u8').tolist()


def discrete_laplace(scale: fractions.Fraction, count: int, words: Words) -> np.ndarray:
    """`count` draws N with P[N = k] ∝ e^{−|k|/scale}, exactly, `[count]` int64.

    N is the difference of two geometric numbers G, P[G = g] ∝ e^{−g/scale}. Binary digits of such a number
    are independent: digit j is 1 with probability 1/(1 + e^{2^j/scale}). Each is drawn by as many random
    bits as it takes to decide. Digits end where 2^j reaches 1024 scales, past which lies e^-1024 of G.

    Args:
        scale: Above 0, at most 2^43.
        count: Number of draws.
        words: Uniform 64-bit words, a function of what it is given: parts of a name, and `count`.
    """
    odds = _digit_odds(scale)
    drawn = words(count=count * 2 * len(odds)).reshape(count, 2, len(odds))
    digits = drawn < odds
    # One of 2^64 words is undecided. Further words are named after the digit.
    for place in np.argwhere(drawn == odds):
        further = functools.partial(words, np.array(place, '<i8').tobytes())
        digits[tuple(place)] = _is_one(scale, int(place[-1]), further)
    whole = digits @ (np.int64(1) << np.arange(len(odds), dtype=np.int64))
    return whole[:, 0] - whole[:, 1]


def _is_one(scale: fractions.Fraction, digit: int, words: Words) -> bool:
    """True if a digit is 1 whose first 64 bits are those of its probability: the bits after them decide."""
    for more in itertools.count(1):
        drawn = int.from_bytes(words(count=more).astype('>u8').tobytes())
        bound = _leading_bits(fractions.Fraction(2**digit) / scale, 64 * (more + 1)) % 2 ** (64 * more)
        if drawn != bound:
            break
    return drawn < bound


@functools.lru_cache(maxsize=16)
def _digit_odds(scale: fractions.Fraction) -> np.ndarray:
    """The first 64 bits of the probability that each binary digit is 1, lowest digit first, uint64."""
    digits = max(1, math.ceil(1024 * scale).bit_length())
    powers = (fractions.Fraction(2**digit) / scale for digit in range(digits))
    return np.array([_leading_bits(power, 64) for power in powers], np.uint64)


def _leading_bits(power: fractions.Fraction, bits: int) -> int:
    """⌊2^bits / (1 + e^power)⌋, exactly, for 0 < power <= 2048."""
    digits = bits // 3 + 24
    while True:
        with decimal.localcontext(decimal.Context(prec=digits)):
            quotient = 2**bits / (1 + (decimal.Decimal(power.numerator) / power.denominator).exp())
            # Four operations, of which e^power multiplies the first one's error by power.
            lost = quotient * decimal.Decimal(10) ** (8 - digits)
            low, high = math.floor(quotient - lost), math.floor(quotient + lost)
        if low == high:
            return low
        digits *= 2


def normal(words: np.ndarray) -> np.ndarray:
    """N(0, 1) by the exact inverse distribution function, in float64, up to 8.3 deviations.

    Args:
        words: Uniform 64-bit words; the top bit is the sign, the rest the magnitude.

    Returns:
        float64 array of the shape of `words`.
    """
    from scipy import special

    sign = np.where(words >> np.uint64(63), 1.0, -1.0)
    # 53 bits below the sign bit, centred, as the probability of the lower tail: at most a half.
    tail = (((words & np.uint64(2**63 - 1)) >> np.uint64(10)).astype(np.float64) + 0.5) * 2.0**-54
    return -sign * special.ndtri(tail)


@dataclasses.dataclass(frozen=True)
class BatchDraws:
    """All randomness of one batch's token stream, drawn before it starts.

    Attributes:
        threshold_noise: `[r + 1]` int64, in quanta of the sparse-vector test: one for the first
            threshold, one after each private token.
        distance_noise: `[max_batch_tokens]` int64, in the same.
        token_words: `[max_batch_tokens, levels]` uint64, one word for each level of
            the sampling tree.
    """

    threshold_noise: np.ndarray
    distance_noise: np.ndarray
    token_words: np.ndarray


def batch_draws(
    key: RunKey,
    run_id: str,
    batch_id: str,
    *,
    max_private_tokens: int,
    max_batch_tokens: int,
    threshold_noise_scale: float | None,
    batch_size: int,
    levels: int,
) -> BatchDraws:
    """Draws for one batch, from (run key, run id, batch id) and nothing else.

    Args:
        key: The run's secret.
        run_id: The public name of the run.
        batch_id: The public name of the planned batch.
        max_private_tokens: Cap r.
        max_batch_tokens: Cap on all tokens of the batch.
        threshold_noise_scale: σ: thresholds get Laplace(σ), distances Laplace(2σ)
            (PP Algorithm 1, lines 4, 11 and 16); None gives zeros that nothing reads.
        batch_size: s, of which a distance is a multiple of 1/s.
        levels: Depth of the sampling tree, `sampling.tree_levels` of a step's candidates.
    """
    identity = (run_id.encode(), batch_id.encode())
    counts = {'threshold': max_private_tokens + 1, 'distance': max_batch_tokens}
    if threshold_noise_scale is None:
        threshold, distance = (np.zeros(count, np.int64) for count in counts.values())
    else:
        scales = sparse_vector.noise_scales(threshold_noise_scale, batch_size)
        threshold, distance = (
            discrete_laplace(scale, count, functools.partial(key.words, purpose, *identity))
            for scale, (purpose, count) in zip(scales, counts.items(), strict=True)
        )
    return BatchDraws(
        threshold_noise=threshold,
        distance_noise=distance,
        token_words=key.words('token', *identity, count=max_batch_tokens * levels).reshape(
            max_batch_tokens, levels
        ),
    )
