"""How each parameter of the gemma library is made of a checkpoint's tensors.

The tensors have the names and shapes of `transformers` (`modeling_gemma.py`,
`modeling_gemma2.py`, `modeling_gemma3.py`), which files in other layouts are brought to.
The two agree on what the numbers mean: norms store w and scale by 1 + w, rotary positions
turn the first half of a head against the second, attention scales queries by the same
scalar. So every weight is rearranged and none is recomputed. With V D F N K H of
`Architecture`:

    embed_tokens.weight                  [V D]      embedder/input_embedding            [V D]
    self_attn.q_proj.weight              [N·H D]    attn/q_einsum/w                     [N D H]
    self_attn.k_proj.weight, v_proj      [K·H D]    attn/kv_einsum/w                    [2 K D H]
    (q, k and v where K = N                         attn/qkv_einsum/w                   [3 N D H])
    self_attn.o_proj.weight              [D N·H]    attn/attn_vec_einsum/w              [N H D]
    self_attn.q_norm.weight, k_norm      [H]        attn/_query_norm/scale, _key_norm   [H]
    mlp.gate_proj.weight, up_proj        [F D]      mlp/gating_einsum          [2 D F] or [2 F D]
    mlp.down_proj.weight                 [D F]      mlp/linear                          [F D]
    input_layernorm.weight               [D]        pre_attention_norm/scale            [D]
    post_attention_layernorm.weight      [D]        post_attention_norm/scale           [D]
    pre_feedforward_layernorm.weight     [D]        pre_ffw_norm/scale                  [D]
    post_feedforward_layernorm.weight    [D]        post_ffw_norm/scale                 [D]
    norm.weight                          [D]        final_norm/scale                    [D]

Gemma 1 has two norms a layer, and calls the one before its feed-forward
`post_attention_layernorm`.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from models.decoders.gemma import architectures

# Rows of a hub embedding that differ from the library's, for each of the library's
# vocabularies. Gemma 1 and 2: no piece has an id from 256,000 on, and the missing
# rows become zeros. Multi-modal Gemma 3: ids from 262,144 on are the image
# placeholder and padding; no SentencePiece piece has them, so no id of a text is lost.
_HUB_ROWS = {256_128: 256_000, 262_144: 262_208}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weight:
    """One parameter of the library, and how it is made of a checkpoint's tensors.

    Attributes:
        target: The parameter's name, 'layer_0/attn/q_einsum/w'.
        sources: Shapes of the tensors by name, without what a file has before the text part's names.
        arrange: Makes the parameter of those tensors, in their order.
    """

    target: str
    sources: Mapping[str, tuple[int, ...]]
    arrange: Callable[..., np.ndarray]


def weights(architecture: architectures.Architecture, rows: int) -> Iterator[Weight]:
    """The name map of the module docstring; `rows` is what the file's embedding has."""
    a = architecture
    yield Weight(
        target='embedder/input_embedding',
        sources={'embed_tokens.weight': (rows, a.embed_dim)},
        arrange=lambda weight: _with_rows(weight, a.num_embed),
    )
    for index in range(a.num_layers):
        for weight in _layer_weights(a):
            yield Weight(
                target=f'layer_{index}/{weight.target}',
                sources={f'layers.{index}.{name}': shape for name, shape in weight.sources.items()},
                arrange=weight.arrange,
            )
    yield _norm('final_norm', 'norm', a.embed_dim)


def _layer_weights(a: architectures.Architecture) -> Iterator[Weight]:
    """The part of the map that every layer repeats."""
    wide, narrow = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    query = {'self_attn.q_proj.weight': (wide, a.embed_dim)}
    key_value = {
        'self_attn.k_proj.weight': (narrow, a.embed_dim),
        'self_attn.v_proj.weight': (narrow, a.embed_dim),
    }

    def heads(*weights: np.ndarray) -> np.ndarray:
        # [heads·H D] -> [heads D H], stacked in front.
        split = [weight.reshape(-1, a.head_dim, a.embed_dim).transpose(0, 2, 1) for weight in weights]
        return np.stack(split)

    if a.num_heads == a.num_kv_heads:
        yield Weight(target='attn/qkv_einsum/w', sources=query | key_value, arrange=heads)
    else:
        yield Weight(target='attn/q_einsum/w', sources=query, arrange=lambda weight: heads(weight)[0])
        yield Weight(target='attn/kv_einsum/w', sources=key_value, arrange=heads)
    yield Weight(
        target='attn/attn_vec_einsum/w',
        sources={'self_attn.o_proj.weight': (a.embed_dim, wide)},
        arrange=lambda weight: weight.T.reshape(a.num_heads, a.head_dim, a.embed_dim),
    )
    if a.use_qk_norm:
        yield _norm('attn/_query_norm', 'self_attn.q_norm', a.head_dim)
        yield _norm('attn/_key_norm', 'self_attn.k_norm', a.head_dim)
    yield Weight(
        target='mlp/gating_einsum',
        sources={
            'mlp.gate_proj.weight': (a.hidden_dim, a.embed_dim),
            'mlp.up_proj.weight': (a.hidden_dim, a.embed_dim),
        },
        arrange=lambda gate, up: np.stack([gate, up] if a.transpose_gating_einsum else [gate.T, up.T]),
    )
    yield Weight(
        target='mlp/linear',
        sources={'mlp.down_proj.weight': (a.embed_dim, a.hidden_dim)},
        arrange=lambda weight: weight.T,
    )
    yield _norm('pre_attention_norm', 'input_layernorm', a.embed_dim)
    if a.use_post_norms:
        yield _norm('post_attention_norm', 'post_attention_layernorm', a.embed_dim)
        yield _norm('pre_ffw_norm', 'pre_feedforward_layernorm', a.embed_dim)
        yield _norm('post_ffw_norm', 'post_feedforward_layernorm', a.embed_dim)
    else:
        yield _norm('pre_ffw_norm', 'post_attention_layernorm', a.embed_dim)


def _norm(target: str, source: str, size: int) -> Weight:
    return Weight(
        target=f'{target}/scale', sources={f'{source}.weight': (size,)}, arrange=lambda weight: weight
    )


def _with_rows(weight: np.ndarray, rows: int) -> np.ndarray:
    """Cuts or pads with zeros; `expected_rows` has decided that it is sound."""
    if len(weight) >= rows:
        return weight[:rows]
    return np.pad(weight, ((0, rows - len(weight)), (0, 0)))


def expected_rows(architecture: architectures.Architecture, rows: int) -> int:
    """The number of embedding rows that a file should have, given what it has."""
    hub_rows = _HUB_ROWS.get(architecture.num_embed)
    return rows if rows == hub_rows else architecture.num_embed


def place(params: dict[str, Any], target: str, value: object) -> None:
    """Puts a parameter, 'layer_0/attn/q_einsum/w', into the nested dictionary."""
    *parents, leaf = target.split('/')
    for parent in parents:
        params = params.setdefault(parent, {})
    params[leaf] = value
