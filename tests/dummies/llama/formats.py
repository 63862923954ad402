"""Sizes of a family as Llama's, and what its folders of safetensors call their tensors: Meta's own names.

The layout is not Gemma's: two norms a layer that multiply by their weights, SiLU, an output layer of its own,
an embedding that is not scaled, and no soft cap.
"""

from models.decoders.transformer import safetensors
from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.checkpoint import Names

ARCHITECTURES = {
    'llama-tiny': Architecture(
        num_embed=264, embed_dim=32, hidden_dim=48, num_heads=4, head_dim=8, num_kv_heads=2,
        attention_types=('global',) * 3, ties_output=False, norm_epsilon=1e-5,
        global_base_frequency=500_000,
    ),
    'llama-small': Architecture(
        num_embed=264, embed_dim=64, hidden_dim=96, num_heads=8, head_dim=8, num_kv_heads=2,
        attention_types=('global',) * 4, ties_output=False, norm_epsilon=1e-5,
    ),
}  # fmt: skip
NAMES = Names(
    embedding='tok_embeddings.weight',
    final_norm='norm.weight',
    output='output.weight',
    query='layers.{}.attention.wq.weight',
    key='layers.{}.attention.wk.weight',
    value='layers.{}.attention.wv.weight',
    attention_output='layers.{}.attention.wo.weight',
    gate='layers.{}.feed_forward.w1.weight',
    up='layers.{}.feed_forward.w3.weight',
    down='layers.{}.feed_forward.w2.weight',
    pre_attention_norm='layers.{}.attention_norm.weight',
    pre_ffw_norm='layers.{}.ffn_norm.weight',
)
HUB = safetensors.Format(
    models=ARCHITECTURES,
    names=lambda _: NAMES,
    config=lambda a: {'hidden_size': a.embed_dim, 'rms_norm_eps': a.norm_epsilon},
)
