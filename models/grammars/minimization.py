"""The minimal automaton of a deterministic one.

After A. Valmari, Fast brief practical DFA minimization, Information Processing Letters 112 (2012). Bytes
that lead to the same states everywhere are one class, as in lexers.
"""

import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

# The numbers of the state from which no text can end, and of the first state.
DEAD, START = 0, 1


class Table(NamedTuple):
    """A minimal automaton as arrays: see `models.grammars.automaton.Automaton`."""

    table: np.ndarray
    accepting: np.ndarray
    class_of_byte: np.ndarray


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
    """The states that transitions lead to from some, `[size]` bool."""
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


def minimal(
    size: int,
    transitions: 'array.array[int]',
    accepting: list[int],
    class_of_byte: np.ndarray | None = None,
) -> Table:
    """The minimal automaton of another one.

    Args:
        size: States, of which 0 is the first.
        transitions: Source, label and target, one after another; at most one of each source and label.
        accepting: States in which a text may end.
        class_of_byte: `[256]`, the label of each byte; itself by default.
    """
    label_of_byte = np.arange(256) if class_of_byte is None else class_of_byte
    edges = np.array(transitions, np.int32).reshape(-1, 3)
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
    del by_label
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
) -> Table:
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
    for block in queue:
        for target in rows[block]:
            if target not in number:
                number[target] = len(number)
                queue.append(target)
    ends = np.zeros(len(number), bool)
    ends[[number[int(block)] for block in set(set_of[accepting].tolist()) if block in number]] = True
    return Table(
        table=np.array(
            [[DEAD] * columns.shape[1], *[[number[target] for target in rows[block]] for block in queue]],
            np.int32,
        ),
        accepting=ends,
        class_of_byte=class_of_byte.astype(np.uint8),
    )
