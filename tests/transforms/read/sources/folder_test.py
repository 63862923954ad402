"""A folder of texts: each file a record, its folder the label, its path the id."""

import os
import pathlib

import pytest

from models.records import Record
from tests.object_store import object_store
from tests.transforms.read.samples import TEXT
from transforms import durable, read
from transforms.read import Dialect, MissingColumns, Reason, RecordFields, RecordRules, Rejection

RULES = RecordRules(
    fields=RecordFields(text='text', label='label', record_id='id'), labels=('pos', 'neg'),
    max_record_bytes=100,
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    texts = {
        'pos/1.txt': b'Good.\r\n', 'pos/late/1.TXT': b'\xef\xbb\xbfFine.', 'neg/1.txt': b'Bad.\n\n',
        'neg/2.txt': b'', 'neg/3.txt': b'caf\xe9', 'neg/4.txt': b'x' * 101, 'unsup/1.txt': b'Neither.',
        'index.txt': b'pos/1.txt', 'pos/notes.md': b'secret', 'pos/._1.txt': b'secret',
        '.git/1.txt': b'secret',
    }  # fmt: skip
    for name, data in texts.items():
        path = tmp_path / 'all [1]' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / 'all [1]'


def rows(place: pathlib.Path | str, rules: RecordRules) -> list[Record | Rejection]:
    (file,) = read.check_input(str(place), rules.fields)
    return [one for piece in read.split_file(file.path) for one in read.read_piece(piece, rules)]


def test_a_file_is_a_record_and_its_folder_the_label(folder: pathlib.Path) -> None:
    found = rows(folder, RULES)
    records = {one.record_id: (one.label, one.text) for one in found if isinstance(one, Record)}
    assert records == {
        'pos/1.txt': ('pos', 'Good.'), 'pos/late/1.TXT': ('pos', 'Fine.'), 'neg/1.txt': ('neg', 'Bad.\n'),
    }  # fmt: skip
    rejected = {one.file: one.reason for one in found if isinstance(one, Rejection)}
    assert rejected == {
        'neg/2.txt': Reason.BLANK_TEXT, 'neg/3.txt': Reason.NOT_TEXT, 'neg/4.txt': Reason.TOO_LONG,
        'unsup/1.txt': Reason.UNDECLARED_LABEL, 'index.txt': Reason.MISSING_FIELD,
    }  # fmt: skip


def test_without_labels_every_text_is_a_record(folder: pathlib.Path) -> None:
    texts = {one.text for one in rows(folder, TEXT) if isinstance(one, Record)}
    assert {'Good.', 'Neither.', 'pos/1.txt'} <= texts and 'secret' not in texts and len(texts) == 6


def test_an_encoding_is_that_of_all_files(folder: pathlib.Path) -> None:
    fields = RecordFields(text='text', dialect=Dialect(encoding='windows-1252'))
    assert 'café' in {one.text for one in rows(folder, RecordRules(fields=fields)) if isinstance(one, Record)}


def test_a_name_that_is_not_utf8_is_a_rejected_row(folder: pathlib.Path) -> None:
    with open(os.fsencode(folder / 'pos') + b'/\xff.txt', 'wb') as file:
        file.write(b'Named oddly.')
    assert Reason.NOT_TEXT in {one.reason for one in rows(folder, RULES) if isinstance(one, Rejection)}


def test_the_digest_is_of_names_and_contents(folder: pathlib.Path) -> None:
    (file,) = read.list_input(f'{folder}/')
    seen = [file.checksum(TEXT.fields)]
    (folder / 'pos' / 'notes.md').write_text('not read')
    assert file.checksum(TEXT.fields) == seen[0]
    (folder / 'neg' / '1.txt').write_text('Bad!')
    seen.append(file.checksum(TEXT.fields))
    (folder / 'neg' / '1.txt').rename(folder / 'pos' / '2.txt')
    seen.append(file.checksum(TEXT.fields))
    assert len(set(seen)) == 3


def test_what_is_no_folder_of_texts_is_refused(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / 'tables').mkdir()
    (tmp_path / 'tables' / 'a.csv').write_text('text\nx\n')
    with pytest.raises(FileNotFoundError, match=r'DIR/\*\.parquet.*hf://DIR'):
        read.check_input(str(tmp_path / 'tables'), TEXT.fields)
    with pytest.raises(MissingColumns, match=r"missing=\['ward'\].*columns text, label"):
        read.check_input(str(folder), RecordFields(text='text', label='ward'))


def test_a_folder_of_an_object_store_is_read_too() -> None:
    with object_store() as objects:
        for name in ('pos/1.txt', 'neg/late/1.txt', 'pos/1.csv', 'pos/.1.txt'):
            durable.write_file(f'gs://bucket/all [1]/{name}', f'In {name}.'.encode())
        durable.write_file('gs://bucket/all 1/pos/1.txt', b'Of another folder.')
        found = {(one.label, one.text) for one in rows('gs://bucket/all [1]/', RULES)}
        assert found == {('pos', 'In pos/1.txt.'), ('neg', 'In neg/late/1.txt.')}
        (file,) = read.list_input('gs://bucket/all [1]/')
        first = file.checksum(RULES.fields)
        objects.pop('bucket/all [1]/pos/1.txt')
        assert file.checksum(RULES.fields) != first
