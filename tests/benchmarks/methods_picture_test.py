"""The picture of the methods is that of the table beside it."""

import re

from tests.benchmarks import methods_picture


def test_the_picture_is_drawn_from_the_table_as_it_stands() -> None:
    """Names of clips are hashes of numbers to the last bit, which not all processors round alike."""
    kept, drawn = (
        re.sub(r'\bp[0-9a-f]{10}\b', 'clip', picture)
        for picture in (methods_picture.PICTURE.read_text(encoding='utf-8'), methods_picture.draw())
    )
    assert kept == drawn


def test_every_row_is_a_point_with_its_name_in_both_panels() -> None:
    found, drawing = methods_picture.rows(), methods_picture.draw()
    assert len(found) >= 11 and len({row.data for row in found}) == 5
    for row in found:
        same = sum(other.name == row.name for other in found)
        assert len(re.findall(f'>{re.escape(row.name)}</text>', drawing)) == 2 * same
        assert 0.4 < row.worth < 1.12 and row.minutes > 0 < row.of_label


def test_no_name_lies_on_another_or_on_a_point() -> None:
    from matplotlib.text import Annotation

    for panel in methods_picture.figure().axes:
        names = [of for of in panel.texts if isinstance(of, Annotation)]
        boxes = [name.get_window_extent() for name in names]
        points = panel.transData.transform([name.xy for name in names])
        assert len(boxes) == len(methods_picture.rows())
        assert not any(box.contains(*point) for box in boxes for point in points)
        for place, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:place])


def test_another_table_is_another_picture(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    before, found = methods_picture.draw(), methods_picture.rows()
    monkeypatch.setattr(methods_picture, 'rows', lambda: found[1:])
    assert methods_picture.draw() != before
