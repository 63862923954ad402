"""Minimal deterministic automata of bytes: built from expressions, combined, walked.

By the subset construction, and minimised as A. Valmari, Fast brief practical DFA minimization,
Information Processing Letters 112 (2012). Bytes that no state tells apart are one class, as in lexers.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator

import numpy as np

from models.grammars import expressions
from models.grammars.expressions import (
    Bytes,
    Concatenation,
    Expression,
    Repetition,
    Separated,
    Union,
)

DEAD, START = 0, 1
# Of 60 classes, 48 MB on the device.
MAX_STATES = 200_000
# States of the non-deterministic automaton for one of the deterministic one, before it is refused.
_STATES_PER_STATE = 10


@dataclasses.dataclass(frozen=True, eq=False)
class Automaton:
    """Which texts are in a set, a byte at a time.

    It is minimal, and its states are numbered in the order of the first bytes that lead to them: two
    of the same set are equal. From every state but `DEAD` some bytes lead on to an accepting one; where
    the set is empty `START` is `DEAD` in all but its number.

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
        """Whether there is no text in the set."""
        return not self.accepting.any()

    def walk(self, data: bytes, state: int = START) -> int:
        """The state after some bytes."""
        for byte in data:
            state = int(self.table[state, self.class_of_byte[byte]])
        return state

    def accepts(self, data: bytes) -> bool:
        """Whether a text is in the set."""
        return bool(self.accepting[self.walk(data)])

    def forced(self, state: int = START) -> bytes:
        """The bytes that have to come next: as long as a text may not end and one byte alone leads on."""
        run = bytearray()
        while not self.accepting[state]:
            (live,) = np.nonzero(self.table[state][self.class_of_byte] != DEAD)
            if len(live) != 1:
                break
            run.append(int(live[0]))
            state = self.walk(run[-1:], state)
        return bytes(run)

    def reached_from(self, states: Iterable[int]) -> np.ndarray:
        """Which states some states lead to, themselves among them, `[states]` bool."""
        seen = np.zeros(self.states, bool)
        new = np.unique(np.fromiter(states, int))
        while len(new):
            seen[new] = True
            new = np.unique(self.table[new])
            new = new[~seen[new]]
        return seen

    def forced_bytes_of(self, text: bytes, state: int = START) -> int:
        """How many bytes of a text that ends in the set could be no others, nor could it have ended."""
        count = 0
        for place in range(len(text)):
            one_leads_on = np.count_nonzero(self.table[state][self.class_of_byte] != DEAD) == 1
            count += bool(one_leads_on and not self.accepting[state])
            state = self.walk(text[place : place + 1], state)
        return count

    def shortest_ending(self, state: int = START) -> bytes:
        """The shortest bytes that make a text of what led to a state, of equal ones the least.

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
        """`[states]` bytes of the shortest ending, -1 where there is none."""
        left = np.where(self.accepting, 0, -1)
        reached, length = self.accepting, 0
        while reached.any():
            length += 1
            reached = (left < 0) & reached[self.table].any(axis=1)
            left[reached] = length
        return left


@dataclasses.dataclass(frozen=True, eq=False)
class Embedded(Expression):
    """The texts of an automaton, inside an expression."""

    automaton: Automaton


def embedded(automaton: Automaton) -> Expression:
    """The texts of an automaton."""
    return expressions.NOTHING if automaton.is_empty else Embedded(automaton)


def build(expression: Expression, max_states: int = MAX_STATES) -> Automaton:
    """The minimal automaton of an expression.

    Args:
        expression: Whose texts it accepts.
        max_states: Most states before minimisation.

    Raises:
        ValueError: It takes more states.
    """
    if expression is expressions.NOTHING:
        return _minimal(1, [], [])
    nfa = _Nfa(_STATES_PER_STATE * max_states)
    start = nfa.enter(expression, nfa.end)
    class_of_byte, spans = nfa.classes()
    closures: dict[int, tuple[int, ...]] = {}

    def closure(state: int) -> tuple[int, ...]:
        if state not in closures:
            closures[state] = nfa.closure(state)
        return closures[state]

    ids: dict[tuple[int, ...], int] = {closure(start): 0}
    queue, accepting = [closure(start)], []
    transitions: list[tuple[int, int, int]] = []

    def number(subset: tuple[int, ...]) -> int:
        found = ids.get(subset)
        if found is None:
            found = ids[subset] = len(queue)
            queue.append(subset)
            if found >= max_states:
                raise _too_large(max_states)
        return found

    # It grows as it is read.
    for source, subset in enumerate(queue):
        if nfa.end in subset:
            accepting.append(source)
        if len(subset) == 1:
            for first, last, target in spans[subset[0]]:
                reached = number(closure(target))
                transitions.extend((source, label, reached) for label in range(first, last))
            continue
        targets: dict[int, set[int]] = {}
        for first, last, target in itertools.chain.from_iterable(spans[state] for state in subset):
            for label in range(first, last):
                targets.setdefault(label, set()).update(closure(target))
        transitions.extend(
            (source, label, number(tuple(sorted(reached)))) for label, reached in targets.items()
        )
    return _minimal(len(queue), transitions, accepting, class_of_byte)


def _too_large(max_states: int) -> ValueError:
    return ValueError(
        f'Expected an automaton of at most max_states={max_states:,}, got more. Lower maxLength, maxItems, '
        'the bounds of repetitions or the depth of recursion.'
    )


def explore[State: Hashable](
    start: State,
    step: Callable[[State, int], State | None],
    accepts: Callable[[State], bool],
    alphabet: bytes,
) -> Automaton:
    """The minimal automaton of states that are computed.

    Args:
        start: The first state.
        step: The state after another and a byte, None where there is none.
        accepts: Whether a text may end in a state.
        alphabet: The bytes that lead anywhere.
    """
    ids, queue, transitions = {start: 0}, [start], []
    for source, state in enumerate(queue):
        for byte in alphabet:
            reached = step(state, byte)
            if reached is None:
                continue
            if reached not in ids:
                ids[reached] = len(queue)
                queue.append(reached)
            transitions.append((source, byte, ids[reached]))
    accepting = [number for number, state in enumerate(queue) if accepts(state)]
    return _minimal(len(queue), transitions, accepting)


def intersection(first: Automaton, second: Automaton) -> Automaton:
    """The texts of both."""
    return _product(first, second, lambda a, b: a and b)


def difference(first: Automaton, second: Automaton) -> Automaton:
    """The texts of the first that the second has not."""
    return _product(first, second, lambda a, b: a and not b)


def _product(first: Automaton, second: Automaton, accepts: Callable[[bool, bool], bool]) -> Automaton:
    pairs = np.stack([first.class_of_byte, second.class_of_byte], axis=1)
    classes, class_of_byte = np.unique(pairs, axis=0, return_inverse=True)
    columns = classes.tolist()
    tables, ends = (first.table.tolist(), second.table.tolist()), (first.accepting, second.accepting)
    ids, queue, transitions, accepting = {(START, START): 0}, [(START, START)], [], []
    for source, (state, other) in enumerate(queue):
        if accepts(bool(ends[0][state]), bool(ends[1][other])):
            accepting.append(source)
        for label, (column, other_column) in enumerate(columns):
            reached = (tables[0][state][column], tables[1][other][other_column])
            # Both combinations have texts of the first alone.
            if reached[0] == DEAD:
                continue
            if reached not in ids:
                ids[reached] = len(queue)
                queue.append(reached)
            transitions.append((source, label, ids[reached]))
    return _minimal(len(queue), transitions, accepting, class_of_byte.reshape(-1))


class _Nfa:
    """States with edges of byte ranges and empty edges, built from a text's end to its start."""

    def __init__(self, max_states: int) -> None:
        self.max_states = max_states
        self.edges: list[list[tuple[int, int, int]]] = []
        self.empty: list[list[int]] = []
        self.end = self._state()
        self._entered: dict[tuple[Expression, int], int] = {}
        self._copied: dict[Automaton, list[list[tuple[int, int, int]]]] = {}

    def _state(self) -> int:
        if len(self.edges) >= self.max_states:
            raise _too_large(self.max_states // _STATES_PER_STATE)
        self.edges.append([])
        self.empty.append([])
        return len(self.edges) - 1

    def _any_of(self, states: Iterable[int]) -> int:
        state = self._state()
        self.empty[state].extend(states)
        return state

    def enter(self, expression: Expression, follow: int) -> int:
        """The state from which a text of `expression` leads to `follow`; one for each two of them."""
        key = (expression, follow)
        if key not in self._entered:
            self._entered[key] = self._enter(expression, follow)
        return self._entered[key]

    def _enter(self, expression: Expression, follow: int) -> int:
        match expression:
            case Bytes(ranges):
                state = self._state()
                self.edges[state].extend((low, high, follow) for low, high in ranges)
                return state
            case Concatenation(parts):
                for part in reversed(parts):
                    follow = self.enter(part, follow)
                return follow
            case Union(parts):
                return self._any_of([self.enter(part, follow) for part in parts])
            case Repetition(part, least, None):
                loop = self._state()
                self.empty[loop].extend((follow, self.enter(part, loop)))
                return self._times(part, least, loop)
            case Repetition(part, least, int(most)):
                state = follow
                for _ in range(most - least):
                    state = self._any_of((self.enter(part, state), follow))
                return self._times(part, least, state)
            case Separated(items, separator):
                # `rest` after some item, `first` before any.
                rest = first = follow
                for item, is_required in reversed(items):
                    taken = self.enter(item, rest)
                    after = self.enter(separator, taken)
                    first = taken if is_required else self._any_of((taken, first))
                    rest = after if is_required else self._any_of((after, rest))
                return first
            case Embedded(automaton):
                return self._copy(automaton, follow)
        raise TypeError(f'Expected an expression of bytes, got {type(expression).__name__}.')

    def _times(self, part: Expression, times: int, follow: int) -> int:
        for _ in range(times):
            follow = self.enter(part, follow)
        return follow

    def _copy(self, automaton: Automaton, follow: int) -> int:
        if automaton not in self._copied:
            self._copied[automaton] = [list(edges) for edges in _edges(automaton)]
        rows = self._copied[automaton]
        # A text ends in a state without edges, which is then what follows.
        states = [follow if not rows[state] else self._state() for state in range(automaton.states)]
        for state, row in enumerate(rows):
            if row:
                self.edges[states[state]].extend((low, high, states[target]) for low, high, target in row)
                if automaton.accepting[state]:
                    self.empty[states[state]].append(follow)
        return states[START]

    def classes(self) -> tuple[np.ndarray, list[list[tuple[int, int, int]]]]:
        """The class of each byte, and the edges with ranges of classes, the last one excluded."""
        begins = np.zeros(257, bool)
        for low, high, _ in itertools.chain.from_iterable(self.edges):
            begins[low] = begins[high + 1] = True
        class_of_byte = np.cumsum(begins)[:256]
        numbers = class_of_byte.tolist()
        return class_of_byte, [
            [(numbers[low], numbers[high] + 1, target) for low, high, target in edges] for edges in self.edges
        ]

    def closure(self, state: int) -> tuple[int, ...]:
        """The states that empty edges lead to, without those that have nothing else."""
        seen, stack = {state}, [state]
        while stack:
            for target in self.empty[stack.pop()]:
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return tuple(sorted(found for found in seen if self.edges[found] or found == self.end))


def _edges(automaton: Automaton) -> Iterator[list[tuple[int, int, int]]]:
    """For each state, ranges of bytes and where they lead."""
    for row in automaton.table[:, automaton.class_of_byte].tolist():
        edges, low = [], 0
        for byte in range(1, 257):
            if byte == 256 or row[byte] != row[low]:
                if row[low] != DEAD:
                    edges.append((low, byte - 1, row[low]))
                low = byte
        yield edges


# --- Minimisation ------------------------------------------------------------------


class _Partition:
    """A partition of 0 ... n - 1 that is refined by marking elements (Valmari 2012, class partition)."""

    def __init__(self, size: int) -> None:
        self.sets = 1 if size else 0
        self.elements, self.location = list(range(size)), list(range(size))
        self.set_of = [0] * size
        self.first, self.past, self.marked = [0], [size], [0]
        self.touched: list[int] = []

    def mark(self, element: int) -> None:
        chosen = self.set_of[element]
        here, there = self.location[element], self.first[chosen] + self.marked[chosen]
        if here < there:
            return
        other = self.elements[there]
        self.elements[here], self.location[other] = other, here
        self.elements[there], self.location[element] = element, there
        if not self.marked[chosen]:
            self.touched.append(chosen)
        self.marked[chosen] += 1

    def split(self) -> None:
        """Makes the marked elements of each touched set a set of their own, the smaller part the new one."""
        for chosen in self.touched:
            middle = self.first[chosen] + self.marked[chosen]
            if middle == self.past[chosen]:
                self.marked[chosen] = 0
                continue
            if self.marked[chosen] <= self.past[chosen] - middle:
                low, high = self.first[chosen], middle
                self.first[chosen] = middle
            else:
                low, high = middle, self.past[chosen]
                self.past[chosen] = middle
            self.first.append(low)
            self.past.append(high)
            for place in range(low, high):
                self.set_of[self.elements[place]] = self.sets
            self.marked[chosen] = 0
            self.marked.append(0)
            self.sets += 1
        self.touched.clear()


def _grouped(numbers: np.ndarray, groups: int) -> tuple[list[int], list[int]]:
    """The places of each number: all of them in order of number, and where each number's begin."""
    starts = np.zeros(groups + 1, int)
    np.cumsum(np.bincount(numbers, minlength=groups), out=starts[1:])
    return np.argsort(numbers, kind='stable').tolist(), starts.tolist()


def _reach(size: int, begin: Iterable[int], sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Which states transitions lead to from some, `[size]` bool."""
    order, starts = _grouped(sources, size)
    ends = targets.tolist()
    seen = np.zeros(size, bool)
    stack = list(begin)
    seen[stack] = True
    while stack:
        state = stack.pop()
        for place in order[starts[state] : starts[state + 1]]:
            if not seen[ends[place]]:
                seen[ends[place]] = True
                stack.append(ends[place])
    return seen


def _minimal(
    size: int,
    transitions: list[tuple[int, int, int]],
    accepting: list[int],
    class_of_byte: np.ndarray | None = None,
) -> Automaton:
    """The minimal automaton of another one.

    Args:
        size: States, of which 0 is the first.
        transitions: Source, label and target; at most one of each source and label.
        accepting: States in which a text may end.
        class_of_byte: `[256]`, the label of each byte; itself by default.
    """
    label_of_byte = np.arange(256) if class_of_byte is None else class_of_byte
    edges = np.array(transitions, int).reshape(-1, 3)
    live = _reach(size, [0], edges[:, 0], edges[:, 2]) & _reach(size, accepting, edges[:, 2], edges[:, 0])
    live[0] = True
    edges = edges[live[edges[:, 0]] & live[edges[:, 2]]]
    tails, labels, heads = (column.tolist() for column in edges.T)

    blocks = _Partition(size)
    for state in np.flatnonzero(~live).tolist():
        blocks.mark(state)
    blocks.split()
    for state in accepting:
        if live[state]:
            blocks.mark(state)
    blocks.split()
    cords = _Partition(len(edges))
    by_label, label_starts = _grouped(edges[:, 1], 256)
    for label in range(256):
        for edge in by_label[label_starts[label] : label_starts[label + 1]]:
            cords.mark(edge)
        cords.split()
    into, into_starts = _grouped(edges[:, 2], size)
    block, cord = 0, 0
    # The first block is of use too: a state may lack a transition that another has.
    while cord < cords.sets:
        for place in range(cords.first[cord], cords.past[cord]):
            blocks.mark(tails[cords.elements[place]])
        blocks.split()
        cord += 1
        while block < blocks.sets:
            for place in range(blocks.first[block], blocks.past[block]):
                state = blocks.elements[place]
                for edge in into[into_starts[state] : into_starts[state + 1]]:
                    cords.mark(edge)
            cords.split()
            block += 1
    return _numbered(blocks, tails, labels, heads, np.array(accepting, int), label_of_byte)


def _numbered(
    blocks: _Partition,
    tails: list[int],
    labels: list[int],
    heads: list[int],
    accepting: np.ndarray,
    label_of_byte: np.ndarray,
) -> Automaton:
    """Blocks as states, in the order of a breadth-first walk by bytes."""
    set_of = np.array(blocks.set_of)
    table = np.full((blocks.sets, int(label_of_byte.max()) + 1), -1)
    table[set_of[tails], labels] = set_of[heads]
    columns, class_of_byte = np.unique(table[:, label_of_byte], axis=1, return_inverse=True)
    class_of_byte = class_of_byte.reshape(-1)
    # Classes in the order of their first bytes, so that they do not depend on the numbers of blocks.
    _, first = np.unique(class_of_byte, return_index=True)
    rank = np.empty(len(first), int)
    rank[np.argsort(first)] = np.arange(len(first))
    columns, class_of_byte = columns[:, np.argsort(first)], rank[class_of_byte]
    number = {-1: DEAD, int(set_of[0]): START}
    queue = [int(set_of[0])]
    rows = columns.tolist()
    for found in queue:
        for target in rows[found]:
            if target not in number:
                number[target] = len(number)
                queue.append(target)
    ends = np.zeros(len(number), bool)
    ends[[number[int(found)] for found in set(set_of[accepting].tolist()) if found in number]] = True
    return Automaton(
        table=np.array(
            [[DEAD] * columns.shape[1], *[[number[target] for target in rows[found]] for found in queue]],
            np.int32,
        ),
        accepting=ends,
        class_of_byte=class_of_byte.astype(np.uint8),
    )
