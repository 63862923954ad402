"""What setup.py and the Makefile say, for tests that hold others to it."""

import pathlib
import re
import runpy
from typing import Any
from unittest import mock

ROOT = pathlib.Path(__file__).parents[3]
IMAGE = ROOT / 'launch' / 'image'


def setup_values() -> dict[str, Any]:
    """The arguments of `setuptools.setup`."""
    told: dict[str, Any] = {}
    with mock.patch('setuptools.setup', lambda **values: told.update(values)):
        runpy.run_path(str(ROOT / 'setup.py'))
    return told


def requirements(extras: list[str]) -> list[str]:
    """What setup.py asks for, with some of its extras."""
    told = setup_values()
    return [*told['install_requires'], *(text for extra in extras for text in told['extras_require'][extra])]


def extras_of(variable: str) -> list[str]:
    """The extras that a variable of the Makefile names."""
    (named,) = re.findall(rf'^{variable} \?= (.*)$', (ROOT / 'Makefile').read_text(), re.MULTILINE)
    return named.split()


def plain(name: str) -> str:
    """The name of a package as the index writes it."""
    return re.sub(r'[-_.]+', '-', name).lower()
