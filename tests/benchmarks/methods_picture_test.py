"""The picture of the methods is that of the table beside it."""

import re

from tests.benchmarks import methods_picture


def test_the_picture_is_drawn_from_the_table_as_it_stands() -> None:
    assert methods_picture.PICTURE.read_text(encoding='utf-8') == methods_picture.draw()


def test_every_row_is_a_point_with_its_name_in_both_panels() -> None:
    found, drawing = methods_picture.rows(), methods_picture.draw()
    assert len(found) >= 11 and len({row.data for row in found}) == 5
    for row in found:
        same = sum(other.name == row.name for other in found)
        assert len(re.findall(f'>{re.escape(row.name)}</text>', drawing)) == 2 * same
        assert 0.4 < row.worth < 1.12 and row.minutes > 0 < row.of_label


def test_another_table_is_another_picture(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    before, found = methods_picture.draw(), methods_picture.rows()
    monkeypatch.setattr(methods_picture, 'rows', lambda: found[1:])
    assert methods_picture.draw() != before
