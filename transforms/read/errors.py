"""Errors over an input, without what belongs to the records: names of their files, and their contents."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence

# Limits on the shown columns of a place that lacks one.
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
    """Refuses a place without the columns that are needed."""
    columns = set(columns)
    if missing := [name for name in needed if name not in columns]:
        raise MissingColumns(
            f'Expected every input file to have the columns {tuple(needed)}, got path={path!r} '
            f'without missing={missing}. {remedy}',
            columns,
        )


@contextlib.contextmanager
def naming_only(place: str) -> Iterator[None]:
    """Lets errors through that are in this project's own words; of others says no more than their kind.

    For what is read where a run is launched, by whoever sees the screen or its log. Errors of workers are
    kept by `pipeline.run.failure`.

    Raises:
        RestrictedError: In place of an error of the system, a filesystem or a library, whose text may name a
            file of a folder of texts or quote a row. It has no cause and no context.
    """
    try:
        yield
    except Exception as error:
        if _is_ours(error):
            raise
        number = getattr(error, 'errno', None)
        reason = f' ({os.strerror(number)})' if isinstance(number, int) else ''
        kind, details = type(error).__name__, str(error)
    else:
        return
    raise RestrictedError(
        f'Expected to read all of input={place!r}, got error={kind}{reason}. What it is about may belong to '
        'the records and is not shown: see that the command may read all files there, and that no other '
        'program writes there.',
        f'For the curator alone, because names and rows belong to the records: {details}',
    ) from None


def _is_ours(error: Exception) -> bool:
    """True if an error is in words of this project, which name what was typed and quote nothing."""
    # Errors of the system have a number. A library may begin its texts as this project does.
    of_whom = type(error).__module__.partition('.')[0]
    return (
        str(error).startswith('Expected ')
        and getattr(error, 'errno', None) is None
        and of_whom in ('builtins', 'models', 'transforms')
    )
