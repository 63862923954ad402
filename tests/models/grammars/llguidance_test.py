"""Masks equal those of llguidance on random walks, but for differences that are named here."""

import json
from typing import Any

import numpy as np
import pytest

from models.grammars import automaton, regular_expressions
from models.grammars.automaton import Automaton
from models.grammars.json_schema import schema

llguidance = pytest.importorskip('llguidance')

PIECES = [
    '{"', '":', '","', '"}', 'null', 'true', '12', '00', 'a"', 'é', 'abc', ' ', '": "', '],"', '"]', '\\u00',
    '-01', '.5', '2020-', '}}', '-1',
]  # fmt: skip
TOKENS = [*(bytes([byte]) for byte in range(256)), *map(str.encode, PIECES), b'\xf0\x9f\x98', b'<end>']
END = len(TOKENS) - 1
STEPS = 60
OPTIONS = {'whitespace_flexible': False, 'json_allow_general_unicode_escapes': True}


class _Bytes:
    """A tokenizer as llguidance wants one."""

    eos_token_id, bos_token_id, tokens, special_token_ids = END, None, TOKENS, (END,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def _matcher(grammar: str) -> Any:
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()), n_vocab=len(TOKENS), slices=[])
    found = llguidance.LLMatcher(tokenizer, grammar)
    assert not found.is_error(), found.get_error()
    return found


def closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        'type': 'object', 'properties': properties, 'required': list(required), 'additionalProperties': False,
    }  # fmt: skip


def assert_same_masks(found: Automaton, matcher: Any, ours: bytes, theirs: bytes, steps: int = STEPS) -> int:
    """On a random walk over tokens that both allow; returns how many masks were compared.

    Where llguidance is certain of the next bytes it allows the first token of its own cut of them alone.
    There the bytes are compared, not the masks.
    """
    rng, state, compared = np.random.default_rng(0), automaton.START, 0
    for _ in range(steps):
        forced = matcher.compute_ff_bytes()
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(bits, bitorder='little')[: len(TOKENS)].astype(bool)
        own = np.array([found.walk(token, state) != automaton.DEAD for token in TOKENS])
        own[END] = found.accepting[state]
        if forced:
            assert found.forced(state).startswith(forced) or forced.startswith(found.forced(state))
        else:
            compared += 1
            for token in np.flatnonzero(own != mask):
                named = ours if own[token] else theirs
                is_named = token != END and any(byte in named for byte in TOKENS[token])
                assert is_named, (TOKENS[token], own[token])
        both = np.flatnonzero(own & mask)
        token = int(rng.choice(both[both != END] if len(both) > 1 else both))
        if token != END:
            assert matcher.consume_token(token)
            state = found.walk(TOKENS[token], state)
        if token == END or matcher.is_stopped():
            matcher.reset()
            state = automaton.START
    return compared


# A schema, and the bytes of tokens that we alone, and llguidance alone, allow.
# It refuses the escape of a slash, the delete character as it is, and escapes beside a pattern. It has
# exponents and minus zero.
IN_STRINGS, ESCAPES, EXPONENTS = b'\x7f/', b'\\', b'eE'
STRING, BOOLEAN, NULL = {'type': 'string', 'maxLength': 2}, {'type': 'boolean'}, {'type': 'null'}
DIGITS = {'type': 'integer', 'minimum': 1, 'maximum': 30}
SCHEMAS: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
    'strings': ({'type': 'string', 'minLength': 1, 'maxLength': 4}, IN_STRINGS, b''),
    'strings of any length': ({'type': 'string'}, IN_STRINGS, b''),
    'a pattern': ({'type': 'string', 'pattern': '^[a-z]{2}[0-9]*$'}, ESCAPES, b''),
    'integers': ({'type': 'integer'}, b'', b'0'),
    'integers in bounds': ({'type': 'integer', 'minimum': -5, 'maximum': 1200}, b'', b'0'),
    'positive integers': ({'type': 'integer', 'minimum': 7, 'maximum': 1200}, b'', b''),
    'multiples': ({'type': 'integer', 'multipleOf': 5, 'minimum': 0, 'maximum': 1000}, b'', b''),
    'numbers': ({'type': 'number'}, b'', EXPONENTS),
    'numbers in bounds': ({'type': 'number', 'minimum': 0.5, 'exclusiveMaximum': 12}, b'', b''),
    'objects': (closed({'a': NULL, 'b': BOOLEAN, 'c': {'enum': ['x', 'yé']}}, 'b'), b'', b''),
    'optional properties': (closed({'a': NULL, 'b': NULL, 'ab': {'const': 1}}), b'', b''),
    'nested objects': (closed({'a': closed({'b': STRING}, 'b')}, 'a'), IN_STRINGS, b''),
    'arrays': ({'type': 'array', 'items': DIGITS, 'minItems': 1, 'maxItems': 3}, b'', b''),
    'any of': (
        {'anyOf': [NULL, {'const': '12'}, closed({'k': BOOLEAN}, 'k'), {'enum': ['13', 1]}]}, b'', b'',
    ),
    'types': ({'type': ['boolean', 'null', 'array'], 'items': NULL, 'maxItems': 2}, b'', b''),
    'references': ({'$ref': '#/$defs/p', '$defs': {'p': closed({'s': STRING}, 's')}}, IN_STRINGS, b''),
    'uuid': ({'type': 'string', 'format': 'uuid'}, b'', b''),
    # No day is looked at for its month there, year 0 is one, and 60 seconds, `t` and `z` are.
    'date': ({'type': 'string', 'format': 'date'}, b'', b'0123'),
    'time': ({'type': 'string', 'format': 'time'}, b'', b'6z'),
    'date-time': ({'type': 'string', 'format': 'date-time'}, b'', b'01236zt'),
}  # fmt: skip


@pytest.mark.parametrize('name', SCHEMAS)
def test_masks_of_a_schema(name: str) -> None:
    of, ours, theirs = SCHEMAS[name]
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(of), overrides=OPTIONS)
    assert assert_same_masks(schema.compiled(of), _matcher(grammar), ours, theirs) > STEPS // 10


@pytest.mark.parametrize(
    'pattern',
    [
        '(a|bc|é)*d?', '[a-z]{2,4}[0-9]+', 'x[^a]{1,3}y', '(12|1[0-5]{2})(,-1)*',
        r'(\u{1F600}|\u{1F601}|a.)+',
    ],
)  # fmt: skip
def test_masks_of_a_regular_expression(pattern: str) -> None:
    theirs = pattern.replace(r'\u{', r'\x{').replace('.', r'[^\n\r\u{2028}\u{2029}]')
    matcher = _matcher(llguidance.LLMatcher.grammar_from_regex(theirs))
    found = automaton.build(regular_expressions.matched(pattern))
    assert assert_same_masks(found, matcher, b'', b'') > STEPS // 10
