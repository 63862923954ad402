"""The machine's device: its platform, and the number type that it computes fastest in."""

import functools
import importlib.metadata
import importlib.util
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Final, Literal

Dtype = Literal['float32', 'bfloat16']
RequestedDtype = Literal['auto', 'float32', 'bfloat16']

# Flags by which Linux shows that a processor multiplies bfloat16 itself. One that does not falls back
# to float32 and conversions.
_NATIVE_BFLOAT16: Final = frozenset({'avx512_bf16', 'amx_bf16', 'bf16'})
_CPUINFO: Final = pathlib.Path('/proc/cpuinfo')
_LOGGER = logging.getLogger(__name__)


def has_plugin() -> bool:
    """True if a plugin for accelerators is installed; JAX is not asked, which would take seconds."""
    plugins = importlib.metadata.entry_points(group='jax_plugins')
    return bool(plugins) or importlib.util.find_spec('libtpu') is not None


def likely_platform() -> str:
    """'cpu' or 'accelerator', by whether a plugin for accelerators is installed; JAX is not asked."""
    return 'accelerator' if has_plugin() else 'cpu'


@functools.cache
def platform_here() -> str:
    """JAX's name of the platform, 'cpu' or an accelerator's, without taking any of its memory.

    The process that launches a run need not be the one that decodes. So another process asks JAX, and none
    does where no plugin for accelerators is installed.

    Raises:
        RuntimeError: JAX cannot say.
    """
    if not has_plugin():
        return 'cpu'
    done = ask('import jax; print(jax.local_devices()[0].platform)')
    if done.returncode or not done.stdout.split():
        raise RuntimeError(
            f'Expected JAX to name its devices, got exit code {done.returncode}. Give --dtype.'
        )
    return done.stdout.split()[-1]


@functools.cache
def warn_of_processor(platform: str) -> None:
    """Says once, in a line, that a model runs on the processor of a machine that has an accelerator's plugin.

    JAX goes on without a card that it cannot reach, many times slower.

    Args:
        platform: JAX's name of the platform that the model runs on.
    """
    asked = os.environ.get('JAX_PLATFORMS', '').split(',')
    if platform == 'cpu' and has_plugin() and 'cpu' not in asked:
        _LOGGER.warning(
            'JAX found no accelerator here, though a plugin for one is installed: the model runs on the '
            'processor. Look at the driver, and at what `python -c "import jax; print(jax.devices())"` says; '
            'JAX_PLATFORMS=cpu asks for the processor.'
        )


def shards_weights(weights_bytes: int, devices: int, stats: Mapping[str, int] | None) -> bool:
    """True if a decoder's weights are sharded over devices, False if each device holds a copy.

    A copy makes steps faster. One of more than half a device's memory would leave too little for rows.

    Args:
        weights_bytes: Bytes of all weights.
        devices: Local devices.
        stats: What JAX says of a device's memory; None for processors, which have one memory together.
    """
    limit = (stats or {}).get('bytes_limit')
    return devices > 1 and limit is not None and weights_bytes > limit / 2


def ask(question: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in another process, which may load JAX."""
    return subprocess.run([sys.executable, '-c', question], capture_output=True, text=True, check=False)


def fastest_dtype(platform: str | None = None, cpuinfo: str | None = None) -> Dtype:
    """The type of weights and products that a decoder is fastest in here.

    bfloat16 on accelerators, and on processors that multiply it natively; float32 elsewhere.

    Args:
        platform: JAX's name of the platform; None for `platform_here`.
        cpuinfo: Content of Linux' /proc/cpuinfo; None reads that file.
    """
    if (platform or platform_here()) != 'cpu':
        return 'bfloat16'
    return 'bfloat16' if _NATIVE_BFLOAT16 & processor_flags(cpuinfo) else 'float32'


def processor_flags(cpuinfo: str | None = None) -> frozenset[str]:
    """The features that the processor names; nothing where it names none.

    Args:
        cpuinfo: Content of Linux' /proc/cpuinfo; None reads that file.
    """
    if cpuinfo is None:
        cpuinfo = _CPUINFO.read_text() if _CPUINFO.exists() else ''
    for line in cpuinfo.splitlines():
        name, _, flags = line.partition(':')
        if name.strip() in ('flags', 'Features'):
            return frozenset(flags.split())
    return frozenset()
