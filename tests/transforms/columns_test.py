"""Columns that labels add to a corpus."""

import dataclasses
import pathlib

import pyarrow.parquet as pq
import pytest

from models.records import SyntheticExample
from tests.transforms.examples import some_examples
from transforms import write
from transforms.predict import COLUMNS


def test_declared_words_stand_beside_the_label(tmp_path: pathlib.Path) -> None:
    columns = COLUMNS.with_label_words({'a': 'digestive system diseases'})
    path = tmp_path / 'shard.parquet'
    path.write_bytes(write.encode_shard(some_examples(), columns))
    names = COLUMNS.schema.names
    assert pq.read_schema(path).names == [*names[:2], 'label_words', *names[2:]] == list(columns.meanings)
    rows = pq.read_table(path).to_pylist()
    words = {(row['label'], row.pop('label_words')) for row in rows}
    assert words == {('a', 'digestive system diseases'), ('b', None)}
    assert [SyntheticExample(**row) for row in rows] == some_examples()
    assert COLUMNS.with_label_words({}) is COLUMNS


@pytest.mark.parametrize('words', [{}, {'a|1': 'A, 1'}])
def test_attributes_stand_beside_the_label(tmp_path: pathlib.Path, words: dict[str | None, str]) -> None:
    columns = COLUMNS.with_attributes(('kind', 'stars')).with_label_words(words)
    examples = [dataclasses.replace(example, label=f'{example.label}|1') for example in some_examples()]
    path = tmp_path / 'shard.parquet'
    path.write_bytes(write.encode_shard(examples, columns))
    names, added = COLUMNS.schema.names, ['label_words'] * bool(words) + ['kind', 'stars']
    assert pq.read_schema(path).names == [*names[:2], *added, *names[2:]] == list(columns.meanings)
    rows = pq.read_table(path).to_pylist()
    found = {(row['label'], *(row.pop(name) for name in added)) for row in rows}
    assert found == {
        (f'{kind}|1', *([words.get(f'{kind}|1')] if words else []), kind, '1') for kind in ('a', 'b')
    }
    assert [SyntheticExample(**row) for row in rows] == examples
    assert COLUMNS.with_attributes(()) is COLUMNS
