"""FT's loss: log probabilities against a full softmax, the mismatch term against equation 4, the adapter."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.decoders.transformer import forward, tuning
from models.decoders.transformer.weights import ADAPTED, Adapter, Weights, adapt, adapter_shapes
from models.finetuning import loss
from tests.models.finetuning import tiny

pytestmark = pytest.mark.heavy

RNG = np.random.default_rng(5)
TOKENS = RNG.integers(4, 260, (3, 20)).astype(np.int32)


@jax.jit
def _next_logits(weights: Weights, prompt: jax.Array, length: jax.Array) -> jax.Array:
    states, _ = forward.read_prompts(
        tiny.ARCHITECTURE, weights, prompt, length, example_slots=1, piece_tokens=64
    )
    return forward.logits(tiny.ARCHITECTURE, weights, states)[0]


def slow_log_probabilities(weights: Weights, row: np.ndarray, first: int, count: int) -> np.ndarray:
    """Token after token, each from a prompt of its own, which nothing but padding follows."""
    found = []
    for place in range(first, first + count):
        prompt = np.where(np.arange(len(row)) < place, row, 0)
        logits = np.asarray(_next_logits(weights, prompt[None], np.array([place])), float)
        found.append(logits[row[place]] - np.logaddexp.reduce(logits))
    return np.array(found)


@jax.jit
def merged(weights: Weights, adapter: Adapter) -> Weights:
    """The factors multiplied out, or the difference, in the weights themselves."""
    if isinstance(adapter, Weights):
        leaves = zip(jax.tree.leaves(weights), jax.tree.leaves(adapter), strict=True)
        return jax.tree.unflatten(jax.tree.structure(weights), [of + more for of, more in leaves])
    layers = tuple(
        layer._replace(**{name: getattr(layer, name) + of[name].down @ of[name].up for name in ADAPTED})
        for layer, of in zip(weights.layers, adapter, strict=True)
    )
    return weights._replace(layers=layers)


# One program each: an operation alone would be compiled by itself.
@functools.partial(jax.jit, static_argnames='count')
def said(weights: Weights, adapter: Adapter, tokens: np.ndarray, first: np.ndarray, count: int) -> jax.Array:
    """`[m count]`: of each row, what is said of `count` tokens from `first` on, after those before."""

    def of_row(row: jax.Array, start: jax.Array) -> jax.Array:
        text = jax.lax.dynamic_slice_in_dim(row, start, count)
        instruction = row[None], start[None]
        return tuning.log_probabilities(tiny.ARCHITECTURE, weights, adapter, instruction, text[None])[0, 0]

    return jax.vmap(of_row)(jnp.asarray(tokens), jnp.asarray(first))


@pytest.mark.parametrize('rank', [2, None])
def test_log_probabilities_are_those_of_a_full_softmax_over_merged_weights(rank: int | None) -> None:
    weights, adapter = tiny.weights(), tiny.adapter(rank)
    first = np.array([3, 7, 1])
    found = said(weights, adapter, TOKENS, first, 9)
    for row, start, of_row in zip(TOKENS, first, found, strict=True):
        slow = slow_log_probabilities(merged(weights, adapter), row, start, 9)
        np.testing.assert_allclose(of_row, slow, atol=2e-4)
        assert np.abs(of_row - slow_log_probabilities(weights, row, start, 9)).max() > 0.01


@pytest.mark.first
@pytest.mark.parametrize('weight, wrong', [(0.2, [2]), (0.5, [0, 2]), (0.0, [])])
def test_the_loss_is_equation_4_on_the_tokens_of_the_texts(weight: float, wrong: list[int]) -> None:
    weights, adapter = tiny.weights(), tiny.adapter()
    prompts, lengths = RNG.integers(4, 260, (3, 5)).astype(np.int32), np.array([3, 5, 4], np.int32)
    texts = RNG.integers(4, 260, (2, 6)).astype(np.int32)
    text_lengths = np.array([6, 4], np.int32)
    tunable = tiny.Tiny().load_tunable('tiny', '', dtype='float32')
    of_unit = jax.jit(loss.unit_loss(tunable, max_tokens=6, mismatch_weight=weight))
    model = weights, (jnp.asarray(prompts), jnp.asarray(lengths), None)
    unit = {'instructions': np.array([1, *wrong], np.int32), 'texts': texts, 'lengths': text_lengths}
    found = of_unit(adapter, model, unit)

    def nll(prompt: int, text: int) -> float:
        row = np.concatenate([prompts[prompt][: lengths[prompt]], texts[text][: text_lengths[text]]])
        return -float(
            slow_log_probabilities(merged(weights, adapter), row, lengths[prompt], text_lengths[text]).sum()
        )

    expected = sum(
        nll(1, text) - (weight / len(wrong) * sum(nll(prompt, text) for prompt in wrong) if wrong else 0.0)
        for text in range(2)
    )
    assert float(found) == pytest.approx(expected / 6, rel=1e-4)
    # Padding of a text, or a text that a unit does not have, changes nothing.
    filled = {**unit, 'texts': np.where(np.arange(6) < text_lengths[:, None], texts, 0)}
    assert float(of_unit(adapter, model, filled)) == float(found)


def test_the_first_adapter_adds_nothing_and_learns() -> None:
    from models.finetuning import adapter as adapters

    shapes = adapter_shapes(tiny.ARCHITECTURE, 2)
    first = adapters.first(shapes, 2, lambda count: np.random.default_rng(0).normal(size=count))
    weights, starts = tiny.weights(), np.array([2, 2, 2])

    @jax.jit
    def total(adapter: Adapter) -> jax.Array:
        return said(weights, adapter, TOKENS, starts, 5).sum()

    zeros = jax.tree.map(jnp.zeros_like, first)
    assert float(total(first)) == pytest.approx(float(total(zeros)), rel=1e-6)
    gradient = jax.jit(jax.grad(total))(jax.tree.map(jnp.asarray, first))
    assert all(np.abs(of['down'].up).max() > 0 for of in gradient)
    assert tiny.ARCHITECTURE.adapter_parameters(2) == sum(leaf.size for leaf in jax.tree.leaves(first))


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_a_difference_of_zero_leaves_every_bit_and_every_weight_learns(dtype: str) -> None:
    from models.finetuning import adapter as adapters

    weights = jax.tree.map(lambda leaf: leaf.astype(dtype), tiny.weights())
    shapes = adapter_shapes(tiny.ARCHITECTURE, None)
    zero = adapters.first(shapes, None, lambda _: pytest.fail('it begins at zero'))
    assert jax.tree.structure(zero) == jax.tree.structure(weights)
    assert {leaf.dtype for leaf in jax.tree.leaves(zero)} == {np.dtype('float32')}

    def found(adapter: Adapter) -> jax.Array:
        return said(weights, adapter, TOKENS, np.array([2, 2, 2]), 5)

    gradient_of = jax.jit(jax.grad(lambda adapter: found(adapter).sum()))
    kept = jax.tree.map(lambda before, after: bool((before == after).all()), weights, adapt(weights, zero))
    assert all(jax.tree.leaves(kept))
    # Factors that are zero leave the weights as they are; the output layer's sums have another order.
    factors = jax.tree.map(jnp.zeros_like, tiny.adapter())
    np.testing.assert_allclose(found(zero), found(factors), rtol=1e-5)
    for adapter in (zero, tiny.adapter(None)):
        gradient = gradient_of(jax.tree.map(jnp.asarray, adapter))
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
            assert leaf.dtype == jnp.float32 and np.abs(leaf).max() > 0, path
    # Steps that bfloat16 would round away one by one add up.
    step = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 2.0**-12), zero)
    many = jax.tree.map(lambda leaf: 64 * leaf, step)
    moved = jax.tree.map(lambda before, after: bool((before != after).any()), weights, adapt(weights, many))
    assert all(jax.tree.leaves(moved))


def test_every_set_of_wrong_instructions_is_equally_likely() -> None:
    words = np.random.default_rng(2).integers(0, 2**63, 6_000)
    drawn = [tuple(sorted(loss.wrong_instructions(int(word), 1, 4, 2))) for word in words]
    counts = {pair: drawn.count(pair) for pair in set(drawn)}
    assert counts.keys() == {(0, 2), (0, 3), (2, 3)}
    # Five standard deviations of a binomial.
    assert all(abs(count - 2_000) < 5 * 37 for count in counts.values())
