"""Non-deterministic automata of bytes, built from expressions."""

import itertools
from collections.abc import Iterable

import numpy as np

from models.grammars.expressions import (
    Bytes,
    Concatenation,
    Edges,
    Embedded,
    Expression,
    Repetition,
    Separated,
    Union,
)
from models.grammars.minimization import START

# States of the non-deterministic automaton for one of the deterministic one, before it is refused.
_STATES_PER_STATE = 3


def too_large(max_states: int) -> ValueError:
    """The error for an expression whose automaton has too many states."""
    return ValueError(
        f'Expected an automaton of at most max_states={max_states:,}, got more. Lower maxLength, maxItems, '
        'the bounds of repetitions or the depth of recursion.'
    )


class Nfa:
    """States with edges of byte ranges and empty edges, built from a text's end to its start.

    Attributes:
        max_states: Most states of the deterministic automaton; this one may have three times as many.
        edges: For each state, ranges of bytes and the states that they lead to.
        empty: For each state, the states that it leads to without a byte.
        end: The state in which a text ends.
    """

    def __init__(self, max_states: int) -> None:
        self.max_states = max_states
        self.edges: list[Edges] = []
        self.empty: list[list[int]] = []
        self.end = self._state()
        self._entered: dict[tuple[Expression, int], int] = {}

    def _state(self) -> int:
        if len(self.edges) >= _STATES_PER_STATE * self.max_states:
            raise too_large(self.max_states)
        self.edges.append([])
        self.empty.append([])
        return len(self.edges) - 1

    def _any_of(self, states: Iterable[int]) -> int:
        state = self._state()
        self.empty[state].extend(states)
        return state

    def enter(self, expression: Expression, follow: int) -> int:
        """The state from which a text of `expression` leads to `follow`; the same one for the same pair."""
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
                    taken = self.enter(part, state)
                    if taken == state:
                        break  # a part without bytes adds nothing, however often it stands there
                    state = self._any_of((taken, follow))
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
            case Embedded():
                return self._copy(expression, follow)
        raise TypeError(f'Expected an expression of bytes, got {type(expression).__name__}.')

    def _times(self, part: Expression, times: int, follow: int) -> int:
        for _ in range(times):
            taken = self.enter(part, follow)
            if taken == follow:
                break  # as above
            follow = taken
        return follow

    def _copy(self, embedded: Embedded, follow: int) -> int:
        # A text ends in a state without edges, which is then what follows.
        states = [self._state() if row else follow for row in embedded.rows]
        for state, row, accepts in zip(states, embedded.rows, embedded.accepting, strict=True):
            if row:
                self.edges[state].extend((low, high, states[target]) for low, high, target in row)
                if accepts:
                    self.empty[state].append(follow)
        return states[START]

    def classes(self) -> tuple[np.ndarray, list[Edges]]:
        """The class of each byte, and the edges as ranges of classes with the end excluded."""
        begins = np.zeros(257, bool)
        for low, high, _ in itertools.chain.from_iterable(self.edges):
            begins[low] = begins[high + 1] = True
        class_of_byte = np.cumsum(begins)[:256]
        numbers = class_of_byte.tolist()
        return class_of_byte, [
            [(numbers[low], numbers[high] + 1, target) for low, high, target in edges] for edges in self.edges
        ]

    def closure(self, state: int) -> tuple[int, ...]:
        """The states that empty edges lead to, without those that have empty edges only."""
        seen, stack = {state}, [state]
        while stack:
            for target in self.empty[stack.pop()]:
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
        return tuple(sorted(target for target in seen if self.edges[target] or target == self.end))
