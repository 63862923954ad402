"""What this process is decoding just now, for a display in the same process.

Public facts alone: names of batches, tokens that are released, caps.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Activity:
    """What is going on.

    Attributes:
        doing: In words, such as 'Decoding'.
        batch_id: Of which batch; None outside of batches.
        tokens: Tokens of the batch so far.
        max_tokens: Where a batch ends at the latest; 0 before its first token.
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
    """Says what is going on from now on; of threads that decode at a time the last one is heard."""
    global _latest
    _latest = activity


def latest() -> Activity | None:
    """What was reported last."""
    return _latest
