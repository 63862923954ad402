"""The type in which a machine is fastest: a function of what it says of itself."""

import subprocess

import jax
import psutil
import pytest

from models.decoders import device, device_memory

EPYC = 'processor : 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu sse2 avx2 avx512f avx512_bf16 avx512_vnni\n'
OLD = (
    'processor : 0\nmodel name\t: some bf16 machine\nflags\t\t: fpu sse2 avx2 avx512f\nbugs\t: avx512_bf16\n'
)
ARM = 'processor\t: 0\nFeatures\t: fp asimd bf16 i8mm\n'


@pytest.mark.parametrize(
    ('platform', 'cpuinfo', 'dtype'),
    [
        ('gpu', OLD, 'bfloat16'), ('tpu', '', 'bfloat16'), ('cpu', EPYC, 'bfloat16'),
        ('cpu', ARM, 'bfloat16'), ('cpu', OLD, 'float32'), ('cpu', '', 'float32'),
    ],
)  # fmt: skip
def test_fastest_dtype(platform: str, cpuinfo: str, dtype: str) -> None:
    assert device.fastest_dtype(platform, cpuinfo) == dtype


def test_without_a_plugin_it_is_the_processor() -> None:
    device.platform_here.cache_clear()
    assert device.platform_here() == jax.local_devices()[0].platform == 'cpu'


@pytest.mark.run
def test_with_a_plugin_jax_is_asked_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.importlib.metadata, 'entry_points', lambda group: [group])
    monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
    device.platform_here.cache_clear()
    assert device.platform_here() == 'cpu'
    monkeypatch.setenv('JAX_PLATFORMS', 'none_such')
    device.platform_here.cache_clear()
    with pytest.raises(RuntimeError, match='exit code 1. Give --dtype'):
        device.platform_here()
    device.platform_here.cache_clear()


def test_memory_of_a_processor_is_the_hosts() -> None:
    device.platform_here.cache_clear()
    found = device_memory.memory_here()
    assert found is not None and found.devices == 1
    assert 0 < found.bytes <= psutil.virtual_memory().total


@pytest.mark.parametrize(
    ('answer', 'memory'), [('chatter\n1024 8\n', device_memory.Memory(1024, 8)), (None, None)]
)
def test_memory_of_accelerators_is_what_another_process_is_told(
    monkeypatch: pytest.MonkeyPatch, answer: str | None, memory: device_memory.Memory | None
) -> None:
    done = subprocess.CompletedProcess('', int(answer is None), answer or '')
    monkeypatch.setattr(device, 'platform_here', lambda: 'gpu')
    monkeypatch.setattr(device, 'ask', lambda _: done)
    device_memory._accelerator_memory.cache_clear()
    assert device_memory.memory_here() == memory
    device_memory._accelerator_memory.cache_clear()


def test_a_card_that_jax_does_not_find_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not where no plugin is there, nor where the processor was asked for."""
    monkeypatch.setattr(device, 'has_plugin', lambda: True)
    monkeypatch.setenv('JAX_PLATFORMS', '')
    for platform, lines in (('gpu', 0), ('cpu', 1), ('cpu', 1)):
        if not lines:
            device.warn_of_processor.cache_clear()
        device.warn_of_processor(platform)
        assert caplog.text.count('JAX found no accelerator here') == lines
    caplog.clear()
    for plugin, asked in ((True, 'cpu'), (False, '')):
        device.warn_of_processor.cache_clear()
        monkeypatch.setattr(device, 'has_plugin', lambda plugin=plugin: plugin)
        monkeypatch.setenv('JAX_PLATFORMS', asked)
        device.warn_of_processor('cpu')
    assert not caplog.text
    device.warn_of_processor.cache_clear()
