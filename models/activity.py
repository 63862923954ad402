"""The current activity of this process, for a display in the same process.

Only public facts: names of batches, rounds and steps, numbers of released tokens, caps.
"""

import dataclasses

TOKEN, STEP, TEXT = 'token', 'step', 'text'


@dataclasses.dataclass(frozen=True)
class Activity:
    """The current activity of a process.

    Attributes:
        doing: In words, such as 'Decoding'.
        batch_id: The batch; None outside of batches.
        done: Number of `total` that is done, or under way where steps are counted.
        total: Largest number that there will be; 0 where that is not known.
        unit: Unit that is counted: 'token' of the batch, 'step' of training, or 'text'.
    """

    doing: str
    batch_id: str | None = None
    done: int = 0
    total: int = 0
    unit: str = TOKEN

    def __str__(self) -> str:
        """One line: 'Decoding, batch 0000-000003, token 12 of 96'."""
        batch = '' if self.batch_id is None else f', batch {self.batch_id}'
        counted = f', {self.unit} {self.done:,} of {self.total:,}' if self.total else ''
        return f'{self.doing}{batch}{counted}'


_latest: Activity | None = None


def report(activity: Activity | None) -> None:
    """Sets the current activity; with several decoding threads the last report counts."""
    global _latest
    _latest = activity


def advance(done: int, total: int, unit: str) -> None:
    """Says how far the current activity is; whoever began it has said what it is."""
    doing = _latest or Activity('Working')
    report(dataclasses.replace(doing, done=done, total=total, unit=unit))


def latest() -> Activity | None:
    """The activity that was reported last."""
    return _latest
