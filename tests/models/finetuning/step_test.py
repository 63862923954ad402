"""A cheap step has the same clipped sum, and a unit's padding changes no other unit."""

import dataclasses
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.decoders import family
from models.decoders.gemma.architectures import ARCHITECTURES
from models.decoders.transformer import tuning
from models.decoders.transformer.arithmetic import matmul
from models.decoders.transformer.weights import Adapter, adapter_shapes
from models.finetuning import loss, train, units
from models.finetuning.settings import TuningSettings
from models.privacy import gradients, whole_numbers
from models.privacy.randomness import RunKey
from tests.models.finetuning import tiny
from tests.oracles import finetuning as slow
from tests.samples import SECRET

pytestmark = pytest.mark.heavy

RNG = np.random.default_rng(3)
TEXTS = ['a', 'of a few', 'words and words', 'longer than the longest of all']
ROWS: list[units.Row] = [
    (bytes([number]) * 16, 'abc'[number % 3], [TEXTS[number % 4], TEXTS[number % 3]][: 1 + number % 2])
    for number in range(12)
]


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


def close(found: object, expected: object, tolerance: float) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance, rtol=1e-4)


def floats(whole: whole_numbers.Limbs, settings: TuningSettings) -> Adapter:
    """A clipped sum as a gradient."""
    return whole_numbers.as_floats(whole, settings.params.step)  # type: ignore[no-any-return]


@pytest.mark.parametrize('cap', [None, 3.0])
def test_the_output_layer_in_one_pass_is_the_softmax_and_its_gradient(
    cap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of which the last is shorter, with greater logits in the first, the last and between."""
    monkeypatch.setattr(tuning, '_COLUMNS', 64)
    architecture = dataclasses.replace(tiny.ARCHITECTURE, final_logit_softcap=cap)
    weights = tiny.weights()
    states = jnp.asarray(4 * RNG.normal(size=(9, architecture.embed_dim)), jnp.float32)
    targets = jnp.asarray(RNG.integers(0, architecture.num_embed, 9))
    shares = jnp.asarray(RNG.normal(size=9), jnp.float32)

    def of(which: object, states: jax.Array) -> jax.Array:
        return which(architecture, weights, states, targets)  # type: ignore[operator]

    found, pull = jax.vjp(functools.partial(of, tuning._of_targets), states)
    expected, slow_pull = jax.vjp(functools.partial(of, tuning._of_targets_in_pieces), states)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_allclose(pull(shares)[0], slow_pull(shares)[0], atol=2e-5)


@pytest.mark.parametrize(
    'is_known, remat',
    [(True, False), (False, False), (True, True)],
    ids=['products known', 'each row by itself', 'layers computed again'],
)
def test_a_units_gradient_by_its_factors_is_that_of_whole_rows(is_known: bool, remat: bool) -> None:
    weights, adapter = tiny.weights(), tiny.adapter()
    prompts, lengths = RNG.integers(4, 260, (3, 9)).astype(np.int32), np.array([3, 9, 1], np.int32)
    unit = {
        'instructions': np.array([1, 2, 0], np.int32),
        'texts': RNG.integers(4, 260, (2, 10)).astype(np.int32),
        'lengths': np.array([10, 4], np.int32),
    }
    tunable = tiny.Tiny().load_tunable('tiny', '', dtype='float32', remat=remat)
    known = tunable.products(weights, adapter, jnp.asarray(prompts)) if is_known else None
    instructions = jnp.asarray(prompts), jnp.asarray(lengths)
    of_unit = loss.unit_loss(tunable, max_tokens=12, mismatch_weight=0.4)
    slow_unit = {**unit, 'texts': np.pad(unit['texts'], ((0, 0), (0, 2)))}

    of_rows = slow.unit_loss(tiny.ARCHITECTURE, 12, 0.4)
    expected = jax.jit(jax.value_and_grad(of_rows))(adapter, (weights, instructions), slow_unit)
    found = jax.jit(jax.value_and_grad(of_unit))(adapter, (weights, (*instructions, known)), unit)
    assert max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected[1])) > 0.1
    close(found, expected, 2e-5)


def test_layers_that_are_computed_again_are_not_kept() -> None:
    """Memory for six layers in place of two: the program's, as the compiler states it, less its arguments."""
    architecture = dataclasses.replace(tiny.ARCHITECTURE, attention_types=('local', 'global') * 3)
    weights, adapter = tiny.weights(), tiny.adapter()
    weights, adapter = weights._replace(layers=weights.layers * 3), adapter * 3
    instructions = jnp.zeros((2, 9), jnp.int32), jnp.full(2, 9)
    held = {}
    for remat in (False, True):

        def loss_of(adapter: Adapter, remat: bool = remat) -> jax.Array:
            return tuning.log_probabilities(
                architecture, weights, adapter, instructions, jnp.zeros((8, 40), jnp.int32), remat=remat
            ).sum()

        program = jax.jit(jax.grad(loss_of)).lower(adapter).compile()
        held[remat] = program.memory_analysis().temp_size_in_bytes
    assert held[True] < 0.5 * held[False], held


@pytest.mark.parametrize('remat', [False, True])
def test_what_a_gradient_keeps_is_what_the_compiler_holds(remat: bool) -> None:
    """The bytes of six layers of Gemma 3 270M, by shapes alone; half or twice as much would be noticed."""
    whole = ARCHITECTURES['gemma3-270m']
    architecture = dataclasses.replace(whole, attention_types=whole.attention_types[:6])
    weights, adapter = adapter_shapes(architecture, None), adapter_shapes(architecture, 8)
    shape = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)

    tunable = family.Tunable(
        weights=weights,
        products=functools.partial(tuning.products, architecture),
        log_probabilities=functools.partial(tuning.log_probabilities, architecture, remat=remat),
    )
    of_unit = loss.unit_loss(tunable, max_tokens=64, mismatch_weight=0.2)
    prompts = shape((2, 64)), shape((2,))
    known = jax.eval_shape(tunable.products, weights, adapter, prompts[0])
    units_ = {'instructions': shape((2, 2)), 'texts': shape((2, 1, 64)), 'lengths': shape((2, 1))}
    program = jax.jit(train.batch_sum(gradients.clipped_sum(of_unit, 1.0), 2)).lower(
        adapter, (weights, (*prompts, known)), units_, shape(())
    )
    found = program.compile().memory_analysis().temp_size_in_bytes
    # Two units, each with two instructions of 64 tokens before its text of 64.
    tokens = 2 * 2 * (64 + 64)
    assert 0.6 < found / architecture.gradient_bytes(tokens, 128, remat=remat) < 1.6


@pytest.mark.first
def test_a_batch_of_texts_of_all_lengths_has_the_same_clipped_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, 'SHORTEST_PADDED', 8)
    settings = tiny.settings(max_example_tokens=16)
    trainer = train.Trainer(settings)
    encoded = units.encode(
        units.in_order(ROWS), settings.writer(), settings.labels, texts_of_unit=2, max_tokens=16
    )
    state = trainer.first_state(RunKey(SECRET)) | {'adapter': tiny.adapter()}
    words, members = RNG.integers(2**63, size=len(ROWS), dtype=np.uint64), np.arange(len(ROWS))
    found = trainer.gradient(state, encoded, members, words)
    assert trainer._batch_sum._cache_size() == 2
    batch = {
        'instructions': np.stack([trainer._chosen(int(encoded.labels[u]), int(words[u])) for u in members]),
        'texts': encoded.texts,
        'lengths': encoded.lengths,
    }
    model = tiny.weights(), trainer._model[1]
    of_units = slow.unit_loss(tiny.ARCHITECTURE, 16, settings.mismatch_weight)
    whole = jax.jit(gradients.clipped_sum(of_units, settings.params.clip_norm))

    def clipped(adapter: Adapter) -> Adapter:
        return whole(adapter, model, batch, is_padding_example=np.zeros(len(ROWS), bool))  # type: ignore[no-any-return]

    close(floats(found, settings), floats(whole_numbers.of_steps(clipped(tiny.adapter())), settings), 2e-4)
    nothing = trainer.gradient(state, encoded, members[:0], words)
    assert not any(np.asarray(leaf).any() for leaf in jax.tree.leaves(nothing))


def test_a_unit_is_padded_by_its_own_texts_to_a_quarter_of_the_longest() -> None:
    members, longest = np.array([1, 4, 5, 8, 9]), np.array([40, 0, 16, 17, 64])
    found = {most: list(of_length) for most, of_length in train.by_length(members, longest, 64)}
    assert found == {16: [4, 5], 32: [8], 48: [1], 64: [9]}
    for index, size in enumerate(longest):
        (alone,) = train.by_length(members[[index]], longest[[index]], 64)
        assert members[index] in found[alone[0]] and size <= alone[0]
    # Few tokens are padded to one length, and none to more than T.
    assert [most for most, _ in train.by_length(members, longest, 12)] == [12]
    assert [most for most, _ in train.by_length(members, longest, 72)] == [18, 54, 72]
    # An accelerator has one program for all texts.
    ((most, of_all),) = train.by_length(members, longest, 72, units.LENGTHS_ON_ACCELERATOR)
    assert most == 72 and list(of_all) == list(members)


def test_products_of_the_way_back_are_in_the_weights_type() -> None:
    """Products are exactly those of rounded numbers; rounding takes at most two parts in a thousand."""
    x, weight, gradient = (
        jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in ((2, 3, 24), (24, 16), (2, 3, 16))
    )

    def rounded(of: jax.Array) -> np.ndarray:
        return np.asarray(of.astype(jnp.bfloat16), np.float64)

    found, back = jax.vjp(matmul, x, weight.astype(jnp.bfloat16))
    of_x, of_weight = back(gradient)
    np.testing.assert_allclose(found, rounded(x) @ rounded(weight), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(of_x, rounded(gradient) @ rounded(weight).T, rtol=1e-5, atol=1e-5)
    by_hand = np.einsum('abc,abd->cd', rounded(x), rounded(gradient))
    np.testing.assert_allclose(np.asarray(of_weight, np.float64), by_hand, rtol=2**-8, atol=2**-8)
    whole, whole_back = jax.vjp(matmul, x, weight)
    for one, other in zip((found, of_x), (whole, whole_back(gradient)[0]), strict=True):
        assert 0 < np.linalg.norm(one - other) < 0.005 * np.linalg.norm(other)


def test_wrong_instructions_are_there_at_every_nth_step_alone() -> None:
    settings = tiny.settings(mismatch_every=3)
    assert [settings.wrong_prompts_of(step) for step in range(7)] == [1, 0, 0, 1, 0, 0, 1]
    always, sometimes = train.Trainer(tiny.settings()), train.Trainer(settings)
    never = train.Trainer(tiny.settings(mismatch_weight=0.0))
    encoded = always.encoded(units.in_order(ROWS))
    words, members = RNG.integers(2**63, size=len(ROWS), dtype=np.uint64), np.arange(len(ROWS))
    state = always.first_state(RunKey(SECRET)) | {'adapter': tiny.adapter()}
    for step in range(4):
        of_step = state | {'step': jnp.int32(step)}
        found, *either = (
            trainer.gradient(of_step, encoded, members, words) for trainer in (sometimes, always, never)
        )
        expected, other = either if step % 3 == 0 else either[::-1]
        close(found, expected, 0.0)
        of_both = (jax.tree.leaves(floats(one, settings)) for one in (found, other))
        assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(*of_both, strict=True))
