"""Which values of declared fields each example is given: a public function of released counts.

A cell is one combination of the values that some categorical properties of a JSON Schema declare. The
contexts of each (label, cell) are counted with noise, once (METHOD 6). Every example of a label is then
given the values of one of its cells, so that the cells' shares in the corpus are those of the released
counts. Nothing here knows which records vote on an example.
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
        fields: The properties that examples are given values of.
        cells: Their values in JSON, every combination; from the schema, never from a record.
        noisy_counts: For each label, the released noisy count of contexts of every cell.
        rho: zCDP cost of `noisy_counts`.
    """

    fields: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    noisy_counts: tuple[tuple[int, ...], ...]
    rho: float

    def __post_init__(self) -> None:
        sizes = {len(counts) for counts in self.noisy_counts}
        values = {len(of) for of in self.cells}
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
        """The counts of a label by which its examples are shared out: none below 0, and not all 0.

        Post-processing of what was released. Where no count is above 0, every cell has 1.
        """
        return counts.shares(self.noisy_counts[label])

    def to_json(self) -> str:
        """The conditions as JSON: the same text for the same ones."""
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + '\n'

    @classmethod
    def from_json(cls, text: str) -> 'Conditions':
        """Reads what `to_json` wrote.

        Raises:
            ValueError: The text is not the JSON of conditions.
        """
        return cls.of_plain(json.loads(text), 'conditions.json')

    @classmethod
    def of_plain(cls, found: Any, file: str) -> 'Conditions':
        """From what JSON holds.

        Raises:
            ValueError: It is something else.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(found, dict) or set(found) != names:
            raise ValueError(
                f'Expected Conditions with the fields {sorted(names)}, got another JSON value. Restore '
                f'{file}, or start a new run in a fresh work directory.'
            )
        return cls(
            fields=tuple(found['fields']),
            cells=tuple(map(tuple, found['cells'])),
            noisy_counts=tuple(map(tuple, found['noisy_counts'])),
            rho=found['rho'],
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turns:
    """Which cell each example of one batch is given: by its number, the batch's place and released counts.

    The examples of all batches of a label stand in one line: the first of every batch, then the second of
    every batch, and so on, each round turned by a public hash of the run so that no batch meets the same
    cells again and again. The line goes round a cycle of cells (`cycle`) from a place that is such a hash
    too. So in any part of the line each cell is less than two examples off its share.

    Attributes:
        shares: `Conditions.shares` of the batch's label.
        label: Index of the label.
        place: Index of the batch among all batches of the label.
        batches: Number of these.
    """

    shares: tuple[int, ...]
    label: int
    place: int
    batches: int

    def cells(self, run_id: str, examples: int) -> list[int]:
        """The cell of each of a batch's first examples.

        Args:
            run_id: The public name of the run.
            examples: How many.
        """
        turn = cycle(self.shares)
        first = _public_hash(run_id, self.label, -1)
        found = []
        for example in range(examples):
            turned = (self.place + _public_hash(run_id, self.label, example)) % self.batches
            found.append(turn[(first + example * self.batches + turned) % len(turn)])
        return found


@functools.lru_cache(maxsize=64)
def cycle(shares: tuple[int, ...]) -> tuple[int, ...]:
    """Cells in turn, each as often as its share says, and in every beginning less than one off it.

    The k-th time of a cell whose share is w of n falls into the window from kn/w to (k+1)n/w; of the cells
    whose window is open the one whose window closes first is next. With windows of one sum this meets all of
    them (Baruah, Cohen, Plaxton & Varvel 1996). Of more than `MOST_TURNS` the shares are those of the largest
    remainders.

    Args:
        shares: None below 0, not all 0.
    """
    shares = _at_most(shares, MOST_TURNS)
    total = sum(shares)
    # (window's end, cell, times before)
    opening: dict[int, list[tuple[int, int, int]]] = {0: []}
    opening[0] = [(-(-total // share), cell, 0) for cell, share in enumerate(shares) if share]
    opened: list[tuple[int, int, int]] = []
    found = []
    for place in range(total):
        for window in opening.pop(place, ()):
            heapq.heappush(opened, window)
        _, cell, times = heapq.heappop(opened)
        found.append(cell)
        times += 1
        if times < shares[cell]:
            window = (-(-(times + 1) * total // shares[cell]), cell, times)
            opening.setdefault(max(place + 1, times * total // shares[cell]), []).append(window)
    return tuple(found)


def _at_most(shares: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The shares themselves, or of a sum above `most` that sum shared out by the largest remainders."""
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
