"""The columns of the corpus of private prediction."""

import dataclasses
import typing

from models.records import SyntheticExample
from transforms.predict.columns import COLUMNS


def test_columns_are_those_of_the_corpus() -> None:
    assert (
        list(COLUMNS.meanings)
        == COLUMNS.schema.names
        == [field.name for field in dataclasses.fields(SyntheticExample)]
    )
    hints = typing.get_type_hints(SyntheticExample)
    kinds = {str: 'string', str | None: 'string', int: 'integer', bool: 'boolean'}
    assert {name: kinds[hint] for name, hint in hints.items()} == {
        name: kind for name, (kind, _) in COLUMNS.meanings.items()
    }
