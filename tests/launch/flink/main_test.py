"""The commands, without a cluster."""

import pathlib
import subprocess
from typing import Any

import pytest

from launch.flink import distribution, main
from tests.launch.flink.local_cluster import SCRIPT, script_environment


def test_flags_of_generate_and_of_beam_keep_their_sides(tmp_path: pathlib.Path) -> None:
    jar = tmp_path / 'job server.jar'
    jar.touch()
    settings: dict[str, Any] = {'port': 1, 'pool_port': 2, 'parallelism': 3, 'jar': jar}
    command = main.generate_command(['--config', 'c.toml', '--', '--job_name=n'], **settings)
    own, beam = command[: command.index('--')], command[command.index('--') + 1 :]
    assert own[-4:] == ['--config', 'c.toml', '--runner', 'FlinkRunner']
    assert beam == [
        '--flink_master=localhost:1',
        f'--flink_version={distribution.FLINK_MINOR}',
        f'--flink_job_server_jar={jar}',
        '--environment_type=EXTERNAL',
        '--environment_config=localhost:2',
        '--environment_cache_millis=3000',
        '--parallelism=3',
        '--job_name=n',
    ]
    with pytest.raises(ValueError, match='Expected no runner'):
        main.generate_command(['--runner=FnApiRunner'], **settings)
    with pytest.raises(FileNotFoundError, match='Expected the job server'):
        main.generate_command([], **{**settings, 'jar': tmp_path / 'no.jar'})


def test_several_machines_need_an_address_and_a_key(tmp_path: pathlib.Path) -> None:
    assert main.find_network(None, None, 6130, None, None) is None
    key = tmp_path / 'key'
    for flags in (('a', None, 1, None, None), (None, 'b', 1, key, key), (None, None, 1, key, None)):
        with pytest.raises(ValueError, match='Expected --address, --keystore and --keystore-password-file'):
            main.find_network(*flags)
    first, second = main.find_network('a', None, 1, key, key), main.find_network('b', 'a', 1, key, key)
    assert first is not None and second is not None
    assert (first.joins, first.job_manager, second.joins) == (False, 'a', True)


@pytest.mark.run
@pytest.mark.parametrize('command', ['run', 'status', 'cancel'])
def test_commands_without_a_cluster_say_how_to_start_one(command: str, tmp_path: pathlib.Path) -> None:
    result = subprocess.run(
        [*SCRIPT, command, f'--folder={tmp_path}'], env=script_environment(), capture_output=True, text=True
    )
    assert result.returncode == main.EXIT_USAGE
    assert 'Expected a running cluster' in result.stderr
    assert 'launch/flink/flink.sh start' in result.stderr
    assert 'Traceback' not in result.stderr


@pytest.mark.run
def test_a_machine_that_would_do_nothing_is_refused(tmp_path: pathlib.Path) -> None:
    result = subprocess.run(
        [*SCRIPT, 'start', f'--folder={tmp_path}', '--task-managers=0'],
        env=script_environment(),
        capture_output=True,
        text=True,
    )
    assert result.returncode == main.EXIT_USAGE
    assert 'Expected task managers, got task_managers=0' in result.stderr
