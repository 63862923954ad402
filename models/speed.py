"""The speed of this process at decoding and training, measured while a run does it anyway.

A plan of a later run takes it from there (`pipeline/methods/estimate.py`). Seconds are of one token, whatever
text it is of: they say nothing of how many records there are, or of how long these are.
"""

import statistics
from typing import Literal

Work = Literal['decoding', 'training']

_seconds: dict[Work, list[float]] = {}


def forget() -> None:
    """Begins anew."""
    _seconds.clear()


def note(work: Work, tokens: int, seconds: float) -> None:
    """Notes a piece of work.

    Args:
        work: 'decoding' or 'training'.
        tokens: Tokens of all rows together; a piece of none is left out.
        seconds: Its duration.
    """
    if tokens:
        _seconds.setdefault(work, []).append(seconds / tokens)


def seconds_of_token() -> dict[Work, float]:
    """Median over the pieces of each kind of work, in two digits.

    The first piece is left out: it waits for the compiler.
    """
    return {
        work: float(f'{statistics.median(pieces[1:]):.2g}')
        for work, pieces in _seconds.items()
        if len(pieces) > 1
    }
