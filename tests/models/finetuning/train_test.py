"""Training goes on bit by bit after a kill, learns what units say, and stays a function of their multiset."""

import pathlib
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from models.finetuning import adapter as adapters
from models.finetuning import train, units
from models.privacy.randomness import RunKey
from tests.models.finetuning import tiny
from tests.samples import SECRET

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


@pytest.fixture(scope='module')
def trainer(_tiny: None) -> train.Trainer:
    return train.Trainer(tiny.settings())


class Killed(Exception):
    pass


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


def test_the_adapter_is_a_function_of_the_units_alone(trainer: train.Trainer) -> None:
    shuffled = [ROWS[place] for place in np.random.default_rng(0).permutation(len(ROWS))]
    assert units.in_order(shuffled) == units.in_order(ROWS)
    twice = units.in_order([*ROWS, ROWS[3]])
    assert [unit.ordinal for unit in twice if unit.unit_hash == ROWS[3][0]] == [0, 1]


def test_a_step_is_compiled_once_where_weights_lie_on_a_mesh(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = train.Trainer(tiny.settings())
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


def test_with_little_noise_it_learns_what_the_units_say() -> None:
    """Each label's texts are one letter; after training the right instruction explains them, and no other."""
    import dataclasses

    rows = [(bytes([number]) * 16, 'abc'[number % 3], ['xyz'[number % 3] * 6]) for number in range(30)]
    params = dataclasses.replace(
        tiny.settings().params,
        units=30.0,
        expected_batch_size=20,
        tuning_steps=200,
        noise_multiplier=0.05,
        examples_per_context=1,
    )
    settings = tiny.settings(params=params, learning_rate=0.03, lora_rank=8, micro_batch_size=10)
    learner = train.Trainer(settings)
    members = units.in_order(rows)
    learnt = learner.train(members, KEY)
    from models.finetuning.sample import TextSampler
    from models.records import BatchId

    sampler = TextSampler(settings, jax.tree.map(np.asarray, learnt))
    for group, (label, letter) in enumerate(zip('abc', 'xyz', strict=True)):
        texts = sampler.sample(BatchId(group=group, index=0), label, 3, KEY)
        assert sum(text.text.count(letter) for text in texts) > sum(len(text.text) for text in texts) / 2
        assert any(not text.truncated for text in texts)
