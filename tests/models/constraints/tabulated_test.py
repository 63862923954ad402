"""Masks from a table: those of a walk byte by byte in every state, also where the table has no room."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.constraints import Grammar, Tabulated
from models.grammars import automaton as automaton_lib
from models.grammars import regular_expressions
from models.sampling.nucleus import drawn
from tests import oracles

pytestmark = pytest.mark.heavy

STOP = frozenset({0, 40})
# Whole words, pieces of one to six bytes, bytes of characters; some without bytes, some twice.
PIECES = [
    b'', b'a', b'b', b'c', b'd', b'x', b'y', b'0', b'1', b'"', b',', b':', b'\xc3', b'\xa9', b'\xc3\xa9',
    b'ab', b'abc', b'bc', b'bca', b'cab', b'abcabc', b'xy', b'xyxy', b'yx', b'01', b'10', b'0101', b'a"',
    b'a",', b'",', b'":', b'ab"', b'\xa9a', b'a\xc3', b'', b'ab', b'zz', b'z', b'"a', b'":"',
]  # fmt: skip
# More tokens than pieces, and no multiple of 8.
VOCAB = 45
SAMPLED = ~np.isin(np.arange(VOCAB), (0, 17, 34, 40, 41, 42, 43, 44))
PATTERNS = ['(ab|xy|é){1,4}d?', '"[a-c]{0,12}",(01|10)*', 'abcabc', '(a|b|c|x|y|0|1){3,20}', '[^z]{2}(zz)?']
# Odd states force a token here and there, as a schema's keys do.
FORCED = {'abcabc': (1, 20), '"[a-c]{0,12}",(01|10)*': (1, 9)}


def _grammar(pattern: str) -> tuple[Grammar, np.ndarray]:
    """And its slow twin's masks of all states."""
    found = automaton_lib.build(regular_expressions.matched(pattern))
    forced = np.full(found.states, -1, np.int32)
    if pattern in FORCED:
        state, token = FORCED[pattern]
        forced[state] = token
    grammar = Grammar.of(found, PIECES, tokens=SAMPLED, stop_tokens=STOP, forced_tokens=forced)
    return grammar, oracles.state_masks(found, PIECES, SAMPLED, STOP, forced.tolist())


def _of_rows(constraint: Tabulated, states: np.ndarray) -> np.ndarray:
    compiled = jax.jit(Tabulated.allowed_rows, static_argnames='rows')
    return np.asarray(compiled(constraint, jnp.asarray(states, jnp.int32), rows=len(states)))


@pytest.mark.parametrize('pattern', PATTERNS)
@pytest.mark.parametrize('most_states, most_bytes', [(10**6, 10**6), (0, 10**6), (3, 10**6), (10**6, 13)])
def test_every_state_has_the_mask_of_a_walk_byte_by_byte(
    pattern: str, most_states: int, most_bytes: int
) -> None:
    """All from the table, none, the first three, and two different masks of six bytes each."""
    grammar, twin = _grammar(pattern)
    found = Tabulated.of_grammar(grammar, most_states=most_states, most_bytes=most_bytes)
    # Rows in states of both kinds, in any order.
    states = np.random.default_rng(0).permutation(np.repeat(np.arange(len(twin)), 2))
    assert (_of_rows(found, states) == twin[states]).all()
    assert found.masks.nbytes <= max(most_bytes, 6)
    for state in range(len(twin)):
        assert (np.asarray(found.allowed(jnp.int32(state))) == twin[state]).all()


@pytest.mark.parametrize('pattern', PATTERNS)
def test_states_with_the_same_tokens_share_a_mask(pattern: str) -> None:
    grammar, twin = _grammar(pattern)
    found, has_choice = Tabulated.of_grammar(grammar), np.asarray(grammar.forced_tokens) < 0
    assert not found.walks and len(found.masks) == len(np.unique(twin[has_choice], axis=0))
    assert pattern == 'abcabc' or len(found.masks) < has_choice.sum()


@pytest.mark.first
@pytest.mark.parametrize('wrong', ['no walk', 'bits', 'forced'])
def test_a_wrong_table_is_noticed(wrong: str) -> None:
    """Without the walk of states that have no mask, with bits in another order, without forced tokens."""
    grammar, twin = _grammar(PATTERNS[1])
    found = Tabulated.of_grammar(grammar, most_states=3)
    assert found.walks
    broken = {
        'no walk': dataclasses.replace(found, walks=False),
        'bits': dataclasses.replace(
            found, masks=jnp.asarray(np.packbits(np.unpackbits(found.masks, axis=1)[:, ::-1], axis=1))
        ),
        'forced': dataclasses.replace(found, forced_tokens=jnp.full_like(grammar.forced_tokens, -1)),
    }[wrong]
    states = np.arange(len(twin))
    assert (_of_rows(found, states) == twin).all()
    assert not (_of_rows(broken, states) == twin).all()


@pytest.mark.parametrize('most_states', [10**6, 2])
@pytest.mark.parametrize('top_p, top_k', [(0.8, None), (1.0, 3), (0.5, 20)])
def test_a_row_whose_allowed_tokens_are_all_unlikely_draws_from_their_nucleus(
    most_states: int, top_p: float, top_k: int | None
) -> None:
    """A model that expects what may not come, by e^60 and more, or gives no probability to what may.

    Tokens are those of the slow twin, by its own masks.
    """
    grammar, twin = _grammar(PATTERNS[3])
    found = Tabulated.of_grammar(grammar, most_states=most_states)
    states = np.arange(len(twin))
    logits = 2 * np.random.default_rng(1).normal(size=twin.shape).astype(np.float32)
    logits[::2] = np.where(twin[::2], logits[::2] - 60, logits[::2] + 60)
    several = np.flatnonzero(twin.sum(axis=1) > 3)[::3]
    logits[several, twin[several].argmax(axis=1)] = -np.inf
    keys = jax.random.split(jax.random.key(0), len(twin))
    masked = jnp.where(found.allowed_rows(jnp.asarray(states), len(twin)), logits, -jnp.inf)
    tokens = np.asarray(drawn(masked, keys, top_p=top_p, top_k=top_k))
    for state, key, token in zip(states, keys, tokens, strict=True):
        draws = (float(jax.random.uniform(jax.random.fold_in(key, trial))) for trial in range(100))
        of_state = np.where(twin[state], logits[state], -np.inf).astype(float)
        assert token == oracles.drawn(of_state, draws, top_p, top_k) and twin[state, token]


def test_a_vocabulary_of_stop_tokens_alone_is_tabulated() -> None:
    """No token has bytes."""
    empty = automaton_lib.build(regular_expressions.matched(''))
    grammar = Grammar.of(empty, [b'', b''], tokens=np.ones(2, bool), stop_tokens={1})
    found = Tabulated.of_grammar(grammar)
    assert np.asarray(found.allowed(found.start())).tolist() == [False, True]
