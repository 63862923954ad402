"""The cell of each example of a label, one after another, from the description alone."""

import hashlib
import math
from fractions import Fraction


def cells_in_turn(shares: list[int]) -> list[int]:
    """Each cell as often as its share: of those that would not get ahead of it, the one that is due first."""
    total, seen, found = sum(shares), [0] * len(shares), list[int]()
    for place in range(total):
        ready = [
            cell
            for cell, share in enumerate(shares)
            if seen[cell] < share and Fraction(seen[cell] * total, share) < place + 1
        ]
        next_one = min(
            ready, key=lambda cell: (math.ceil(Fraction((seen[cell] + 1) * total, shares[cell])), cell)
        )
        seen[next_one] += 1
        found.append(next_one)
    return found


def public_hash(run_id: str, label: int, example: int) -> int:
    """Eight bytes of SHA-256, the least significant first."""
    return int.from_bytes(hashlib.sha256(f'{run_id}\n{label}\n{example}'.encode()).digest()[:8], 'little')


def turn(place: int, batches: int, run_id: str, label: int, example: int) -> int:
    """The place in the line of the example of that number of one batch."""
    return example * batches + (place + public_hash(run_id, label, example)) % batches


def largest_error(shares: list[int], line: list[int]) -> Fraction:
    """The most by which any cell's number in any beginning of a line differs from its share of it."""
    total, seen, worst = sum(shares), [0] * len(shares), Fraction(0)
    for length, cell in enumerate(line, start=1):
        seen[cell] += 1
        worst = max(
            worst, *(abs(found - Fraction(share * length, total)) for found, share in zip(seen, shares))
        )
    return worst
