"""Which type a machine is fastest in: a function of what it says of itself."""

import pytest

from models.decoders import device

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


def test_of_this_machine_is_one_of_both() -> None:
    assert device.fastest_dtype() in ('float32', 'bfloat16')
