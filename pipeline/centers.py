"""Behind `dp-corpus centers` and `dp-corpus clusters`: reads a corpus, embeds it and fits centres.

On one machine and without Beam's runners: centres are fitted once, and comparisons are
for research. A run finds the nearest centres of its records in parallel (`transforms.cluster`).
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from etils import epy

from models.clustering import centers, dp_kmeans, embedder
from models.clustering.centers import Centers, ClusterSettings
from models.privacy.grid import NoiseSource
from models.privacy.randomness import RunKey
from models.records import Record
from pipeline.ledger import centers_charge
from pipeline.settings.input import Quoting, check_delimiter, delimiter_of
from pipeline.settings.output import check_run_id

# Errors of the request come before scikit-learn and Beam are loaded.
with epy.lazy_imports():
    from models.bundled import fit_centers
    from transforms import read

_TEXTS_AT_ONCE = 4096


def text_fields(
    text_field: str,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
    quoting: Quoting = 'double',
) -> read.RecordFields:
    """Fields of a corpus of texts alone, from the command line's values.

    Args:
        text_field: Column of the text.
        delimiter: Between columns of CSV files, as a flag gives it; None where each header line shows it.
        encoding: Of files of text; None where each shows it.
        quoting: Of CSV files.

    Raises:
        ValueError: The delimiter is none.
    """
    check_delimiter(delimiter, quoting)
    dialect = read.Dialect(delimiter=delimiter_of(delimiter), encoding=encoding, quoting=quoting)
    return read.RecordFields(text=text_field, dialect=dialect)


def read_texts(pattern: str, fields: read.RecordFields) -> list[str]:
    """Texts of all well-formed rows, in the order of files and rows.

    Args:
        pattern: Comma-separated paths and globs.
        fields: `text_fields`.

    Raises:
        FileNotFoundError: A pattern names no file.
        ValueError: The column is missing, or no row is well formed.
    """
    rules = read.RecordRules(fields=fields)
    files = read.check_input(pattern, rules.fields)
    found = [record.text for file in files for record in _records(file.path, rules)]
    if not found:
        raise ValueError(
            f'Expected texts in input={pattern!r}, got none in text_field={fields.text!r}. '
            'Check the column and the format.'
        )
    return found


def _records(path: str, rules: read.RecordRules) -> Iterator[Record]:
    for row in read.read_place(path, rules):
        if isinstance(row, Record):
            yield row


def charge_fit(
    pattern: str,
    folder: pathlib.Path,
    *,
    dataset: str,
    ledger: str,
    run_id: str | None,
    fields: read.RecordFields,
    settings: ClusterSettings,
    count: int,
    rho: float,
    seed: int,
) -> centers_charge.Reservation:
    """Charges a fit of private centres to its dataset, before a record is read.

    Files, columns and the embedder are checked before the charge.

    Args:
        pattern: Files of the records.
        folder: Where the artefact goes; its name is the default name of the charge.
        dataset: Name under which the ledger keeps the records' budget.
        ledger: Path or URL of the ledger.
        run_id: Name of the charge; None for that of the folder.
        fields: `text_fields`.
        settings: Of the embedder.
        count: Centres.
        rho: zCDP cost.
        seed: Public seed.

    Raises:
        ValueError: There is a charge of this name, or the request cannot be carried out.
        BudgetExceeded: It costs more than is left.
        ConnectionError: The ledger is not there.
    """
    from pipeline.ledger.ledger import Ledger

    name = run_id or folder.absolute().name
    check_run_id(name)
    dp_kmeans.split_rho(rho)
    if count < 1:
        raise ValueError(f'Expected count >= 1, got count={count}. Ask for at least one centre.')
    opened = Ledger.open(ledger)
    read.check_input(pattern, fields)
    made = settings.load_embedder()
    return centers_charge.reserve(
        opened,
        dataset=dataset,
        run_id=name,
        rho=rho,
        settings={'embedder': made.fingerprint, 'count': count, 'rho': rho, 'seed': seed},
    )


def settle_fit(reservation: centers_charge.Reservation, ledger: str) -> None:
    """Notes in the ledger that the centres are written; warns where it cannot be reached."""
    from pipeline.ledger.ledger import Ledger

    try:
        Ledger.open(ledger).settle(reservation.dataset, reservation.run_id)
    except ConnectionError as error:
        warnings.warn(
            f'Expected the ledger to note that run_id={reservation.run_id!r} is finished, got: {error} The '
            'centres are written and paid for.',
            stacklevel=2,
        )


def check_fit(
    folder: pathlib.Path,
    *,
    source: centers.Source,
    rho: float | None,
    dataset: str | None = None,
    ledger: str | None = None,
    run_id: str | None = None,
) -> None:
    """Checks what `make_centers` would refuse, before a corpus is read.

    Raises:
        FileExistsError: The folder holds something.
        ValueError: `rho` or the ledger does not go with the source.
    """
    if (dataset is None) != (ledger is None) or (run_id is not None and ledger is None):
        raise ValueError(
            f'Expected dataset and ledger together or not at all, got dataset={dataset!r}, '
            f'ledger={"given" if ledger else None}, run_id={run_id!r}. The ledger charges the centres to the '
            'dataset.'
        )
    if ledger is not None and source != 'dp-k-means':
        raise ValueError(
            f"Expected a ledger with source='dp-k-means' alone, got source={source!r}. Public centres are "
            'free, and k-means on private texts has no price: leave --dataset and --ledger out.'
        )
    if (rho is not None) != (source == 'dp-k-means'):
        raise ValueError(
            f"Expected rho with source='dp-k-means' and with no other, got rho={rho!r}, source={source!r}. "
            'Public centres are free, and k-means on private texts has no price.'
        )
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(
            f'Expected a new folder, got output={str(folder)!r}, which holds files. Choose another --output.'
        )


def make_centers(
    texts: Sequence[str],
    folder: pathlib.Path,
    *,
    settings: ClusterSettings,
    source: centers.Source,
    count: int,
    rho: float | None,
    seed: int,
    reservation: centers_charge.Reservation | None = None,
) -> Centers:
    """Fits centres and writes them into a new folder.

    Public centres for `tfidf` get an embedder of their own, fitted on the same texts;
    on private texts every embedder is one that was made before.

    Args:
        texts: The corpus: public, unless `source` says otherwise.
        folder: Where the artefact goes; must not exist or be empty.
        settings: Of the embedder; its `centers` are not read.
        source: 'public'; 'k-means' for k-means on private texts, without privacy; or
            'dp-k-means' for the same under `rho`-zCDP per text.
        count: Centres.
        rho: zCDP cost, for 'dp-k-means' alone.
        seed: Public seed.
        reservation: The charge that pays for them; None where they are charged to no ledger.

    Raises:
        FileExistsError: The folder holds something.
        ValueError: A setting is out of range, or `rho` does not go with the source.
    """
    check_fit(folder, source=source, rho=rho)
    if settings.embedder == 'tfidf' and source == 'public':
        fitted = embedder.TfidfEmbedder.fit(
            texts,
            max_terms=fit_centers.MAX_TERMS,
            min_texts=fit_centers.MIN_TEXTS,
            dimensions=fit_centers.DIMENSIONS,
            seed=seed,
        )
        fitted.write(folder)
        # As it is read back: float16 rounds.
        made: embedder.Embedder = embedder.TfidfEmbedder.read(folder)
    else:
        made = settings.load_embedder()
    if source == 'dp-k-means':
        assert rho is not None  # above
        # A key of this fit alone, which nobody keeps: each fit is a release of its own, and charged anew. The
        # key of the reservation would not do: it is published beside the centres.
        noise = NoiseSource(RunKey.new(), ())
        vectors = dp_kmeans.fit_private_centers(
            embed_all(made, texts), count=count, rho=rho, seed=seed, source=noise
        )
        found = Centers(
            vectors=vectors,
            embedder=made.name,
            embedder_fingerprint=made.fingerprint,
            corpus_fingerprint=None,
            corpus_texts=None,
            seed=seed,
            source=source,
            rho=rho,
            versions=(('numpy', importlib.metadata.version('numpy')),),
        )
    else:
        found = centers.fit_centers(texts, made, count=count, seed=seed, source=source)
    if reservation is not None:
        # First: centres without it would be paid for again.
        folder.mkdir(parents=True, exist_ok=True)
        reservation.of(found).write(folder)
    found.write(folder)
    return found


def embed_all(made: embedder.Embedder, texts: Sequence[str]) -> np.ndarray:
    """Embeddings of all texts, `[n, d]` float32, block by block."""
    blocks = [made.embed(texts[at : at + _TEXTS_AT_ONCE]) for at in range(0, len(texts), _TEXTS_AT_ONCE)]
    return np.concatenate(blocks)
