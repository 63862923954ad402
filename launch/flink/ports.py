"""Whether ports of this machine are free."""

import socket
from collections.abc import Iterable, Mapping


def check_free(ports: Mapping[str, tuple[str, Iterable[int]]]) -> None:
    """Checks that nothing listens on the ports of a cluster, and that each is used once.

    Args:
        ports: Where the cluster would listen (`config.listening_ports`).

    Raises:
        ValueError: Something listens on one of the ports, or two settings name the same port.
    """
    taken: dict[int, str] = {}
    for name, (address, numbers) in ports.items():
        flag = f'--{name.replace("_", "-")}'
        for number in numbers:
            if number in taken:
                raise ValueError(
                    f'Expected ports of their own, got {number} for {taken[number]} and for {flag}. '
                    f'Choose another {flag}.'
                )
            if listens(number, address):
                raise ValueError(
                    f'Expected a free port, got {name}={number}, where something listens. Choose another '
                    f'{flag}.'
                )
            taken[number] = flag


def listens(port: int, address: str) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((address, port), timeout=1):
            return True
    except OSError:
        return False
