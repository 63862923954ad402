"""The texts that a grammar accepts: by Python's `re`, by enumeration of states, and by a schema's words."""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from models.grammars import expressions
from models.grammars.automaton import DEAD, Automaton
from models.grammars.expressions import Expression


def as_re(expression: Expression) -> bytes:
    """An expression of bytes as a pattern of `re`, to be matched in full."""
    match expression:
        case expressions.Bytes(ranges):
            return b'[' + b''.join(b'\\x%02x-\\x%02x' % pair for pair in ranges) + b']'
        case expressions.Concatenation(parts):
            return b''.join(map(as_re, parts))
        case expressions.Union(parts):
            return b'(?:' + b'|'.join(map(as_re, parts)) + b')' if parts else b'(?!)'
        case expressions.Repetition(part, least, most):
            end = b'' if most is None else b'%d' % most
            return b'(?:%b){%d,%b}' % (as_re(part), least, end)
        case expressions.Separated(items, separator):
            # Every choice of items, written out.
            chosen: list[list[Expression]] = [[]]
            for item, is_required in items:
                with_it = [[*some, item] for some in chosen]
                chosen = with_it if is_required else with_it + chosen
            joined = (as_re(separator).join(map(as_re, some)) for some in chosen)
            return b'(?:' + b'|'.join(joined) + b')'
    raise TypeError(expression)


def told_apart(automaton: Automaton) -> int:
    """The number of sets of states that the texts after them tell apart (Moore), the dead state counted."""
    groups = automaton.accepting.astype(int)
    while True:
        rows = np.concatenate([groups[:, None], groups[automaton.table]], axis=1)
        _, refined = np.unique(rows, axis=0, return_inverse=True)
        if refined.max() == groups.max():
            return int(groups.max()) + 1
        groups = refined.reshape(-1)


def grammar(
    accepts_prefix: Callable[[bytes], bool],
    accepts: Callable[[bytes], bool],
    token_bytes: Sequence[bytes],
    tokens: Collection[int],
    stop_tokens: Collection[int],
) -> Callable[[tuple[int, ...]], np.ndarray]:
    """A token may come if the bytes so far, and its own, begin some text; an end if they are one."""

    def allowed(example: tuple[int, ...]) -> np.ndarray:
        so_far = b''.join(token_bytes[token] for token in example)
        return np.array([
            accepts(so_far)
            if token in stop_tokens
            else token in tokens and bool(data) and accepts_prefix(so_far + data)
            for token, data in enumerate(token_bytes)
        ])  # fmt: skip

    return allowed


def state_masks(
    automaton: Automaton,
    token_bytes: Sequence[bytes],
    tokens: np.ndarray,
    stop_tokens: Collection[int],
    forced: Sequence[int],
) -> np.ndarray:
    """`[states V]` bool, what may come in each state: token by token, byte by byte."""

    def may_come(state: int, token: int) -> bool:
        if forced[state] >= 0:
            return token == forced[state]
        if token in stop_tokens:
            return bool(automaton.accepting[state]) or state == DEAD
        data = token_bytes[token] if token < len(token_bytes) else b''
        return bool(tokens[token]) and bool(data) and automaton.walk(data, state) != DEAD

    return np.array(
        [[may_come(state, token) for token in range(len(tokens))] for state in range(automaton.states)]
    )


def texts(automaton: Automaton, size: int, rng: np.random.Generator) -> Iterator[bytes]:
    """Random texts of an automaton, by a walk that ends with odds of 1 to 3 where it may."""
    while size:
        state, text = 1, bytearray()
        while not (automaton.accepting[state] and (rng.random() < 0.3 or not automaton.table[state].any())):
            live = np.flatnonzero(automaton.table[state] != DEAD)
            chosen = rng.choice(live)
            text.append(int(rng.choice(np.flatnonzero(automaton.class_of_byte == chosen))))
            state = int(automaton.table[state, chosen])
            if len(text) > 400:
                break
        else:
            size -= 1
            yield bytes(text)


def in_form(root: Any, schema: Any, value: Any, is_valid: Callable[[Any, Any], bool]) -> bool:
    """True if a valid value, its numbers as written, can be written in the compact form of a schema."""
    if '$ref' in schema:
        target = root
        for part in schema['$ref'].split('/')[1:]:
            name = part.replace('%25', '%').replace('%22', '"').replace('~1', '/').replace('~0', '~')
            target = target[int(name)] if isinstance(target, list) else target[name]
        return in_form(root, target, value, is_valid)
    for name in ('anyOf', 'oneOf', 'allOf'):
        if name in schema:
            branches = [branch for branch in schema[name] if is_valid(branch, value)]
            return any(branch is not True and in_form(root, branch, value, is_valid) for branch in branches)
    if 'enum' in schema or 'const' in schema:
        values = schema.get('enum', [schema.get('const')])
        return written(value) in [shortest(listed) for listed in values]
    match value:
        case Mapping():
            declared = list(schema.get('properties', {}))
            if not set(value) <= set(declared) or list(value) != sorted(value, key=declared.index):
                return False
            return all(
                in_form(root, schema['properties'][key], item, is_valid) for key, item in value.items()
            )
        case list():
            return all(in_form(root, schema['items'], item, is_valid) for item in value)
        case Decimal():
            return (
                'number' in schema['type']
                and 'E' not in str(value)
                and not re.fullmatch('-0(.0+)?', str(value))
            )
    return True


def written(value: Any, number: Callable[[Any], str] = str) -> str:
    """A value as compact JSON, its keys in their order, its numbers by `number`."""
    match value:
        case bool() | None | str():
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            pairs = (f'{written(key)}:{written(item, number)}' for key, item in value.items())
            return '{' + ','.join(pairs) + '}'
        case list():
            return '[' + ','.join(written(item, number) for item in value) + ']'
    return number(value)


def shortest(value: Any) -> str:
    """A value as compact JSON, its numbers without needless digits."""
    return written(value, _shortest_number)


def _shortest_number(value: Decimal | int) -> str:
    text = f'{Decimal(value):f}'
    text = text.rstrip('0').rstrip('.') if '.' in text else text
    return '0' if re.fullmatch('-?0', text) else text
