"""Answers that are taken from names of columns, and values that labels may have."""

import doctest

import pytest

from pipeline.start import answers, questions
from pipeline.start.answers import declared_labels, likely_text
from pipeline.start.questions import numbers, one_of


def test_examples_hold() -> None:
    assert doctest.testmod(answers).failed == doctest.testmod(questions).failed == 0


@pytest.mark.parametrize(
    'columns, found',
    [
        (('anything',), 'anything'),
        (('id', 'text', 'note'), 'text'),  # the usual name of all
        (('note', 'comment'), None),
        (('NOTE ', 'ward'), 'NOTE '),
        (('title', 'story'), None),
    ],
)
def test_the_column_of_the_text_is_taken_where_there_is_no_doubt(
    columns: tuple[str, ...], found: str | None
) -> None:
    assert likely_text(columns) == found


def test_labels_are_a_comma_list() -> None:
    assert declared_labels(' A1=Surgery, B2 ,') == ('A1=Surgery', 'B2')
    for typed in ('', ' , ', '=words', 'a,=b'):
        with pytest.raises(ValueError, match='Expected declared labels'):
            declared_labels(typed)


@pytest.mark.parametrize('typed', ['3200', '3,200', '-3 200', '0 200', 'many', '', '1 2 3'])
def test_two_numbers_are_two(typed: str) -> None:
    assert numbers('ε', 'texts')('3, 200') == (3.0, 200.0)
    with pytest.raises(ValueError, match='Expected ε and texts as positive numbers'):
        numbers('ε', 'texts')(typed)


def test_a_column_is_one_of_the_file() -> None:
    parse = one_of(('Ward', 'none of these'), or_none=True)
    assert one_of(('id', 'note\ntext'))('Note text') == 'note\ntext'
    assert (parse('Ward'), parse('ward'), parse('none'), parse('')) == ('Ward', 'Ward', None, None)
    with pytest.raises(ValueError, match='Expected a column of the file'):
        one_of(('Ward',))('none')
