"""The training loop: Poisson batches, clipped gradients of units, noise, DP-Adam, and checkpoints.

A step is a function of the run key, the units and the adapter before it. So a run that stopped continues from
its last checkpoint to the same adapter, bit by bit on the same hardware: batches, noise and the order of
sums are the same. Continuing is therefore not a second release (METHOD 7).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models import activity, compilation, speed
from models.decoders import family
from models.finetuning import adapter as adapters
from models.finetuning import loss
from models.finetuning.settings import TuningSettings
from models.finetuning.units import (
    LENGTHS_ON_ACCELERATOR,
    LENGTHS_ON_PROCESSOR,
    Encoded,
    Instructions,
    Unit,
    encode,
    padded_lengths,
)
from models.privacy import gradients, whole_numbers
from models.privacy.randomness import RunKey, normal

if typing.TYPE_CHECKING:
    from orbax import checkpoint as ocp


# Steps between checkpoints; those since the last one are done again, with the same noise.
CHECKPOINT_STEPS = 20


@dataclasses.dataclass(frozen=True)
class Batches:
    """The units of each step: a row of `members` for each step."""

    members: tuple[np.ndarray, ...] = dataclasses.field(repr=False)

    @classmethod
    def of(cls, units: Sequence[Unit], key: RunKey, run_id: str, params: gradients.TuningParams) -> Batches:
        """Poisson samples, each unit by coins of its own."""
        samples: list[list[int]] = [[] for _ in range(params.tuning_steps)]
        for index, unit in enumerate(units):
            for step in gradients.steps_of_unit(
                key,
                run_id,
                unit.unit_hash,
                unit.ordinal,
                probability=params.sampling_probability,
                steps=params.tuning_steps,
            ):
                samples[step].append(index)
        return cls(tuple(np.array(members, np.int64) for members in samples))


# Units of one micro-batch spread over the local devices along this mesh axis.
_UNITS = 'units'


class Trainer:
    """Holds the loaded model and the compiled functions of a run.

    Where the worker has several devices each has a copy of the weights and an equal part of the units of a
    micro-batch, which is filled up to that end. Their clipped gradients are added up, and noise is added to
    that one sum, so batches, price and, but for rounding, the adapter are those of one device.
    """

    def __init__(self, settings: TuningSettings) -> None:
        """Loads the weights and places them on the worker's devices."""
        import optax

        compilation.keep_programs(settings.compilation_cache)
        devices = jax.local_devices()
        mesh = jax.sharding.Mesh(np.array(devices), (_UNITS,))
        self._everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        by_unit = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(_UNITS))
        # Padding of a micro-batch contributes exactly zero.
        self._together = -(-settings.micro_batch_size // len(devices)) * len(devices)
        is_processor = devices[0].platform == 'cpu'
        self._lengths = LENGTHS_ON_PROCESSOR if is_processor else LENGTHS_ON_ACCELERATOR
        self._settings = settings
        self._writer = settings.writer()
        self._instructions = Instructions.of(self._writer, settings.labels)
        of_family = family.family_of(settings.model)
        self._shapes = of_family.adapter_shapes(settings.model, settings.lora_rank)
        tunable = of_family.load_tunable(
            settings.model, settings.checkpoint, dtype=settings.dtype, remat=settings.remat
        )
        prompts = jnp.asarray(self._instructions.tokens), jnp.asarray(self._instructions.lengths)
        self._model = jax.device_put((tunable.weights, prompts), self._everywhere)
        self._of_instructions = jax.jit(tunable.products)
        of_unit = loss.unit_loss(
            tunable, max_tokens=settings.max_example_tokens, mismatch_weight=settings.mismatch_weight
        )
        self._losses = jax.jit(jax.vmap(of_unit, in_axes=(None, None, 0)))
        clipped_sum = gradients.clipped_sum(of_unit, settings.params.clip_norm)
        spread = functools.partial(jax.lax.with_sharding_constraint, shardings=by_unit)
        self._batch_sum = jax.jit(batch_sum(clipped_sum, self._together, spread))
        self._optimizer = optax.adam(settings.learning_rate)
        self._update = jax.jit(functools.partial(_update, self._optimizer, settings.params))

    def first_state(self, key: RunKey) -> dict[str, Any]:
        """The state before the first step."""
        run_id = self._settings.run_id.encode()
        start = adapters.first(
            self._shapes,
            self._settings.lora_rank,
            lambda count: normal(key.words('adapter', run_id, count=count)),
        )
        return self._before_steps(jax.tree.map(jnp.asarray, start))

    def _before_steps(self, adapter: Any) -> dict[str, Any]:
        """The state before the first private step from an adapter."""
        state = {'adapter': adapter, 'optimizer': self._optimizer.init(adapter), 'step': jnp.int32(0)}
        return typing.cast(dict[str, Any], jax.device_put(state, self._everywhere))

    def warmed(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state before the first private step, after steps on texts that are no records, which are free.

        Each step takes the next texts in a random order, as many as a private step has in the mean, and is
        a private step without its noise. The optimizer starts anew afterwards: its moments of gradients
        without noise would make the first noisy steps far too long.
        """
        import optax

        settings = self._settings
        if not settings.warm_steps:
            return state
        encoded = self.encoded(
            [
                Unit(unit_hash=b'', ordinal=place, label=label, texts=(text,))
                for place, (label, text) in enumerate(settings.warm_start)
            ]
        )
        rng = np.random.default_rng(list(settings.run_id.encode()))  # public, as the texts are
        count = len(settings.warm_start)
        together = min(settings.params.expected_batch_size, count)
        order = np.zeros(0, np.int64)
        nothing = whole_numbers.zeros_like(state['adapter'])
        optimizer = optax.adam(settings.warm_learning_rate)
        update = jax.jit(functools.partial(_update, optimizer, settings.params))
        for step in range(settings.warm_steps):
            activity.report(
                activity.Activity('Warm start', None, step + 1, settings.warm_steps, activity.STEP)
            )
            if len(order) < together:
                order = np.concatenate([order, rng.permutation(count)])
            members, order = np.unique(order[:together]), order[together:]
            words = rng.integers(2**64, size=count, dtype=np.uint64)
            state = update(state, self.gradient(state, encoded, members, words), nothing)
        return self._before_steps(state['adapter'])

    def gradient(
        self, state: dict[str, Any], encoded: Encoded, members: np.ndarray, words: np.ndarray
    ) -> whole_numbers.Limbs:
        """The sum of the clipped gradients of some units, in whole steps; zeros for none.

        Args:
            state: The state before the step.
            encoded: The texts of all units.
            members: Indices of the batch's units.
            words: `[U]` uint64 of this step, one for each unit, from which its wrong instructions are drawn.
        """
        total = whole_numbers.zeros_like(state['adapter'])
        if not len(members):
            return total
        if len(members) > whole_numbers.MOST_CONTEXTS:
            # The text does not give the number of units, which is private.
            raise MemoryError(
                'Expected the units of a step to add up exactly, got more than a sum has room for. Lower '
                '--expected-batch-size.'
            )
        capacity = _capacity(self._settings.params.expected_batch_size, self._together)
        of_adapter = functools.partial(self._batch_sum, state['adapter'], self._shared(state['adapter']))
        longest = encoded.lengths[members].max(axis=1, initial=0)
        step = int(state['step'])
        for most, of_length in by_length(members, longest, self._settings.max_example_tokens, self._lengths):

            def collate(rows: np.ndarray, most: int = most) -> Mapping[str, np.ndarray]:
                return self._collated(encoded, rows, words, most, step)

            part = summed(of_adapter, state['adapter'], of_length, collate, capacity)
            total = whole_numbers.add(total, part)
        return total

    def _shared(self, adapter: Any) -> Any:
        """The model, and what all units of a step compute of the instructions."""
        weights, (prompts, lengths) = self._model
        known = None
        if self._settings.shares_instructions:
            known = self._of_instructions(weights, adapter, prompts)
        return weights, (prompts, lengths, known)

    def _collated(
        self,
        encoded: Encoded,
        rows: np.ndarray,
        words: np.ndarray,
        most: int | None = None,
        step: int = 0,
    ) -> Mapping[str, np.ndarray]:
        return {
            'instructions': np.stack([self._chosen(encoded.labels[row], words[row], step) for row in rows]),
            'texts': encoded.texts[rows, :, :most],
            'lengths': encoded.lengths[rows],
        }

    def losses(self, adapter: Any, encoded: Encoded) -> np.ndarray:
        """The loss of each unit under an adapter, `[U]` float32, with the same wrong instructions for all.

        Args:
            adapter: Trained or not, on the device or in numpy.
            encoded: The texts of all units.
        """
        count, size = len(encoded.labels), self._together
        words, model = np.zeros(count, np.uint64), self._shared(adapter)
        losses = []
        for start in range(0, count, size):
            rows = np.minimum(np.arange(start, start + size), count - 1)
            losses.append(np.asarray(self._losses(adapter, model, self._collated(encoded, rows, words))))
        return np.concatenate(losses)[:count] if losses else np.zeros(0, np.float32)

    def _chosen(self, label: int, word: int, step: int = 0) -> np.ndarray:
        """The right instruction of a unit, and the wrong ones of a step; the first step has some."""
        wrong = loss.wrong_instructions(
            int(word), int(label), len(self._settings.labels), self._settings.wrong_prompts_of(step)
        )
        return np.concatenate([np.array([label], np.int32), wrong])

    def step(
        self, state: dict[str, Any], encoded: Encoded, members: np.ndarray, words: np.ndarray, key: RunKey
    ) -> dict[str, Any]:
        """One step of DP-Adam on the units of its batch."""
        total = self.gradient(state, encoded, members, words)
        settings = self._settings
        noise = noise_of_step(state['adapter'], key, settings.run_id, int(state['step']), settings.params)
        return typing.cast(dict[str, Any], self._update(state, total, noise))

    def encoded(self, units: Sequence[Unit]) -> Encoded:
        """The texts of units as tokens, as `train` takes them."""
        return encode(
            units,
            self._writer,
            self._settings.labels,
            texts_of_unit=self._settings.params.examples_per_context,
            max_tokens=self._settings.max_example_tokens,
        )

    def train(self, units: Sequence[Unit], key: RunKey, checkpoints: str | None = None) -> Any:
        """All steps, from the last checkpoint where there is one.

        Args:
            units: All units of the run, in the order of `units.in_order`.
            key: The run's secret.
            checkpoints: Folder of the checkpoints, the curator's; None for none.

        Returns:
            The adapter after the last step: numpy arrays, float32.
        """
        settings = self._settings
        params = settings.params
        encoded = self.encoded(units)
        batches = Batches.of(units, key, settings.run_id, params)
        state = self.first_state(key)
        saver = None if checkpoints is None else open_checkpoints(checkpoints)
        if saver is not None and saver.latest_step() is not None:
            state = _restored(saver, state)
        else:
            state = self.warmed(state)
            if saver is not None and settings.warm_steps:
                _save(saver, 0, state)
        for step in range(int(state['step']), params.tuning_steps):
            activity.report(
                activity.Activity('Fine-tuning', None, step + 1, params.tuning_steps, activity.STEP)
            )
            started, members = time.monotonic(), batches.members[step]
            words = self.words(units, members, key, step)
            state = jax.block_until_ready(self.step(state, encoded, members, words, key))
            speed.note('training', self._tokens(encoded, members, step), time.monotonic() - started)
            if saver is not None and ((step + 1) % CHECKPOINT_STEPS == 0 or step + 1 == params.tuning_steps):
                _save(saver, step + 1, state)
        if saver is not None:
            saver.close()
        return jax.tree.map(np.asarray, state['adapter'])

    def _tokens(self, encoded: Encoded, members: np.ndarray, step: int) -> int:
        """Tokens of the padded texts of a step, once for each instruction that they are read with."""
        padded = padded_lengths(
            encoded.lengths[members].max(axis=1, initial=0),
            self._settings.max_example_tokens,
            self._lengths,
        )
        ways = 1 + self._settings.wrong_prompts_of(step)
        return ways * encoded.lengths.shape[1] * int(padded.sum())

    def words(self, units: Sequence[Unit], members: np.ndarray, key: RunKey, step: int) -> np.ndarray:
        """`[U]` uint64: a word for each unit of the batch, and zeros elsewhere."""
        words = np.zeros(len(units), np.uint64)
        of_step = self._settings.run_id.encode(), step.to_bytes(8, 'little')
        for index in members:
            unit = units[index]
            ordinal = unit.ordinal.to_bytes(8, 'little')
            words[index] = key.words('wrong', *of_step, unit.unit_hash, ordinal, count=1)[0]
        return words


def batch_sum(
    clipped_sum: Callable[..., Any], size: int, spread: Callable[[Any], Any] = lambda units: units
) -> Callable[..., Any]:
    """The sum of clipped gradients over a batch, micro-batch after micro-batch, as one program.

    One program serves all batches up to its capacity: the number of units is an argument, and the program
    stops after the last one. Work that micro-batches share, such as rearranging weights for products, is
    done once.

    Args:
        clipped_sum: Parameters, what is not differentiated, units `[size ...]`, and by keyword
            `is_padding_example` `[size]` bool -> the sum of the clipped gradients, as
            `gradients.clipped_sum` gives it.
        size: Units of a micro-batch, whose gradients are computed together.
        spread: Places the units of a micro-batch on devices.

    Returns:
        A function of the parameters, of what is not differentiated, of units whose first axis is a multiple
        of `size` and at most `whole_numbers.TOGETHER`, and of the number of real units, which come first, to
        the sum in limbs. Padding contributes exactly zero.
    """

    def of_batch(parameters: Any, fixed: Any, units: Any, count: Any) -> Any:
        def add(index: Any, total: Any) -> Any:
            first = index * size
            part = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size), units)
            is_padding = first + jnp.arange(size) >= count
            part, is_padding = spread((part, is_padding))
            of_part = clipped_sum(parameters, fixed, part, is_padding_example=is_padding)
            return jax.tree.map(jnp.add, total, of_part)

        # So few that 32 bits hold the sum of all.
        assert jax.tree.leaves(units)[0].shape[0] <= whole_numbers.TOGETHER
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.int32), parameters)
        return whole_numbers.of_steps(jax.lax.fori_loop(0, (count + size - 1) // size, add, nothing))

    return of_batch


def summed(
    batch_sum: Callable[..., Any],
    like: Any,
    members: np.ndarray,
    collate: Callable[[np.ndarray], Any],
    capacity: int,
) -> whole_numbers.Limbs:
    """The sum of the clipped gradients of a batch of any size; zeros for an empty batch.

    Args:
        batch_sum: From units `[capacity ...]` and the number of real ones to the sum of their gradients.
        like: A tree of the shapes of a gradient.
        members: Indices of the batch's units, in order.
        collate: From `[capacity]` indices to these units.
        capacity: Units of one call; a larger batch takes several calls.
    """
    total = whole_numbers.zeros_like(like)
    for start in range(0, len(members), capacity):
        part = members[start : start + capacity]
        rows = np.concatenate([part, np.zeros(capacity - len(part), part.dtype)])
        total = whole_numbers.add(total, batch_sum(collate(rows), jnp.int32(len(part))))
    return total


def by_length(
    members: np.ndarray, longest: np.ndarray, max_tokens: int, lengths: int = LENGTHS_ON_PROCESSOR
) -> Iterator[tuple[int, np.ndarray]]:
    """Units by the number of tokens that their texts are padded to (`units.padded_lengths`).

    It is a function of a unit's own texts and of T, so that other units change neither its gradient's shape
    nor its rounding within its row. Each length has a program of its own.

    Args:
        members: `[b]` indices of units, in order.
        longest: `[b]` tokens of each unit's longest text.
        max_tokens: T.
        lengths: Number of lengths.

    Yields:
        A length, and the units whose texts are padded to it, in order; for lengths that some unit has.
    """
    padded = padded_lengths(longest, max_tokens, lengths)
    for most in np.unique(padded):
        yield int(most), members[padded == most]


def _capacity(expected: int, size: int) -> int:
    """Units of one call, in whole micro-batches: more than nearly every Poisson batch has, if it can."""
    wanted = -(-(expected + math.ceil(4 * math.sqrt(expected))) // size) * size
    return min(wanted, whole_numbers.TOGETHER // size * size)


def noise_of_step(
    like: Any, key: RunKey, run_id: str, step: int, params: gradients.TuningParams
) -> whole_numbers.Limbs:
    """The noise of one step on each component, whole numbers in trees of the shapes of `like`."""
    leaves, tree = jax.tree.flatten(like)
    *ends, size = np.cumsum([leaf.size for leaf in leaves])

    def shaped(flat: np.ndarray) -> Any:
        parts = zip(np.split(flat, ends), leaves, strict=True)
        return jax.tree.unflatten(tree, [part.reshape(leaf.shape) for part, leaf in parts])

    return whole_numbers.Limbs(*map(shaped, gradients.noise_of_step(key, run_id, step, int(size), params)))


def _update(
    optimizer: Any,
    params: gradients.TuningParams,
    state: dict[str, Any],
    total: whole_numbers.Limbs,
    noise: whole_numbers.Limbs,
) -> dict[str, Any]:
    """The state after a step: noise is added once, and only then is the sum a float, over the public s."""
    import optax

    noisy = whole_numbers.add(total, noise)
    mean = whole_numbers.as_floats(noisy, params.step / params.expected_batch_size)
    changes, inner = optimizer.update(mean, state['optimizer'], state['adapter'])
    return {
        'adapter': optax.apply_updates(state['adapter'], changes),
        'optimizer': inner,
        'step': state['step'] + 1,
    }


def open_checkpoints(folder: str) -> ocp.CheckpointManager:
    """The checkpoints of a run: adapter, optimizer and step; the last two are kept."""
    from orbax import checkpoint as ocp

    options = ocp.CheckpointManagerOptions(max_to_keep=2, create=True, enable_async_checkpointing=False)
    return ocp.CheckpointManager(folder, options=options)


def _save(saver: ocp.CheckpointManager, step: int, state: dict[str, Any]) -> None:
    from orbax import checkpoint as ocp

    saver.save(step, args=ocp.args.StandardSave(state))


def _restored(saver: ocp.CheckpointManager, state: dict[str, Any]) -> dict[str, Any]:
    from orbax import checkpoint as ocp

    restored_state = saver.restore(saver.latest_step(), args=ocp.args.StandardRestore(state))
    return typing.cast(dict[str, Any], restored_state)
