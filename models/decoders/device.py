"""What the machine at hand computes fastest in."""

import pathlib
from typing import Final, Literal

Dtype = Literal['float32', 'bfloat16']

# How a processor says, under Linux, that it multiplies bfloat16 by itself. One that does not falls back
# to float32 and conversions.
_NATIVE_BFLOAT16: Final = frozenset({'avx512_bf16', 'amx_bf16', 'bf16'})
_CPUINFO: Final = pathlib.Path('/proc/cpuinfo')


def fastest_dtype(platform: str | None = None, cpuinfo: str | None = None) -> Dtype:
    """The type of weights and products that a decoder is fastest in here.

    bfloat16 on accelerators, and on processors that multiply it natively; float32 elsewhere. A function
    of the kind of machine: workers of one kind compute in one type.

    Args:
        platform: JAX's name of it; None asks for that of the local devices.
        cpuinfo: What Linux tells of the processor; None reads it where it is.
    """
    if platform is None:
        import jax

        platform = jax.local_devices()[0].platform
    if platform != 'cpu':
        return 'bfloat16'
    if cpuinfo is None:
        cpuinfo = _CPUINFO.read_text() if _CPUINFO.exists() else ''
    for line in cpuinfo.splitlines():
        name, _, flags = line.partition(':')
        if name.strip() in ('flags', 'Features'):
            return 'bfloat16' if _NATIVE_BFLOAT16 & set(flags.split()) else 'float32'
    return 'float32'
