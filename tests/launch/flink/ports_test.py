"""The ports of a cluster."""

import pathlib

import pytest

from launch.flink import config, ports
from tests.launch.flink.local_cluster import network


def test_ports_are_known_before_and_are_each_used_once(tmp_path: pathlib.Path) -> None:
    settings = {'task_managers': 2, 'port': 8081, 'rpc_port': 6123, 'pool_port': 50000}
    first, second = network(tmp_path), network(tmp_path, address='10.77.0.2')
    assert config.listening_ports(**settings, network=first) == {
        'port': ('localhost', [8081]),
        'pool_port': ('localhost', [50000]),
        'rpc_port': ('10.77.0.1', [6123, 6124, 6125]),
        'task_manager_port': ('10.77.0.1', [6130, 6131, 6132, 6133, 6134, 6135]),
    }
    assert set(config.listening_ports(**settings, network=second)) == {'pool_port', 'task_manager_port'}
    same = {'rpc_port': ('localhost', [1]), 'task_manager_port': ('localhost', [1])}
    with pytest.raises(ValueError, match='got 1 for --rpc-port and for --task-manager-port'):
        ports.check_free(same)
