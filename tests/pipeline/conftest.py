"""Databases for the tests of the ledger: an SQLite file, and a PostgreSQL cluster of the tests' own."""

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator

import pytest


def postgresql_binaries() -> pathlib.Path | None:
    """The newest server's folder: Debian keeps it off the PATH."""
    found = sorted(pathlib.Path('/usr/lib/postgresql').glob('*/bin/initdb'), key=lambda path: path.parts[4])
    on_path = shutil.which('initdb')
    return found[-1].parent if found else pathlib.Path(on_path).parent if on_path else None


@pytest.fixture(scope='session')
def postgresql() -> Iterator[Callable[[], str]]:
    """Makes an empty database of a fresh cluster with each call, and returns its URL."""
    binaries = postgresql_binaries()
    if binaries is None:
        pytest.skip('PostgreSQL is not installed (apt-get install postgresql): nothing of it is tested')
    # A short path: the name of a socket has at most 107 bytes.
    folder = pathlib.Path(tempfile.mkdtemp(prefix='dp-pg-'))
    user: dict[str, int | list[int]] = {}
    if os.getuid() == 0:  # which the server refuses to run as
        names = {entry.pw_name: entry for entry in pwd.getpwall()}
        entry = names.get('postgres', names['nobody'])
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        user = {'user': entry.pw_uid, 'group': entry.pw_gid, 'extra_groups': []}

    def call(program: str, *arguments: str) -> None:
        subprocess.run(
            [str(binaries / program), *arguments], check=True, cwd=folder, timeout=120,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user,
        )  # fmt: skip

    try:
        call('initdb', '-D', 'data', '-U', 'ledger', '--auth=trust', '--no-sync', '--encoding=UTF8')
        # A child of ours, so that its end is waited for; -F: nothing here has to outlive a power cut.
        server = subprocess.Popen(
            [binaries / 'postgres', '-D', 'data', '-F', '-k', folder, '-c', "listen_addresses="],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user,
        )  # fmt: skip
        try:
            while subprocess.run([binaries / 'pg_isready', '-q', '-h', folder], check=False).returncode:
                assert server.poll() is None, 'the PostgreSQL server did not start'
                time.sleep(0.05)

            def new_database() -> str:
                name = f'ledger_{uuid.uuid4().hex[:12]}'
                call('createdb', '-h', str(folder), '-U', 'ledger', name)
                return f'postgresql://ledger@/{name}?host={folder}'

            yield new_database
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=['sqlite', pytest.param('postgresql', marks=pytest.mark.run)])
def where(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> str:
    """A place where an empty ledger can be made, on each kind of database."""
    if request.param == 'sqlite':
        return str(tmp_path / 'ledger.db')
    return request.getfixturevalue('postgresql')()
