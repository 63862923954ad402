"""The numbers that define one decoder-only transformer; nothing here imports JAX."""

import dataclasses
from typing import Literal

from models.decoders import family

Activation = Literal['gelu', 'silu']
AttentionType = Literal['local', 'global']
# Float32 numbers of a token in a layer that a gradient reads again, in widths of the residual stream, and of
# each head for each token that it attends to; and those of what enters a layer. Fitted to what the compiler
# says of Gemma 3 270M and 4B and Gemma 2 2B (docs/measured.md).
_KEPT_WIDTHS, _KEPT_SHARES, _ENTERING_WIDTHS = 34, 4, 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture(family.Sizes):
    """The numbers that define one decoder. Families may add facts about their files.

    Layers differ in their attention alone, see `attention_types`.

    Attributes:
        num_embed: Vocabulary size V.
        embed_dim: Width D of the residual stream.
        hidden_dim: Width F of the feed-forward layers.
        num_heads: Query heads N.
        head_dim: Width H of a head, even.
        num_kv_heads: Key and value heads K; N must be a multiple of K.
        attention_types: One entry per layer.
        sliding_window_size: Window of the local layers, in tokens.
        activation: The function of the feed-forward layers' gate; 'gelu' is its approximation by tanh.
        ties_output: True if the embedding is the output layer as well.
        scales_embedding: True if an embedding is multiplied by √D.
        final_logit_softcap: Bound on the logits, by tanh; None leaves them as they are.
        attn_logits_soft_cap: The same for the attention scores.
        norm_epsilon: Least variance of a norm.
        norms_add_one: True if a norm multiplies by one more than its weight.
        use_post_norms: True if the outputs of attention and feed-forward are normalized too.
        use_qk_norm: True if queries and keys are normalized.
        query_pre_attn_scalar: Queries are divided by its root; None for H.
        local_base_frequency: Base of the rotary wavelengths in local layers.
        global_base_frequency: The same in global layers.
        local_scale_factor: Positions are divided by it in local layers.
        global_scale_factor: The same in global layers.

    Raises:
        ValueError: The numbers contradict one another.
    """

    hidden_dim: int
    num_heads: int
    head_dim: int
    num_kv_heads: int
    attention_types: tuple[AttentionType, ...]
    sliding_window_size: int | None = None
    activation: Activation = 'silu'
    ties_output: bool = True
    scales_embedding: bool = False
    final_logit_softcap: float | None = None
    attn_logits_soft_cap: float | None = None
    norm_epsilon: float = 1e-6
    norms_add_one: bool = False
    use_post_norms: bool = False
    use_qk_norm: bool = False
    query_pre_attn_scalar: int | None = None
    local_base_frequency: int = 10_000
    global_base_frequency: int = 10_000
    local_scale_factor: float = 1.0
    global_scale_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f'Expected num_heads to be a multiple of num_kv_heads={self.num_kv_heads}, '
                f'got num_heads={self.num_heads}. Every key head serves equally many query heads.'
            )
        if self.head_dim % 2:
            raise ValueError(
                f'Expected an even head_dim, got head_dim={self.head_dim}. '
                'Rotary positions turn the two halves of a head.'
            )
        if 'local' in self.attention_types and self.sliding_window_size is None:
            raise ValueError(
                'Expected a sliding_window_size for the local layers, got sliding_window_size=None. '
                'Give the window in tokens, or make every layer global.'
            )

    @property
    def num_layers(self) -> int:
        """Number of transformer blocks."""
        return len(self.attention_types)

    @property
    def num_parameters(self) -> int:
        """Exact number of weights, with the embedding and the output layer."""
        attention = self.head_dim * self.embed_dim * 2 * (self.num_heads + self.num_kv_heads)
        feed_forward = 3 * self.embed_dim * self.hidden_dim
        norms = self.embed_dim * (4 if self.use_post_norms else 2)
        if self.use_qk_norm:
            norms += 2 * self.head_dim
        per_layer = attention + feed_forward + norms
        tables = self.num_embed * self.embed_dim * (1 if self.ties_output else 2)
        return tables + self.num_layers * per_layer + self.embed_dim

    def adapter_parameters(self, rank: int | None) -> int:
        """See `Sizes.adapter_parameters`: factors of the four matrices of each layer."""
        if rank is None:
            return self.num_parameters
        heads, width = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim, self.embed_dim
        sides = width + heads, self.num_heads * self.head_dim + width
        return self.num_layers * rank * (sum(sides) + 2 * width + 3 * self.hidden_dim)

    def gradient_bytes(self, tokens: int, length: int, *, remat: bool) -> int:
        of_layer = 4 * tokens * (_KEPT_WIDTHS * self.embed_dim + _KEPT_SHARES * self.num_heads * length)
        if not remat:
            return self.num_layers * of_layer
        # The inputs of all layers, and one layer whole.
        return self.num_layers * 4 * tokens * _ENTERING_WIDTHS * self.embed_dim + of_layer

    def cache_bytes_per_token(self, dtype_bytes: int) -> int:
        """See `Sizes.cache_bytes_per_token`: keys and values; local layers keep every slot too."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * dtype_bytes

    @property
    def query_scale(self) -> float:
        """Factor of the queries before they meet the keys (`query_pre_attn_scalar`)."""
        return (self.query_pre_attn_scalar or self.head_dim) ** -0.5
