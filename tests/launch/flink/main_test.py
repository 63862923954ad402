"""The commands, without a cluster."""

import pathlib
import subprocess
from typing import Any

import pytest

from launch.flink import cluster, distribution, main
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


# Several machines


def network(tmp_path: pathlib.Path, **changed: Any) -> cluster.Network:
    for name in ('key', 'password'):
        (tmp_path / name).write_text('secret\n')
        (tmp_path / name).chmod(0o600)
    settings = {'address': '10.77.0.1', 'job_manager': '10.77.0.1', 'task_manager_port': 6130} | changed
    return cluster.Network(keystore=tmp_path / 'key', password_file=tmp_path / 'password', **settings)


def test_several_machines_need_an_address_and_a_key(tmp_path: pathlib.Path) -> None:
    assert main.find_network(None, None, 6130, None, None) is None
    key = tmp_path / 'key'
    for flags in (('a', None, 1, None, None), (None, 'b', 1, key, key), (None, None, 1, key, None)):
        with pytest.raises(ValueError, match='Expected --address, --keystore and --keystore-password-file'):
            main.find_network(*flags)
    first, second = main.find_network('a', None, 1, key, key), main.find_network('b', 'a', 1, key, key)
    assert first is not None and second is not None
    assert (first.joins, first.job_manager, second.joins) == (False, 'a', True)


@pytest.mark.parametrize(
    'address, message',
    [
        ('127.0.0.1', 'Expected an address at which the other machines reach this one, .*127.0.0.1'),
        ('localhost', 'Expected an address at which the other machines reach this one'),
        ('0.0.0.0', 'Expected an address at which the other machines reach this one, .*0.0.0.0'),
        ('192.0.2.1', 'Expected an address of this machine'),  # RFC 5737: nobody's
    ],
)
def test_an_address_that_others_cannot_reach_is_refused(
    address: str, message: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(ValueError, match=message):
        cluster.check_network(network(tmp_path, address=address), 6123)


def test_a_key_that_is_missing_or_that_others_may_read_is_refused(tmp_path: pathlib.Path) -> None:
    found = network(tmp_path)
    found.password_file.chmod(0o640)
    with pytest.raises(PermissionError, match='--keystore-password-file .* with mode 640.* chmod 600'):
        cluster.check_network(found, 6123)
    found.keystore.unlink()
    with pytest.raises(FileNotFoundError, match='Expected a file, got --keystore '):
        cluster.check_network(found, 6123)


def test_ports_are_known_before_and_are_each_used_once(tmp_path: pathlib.Path) -> None:
    settings = {'task_managers': 2, 'port': 8081, 'rpc_port': 6123, 'pool_port': 50000}
    first, second = network(tmp_path), network(tmp_path, address='10.77.0.2')
    assert cluster.listening_ports(**settings, network=first) == {
        'port': ('localhost', [8081]),
        'pool_port': ('localhost', [50000]),
        'rpc_port': ('10.77.0.1', [6123, 6124, 6125]),
        'task_manager_port': ('10.77.0.1', [6130, 6131, 6132, 6133, 6134, 6135]),
    }
    assert set(cluster.listening_ports(**settings, network=second)) == {'pool_port', 'task_manager_port'}
    same = {'rpc_port': ('localhost', [1]), 'task_manager_port': ('localhost', [1])}
    with pytest.raises(ValueError, match='got 1 for --rpc-port and for --task-manager-port'):
        cluster.check_free(tmp_path, same)


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
