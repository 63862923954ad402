"""One spelling for each unit id, record id, label and value of an attribute, whatever format it comes from.

A person whose id is `7` in one file, `7.0` in the next and `" 7"` in a third is one unit: two spellings would
be two units, and ε would hold for half of the person (models/privacy/README.md, section 5). So:

* A number that is whole is written as a whole number: 7.0, 7 and the text `7.0` are `7`, -0 is `0`.
* Another number has the shortest digits of its own type: 0.1 is `0.1` of 64, 32 and 16 bits. A decimal has
  the digits that it was stored with: 1.50 is `1.50`, and 2.00 is whole.
* A date is `2024-05-06`, and a time `07:08:00`, with a fraction without zeros at its end. Both together are
  `2024-05-06 07:08:00`, at midnight the date alone, since many programs store a date so. With a zone it is
  `2024-05-06 07:08:00+00`, in UTC. A text in the form of ISO 8601 is spelled so, too. Time that passed is
  `1 day 02:03:04`.
* A text is composed (Unicode's NFC), and has no blanks at its ends: separators, control and format
  characters (categories Z, Cc and Cf), and so none that shows nothing, such as U+200B and U+FEFF.
* All else is kept: case, zeros in front, punctuation. `alike` finds ids that differ in these alone.

An id has no spelling where formats disagree on it: see `id_of`. Which types of a source come as which values
here is said in `transforms.read.column_types`.
"""

import datetime
import decimal
import difflib
import math
import re
import unicodedata
import uuid

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
_MOMENT = re.compile(
    r'(?:(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})[ T])?(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})'
    r'(?P<fraction>\.[0-9]+)?(?P<zone>Z|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?)?'
)
# Number of characters of two spellings that are named.
_NAMED = 3


class Single(float):
    """A float of 32 bits, as its shortest digits say.

    Attributes:
        inexact: The first whole number that it may stand for although another one was meant.
    """

    inexact = 2.0**24


class Half(float):
    """A float of 16 bits, as `Single`."""

    inexact = 2.0**11


def spelled(value: object) -> str | None:
    """The spelling of a value as a label, or as part of one; None for a value that has none. Never raises.

    >>> [spelled(value) for value in (7, 7.0, ' 7.0 ', '007', True, 0.5, float('nan'), ['7'])]
    ['7', '7', '7', '007', 'true', '0.5', None, None]
    >>> spelled('2024-05-06T00:00:00.000'), spelled(datetime.datetime(2024, 5, 6))
    ('2024-05-06', '2024-05-06')

    Args:
        value: Text, number, boolean, date, time or UUID, from any format; bytes are UTF-8.
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
        if (number := whole(value)) is not None:
            return str(number)
        if isinstance(value, decimal.Decimal):
            # Another one has no digit in its first places, or is whole and too long.
            has_digits = value.is_finite() and -MOST_DIGITS <= value.adjusted() < MOST_DIGITS
            return f'{value:f}' if has_digits and value != value.to_integral_value() else None
        return repr(float(value)) if isinstance(value, float) and math.isfinite(value) else None
    if isinstance(value, datetime.timedelta):
        return elapsed(value // datetime.timedelta(microseconds=1) * 1_000)
    return _of_text(str(value)) if isinstance(value, (datetime.date, datetime.time, uuid.UUID)) else None


def elapsed(nanoseconds: int) -> str:
    """The spelling of time that passed, as PostgreSQL writes what is between two times.

    >>> elapsed(93_784 * 10**9), elapsed(-1_500_000_000), elapsed(0)
    ('1 day 02:03:04', '-00:00:01.5', '00:00:00')
    """
    sign = '-' if nanoseconds < 0 else ''
    seconds, fraction = divmod(abs(nanoseconds), 10**9)
    days, seconds = divmod(seconds, 86_400)
    words = [f'{sign}{days} day{"" if sign + str(days) == "1" else "s"}'] if days else []
    if seconds or fraction or not days:
        after = f'.{fraction:09}'.rstrip('0').rstrip('.')
        words.append(f'{sign}{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{after}')
    return ' '.join(words)


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
    types, a number in scientific notation (1.23457E+15) is one that lost digits. Dates, times and UUIDs are
    as their texts.

    >>> [id_of(value) for value in (7.0, '7.0', '1e3', 7.5, 2.0**53, '1.2E+16', True)]
    ['7', '7', '1e3', None, None, None, None]
    """
    name = spelled(value)
    if isinstance(value, bool) or (
        isinstance(value, float) and abs(value) >= getattr(value, 'inexact', _INEXACT)
    ):
        return None
    if isinstance(value, (int, float, decimal.Decimal)):
        return name if name is not None and name.removeprefix('-').isdigit() else None
    return None if name is None or _SCIENTIFIC.fullmatch(name) else name


def alike(name: str) -> str:
    """The part that spellings share which differ in case, zeros in front or punctuation alone.

    >>> alike('P-007') == alike('p7'), alike('P7') == alike('P8')
    (True, False)
    """
    folded = unicodedata.normalize('NFKC', unicodedata.normalize('NFKC', name).casefold())
    kept = ''.join(each for each in folded if unicodedata.category(each)[0] in 'LMN')
    return _ZEROS.sub('', kept) or name


def difference(one: str, other: str) -> str:
    """The difference of two spellings that are `alike`; characters are named, since they may look the same.

    >>> difference('P7', 'p7'), difference('P-7', 'P7')
    ('case', "'-' (HYPHEN-MINUS) against nothing")
    """
    if one.lower() == other.lower():
        return 'case'
    changes = difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    pairs = [(one[a:b], other[c:d]) for kind, a, b, c, d in changes if kind != 'equal']
    shown = [f'{_named(left)} against {_named(right)}' for left, right in pairs[:_NAMED]]
    return ', '.join(shown) + (', ...' if len(pairs) > _NAMED else '')


def _named(characters: str) -> str:
    names = ' '.join(unicodedata.name(each, f'U+{ord(each):04X}') for each in characters[:_NAMED])
    return f'{ascii(characters)} ({names})' if characters else 'nothing'


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
    elif (moment := _MOMENT.fullmatch(text)) is not None:
        text = _of_moment(moment)
    return '0' if text == '-0' else text


def _of_moment(match: re.Match[str]) -> str:
    """The spelling of a time of day, perhaps on a date; one that no calendar has is a text like others."""
    date, time, zone = match['date'], match['time'], match['zone']
    fraction = (match['fraction'] or '').rstrip('0').rstrip('.')
    if date is None:
        return f'{time}{fraction}{zone or ""}'
    try:
        moment = datetime.datetime.fromisoformat(f'{date} {time}{zone or ""}')
        if zone is not None:
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return match[0]
    if zone is not None:
        return f'{moment}{fraction}+00'
    return date if time == '00:00:00' and not fraction else f'{date} {time}{fraction}'
