"""The speed of this process, and what its time went to, measured while a run does its work anyway.

A plan of a later run takes the speed from there (`pipeline/methods/estimate.py`): seconds of one token,
whatever text it is of, say nothing of how many records there are, or of how long these are. What the time
went to is the curator's (METHOD 8): it grows with the records, and so does what was compiled.
"""

import contextlib
import resource
import statistics
import sys
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from models.privacy.report import WorkerTime

Work = Literal['decoding', 'training']
# Activities that are measured beside compiling; the rest of the time is waiting.
Activity = Literal['loading', 'training', 'embedding', 'decoding']

# Seconds of a token in each piece of work, and tokens of all pieces.
_seconds: dict[Work, list[float]] = {}
_tokens: dict[Work, int] = {}
_spent: dict[str, float] = {}
_begun = time.monotonic()
_name = uuid.uuid4().hex
_listens = False

# A program is lowered, and then compiled or read from where an earlier process kept it.
_COMPILING = ('/jax/core/compile/jaxpr_to_mlir_module_duration', '/jax/core/compile/backend_compile_duration')


def forget() -> None:
    """Begins anew: a run in this process."""
    global _begun, _name
    for kept in (_seconds, _tokens, _spent):
        kept.clear()
    _begun, _name = time.monotonic(), uuid.uuid4().hex


def note(work: Work, tokens: int, seconds: float) -> None:
    """Notes a piece of work.

    Args:
        work: 'decoding' or 'training'.
        tokens: Tokens of all rows together; a piece of none is left out.
        seconds: Its duration.
    """
    if tokens:
        _seconds.setdefault(work, []).append(seconds / tokens)
        _tokens[work] = _tokens.get(work, 0) + tokens


def seconds_of_token() -> dict[Work, float]:
    """Median over the pieces of each kind of work, in two digits.

    The first piece is left out: it waits for the compiler.
    """
    return {
        work: float(f'{statistics.median(pieces[1:]):.2g}')
        for work, pieces in _seconds.items()
        if len(pieces) > 1
    }


@contextlib.contextmanager
def measured(activity: Activity) -> Iterator[None]:
    """Adds the seconds of a block to an activity, without those that went to compiling."""
    _listen()
    started, before = time.monotonic(), _spent.get('compiling', 0.0)
    try:
        yield
    finally:
        _listen()  # loading may have brought JAX
        compiling = _spent.get('compiling', 0.0) - before
        _add(activity, time.monotonic() - started - compiling)


def _listen() -> None:
    """Counts the seconds of compiling, once there is a JAX in this process that may compile."""
    global _listens
    if 'jax' in sys.modules and not _listens:
        import jax

        jax.monitoring.register_event_duration_secs_listener(_heard)
        _listens = True


def _heard(event: str, duration_secs: float, **_: Any) -> None:
    if event in _COMPILING:
        _add('compiling', duration_secs)
    if event == _COMPILING[-1]:
        _add('programs', 1)


def _add(name: str, amount: float) -> None:
    _spent[name] = _spent.get(name, 0.0) + amount


def worker_name() -> str:
    """A name of this process, or of its run, that no other has."""
    return _name


def worker_time() -> 'WorkerTime':
    """Time of this process by activity, since it began or since `forget`."""
    # Here: decoders note their speed, and need no report.
    from models.privacy.report import WorkerTime

    kinds = ('loading', 'compiling', 'training', 'embedding', 'decoding')
    spent = {f'{kind}_seconds': max(0.0, _spent.get(kind, 0.0)) for kind in kinds}
    elapsed = time.monotonic() - _begun
    name, count, peak = _devices()
    return WorkerTime(
        device=name,
        devices=count,
        peak_bytes=peak,
        # Threads that work at the same time leave none.
        waiting_seconds=max(0.0, elapsed - sum(spent.values())),
        training_tokens=_tokens.get('training', 0),
        decoding_tokens=_tokens.get('decoding', 0),
        programs=int(_spent.get('programs', 0)),
        elapsed_seconds=elapsed,
        **spent,
    )


def _devices() -> tuple[str, int, int]:
    """Kind and number of the devices, and most bytes that one of them, or a process on a processor, held."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == 'darwin' else 1024)
    if 'jax' not in sys.modules:
        return 'processor', 1, host
    import jax

    local = jax.local_devices()
    if local[0].platform == 'cpu':
        return 'processor', 1, host
    peaks = [(each.memory_stats() or {}).get('peak_bytes_in_use', 0) for each in local]
    return str(local[0].device_kind), len(local), max(peaks)
