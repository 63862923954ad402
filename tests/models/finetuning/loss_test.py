"""FT's loss: log probabilities against a full softmax, the mismatch term against equation 4, the adapter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.decoders.gemma import forward, tuning
from models.finetuning import loss
from tests.models.finetuning import tiny

RNG = np.random.default_rng(5)
TOKENS = RNG.integers(4, 260, (3, 20)).astype(np.int32)


def slow_log_probabilities(weights: forward.Weights, row: np.ndarray, first: int, count: int) -> np.ndarray:
    """Token after token, each from a prompt of its own."""
    found = []
    for place in range(first, first + count):
        states, _ = forward.read_prompts(
            tiny.ARCHITECTURE,
            weights,
            jnp.asarray(row[None, :place]),
            jnp.array([place]),
            example_slots=1,
            in_pieces=False,
        )
        logits = np.asarray(forward.logits(tiny.ARCHITECTURE, weights, states)[0], float)
        found.append(logits[row[place]] - np.logaddexp.reduce(logits))
    return np.array(found)


def merged(weights: forward.Weights, adapter: forward.Adapter) -> forward.Weights:
    """The factors multiplied out, into the matrices themselves."""
    layers = tuple(
        layer._replace(
            **{name: getattr(layer, name) + of[name].down @ of[name].up for name in forward.ADAPTED}
        )
        for layer, of in zip(weights.layers, adapter, strict=True)
    )
    return weights._replace(layers=layers)


def test_log_probabilities_are_those_of_a_full_softmax_over_merged_weights() -> None:
    weights, adapter = tiny.weights(), tiny.adapter()
    first = np.array([3, 7, 1])
    found = tuning.log_probabilities(
        tiny.ARCHITECTURE, weights, adapter, jnp.asarray(TOKENS), jnp.asarray(first), count=9
    )
    for row, start, of_row in zip(TOKENS, first, found, strict=True):
        slow = slow_log_probabilities(merged(weights, adapter), row, start, 9)
        np.testing.assert_allclose(of_row, slow, atol=2e-4)
        assert np.abs(of_row - slow_log_probabilities(weights, row, start, 9)).max() > 0.01


@pytest.mark.parametrize('weight, wrong', [(0.2, [2]), (0.5, [0, 2]), (0.0, [])])
def test_the_loss_is_equation_4_on_the_tokens_of_the_texts(weight: float, wrong: list[int]) -> None:
    weights, adapter = tiny.weights(), tiny.adapter()
    prompts, lengths = RNG.integers(4, 260, (3, 5)).astype(np.int32), np.array([3, 5, 4], np.int32)
    texts = RNG.integers(4, 260, (2, 6)).astype(np.int32)
    text_lengths = np.array([6, 4], np.int32)
    of_unit = loss.unit_loss(
        tiny.Tiny().load_tunable('tiny', '', dtype='float32'), max_tokens=6, mismatch_weight=weight
    )
    unit = {'instructions': np.array([1, *wrong], np.int32), 'texts': texts, 'lengths': text_lengths}
    found = of_unit(adapter, (weights, (jnp.asarray(prompts), jnp.asarray(lengths))), unit)

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
    # What fills a text up, or a text that a unit does not have, changes nothing.
    filled = {**unit, 'texts': np.where(np.arange(6) < text_lengths[:, None], texts, 0)}
    assert float(of_unit(adapter, (weights, (jnp.asarray(prompts), jnp.asarray(lengths))), filled)) == float(
        found
    )


def test_the_first_adapter_adds_nothing_and_learns() -> None:
    from models.finetuning import adapter as adapters

    shapes = forward.adapter_shapes(tiny.ARCHITECTURE, 2)
    first = adapters.first(shapes, lambda count: np.random.default_rng(0).normal(size=count))
    weights, starts = tiny.weights(), jnp.array([2, 2, 2])

    def total(adapter: forward.Adapter) -> jax.Array:
        return tuning.log_probabilities(
            tiny.ARCHITECTURE, weights, adapter, jnp.asarray(TOKENS), starts, count=5
        ).sum()

    zeros = jax.tree.map(jnp.zeros_like, first)
    assert float(total(first)) == pytest.approx(float(total(zeros)), rel=1e-6)
    gradient = jax.grad(total)(jax.tree.map(jnp.asarray, first))
    assert all(np.abs(of['down'].up).max() > 0 for of in gradient)
    assert tiny.ARCHITECTURE.adapter_parameters(2) == sum(leaf.size for leaf in jax.tree.leaves(first))


def test_every_set_of_wrong_instructions_is_equally_likely() -> None:
    words = np.random.default_rng(2).integers(0, 2**63, 6_000)
    drawn = [tuple(sorted(loss.wrong_instructions(int(word), 1, 4, 2))) for word in words]
    counts = {pair: drawn.count(pair) for pair in set(drawn)}
    assert counts.keys() == {(0, 2), (0, 3), (2, 3)}
    # Five standard deviations of a binomial.
    assert all(abs(count - 2_000) < 5 * 37 for count in counts.values())
