"""One spelling for each unit id, record id, label and value of an attribute, whatever format it comes from.

A person whose id is `7` in one file, `7.0` in the next and `" 7"` in a third is one unit: two spellings would
be two units, and ε would hold for half of the person (models/privacy/README.md, section 5). So:

* A number that is whole is written as a whole number: 7.0, 7 and the text `7.0` are `7`, -0 is `0`.
* A text is composed (Unicode's NFC), and has no blanks at its ends: separators, control and format
  characters (categories Z, Cc and Cf), and so none that shows nothing, such as U+200B and U+FEFF.
* All else is kept: case, zeros in front, punctuation. `alike` finds ids that differ in these alone.

An id has no spelling where formats disagree on it: see `id_of`.
"""

import decimal
import math
import re
import unicodedata

# Digits of the longest whole number with a spelling: so many can be written as text whatever
# `PYTHONINTMAXSTRDIGITS` says.
MOST_DIGITS = 640
# The first whole number that a float may stand for although another one was meant.
_INEXACT = 2.0**53
_BLANK = frozenset({'Zs', 'Zl', 'Zp', 'Cc', 'Cf'})
_WHOLE = re.compile(r'(-?[0-9]+)\.0+')
# A spreadsheet writes a long number so, without the digits that tell it from others.
_SCIENTIFIC = re.compile(r'-?[0-9]+(?:[.,][0-9]+)?[eE]\+[0-9]+')
_ZEROS = re.compile(r'(?<![0-9])0+(?=[0-9])')


def spelled(value: object) -> str | None:
    """The spelling of a value as a label, or as part of one; None for a value that has none. Never raises.

    >>> [spelled(value) for value in (7, 7.0, ' 7.0 ', '007', True, 0.5, float('nan'), ['7'])]
    ['7', '7', '7', '007', 'true', '0.5', None, None]

    Args:
        value: Text, number or boolean, from any format; bytes are UTF-8.
    """
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, (int, float, decimal.Decimal)):
        if (found := whole(value)) is not None:
            return str(found)
        if isinstance(value, decimal.Decimal):
            return str(value) if value.is_finite() and value != value.to_integral_value() else None
        return repr(float(value)) if isinstance(value, float) and math.isfinite(value) else None
    return None


def whole(value: int | float | decimal.Decimal) -> int | None:
    """A number that is whole and has at most `MOST_DIGITS` digits; None for another one. Never raises."""
    if not isinstance(value, int):
        # The size comes first: a whole number of few characters can have very many digits.
        exact = decimal.Decimal(value)
        if not exact.is_finite() or exact.adjusted() >= MOST_DIGITS or exact != exact.to_integral_value():
            return None
    return int(value) if abs(value) < 10**MOST_DIGITS else None


def id_of(value: object) -> str | None:
    """The spelling of a value as an id; None where it identifies nobody for sure. Never raises.

    A number with a fraction or without all of its digits has none, nor has a boolean. Of formats without
    types, a number in scientific notation (1.23457E+15) is one that lost digits.

    >>> [id_of(value) for value in (7.0, '7.0', '1e3', 7.5, 2.0**53, '1.2E+16', True)]
    ['7', '7', '1e3', None, None, None, None]
    """
    name = spelled(value)
    if isinstance(value, (str, bytes)):
        return None if name is None or _SCIENTIFIC.fullmatch(name) else name
    if isinstance(value, bool) or (isinstance(value, float) and abs(value) >= _INEXACT):
        return None
    return name if name is not None and name.removeprefix('-').isdigit() else None


def alike(name: str) -> str:
    """What spellings have in common that differ in case, zeros in front or punctuation alone.

    >>> alike('P-007') == alike('p7'), alike('P7') == alike('P8')
    (True, False)
    """
    folded = unicodedata.normalize('NFKC', unicodedata.normalize('NFKC', name).casefold())
    kept = ''.join(each for each in folded if unicodedata.category(each)[0] in 'LMN')
    return _ZEROS.sub('', kept) or name


def _of_text(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        # A lone surrogate, which no text has.
        return None
    text = unicodedata.normalize('NFC', text)
    start, end = 0, len(text)
    while start < end and unicodedata.category(text[start]) in _BLANK:
        start += 1
    while start < end and unicodedata.category(text[end - 1]) in _BLANK:
        end -= 1
    text = text[start:end]
    if (whole := _WHOLE.fullmatch(text)) is not None:
        text = whole[1]
    return '0' if text == '-0' else text
