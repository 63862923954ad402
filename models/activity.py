"""What this process is decoding now, for a display in the same process.

Only public facts: names of batches, numbers of released tokens, caps.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Activity:
    """What a process is doing.

    Attributes:
        doing: In words, such as 'Decoding'.
        batch_id: The batch; None outside of batches.
        tokens: Tokens of the batch so far.
        max_tokens: Most tokens of the batch; 0 before its first token.
    """

    doing: str
    batch_id: str | None = None
    tokens: int = 0
    max_tokens: int = 0

    def __str__(self) -> str:
        """One line: 'Decoding batch 0000-000003, token 12 of 96'."""
        batch = '' if self.batch_id is None else f', batch {self.batch_id}'
        tokens = f', token {self.tokens} of {self.max_tokens}' if self.max_tokens else ''
        return f'{self.doing}{batch}{tokens}'


_latest: Activity | None = None


def report(activity: Activity | None) -> None:
    """Sets the current activity; with several decoding threads the last report counts."""
    global _latest
    _latest = activity


def latest() -> Activity | None:
    """The activity that was reported last."""
    return _latest
