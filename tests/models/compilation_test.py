"""Compiled programs are kept for the next process, in a folder that nobody else may write to."""

import os
import pathlib
import stat
import subprocess
import sys

import pytest

from models import compilation

ROOT = pathlib.Path(__file__).parents[2]
# Two programs; the second is compiled before the folder is known.
PROGRAM = """
import collections, sys, jax, jax.numpy as jnp
from models import compilation
events = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rsplit('/', 1)[-1]]))
early = float(jax.jit(lambda x: x * 3)(2.0))
compilation.keep_programs(sys.argv[1])
late = float(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.arange(8.0)))
print(early, late, file=sys.stderr)
print(events['cache_hits'], events['cache_misses'])
"""


def _run(
    folder: pathlib.Path, program: str = PROGRAM, **environment: str
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith('JAX_')}
    return subprocess.run(
        [sys.executable, '-c', program, str(folder)],
        cwd=ROOT, env=kept | {'JAX_PLATFORMS': 'cpu'} | environment, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.run
@pytest.mark.first
def test_a_second_process_compiles_nothing(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / 'compiled'
    first, programs = _run(folder), sorted(path.name for path in folder.iterdir())
    assert first.returncode == 0 and programs
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    second = _run(folder)
    assert second.stderr == first.stderr and sorted(path.name for path in folder.iterdir()) == programs
    (hits, misses), (hits_again, misses_again) = (map(int, run.stdout.split()) for run in (first, second))
    assert (hits, misses_again) == (0, 0) and hits_again == misses > 0


@pytest.mark.run
def test_what_is_damaged_is_compiled_again(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / 'compiled'
    first = _run(folder)
    for path in folder.iterdir():
        if path.is_file():
            path.write_bytes(b'another version wrote this')
    second = _run(folder)
    assert second.returncode == 0 and second.stderr.splitlines()[-1] == first.stderr.splitlines()[-1]


@pytest.mark.run
def test_without_a_folder_and_with_jax_own_variable_nothing_is_changed(tmp_path: pathlib.Path) -> None:
    asked, own = tmp_path / 'asked', tmp_path / 'own'
    assert _run(asked, JAX_COMPILATION_CACHE_DIR=str(own)).returncode == 0
    assert not asked.exists()
    assert _run(asked, PROGRAM.replace('sys.argv[1]', 'None')).returncode == 0 and not asked.exists()


def test_a_folder_that_others_may_write_to_is_not_used(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They would decide what this user runs. Nor is a path that is no folder; a line says so."""
    shared, file = tmp_path / 'shared', tmp_path / 'file'
    shared.mkdir()
    shared.chmod(0o777)
    file.touch()
    for path, why in ((shared, 'this user alone'), (file, 'File exists'), (file / 'in', 'Not a directory')):
        caplog.clear()
        assert not compilation._is_usable(str(path))
        assert str(path) in caplog.text and why in caplog.text and '--compilation-cache' in caplog.text
    assert compilation._is_usable(str(tmp_path / 'new' / 'folder'))


@pytest.mark.run
def test_code_that_does_not_look_uses_a_folder_of_others(tmp_path: pathlib.Path) -> None:
    shared, looks_away = tmp_path / 'shared', 'compilation._is_usable = lambda folder: True\n'
    shared.mkdir()
    shared.chmod(0o777)
    assert _run(shared).returncode == 0 and not list(shared.iterdir())
    program = PROGRAM.replace('compilation.keep', looks_away + 'compilation.keep')
    assert _run(shared, program).returncode == 0 and list(shared.iterdir())


def test_the_oldest_programs_make_room(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, '_MOST_BYTES', 250)
    for number in range(4):
        (tmp_path / str(number)).write_bytes(bytes(100))
        os.utime(tmp_path / str(number), (number, number))
    assert compilation._is_usable(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ['2', '3']


def test_each_kind_of_processor_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('DP_CORPUS_CACHE', '/somewhere')
    here = compilation.folder_here()
    assert here.startswith('/somewhere/compiled/') and here == compilation.folder_here()
    monkeypatch.setattr(compilation.device, 'processor_flags', lambda: frozenset({'avx'}))
    assert compilation.folder_here() != here
