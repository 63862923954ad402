"""Numbers as a report shows them: bounds are rounded to the side on which they still hold."""

import decimal


def format_up(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, rounded upwards, so that the shown bound still holds.

    >>> format_up(2.9301), format_up(0.1709), format_up(8.0)
    ('2.94', '0.171', '8')
    """
    # 1 part in 10¹² of slack, or the binary form of 0.3 would show as 0.301.
    exact = decimal.Decimal(value) * (1 - decimal.Decimal('1e-12'))
    return _plain(exact, decimal.Context(prec=digits, rounding=decimal.ROUND_CEILING))


def format_down(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant digits, rounded downwards, so that the rest is never overstated.

    >>> format_down(2.9399), format_down(0.3), format_down(0.0)
    ('2.93', '0.3', '0')
    """
    exact = decimal.Decimal(value) * (1 + decimal.Decimal('1e-12'))
    return _plain(exact, decimal.Context(prec=digits, rounding=decimal.ROUND_FLOOR))


def format_exact(value: float) -> str:
    """The shortest decimal that reads back as `value`, without needless zeros.

    >>> format_exact(1e-06), format_exact(0.05), format_exact(2.0)
    ('1e-6', '0.05', '2')
    """
    return _plain(decimal.Decimal(repr(float(value))), decimal.Context(prec=17))


def _plain(value: decimal.Decimal, context: decimal.Context) -> str:
    rounded = context.plus(value).normalize(decimal.Context(prec=17))
    exponent = rounded.adjusted()
    if rounded == 0 or -4 <= exponent <= 15:
        return f'{rounded:f}'
    return f'{rounded.scaleb(-exponent):f}e{exponent}'
