"""A person is one unit, in whatever format and spelling the id comes."""

import csv
import json
import pathlib
import sqlite3
import unicodedata
from collections.abc import Callable
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models import spelling
from models.records import Record
from transforms import read
from transforms.read import Reason, RecordFields, RecordRules, Table

PEOPLE = 20
JOSE = 'José'


def write_csv(path: pathlib.Path, ids: list[Any]) -> str:
    with open(path.with_suffix('.csv'), 'w', newline='') as file:
        csv.writer(file).writerows([('text', 'who'), *((f'Note {n}.', who) for n, who in enumerate(ids))])
    return str(path.with_suffix('.csv'))


def write_json_lines(path: pathlib.Path, ids: list[Any]) -> str:
    rows = [{'text': f'Note {n}.', 'who': who} for n, who in enumerate(ids)]
    path.with_suffix('.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return str(path.with_suffix('.jsonl'))


def write_json(path: pathlib.Path, ids: list[Any]) -> str:
    rows = [{'text': f'Note {n}.', 'who': who} for n, who in enumerate(ids)]
    path.with_suffix('.json').write_text(json.dumps(rows))
    return str(path.with_suffix('.json'))


def write_parquet(path: pathlib.Path, ids: list[Any]) -> str:
    table = pa.table({'text': [f'Note {n}.' for n, _ in enumerate(ids)], 'who': ids})
    pq.write_table(table, path.with_suffix('.parquet'))
    return str(path.with_suffix('.parquet'))


def write_excel(path: pathlib.Path, ids: list[Any]) -> str:
    workbook = openpyxl.Workbook()
    for row in [('text', 'who'), *((f'Note {n}.', who) for n, who in enumerate(ids))]:
        workbook.worksheets[0].append(row)
    workbook.save(path.with_suffix('.xlsx'))
    return str(path.with_suffix('.xlsx'))


def write_database(path: pathlib.Path, ids: list[Any]) -> str:
    with sqlite3.connect(path.with_suffix('.db')) as connection:
        connection.execute('CREATE TABLE notes (text, who)')
        connection.executemany(
            'INSERT INTO notes VALUES (?, ?)', [(f'Note {n}.', who) for n, who in enumerate(ids)]
        )
    return f'sqlite:///{path.with_suffix(".db")}'


WRITERS = (write_csv, write_json_lines, write_json, write_parquet, write_excel, write_database)
SPELLINGS: dict[str, Callable[[int], Any]] = {
    'whole': lambda n: n + 100,
    'float': lambda n: float(n + 100),
    'text': lambda n: str(n + 100),
    'text of a float': lambda n: f'{n + 100}.0',
    'blanks': lambda n: f' {n + 100}\u00a0',
    'zero width': lambda n: f'\ufeff{n + 100}\u200b',
}
NAMES: dict[str, Callable[[int], Any]] = {
    'composed': lambda n: unicodedata.normalize('NFC', f'{JOSE}{n}'),
    'decomposed': lambda n: unicodedata.normalize('NFD', f'{JOSE}{n}'),
    'blanks': lambda n: f'{JOSE}{n}\t ',
}


def units_of(places: list[str]) -> list[str | None | Reason]:
    found: list[str | None | Reason] = []
    for place in places:
        table = Table(query='SELECT text, who FROM notes') if '://' in place else Table()
        rules = RecordRules(fields=RecordFields(text='text', unit='who', table=table), unit='user')
        read.check_input(place, rules.fields)
        for piece in read.split_file(place, table):
            for one in read.read_piece(piece, rules):
                found.append(one.unit if isinstance(one, Record) else one.reason)
    return found


def written(folder: pathlib.Path, spellings: dict[str, Callable[[int], Any]]) -> list[str]:
    return [
        write(folder / f'{write.__name__} {name}', [spell(n) for n in range(PEOPLE)])
        for write in WRITERS
        for name, spell in spellings.items()
    ]


@pytest.mark.parametrize('spellings', [SPELLINGS, NAMES], ids=['numbers', 'names'])
def test_a_person_is_one_unit_in_every_format_and_spelling(
    tmp_path: pathlib.Path, spellings: dict[str, Callable[[int], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    places = written(tmp_path, spellings)
    found = units_of(places)
    assert len(found) == PEOPLE * len(WRITERS) * len(spellings)
    assert len(set(found)) == PEOPLE
    # An open twin, which compares ids as they are written: people become several units, and counting tells.
    monkeypatch.setattr(spelling, 'id_of', lambda value: None if value is None else str(value))
    assert len(set(units_of(places))) >= 3 * PEOPLE


@pytest.mark.parametrize(
    'write', [write for write in WRITERS if write is not write_csv], ids=lambda write: write.__name__
)
def test_a_number_with_a_fraction_or_without_all_digits_is_no_id(
    tmp_path: pathlib.Path, write: Callable[[pathlib.Path, list[Any]], str]
) -> None:
    found = units_of([write(tmp_path / 'a', [7.0, 7.5, 2.0**60, 0.1 + 0.2])])
    assert found == ['7', *3 * [Reason.WRONG_TYPE]]


def test_of_csv_it_is_text_but_for_what_a_spreadsheet_makes_of_long_numbers(tmp_path: pathlib.Path) -> None:
    assert units_of([write_csv(tmp_path / 'a', ['7.5', '1.10', '1.23457E+15', '1e3'])]) == [
        '7.5', '1.10', Reason.WRONG_TYPE, '1e3',
    ]  # fmt: skip


def test_an_id_of_blanks_is_none(tmp_path: pathlib.Path) -> None:
    assert units_of([write_csv(tmp_path / 'a', ['\u200b ', '7'])]) == [Reason.MISSING_UNIT, '7']
