"""Questions to the curator, of which there are six at the most, and what an answer has to be."""

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

import typer

from pipeline.screen import terminal

MOST_QUESTIONS = 6
_NUMBER = re.compile(r'\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?')


class Questions:
    """Asks in a terminal, or takes the defaults.

    Attributes:
        asked: Number of questions that were asked.
    """

    def __init__(self, *, takes_defaults: bool) -> None:
        self.asked = 0
        self._takes_defaults = takes_defaults
        self._missing: list[str] = []
        self._example: list[str] = []

    def ask[T](
        self,
        question: str,
        parse: Callable[[str], T],
        *,
        default: str | None,
        flags: str,
        example: Sequence[str] = (),
    ) -> T | None:
        """The parsed answer; None where defaults are taken and there is none, which `check` then refuses.

        Args:
            question: One question, with an example of an answer where it has a form.
            parse: Makes a value of what was typed; its ValueError is shown, and the question is asked again.
            default: Meaning of an empty answer; None where it has none.
            flags: The flags that answer it in advance.
            example: These with values, where there is no default.

        Raises:
            ValueError: Nobody is there to answer.
        """
        if self._takes_defaults:
            if default is None:
                self._missing.append(flags)
                self._example += example
                return None
            return parse(default)
        self.asked += 1
        assert self.asked <= MOST_QUESTIONS

        def value_of(typed: str) -> T:
            try:
                return parse(typed)
            except ValueError as error:
                raise typer.BadParameter(str(error)) from None

        terminal.console().print()
        try:
            return typer.prompt(f'{self.asked}. {question}', default=default, value_proc=value_of)
        except typer.Abort:
            if sys.stdin.isatty():
                raise
            raise ValueError(
                f'Expected an answer, got the end of the input at question={self.asked}. Give {flags}, or '
                '--yes for all defaults, or answer in a terminal.'
            ) from None

    def check(self, command: Sequence[str], columns: Sequence[str], unread: ValueError | None) -> None:
        """Refuses all questions without a default at once, where defaults are taken.

        `columns` are of the place; what looks like their names may be a record. `unread` says why they are
        not known, if so, and is raised where nothing else is missing.
        """
        # With Beam, which is loaded when the columns are read.
        from transforms.read.errors import RestrictedError, shown

        missing = ', '.join(self._missing)
        if unread is not None:
            if not missing:
                raise unread
            curator = getattr(unread, 'for_the_curator', 'The columns are not known before.')
            raise RestrictedError(f'{unread} Give {missing} too.', curator)
        if missing:
            raise RestrictedError(
                f'Expected {missing} with yes=True, got none. Names of columns do not tell them, and records '
                f'may not: give these, as in {shlex.join([*command, *self._example])}',
                f'For the curator alone, because a first row may be a record: its columns: {shown(columns)}',
            )


def numbers(*names: str) -> Callable[[str], tuple[float, ...]]:
    """A parser of as many positive numbers as there are names, with spaces between.

    >>> numbers('records', 'words')('12,000 and 40')
    (12000.0, 40.0)
    """

    def parse(typed: str) -> tuple[float, ...]:
        values = tuple(float(number.replace(',', '')) for number in _NUMBER.findall(typed))
        if len(values) != len(names) or not all(values) or '-' in typed:
            form = 'a positive number' if len(names) == 1 else 'positive numbers with a space between'
            raise ValueError(f'Expected {" and ".join(names)} as {form}, got {typed!r}. Give {form}.')
        return values

    return parse


def one_of(columns: tuple[str, ...], *, or_none: bool = False) -> Callable[[str], Any]:
    """A parser of a column's name; 'none' for none where there may be none."""

    def parse(typed: str) -> str | None:
        if typed in columns:
            return typed
        if or_none and typed.strip().lower() in ('', 'none', 'no'):
            return None
        near = [each for each in columns if each.lower().split() == typed.lower().split()]
        if len(near) == 1:
            return near[0]
        raise ValueError(f'Expected a column of the file, got {typed!r}. Give one of: {", ".join(columns)}.')

    return parse
