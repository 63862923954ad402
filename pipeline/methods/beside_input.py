"""Texts that a run reads beside its records may not be the records."""

import os
from collections.abc import Iterator, Sequence

from pipeline.settings.input import Input
from transforms.durable import is_local
from transforms.places import split_patterns
from transforms.read import InputFile, identities_of, list_input
from transforms.read.errors import RestrictedError


def refuse_input(declared: Input, listed: Sequence[InputFile], name: str) -> None:
    """Refuses texts that are the records.

    Raises:
        ValueError: A file is one of the input, whatever its names are, or lies in a folder of the input.
    """
    places = tuple(_input_paths(declared))
    read = {identity for place in places for identity in identities_of(place)}
    folders = tuple(os.path.join(_place(place), '') for place in places)
    if same := [
        file.path
        for file in listed
        if _place(file.path).startswith(folders) or not read.isdisjoint(identities_of(file.path))
    ]:
        # The name of a file of the input may belong to the records.
        raise RestrictedError(
            f'Expected {name} texts beside the input, got a file of --{name} which --input names too. Texts '
            f'of --{name} are public: name another file.',
            f'For the curator alone: {same[0]!r}',
        )


def _input_paths(declared: Input) -> Iterator[str]:
    for pattern in split_patterns(declared.input or ''):
        try:
            yield from (file.path for file in list_input(pattern))
        except FileNotFoundError:
            # A plan may come before the records; a run asks for them itself.
            continue


def _place(path: str) -> str:
    return os.path.realpath(path) if is_local(path) else path
