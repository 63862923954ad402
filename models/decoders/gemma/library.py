"""The gemma library, behind this project's own names; nothing else imports it.

Importing the library takes TensorFlow along (a quarter of a minute), so every
import of it is inside a function.

Parameters are the nested dictionary of `Transformer.init`, with the keys of the
library (`layer_0/attn/q_einsum/w`), which stores weights for training.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
from etils import epath

from models.decoders.gemma import parameters as parameters_lib
from models.decoders.gemma.architectures import ARCHITECTURES, GemmaArchitecture
from models.decoders.transformer import checkpoint
from models.decoders.transformer.weights import Weights

if TYPE_CHECKING:
    from gemma import gm

Parameters = dict[str, Any]
# The same in each of the library's layouts, but that stacked layers have an axis more in front.
_EMBEDDING = re.compile(r'(^|/)input_embedding$')
_FEED_FORWARD = re.compile(r'(^|/)mlp/linear(/w)?$')
_BESIDE_EXPERTS = re.compile(r'(^|/)mlp2/linear(/w)?$')
_LAYER = re.compile(r'(^|/)layer_(\d+)/')
_STACKED = re.compile(r'(^|/)stacked_layers/')


def make_transformer(architecture: GemmaArchitecture, *, dtype: jax.typing.DTypeLike) -> gm.nn.Transformer:
    """The text decoder of an architecture, without a vision encoder.

    Returns:
        A Flax module; `apply({'params': parameters}, tokens, ...)` gives logits `[B L V]`.
    """
    from gemma import gm

    types = {'local': gm.nn.AttentionType.LOCAL_SLIDING, 'global': gm.nn.AttentionType.GLOBAL}
    scales = gm.nn.config.QueryPreAttentionNormalisation
    by_width = architecture.query_pre_attn_scalar == architecture.embed_dim // architecture.num_heads
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
        query_pre_attn_norm=(
            scales.BY_ONE_OVER_SQRT_EMBED_DIM_DIV_NUM_HEADS if by_width else scales.BY_ONE_OVER_SQRT_HEAD_DIM
        ),
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


def to_weights(architecture: GemmaArchitecture, parameters: Parameters, place: checkpoint.Place) -> Weights:
    """The library's parameters as a step multiplies them.

    Args:
        architecture: The numbers of the model.
        parameters: They are taken out one after another, so that none lies in memory twice for long.
        place: Device and type of the weights.

    Raises:
        ValueError: A parameter is missing, surplus, or of another shape.
    """
    flat = {parameters_lib.canonical(name): array for name, array in _flat(parameters)}
    parameters.clear()
    made_of = parameters_lib.parts(architecture)
    checkpoint.check_shapes(
        {name: tuple(array.shape) for name, array in flat.items()},
        checkpoint.sources(made_of),
        ignored=parameters_lib.ignored(architecture),
    )
    return checkpoint.read(made_of, flat.pop, place)


def _flat(tree: Mapping[str, Any], prefix: str = '') -> Iterator[tuple[str, Any]]:
    """Arrays, or their metadata, by names such as 'layer_0/attn/q_einsum/w'."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f'{prefix}{name}/')
        elif getattr(value, 'shape', None) is not None:
            yield f'{prefix}{name}', value


def save_orbax(params: Parameters, path: pathlib.Path) -> None:
    """Writes parameters as an Orbax directory; returns once they are durable.

    Args:
        params: The nested parameters.
        path: A directory that does not exist yet.
    """
    from gemma import gm

    gm.ckpts.save_params(params, path.absolute(), wait_until_finished=True)


def load_orbax(path: str | os.PathLike[str]) -> Parameters:
    """Reads the text parameters of an Orbax directory.

    Takes the layouts that the library knows: nested as `save_orbax` and a plain
    `StandardCheckpointer` write it, flat and stacked as Gemma was released, and a
    Kauldron trainer's. Vision weights are left out.

    Args:
        path: The directory, local or on a remote file system that Orbax reads.

    Raises:
        ValueError: It is damaged.
    """
    from gemma import gm

    directory = epath.Path(path)
    if '://' not in str(path):
        directory = epath.Path(pathlib.Path(path).absolute())
    try:
        parameters: Parameters = gm.ckpts.load_params(directory, text_only=True)
    except Exception as error:
        # The storage library raises that very class, with a page of its own state.
        raise ValueError(
            f'Expected a whole Orbax checkpoint, got path={str(path)!r}, which cannot be read. Fetch it '
            'again.'
        ) from error
    return parameters


def check_orbax(architecture: GemmaArchitecture, directory: pathlib.Path) -> None:
    """Refuses a directory whose metadata tells of another depth or width; reads no weight.

    Raises:
        ValueError: See above, or there is no metadata.
    """
    shapes = {name: tuple(value.shape) for name, value in _flat(_orbax_metadata(directory))}
    layers = {int(match[2]) for name in shapes if (match := _LAYER.search(name))}
    stacked = any(_STACKED.search(name) for name in shapes)

    def first(name: re.Pattern[str]) -> tuple[int, ...] | None:
        """The shape of the first array of this name that has rows and columns."""
        matrices = (shape for path, shape in shapes.items() if name.search(path) and len(shape) > 1)
        return next(matrices, None)

    embedding, feed_forward = first(_EMBEDDING), first(_BESIDE_EXPERTS) or first(_FEED_FORWARD)
    checkpoint.refuse_numbers(
        architecture,
        ARCHITECTURES,
        lambda known: checkpoint.differences_of_sizes(
            known,
            layers=None if stacked or not layers else max(layers) + 1,
            width=None if embedding is None else embedding[-1],
            hidden=None if feed_forward is None else feed_forward[-2],
        ),
    )


def _orbax_metadata(directory: pathlib.Path) -> Mapping[str, Any]:
    """The tree of a checkpoint's arrays; a trainer's is in a folder of its own."""
    from orbax import checkpoint as ocp

    reader = ocp.StandardCheckpointer()
    for place in (directory.absolute(), directory.absolute() / 'default'):
        if place.is_dir() and (metadata := reader.metadata(place).item_metadata) is not None:
            tree: Mapping[str, Any] = metadata.tree
            return tree
    raise ValueError(
        f'Expected a checkpoint, got checkpoint={str(directory)!r}, a folder without weights. Give the '
        'folder that holds the *.safetensors files or the Orbax _METADATA, or a GGUF file.'
    )
