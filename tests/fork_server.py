"""Processes that start with their libraries loaded: forked from a server that has imported them.

TensorFlow alone takes a quarter of a minute. No backend of JAX starts at import, so a fork is safe.
"""

import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing import forkserver

CONTEXT = multiprocessing.get_context('forkserver')


@contextlib.contextmanager
def preloaded(*modules: str) -> Iterator[None]:
    """Processes of `CONTEXT` have these modules meanwhile.

    A process of tests has one server, which imports when it starts: one of another file's is ended.
    """
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    CONTEXT.set_forkserver_preload([*modules, 'pytest'])
    try:
        yield
    finally:
        forkserver._forkserver._stop()  # type: ignore[attr-defined]
