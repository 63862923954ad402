"""Behind `dp-corpus centers`: reads a public corpus, embeds it and fits centres.

On one machine and without Beam's runners: centres are fitted once. A run finds the nearest centres of its
records in parallel (`transforms.cluster`).
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

from etils import epy

from models.clustering import centers, embedder
from models.clustering.centers import Centers, ClusterSettings
from models.records import Record

# Errors of the request come before scikit-learn and Beam are loaded.
with epy.lazy_imports():
    from transforms import read


def read_texts(pattern: str, fields: read.RecordFields) -> list[str]:
    """Texts of all well-formed rows, in the order of files and rows."""
    rules = read.RecordRules(fields=fields)
    files = read.check_input(pattern, rules.fields)
    rows = (row for file in files for row in read.read_place(file.path, rules))
    texts = [row.text for row in rows if isinstance(row, Record)]
    if not texts:
        raise ValueError(
            f'Expected texts in input={pattern!r}, got none in text_field={fields.text!r}. '
            'Check the column and the format.'
        )
    return texts


def check_folder(folder: pathlib.Path) -> None:
    """Checks what `make_centers` would refuse, before a corpus is read."""
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(
            f'Expected a new folder, got output={str(folder)!r}, which holds files. Choose another --output.'
        )


def make_centers(
    texts: Sequence[str], folder: pathlib.Path, *, settings: ClusterSettings, count: int, seed: int
) -> Centers:
    """Fits centres of a public corpus and writes them into a new folder.

    Centres for `tfidf` get an embedder of their own, fitted on the same texts; every other embedder is one
    that was made before. The `centers` of `settings` are not read.
    """
    check_folder(folder)
    if settings.embedder == 'tfidf':
        fitted = embedder.TfidfEmbedder.fit(
            texts,
            max_terms=centers.MAX_TERMS,
            min_texts=centers.MIN_TEXTS,
            dimensions=centers.DIMENSIONS,
            seed=seed,
        )
        fitted.write(folder)
        # The file rounds to float16, so it is read back.
        made: embedder.Embedder = embedder.TfidfEmbedder.read(folder)
    else:
        made = settings.load_embedder()
    fitted_centers = centers.fit_centers(texts, made, count=count, seed=seed)
    fitted_centers.write(folder)
    return fitted_centers
