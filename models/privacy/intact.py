"""Files that somebody may have edited: whatever is wrong with one, the error names the file."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def reading(file: str, remedy: str) -> Iterator[None]:
    """Turns errors over the form of a file into one that names it, and quotes nothing of it.

    Errors that say what they expected pass as they are.

    Args:
        file: What the error calls the file.
        remedy: What to do, as a sentence without its full stop.

    Raises:
        ValueError: The file is damaged.
    """
    try:
        yield
        return
    except ValueError as error:
        if str(error).startswith('Expected '):
            raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError):
        pass
    # Outside of the handler: that error may hold what stands in the file.
    raise ValueError(f'Expected {file} as it was written, got one that was edited or is damaged. {remedy}.')
