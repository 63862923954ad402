"""The slow twin of normal noise in whole numbers: bisection on the normal tail, in 300 binary digits."""

import functools

import mpmath

_CONTEXT = mpmath.mp.clone()
_CONTEXT.prec = 300


@functools.cache
def deviate(word: int, more: tuple[int, ...]) -> mpmath.mpf:
    """The number x >= 0 whose tail is as likely as the words say, or −x.

    The top bit of the first word is the sign; all other bits, and a half behind them, are the probability
    that a standard normal number is larger than x, times 2^256.
    """
    bits = word % 2**63
    for following in more:
        bits = bits * 2**64 + following
    tail = (_CONTEXT.mpf(bits) + _CONTEXT.mpf(1) / 2) / _CONTEXT.mpf(2) ** (64 * (1 + len(more)))
    low, high = _CONTEXT.mpf(0), _CONTEXT.mpf(40)
    for _ in range(280):
        middle = (low + high) / 2
        if _CONTEXT.erfc(middle / _CONTEXT.sqrt(2)) / 2 > tail:
            low = middle
        else:
            high = middle
    return low if word >= 2**63 else -low


def rounded(scale: float, deviate_: mpmath.mpf) -> int:
    """The whole number nearest to `scale` times a number, of two the larger one."""
    return int(_CONTEXT.floor(_CONTEXT.mpf(scale) * deviate_ + _CONTEXT.mpf(1) / 2))
