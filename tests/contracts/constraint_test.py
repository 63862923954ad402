"""Every constraint keeps the contract, so does one of a test's own; broken ones are found."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from models import constraints
from models.constraints import Constraint, Grammar, LongEnough, Tabulated, Vocabulary
from models.grammars import automaton, expressions, regular_expressions
from models.stop_rule import StopRule
from tests import oracles, samples
from tests.contracts import constraint_contract
from tests.contracts.constraint_contract import ConstraintCase
from tests.dummies.rising import Rising

pytestmark = pytest.mark.heavy

VOCAB = 17
STOP = frozenset({0, 5})
MASK = np.isin(np.arange(VOCAB), (0, 2, 3, 7, 11, 16))


def rising_twin(example: tuple[int, ...]) -> np.ndarray:
    ids = np.arange(VOCAB)
    return (ids == 0) | (ids > max(example, default=0))


# Tokens of one to four pieces, one of them of two bytes that are tokens too; 11 and 15 may not be sampled.
TOKEN_BYTES = [b'', b'a', b'b', b'c', b'ab', b'', b'bca', b'\xc3', b'\xa9', b'\xc3\xa9', b'aab', b'', b'd',
               b'abcd', b'ca', b'a', b'z']  # fmt: skip
SAMPLED = ~np.isin(np.arange(VOCAB), (11, 15))
TEXTS = {
    b''.join(pieces) + end
    for count in range(1, 5)
    for pieces in itertools.product((b'a', b'bc', b'\xc3\xa9'), repeat=count)
    for end in (b'', b'd')
}
PREFIXES = {text[:length] for text in TEXTS for length in range(len(text) + 1)}


def grammar(pattern: str, token_bytes: list[bytes] = TOKEN_BYTES, rows: int = 0, stop: Any = STOP) -> Grammar:
    tokens = SAMPLED if token_bytes is TOKEN_BYTES else np.ones(max(rows, len(token_bytes)), bool)
    found = automaton.build(regular_expressions.matched(pattern))
    return Grammar.of(found, token_bytes, tokens=tokens, stop_tokens=stop)


# A text begins with `a` and has `bca` in it: `b` is forced as `bca`, `c` as nothing is.
FORCING_TEXTS = {b'a' + first + b'bca' + last for first in (b'', b'd') for last in (b'', b'a', b'aa')}
FORCING_PREFIXES = {text[:length] for text in FORCING_TEXTS for length in range(len(text) + 1)}
FORCED = {b'': 1, b'ad': 6, b'abc': 1, b'a' + b'bca' + b'aa': 0, b'ad' + b'bca' + b'aa': 0}


def forcing() -> Grammar:
    """A grammar with states that leave no choice."""
    found = automaton.build(regular_expressions.matched('ad?bcaa{0,2}'))
    table = np.full(found.states, -1, np.int32)
    for text, token in FORCED.items():
        table[found.walk(text)] = token
    return Grammar.of(found, TOKEN_BYTES, tokens=SAMPLED, stop_tokens=STOP, forced_tokens=table)


def forcing_twin(example: tuple[int, ...]) -> np.ndarray:
    so_far = b''.join(TOKEN_BYTES[token] for token in example)
    if so_far in FORCED:
        return np.arange(VOCAB) == FORCED[so_far]
    tokens = np.flatnonzero(SAMPLED).tolist()
    prefixes, texts = FORCING_PREFIXES.__contains__, FORCING_TEXTS.__contains__
    return oracles.grammar(prefixes, texts, TOKEN_BYTES, tokens, STOP)(example)


MIN_TOKENS = 3


def long_enough(constraint: Constraint, stop: frozenset[int]) -> LongEnough:
    return LongEnough.held(constraint, StopRule.of(VOCAB, tokens=stop), MIN_TOKENS)


CASES = {
    'vocabulary': ConstraintCase(Vocabulary.of(MASK), oracles.vocabulary(MASK), VOCAB, STOP),
    'grammar': ConstraintCase(
        grammar('(a|bc|é){1,4}d?'),
        oracles.grammar(
            PREFIXES.__contains__, TEXTS.__contains__, TOKEN_BYTES, np.flatnonzero(SAMPLED).tolist(), STOP
        ),
        VOCAB, STOP,
    ),
    'forcing grammar': ConstraintCase(forcing(), forcing_twin, VOCAB, STOP),
    # All states have masks; the first two have; none has.
    **{
        f'tabulated, {states} states': ConstraintCase(
            Tabulated.of_grammar(forcing(), most_states=states), forcing_twin, VOCAB, STOP
        )
        for states in (100, 2, 0)
    },
    'rising': ConstraintCase(Rising.of(VOCAB), rising_twin, VOCAB, frozenset({0})),
    'long enough': ConstraintCase(
        long_enough(Vocabulary.of(SAMPLED), STOP),
        oracles.long_enough(oracles.vocabulary(SAMPLED), STOP, MIN_TOKENS), VOCAB, STOP,
    ),
    # Often nothing is left but the end.
    'long enough, rising': ConstraintCase(
        long_enough(Rising.of(VOCAB), frozenset({0})),
        oracles.long_enough(rising_twin, frozenset({0}), MIN_TOKENS), VOCAB, frozenset({0}),
    ),
}  # fmt: skip


@pytest.mark.parametrize('assert_kept', constraint_contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize('name', samples.with_first(CASES, next(iter(CASES))))
def test_every_constraint(name: str, assert_kept: Callable[[ConstraintCase], None]) -> None:
    assert_kept(CASES[name])


@pytest.mark.first
def test_no_constraint_is_left_out() -> None:
    found = {value for value in vars(constraints).values() if isinstance(value, type)}
    ours = {kind for kind in found if issubclass(kind, Constraint) and kind is not Constraint}
    assert ours <= {type(case.constraint) for case in CASES.values()}


@pytest.mark.first
@pytest.mark.parametrize(
    ('wrong', 'check'),
    [
        ('shape', constraint_contract.check_a_state_keeps_its_shapes),
        ('empty', constraint_contract.check_some_token_is_always_allowed),
        ('twin', constraint_contract.check_masks_equal_the_twin),
        ('columns', constraint_contract.check_some_tokens_are_held_to_the_mask),
        ('rows', constraint_contract.check_rows_are_masked_in_states_of_their_own),
        ('forced', constraint_contract.check_a_forced_token_is_the_only_one_allowed),
    ],
)
def test_a_constraint_that_breaks_the_contract_is_found(
    wrong: str, check: Callable[[ConstraintCase], None]
) -> None:
    with pytest.raises(AssertionError):
        check(dataclasses.replace(CASES['rising'], constraint=Rising.of(VOCAB, wrong=wrong)))


@pytest.mark.parametrize(
    ('build', 'message'),
    [
        (lambda: Vocabulary.of(np.zeros(4, bool)), 'empty mask'),
        (lambda: LongEnough.held(Vocabulary.of(MASK), StopRule.of(VOCAB, tokens=STOP), 0), 'min_tokens=0'),
        (lambda: grammar('a', stop=()), r'stop_tokens=\[\]'),
        (
            lambda: Grammar.of(
                automaton.build(expressions.NOTHING), TOKEN_BYTES, tokens=SAMPLED, stop_tokens=STOP
            ),
            'is_empty=True',
        ),
        # After `a` only `c` and `d` may come, and no token begins with them.
        (lambda: grammar('(ac|ad)e', [b'', b'a', b'e'], stop=(0,)), r'bytes=\[99, 100\]'),
    ],
)
def test_a_constraint_without_a_token_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_a_vocabulary_without_single_bytes_may_do() -> None:
    found = grammar('(abc){2}', [b'', b'ab', b'cab', b'c', b'abc'], rows=7, stop=(0,))
    state, masks = found.start(), []
    for token in (1, 2, 3):
        masks.append(np.flatnonzero(found.allowed(state)).tolist())
        state = found.advance(state, jnp.int32(token))
    assert masks == [[1, 4], [2, 3], [3]] and np.flatnonzero(found.allowed(state)).tolist() == [0]
    # After `a` alone nothing would follow.
    also = [b'', b'ab', b'cab', b'c', b'abc', b'a']
    with pytest.raises(ValueError, match=r'bytes=\[98\]'):
        grammar('(abc){2}', also, stop=(0,))


def test_a_stream_that_left_the_grammar_has_to_end() -> None:
    found = CASES['grammar'].constraint
    state = found.advance(found.start(), jnp.int32(16))
    assert np.flatnonzero(found.allowed(state)).tolist() == sorted(STOP)
