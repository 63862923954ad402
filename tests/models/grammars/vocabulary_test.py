"""Grammars over whole vocabularies: every example of allowed tokens is a valid text, as it is decoded."""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest

from models import bundled
from models.constraints import Grammar
from models.decoders.gemma.tokenizer import GemmaTokenizer
from models.decoders.tokenizer import Tokenizer
from models.grammars import automaton, expressions, forced, regular_expressions
from models.grammars.json_schema import schema

pytestmark = pytest.mark.heavy

SCHEMA: dict[str, Any] = {
    'type': 'object',
    'properties': {
        'ward': {'enum': ['Surgery', 'Pædiatrics']},
        'date': {'type': 'string', 'format': 'date'},
        'weight': {'type': 'number', 'minimum': 0.5, 'maximum': 300, 'multipleOf': 0.5},
        'note': {'type': 'string', 'maxLength': 20},
        'codes': {'type': 'array', 'items': {'type': 'integer', 'minimum': 0, 'maximum': 99}, 'maxItems': 3},
    },
    'required': ['ward', 'note'],
    'additionalProperties': False,
}
FOUND = schema.compiled(SCHEMA)


@pytest.fixture(scope='module')
def tokenizer() -> Tokenizer:
    return GemmaTokenizer(bundled.TOKENIZER, '3')


def forced_table(tokenizer: Tokenizer, found: automaton.Automaton = FOUND) -> np.ndarray:
    return forced.forced_table(
        found,
        tokenizer,
        tokenizer.token_bytes(),
        tokens=tokenizer.released_token_mask(),
        stop_tokens=tokenizer.stop_tokens,
    )


def forced_run(tokenizer: Tokenizer, found: automaton.Automaton, state: int) -> list[int]:
    """The tokens that follow one another without a choice, without a stop token."""
    table, token_bytes, ids = forced_table(tokenizer, found), tokenizer.token_bytes(), []
    while table[state] >= 0 and int(table[state]) not in tokenizer.stop_tokens:
        ids.append(int(table[state]))
        state = found.walk(token_bytes[ids[-1]], state)
    return ids


@pytest.mark.parametrize('forces', [False, True])
def test_examples_are_valid(tokenizer: Tokenizer, forces: bool) -> None:
    assert_examples_are_valid(tokenizer, examples=20, forces=forces)


def assert_examples_are_valid(tokenizer: Tokenizer, examples: int, forces: bool = False) -> None:
    token_bytes, tokens = tokenizer.token_bytes(), tokenizer.released_token_mask()
    constraint = Grammar.of(
        FOUND,
        token_bytes,
        tokens=tokens,
        stop_tokens=tokenizer.stop_tokens,
        forced_tokens=forced_table(tokenizer) if forces else None,
    )
    allowed, among, advance = map(jax.jit, (Grammar.allowed, Grammar.allowed_among, Grammar.advance))
    rng = np.random.default_rng(0)
    for _ in range(examples):
        state, ids = constraint.start(), []
        while True:
            mask = np.asarray(allowed(constraint, state))
            some = rng.integers(0, len(mask), 50).astype(np.int32)
            np.testing.assert_array_equal(among(constraint, state, some), mask[some])
            for token in some[tokens[some]].tolist():
                if token not in tokenizer.stop_tokens:
                    leads = FOUND.walk(token_bytes[token], int(state)) != automaton.DEAD
                    alone = int(constraint.forced(state))
                    assert mask[token] == (leads and bool(token_bytes[token]) and alone in (-1, token))
            assert not mask[~tokens].any()
            token = int(rng.choice(np.flatnonzero(mask)))
            if token in tokenizer.stop_tokens:
                break
            ids.append(token)
            state = advance(constraint, state, jnp.int32(token))
        value = json.loads(tokenizer.decode_batch([ids])[0])
        jsonschema.validate(value, SCHEMA)


def test_examples_of_a_real_vocabulary_are_valid(gemma_file: pathlib.Path) -> None:
    assert_examples_are_valid(GemmaTokenizer(gemma_file, '3'), examples=5)


def test_forced_tokens_spell_what_is_forced(tokenizer: Tokenizer) -> None:
    token_bytes = tokenizer.token_bytes()
    for prefix, run in (
        ('', '{"ward":"'),
        ('{"ward":"S', 'urgery","'),
        ('{"ward":"P', 'ædiatrics","'),
        ('{"ward":"Surgery","note":"","', 'codes":['),
        ('{"ward":"Surgery","note":""}', ''),
    ):
        ids = forced_run(tokenizer, FOUND, FOUND.walk(prefix.encode()))
        assert b''.join(token_bytes[token] for token in ids) == run.encode()
        # Token by token, and the tokenizer's cut of the whole.
        assert ids == (tokenizer.encode_batch([run])[0].tolist() if run else [])


def test_an_end_is_forced_where_nothing_may_follow(tokenizer: Tokenizer) -> None:
    table = forced_table(tokenizer)
    over = FOUND.walk(b'{"ward":"Surgery","note":""}')
    assert table[over] == min(tokenizer.stop_tokens)
    open_ = automaton.build(regular_expressions.matched('a+'))
    assert (forced_table(tokenizer, open_)[[open_.walk(b'a'), automaton.DEAD]] == forced.NO_TOKEN).all()


def test_a_long_text_is_cut_as_the_tokenizer_cuts_it(tokenizer: Tokenizer) -> None:
    text = 'The ward, the visit and the patient: ' * 12
    found = automaton.build(expressions.literal(text))
    assert forced_run(tokenizer, found, automaton.START) == tokenizer.encode_batch([text])[0].tolist()


@pytest.mark.first
def test_part_of_a_character_is_not_forced_text(tokenizer: Tokenizer) -> None:
    token_bytes = tokenizer.token_bytes()
    found = automaton.build(expressions.union(*map(expressions.literal, ('aé', 'aè'))))
    ids = forced_run(tokenizer, found, automaton.START)
    assert found.forced() == b'a\xc3' and b''.join(token_bytes[token] for token in ids) == b'a'
    one = automaton.build(expressions.literal('é'))
    # A token of the byte that is left, for a first one was sampled.
    (last,) = forced_run(tokenizer, one, one.walk(b'\xc3'))
    assert token_bytes[last] == b'\xa9'


def test_a_text_that_the_tokenizer_changes_is_refused(tokenizer: Tokenizer) -> None:
    # SentencePiece's sign for a space.
    found = automaton.build(expressions.literal('a\u2581b'))
    with pytest.raises(ValueError, match='spells forced text as it is'):
        forced_table(tokenizer, found)
