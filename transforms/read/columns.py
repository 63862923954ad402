"""What is said where a place lacks a column that is needed, and what only the curator may read of it."""

from collections.abc import Iterable, Sequence

# How much is shown of the columns of a place that lacks one.
_SHOWN_COLUMNS, _SHOWN_CHARACTERS = 40, 60


class RestrictedError(ValueError):
    """An error of the input. The text of the error quotes nothing that was read.

    Attributes:
        for_the_curator: What it leaves out, for the curator's screen alone.
    """

    def __init__(self, message: str, for_the_curator: str) -> None:
        super().__init__(message)
        self.for_the_curator = for_the_curator


class MissingColumns(RestrictedError):
    """A place lacks columns that are needed."""

    def __init__(self, message: str, columns: Iterable[str]) -> None:
        super().__init__(
            message,
            'For the curator alone, because what looks like a header row may be a record, its columns: '
            f'{shown(columns)}',
        )


def shown(names: Iterable[str]) -> list[str]:
    """Some of the names that a place has, cut where they are long."""
    return [name[:_SHOWN_CHARACTERS] for name in sorted(names)[:_SHOWN_COLUMNS]]


def check_columns(path: str, needed: Sequence[str], columns: Iterable[str], remedy: str) -> None:
    """Refuses a place without the columns that are needed.

    Args:
        path: The place, as errors show it.
        needed: Names of columns.
        columns: Those that it has.
        remedy: What to do; quotes nothing that was read.

    Raises:
        MissingColumns: See above.
    """
    columns = set(columns)
    if missing := [name for name in needed if name not in columns]:
        raise MissingColumns(
            f'Expected every input file to have the columns {tuple(needed)}, got path={path!r} '
            f'without missing={missing}. {remedy}',
            columns,
        )
