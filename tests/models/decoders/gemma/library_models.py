"""The gemma library's own transformers, of any architecture here, as oracles."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gemma import gm

from models.decoders.gemma import library
from models.decoders.gemma.architectures import GemmaArchitecture


def make_transformer(a: GemmaArchitecture, *, dtype: Any = jnp.float32) -> Any:
    """A Flax module as of `library.make_transformer`, of Gemma 3n and Gemma 4 too."""
    if a.generation not in ('3n', '4'):
        return library.make_transformer(a, dtype=dtype)
    large = gm.nn.Gemma4_26B_A4B if a.experts else gm.nn.Gemma4_31B
    preset = gm.nn.Gemma3n_E2B if a.generation == '3n' else gm.nn.Gemma4_E2B if a.per_layer_dim else large
    config: Any = preset.config
    types = type(config.attention_types[0])
    sharing = None
    if a.num_kv_shared_layers:
        sharing = type(config.kv_cache_sharing_config)(
            frac_shared_layers=a.num_kv_shared_layers / a.num_layers, share_global=True, share_local=True
        )
    changes: dict[str, Any] = {
        'num_embed': a.num_embed, 'embed_dim': a.embed_dim, 'hidden_dim': a.hidden_dim,
        'num_heads': a.num_heads, 'head_dim': a.head_dim, 'num_kv_heads': a.num_kv_heads,
        'attention_types': tuple(
            types.GLOBAL if kind == 'global' else types.LOCAL_SLIDING for kind in a.attention_types
        ),
        'sliding_window_size': a.sliding_window_size, 'final_logit_softcap': a.final_logit_softcap,
        'local_base_frequency': a.local_base_frequency, 'global_base_frequency': a.global_base_frequency,
        'per_layer_input_dim': a.per_layer_dim, 'kv_cache_sharing_config': sharing, 'vision_encoder': None,
    }  # fmt: skip
    if a.generation == '4':
        changes |= {
            'num_global_kv_heads': a.num_global_kv_heads, 'global_key_size': a.global_head_dim,
            'k_eq_v_global': a.global_values_are_keys, 'global_rope_proportion': a.global_rotary_share,
            'override_kv_shared_ffw_hidden': a.kv_shared_hidden_dim, 'audio_encoder': None,
        }  # fmt: skip
        if a.experts is not None:
            changes |= {
                'num_experts': a.experts.count, 'expert_dim': a.experts.hidden_dim,
                'top_k_experts': a.experts.per_token, 'moe_dense_hidden_dim': a.hidden_dim,
            }  # fmt: skip
    elif a.altup is not None:
        changes |= {
            'num_altup_inputs': a.altup.copies, 'altup_coef_clip': a.altup.largest_coefficient,
            'laurel_rank': a.altup.laurel_rank,
            'activation_sparsity_pattern': tuple(
                a.altup.sparsity if index < a.altup.sparse_layers else 0.0 for index in range(a.num_layers)
            ),
        }  # fmt: skip
    return preset(config=dataclasses.replace(config, **changes), dtype=dtype, text_only=True)


def parameter_shapes(a: GemmaArchitecture) -> Any:
    """The library's parameters as a nested dictionary of `jax.ShapeDtypeStruct`, by the library itself."""
    model = make_transformer(a)
    return jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, 1), jnp.int32))['params']


def random_parameters(a: GemmaArchitecture, seed: int, scale: float = 0.3) -> library.Parameters:
    """Random parameters, large enough for peaked attention.

    Norms of Gemma 3n and 4 multiply by their weight, and stay near 1. The norm before the experts is one
    number throughout: a router that reads its output then chooses as one that reads its input, see
    `models.decoders.transformer.experts.shares_of`.
    """
    rng = np.random.default_rng(seed)

    def of(path: Any, leaf: Any) -> jax.Array:
        names = [str(key.key) for key in path]
        drawn = np.float32(scale) * rng.standard_normal(leaf.shape, np.float32)
        if a.norms_add_one or names[-1] not in _NEAR_ONE:
            return jnp.asarray(drawn, jnp.float32)
        if a.experts is not None and 'pre_ffw_norm' in names:
            drawn = np.full(leaf.shape, 0.4, np.float32)
        return jnp.asarray(1 + drawn, jnp.float32)

    return jax.tree_util.tree_map_with_path(of, parameter_shapes(a))


_NEAR_ONE = ('scale', 'skip_scale', 'router_scale', 'per_expert_scale', 'correct_output_scale')
