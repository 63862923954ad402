"""What the machine at hand computes fastest in."""

import functools
import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys
from typing import Final, Literal, NamedTuple

Dtype = Literal['float32', 'bfloat16']

# How a processor says, under Linux, that it multiplies bfloat16 by itself. One that does not falls back
# to float32 and conversions.
_NATIVE_BFLOAT16: Final = frozenset({'avx512_bf16', 'amx_bf16', 'bf16'})
_CPUINFO: Final = pathlib.Path('/proc/cpuinfo')


def has_plugin() -> bool:
    """Whether JAX could use an accelerator here, were there one; without asking it, which takes seconds."""
    plugins = importlib.metadata.entry_points(group='jax_plugins')
    return bool(plugins) or importlib.util.find_spec('libtpu') is not None


@functools.cache
def platform_here() -> str:
    """JAX's name of what computes here, 'cpu' or an accelerator's, without holding any memory of it.

    Whoever launches a run need not be who decodes. So the question goes to another process, and to
    none where no accelerator's plugin is installed.

    Raises:
        RuntimeError: JAX cannot say.
    """
    if not has_plugin():
        return 'cpu'
    done = _ask('import jax; print(jax.local_devices()[0].platform)')
    if done.returncode or not done.stdout.split():
        raise RuntimeError(
            f'Expected JAX to name its devices, got exit code {done.returncode}. Give --dtype.'
        )
    return done.stdout.split()[-1]


class Memory(NamedTuple):
    """What a program may take here.

    Attributes:
        bytes: Of each device; of a processor, the host's that is available now.
        devices: How many there are, each with the weights and a share of a batch's rows.
    """

    bytes: int
    devices: int


def memory_here() -> Memory | None:
    """The memory of what computes here, without holding any; None where JAX cannot say."""
    if platform_here() == 'cpu':
        import psutil

        return Memory(psutil.virtual_memory().available, 1)
    return _accelerator_memory()


@functools.cache
def _accelerator_memory() -> Memory | None:
    done = _ask(
        "import jax; found = jax.local_devices(); print(found[0].memory_stats()['bytes_limit'], len(found))"
    )
    return None if done.returncode else Memory(*map(int, done.stdout.split()[-2:]))


def _ask(question: str) -> subprocess.CompletedProcess[str]:
    """What a program answers in another process."""
    return subprocess.run([sys.executable, '-c', question], capture_output=True, text=True, check=False)


def fastest_dtype(platform: str | None = None, cpuinfo: str | None = None) -> Dtype:
    """The type of weights and products that a decoder is fastest in here.

    bfloat16 on accelerators, and on processors that multiply it natively; float32 elsewhere.

    Args:
        platform: JAX's name of what computes; None for `platform_here`.
        cpuinfo: What Linux tells of the processor; None reads it where it is.
    """
    if (platform or platform_here()) != 'cpu':
        return 'bfloat16'
    if cpuinfo is None:
        cpuinfo = _CPUINFO.read_text() if _CPUINFO.exists() else ''
    for line in cpuinfo.splitlines():
        name, _, flags = line.partition(':')
        if name.strip() in ('flags', 'Features'):
            return 'bfloat16' if _NATIVE_BFLOAT16 & set(flags.split()) else 'float32'
    return 'float32'
