"""Cluster centres: fitted once, kept as an artefact, and looked up by embeddings (METHOD 3, CL 4.1).

Public centres come from a public corpus and cost nothing. Their fingerprints say which
corpus and which embedder they were fitted with, and another embedder is refused: a
record's cluster is only as public as the centres it is compared with.

A folder of centres holds `centers.json` and `centers.safetensors`, and, where the
TF-IDF embedder was fitted with them, that embedder's two files. The package ships
one, `SHIPPED`; models/bundled/README.md says what it was made of.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from etils import epath
from safetensors import SafetensorError
from safetensors import numpy as safetensors_numpy

from models import bundled, extras
from models.clustering import embedder as embedder_lib
from models.clustering import form
from models.clustering.embedder import Embedder
from models.decoders import family
from models.privacy import intact

SHIPPED = bundled.CENTERS
SCHEMA = 'dp-corpus centers 1'
FILES = ('centers.json', 'centers.safetensors')
# Sizes of a TF-IDF embedder that is fitted with centres: terms, texts of a term at the least, dimensions.
MAX_TERMS, MIN_TEXTS, DIMENSIONS = 16_000, 3, 128

_ROWS_AT_ONCE = 1024


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Centers:
    """K points of an embedding space, and where they come from.

    Attributes:
        vectors: `[K, d]` float32, finite.
        corpus_fingerprint: SHA-256 of the public texts in their order.
        versions: Software that fitted them, as pairs of name and version.
    """

    vectors: np.ndarray = dataclasses.field(repr=False)
    embedder: str
    embedder_fingerprint: str
    corpus_fingerprint: str
    corpus_texts: int
    seed: int
    versions: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        remedy = 'Fit the centres again.'
        vectors = self.vectors
        if vectors.ndim != 2 or not vectors.size or vectors.dtype != np.float32:
            raise ValueError(
                f'Expected vectors [K, d] in float32, got shape={vectors.shape}, dtype={vectors.dtype}. '
                f'{remedy}'
            )
        if not np.isfinite(vectors).all():
            raise ValueError(f'Expected finite vectors, got a component that is not. {remedy}')

    @property
    def count(self) -> int:
        """K, the number of centres."""
        return len(self.vectors)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the centres and all that is known of them, as 64 hexadecimal digits."""
        return embedder_lib.fingerprint_of(self._facts(), self.vectors)

    def _facts(self) -> dict[str, Any]:
        """Everything but the vectors, for JSON."""
        names = [field.name for field in dataclasses.fields(self) if field.name != 'vectors']
        return {name: getattr(self, name) for name in names} | {'versions': dict(self.versions)}

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Writes `centers.json` and `centers.safetensors` into a folder, made if need be."""
        path = epath.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / FILES[1]).write_bytes(safetensors_numpy.save({'vectors': self.vectors}))
        count, dimensions = self.vectors.shape
        document = {'schema': SCHEMA, 'count': count, 'dimensions': dimensions} | self._facts()
        (path / FILES[0]).write_text(json.dumps(document, indent=2) + '\n')

    @classmethod
    @intact.reading(' and '.join(FILES), 'Restore both files from one artefact')
    def read(cls, folder: str | os.PathLike[str]) -> 'Centers':
        """Reads what `write` wrote.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: The files are of another schema, or do not fit one another.
        """
        path = epath.Path(folder)
        missing = [name for name in FILES if not (path / name).exists()]
        if missing:
            raise FileNotFoundError(
                f'Expected centres in folder={str(folder)!r}, got none of files={missing}. '
                'Give a folder that `dp-corpus centers` wrote.'
            )
        document = json.loads((path / FILES[0]).read_text())
        if not isinstance(document, dict) or document.get('schema') != SCHEMA:
            raise ValueError(
                f'Expected schema={SCHEMA!r} in {FILES[0]}, got another. '
                'Fit the centres again with this version.'
            )
        del document['schema']
        shape = document.pop('count'), document.pop('dimensions')
        try:
            vectors = safetensors_numpy.load((path / FILES[1]).read_bytes())['vectors']
        except SafetensorError as error:
            raise ValueError from error  # which `reading` names
        if vectors.shape != shape:
            raise ValueError
        return cls(vectors=vectors, **document | {'versions': tuple(document['versions'].items())})

    def nearest(self, embeddings: np.ndarray, kept: Sequence[int] | None = None) -> np.ndarray:
        """The centre nearest to each embedding in L2; ties go to the smaller index.

        Exact up to the rounding of a distance to float64: a matrix product finds the
        candidates, and those that its rounding leaves open are summed without error.
        So a row's answer is the same whatever the other rows or the machine's kernels.

        Args:
            embeddings: `[n, d]`; a row that is not finite counts as zeros.
            kept: Indices of the centres to choose from; by default all.

        Returns:
            `[n]` int32, indices into all K centres.

        Raises:
            ValueError: The shapes do not fit, or `kept` is empty or not of the centres.
        """
        if embeddings.ndim != 2 or embeddings.shape[1] != self.vectors.shape[1]:
            # The number of rows may be private.
            raise ValueError(
                f'Expected embeddings [n, {self.vectors.shape[1]}], got another shape. '
                'Embed with the embedder of the centres.'
            )
        chosen = np.arange(self.count) if kept is None else np.unique(np.asarray(kept, np.int64))
        if not len(chosen) or chosen[0] < 0 or chosen[-1] >= self.count:
            raise ValueError(
                f'Expected kept to hold indices in [0, {self.count}), got kept={tuple(chosen.tolist())}. '
                'Take them from the clustering of these centres.'
            )
        centers = self.vectors[chosen].astype(np.float64)
        answers = np.empty(len(embeddings), np.int32)
        for first in range(0, len(embeddings), _ROWS_AT_ONCE):
            rows = embeddings[first : first + _ROWS_AT_ONCE].astype(np.float32).astype(np.float64)
            rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
            answers[first : first + len(rows)] = chosen[_nearest_rows(rows, centers)]
        return answers


def _nearest_rows(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Positions in `centers` `[K, d]` of the nearest to each of `rows` `[n, d]`, all float64 of float32."""
    squares = np.square(centers).sum(axis=1)
    scores = squares - 2.0 * (rows @ centers.T)
    longest = math.sqrt(squares.max())
    lengths = np.sqrt(np.square(rows).sum(axis=1))
    # Twice the error of |c|² − 2 x·c in any order of its sums (Higham 2002, eq. 3.5), with room.
    slack = 8 * centers.shape[1] * np.finfo(np.float64).eps * longest * (longest + 2 * lengths)
    candidates = scores <= (scores.min(axis=1) + slack)[:, None]
    answers = np.argmax(candidates, axis=1)
    for row in np.flatnonzero(candidates.sum(axis=1) > 1):
        open_ones = np.flatnonzero(candidates[row])
        answers[row] = open_ones[np.argmin([_exact_score(rows[row], centers[index]) for index in open_ones])]
    return answers


def _exact_score(row: np.ndarray, center: np.ndarray) -> float:
    """|c|² − 2 x·c, rounded once: products of two float32 are exact in float64."""
    return math.fsum(np.concatenate([center * center, -2.0 * row * center]))


def k_means(embeddings: np.ndarray, *, count: int, seed: int) -> np.ndarray:
    """Mini-batch k-means (scikit-learn, Sculley 2010); not private by itself.

    Args:
        embeddings: `[n, d]`; rows of zeros, texts of which the embedder knows nothing,
            are left out.
        count: K.
        seed: Seed of the start and of the mini-batches.

    Returns:
        The centres, `[K, d]` float32.

    Raises:
        ValueError: There are fewer than K rows.
    """
    from sklearn import exceptions
    from sklearn.cluster import MiniBatchKMeans

    points = embeddings[embeddings.any(axis=1)]
    if count < 1 or len(points) < count:
        raise ValueError(
            f'Expected at least one text for each centre, got fewer than count={count}. '
            'Give more texts, or ask for fewer centres.'
        )
    model = MiniBatchKMeans(count, batch_size=4096, n_init=3, max_iter=30, random_state=seed)
    with warnings.catch_warnings():
        # Texts may repeat; that there are fewer distinct ones than centres is no news.
        warnings.simplefilter('ignore', exceptions.ConvergenceWarning)
        return model.fit(points).cluster_centers_.astype(np.float32)


def fit_centers(texts: Sequence[str], embedder: Embedder, *, count: int, seed: int) -> Centers:
    """Embeds a public corpus and clusters it by k-means.

    Raises:
        ValueError: The texts are fewer than the centres.
    """
    return Centers(
        vectors=k_means(embedder.embed(texts), count=count, seed=seed),
        embedder=embedder.name,
        embedder_fingerprint=embedder.fingerprint,
        corpus_fingerprint=corpus_fingerprint(texts),
        corpus_texts=len(texts),
        seed=seed,
        versions=tuple((name, importlib.metadata.version(name)) for name in ('numpy', 'scikit-learn')),
    )


def corpus_fingerprint(texts: Sequence[str]) -> str:
    """SHA-256 of texts in their order, each framed by its length, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode('utf-8', errors='surrogatepass')
        digest.update(len(encoded).to_bytes(8, 'little') + encoded)
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clusterer:
    """Centres and the embedder that they were fitted with, loaded.

    Raises:
        ValueError: The centres were fitted with another embedder.
    """

    centers: Centers
    embedder: Embedder

    def __post_init__(self) -> None:
        for value, wanted, what in (
            (self.embedder.name, self.centers.embedder, 'name'),
            (self.embedder.fingerprint, self.centers.embedder_fingerprint, 'fingerprint'),
            (self.embedder.dimensions, self.centers.vectors.shape[1], 'dimensions'),
        ):
            if value != wanted:
                raise ValueError(
                    f'Expected the embedder of the centres, {what}={wanted!r}, got {what}={value!r}. '
                    'Choose the embedder that the centres were fitted with, or fit centres for this one.'
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Settings from which a worker builds its clusterer; public, picklable.

    Attributes:
        embedder: 'tfidf': the one in the folder of centres, or the shipped one where the
            folder has none; 'minilm': the installed package; 'decoder': the run's model;
            else a folder of MiniLM weights.
        model: The model's name, for 'decoder'.
        tokenizer: The tokenizer's file.
        dtype: 'float32' or 'bfloat16', for 'decoder'; for MiniLM also 'int8', and None is float32.
        form_share: Share of a likeness that is of the texts' form (`models.clustering.form`), in [0, 1).

    Raises:
        ValueError: The settings of the decoder are missing, or given for another embedder; or a type is
            given for TF-IDF.
    """

    centers: str = str(SHIPPED)
    embedder: str = 'tfidf'
    model: str | None = None
    checkpoint: str | None = None
    tokenizer: str | None = None
    dtype: str | None = None
    form_share: float = 0.0

    def __post_init__(self) -> None:
        is_set = [value is not None for value in self._decoder_settings()]
        # Model, checkpoint and tokenizer; the type is MiniLM's as well.
        fits = all(is_set) if self.embedder == 'decoder' else not any(is_set[:3])
        if not fits or (self.embedder == 'tfidf' and self.dtype is not None):
            raise ValueError(
                "Expected model, checkpoint, tokenizer and dtype for embedder='decoder', at most a dtype for "
                f'MiniLM, and none of them for TF-IDF, got embedder={self.embedder!r} with {sum(is_set)} of '
                'them. Give all four, or none.'
            )

    @classmethod
    def of_embedder(
        cls, embedder: str, *, model: str, checkpoint: str | None, tokenizer: str | None, dtype: str
    ) -> 'ClusterSettings':
        """Settings of an embedder that a command line names.

        Args:
            embedder: As the attribute.
            model: Name of the model for 'decoder'; 'bundled' with every other embedder.
            checkpoint: Its weights; None for those that are here.
            tokenizer: Its SentencePiece file; None for the one that is here.
            dtype: 'float32' or 'bfloat16'.

        Raises:
            ValueError: A model with another embedder than 'decoder', or a model whose files are missing.
        """
        if embedder == 'decoder':
            files = family.files_of(model, checkpoint, tokenizer)
            return cls(
                embedder=embedder,
                model=model,
                checkpoint=files.checkpoint,
                tokenizer=files.tokenizer,
                dtype=dtype,
            )
        if (model, checkpoint, tokenizer, dtype) != ('bundled', None, None, 'float32'):
            raise ValueError(
                f"Expected a model with embedder='decoder' only, got embedder={embedder!r}, model={model!r}, "
                f'checkpoint={checkpoint!r}, tokenizer={tokenizer!r}, dtype={dtype!r}. Leave them out.'
            )
        return cls(embedder=embedder)

    def _decoder_settings(self) -> tuple[Any, Any, Any, Any]:
        return self.model, self.checkpoint, self.tokenizer, self.dtype

    def load_embedder(self) -> Embedder:
        """Loads the embedder alone.

        Raises:
            FileNotFoundError: Its files are missing.
            MissingExtraError: A library is not installed.
            ValueError: Its files are not what they should be, or the share of form is out of range.
        """
        content = self._load_content()
        return form.FormEmbedder(content, self.form_share) if self.form_share else content

    def _load_content(self) -> Embedder:
        if self.embedder == 'tfidf':
            folder = epath.Path(self.centers)
            has_files = any((folder / name).exists() for name in embedder_lib.TFIDF_FILES)
            return embedder_lib.TfidfEmbedder.read(folder if has_files else SHIPPED)
        if self.embedder == 'decoder':
            model, checkpoint, tokenizer, dtype = self._decoder_settings()
            return embedder_lib.DecoderEmbedder(
                model, checkpoint=checkpoint, tokenizer=tokenizer, dtype=dtype
            )
        extras.need(extras.MINILM, use=f'embedder={self.embedder!r}')
        from models.clustering import minilm

        folder = minilm.packaged_folder() if self.embedder == 'minilm' else self.embedder
        return minilm.MiniLmEmbedder(folder, dtype=self.dtype or 'float32')

    def build(self) -> Clusterer:
        """Loads the centres and their embedder.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: A file is not what it should be, or the centres were fitted with
                another embedder.
        """
        centers = Centers.read(self.centers)
        return Clusterer(centers=centers, embedder=self.load_embedder())
