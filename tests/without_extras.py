"""`dp-corpus` as an installation with few extras has it: every other library is as if it were not there.

    echo '[["plan", "--epsilon", "1", "--records", "1000"]]' | python -m tests.without_extras endpoint

runs command lines one after another in one process, and prints `[exit code, screen, errors]` of each. What an
installation has follows from setup.py and from what the installed distributions say that they need.
"""

import contextlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from packaging.utils import canonicalize_name

from tests import listening, setup_file

Done = subprocess.CompletedProcess[str]


# Libraries may install folders of the same name, which lie behind ours on the path.
_OURS = frozenset({'dp_corpus', 'launch', 'models', 'pipeline', 'tests', 'transforms'})


class _Kept:
    """The remainder of the installed libraries, as the files of some distributions say.

    Args:
        distributions: Their names.
    """

    def __init__(self, distributions: frozenset[str]) -> None:
        self.distributions = distributions
        self._folder = pathlib.Path(sysconfig.get_path('purelib'))
        self._installed = {path.name.partition('.')[0] for path in self._folder.iterdir()}
        # The first part of a module's name -> what follows it.
        self._modules: dict[str, set[str]] = {}
        for name in distributions:
            for path in importlib.metadata.files(name) or ():
                first, *rest = path.with_suffix('').parts
                self._modules.setdefault(first.partition('.')[0], set()).update(rest[:1])

    def has(self, module: str) -> bool:
        """True if a module is left; all are that lie elsewhere, such as Python's own and ours."""
        first, *rest = module.split('.')
        if first in _OURS or first not in self._installed:
            return True
        if first not in self._modules:
            return False
        # Others may have packages in the namespace of one that is left, such as google.
        is_whole = not rest or (self._folder / first / '__init__.py').exists()
        return is_whole or rest[0] in self._modules[first]


class _Finder:
    """A finder of modules and distributions that finds what is left."""

    def __init__(self, finder: Any, kept: _Kept) -> None:
        self._finder, self._kept = finder, kept

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return self._finder.find_spec(name, path, target) if self._kept.has(name) else None

    def find_distributions(self, *context: Any) -> Iterator[importlib.metadata.Distribution]:
        for each in getattr(self._finder, 'find_distributions', lambda *_: ())(*context):
            if canonicalize_name(each.name) in self._kept.distributions:
                yield each

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def hide(*extras: str) -> None:
    """Hides what neither every installation nor these extras bring; before anything of it is imported."""
    kept = _Kept(setup_file.brought(setup_file.INSTALL, *extras) | {'dp-corpus'})
    sys.meta_path[:] = [_Finder(finder, kept) for finder in sys.meta_path]
    for name in list(sys.modules):
        if not kept.has(name):
            del sys.modules[name]


def run(
    commands: Iterable[Sequence[str]],
    *extras: str,
    folder: pathlib.Path,
    listener: listening.Listener | None = None,
) -> list[Done]:
    """The results of command lines in one process of an installation with these extras.

    Args:
        commands: Arguments of each.
        extras: Extras of setup.py.
        folder: Folder in which they run.
        listener: Keeps where they listen.
    """
    commands = [list(each) for each in commands]
    done = (listener or listening.Listener()).run(
        [sys.executable, '-m', 'tests.without_extras', *extras],
        cwd=folder,
        env=os.environ | {'PYTHONPATH': str(setup_file.ROOT)},
        input=json.dumps(commands),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return [Done(asked, *each) for asked, each in zip(commands, found, strict=True)]


def main() -> None:
    """See above."""
    hide(*sys.argv[1:])
    from tests import command_line

    found = []
    # One list is all that the screen shows, whatever a library says.
    with contextlib.redirect_stdout(sys.stderr):
        for arguments in json.load(sys.stdin):
            done = command_line.in_this_process(*arguments)
            found.append((done.returncode, done.stdout, done.stderr))
    print(json.dumps(found))


if __name__ == '__main__':
    main()
