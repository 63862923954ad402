"""Patterns and schemas that are built to explode: refused by name, within ten seconds and 1 GB.

Each is read in a process of its own, which the kernel ends at either limit. What is refused is counted and
not timed, so that every machine refuses the same.
"""

import json
import resource
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from models.grammars import automaton, nondeterministic, structure
from models.grammars.structure import Structure
from tests import fork_server, samples

# Limits for a shared processor: on one that nobody shares ten seconds would do.
SECONDS, BYTES = 20, 2**30


def schema(**keywords: Any) -> dict[str, str]:
    return {'json_schema': json.dumps(keywords)}


BOMBS: dict[str, dict[str, str]] = {
    'counts within counts': {'regex': '((a{100}){100}){100}'},
    'a doubled end': {'regex': '(a|b)*a(a|b){25}'},
    'every optional letter': {'regex': '(a?){2000}a{2000}'},
    'a number without end': {'regex': 'a{' + '9' * 5_000 + '}'},
    'groups within groups': {'regex': '(' * 100_000 + 'a' + ')' * 100_000},
    'a long pattern': {'regex': '|'.join(f'{"x" * 50}{number}' for number in range(100_000))},
    'brackets': {'json_schema': '[' * 200_000},
    'arrays within arrays': {
        'json_schema': '{"type":"array","items":' * 3_000 + '{"type":"null"}' + '}' * 3_000
    },
    'long strings in a long array': schema(
        type='array', items={'type': 'string', 'maxLength': 10_000}, maxItems=10_000
    ),
    'references to each other': {
        'json_schema': json.dumps(
            {
                '$ref': '#/$defs/0',
                '$defs': {
                    str(n): {
                        'anyOf': [{'type': 'array', 'items': {'$ref': f'#/$defs/{m}'}} for m in (n, n + 1)]
                    }
                    for n in range(30)
                }
                | {'30': {'type': 'null'}},
            }
        )
    },
    'exactly one of many': schema(
        oneOf=[{'type': 'string', 'pattern': f'^(a|b)*a(a|b){{{length}}}$'} for length in range(8, 18)]
    ),
}  # fmt: skip


@pytest.fixture(scope='module', autouse=True)
def warm() -> Iterator[None]:
    with fork_server.preloaded('models.grammars.structure'):
        yield


def build(given: dict[str, str], answers: Connection, twin: Callable[[], None] | None) -> None:
    """Builds an automaton within the limits; sends what refuses it, or None."""
    if twin is not None:
        twin()
    with open('/proc/self/statm') as pages:
        used = int(pages.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        Structure(**given).automaton  # noqa: B018
    except ValueError as error:
        answers.send(str(error))
    except BaseException as error:  # noqa: BLE001
        answers.send(error)
    else:
        answers.send(None)


def ended(given: dict[str, str], twin: Callable[[], None] | None = None) -> Any:
    """The error that refused it, or None; EOFError where the kernel ended the process."""
    answers, sender = fork_server.CONTEXT.Pipe(duplex=False)
    process = fork_server.CONTEXT.Process(target=build, args=(given, sender, twin))
    process.start()
    sender.close()
    try:
        return answers.recv()
    except EOFError as error:
        return error
    finally:
        process.join()


@pytest.mark.run
@pytest.mark.parametrize('name', samples.with_first(BOMBS, 'counts within counts'))
def test_a_bomb_is_refused_before_it_explodes(name: str) -> None:
    said = ended(BOMBS[name])
    assert isinstance(said, str) and said.startswith('Expected ') and ', got ' in said, said
    assert len(said) < 2_000, 'a refusal that nobody reads'


def without_limits() -> None:
    """Structures as they would be without a limit of work."""
    automaton.MAX_TRANSITIONS = automaton.MAX_SUBSET_STEPS = 2**60
    nondeterministic._STATES_PER_STATE = 2**30
    structure.MAX_CHARACTERS = 2**60


@pytest.mark.run
def test_without_limits_a_bomb_explodes() -> None:
    assert not isinstance(ended(BOMBS['every optional letter'], without_limits), str)


@pytest.mark.first
@pytest.mark.run
def test_what_is_nested_and_long_but_no_bomb_is_built() -> None:
    assert ended({'regex': '(' * 50 + 'a' + ')' * 50 + '((){99999999}){99999999}'}) is None
    assert ended(schema(type='array', items={'type': 'string', 'maxLength': 200}, maxItems=10)) is None
