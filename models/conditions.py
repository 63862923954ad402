"""Values of declared fields for each example: a public function of released counts.

A cell is one combination of the values that some categorical properties of a JSON Schema declare. The
contexts of each (label, cell) are counted with noise, once (METHOD 6). Every example of a label then gets
the values of one cell, so that the cells have the shares of the released counts in the corpus. Which
records vote on an example plays no part.
"""

import dataclasses
import functools
import hashlib
import heapq
import json
import math
from typing import Any, Final

from models.privacy import counts

# A share is off by one in so many at most, far less than the noise of the counts of so many contexts.
MOST_TURNS: Final = 10_000
_HASH_BYTES = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conditions:
    """The released noisy counts of contexts by label and cell.

    Attributes:
        cells: Every combination of their values, in JSON; from the schema, never from a record.
        noisy_counts: For each label, the released noisy count of contexts of every cell.
        rho: zCDP cost of `noisy_counts`.
    """

    fields: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    noisy_counts: tuple[tuple[int, ...], ...]
    rho: float

    def __post_init__(self) -> None:
        sizes = {len(counts) for counts in self.noisy_counts}
        values = {len(cell) for cell in self.cells}
        if not self.cells or sizes != {len(self.cells)} or values != {len(self.fields)}:
            raise ValueError(
                f'Expected one noisy count of each of cells={len(self.cells)} for every label, and a value '
                f'of each of fields={list(self.fields)} in every cell, got counts={sorted(sizes)}. Restore '
                'conditions.json, or start a new run in a fresh work directory.'
            )
        if not (math.isfinite(self.rho) and self.rho > 0):
            raise ValueError(
                f'Expected rho > 0, got rho={self.rho!r}. Noisy counts are paid for: state their price.'
            )

    def shares(self, label: int) -> tuple[int, ...]:
        """The shares of the cells for a label's examples: its counts, with negative ones set to 0.

        Post-processing of released counts. If no count is above 0, every cell has the share 1.
        """
        return counts.shares(self.noisy_counts[label])

    def to_json(self) -> str:
        """The conditions as JSON: the same text for the same conditions."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + '\n'

    @classmethod
    def from_json(cls, text: str) -> 'Conditions':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: The text is not the JSON of conditions.
        """
        return cls.of_plain(json.loads(text), 'conditions.json')

    @classmethod
    def of_plain(cls, value: Any, file: str) -> 'Conditions':
        """From what JSON holds.

        Raises:
            ValueError: It is something else.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(value, dict) or set(value) != names:
            raise ValueError(
                f'Expected Conditions with the fields {sorted(names)}, got another JSON value. Restore '
                f'{file}, or start a new run in a fresh work directory.'
            )
        return cls(
            fields=tuple(value['fields']),
            cells=tuple(map(tuple, value['cells'])),
            noisy_counts=tuple(map(tuple, value['noisy_counts'])),
            rho=value['rho'],
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turns:
    """The cell of each example of one batch: by its number, the batch's place and released counts.

    The examples of all batches of a label form one sequence: the first of every batch, then the second of
    every batch, and so on. Each round is rotated by a public hash of the run, so that no batch gets the same
    cells again and again. The sequence follows a cycle of cells (`cycle`) from a start that is also such a
    hash. So in any part of the sequence the number of examples of a cell is less than two off its share.

    Attributes:
        shares: `Conditions.shares` of the batch's label.
        place: Index of the batch among all batches of the label.
    """

    shares: tuple[int, ...]
    label: int
    place: int
    batches: int

    def cells(self, run_id: str, examples: int) -> list[int]:
        """The cell of each of a batch's first examples."""
        turn = cycle(self.shares)
        first = _public_hash(run_id, self.label, -1)
        cells = []
        for example in range(examples):
            turned = (self.place + _public_hash(run_id, self.label, example)) % self.batches
            cells.append(turn[(first + example * self.batches + turned) % len(turn)])
        return cells


@functools.lru_cache(maxsize=64)
def cycle(shares: tuple[int, ...]) -> tuple[int, ...]:
    """Cells in turn, each as often as its share says; every prefix is less than one off each share.

    For a cell with share w of n, its k-th turn falls into the window from kn/w to (k+1)n/w. Of the cells
    with an open window, the one whose window closes first is next. This rule keeps every turn within its
    window (Baruah, Cohen, Plaxton & Varvel 1996). If the shares sum to more than `MOST_TURNS`, they are
    scaled down by largest remainders.

    Args:
        shares: Each at least 0, not all 0.
    """
    shares = _at_most(shares, MOST_TURNS)
    total = sum(shares)
    # (window's end, cell, times before)
    opening: dict[int, list[tuple[int, int, int]]] = {0: []}
    opening[0] = [(-(-total // share), cell, 0) for cell, share in enumerate(shares) if share]
    opened: list[tuple[int, int, int]] = []
    cells = []
    for place in range(total):
        for window in opening.pop(place, ()):
            heapq.heappush(opened, window)
        _, cell, times = heapq.heappop(opened)
        cells.append(cell)
        times += 1
        if times < shares[cell]:
            window = (-(-(times + 1) * total // shares[cell]), cell, times)
            opening.setdefault(max(place + 1, times * total // shares[cell]), []).append(window)
    return tuple(cells)


def _at_most(shares: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The shares, scaled down by largest remainders if their sum is above `most`."""
    total = sum(shares)
    if total <= most:
        return shares
    whole = [share * most // total for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda cell: (-(shares[cell] * most % total), cell))
    for cell in by_remainder[: most - sum(whole)]:
        whole[cell] += 1
    return tuple(whole)


def _public_hash(run_id: str, label: int, example: int) -> int:
    digest = hashlib.sha256(f'{run_id}\n{label}\n{example}'.encode()).digest()
    return int.from_bytes(digest[:_HASH_BYTES], 'little')
