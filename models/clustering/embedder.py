"""Embedders: texts to unit vectors, for clustering (METHOD 3).

A row is a function of its own text alone, bit for bit, whatever other texts are embedded with it: a record's
cluster decides its batch, so a neighbour that changed it would break parallel composition. Programs
therefore have fixed shapes, and a text's padded length depends on the text alone.

An embedder's fingerprint covers everything that its output depends on. Centres keep
the fingerprint of the embedder that they were fitted with and refuse another.

`TfidfEmbedder` needs no weights and is the default; `models.clustering.minilm` holds a small
sentence encoder; `DecoderEmbedder` takes the hidden states of the run's own model.
"""

import abc
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, final

import numpy as np
from etils import epath
from safetensors import numpy as safetensors_numpy

from models import extras
from models.decoders import device, family
from models.privacy import intact

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

# A text is padded to the first of these lengths that holds it, and cut at the last.
TOKEN_LENGTHS = (32, 64, 96, 128, 192, 256)
# Matrix kernels treat rows alike in whole blocks of 8 (models.decoders.family.ROWS_MULTIPLE). One block of
# 8 rows is as fast for each as a block of 32, and the last block of a length wastes less.
BLOCK_ROWS = 8

TFIDF_SCHEMA = 'dp-corpus tf-idf embedder 1'
TFIDF_FILES = ('tfidf.json', 'tfidf.safetensors')
# Words of three letters or more: tokenized text and running text give the same ones.
_WORD = r'(?u)\b[^\W\d_]{3,}\b'

MiniLmDtype = Literal['float32', 'bfloat16', 'int8']
# CPU flags, under Linux, of processors that sum products of 8-bit whole numbers.
_NATIVE_INT8 = frozenset({'avx512_vnni', 'avx_vnni', 'amx_int8', 'i8mm'})


class Embedder(abc.ABC):
    """Texts to unit vectors, each row a function of its own text alone.

    Attributes:
        name: The kind: 'tfidf', 'minilm' or 'decoder'.
        model: The language model whose states it takes; None where it takes none.
        fingerprint: SHA-256, as 64 hexadecimal digits, of everything that determines
            the output.
    """

    name: str
    model: str | None = None
    dimensions: int
    fingerprint: str

    @abc.abstractmethod
    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeds any texts; no content of a text makes it fail.

        Returns:
            `[len(texts), dimensions]` float32; each row has length 1, or is zero for a
            text of which the embedder knows nothing.
        """


def fastest_minilm_dtype(platform: str | None = None, cpuinfo: str | None = None) -> MiniLmDtype:
    """The type that MiniLM's products with its weights are fastest in here.

    bfloat16 on accelerators; int8 on processors that multiply it natively; float32 elsewhere. The machine
    that launches a run asks, and all workers take its answer: vectors of two types differ.

    Args:
        platform: JAX's name of the platform; None for `device.platform_here`.
        cpuinfo: Content of Linux' /proc/cpuinfo; None reads that file.
    """
    if (platform or device.platform_here()) != 'cpu':
        return 'bfloat16'
    return 'int8' if _NATIVE_INT8 & device.processor_flags(cpuinfo) else 'float32'


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Scales each row to length 1; a row that is zero or not finite becomes zero.

    Args:
        vectors: `[n, d]` of any float type.

    Returns:
        `[n, d]` float32.
    """
    rows = np.ascontiguousarray(vectors, np.float64)
    rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
    norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0).astype(np.float32)


def pool_in_blocks(
    token_rows: Sequence[np.ndarray],
    pool: Callable[[Any, Any], Any],
    *,
    dimensions: int,
) -> np.ndarray:
    """Sends token rows through a program in blocks of fixed shapes.

    Args:
        token_rows: One int32 array of at most `TOKEN_LENGTHS[-1]` ids for each text.
        pool: Tokens `[BLOCK_ROWS, L]` padded with id 0, and lengths `[BLOCK_ROWS]`, to
            vectors `[BLOCK_ROWS, dimensions]`; L is one of `TOKEN_LENGTHS`.
        dimensions: Length of a vector.

    Returns:
        Unit vectors, `[len(token_rows), dimensions]` float32.
    """
    vectors = np.zeros((len(token_rows), dimensions), np.float32)
    lengths = np.array([len(row) for row in token_rows], np.int32)
    buckets = np.searchsorted(TOKEN_LENGTHS, lengths)
    for bucket, padded_length in enumerate(TOKEN_LENGTHS):
        members = np.flatnonzero(buckets == bucket)
        for first in range(0, len(members), BLOCK_ROWS):
            block = members[first : first + BLOCK_ROWS]
            tokens = np.zeros((BLOCK_ROWS, padded_length), np.int32)
            block_lengths = np.zeros(BLOCK_ROWS, np.int32)
            for slot, index in enumerate(block):
                tokens[slot, : lengths[index]] = token_rows[index]
                block_lengths[slot] = lengths[index]
            vectors[block] = np.asarray(pool(tokens, block_lengths))[: len(block)]
    return unit_rows(vectors)


def fingerprint_of(settings: Mapping[str, Any], *arrays: np.ndarray) -> str:
    """SHA-256 of public settings and arrays, with their types and shapes, as hexadecimal digits."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for array in arrays:
        digest.update(f'|{array.dtype}{array.shape}|'.encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


@final
class TfidfEmbedder(Embedder):
    """Words weighed by TF-IDF, then the leading singular vectors: no weights to fetch.

    Sublinear term frequencies, unit rows, and a projection on the directions that a
    public corpus varies in most (latent semantic analysis). Case, accents, digits,
    marks and words of one or two letters do not count, so text that a tokenizer
    pulled apart embeds as it did before.
    """

    name = 'tfidf'

    def __init__(self, terms: Sequence[str], idf: np.ndarray, components: np.ndarray) -> None:
        """Rebuilds the embedder from what was fitted.

        Args:
            terms: V distinct words, lower case, in the order of the columns.
            idf: Inverse document frequency of each, `[V]` float32.
            components: Singular directions, `[d, V]` float16.

        Raises:
            ValueError: The shapes or types do not fit one another, a word occurs twice,
                or a number is not finite.
        """
        shapes_fit = components.ndim == 2 and idf.shape == (len(terms),) == components.shape[1:]
        if not shapes_fit or not len(terms) or len(set(terms)) != len(terms):
            raise ValueError(
                'Expected distinct terms, an idf [V] and components [d, V], got '
                f'terms={len(terms)}, distinct={len(set(terms))}, idf={idf.shape}, '
                f'components={components.shape}. Fit the embedder again.'
            )
        if idf.dtype != np.float32 or components.dtype != np.float16:
            raise ValueError(
                f'Expected idf in float32 and components in float16, got idf={idf.dtype}, '
                f'components={components.dtype}. Fit the embedder again.'
            )
        if not (np.isfinite(idf).all() and np.isfinite(components).all()):
            raise ValueError(
                'Expected finite idf and components, got a value that is not. Fit the embedder again.'
            )
        self.dimensions = len(components)
        self._terms, self._idf, self._components = tuple(terms), idf, components
        self.fingerprint = fingerprint_of(
            {'schema': TFIDF_SCHEMA, 'word': _WORD, 'terms': self._terms}, idf, components
        )
        self._projection = np.ascontiguousarray(components.T, np.float64)
        self._vectorizer = _vectorizer(vocabulary=self._terms)
        self._vectorizer.idf_ = idf.astype(np.float64)

    @classmethod
    def fit(cls, texts: Sequence[str], *, max_terms: int, min_texts: int, dimensions: int, seed: int) -> Self:
        """Fits the words and the directions on a public corpus.

        Args:
            texts: The corpus.
            max_terms: Most words to keep, those of highest count.
            min_texts: Texts that a word must occur in.
            dimensions: d.
            seed: Seed of the randomized decomposition; the corpus is public.

        Raises:
            ValueError: The corpus has no more words than `dimensions`.
        """
        from sklearn.decomposition import TruncatedSVD

        vectorizer = _vectorizer(max_features=max_terms, min_df=min_texts)
        try:
            weights = vectorizer.fit_transform(texts)
            words = weights.shape[1]
        except ValueError:  # scikit-learn's, of a corpus without a word that may be kept
            words = 0
        if words <= dimensions:
            raise ValueError(
                f'Expected more than dimensions={dimensions} words, each in min_texts={min_texts} or more of '
                f'the texts, got words={words}. Give a larger corpus.'
            )
        decomposition = TruncatedSVD(dimensions, random_state=seed).fit(weights)
        return cls(
            [str(term) for term in vectorizer.get_feature_names_out()],
            vectorizer.idf_.astype(np.float32),
            decomposition.components_.astype(np.float16),
        )

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Writes `tfidf.json` (the words) and `tfidf.safetensors` (the numbers) into a folder."""
        path = epath.Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        document = {'schema': TFIDF_SCHEMA, 'terms': ' '.join(self._terms)}
        (path / TFIDF_FILES[0]).write_text(json.dumps(document, indent=1, ensure_ascii=False) + '\n')
        arrays = {'components': self._components, 'idf': self._idf}
        (path / TFIDF_FILES[1]).write_bytes(safetensors_numpy.save(arrays))

    @classmethod
    @intact.reading(' and '.join(TFIDF_FILES), 'Restore both files from one artefact')
    def read(cls, folder: str | os.PathLike[str]) -> Self:
        """Reads what `write` wrote.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: The files are of another schema, or do not fit one another.
        """
        path = epath.Path(folder)
        missing = [name for name in TFIDF_FILES if not (path / name).exists()]
        if missing:
            raise FileNotFoundError(
                f'Expected a TF-IDF embedder in folder={str(folder)!r}, got none of files={missing}. '
                'Give a folder that `dp-corpus centers` wrote.'
            )
        document = json.loads((path / TFIDF_FILES[0]).read_text())
        if not isinstance(document, dict) or document.get('schema') != TFIDF_SCHEMA:
            raise ValueError(
                f'Expected schema={TFIDF_SCHEMA!r} in {TFIDF_FILES[0]}, got another. '
                'Fit the embedder again with this version.'
            )
        arrays = safetensors_numpy.load((path / TFIDF_FILES[1]).read_bytes())
        return cls(document['terms'].split(' '), arrays['idf'], arrays['components'])

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `Embedder.embed`; the sparse product walks one row after another."""
        if not texts:
            return np.zeros((0, self.dimensions), np.float32)
        return unit_rows(self._vectorizer.transform(texts) @ self._projection)


def _vectorizer(**settings: Any) -> 'TfidfVectorizer':
    """The vectorizer as it is fitted and rebuilt."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(sublinear_tf=True, strip_accents='unicode', token_pattern=_WORD, **settings)


@final
class DecoderEmbedder(Embedder):
    """The mean of the decoder's own last hidden states over a text's tokens."""

    name = 'decoder'

    def __init__(
        self,
        model: str,
        *,
        checkpoint: str | os.PathLike[str],
        tokenizer: str | os.PathLike[str],
        dtype: str,
    ) -> None:
        """Loads the weights.

        Args:
            model: The model's name.
            checkpoint: Folder of the weights.
            tokenizer: The tokenizer's file.
            dtype: 'float32' or 'bfloat16'.

        Raises:
            FileNotFoundError: There is no such checkpoint.
            MissingExtraError: A library is not installed.
            ValueError: The checkpoint is another model's.
        """
        extras.need(extras.GEMMA, use="embedder='decoder'")
        import jax

        sizes, model_family = family.sizes_of(model), family.family_of(model)
        self.model, self.dimensions = model, sizes.embed_dim
        self._pooling = model_family.load_pooling(model, checkpoint, dtype=dtype)
        self._tokenizer = model_family.load_tokenizer(model, tokenizer)
        named = jax.tree_util.tree_leaves_with_path(self._pooling.weights)
        settings = {
            'architecture': dataclasses.asdict(sizes),
            'dtype': dtype,
            'lengths': TOKEN_LENGTHS,
            'tokenizer': hashlib.sha256(epath.Path(tokenizer).read_bytes()).hexdigest(),
            'weights': [jax.tree_util.keystr(path) for path, _ in named],
        }
        self.fingerprint = fingerprint_of(settings, *(np.asarray(leaf) for _, leaf in named))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `Embedder.embed`; a text counts up to its 255th token."""
        start = np.array(self._tokenizer.start_tokens, np.int32)
        rows = [
            np.concatenate([start, ids[: TOKEN_LENGTHS[-1] - len(start)]])
            for ids in self._tokenizer.encode_batch(texts)
        ]
        return pool_in_blocks(
            rows,
            lambda tokens, lengths: self._pooling.pool(self._pooling.weights, tokens, lengths),
            dimensions=self.dimensions,
        )
