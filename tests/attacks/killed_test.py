"""A run that evolves texts, or trains an adapter, and is killed at any stage: it goes on, and pays once.

As tests/pipeline/durable_run_test.py shows it of votes: launchers are processes of their own, which die of
SIGKILL at a file operation, or within a write.
"""

import pathlib
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from pipeline.asked.config import job_config, read_config
from pipeline.ledger.ledger import Ledger
from pipeline.settings.job_config import JobConfig
from tests import fork_server
from tests.attacks import full_disk_test
from tests.launched import launch
from tests.models.finetuning import tiny
from tests.pipeline.durable_run_test import Launcher, Stop

pytestmark = pytest.mark.run

FINE_TUNE: dict[str, Any] = {
    'method': 'fine-tune', 'epsilon': 2.0, 'tuning_steps': 2, 'expected_batch_size': 6, 'lora_rank': 2,
    'micro_batch_size': 4, 'max_prompt_tokens': 24, 'max_example_tokens': 10, 'examples_per_label': 3,
}  # fmt: skip
SETTINGS = {'evolve': full_disk_test.SETTINGS['evolve'], 'fine-tune': FINE_TUNE}
# In the order of a run.
STOPS = {
    'evolve': [
        Stop('write', r'/run\.json'),
        Stop('os.link', r'/run\.key'),
        Stop('write', r'batches/'),
        Stop('write', r'rounds/candidates-01\.safetensors'),
        Stop('os.link', r'rounds/candidates-01\.json'),
        Stop('write', r'rounds/votes-01\.json'),
        Stop('os.remove', r'rounds/votes-01\.json'),
        Stop('write', r'data/train-00000'),
        Stop('os.link', r'out/privacy_report\.json'),
    ],
    'fine-tune': [
        Stop('write', r'/run\.json'),
        Stop('os.link', r'/run\.key'),
        Stop('write', r'out\.curator/adapter\.safetensors'),
        Stop('write', r'batches/'),
        Stop('write', r'data/train-00000'),
        Stop('os.link', r'adapter/adapter\.json'),
        Stop('os.link', r'out/privacy_report\.json'),
    ],
}  # fmt: skip
# Stops between the draw of noise and its use: no other test stops there.
SHORT = {'evolve': [Stop('os.link', r'rounds/votes-01\.json')]}


@pytest.fixture(scope='module', autouse=True)
def warm_launchers() -> Iterator[None]:
    with fork_server.preloaded(
        'pipeline.main', 'pipeline.run.start', 'pipeline.screen.progress', 'jax', 'jax.numpy',
        'sklearn.feature_extraction.text',
        'apache_beam.runners.portability.fn_api_runner', 'jinja2', 'pydantic',
        'tests.models.finetuning.tiny',
    ):  # fmt: skip
        yield


# Contexts that must stay referenced: one that is let go of ends.
_known: list[Any] = []


def know_tiny() -> None:
    """In the launcher: the tiny model, until its end, and a command that asks for no files of a model."""
    from pipeline import main

    _known.append(tiny.known())
    _known[-1].__enter__()
    main.main = lambda: launch(read_config(sys.argv[-1], {}), [])  # type: ignore[assignment,return-value]


def config(folder: pathlib.Path, name: str) -> JobConfig:
    return job_config(
        input=str(folder / 'in.jsonl'), output=str(folder / 'out'), ledger=str(folder / 'ledger.db'),
        **full_disk_test.COMMON | SETTINGS[name],
    )  # fmt: skip


def start(folder: pathlib.Path, stop: Stop | None) -> Launcher:
    return Launcher(folder, [str(folder / 'run.toml')], stop, know_tiny, folder.parent / 'compiled')


def states(folder: pathlib.Path) -> dict[str, tuple[int, bytes]]:
    """Finished files: their inode and content."""
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes())
        for top in (folder / 'out', folder / 'out.curator')
        for path in top.rglob('*')
        if path.is_file() and path.suffix != '.tmp' and path.parent.name != 'errors'
    }


def kill_at(folder: pathlib.Path, name: str, stops: list[Stop]) -> None:
    """Kills a run at each stop in turn, then lets it end; then its release is lost, and found again."""
    folder.mkdir()
    full_disk_test.write_input(folder)
    with tiny.known():
        (folder / 'run.toml').write_text(config(folder, name).to_toml())
    known: dict[str, tuple[int, bytes]] = {}
    for stop in [*stops, None]:
        code, _ = start(folder, stop).end()
        signals = {-signal.SIGXFSZ if stop and stop.event == 'write' else -signal.SIGKILL}
        assert code in (signals if stop else {0}), f'{stop}: {code} {(folder / "log").read_text()[-3000:]}'
        after = states(folder)
        assert {path: after.get(path) for path in known} == known, f'{stop}: a finished file changed'
        known = after
        assert len(Ledger.open(str(folder / 'ledger.db')).account('mail').runs) <= 1
    (run,) = Ledger.open(str(folder / 'ledger.db')).account('mail').runs
    assert run.state == 'settled' and not list((folder / 'out').rglob('*.tmp'))
    released = {path: data for path, (_, data) in known.items() if path.startswith('out/')}
    assert 'out/privacy_report.json' in released
    (folder / 'out').rename(folder / 'published')
    code, _ = start(folder, None).end()
    assert code == 1 and 'A finished run is not resumed' in (folder / 'log').read_text()
    assert not (folder / 'out').exists()
    # Its copy is back: nothing is left to do.
    (folder / 'published').rename(folder / 'out')
    code, _ = start(folder, None).end()
    assert code == 0, (folder / 'log').read_text()[-3000:]
    assert {path: data for path, (_, data) in states(folder).items() if path.startswith('out/')} == released


@pytest.mark.first
def test_a_run_killed_before_its_votes_have_a_name_goes_on(tmp_path: pathlib.Path) -> None:
    kill_at(tmp_path / 'evolve', 'evolve', SHORT['evolve'])


@pytest.mark.parametrize('name', SETTINGS)
def test_a_run_killed_at_every_stage_goes_on(tmp_path: pathlib.Path, name: str) -> None:
    kill_at(tmp_path / name, name, STOPS[name])
