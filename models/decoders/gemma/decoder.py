"""The gemma library, behind this project's own names; nothing else imports it.

Importing the library takes TensorFlow along (a quarter of a minute), so every
import of it is inside a function.

Parameters are the nested dictionary of `Transformer.init`, with the keys of the
library (`layer_0/attn/q_einsum/w`).
"""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from etils import epath

from models.decoders import decoder as decoder_lib
from models.decoders.gemma import architectures, forward
from models.decoders.gemma.weights import Adapter, Weights, adapt, arrange

if TYPE_CHECKING:
    from gemma import gm

Parameters = dict[str, Any]
# Parameters that an error lists before it only counts.
_LISTED = 3


def make_transformer(
    architecture: architectures.Architecture, *, dtype: jax.typing.DTypeLike
) -> 'gm.nn.Transformer':
    """The text decoder of an architecture, without a vision encoder.

    Args:
        architecture: The numbers of the model.
        dtype: Type of the weights and of the computation.

    Returns:
        A Flax module; `apply({'params': parameters}, tokens, ...)` gives logits `[B L V]`.
    """
    from gemma import gm

    types = {'local': gm.nn.AttentionType.LOCAL_SLIDING, 'global': gm.nn.AttentionType.GLOBAL}
    query_scale = gm.nn.config.QueryPreAttentionNormalisation[architecture.query_pre_attn_norm.upper()]
    config = gm.nn.config.TransformerConfig(
        num_embed=architecture.num_embed,
        embed_dim=architecture.embed_dim,
        hidden_dim=architecture.hidden_dim,
        num_heads=architecture.num_heads,
        head_dim=architecture.head_dim,
        num_kv_heads=architecture.num_kv_heads,
        final_logit_softcap=architecture.final_logit_softcap,
        use_post_attn_norm=architecture.use_post_norms,
        use_post_ffw_norm=architecture.use_post_norms,
        attention_types=tuple(types[name] for name in architecture.attention_types),
        query_pre_attn_norm=query_scale,
        attn_logits_soft_cap=architecture.attn_logits_soft_cap,
        sliding_window_size=architecture.sliding_window_size,
        transpose_gating_einsum=architecture.transpose_gating_einsum,
        use_qk_norm=architecture.use_qk_norm,
        local_base_frequency=architecture.local_base_frequency,
        global_base_frequency=architecture.global_base_frequency,
        local_scale_factor=architecture.local_scale_factor,
        global_scale_factor=architecture.global_scale_factor,
        vision_encoder=None,
    )
    return gm.nn.Transformer(config=config, dtype=dtype)


def parameter_shapes(architecture: architectures.Architecture) -> Parameters:
    """Names and shapes of the parameters, without allocating any.

    Returns:
        The nested dictionary of the parameters with a float32 `jax.ShapeDtypeStruct`
        at each leaf.
    """
    model = make_transformer(architecture, dtype=jnp.float32)
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    return jax.eval_shape(model.init, jax.random.key(0), tokens)['params']


def save_orbax(params: Parameters, path: pathlib.Path) -> None:
    """Writes parameters as an Orbax directory; returns once they are durable.

    Args:
        params: The nested parameters.
        path: A directory that does not exist yet.
    """
    from gemma import gm

    gm.ckpts.save_params(params, path.absolute(), wait_until_finished=True)


def load_orbax(
    architecture: architectures.Architecture,
    path: str | os.PathLike[str],
    *,
    dtype: jax.typing.DTypeLike,
) -> Parameters:
    """Reads the text parameters of an Orbax directory.

    Takes the layouts that the library knows: nested as `save_orbax` and a plain
    `StandardCheckpointer` write it, flat and stacked as Gemma was released, and a
    Kauldron trainer's. Vision weights are left out.

    Args:
        architecture: What the checkpoint should hold.
        path: The directory, local or on a remote file system that Orbax reads.
        dtype: Type to convert the weights to.

    Returns:
        The nested parameters, as `jax.Array`.

    Raises:
        FileNotFoundError: There is no such directory.
        ValueError: It is damaged, or a parameter is missing, surplus, or of another shape.
    """
    from gemma import gm

    directory = epath.Path(path)
    if not directory.is_dir():
        raise FileNotFoundError(
            f'Expected the directory of an Orbax checkpoint, got path={str(path)!r}. '
            'Give the folder that holds its _METADATA file.'
        )
    if '://' not in str(path):
        directory = epath.Path(pathlib.Path(path).absolute())
    try:
        params = gm.ckpts.load_params(directory, text_only=True)
    except Exception as error:
        # The storage library raises that very class, with a page of its own state.
        raise ValueError(
            f'Expected a whole Orbax checkpoint, got path={str(path)!r}, which cannot be read. Fetch it '
            'again.'
        ) from error
    check_shapes(parameter_shapes(architecture), params)
    return jax.tree.map(lambda weight: jnp.asarray(weight, dtype), params)


def check_shapes(expected: Parameters, found: Parameters) -> None:
    """Checks that parameters have the names and shapes of an architecture.

    Args:
        expected: Nested dictionary of anything with a `shape`, as `parameter_shapes` gives it.
        found: Nested parameters.

    Raises:
        ValueError: Counts the parameters that are missing, surplus, or of another shape, and names the first.
    """
    expected_shapes, found_shapes = _flat_shapes(expected), _flat_shapes(found)
    complaints = []
    for name in sorted(expected_shapes.keys() | found_shapes.keys()):
        wanted, got = expected_shapes.get(name), found_shapes.get(name)
        if wanted != got:
            complaints.append(f'{name}: expected {wanted or "none"}, found {got or "none"}')
    if complaints:
        more = ' and more' if len(complaints) > _LISTED else ''
        raise ValueError(
            f'Expected the parameters of the chosen architecture, got {len(complaints)} that differ: '
            f'{"; ".join(complaints[:_LISTED])}{more}. Choose the architecture that the checkpoint was '
            'made for.'
        )


def _flat_shapes(tree: Mapping[str, Any], prefix: str = '') -> dict[str, tuple[int, ...]]:
    """Maps 'layer_0/attn/q_einsum/w' to its shape."""
    shapes: dict[str, tuple[int, ...]] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            shapes |= _flat_shapes(value, f'{prefix}{key}/')
        else:
            shapes[prefix + key] = tuple(value.shape)
    return shapes


def make_pooled_states(
    architecture: architectures.Architecture, *, dtype: jax.typing.DTypeLike
) -> 'Callable[[Parameters, jax.typing.ArrayLike, jax.typing.ArrayLike], jax.Array]':
    """A compiled function from texts to the mean hidden state of each, for embeddings.

    The states are those of the last layer after the final norm. The mean runs over a
    text's own tokens: the start of text carries none of it, and padding is masked.
    Every row is computed on its own, under a causal mask and without a cache.

    Args:
        architecture: The numbers of the model.
        dtype: Type of the computation; the mean is taken in float32.

    Returns:
        A function of the parameters, tokens `[m L]` int32 that each begin with the start
        of text, and lengths `[m]` that count it; gives `[m D]` float32, a row of zeros
        for a text without tokens.
    """
    model = make_transformer(architecture, dtype=dtype)

    def pooled_states(weights: Parameters, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
        rows, length = tokens.shape
        slots = jnp.arange(length)
        known = slots < lengths[:, None]
        # The logits are not returned, so the compiler leaves the output layer out.
        states = model.apply(
            {'params': weights},
            tokens,
            positions=jnp.broadcast_to(slots, (rows, length)),
            attention_mask=(slots <= slots[:, None]) & known[:, None, :],
            return_hidden_states=True,
        ).hidden_states
        own = (known & (slots > 0))[..., None]
        total = jnp.where(own, states.astype(jnp.float32), 0.0).sum(axis=1)
        return total / jnp.maximum(lengths - 1, 1)[:, None]

    return jax.jit(pooled_states)


# Rows of one micro-batch spread over the local devices along this mesh axis.
_ROWS = 'rows'

# Numbers of tokens that a step has programs for, beside the most that it may append. Where arithmetic is the
# bottleneck a token that is read for nothing costs half of one that is read by itself, or more; an
# accelerator, which waits for the weights, reads a few tokens in the time of one.
_LENGTHS = (1, 2, 4)


@final
class GemmaDecoder(decoder_lib.Decoder):
    """Gemma as a `Decoder`: cached, micro-batched, sharded over all local devices.

    Prompts and steps go through this project's own forward pass (`forward.py`), which is tested against the
    library's. A step at offset 0 starts again at the end of the prompts.
    """

    def __init__(
        self,
        architecture: architectures.Architecture,
        parameters: Parameters,
        *,
        shapes: decoder_lib.Shapes,
        dtype: jax.typing.DTypeLike,
        adapter: Adapter | None = None,
    ) -> None:
        """Places the parameters on the devices.

        Args:
            architecture: The numbers of the model.
            parameters: Its nested parameters, which are taken over: the dictionary is empty afterwards, so
                that no weight lies in memory twice.
            shapes: The public shapes; the micro-batch size must be a multiple of the
                number of local devices.
            dtype: Type of weights, cache and products.
            adapter: Low-rank factors that are added to the matrices, or a difference that is added to all
                weights, in float32; None for none.
        """
        devices = jax.local_devices()
        if shapes.micro_batch_size % len(devices):
            raise ValueError(
                f'Expected micro_batch_size to be a multiple of the {len(devices)} local devices, '
                f'got micro_batch_size={shapes.micro_batch_size}. Round it up.'
            )
        self.shapes = shapes
        self.vocab_size = architecture.num_embed
        self._architecture = architecture
        self._dtype = jnp.dtype(dtype)
        # Activations of few rows at a time stay in a processor's cache; an accelerator wants all rows.
        self._in_pieces = len(devices) == 1 and devices[0].platform == 'cpu'
        self._lengths = _LENGTHS if self._in_pieces else (1,)
        mesh = jax.sharding.Mesh(np.array(devices), (_ROWS,))
        self._by_row = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(_ROWS))
        everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        self.weights = arrange(
            architecture,
            parameters,
            lambda weight: jax.device_put(jnp.asarray(weight, dtype), everywhere),
        )
        if adapter is not None:
            # A difference is added weight after weight: it need not lie there whole.
            is_difference = isinstance(adapter, Weights)
            placed = adapter if is_difference else jax.device_put(adapter, everywhere)
            self.weights = adapt(self.weights, placed)
        self._prefill = jax.jit(self._prefill_micro_batch)

    def prefill(
        self, prompts: 'Sequence[np.ndarray]', *, together: int | None = None
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """See `Decoder.prefill`."""
        size, length = together or self.shapes.micro_batch_size, self.shapes.max_prompt_tokens
        self._check_memory(len(prompts))
        tokens = np.zeros((len(prompts), length), np.int32)
        lengths = np.array([len(prompt) for prompt in prompts], np.int32)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[: len(prompt)] = prompt
        results = []
        for first in range(0, len(prompts), size):
            rows = slice(first, first + size)
            placed = jax.device_put((tokens[rows], lengths[rows]), self._by_row)
            results.append(self._prefill(self.weights, *placed))
        states, caches = zip(*results, strict=True)
        return states, caches

    def _prefill_micro_batch(self, weights: Any, tokens: Any, lengths: Any) -> tuple[Any, Any]:
        """Prompts `[m P]` and their lengths `[m]` to last states `[m D]` and the cache, both by row."""
        states, cache = forward.read_prompts(
            self._architecture,
            weights,
            tokens,
            lengths,
            example_slots=self.shapes.example_slots,
            in_pieces=self._in_pieces,
        )
        return jax.lax.with_sharding_constraint((states, cache), self._by_row)

    def append(
        self, weights: Any, cache: tuple[Any, ...], tokens: Any, count: Any, offset: Any
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """See `Decoder.append`."""
        results = [
            forward.append(
                self._architecture,
                weights,
                part,
                tokens,
                count,
                offset,
                lengths=self._lengths,
                compile_once=self._in_pieces,
            )
            for part in cache
        ]
        states, caches = zip(*results, strict=True)
        return states, caches

    def logits(self, weights: Any, states: Any, columns: Any | None = None) -> Any:
        """See `Decoder.logits`; the embedding is the output layer, soft cap and all as in the library."""
        return forward.logits(self._architecture, weights, states, columns)

    def _check_memory(self, rows: int) -> None:
        """Refuses a batch whose caches and logits cannot fit, before anything is sampled."""
        devices = jax.local_devices()
        stats = devices[0].memory_stats() or {}
        if 'bytes_limit' in stats:
            free = (stats['bytes_limit'] - stats['bytes_in_use']) * len(devices)
        else:  # the host's own memory, what it can drop from its file cache counted in
            free = psutil.virtual_memory().available
        cache = (
            rows * self.shapes.cache_length * self._architecture.cache_bytes_per_token(self._dtype.itemsize)
        )
        columns = min(self.vocab_size, self.shapes.columns or self.vocab_size)
        logits = rows * columns * (self._dtype.itemsize + 4)
        if cache + logits > free:
            # The number of contexts in a batch is private, so the text does not give it.
            raise MemoryError(
                f'Expected the contexts of a batch to fit on the device, got '
                f'batch rows that need more than the free {free / 2**30:.1f} GiB. '
                'Lower max_prompt_tokens, max_example_tokens or batch_size, or use more devices.'
            )
