"""Files of tests that passed as a whole, kept by the state of the tree: `make test-all` runs them once."""

import collections
import hashlib
import pathlib
import subprocess
from collections.abc import Iterable

import pytest


def tracked_files(root: pathlib.Path) -> list[str]:
    """Names of all files that git tracks below `root`, sorted; none without git."""
    listed = subprocess.run(['git', 'ls-files', '-z'], cwd=root, capture_output=True, check=False)
    return sorted(filter(None, listed.stdout.decode().split('\0')))


def digest_of(root: pathlib.Path, names: Iterable[str]) -> str:
    """SHA-256 of these names and of the bytes of their files."""
    digest = hashlib.sha256()
    for name in names:
        path = root / name
        content = path.read_bytes() if path.is_file() else b'no file'
        digest.update(f'{name}\0{hashlib.sha256(content).hexdigest()}\0'.encode())
    return digest.hexdigest()


class PassedFiles:
    """A plugin of pytest that records which files passed, and leaves out those that did before.

    A file is recorded where all its tests passed in one process: none was left out, failed, or skipped for
    something that is missing here.

    Args:
        folder: Folder of the records, one empty file each.
        root: The root of the tree.
        once: True if tests of a recorded file are left out.
    """

    def __init__(self, folder: pathlib.Path, root: pathlib.Path, once: bool) -> None:
        self._root = root
        self._once = once
        # Told once: a test that starts no run may start no process either.
        self._tracked = tracked_files(root)
        self._tree = digest_of(root, self._tracked)
        self._folder = folder / self._tree
        self._waiting: dict[str, set[str]] = collections.defaultdict(set)
        self._incomplete: set[str] = set()

    def has_passed(self, file: str) -> bool:
        """True if all tests of a file passed for this tree."""
        return bool(self._tracked) and self._record(file).exists()

    def _record(self, file: str) -> pathlib.Path:
        return self._folder / file.replace('/', ':')

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out files that passed; where one test is named, no file runs as a whole."""
        if any('::' in argument for argument in config.args):
            self._incomplete.update(map(_file, items))
        if not self._once:
            return
        passed = [item for item in items if self.has_passed(_file(item))]
        if passed:
            items[:] = [item for item in items if not self.has_passed(_file(item))]
            config.hook.pytest_deselected(items=passed)

    def pytest_deselected(self, items: Iterable[pytest.Item]) -> None:
        """Keeps in mind that these files do not run as a whole."""
        self._incomplete.update(map(_file, items))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keeps in mind which tests a file has to pass."""
        for item in session.items:
            self._waiting[_file(item)].add(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Records a file with its last test, unless the tree has changed since the start."""
        file = report.nodeid.partition('::')[0]
        if not report.passed:
            self._incomplete.add(file)
        if report.when != 'teardown':
            return
        waiting = self._waiting.get(file)
        if waiting is None:  # the process that hands tests to workers
            return
        waiting.discard(report.nodeid)
        if waiting or file in self._incomplete or digest_of(self._root, self._tracked) != self._tree:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._record(file).touch()


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition('::')[0]
