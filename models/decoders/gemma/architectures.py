"""Model sizes by name, as plain numbers; nothing here imports JAX or gemma.

Sources: the gemma library's presets (`gm.nn.Gemma2_2B` and so on; the text part
of the multi-modal ones), against which the tests compare every size, and for
Gemma 1.1, which the library has no class for, the Gemma report, arXiv 2403.08295,
table 1.
"""

import dataclasses
from typing import Literal

from models.decoders import family

AttentionType = Literal['local', 'global']
QueryScale = Literal['by_one_over_sqrt_head_dim', 'by_one_over_sqrt_embed_dim_div_num_heads']
# Float32 numbers of a token in a layer that a gradient reads again, in widths of the residual stream, and of
# each head for each token that it attends to; and those of what enters a layer. Fitted to what the compiler
# says of Gemma 3 270M and 4B and Gemma 2 2B (docs/measured.md).
_KEPT_WIDTHS, _KEPT_SHARES, _ENTERING_WIDTHS = 34, 4, 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Ids that a Gemma tokenizer gives its control pieces.

    Attributes:
        pad: Padding.
        eos: End of text; a stop token.
        bos: Start of text, the first token of every prompt.
        unk: Unknown piece; byte fallback leaves it unused.
        mask: Unused by decoders.
        start_of_turn: Opens a turn of the instruction-tuned models.
        end_of_turn: Closes a turn; a stop token.
    """

    pad: int = 0
    eos: int = 1
    bos: int = 2
    unk: int = 3
    mask: int = 4
    start_of_turn: int
    end_of_turn: int

    @property
    def stop(self) -> tuple[int, int]:
        """The tokens that end an example."""
        return self.eos, self.end_of_turn


# Gemma 1 and 2 share one tokenizer; Gemma 3 moved the turns down by one.
SPECIAL_TOKENS = {
    1: SpecialTokens(start_of_turn=106, end_of_turn=107),
    2: SpecialTokens(start_of_turn=106, end_of_turn=107),
    3: SpecialTokens(start_of_turn=105, end_of_turn=106),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture(family.Sizes):
    """The numbers that define one Gemma decoder.

    Attributes:
        num_embed: Vocabulary size V.
        embed_dim: Width D of the residual stream.
        hidden_dim: Width F of the feed-forward layers.
        num_heads: Query heads N.
        head_dim: Width H of a head, even.
        num_kv_heads: Key and value heads K; N must be a multiple of K.
        attention_types: One entry per layer.
        sliding_window_size: Window of the local layers, in tokens.
        generation: The Gemma generation whose special token ids apply (1, 2, 3).
        final_logit_softcap: Bound on the logits, by tanh; None leaves them as they are.
        attn_logits_soft_cap: The same for the attention scores.
        use_post_norms: Whether the outputs of attention and feed-forward are normalized too.
        use_qk_norm: Whether queries and keys are normalized.
        query_pre_attn_norm: What queries are scaled by: 1/√H, or 1/√(D/N).
        transpose_gating_einsum: Whether the gate's weight is stored as `[2 F D]`
            instead of `[2 D F]`.
        local_base_frequency: Base of the rotary wavelengths in local layers.
        global_base_frequency: The same in global layers.
        local_scale_factor: What positions are divided by in local layers.
        global_scale_factor: The same in global layers.

    Raises:
        ValueError: The numbers contradict one another.
    """

    hidden_dim: int
    num_heads: int
    head_dim: int
    num_kv_heads: int
    attention_types: tuple[AttentionType, ...]
    generation: int
    sliding_window_size: int | None = None
    final_logit_softcap: float | None = None
    attn_logits_soft_cap: float | None = None
    use_post_norms: bool = True
    use_qk_norm: bool = False
    query_pre_attn_norm: QueryScale = 'by_one_over_sqrt_head_dim'
    transpose_gating_einsum: bool = False
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
        if self.generation not in SPECIAL_TOKENS:
            raise ValueError(
                f'Expected generation to be one of {sorted(SPECIAL_TOKENS)}, got '
                f'generation={self.generation!r}. Take the one whose tokenizer the model uses.'
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
        """Exact number of weights, with the embedding, which is also the output layer."""
        attention = self.head_dim * self.embed_dim * 2 * (self.num_heads + self.num_kv_heads)
        feed_forward = 3 * self.embed_dim * self.hidden_dim
        norms = self.embed_dim * (4 if self.use_post_norms else 2)
        if self.use_qk_norm:
            norms += 2 * self.head_dim
        per_layer = attention + feed_forward + norms
        return self.num_embed * self.embed_dim + self.num_layers * per_layer + self.embed_dim

    def adapter_parameters(self, rank: int | None) -> int:
        """See `Sizes.adapter_parameters`: factors of the four matrices of each layer."""
        if rank is None:
            return self.num_parameters
        heads, width = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim, self.embed_dim
        sides = width + heads, self.num_heads * self.head_dim + width
        return self.num_layers * rank * (sum(sides) + 2 * width + 3 * self.hidden_dim)

    def gradient_bytes(self, tokens: int, length: int, *, remat: bool) -> int:
        """See `Sizes.gradient_bytes`."""
        of_layer = 4 * tokens * (_KEPT_WIDTHS * self.embed_dim + _KEPT_SHARES * self.num_heads * length)
        if not remat:
            return self.num_layers * of_layer
        # What enters the layers, and one layer whole.
        return self.num_layers * 4 * tokens * _ENTERING_WIDTHS * self.embed_dim + of_layer

    def cache_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes that one slot of one row takes in the attention cache, over all layers.

        Local layers keep every slot too.

        Args:
            dtype_bytes: Size of a key or value component: 2 in bfloat16, 4 in float32.

        Returns:
            Keys and values.
        """
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * dtype_bytes

    @property
    def query_scale(self) -> float:
        """What queries are multiplied by before they meet the keys (`query_pre_attn_norm`)."""
        if self.query_pre_attn_norm == 'by_one_over_sqrt_head_dim':
            return self.head_dim**-0.5
        return (self.embed_dim // self.num_heads) ** -0.5

    @property
    def special_tokens(self) -> SpecialTokens:
        """The special token ids of its generation."""
        return SPECIAL_TOKENS[self.generation]


def _alternating(num_layers: int) -> tuple[AttentionType, ...]:
    return tuple('global' if index % 2 else 'local' for index in range(num_layers))


def _five_to_one(num_layers: int) -> tuple[AttentionType, ...]:
    return tuple('local' if (index + 1) % 6 else 'global' for index in range(num_layers))


def _gemma2(
    *,
    embed_dim: int,
    hidden_dim: int,
    num_heads: int,
    head_dim: int,
    num_kv_heads: int,
    num_layers: int,
    query_pre_attn_norm: QueryScale = 'by_one_over_sqrt_head_dim',
    transpose_gating_einsum: bool = True,
) -> Architecture:
    return Architecture(
        num_embed=256_128,
        embed_dim=embed_dim,
        hidden_dim=hidden_dim,
        num_heads=num_heads,
        head_dim=head_dim,
        num_kv_heads=num_kv_heads,
        attention_types=_alternating(num_layers),
        generation=2,
        sliding_window_size=4096,
        final_logit_softcap=30.0,
        attn_logits_soft_cap=50.0,
        query_pre_attn_norm=query_pre_attn_norm,
        transpose_gating_einsum=transpose_gating_einsum,
    )


def _gemma3(
    *,
    embed_dim: int,
    hidden_dim: int,
    num_heads: int,
    num_kv_heads: int,
    num_layers: int,
    head_dim: int = 256,
    sliding_window_size: int = 1024,
    query_pre_attn_norm: QueryScale = 'by_one_over_sqrt_head_dim',
    global_scale_factor: float = 8.0,
) -> Architecture:
    return Architecture(
        num_embed=262_144,
        embed_dim=embed_dim,
        hidden_dim=hidden_dim,
        num_heads=num_heads,
        head_dim=head_dim,
        num_kv_heads=num_kv_heads,
        attention_types=_five_to_one(num_layers),
        generation=3,
        sliding_window_size=sliding_window_size,
        use_qk_norm=True,
        query_pre_attn_norm=query_pre_attn_norm,
        transpose_gating_einsum=True,
        global_base_frequency=1_000_000,
        global_scale_factor=global_scale_factor,
    )


ARCHITECTURES = {
    'bundled': Architecture(
        num_embed=4096, embed_dim=256, hidden_dim=512, num_heads=4, head_dim=64,
        num_kv_heads=2, attention_types=('local', 'global', 'local', 'global'),
        generation=3, sliding_window_size=256, use_qk_norm=True,
    ),
    'gemma1.1-2b': Architecture(
        num_embed=256_128, embed_dim=2048, hidden_dim=16_384, num_heads=8, head_dim=256,
        num_kv_heads=1, attention_types=('global',) * 18, generation=1, use_post_norms=False,
    ),
    'gemma2-2b': _gemma2(
        embed_dim=2304, hidden_dim=9216, num_heads=8, head_dim=256, num_kv_heads=4,
        num_layers=26, transpose_gating_einsum=False,
    ),
    'gemma2-9b': _gemma2(
        embed_dim=3584, hidden_dim=14_336, num_heads=16, head_dim=256, num_kv_heads=8, num_layers=42,
    ),
    'gemma2-27b': _gemma2(
        embed_dim=4608, hidden_dim=36_864, num_heads=32, head_dim=128, num_kv_heads=16,
        num_layers=46, query_pre_attn_norm='by_one_over_sqrt_embed_dim_div_num_heads',
    ),
    'gemma3-270m': _gemma3(
        embed_dim=640, hidden_dim=2048, num_heads=4, num_kv_heads=1, num_layers=18,
        sliding_window_size=512, global_scale_factor=1.0,
    ),
    'gemma3-1b': _gemma3(
        embed_dim=1152, hidden_dim=6912, num_heads=4, num_kv_heads=1, num_layers=26,
        sliding_window_size=512, global_scale_factor=1.0,
    ),
    'gemma3-4b': _gemma3(
        embed_dim=2560, hidden_dim=10_240, num_heads=8, num_kv_heads=4, num_layers=34,
    ),
    'gemma3-12b': _gemma3(
        embed_dim=3840, hidden_dim=15_360, num_heads=16, num_kv_heads=8, num_layers=48,
    ),
    'gemma3-27b': _gemma3(
        embed_dim=5376, hidden_dim=21_504, num_heads=32, head_dim=128, num_kv_heads=16,
        num_layers=62, query_pre_attn_norm='by_one_over_sqrt_embed_dim_div_num_heads',
    ),
}  # fmt: skip
