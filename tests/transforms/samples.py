"""Records of several users and labels, and the sizes that the tests of this folder share."""

import random

from models.records import Record

CENTERS = 3

SLOTS = 4


def some_records(number: int = 60) -> list[Record]:
    """Records with duplicates, undeclared labels, and users of several labels."""
    source = random.Random(3)
    return [
        Record(
            text=f'text {source.randrange(number)} ' + 'é' * source.randrange(30),
            label=source.choice(['a', 'a', 'b', 'undeclared']),
            unit=f'user {source.randrange(15)}',
        )
        for _ in range(number)
    ]
