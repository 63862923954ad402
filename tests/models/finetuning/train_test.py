"""Training goes on bit by bit after a kill, learns what units say, and stays a function of their multiset."""

import dataclasses
import pathlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import speed
from models.decoders.transformer import forward
from models.decoders.transformer.weights import Weights
from models.finetuning import adapter as adapters
from models.finetuning import train, units
from models.finetuning.settings import TuningSettings
from models.privacy import whole_numbers
from models.privacy.randomness import RunKey
from tests.models.finetuning import tiny
from tests.samples import SECRET

pytestmark = pytest.mark.heavy

KEY = RunKey(SECRET)
ROWS: list[units.Row] = [
    (
        bytes([number]) * 16,
        'abc'[number % 3],
        [f'{"abc"[number % 3] * 3} {number}', 'again'][: 1 + number % 2],
    )
    for number in range(30)
]


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


@pytest.fixture(scope='module', params=[2, None], ids=['factors', 'all weights'])
def trainer(_tiny: None, request: pytest.FixtureRequest) -> train.Trainer:
    return train.Trainer(tiny.settings(lora_rank=request.param))


class Killed(Exception):
    pass


@pytest.mark.first
def test_a_run_that_was_killed_goes_on_to_the_same_adapter(
    trainer: train.Trainer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = units.in_order(ROWS)
    whole = adapters.to_bytes(trainer.train(members, KEY))
    monkeypatch.setattr(train, 'CHECKPOINT_STEPS', 2)
    step, taken = trainer.step, 0

    def dies_at_the_fourth(*arguments: object) -> dict[str, object]:
        nonlocal taken
        taken += 1
        if taken == 4:
            raise Killed
        return step(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(trainer, 'step', dies_at_the_fourth)
    with pytest.raises(Killed):
        trainer.train(members, KEY, str(tmp_path / 'tuning'))
    resumed = adapters.to_bytes(trainer.train(members, KEY, str(tmp_path / 'tuning')))
    assert resumed == whole
    # Steps 3 to 6 were taken again, and no other.
    assert taken == 4 + 4
    # With other noise it is another adapter.
    assert adapters.to_bytes(trainer.train(members, RunKey(bytes(32)))) != whole


def test_time_is_noted_of_the_padded_texts_of_each_step(
    trainer: train.Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[tuple[str, int]] = []
    monkeypatch.setattr(speed, 'note', lambda work, tokens, seconds: noted.append((work, tokens)))
    members, settings = units.in_order(ROWS), trainer._settings
    trainer.train(members, KEY)
    encoded = trainer.encoded(members)
    of_steps = train.Batches.of(members, KEY, settings.run_id, settings.params).members
    padded = units.padded_lengths(encoded.lengths.max(axis=1), settings.max_example_tokens)
    texts = encoded.lengths.shape[1]
    expected = [
        texts * (1 + settings.wrong_prompts_of(step)) * int(padded[of_step].sum())
        for step, of_step in enumerate(of_steps)
    ]
    assert noted == [('training', tokens) for tokens in expected] and max(expected) > 0


def test_the_adapter_is_a_function_of_the_units_alone(trainer: train.Trainer) -> None:
    shuffled = [ROWS[place] for place in np.random.default_rng(0).permutation(len(ROWS))]
    assert units.in_order(shuffled) == units.in_order(ROWS)
    twice = units.in_order([*ROWS, ROWS[3]])
    assert [unit.ordinal for unit in twice if unit.unit_hash == ROWS[3][0]] == [0, 1]


@pytest.mark.parametrize('rank', [2, None])
def test_a_step_is_compiled_once_where_weights_lie_on_a_mesh(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, rank: int | None
) -> None:
    trainer = train.Trainer(tiny.settings(lora_rank=rank))
    mesh = jax.sharding.Mesh(np.array(jax.local_devices()), ('devices',))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    monkeypatch.setattr(trainer, '_model', jax.device_put(trainer._model, everywhere))
    members, checkpoints = units.in_order(ROWS), str(tmp_path / 'tuning')
    whole = trainer.train(members, KEY, checkpoints)
    # One that is there already is read, and has taken all of its steps.
    again = trainer.train(members, KEY, checkpoints)
    assert adapters.to_bytes(again) == adapters.to_bytes(whole)
    assert trainer._batch_sum._cache_size() == 1
    assert trainer._update._cache_size() == 1


# --- All weights -------------------------------------------------------------------


def encoded_rows(settings: TuningSettings) -> tuple[list[units.Unit], units.Encoded]:
    members = units.in_order(ROWS)
    most = settings.max_example_tokens
    return members, units.encode(
        members, settings.writer(), settings.labels, texts_of_unit=2, max_tokens=most
    )


def gradient_of(trainer: train.Trainer, *arguments: object) -> object:
    """The sum of clipped gradients in float64, from whole steps."""
    found = whole_numbers.integers(trainer.gradient(*arguments))  # type: ignore[arg-type]
    return jax.tree.map(lambda leaf: leaf * trainer._settings.params.step, found)


def flat(tree: object) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(tree)])


def test_the_gradient_of_all_weights_is_that_of_each_unit_on_the_added_weights_clipped_by_hand() -> None:
    """Equation 4 in loops over a full softmax, differentiated by the weights themselves."""
    settings = tiny.settings(lora_rank=None)
    trainer = train.Trainer(settings)
    _, encoded = encoded_rows(settings)
    difference = tiny.adapter(None)
    words = np.random.default_rng(0).integers(2**63, size=len(ROWS), dtype=np.uint64)
    members = np.array([0, 3, 4, 8])
    prompts = [settings.writer().public_prompt(label) for label in settings.labels]
    added = jax.tree.map(jnp.add, tiny.weights(), difference)

    def nll(weights: Weights, label: int, text: np.ndarray) -> jax.Array:
        whole, first = np.concatenate([prompts[label], text]), len(prompts[label])
        states = forward.states(tiny.ARCHITECTURE, weights, jnp.asarray(whole[None]))[0]
        shares = jax.nn.log_softmax(states @ weights.embedding.T)
        return -sum(shares[place - 1, whole[place]] for place in range(first, len(whole)))

    def loss(weights: Weights, index: int) -> jax.Array:
        right, *wrong = trainer._chosen(int(encoded.labels[index]), int(words[index]))
        total = jnp.float32(0)
        for text, length in zip(encoded.texts[index], encoded.lengths[index], strict=True):
            if length:
                others = [nll(weights, way, text[:length]) for way in wrong]
                total += nll(weights, right, text[:length]) - 0.2 * sum(others) / len(others)
        return total / settings.max_example_tokens

    expected, norms = np.zeros(tiny.ARCHITECTURE.num_parameters), []
    for index in members:
        of_unit = flat(jax.grad(loss)(added, index))
        norms.append(np.linalg.norm(of_unit))
        expected += of_unit * min(1.0, settings.params.clip_norm / norms[-1])
    assert max(norms) > settings.params.clip_norm
    state = trainer.first_state(KEY) | {'adapter': difference}
    found = flat(gradient_of(trainer, state, encoded, members, words))
    np.testing.assert_allclose(found, expected, rtol=1.1 * whole_numbers.NORM_SLACK, atol=2e-5)


def test_a_unit_moves_the_gradient_of_all_weights_by_the_clip_norm_over_all_of_them() -> None:
    params = dataclasses.replace(tiny.settings().params, clip_norm=0.05)
    settings = tiny.settings(lora_rank=None, params=params)
    trainer = train.Trainer(settings)
    without = dataclasses.replace(params, clip_norm=1e2)
    unclipped = train.Trainer(tiny.settings(lora_rank=None, params=without))
    _, encoded = encoded_rows(settings)
    state = trainer.first_state(KEY) | {'adapter': tiny.adapter(None)}
    words = np.zeros(len(ROWS), np.uint64)
    for unit, beside in ((0, []), (3, [1, 2]), (5, [0, 1, 2, 3, 4, 9]), (7, [8, 9, 10])):
        sums = [
            gradient_of(trainer, state, encoded, np.array(sorted(members)), words)
            for members in (beside, [*beside, unit])
        ]
        moved = jax.tree.map(lambda before, after: np.asarray(after, float) - before, *sums)
        assert np.linalg.norm(flat(moved)) == pytest.approx(0.05, rel=2 * whole_numbers.NORM_SLACK)
        assert np.linalg.norm(flat(moved)) <= 0.05
        # Each array clipped by itself would be as long as its own gradient, up to C.
        whole = gradient_of(unclipped, state, encoded, np.array([unit]), words)
        by_array = [min(0.05, float(np.linalg.norm(flat(leaf)))) for leaf in jax.tree.leaves(whole)]
        assert np.linalg.norm(by_array) > 2 * 0.05
        assert np.linalg.norm(flat(moved.embedding)) < np.linalg.norm(flat(moved)) * 0.999


@pytest.mark.first
def test_batches_are_those_of_the_coins(trainer: train.Trainer) -> None:
    members = units.in_order(ROWS)
    settings = tiny.settings()
    before = train.Batches.of(members, KEY, 'tiny', settings.params)
    without = train.Batches.of(members[:7] + members[8:], KEY, 'tiny', settings.params)
    for step, batch in enumerate(before.members):
        kept = [index - (index > 7) for index in batch if index != 7]
        assert kept == list(without.members[step])


def test_a_text_ends_as_the_template_says_and_a_long_one_does_not() -> None:
    writer = tiny.settings().writer()
    short, long = writer.continuations(['ab', 'x' * 40], 12)
    assert bytes((short - tiny.FIRST_BYTE).tolist()) == b'ab;'
    assert bytes((long - tiny.FIRST_BYTE).tolist()) == b'x' * 12


# --- A warm start ------------------------------------------------------------------


WARM = tuple(('abc'[number % 3], 'xyz'[number % 3] * 6) for number in range(7))


def warm_settings(**changed: object) -> TuningSettings:
    return tiny.settings(
        **(
            {
                'warm_start': WARM,
                'warm_steps': 3,
                'warm_learning_rate': 0.007,
                'mismatch_weight': 0.0,
            }
            | changed
        )
    )


def test_a_warm_start_is_adam_on_the_clipped_gradients_of_its_texts_and_then_begins_anew() -> None:
    """Against the steps by hand, in numpy, on gradients of one text at a time."""
    settings = warm_settings()
    params = dataclasses.replace(settings.params, expected_batch_size=9)  # more than there are: all each step
    trainer = train.Trainer(dataclasses.replace(settings, params=params))
    before = trainer.first_state(KEY)
    encoded = trainer.encoded(
        [
            units.Unit(unit_hash=b'', ordinal=place, label=label, texts=(text,))
            for place, (label, text) in enumerate(WARM)
        ]
    )
    tree, words = jax.tree.structure(before['adapter']), np.zeros(len(WARM), np.uint64)
    shapes = [leaf.shape for leaf in jax.tree.leaves(before['adapter'])]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    adapter = flat(before['adapter'])
    first, second = np.zeros_like(adapter), np.zeros_like(adapter)
    for step in range(1, 4):
        parts = [part.reshape(shape) for part, shape in zip(np.split(adapter, ends), shapes, strict=True)]
        state = {
            'adapter': jax.tree.unflatten(tree, [jnp.asarray(part, jnp.float32) for part in parts]),
            'step': step - 1,
        }
        each = [
            flat(gradient_of(trainer, state, encoded, np.array([place]), words)) for place in range(len(WARM))
        ]
        assert max(np.linalg.norm(one) for one in each) <= params.clip_norm * (1 + 1e-5)
        mean = sum(each) / 9
        first, second = 0.9 * first + 0.1 * mean, 0.999 * second + 0.001 * mean**2
        moved = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        adapter = adapter - settings.warm_learning_rate * moved
    after = trainer.warmed(before)
    np.testing.assert_allclose(flat(after['adapter']), adapter, atol=2e-5)
    assert np.abs(flat(after['adapter']) - flat(before['adapter'])).max() > 100 * 2e-5
    assert int(after['step']) == 0 and not any(flat(after['optimizer']))


def test_a_killed_run_does_not_warm_up_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, members = train.Trainer(warm_settings()), units.in_order(ROWS)
    whole = adapters.to_bytes(trainer.train(members, KEY))
    warmed, step, warm_ups, dead = trainer.warmed, trainer.step, 0, False

    def counted(state: dict[str, object]) -> dict[str, object]:
        nonlocal warm_ups
        warm_ups += 1
        return warmed(state)

    def dies_once(*arguments: object) -> dict[str, object]:
        nonlocal dead
        if not dead:
            dead = True
            raise Killed
        return step(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(trainer, 'warmed', counted)
    monkeypatch.setattr(trainer, 'step', dies_once)
    with pytest.raises(Killed):
        trainer.train(members, KEY, str(tmp_path / 'tuning'))
    assert adapters.to_bytes(trainer.train(members, KEY, str(tmp_path / 'tuning'))) == whole
    assert warm_ups == 1
    cold = train.Trainer(warm_settings(warm_start=(), warm_steps=0))
    assert adapters.to_bytes(cold.train(members, KEY)) != whole


@pytest.mark.parametrize('rank, rate', [(8, 0.02), (None, 0.003)])
def test_with_little_noise_it_learns_what_the_units_say(rank: int | None, rate: float) -> None:
    """Each label's texts are one letter; after training the right instruction explains them, and no other."""
    rows = [(bytes([number]) * 16, 'abc'[number % 3], ['xyz'[number % 3] * 6]) for number in range(30)]
    params = dataclasses.replace(
        tiny.settings().params,
        units=30.0,
        expected_batch_size=20,
        tuning_steps=200,
        noise_multiplier=0.05,
        examples_per_context=1,
    )
    settings = tiny.settings(params=params, learning_rate=rate, lora_rank=rank, micro_batch_size=10)
    learner = train.Trainer(settings)
    members = units.in_order(rows)
    learnt = learner.train(members, KEY)
    from models.finetuning.sample import PlannedTexts, TextSampler
    from models.records import BatchId

    sampler = TextSampler(settings, jax.tree.map(np.asarray, learnt))
    for group, (label, letter) in enumerate(zip('abc', 'xyz', strict=True)):
        (texts,) = sampler.sample([PlannedTexts(BatchId(group=group, index=0), label, 3)], KEY)
        assert sum(text.text.count(letter) for text in texts) > sum(len(text.text) for text in texts) / 2
        assert any(not text.truncated for text in texts)
