"""A transformer as a `Tunable`: log probabilities of texts, to be differentiated by an adapter.

Texts are sampled by the very functions that are differentiated here (`layer.py`, `forward.py`).

Three things save time, and change no number but by rounding; and a fourth saves memory for time:

* Products of an instruction's tokens with the matrices do not depend on what follows. They are computed once
  for all rows (`products`), and a row's gradient by the matrices is computed as if it had computed them.
* Texts that follow one instruction share its keys and values.
* The output layer is one pass over the vocabulary, piece by piece, for a token's probability and the
  gradient of its logarithm: no logits of all columns are kept, or computed twice.
* What a layer computes is not kept for the way back, but what enters it: it is computed again from there.

Symbols are those of `forward.py`; and w instructions of P slots, c texts of T tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from etils import epy

from models.decoders.transformer import forward
from models.decoders.transformer.architecture import Architecture, LayerSizes
from models.decoders.transformer.arithmetic import Multiply, matmul, product
from models.decoders.transformer.layer import KeysValues, attention_shares, through_layer, window
from models.decoders.transformer.weights import ADAPTED, Adapted, Weights, adapt

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp

# Columns of the output layer that are computed at a time.
_COLUMNS = 4096
# Logits that are held at a time, for each unit, where all weights are trained: the output layer's are among
# them, and its logits are computed again on the way back.
_LOGITS_AT_A_TIME = 2**22

# For each layer, products with its matrices by their names.
type Products = tuple[dict[str, jax.Array], ...]


def products(architecture: Architecture, weights: Weights, adapter: Any, tokens: jax.Array) -> Products:
    """See `models.decoders.family.Tunable.products`."""
    weights = adapt(weights, adapter)
    slots, entering = jnp.arange(tokens.shape[1]), forward.embedded(architecture, weights, tokens)
    x, multiplied = entering.x, []
    with_keys = [layer for layer in architecture.layers if layer.has_keys]
    for layer in with_keys:
        of_layer: dict[str, jax.Array] = {}

        def multiply(
            name: str, x: jax.Array, weight: jax.Array | Adapted, of_layer: dict[str, jax.Array] = of_layer
        ) -> jax.Array:
            result = matmul(x, weight)
            if name in ADAPTED:  # those of experts are too large to be kept
                of_layer[name] = result
            return result

        attend = forward.to_itself(architecture, layer, slots)
        of_tokens, of_weights = entering.of_layer(layer.index), weights.layers[layer.index]
        x, _ = through_layer(architecture, layer, of_weights, x, of_tokens, slots, attend, multiply)
        multiplied.append(of_layer)
    # Later tokens see nothing else of the last layer with keys, and nothing of those behind it.
    multiplied[-1] = {'query_key_value': multiplied[-1]['query_key_value']}
    return (*multiplied, *[{} for _ in architecture.layers[len(with_keys) :]])


def log_probabilities(
    architecture: Architecture,
    weights: Weights,
    adapter: Any,
    instructions: tuple[jax.Array, jax.Array],
    texts: jax.Array,
    known: Products | None = None,
    *,
    remat: bool = False,
) -> jax.Array:
    """See `models.decoders.family.Tunable.log_probabilities`; `remat` as of `Family.load_tunable`."""
    a, (tokens, lengths) = architecture, instructions
    trains_all = isinstance(adapter, Weights)
    weights = adapt(weights, adapter)
    ways, count, places = len(tokens), len(texts), jnp.arange(texts.shape[1])
    slots = jnp.arange(tokens.shape[1])
    # The instruction's last token stands before the text's first, and the text's last before none.
    last = jnp.take_along_axis(tokens, lengths[:, None] - 1, axis=1)
    inputs = jnp.concatenate(
        [
            jnp.broadcast_to(last, (count, ways, 1)),
            jnp.broadcast_to(texts[:, None, :-1], (count, ways, len(places) - 1)),
        ],
        axis=2,
    )
    positions = lengths[:, None] - 1 + places  # [w T]
    of_instruction, entering = (forward.embedded(a, weights, of) for of in (tokens, inputs))

    def of_layer(
        sizes: LayerSizes,
        layer: Any,
        of_matrices: dict[str, jax.Array] | None,
        instruction: jax.Array,
        x: jax.Array,
        kept: tuple[KeysValues, KeysValues] | None,
    ) -> tuple[jax.Array, jax.Array, tuple[KeysValues, KeysValues]]:
        multiply = None if of_matrices is None else _as_known(of_matrices)
        earlier, earlier_texts = kept or (None, None)
        instruction, prompt = through_layer(
            a,
            sizes,
            layer,
            instruction,
            of_instruction.of_layer(sizes.index),
            slots,
            forward.to_itself(a, sizes, slots, earlier),
            multiply,
        )
        # [w T P] and [T T].
        before = jnp.broadcast_to(slots < lengths[:, None, None] - 1, (ways, len(places), len(slots)))
        among = places <= places[:, None]
        if sizes.attention_type == 'local':
            before &= slots > positions[..., None] - window(a)
            among &= places > places[:, None] - window(a)
        seen = jnp.concatenate([before, jnp.broadcast_to(among, (ways, *among.shape))], axis=-1)

        def attend(query: jax.Array, new: KeysValues | None) -> tuple[jax.Array, KeysValues]:
            if new is not None:
                of_texts = KeysValues(*(array.transpose(0, 1, 3, 2, 4) for array in new))
            elif earlier_texts is not None:
                of_texts = earlier_texts
            else:
                raise ValueError(
                    f'Expected keys and values for layer={sizes.index}, got kept=None. Give them.'
                )
            scores = jnp.concatenate(
                [
                    product('cwqkgh,wkph->cwkgqp', query, prompt.keys),
                    product('cwqkgh,cwkph->cwkgqp', query, of_texts.keys),
                ],
                axis=-1,
            )
            shares = attention_shares(a, scores, seen[:, None, None]).astype(query.dtype)
            of_prompt, of_text = jnp.split(shares, [prompt.keys.shape[-2]], axis=-1)
            mixed = product('cwkgqp,wkph->cwqkgh', of_prompt, prompt.values)
            return mixed + product('cwkgqp,cwkph->cwqkgh', of_text, of_texts.values), of_texts

        x, texts_kept = through_layer(a, sizes, layer, x, entering.of_layer(sizes.index), positions, attend)
        return instruction, x, (prompt, texts_kept)

    instruction, x = of_instruction.x, entering.x
    kept: list[tuple[KeysValues, KeysValues]] = []
    for sizes, layer in zip(a.layers, weights.layers, strict=True):
        through: Callable[..., Any] = functools.partial(of_layer, sizes)
        if remat:
            through = jax.checkpoint(through)
        of_matrices = None if known is None else known[sizes.index]
        seen_before = None if sizes.has_keys else kept[sizes.reads]
        instruction, x, kept_here = through(layer, of_matrices, instruction, x, seen_before)
        kept.append(kept_here)
    states = forward.leaving(a, weights, x)
    states = states.reshape(-1, states.shape[-1])
    targets = jnp.broadcast_to(texts[:, None], (count, ways, len(places)))
    of_targets = _of_targets_in_pieces if trains_all else _of_targets
    return of_targets(a, weights, states, targets.reshape(-1)).reshape(targets.shape)


def _as_known(of_matrices: dict[str, jax.Array]) -> Multiply:
    """Takes products that are at hand; multiplies by matrices whose products are not, which nothing reads."""

    def multiply(name: str, x: jax.Array, weight: jax.Array | Adapted) -> jax.Array:
        return _known(x, weight, of_matrices[name]) if name in of_matrices else matmul(x, weight)

    return multiply


# --- A product that is known ---------------------------------------------------------


def _known(x: jax.Array, weight: jax.Array | Adapted, result: jax.Array) -> jax.Array:
    """`result`, which is `matmul(x, weight)`; its gradient is that of the product."""

    @jax.custom_vjp
    def known(x: jax.Array, weight: jax.Array | Adapted, result: jax.Array) -> jax.Array:
        return result

    def forward_pass(x: jax.Array, weight: jax.Array | Adapted, result: jax.Array) -> Any:
        return result, (x, weight)

    def backward_pass(kept: Any, gradient: jax.Array) -> Any:
        # The product that is computed here is used by nothing, and left out by the compiler.
        return *jax.vjp(matmul, *kept)[1](gradient), None

    known.defvjp(forward_pass, backward_pass)
    return known(x, weight, result)


# --- The output layer ----------------------------------------------------------------


def _of_targets(a: Architecture, weights: Weights, states: jax.Array, targets: jax.Array) -> jax.Array:
    """`[n]` log probabilities of targets `[n]` after states `[n D]`, to be differentiated by states alone."""

    @jax.custom_vjp
    def chosen(states: jax.Array, table: jax.Array, targets: jax.Array) -> jax.Array:
        return _in_one_pass(a, table, states, targets)[0]

    def forward_pass(states: jax.Array, table: jax.Array, targets: jax.Array) -> Any:
        return _in_one_pass(a, table, states, targets)

    def backward_pass(by_states: jax.Array, gradient: jax.Array) -> Any:
        return gradient[:, None] * by_states, None, None

    chosen.defvjp(forward_pass, backward_pass)
    return chosen(states, weights.output_layer, targets)


def _in_one_pass(
    a: Architecture, table: jax.Array, states: jax.Array, targets: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Log probabilities `[n]` and their gradients by the states `[n D]`.

    The gradient is the target's row of the table less the average row under the model's distribution. Sums
    of exponentials and of rows are kept over the greatest logit so far, and scaled when a greater one comes.
    """
    cap, whole = a.final_logit_softcap, len(table) // _COLUMNS

    def capped(logits: jax.Array) -> tuple[jax.Array, jax.Array | float]:
        """The logits, and their derivative by those before the cap."""
        if cap is None:
            return logits, 1.0
        of_cap = jnp.tanh(logits / cap)
        return of_cap * cap, 1 - of_cap**2

    def add(sums: tuple[jax.Array, jax.Array, jax.Array], rows: jax.Array) -> Any:
        most, total, mean = sums
        logits, slope = capped(product('nd,vd->nv', states.astype(table.dtype), rows))
        greatest = jnp.maximum(most, logits.max(axis=1))
        scale, shares = jnp.exp(most - greatest), jnp.exp(logits - greatest[:, None])
        of_rows = product('nv,vd->nd', (shares * slope).astype(rows.dtype), rows)
        return greatest, total * scale + shares.sum(axis=1), mean * scale[:, None] + of_rows

    def of_piece(index: jax.Array, sums: tuple[jax.Array, jax.Array, jax.Array]) -> Any:
        return add(sums, jax.lax.dynamic_slice_in_dim(table, index * _COLUMNS, _COLUMNS))

    n = len(states)
    sums = jnp.full(n, -jnp.inf), jnp.zeros(n), jnp.zeros(states.shape)
    if whole:
        sums = jax.lax.fori_loop(0, whole, of_piece, sums)
    if len(table) % _COLUMNS:
        sums = add(sums, table[whole * _COLUMNS :])
    most, total, mean = sums
    rows = table[targets].astype(jnp.float32)
    chosen, slope = capped(jnp.sum(states.astype(table.dtype).astype(jnp.float32) * rows, axis=1))
    by_chosen = rows if cap is None else rows * jnp.asarray(slope)[:, None]
    return chosen - most - jnp.log(total), by_chosen - mean / total[:, None]


def _of_targets_in_pieces(
    a: Architecture, weights: Weights, states: jax.Array, targets: jax.Array
) -> jax.Array:
    """The same, to be differentiated by the table as well."""
    size = min(len(targets), max(8, _LOGITS_AT_A_TIME // a.num_embed))
    padding = -len(targets) % size

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def of_piece(piece: tuple[jax.Array, jax.Array]) -> jax.Array:
        states, targets = piece
        logits = forward.logits(a, weights, states)
        chosen = jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
        return chosen - jax.nn.logsumexp(logits, axis=1)

    pieces = (
        jnp.pad(states, ((0, padding), (0, 0))).reshape(-1, size, states.shape[-1]),
        jnp.pad(targets, (0, padding)).reshape(-1, size),
    )
    return jax.lax.map(of_piece, pieces).reshape(-1)[: len(targets)]
