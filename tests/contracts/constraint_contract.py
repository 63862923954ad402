"""The contract of every token constraint, whatever it allows.

Each `check_...` takes a case and asserts. tests/contracts/constraint_test.py runs all of them for every
constraint of `models/constraints`, and for one of its own.
"""

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models.constraints import Constraint
from tests import oracles

EXAMPLES, LENGTH = 30, 12


@dataclasses.dataclass(frozen=True)
class ConstraintCase:
    """A constraint and its slow twin.

    Attributes:
        constraint: The constraint, of a vocabulary of `vocab_size`.
        twin: From an example's tokens to the tokens that may follow.
        vocab_size: V.
        stop_tokens: Ids that end an example.
    """

    constraint: Constraint
    twin: oracles.Allowed
    vocab_size: int
    stop_tokens: frozenset[int]


@jax.jit
def _advance(constraint: Constraint, state: Any, token: jax.Array) -> tuple[Any, jax.Array]:
    state = constraint.advance(state, token)
    return state, constraint.allowed(state)


def _walks(case: ConstraintCase, seed: int = 0) -> list[list[tuple[tuple[int, ...], np.ndarray]]]:
    """Random examples of allowed tokens: the tokens so far, and the mask that the constraint has there."""
    rng, walks = np.random.default_rng(seed), []
    for _ in range(EXAMPLES):
        state = case.constraint.start()
        mask = np.asarray(jax.jit(type(case.constraint).allowed)(case.constraint, state))
        example: tuple[int, ...] = ()
        walk = [(example, mask)]
        while len(example) < LENGTH and mask.any():
            token = int(rng.choice(np.flatnonzero(mask)))
            if token in case.stop_tokens:
                break
            state, found = _advance(case.constraint, state, jnp.int32(token))
            example, mask = (*example, token), np.asarray(found)
            walk.append((example, mask))
        walks.append(walk)
    return walks


def check_masks_equal_the_twin(case: ConstraintCase) -> None:
    for walk in _walks(case):
        for example, mask in walk:
            np.testing.assert_array_equal(mask, case.twin(example), err_msg=str(example))


def check_some_tokens_are_held_to_the_mask(case: ConstraintCase) -> None:
    """Those that are asked for, in their order and as often."""
    rng, among = np.random.default_rng(3), jax.jit(type(case.constraint).allowed_among)
    for walk in _walks(case, seed=3)[:5]:
        state = case.constraint.start()
        for place, (example, mask) in enumerate(walk):
            if place:
                state, _ = _advance(case.constraint, state, jnp.int32(example[-1]))
            tokens = rng.integers(0, case.vocab_size, 7).astype(np.int32)
            np.testing.assert_array_equal(among(case.constraint, state, tokens), mask[tokens])


def check_rows_are_masked_in_states_of_their_own(case: ConstraintCase) -> None:
    """Each as by itself, whatever states stand beside it."""
    of_rows = jax.jit(type(case.constraint).allowed_rows, static_argnames='rows')
    for walk in _walks(case, seed=5)[:10]:
        states = [case.constraint.start()]
        for example, _ in walk[1:]:
            states.append(_advance(case.constraint, states[-1], jnp.int32(example[-1]))[0])
        together = jax.tree.map(lambda *rows: jnp.stack(rows), *states)
        found = of_rows(case.constraint, together, rows=len(states))
        np.testing.assert_array_equal(found, np.stack([mask for _, mask in walk]))


def check_some_token_is_always_allowed(case: ConstraintCase) -> None:
    for walk in _walks(case, seed=1):
        for example, mask in walk:
            assert mask.shape == (case.vocab_size,) and mask.dtype == bool
            assert mask.any(), example


def check_a_forced_token_is_the_only_one_allowed(case: ConstraintCase) -> None:
    """And a state without one has none, whatever follows."""
    for walk in _walks(case, seed=4):
        state = case.constraint.start()
        for place, (example, mask) in enumerate(walk):
            if place:
                state, _ = _advance(case.constraint, state, jnp.int32(example[-1]))
            forced = case.constraint.forced(state)
            if forced is not None and forced >= 0:
                assert np.flatnonzero(mask).tolist() == [int(forced)], example


def check_masks_are_public(case: ConstraintCase) -> None:
    """A function of the tokens: the same ones give the same masks, and nothing else is to be had."""
    first, second = _walks(case, seed=2), _walks(case, seed=2)
    for walk, again in zip(first, second, strict=True):
        for (example, mask), (same, other) in zip(walk, again, strict=True):
            assert example == same and (mask == other).all()
    arguments = {
        'start': ['example'], 'allowed': ['state'], 'allowed_rows': ['states', 'rows'],
        'allowed_among': ['state', 'tokens'], 'advance': ['state', 'token'], 'forced': ['state'],
    }  # fmt: skip
    assert arguments == {
        name: [*inspect.signature(getattr(case.constraint, name)).parameters] for name in arguments
    }


def check_a_state_keeps_its_shapes(case: ConstraintCase) -> None:
    """The compiled loop carries it."""
    start = case.constraint.start()
    state, _ = _advance(case.constraint, start, jnp.int32(int(np.flatnonzero(case.twin(()))[0])))
    shapes = [jax.tree.map(lambda x: (jnp.shape(x), jnp.result_type(x)), x) for x in (start, state)]
    assert jax.tree.structure(start) == jax.tree.structure(state) and shapes[0] == shapes[1]


def check_values_are_no_part_of_the_program(case: ConstraintCase) -> None:
    """Another mask of the same size is not compiled again; what is static is hashable."""
    leaves, structure = jax.tree.flatten(case.constraint)
    assert hash(structure) == hash(jax.tree.structure(case.constraint))
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    again = jax.tree.unflatten(structure, leaves)
    np.testing.assert_array_equal(again.allowed(again.start()), case.twin(()))


CHECKS = (
    check_masks_equal_the_twin,
    check_some_tokens_are_held_to_the_mask,
    check_rows_are_masked_in_states_of_their_own,
    check_some_token_is_always_allowed,
    check_a_forced_token_is_the_only_one_allowed,
    check_masks_are_public,
    check_a_state_keeps_its_shapes,
    check_values_are_no_part_of_the_program,
)
