"""What must be true of several machines before anything starts."""

import pathlib

import pytest

from launch.flink.network import check_network
from tests.launch.flink.local_cluster import network


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
        check_network(network(tmp_path, address=address), 6123)


def test_a_key_that_is_missing_or_that_others_may_read_is_refused(tmp_path: pathlib.Path) -> None:
    found = network(tmp_path)
    found.password_file.chmod(0o640)
    with pytest.raises(PermissionError, match='--keystore-password-file .* with mode 640.* chmod 600'):
        check_network(found, 6123)
    found.keystore.unlink()
    with pytest.raises(FileNotFoundError, match='Expected a file, got --keystore '):
        check_network(found, 6123)
