"""Benchmark of structures: random walks beside llguidance and `jsonschema`, and what an automaton takes.

    python -m tests.benchmarks.grammar_benchmark --tokens 100000 --schemas 50

Walks go over tokens that both our automaton and llguidance's matcher allow, schema after schema. Where one
allows a token that the other does not, the text is ended as the side that allows it would end it, and what
comes of it says why: `jsonschema` tells whether the text is valid, and the form of
`models/grammars/json_schema` which valid texts are left out. What neither explains is `unexplained`, and its
goal is 0; every complete text of a walk is validated too. Then schemas of 1, 10 and 100 fields are compiled,
with a vocabulary of `--vocabulary` made-up tokens. Prints one JSON line.
"""

import argparse
import collections
import datetime
import json
import re
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import numpy as np

from launch.demo import clinic_records
from models.constraints import Grammar
from models.grammars.automaton import DEAD, START, Automaton
from models.grammars.json_schema import compact, schema
from tests.models.grammars import llguidance_test
from tests.models.grammars.llguidance_test import END, OPTIONS, TOKENS

_LONGEST = max(map(len, TOKENS))
# Steps that llguidance gets to end a text.
_MOST_STEPS = 400

_FIELDS: tuple[Callable[[int], dict[str, Any]], ...] = (
    lambda n: {'type': 'string', 'maxLength': 4 + n % 20},
    lambda n: {'type': 'integer', 'minimum': -n, 'maximum': 10 + 37 * n},
    lambda n: {'enum': [f'v{n}', f'é{n}', None, n]},
    lambda n: {'type': 'boolean'},
    lambda n: {'type': 'number', 'minimum': 0, 'maximum': 1 + n},
    lambda n: {'type': 'string', 'format': ('date', 'uuid', 'date-time', 'time', 'email')[n % 5]},
    lambda n: {'type': 'array', 'items': {'type': 'boolean'}, 'minItems': n % 2, 'maxItems': 1 + n % 3},
    lambda n: {'type': 'string', 'pattern': f'^[A-Z]{{1,{1 + n % 4}}}[0-9]{{2}}$'},
    lambda n: {'anyOf': [{'type': 'null'}, {'const': f'c{n}'}]},
    lambda n: {
        'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'boolean'}},
        'required': ['a'], 'additionalProperties': False,
    },
)  # fmt: skip


def of_fields(number: int, first: int = 0) -> dict[str, Any]:
    """A schema of an object with so many fields of all kinds, every third of them optional."""
    properties = {
        f'field_{place}': _FIELDS[(first + place) % len(_FIELDS)](first + place) for place in range(number)
    }
    return {
        'type': 'object',
        'properties': properties,
        'required': [name for place, name in enumerate(properties) if place % 3 != 2],
        'additionalProperties': False,
    }


def schemas(number: int) -> list[dict[str, Any]]:
    """The schemas of the walks: a visit to a clinic, those of the tests, and objects of many fields."""
    visit = json.loads(clinic_records.SCHEMA_FILE.read_text(encoding='utf-8'))
    found = [visit, *(of for of, _, _ in llguidance_test.SCHEMAS.values())]
    found += [of_fields(1 + place % 4, first=3 * place) for place in range(max(0, number - len(found)))]
    return found[:number]


# --- Walks ---------------------------------------------------------------------------


class _Masks:
    """Masks of an automaton over all tokens, in NumPy."""

    def __init__(self, found: Automaton) -> None:
        self.found = found
        self.bytes = np.zeros((len(TOKENS), _LONGEST), int)
        self.lengths = np.array([len(token) for token in TOKENS])
        for token, data in enumerate(TOKENS):
            self.bytes[token, : len(data)] = list(data)
        self.classes = found.class_of_byte[self.bytes]

    def allowed(self, state: int) -> np.ndarray:
        states = np.full(len(TOKENS), state)
        for place in range(_LONGEST):
            has_byte = self.lengths > place
            states[has_byte] = self.found.table[states[has_byte], self.classes[has_byte, place]]
        mask = states != DEAD
        mask[END] = self.found.accepting[state]
        return mask


def _theirs(matcher: Any) -> np.ndarray:
    bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    return np.unpackbits(bits, bitorder='little')[: len(TOKENS)].astype(bool)


def is_valid(of: dict[str, Any], data: bytes) -> bool:
    """Whether a text is JSON that the schema allows, formats of days and hours looked at."""
    try:
        value = json.loads(data.decode())
        jsonschema.validate(value, of, format_checker=_FORMATS)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


_FORMATS = jsonschema.FormatChecker(formats=('uuid', 'email'))
_CLOCK = r'(?:[01]\d|2[0-3]):[0-5]\d'
_TIME = re.compile(rf'{_CLOCK}:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-]{_CLOCK})', re.ASCII)


@_FORMATS.checks('date')
def _is_date(value: Any) -> bool:
    if not isinstance(value, str):
        return True
    try:
        datetime.date.fromisoformat(value)
    except ValueError:
        return False
    return re.fullmatch(r'\d{4}-\d\d-\d\d', value, re.ASCII) is not None


@_FORMATS.checks('time')
def _is_time(value: Any) -> bool:
    return not isinstance(value, str) or _TIME.fullmatch(value) is not None


@_FORMATS.checks('date-time')
def _is_date_time(value: Any) -> bool:
    return not isinstance(value, str) or (
        _is_date(value[:10]) and value[10:11] in ('T', 't') and _is_time(value[11:])
    )


def why_ours_alone(of: dict[str, Any], found: Automaton, text: bytes, token: int) -> str:
    """Why llguidance may refuse a token that our automaton allows: see the module."""
    data = text if token == END else text + TOKENS[token]
    ended = data + found.shortest_ending(found.walk(data))
    if not is_valid(of, ended):
        return 'unexplained: not valid'
    if b'\x7f' in TOKENS[token]:
        return 'the delete character as it is'
    if token != END and rb'\/' in ended[len(text) - 1 :]:
        return 'an escaped slash'
    if token != END and b'\\' in data[len(text) - 6 if len(text) > 6 else 0 :]:
        beside = 'pattern' in json.dumps(of)
        return 'an escape beside a pattern' if beside else 'unexplained: an escape refused by llguidance'
    if 'multipleOf' in json.dumps(of) and re.search(rb'\d\.\d*0$', data):
        return 'a zero at the end of a multiple'
    return 'unexplained: refused by llguidance'


def why_theirs_alone(of: dict[str, Any], found: Automaton, matcher: Any, text: bytes, token: int) -> str:
    """Why our automaton may refuse a token that llguidance allows: see the module."""
    if token == END:
        return 'unexplained: an end' if is_valid(of, text) else 'not valid'
    ended = _ended(matcher, token, text)
    if ended is None:
        return 'no end was found'
    if not is_valid(of, ended):
        return 'not valid: ' + ('a day or a year that is none' if 'date' in json.dumps(of) else 'other')
    if re.search(rb'(?<![0-9a-zA-Z"])-0(?![.0-9]*[1-9])', ended):
        return 'minus zero'
    if re.search(rb'\d[eE][+-]?\d', ended):
        return 'an exponent'
    if re.search(rb':60(\.\d+)?[Zz+-]', ended):
        return 'a leap second'
    if re.search(rb'\d\dt\d\d:|\d\dz"|\dz"', ended):
        return 'a lower-case t or z'
    if re.search(rb'"0000-', ended):
        return 'the year 0'
    shown = compact.compact(of, ended.decode())
    if shown is not None and found.accepts(shown.encode()):
        if b'\\' in ended and not _is_in_plain_string(found, text):
            return 'a longer spelling of a name, an enum, a const or a format'
        if shown.encode() != ended and b'\\' not in ended:
            return 'a longer spelling of a number'
    return 'unexplained: refused by us'


def _is_in_plain_string(found: Automaton, text: bytes) -> bool:
    """Whether a text ends in a string that may go on with nearly anything."""
    live = found.table[found.walk(text)][found.class_of_byte[0x20:0x7F]] != DEAD
    return bool(live.sum() > 90)


def _ended(matcher: Any, token: int, text: bytes) -> bytes | None:
    """A text from a token on, as llguidance may end it; None where it does not in some hundred tokens."""
    own, data, rng = matcher.deep_copy(), text, np.random.default_rng(0)
    for _ in range(_MOST_STEPS):
        if not own.consume_token(token):
            return None
        data += TOKENS[token]
        if own.is_stopped():
            return data
        mask = _theirs(own)
        if mask[END]:
            return data
        closing = [found for found in np.flatnonzero(mask).tolist() if TOKENS[found] in (b'"', b'}', b']')]
        single = [found for found in np.flatnonzero(mask).tolist() if len(TOKENS[found]) == 1]
        token = int(rng.choice(closing or single or np.flatnonzero(mask)))
    return None


def walk(of: dict[str, Any], tokens: int, seed: int) -> collections.Counter[str]:
    """A random walk of so many tokens; counts masks, texts, and disagreements by their reason."""
    found, counts = schema.compiled(of), collections.Counter[str]()
    masks, known = _Masks(found), dict[tuple[int, int, bool], str]()
    options = llguidance_test.llguidance.LLMatcher
    matcher = llguidance_test._matcher(options.grammar_from_json_schema(json.dumps(of), overrides=OPTIONS))
    rng, state, text = np.random.default_rng(seed), START, b''
    for _ in range(tokens):
        counts['tokens'] += 1
        forced, own, mask = matcher.compute_ff_bytes(), masks.allowed(state), _theirs(matcher)
        if forced:
            # There it allows the first token of its own cut alone, and ours may be cut otherwise.
            ours = found.forced(state)
            if not (ours.startswith(forced) or forced.startswith(ours)):
                counts['unexplained: other bytes are forced'] += 1
        else:
            counts['masks'] += 1
            for token in np.flatnonzero(own != mask).tolist():
                key = (state, token, bool(own[token]))
                if key not in known:
                    known[key] = (
                        why_ours_alone(of, found, text, token)
                        if own[token]
                        else why_theirs_alone(of, found, matcher, text, token)
                    )
                counts[known[key]] += 1
        both = np.flatnonzero(own & mask)
        token = int(rng.choice(both[both != END] if len(both) > 1 else both))
        if token != END:
            if not matcher.consume_token(token):
                counts['unexplained: llguidance refused its own token'] += 1
                break
            text, state = text + TOKENS[token], found.walk(TOKENS[token], state)
        if token == END or matcher.is_stopped():
            counts['texts'] += 1
            counts['unexplained: a text is not valid'] += not is_valid(of, text)
            matcher.reset()
            state, text = START, b''
    return +counts


# --- What an automaton takes -----------------------------------------------------------


def vocabulary(size: int) -> list[bytes]:
    """So many made-up tokens: the bytes, an end, and words of lower-case letters with a space or without."""
    rng = np.random.default_rng(0)
    found = dict.fromkeys([b'', *(bytes([byte]) for byte in range(256))])
    while len(found) < size:
        words = rng.integers(97, 123, (size, 11)).astype(np.uint8)
        for word, length, spaced in zip(words, rng.integers(2, 12, size), rng.random(size) < 0.5):
            if len(found) < size:
                found[(b' ' if spaced else b'') + word[:length].tobytes()] = None
    return list(found)


def compiled(fields: int, token_bytes: list[bytes]) -> dict[str, Any]:
    """Seconds and bytes of the automaton of so many fields, and of its mask over a vocabulary."""
    begun = time.perf_counter()
    found = schema.compiled(of_fields(fields))
    seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    grammar = Grammar.of(found, token_bytes, tokens=np.ones(len(token_bytes), bool), stop_tokens=(0,))
    return {
        'fields': fields,
        'states': found.states,
        'compile_seconds': round(seconds, 3),
        'table_megabytes': round(grammar.table.nbytes / 1e6, 3),
        'mask_seconds': round(time.perf_counter() - begun, 3),
        'vocabulary_megabytes': round((grammar.classes.nbytes + grammar.ranks.nbytes) / 1e6, 3),
    }


def run(tokens: int, number: int, vocabulary_size: int, fields: tuple[int, ...]) -> dict[str, Any]:
    """All of the benchmark."""
    of_walks = schemas(number)
    counts: collections.Counter[str] = collections.Counter()
    for place, of in enumerate(of_walks):
        counts += walk(of, tokens // len(of_walks), seed=place)
    totals = {name: counts.pop(name, 0) for name in ('tokens', 'masks', 'texts')}
    unexplained = {name: count for name, count in counts.items() if name.startswith('unexplained')}
    token_bytes = vocabulary(vocabulary_size)
    return {
        'benchmark': 'grammar',
        'schemas': len(of_walks),
        **totals,
        'unexplained': sum(unexplained.values()),
        'disagreements': dict(sorted(counts.items())),
        'vocabulary': len(token_bytes),
        'automata': [compiled(of, token_bytes) for of in fields],
    }


def main() -> None:
    """Prints the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument('--tokens', type=int, default=100_000)
    parser.add_argument('--schemas', type=int, default=50)
    parser.add_argument('--vocabulary', type=int, default=262_144)
    parser.add_argument('--fields', type=int, nargs='+', default=[1, 10, 100])
    given = parser.parse_args()
    print(
        json.dumps(
            run(given.tokens, given.schemas, given.vocabulary, tuple(given.fields)), ensure_ascii=False
        )
    )


if __name__ == '__main__':
    main()
