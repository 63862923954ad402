"""How the machines of one cluster reach each other, and what must be true before anything starts."""

import dataclasses
import ipaddress
import pathlib
import socket

from launch.flink import ports


@dataclasses.dataclass(frozen=True, kw_only=True)
class Network:
    """This machine's place among the machines of a cluster.

    Any program that reaches Flink's ports can run code on the cluster and read shuffled records. So between
    machines both ends of a connection prove that they hold the same key, and the traffic is encrypted.

    Attributes:
        address: This machine's address for the others; its task managers listen on no other address.
        job_manager: Address of the machine with the job manager; equal to `address` if it is this machine.
        task_manager_port: First port of this machine's task managers; each takes three.
        keystore: The key, in a PKCS #12 file that is the same on every machine. An absolute path.
        password_file: Holds the keystore's password in one line. An absolute path.
    """

    address: str
    job_manager: str
    task_manager_port: int
    keystore: pathlib.Path
    password_file: pathlib.Path

    @property
    def joins(self) -> bool:
        """Whether another machine has the job manager."""
        return self.job_manager != self.address


def check_network(network: Network, rpc_port: int) -> None:
    """Checks the key, the address of this machine and the job manager of another.

    Args:
        network: This machine's place.
        rpc_port: Port of the job manager.

    Raises:
        FileNotFoundError: The keystore or the file with its password is missing.
        PermissionError: Other users of this machine may read the keystore or its password.
        ValueError: The address is not this machine's, or other machines cannot reach it; or this machine
            would join a job manager that does not answer.
    """
    for flag, path in (('--keystore', network.keystore), ('--keystore-password-file', network.password_file)):
        if not path.is_file():
            raise FileNotFoundError(
                f'Expected a file, got {flag} {str(path)!r}, which is not there. Make it once and copy it '
                'to every machine: docs/deploying/flink.md.'
            )
        if path.stat().st_mode & 0o077:
            raise PermissionError(
                f'Expected a file that its owner alone may read, got {flag} {str(path)!r} with mode '
                f'{path.stat().st_mode & 0o777:o}: anyone who reads it can run code on the cluster. '
                'Do chmod 600.'
            )
    try:
        found = socket.getaddrinfo(network.address, None, type=socket.SOCK_STREAM)
        family, _, _, _, place = found[0]
        with socket.socket(family) as own:
            own.bind((place[0], 0))
    except OSError as error:
        raise ValueError(
            f'Expected an address of this machine, got address={network.address!r}: {error}. '
            '`ip -brief address` lists them.'
        ) from error
    numeric = ipaddress.ip_address(place[0])
    if numeric.is_loopback or numeric.is_unspecified:
        raise ValueError(
            f'Expected an address at which the other machines reach this one, got '
            f'address={network.address!r}, which is {numeric} here. `ip -brief address` lists them.'
        )
    if network.joins and not ports.listens(rpc_port, network.job_manager):
        raise ValueError(
            f'Expected the job manager, got job_manager={network.job_manager!r}, where nothing answers on '
            f'rpc_port={rpc_port}. Start that machine first, and let this one pass its firewall.'
        )
