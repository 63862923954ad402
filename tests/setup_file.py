"""The requirements of setup.py, and the installed distributions that they bring."""

import functools
import importlib.metadata
import pathlib
import runpy
from collections.abc import Iterable, Mapping
from typing import Any
from unittest import mock

import setuptools
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).parents[1]
# The requirements of every installation; each other key is an extra.
INSTALL = 'install'


@functools.cache
def values() -> Mapping[str, Any]:
    """The arguments of `setuptools.setup`."""
    told: dict[str, Any] = {}
    with mock.patch.object(setuptools, 'setup', lambda **given: told.update(given)):
        runpy.run_path(str(ROOT / 'setup.py'))
    return told


def requirements() -> Mapping[str, list[str]]:
    """The requirements of every installation, and of each extra by its name."""
    return {INSTALL: values()['install_requires'], **values()['extras_require']}


def brought(*keys: str) -> frozenset[str]:
    """The names of all distributions that keys of `requirements` bring, each with what it needs itself.

    As the distributions that are installed here say; one that is not installed brings nothing.
    """
    return _brought([Requirement(text) for key in keys for text in requirements()[key]])


def _brought(wanted: Iterable[Requirement]) -> frozenset[str]:
    found: set[str] = set()
    # A distribution that is met again with another extra needs more.
    seen: set[tuple[str, str]] = set()
    waiting = [(one.name, extra) for one in wanted for extra in ('', *one.extras)]
    while waiting:
        name, extra = canonicalize_name(waiting[-1][0]), waiting.pop()[1]
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        for one in map(Requirement, needed):
            if one.marker is None or one.marker.evaluate({'extra': extra}):
                waiting += [(one.name, chosen) for chosen in ('', *one.extras)]
    return frozenset(found)
