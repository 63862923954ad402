"""The memory of the machine's devices."""

import functools
from typing import NamedTuple

import psutil

from models.decoders import device


class Memory(NamedTuple):
    """The memory that a program may use.

    Attributes:
        bytes: Bytes of each device; for a processor, the memory of the host that is available now.
        devices: Number of devices; each holds the weights, or a shard of large ones
            (`device.shards_weights`), and a share of a batch's rows.
    """

    bytes: int
    devices: int


def memory_here() -> Memory | None:
    """The memory of the device, without taking any; None where JAX cannot tell."""
    if device.platform_here() == 'cpu':
        return Memory(psutil.virtual_memory().available, 1)
    return _accelerator_memory()


@functools.cache
def _accelerator_memory() -> Memory | None:
    done = device.ask(
        "import jax; found = jax.local_devices(); print(found[0].memory_stats()['bytes_limit'], len(found))"
    )
    return None if done.returncode else Memory(*map(int, done.stdout.split()[-2:]))
