"""Tests that passed, kept by the state of the tree: `make test-all` runs each once."""

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


class PassedTests:
    """A plugin of pytest that records which tests passed, and leaves out those that did before.

    Args:
        folder: Folder of the records: one file for each state of the tree, a line for each test.
        root: The root of the tree.
        once: True if recorded tests are left out.
    """

    def __init__(self, folder: pathlib.Path, root: pathlib.Path, once: bool) -> None:
        self._root = root
        # Told once: a test that starts no run may start no process either.
        self._tracked = tracked_files(root)
        self._tree = digest_of(root, self._tracked)
        self._record = folder / f'{self._tree}.txt'
        recorded = once and self._tracked and self._record.exists()
        self._before = set(self._record.read_text().splitlines()) if recorded else set()
        self._passed: list[str] = []
        self._failed = ''

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out what passed before."""
        passed = [item for item in items if item.nodeid in self._before]
        if passed:
            items[:] = [item for item in items if item.nodeid not in self._before]
            config.hook.pytest_deselected(items=passed)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterable[None]:
        """Records a file's tests after its last one: a test itself is run by one process alone."""
        result = yield
        if self._failed != item.nodeid:
            self._passed.append(item.nodeid)
        if nextitem is None or nextitem.path != item.path:
            self._keep()
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps in mind that a test failed, or was skipped for something that is missing here."""
        if not report.passed:
            self._failed = report.nodeid

    def _keep(self) -> None:
        """Writes which tests passed, unless the tree has changed since the start."""
        if self._passed and digest_of(self._root, self._tracked) == self._tree:
            # One write to the end of a file: several processes do so.
            with self._record.open('a') as record:
                record.write(''.join(f'{name}\n' for name in self._passed))
        self._passed.clear()
