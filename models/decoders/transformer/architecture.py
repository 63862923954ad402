"""The numbers that define one decoder-only transformer; nothing here imports JAX."""

import dataclasses
import functools
import math
from typing import Literal

from models.decoders import family

Activation = Literal['gelu', 'silu']
AttentionType = Literal['local', 'global']
# Float32 numbers of a token in a layer that a gradient reads again, in widths of the residual stream, and of
# each head for each token that it attends to; and those of what enters a layer. Fitted to what the compiler
# says of Gemma 3 270M and 4B and Gemma 2 2B (docs/measured.md), whose feed-forward parts have four widths.
_KEPT_WIDTHS, _KEPT_SHARES, _ENTERING_WIDTHS = 34, 4, 5
# The same of a feed-forward part, experts and all, for each number beyond four widths; and of each copy of
# the residual stream. Fitted to Gemma 4 E2B and 26B-A4B and Gemma 3n E4B, of a few layers.
_KEPT_HIDDEN, _KEPT_COPIES, _ENTERING_COPIES = 5, 10, 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experts:
    """Feed-forward layers beside the one that all tokens pass: a router chooses some for each token.

    Attributes:
        count: Experts X of a layer.
        hidden_dim: Width of each.
        per_token: Experts that a token passes.
    """

    count: int
    hidden_dim: int
    per_token: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class AltUp:
    """A residual stream in several copies, of which each layer computes one (Baykal et al. 2023).

    Attributes:
        copies: Number A of the copies.
        largest_coefficient: Bound on the coefficients with which copies are mixed.
        laurel_rank: Rank of the matrix beside a layer's attention (LAuReL: Menghani et al. 2024).
        sparse_layers: Layers, from the first on, whose gate lets through its largest activations alone.
        sparsity: Share of activations that it does not, were they normally distributed.
    """

    copies: int
    largest_coefficient: float
    laurel_rank: int
    sparse_layers: int
    sparsity: float


@dataclasses.dataclass(frozen=True)
class LayerSizes:
    """The sizes of one layer.

    Attributes:
        index: Its number.
        attention_type: Its kind of attention.
        head_dim: Width H of a head.
        num_kv_heads: Key and value heads K.
        hidden_dim: Width F of the feed-forward part.
        reads: Number of the layer whose keys and values it attends to: its own, or an earlier one's.
        values_are_keys: True if values come of the keys' matrix.
    """

    index: int
    attention_type: AttentionType
    head_dim: int
    num_kv_heads: int
    hidden_dim: int
    reads: int
    values_are_keys: bool

    @property
    def has_keys(self) -> bool:
        """True if it has keys and values of its own."""
        return self.reads == self.index


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture(family.Sizes):
    """The numbers that define one decoder. Families may add facts about their files.

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
        global_rotary_share: Share of a head that positions turn in global layers.
        global_head_dim: H of global layers; None for `head_dim`.
        num_global_kv_heads: K of global layers; None for `num_kv_heads`.
        global_values_are_keys: True if values of global layers come of the keys' matrix.
        normalizes_values: True if values are normalized, with no weight.
        num_kv_shared_layers: Last layers that have no keys and values: each attends to those of the last
            layer of its kind before all of them.
        kv_shared_hidden_dim: F of these layers; None for `hidden_dim`.
        per_layer_dim: Width E of the embedding that a token has in every layer; 0 for none.
        scales_layers: True if a layer's output is multiplied by a weight.
        experts: Experts of every layer; None for none.
        altup: Copies of the residual stream; None for one.

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
    global_rotary_share: float = 1.0
    global_head_dim: int | None = None
    num_global_kv_heads: int | None = None
    global_values_are_keys: bool = False
    normalizes_values: bool = False
    num_kv_shared_layers: int = 0
    kv_shared_hidden_dim: int | None = None
    per_layer_dim: int = 0
    scales_layers: bool = False
    experts: Experts | None = None
    altup: AltUp | None = None

    def __post_init__(self) -> None:
        for name, heads in (
            ('num_kv_heads', self.num_kv_heads),
            ('num_global_kv_heads', self.num_global_kv_heads or 1),
        ):
            if self.num_heads % heads:
                raise ValueError(
                    f'Expected num_heads to be a multiple of {name}={heads}, '
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

    @functools.cached_property
    def layers(self) -> tuple[LayerSizes, ...]:
        """The sizes of each layer.

        Raises:
            ValueError: No layer with keys and values is of a kind that another attends to.
        """
        first_shared = self.num_layers - self.num_kv_shared_layers
        with_keys = self.attention_types[:first_shared]
        if missing := sorted(set(self.attention_types) - set(with_keys)):
            raise ValueError(
                f'Expected a layer of each kind among those with keys, got num_kv_shared_layers='
                f'{self.num_kv_shared_layers} and no {missing[0]} layer before. Lower it.'
            )
        last = {kind: index for index, kind in enumerate(with_keys)}
        return tuple(
            self._layer(index, kind, index if index < first_shared else last[kind])
            for index, kind in enumerate(self.attention_types)
        )

    def _layer(self, index: int, kind: AttentionType, reads: int) -> LayerSizes:
        is_global, shares = kind == 'global', reads != index
        return LayerSizes(
            index=index,
            attention_type=kind,
            head_dim=(is_global and self.global_head_dim) or self.head_dim,
            num_kv_heads=(is_global and self.num_global_kv_heads) or self.num_kv_heads,
            hidden_dim=(shares and self.kv_shared_hidden_dim) or self.hidden_dim,
            reads=reads,
            values_are_keys=is_global and self.global_values_are_keys,
        )

    def matrix_shapes(self, layer: LayerSizes) -> dict[str, tuple[int, int]]:
        """Shapes of the matrices of a layer that low-rank factors may be added to."""
        heads = self.num_heads
        if layer.has_keys:
            heads += layer.num_kv_heads * (1 if layer.values_are_keys else 2)
        return {
            'query_key_value': (self.embed_dim, heads * layer.head_dim),
            'attention_output': (self.num_heads * layer.head_dim, self.embed_dim),
            'gate_up': (self.embed_dim, 2 * layer.hidden_dim),
            'down': (layer.hidden_dim, self.embed_dim),
        }

    def layer_shapes(self, layer: LayerSizes) -> dict[str, tuple[int, ...]]:
        """Shapes of all weights of a layer, by field of `weights.Layer` and of what it holds."""
        width = self.embed_dim
        shapes: dict[str, tuple[int, ...]] = {
            **self.matrix_shapes(layer),
            'pre_attention_norm': (width,),
            'pre_ffw_norm': (width,),
        }
        if self.use_qk_norm:
            shapes['query_norm'] = (layer.head_dim,)
            if layer.has_keys:
                shapes['key_norm'] = (layer.head_dim,)
        if self.use_post_norms:
            shapes |= {'post_attention_norm': (width,), 'post_ffw_norm': (width,)}
        if self.scales_layers:
            shapes['scale'] = (1,)
        if self.per_layer_dim:
            shapes |= {
                'per_layer_gate': (width, self.per_layer_dim),
                'per_layer_up': (self.per_layer_dim, width),
                'per_layer_norm': (width,),
            }
        if self.experts is not None:
            count, hidden = self.experts.count, self.experts.hidden_dim
            shapes |= {
                'router': (width, count),
                'router_scale': (width,),
                'experts_norm': (width,),
                'experts_gate_up': (width, 2 * count * hidden),
                'experts_down': (count * hidden, width),
                'experts_scale': (count,),
                'post_experts_norm': (width,),
                'post_dense_norm': (width,),
            }
        if self.altup is not None:
            copies, rank = self.altup.copies, self.altup.laurel_rank
            shapes |= {
                'altup_norm': (width,),
                'altup_router': (width, copies),
                'altup_prediction': (copies, copies, copies),
                'altup_correction': (copies, copies),
                'altup_scale': (width,),
                'laurel_down': (width, rank),
                'laurel_up': (rank, width),
                'laurel_norm': (width,),
            }
        return shapes

    def outer_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights of no layer, by field of `weights.Weights` and of what it holds."""
        width, table = self.embed_dim, (self.num_embed, self.embed_dim)
        shapes: dict[str, tuple[int, ...]] = {'embedding': table, 'final_norm': (width,)}
        if not self.ties_output:
            shapes['output'] = table
        if self.per_layer_dim:
            of_layers = self.num_layers * self.per_layer_dim
            shapes |= {
                'per_layer_embedding': (self.num_embed, of_layers),
                'per_layer_projection': (width, of_layers),
                'per_layer_projection_norm': (self.per_layer_dim,),
            }
        if self.altup is not None:
            others = (self.altup.copies - 1, width, width)
            shapes |= {'altup_copying': others, 'altup_joining': others}
        return shapes

    @property
    def num_parameters(self) -> int:
        """Exact number of weights, with the embedding and the output layer."""
        of_layers = (self.layer_shapes(layer) for layer in self.layers)
        return sum(
            math.prod(shape) for shapes in (self.outer_shapes(), *of_layers) for shape in shapes.values()
        )

    def adapter_parameters(self, rank: int | None) -> int:
        """See `Sizes.adapter_parameters`: factors of the four matrices of each layer."""
        if rank is None:
            return self.num_parameters
        return rank * sum(sum(sum(shape) for shape in self.matrix_shapes(of).values()) for of in self.layers)

    def gradient_bytes(self, tokens: int, length: int, *, remat: bool) -> int:
        width, copies = self.embed_dim, 0 if self.altup is None else self.altup.copies
        experts = 0 if self.experts is None else self.experts.count * self.experts.hidden_dim
        kept = (_KEPT_WIDTHS + _KEPT_COPIES * copies) * width + _KEPT_SHARES * self.num_heads * length
        beyond = [max(0, layer.hidden_dim + experts - 4 * width) for layer in self.layers]
        of_layers = [4 * tokens * (kept + _KEPT_HIDDEN * more) for more in beyond]
        if not remat:
            return sum(of_layers)
        # The inputs of all layers, and one layer whole.
        entering = (_ENTERING_WIDTHS + _ENTERING_COPIES * copies) * width
        return self.num_layers * 4 * tokens * entering + max(of_layers)

    def cache_bytes_per_token(self, dtype_bytes: int) -> int:
        """See `Sizes.cache_bytes_per_token`: keys and values; local layers keep every slot too."""
        kept = (layer for layer in self.layers if layer.has_keys)
        return sum(2 * layer.num_kv_heads * layer.head_dim * dtype_bytes for layer in kept)

    @property
    def query_scale(self) -> float:
        """Factor of the queries before they meet the keys (`query_pre_attn_scalar`)."""
        return (self.query_pre_attn_scalar or self.head_dim) ** -0.5
