"""Every constraint keeps the contract, so does one of a test's own; broken ones are found."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models import constraints
from models.constraints import Constraint, Digits, Vocabulary
from tests import oracles
from tests.contracts import constraint_contract
from tests.contracts.constraint_contract import ConstraintCase

VOCAB = 17
STOP = frozenset({0, 5})
MASK = np.isin(np.arange(VOCAB), (0, 2, 3, 7, 11, 16))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rising(Constraint):
    """Tokens rise; the stop token 0 may always come. `wrong` breaks the contract.

    The smallest constraint whose state is a token: one class, and nobody was told of it.
    """

    vocab_size: int = dataclasses.field(metadata=constraints.STATIC)
    wrong: str = dataclasses.field(default='', metadata=constraints.STATIC)

    def start(self) -> jax.Array:
        return jnp.int32(0) if self.wrong != 'shape' else jnp.zeros(1, jnp.int32)

    def allowed(self, state: jax.Array) -> jax.Array:
        ids = jnp.arange(self.vocab_size)
        stops = ids == 0 if self.wrong != 'empty' else jnp.zeros(self.vocab_size, bool)
        return stops | (ids > state.reshape(())) & (ids < self.vocab_size - (self.wrong == 'twin'))

    def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
        return token


def rising_twin(example: tuple[int, ...]) -> np.ndarray:
    ids = np.arange(VOCAB)
    return (ids == 0) | (ids > max(example, default=0))


CASES = {
    'vocabulary': ConstraintCase(Vocabulary.of(MASK), oracles.vocabulary(MASK), VOCAB, STOP),
    'digits': ConstraintCase(
        Digits.of(VOCAB, digits=(1, 2, 9), stop_tokens=STOP, length=3),
        oracles.digits(VOCAB, (1, 2, 9), STOP, 3), VOCAB, STOP,
    ),
    'rising': ConstraintCase(Rising(VOCAB), rising_twin, VOCAB, frozenset({0})),
}  # fmt: skip


@pytest.mark.parametrize('assert_kept', constraint_contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize('name', CASES)
def test_every_constraint(name: str, assert_kept: Callable[[ConstraintCase], None]) -> None:
    assert_kept(CASES[name])


def test_no_constraint_is_left_out() -> None:
    found = {value for value in vars(constraints).values() if isinstance(value, type)}
    ours = {kind for kind in found if issubclass(kind, Constraint) and kind is not Constraint}
    assert ours <= {type(case.constraint) for case in CASES.values()}


@pytest.mark.parametrize(
    ('wrong', 'check'),
    [
        ('shape', constraint_contract.check_a_state_keeps_its_shapes),
        ('empty', constraint_contract.check_some_token_is_always_allowed),
        ('twin', constraint_contract.check_masks_equal_the_twin),
    ],
)
def test_a_constraint_that_breaks_the_contract_is_found(
    wrong: str, check: Callable[[ConstraintCase], None]
) -> None:
    with pytest.raises(AssertionError):
        check(dataclasses.replace(CASES['rising'], constraint=Rising(VOCAB, wrong)))


@pytest.mark.parametrize(
    ('build', 'message'),
    [
        (lambda: Vocabulary.of(np.zeros(4, bool)), 'empty mask'),
        (lambda: Digits.of(4, digits=(), stop_tokens=(1,), length=2), 'Expected digits'),
        (lambda: Digits.of(4, digits=(0,), stop_tokens=(), length=2), 'Expected stop_tokens'),
        (lambda: Digits.of(4, digits=(0,), stop_tokens=(1,), length=0), 'length=0'),
    ],
)
def test_a_constraint_without_a_token_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
