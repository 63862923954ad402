"""A model that is a table, for tests of the loop and of what is around it.

A row's logits are a function of the row's prompt and of the tokens of the current example. It is a whole
`Decoder`, with a cache, padding rows and micro-batches; the loop around it is compiled as it is for Gemma.
"""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from models.decoders import decoder as decoder_lib
from models.privacy import randomness, sampling
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey

VOCAB = 5
LEVELS = sampling.tree_levels(VOCAB)
TYPES, STATES = 7, 11
PUBLIC = np.array([6, 2, 6], np.int32)


def type_of(prompt: Sequence[int]) -> int:
    """Row content to one of the table's types; a prompt of one 1, the padding, has its own."""
    return int(sum((i + 1) * int(token) for i, token in enumerate(prompt)) % TYPES)


def next_state(state: int, token: int, offset: int) -> int:
    """A hash of the current example's tokens; offset 0 forgets the example before."""
    return ((3 * state if offset > 0 else 0) + 2 * token + 1 + offset) % STATES


class TableDecoder(decoder_lib.Decoder):
    """Logits from a table `[TYPES, STATES + 1, V]`; the last state is the prompts' end.

    What it gives for states are the logits themselves.
    """

    def __init__(self, table: np.ndarray, micro_batch_size: int, max_example_tokens: int = 8) -> None:
        self.shapes = decoder_lib.Shapes(
            max_prompt_tokens=4, max_example_tokens=max_example_tokens, micro_batch_size=micro_batch_size
        )
        self.vocab_size = table.shape[-1]
        self.weights = jnp.asarray(table, jnp.float32)
        self._at_prompts_end = np.asarray(self.weights[:, STATES])

    def prefill(
        self, prompts: Sequence[np.ndarray], *, together: int | None = None
    ) -> tuple[tuple[jax.Array, ...], tuple[decoder_lib.Cache, ...]]:
        types = np.array([type_of(prompt) for prompt in prompts], np.int32)
        types = types.reshape(-1, together or self.shapes.micro_batch_size)
        # Looked up on the host: thousands of batches are decoded, and an operation on a device costs more.
        cache = tuple({'types': jnp.array(row), 'state': jnp.array(np.zeros_like(row))} for row in types)
        return tuple(jnp.array(self._at_prompts_end[row]) for row in types), cache

    def append(
        self,
        weights: jax.Array,
        cache: tuple[decoder_lib.Cache, ...],
        tokens: jax.Array,
        count: jax.Array,
        offset: jax.Array,
    ) -> tuple[tuple[jax.Array, ...], tuple[decoder_lib.Cache, ...]]:
        states = [
            jax.lax.fori_loop(
                0,
                count,
                lambda place, state: _next_state_on_device(state, tokens[place], offset + place),
                part['state'],
            )
            for part in cache
        ]
        rows = tuple(weights[part['types'], state] for part, state in zip(cache, states, strict=True))
        return rows, tuple({**part, 'state': state} for part, state in zip(cache, states, strict=True))

    def logits(self, weights: jax.Array, states: jax.Array, columns: jax.Array | None = None) -> jax.Array:
        return states if columns is None else states[:, columns]


def _next_state_on_device(state: jax.Array, token: jax.Array, offset: jax.Array) -> jax.Array:
    return (jnp.where(offset > 0, 3 * state, 0) + 2 * token + 1 + offset) % STATES


def table_of(seed: int, vocab: int = VOCAB) -> np.ndarray:
    """Random logits; some rows flat, some far apart, one type broken at every other state."""
    rng = np.random.default_rng(seed)
    table = rng.normal(0, 2, (TYPES, STATES + 1, vocab))
    table[1] *= 20
    table[2] = 0
    table[3, ::2, 0] = np.nan  # a private row whose model broke down
    return table.astype(np.float32)


TABLE = table_of(0)
DECODERS = {size: TableDecoder(TABLE, size) for size in (1, 3, 4, 16)}


def contexts_of(count: int, seed: int = 0) -> list[np.ndarray]:
    """Prompts of 1 to 4 tokens, of every type; none is the public prompt's."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 9, rng.integers(1, 5)).astype(np.int32) for _ in range(count)]


def draws_of(params: MechanismParams, number: int, levels: int = LEVELS) -> randomness.BatchDraws:
    return randomness.batch_draws(
        RunKey(bytes(range(32))),
        'run',
        str(number),
        max_private_tokens=params.max_private_tokens,
        max_batch_tokens=params.max_batch_tokens,
        threshold_noise_scale=params.threshold_noise_scale,
        batch_size=params.batch_size,
        levels=levels,
    )


def logits_at_of(
    table: np.ndarray, contexts: list[np.ndarray]
) -> Callable[[tuple[int, ...]], tuple[np.ndarray, np.ndarray]]:
    types = np.array([type_of(prompt) for prompt in contexts], int)

    def logits_at(example: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        state = STATES
        for offset, token in enumerate(example):
            state = next_state(state, token, offset)
        return table[types, state], table[type_of(PUBLIC), state]

    return logits_at


BASE = MechanismParams(
    batch_size=4,
    clip_bound=3.0,
    temperature=1.5,
    max_private_tokens=12,
    max_batch_tokens=30,
    max_example_tokens=6,
)
SPARSE = dataclasses.replace(BASE, threshold=0.7, threshold_noise_scale=0.2)
