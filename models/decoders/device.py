"""What the machine at hand computes fastest in."""

import functools
import importlib.metadata
import importlib.util
import pathlib
import subprocess
import sys
from typing import Final, Literal

Dtype = Literal['float32', 'bfloat16']

# How a processor says, under Linux, that it multiplies bfloat16 by itself. One that does not falls back
# to float32 and conversions.
_NATIVE_BFLOAT16: Final = frozenset({'avx512_bf16', 'amx_bf16', 'bf16'})
_CPUINFO: Final = pathlib.Path('/proc/cpuinfo')


@functools.cache
def platform_here() -> str:
    """JAX's name of what computes here, 'cpu' or an accelerator's, without holding any memory of it.

    Whoever launches a run need not be who decodes. So the question goes to another process, and to
    none where no accelerator's plugin is installed.

    Raises:
        RuntimeError: JAX cannot say.
    """
    if not importlib.metadata.entry_points(group='jax_plugins') and not importlib.util.find_spec('libtpu'):
        return 'cpu'
    question = 'import jax; print(jax.local_devices()[0].platform)'
    done = subprocess.run([sys.executable, '-c', question], capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.split():
        raise RuntimeError(
            f'Expected JAX to name its devices, got exit code {done.returncode}. Give --dtype.'
        )
    return done.stdout.split()[-1]


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
