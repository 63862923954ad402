"""The real texts that a corpus is compared with, and samples of equal size of both."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Iterator

import numpy as np
import threadpoolctl

from pipeline.evaluation.measure import NotDefined, Setting
from pipeline.evaluation.sources import Sources, Texts

# Share of the real texts without a word that the embedder knows: their vectors are all zero.
MAX_UNKNOWN = 0.1


def real_texts_if_any(sources: Sources) -> Texts | None:
    """Held-out real texts, else the records, else None."""
    for real in (sources.test, sources.records):
        if real is not None and len(real):
            return real
    return None


def real_texts(sources: Sources) -> Texts:
    """Held-out real texts, else the records.

    Raises:
        NotDefined: There are neither.
    """
    real = real_texts_if_any(sources)
    if real is None:
        raise NotDefined('It compares with real texts. Give --test, or --records.')
    return real


def ceiling_texts(sources: Sources, needed: int) -> Texts | None:
    """The records, if there are held-out texts too: their score against those is what real text reaches."""
    records = sources.records
    if sources.test is None or not len(sources.test) or records is None or len(records) < needed:
        return None
    return records


def equal_size(corpus: Texts, real: Texts, *, least: int, most: int) -> int:
    """The number of texts of each that are compared.

    Raises:
        NotDefined: One has fewer than `least`.
    """
    size = min(len(corpus), len(real))
    if size < least:
        raise NotDefined(
            f'It needs {least} or more texts on each side, got corpus={len(corpus)}, {real.name}={len(real)}.'
        )
    return min(size, most)


def check_known(sources: Sources, source: Texts) -> None:
    """Checks that the embedder knows the language of the texts.

    Raises:
        NotDefined: More than `MAX_UNKNOWN` of the texts have no word that the embedder knows, as with
            TF-IDF of one language on texts in another.
    """
    unknown = 1 - sources.vectors(source).any(axis=1).mean()
    if unknown > MAX_UNKNOWN:
        raise NotDefined(
            f'The embedder {sources.embedder.name!r} knows no word of {unknown:.0%} of {source.name}, more '
            f'than {MAX_UNKNOWN:.0%}: their vectors would be the same. Give an embedder of their language.'
        )


def drawn(generator: np.random.Generator, total: int, size: int) -> np.ndarray:
    """Indices of `size` of `total` texts, `[size]` int64, in ascending order and without replacement."""
    return np.sort(generator.choice(total, size, replace=False))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limits libraries to one thread: sums then have one order, so that findings repeat exactly.

    Small sums are faster, too. On a busy machine, threads that wait for each other at every step of k-means
    cost 30 times the work.
    """
    with threadpoolctl.threadpool_limits(1):
        yield


def embedder_settings(sources: Sources) -> dict[str, Setting]:
    """The embedder that made the vectors."""
    embedder = sources.embedder
    model = {} if embedder.model is None else {'embedder_model': embedder.model}
    return {'embedder': embedder.name, **model, 'embedder_fingerprint': embedder.fingerprint}


def library_versions(*names: str) -> dict[str, Setting]:
    """Versions of installed packages, each by its name."""
    return {name: importlib.metadata.version(name) for name in names}
