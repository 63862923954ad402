"""Deterministic automata of bytes: built from expressions, combined, walked.

Built by the subset construction (`nondeterministic.py`), and minimal (`minimization.py`).
"""

import array
import collections
import contextlib
import contextvars
import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator

import numpy as np

from models.grammars import expressions
from models.grammars.expressions import Edges, Embedded, Expression
from models.grammars.minimization import DEAD, START, minimal
from models.grammars.nondeterministic import Nfa, too_large

# A table of 60 classes takes 48 MB on the device.
MAX_STATES = 200_000
# Limits on building an automaton, in counts and not in seconds, so that all machines refuse the same: of
# either number a quiet core needs ten seconds at the most, and less than a gigabyte.
MAX_TRANSITIONS = 800_000
MAX_SUBSET_STEPS = 80_000_000
# A look at a state's successors takes as long as putting so many states into a subset.
_STEPS_OF_LOOK = 40


@dataclasses.dataclass(frozen=True, eq=False)
class Automaton:
    """A set of texts: each byte leads from state to state, and texts of the set end in an accepting state.

    It is minimal, and its states are numbered in the order of the first bytes that lead to them, so two
    automata of the same set are equal. From every state but `DEAD` some bytes lead to an accepting state;
    for the empty set, `START` accepts nothing and leads nowhere.

    Attributes:
        table: `[states, classes]` int32, the next state; row `DEAD` is `DEAD` alone.
        accepting: `[states]` bool, whether a text may end here.
        class_of_byte: `[256]` uint8.
    """

    table: np.ndarray
    accepting: np.ndarray
    class_of_byte: np.ndarray

    @property
    def states(self) -> int:
        """Rows of the table, the dead state counted."""
        return len(self.table)

    @property
    def is_empty(self) -> bool:
        """True if there is no text in the set."""
        return not self.accepting.any()

    def walk(self, data: bytes, state: int = START) -> int:
        """The state after some bytes."""
        for byte in data:
            state = int(self.table[state, self.class_of_byte[byte]])
        return state

    def accepts(self, data: bytes) -> bool:
        """True if a text is in the set."""
        return bool(self.accepting[self.walk(data)])

    def forced(self, state: int = START) -> bytes:
        """The bytes that have to come next: while a text may not end and only one byte leads on."""
        run = bytearray()
        while not self.accepting[state]:
            (live,) = np.nonzero(self.table[state][self.class_of_byte] != DEAD)
            if len(live) != 1:
                break
            run.append(int(live[0]))
            state = self.walk(run[-1:], state)
        return bytes(run)

    def reached_from(self, states: Iterable[int]) -> np.ndarray:
        """The states that some states lead to, including themselves, `[states]` bool."""
        seen = np.zeros(self.states, bool)
        new = np.unique(np.fromiter(states, int))
        while len(new):
            seen[new] = True
            new = np.unique(self.table[new])
            new = new[~seen[new]]
        return seen

    def forced_bytes_of(self, text: bytes, state: int = START) -> int:
        """The number of forced bytes of a text of the set: no other byte could have come, and no end."""
        count = 0
        for place in range(len(text)):
            one_leads_on = np.count_nonzero(self.table[state][self.class_of_byte] != DEAD) == 1
            count += bool(one_leads_on and not self.accepting[state])
            state = self.walk(text[place : place + 1], state)
        return count

    def shortest_ending(self, state: int = START) -> bytes:
        """The shortest bytes from a state to an accepting one; among equally short ones the smallest.

        Raises:
            ValueError: No text goes on from there.
        """
        if self._left[state] < 0:
            raise ValueError(f'Expected a state from which some text ends, got state={state}. Start anew.')
        ending = bytearray()
        while not self.accepting[state]:
            nearer = self._left[self.table[state]] == self._left[state] - 1
            ending.append(int(np.flatnonzero(nearer[self.class_of_byte])[0]))
            state = self.walk(ending[-1:], state)
        return bytes(ending)

    @functools.cached_property
    def _left(self) -> np.ndarray:
        """`[states]` length of the shortest ending, -1 where there is none."""
        left = np.where(self.accepting, 0, -1)
        reached, length = self.accepting, 0
        while reached.any():
            length += 1
            reached = (left < 0) & reached[self.table].any(axis=1)
            left[reached] = length
        return left


def embedded(automaton: Automaton) -> Expression:
    """The texts of an automaton."""
    if automaton.is_empty:
        return expressions.NOTHING
    rows = automaton.table[:, automaton.class_of_byte].tolist()
    return Embedded(tuple(map(_edges, rows)), tuple(automaton.accepting.tolist()))


def _edges(row: list[int]) -> Edges:
    """The edges of one state, from the state after each byte."""
    edges, low = [], 0
    for byte in range(1, 257):
        if byte == 256 or row[byte] != row[low]:
            if row[low] != DEAD:
                edges.append((low, byte - 1, row[low]))
            low = byte
    return edges


def build(expression: Expression, max_states: int = MAX_STATES) -> Automaton:
    """The minimal automaton of an expression.

    Raises:
        ValueError: It takes more states, or more work than `MAX_TRANSITIONS` and `MAX_SUBSET_STEPS` allow.
    """
    if expression is expressions.NOTHING:
        return Automaton(*minimal(1, array.array('i'), []))
    nfa = Nfa(max_states)
    start = nfa.enter(expression, nfa.end)
    class_of_byte, spans = nfa.classes()
    closures: dict[int, tuple[int, ...]] = {}
    work = _Work(max_states)

    def closure(state: int) -> tuple[int, ...]:
        if state not in closures:
            closures[state] = nfa.closure(state)
        work.step(_STEPS_OF_LOOK + len(closures[state]))
        return closures[state]

    ids: dict[tuple[int, ...], int] = {closure(start): 0}
    queue, accepting = [closure(start)], []

    def number(subset: tuple[int, ...]) -> int:
        place = ids.get(subset)
        if place is None:
            place = ids[subset] = len(queue)
            queue.append(subset)
            work.check_states(len(queue))
        return place

    # It grows as it is read.
    for source, subset in enumerate(queue):
        if nfa.end in subset:
            accepting.append(source)
        if len(subset) == 1:
            for first, last, target in spans[subset[0]]:
                reached = number(closure(target))
                for label in range(first, last):
                    work.add(source, label, reached)
            continue
        targets: dict[int, set[int]] = {}
        for first, last, target in itertools.chain.from_iterable(spans[state] for state in subset):
            for label in range(first, last):
                targets.setdefault(label, set()).update(closure(target))
        for label, states in targets.items():
            work.add(source, label, number(tuple(sorted(states))))
    return Automaton(*minimal(len(queue), work.transitions, accepting, class_of_byte))


# The work so far: transitions before minimisation, and states that were put into subsets, looks at
# successors in the same measure.
_effort: contextvars.ContextVar[collections.Counter[str]] = contextvars.ContextVar('_effort')


@contextlib.contextmanager
def counted_together() -> Iterator[None]:
    """All automata that are built meanwhile share `MAX_TRANSITIONS` and `MAX_SUBSET_STEPS`."""
    token = _effort.set(collections.Counter())
    try:
        yield
    finally:
        _effort.reset(token)


class _Work:
    """The transitions of an automaton that is being built, and a limit on them and on what they take.

    Attributes:
        transitions: Source, label and target, one after another.
    """

    def __init__(self, max_states: int) -> None:
        self.transitions = array.array('i')
        self._max_states, self._effort = max_states, _effort.get(collections.Counter())

    def add(self, source: int, label: int, target: int) -> None:
        """Adds a transition.

        Raises:
            ValueError: There are too many.
        """
        self.transitions.extend((source, label, target))
        self._count('transitions', 1, MAX_TRANSITIONS)

    def step(self, count: int) -> None:
        """Counts states that are put into subsets.

        Raises:
            ValueError: There are too many.
        """
        self._count('steps', count, MAX_SUBSET_STEPS)

    def _count(self, what: str, count: int, most: int) -> None:
        self._effort[what] += count
        if self._effort[what] > most:
            raise ValueError(
                f'Expected an automaton that is built with at most {most:,} {what}, got more. Lower '
                'maxLength, maxItems, the bounds of repetitions or the depth of recursion, or write fewer '
                'alternatives that begin alike.'
            )

    def check_states(self, count: int) -> None:
        """Refuses an automaton of too many states.

        Raises:
            ValueError: There are too many.
        """
        if count > self._max_states:
            raise too_large(self._max_states)


def explore[State: Hashable](
    start: State,
    step: Callable[[State, int], State | None],
    accepts: Callable[[State], bool],
    alphabet: bytes,
) -> Automaton:
    """The minimal automaton of states that a function computes.

    Args:
        start: The first state.
        step: The state after another and a byte, None where there is none.
        accepts: Whether a text may end in a state.
        alphabet: The bytes that may lead anywhere.

    Raises:
        ValueError: It takes more than `MAX_STATES` states.
    """
    ids, queue, work = {start: 0}, [start], _Work(MAX_STATES)
    for source, state in enumerate(queue):
        for byte in alphabet:
            reached = step(state, byte)
            if reached is None:
                continue
            if reached not in ids:
                ids[reached] = len(queue)
                queue.append(reached)
                work.check_states(len(queue))
            work.add(source, byte, ids[reached])
    accepting = [number for number, state in enumerate(queue) if accepts(state)]
    return Automaton(*minimal(len(queue), work.transitions, accepting))


def intersection(first: Automaton, second: Automaton) -> Automaton:
    """The texts of both.

    Raises:
        ValueError: It takes more than `MAX_STATES` states.
    """
    pairs = np.stack([first.class_of_byte, second.class_of_byte], axis=1)
    classes, class_of_byte = np.unique(pairs, axis=0, return_inverse=True)
    tables = first.table.tolist(), second.table.tolist()
    ids, queue, accepting, work = {(START, START): 0}, [(START, START)], [], _Work(MAX_STATES)
    for source, (state, other) in enumerate(queue):
        if first.accepting[state] and second.accepting[other]:
            accepting.append(source)
        for label, (column, other_column) in enumerate(classes.tolist()):
            reached = (tables[0][state][column], tables[1][other][other_column])
            if DEAD in reached:
                continue
            if reached not in ids:
                ids[reached] = len(queue)
                queue.append(reached)
                work.check_states(len(queue))
            work.add(source, label, ids[reached])
    return Automaton(*minimal(len(queue), work.transitions, accepting, class_of_byte.reshape(-1)))
