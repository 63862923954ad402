"""Shown figures: a bound that is rounded still holds."""

import doctest

from hypothesis import given
from hypothesis import strategies as st

from models.privacy import numbers, report


def test_docstring_examples() -> None:
    assert doctest.testmod(numbers).failed == 0


@given(st.floats(min_value=1e-12, max_value=1e12), st.integers(min_value=1, max_value=8))
def test_rounding_down_never_overstates(value: float, digits: int) -> None:
    shown = float(report.format_down(value, digits))
    assert shown <= value * (1 + 1e-11)
    assert shown >= value * (1 - 10.0 ** (1 - digits)) * (1 - 1e-12)


@given(st.floats(min_value=1e-12, max_value=1e12), st.integers(min_value=1, max_value=8))
def test_rounding_up_never_understates(value: float, digits: int) -> None:
    shown = float(report.format_up(value, digits))
    assert shown >= value * (1 - 1e-11)
    # At most one unit in the last shown digit too much.
    assert shown <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-12)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_exact_format_reads_back(value: float) -> None:
    assert float(report.format_exact(value)) == value
