"""Model sizes by name, as plain numbers; nothing here imports JAX or gemma.

Sources: the gemma library's presets (`gm.nn.Gemma2_2B` and so on; the text part
of the multi-modal ones), against which the tests compare every size, and for
Gemma 1.1, which the library has no class for, the Gemma report, arXiv 2403.08295,
table 1.
"""

import dataclasses
from typing import Literal

from models.decoders.transformer.architecture import Activation, AltUp, Architecture, AttentionType, Experts

type Generation = Literal['1', '2', '3', '3n', '4']


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Ids that a Gemma tokenizer gives its control pieces.

    Attributes:
        eos: End of text; a stop token.
        end_of_turn: Closes a turn; a stop token.
        turn_pieces: The pieces that open and close a turn.
    """

    pad: int = 0
    eos: int = 1
    bos: int = 2
    unk: int = 3
    mask: int = 4
    start_of_turn: int
    end_of_turn: int
    turn_pieces: tuple[str, str] = ('<start_of_turn>', '<end_of_turn>')

    @property
    def stop(self) -> tuple[int, int]:
        """The tokens that end an example."""
        return self.eos, self.end_of_turn


# Gemma 1 and 2 share one tokenizer; Gemma 3 moved the turns down by one, and Gemma 4 gave them other names.
SPECIAL_TOKENS: dict[Generation, SpecialTokens] = {
    '1': SpecialTokens(start_of_turn=106, end_of_turn=107),
    '2': SpecialTokens(start_of_turn=106, end_of_turn=107),
    '3': SpecialTokens(start_of_turn=105, end_of_turn=106),
    '3n': SpecialTokens(start_of_turn=105, end_of_turn=106),
    '4': SpecialTokens(start_of_turn=105, end_of_turn=106, turn_pieces=('<|turn>', '<turn|>')),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GemmaArchitecture(Architecture):
    """The numbers that define one Gemma decoder, with those that all of them share as defaults.

    Attributes:
        generation: The Gemma generation, a key of `SPECIAL_TOKENS`.
        transpose_gating_einsum: True if the gemma library stores the gate's weight as `[2 F D]`
            instead of `[2 D F]`.
    """

    generation: Generation
    transpose_gating_einsum: bool = False
    activation: Activation = 'gelu'
    scales_embedding: bool = True
    norms_add_one: bool = True
    use_post_norms: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.generation not in SPECIAL_TOKENS:
            raise ValueError(
                f'Expected generation to be one of {list(SPECIAL_TOKENS)}, got '
                f'generation={self.generation!r}. Take the one whose tokenizer the model uses.'
            )

    @property
    def special_tokens(self) -> SpecialTokens:
        """The special token ids of its generation."""
        return SPECIAL_TOKENS[self.generation]


def _every(period: int, num_layers: int) -> tuple[AttentionType, ...]:
    """One global layer after some local ones."""
    return tuple('local' if (index + 1) % period else 'global' for index in range(num_layers))


def _gemma2(
    *,
    embed_dim: int,
    hidden_dim: int,
    num_heads: int,
    head_dim: int,
    num_kv_heads: int,
    num_layers: int,
    query_pre_attn_scalar: int | None = None,
    transpose_gating_einsum: bool = True,
) -> GemmaArchitecture:
    return GemmaArchitecture(
        num_embed=256_128,
        embed_dim=embed_dim,
        hidden_dim=hidden_dim,
        num_heads=num_heads,
        head_dim=head_dim,
        num_kv_heads=num_kv_heads,
        attention_types=_every(2, num_layers),
        generation='2',
        sliding_window_size=4096,
        final_logit_softcap=30.0,
        attn_logits_soft_cap=50.0,
        query_pre_attn_scalar=query_pre_attn_scalar,
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
    query_pre_attn_scalar: int | None = None,
    global_scale_factor: float = 8.0,
) -> GemmaArchitecture:
    return GemmaArchitecture(
        num_embed=262_144,
        embed_dim=embed_dim,
        hidden_dim=hidden_dim,
        num_heads=num_heads,
        head_dim=head_dim,
        num_kv_heads=num_kv_heads,
        attention_types=_every(6, num_layers),
        generation='3',
        sliding_window_size=sliding_window_size,
        use_qk_norm=True,
        query_pre_attn_scalar=query_pre_attn_scalar,
        transpose_gating_einsum=True,
        global_base_frequency=1_000_000,
        global_scale_factor=global_scale_factor,
    )


def _gemma3n(*, hidden_dim: int, num_layers: int) -> GemmaArchitecture:
    return GemmaArchitecture(
        num_embed=262_144,
        embed_dim=2048,
        hidden_dim=hidden_dim,
        num_heads=8,
        head_dim=256,
        num_kv_heads=2,
        attention_types=_every(5, num_layers),
        generation='3n',
        sliding_window_size=512,
        # The published `config.json` says so; the gemma library's preset has none.
        final_logit_softcap=30.0,
        use_qk_norm=True,
        query_pre_attn_scalar=1,
        transpose_gating_einsum=True,
        norms_add_one=False,
        normalizes_values=True,
        global_base_frequency=1_000_000,
        num_kv_shared_layers=num_layers - 20,
        per_layer_dim=256,
        altup=AltUp(copies=4, largest_coefficient=120.0, laurel_rank=64, sparse_layers=10, sparsity=0.95),
    )


def _gemma4(
    *,
    embed_dim: int,
    hidden_dim: int,
    num_heads: int,
    num_kv_heads: int,
    attention_types: tuple[AttentionType, ...],
    sliding_window_size: int,
    num_global_kv_heads: int | None = None,
    num_kv_shared_layers: int = 0,
    kv_shared_hidden_dim: int | None = None,
    per_layer_dim: int = 0,
    experts: Experts | None = None,
) -> GemmaArchitecture:
    return GemmaArchitecture(
        num_embed=262_144,
        embed_dim=embed_dim,
        hidden_dim=hidden_dim,
        num_heads=num_heads,
        head_dim=256,
        num_kv_heads=num_kv_heads,
        attention_types=attention_types,
        generation='4',
        sliding_window_size=sliding_window_size,
        final_logit_softcap=30.0,
        use_qk_norm=True,
        query_pre_attn_scalar=1,
        transpose_gating_einsum=True,
        norms_add_one=False,
        normalizes_values=True,
        global_base_frequency=1_000_000,
        global_rotary_share=0.25,
        global_head_dim=512,
        num_global_kv_heads=num_global_kv_heads,
        # Sizes with few heads in global layers have no matrix for their values.
        global_values_are_keys=num_global_kv_heads is not None,
        num_kv_shared_layers=num_kv_shared_layers,
        kv_shared_hidden_dim=kv_shared_hidden_dim,
        per_layer_dim=per_layer_dim,
        scales_layers=True,
        experts=experts,
    )


ARCHITECTURES = {
    'bundled': GemmaArchitecture(
        num_embed=4096, embed_dim=256, hidden_dim=512, num_heads=4, head_dim=64,
        num_kv_heads=2, attention_types=('local', 'global', 'local', 'global'),
        generation='3', sliding_window_size=256, use_qk_norm=True,
    ),
    'gemma1.1-2b': GemmaArchitecture(
        num_embed=256_128, embed_dim=2048, hidden_dim=16_384, num_heads=8, head_dim=256,
        num_kv_heads=1, attention_types=('global',) * 18, generation='1', use_post_norms=False,
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
        num_layers=46, query_pre_attn_scalar=4608 // 32,
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
        num_layers=62, query_pre_attn_scalar=5376 // 32,
    ),
    'gemma3n-e2b': _gemma3n(hidden_dim=8192, num_layers=30),
    'gemma3n-e4b': _gemma3n(hidden_dim=16_384, num_layers=35),
    'gemma4-e2b': _gemma4(
        embed_dim=1536, hidden_dim=6144, num_heads=8, num_kv_heads=1, attention_types=_every(5, 35),
        sliding_window_size=512, num_kv_shared_layers=20, kv_shared_hidden_dim=12_288, per_layer_dim=256,
    ),
    'gemma4-e4b': _gemma4(
        embed_dim=2560, hidden_dim=10_240, num_heads=8, num_kv_heads=2, attention_types=_every(6, 42),
        sliding_window_size=512, num_kv_shared_layers=18, per_layer_dim=256,
    ),
    'gemma4-26b-a4b': _gemma4(
        embed_dim=2816, hidden_dim=2112, num_heads=16, num_kv_heads=8, attention_types=_every(6, 30),
        sliding_window_size=1024, num_global_kv_heads=2,
        experts=Experts(count=128, hidden_dim=704, per_token=8),
    ),
    'gemma4-31b': _gemma4(
        embed_dim=5376, hidden_dim=21_504, num_heads=32, num_kv_heads=16, attention_types=_every(6, 60),
        sliding_window_size=1024, num_global_kv_heads=4,
    ),
}  # fmt: skip
