"""Records of a query: each row once, in parts, and neither a password nor a row in any text."""

import collections
import logging
import os
import pathlib
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
import sqlalchemy as sa
from apache_beam.testing import util

from models.records import Record
from pipeline import methods
from pipeline.asked.config import job_config, read_config
from pipeline.run import folders
from pipeline.run.record_rules import record_rules
from pipeline.settings.job_config import JobConfig
from transforms import places, read
from transforms.read import Dialect, RecordFields, RecordRules, Rejection, Table
from transforms.read.sources import database

QUERY = 'SELECT id, note AS text, ward, other FROM notes'
PASSWORD = 's3cr/t?%@x'


@pytest.fixture
def place(where: str) -> str:
    """A database of 100 notes, on each kind; the URL as `--input` has it."""
    place = where if '://' in where else f'sqlite:///{where}'
    rows = [
        {'id': None if n % 25 == 0 else n // 3, 'note': f'Note {n}: 100 % of it.', 'ward': n % 2 + 1.0}
        for n in range(100)
    ]
    with engine_of(place).begin() as connection:
        # The types of both: a number of a column of any decimals, and a key that is sometimes missing.
        connection.exec_driver_sql(
            "CREATE TABLE notes (id BIGINT, note TEXT, ward NUMERIC, other TEXT DEFAULT 'x')"
        )
        connection.execute(sa.text('INSERT INTO notes (id, note, ward) VALUES (:id, :note, :ward)'), rows)
    return place


def engine_of(place: str) -> sa.Engine:
    url = sa.make_url(place)
    if url.drivername != 'sqlite':
        url = url.set(drivername='postgresql+psycopg')
    return sa.create_engine(url, poolclass=sa.NullPool)


def change(place: str, *statements: str) -> None:
    with engine_of(place).begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def config(place: str, folder: pathlib.Path, **changes: Any) -> JobConfig:
    values: dict[str, Any] = {
        'input': place, 'query': QUERY, 'partition_column': 'id', 'label_field': 'ward', 'labels': ('1', '2'),
        'context_budget': 1.0, 'delta': 1e-9, 'batch_size': 8, 'output': str(folder / 'out'),
    }  # fmt: skip
    return job_config(**values | changes)


def rules_of(query: str = QUERY, partition_column: str | None = None, **fields: Any) -> RecordRules:
    table = Table(query=query, partition_column=partition_column)
    return RecordRules(fields=RecordFields(text='text', table=table, **fields))


def pieces(place: str, rules: RecordRules) -> list[list[Record | Rejection]]:
    read.check_input(place, rules.fields)
    found = read.split_file(place, rules.fields.table)
    return [list(read.read_piece(piece, rules)) for piece in found]


def test_the_header_is_that_of_the_query(place: str) -> None:
    query = 'SELECT ward, id, CAST(ward AS DOUBLE PRECISION) AS price FROM notes'
    columns = read.read_header(place, Dialect(), Table(query=query)).columns
    assert columns == ('ward', 'id', 'price')


@pytest.mark.parametrize('key', ['id', 'text', 'ward', 'gone'])
def test_every_row_is_in_one_part_whatever_the_key(place: str, key: str) -> None:
    query = "SELECT id, note AS text, ward, NULL AS gone FROM notes WHERE note LIKE '%of it%' -- all;\n;"
    (whole,) = pieces(place, rules_of(query))
    parts = pieces(place, rules_of(query, key))
    texts = collections.Counter(one.text for part in parts for one in part)
    assert texts == collections.Counter(one.text for one in whole) and len(texts) == 100
    assert set(texts.values()) == {1}
    if key in ('id', 'text'):
        assert len(parts) > 10 and max(map(len, parts)) <= 10


def test_values_are_what_other_formats_would_have(place: str) -> None:
    change(
        place,
        'DELETE FROM notes WHERE id IS NULL OR id > 2',
        'UPDATE notes SET ward = 1.5 WHERE id = 1',
        "UPDATE notes SET note = '  ' WHERE id = 2",
    )
    rules = RecordRules(
        fields=RecordFields(text='text', label='ward', record_id='id', table=Table(query=QUERY)),
        labels=('1', '2'),
    )
    (found,) = pieces(place, rules)
    records = [one for one in found if isinstance(one, Record)]
    assert {(one.label, one.record_id) for one in records} == {('1', '0'), ('2', '0')}
    reasons = collections.Counter(one.reason for one in found if isinstance(one, Rejection))
    assert reasons == {read.Reason.UNDECLARED_LABEL: 3, read.Reason.BLANK_TEXT: 3}
    rejected = next(one for one in found if isinstance(one, Rejection))
    assert b'Note' in rejected.raw or b'"  "' in rejected.raw


# Values that neither the driver nor Python has a number or a date for, and one that is fine.
ODD = {
    'digits': ('NUMERIC', f"'{'7' * 5_000}'"),
    'no number': ('NUMERIC', "'NaN'"),
    'infinite date': ('DATE', "'infinity'"),
    'date before Christ': ('DATE', "'0044-03-15 BC'"),
    'infinite time': ('TIMESTAMPTZ', "'-infinity'"),
    'long interval': ('INTERVAL', "'178000000 years'"),
    'digits in JSON': ('JSONB', f"""'{{"n": {'7' * 5_000}}}'"""),
    'array': ('NUMERIC[]', f'ARRAY[{"7" * 5_000}]'),
}


@pytest.mark.parametrize(('kind', 'value'), ODD.values(), ids=ODD)
def test_no_value_stops_a_run_or_another_row(place: str, kind: str, value: str) -> None:
    """Read as an id it is a rejection or a text, as a column beside it nothing; a digest sees it."""
    if places.POSTGRESQL not in place:
        # SQLite has none of these types, and keeps what it is given.
        value = value if value.startswith("'") else f"'{value}'"
        kind = 'BLOB'
    change(place, f'CREATE TABLE odd (note TEXT, who {kind}, n INTEGER)')
    change(
        place,
        *(f"INSERT INTO odd VALUES ('Note {n}.', {value if n == 1 else 'NULL'}, {n})" for n in range(3)),
    )
    alone = rules_of('SELECT note AS text, n FROM odd', record_id='n')
    (rows,) = pieces(place, alone)
    assert [one.text for one in rows if isinstance(one, Record)] == ['Note 0.', 'Note 1.', 'Note 2.']
    table = Table(query='SELECT note AS text, who, n FROM odd ORDER BY n')
    rules = RecordRules(fields=RecordFields(text='text', unit='who', table=table), unit='user')
    (found,) = pieces(place, rules)
    reasons = [one.reason if isinstance(one, Rejection) else one.text for one in found]
    assert reasons[::2] == 2 * [read.Reason.MISSING_UNIT]
    assert reasons[1] in ('Note 1.', read.Reason.WRONG_TYPE)
    (file,) = read.list_input(place)
    digest = file.checksum(rules.fields)
    change(place, 'UPDATE odd SET who = NULL')
    assert file.checksum(rules.fields) != digest


@pytest.mark.run
@pytest.mark.parametrize('where', ['postgresql'], indirect=True)
def test_an_open_twin_that_leaves_values_to_the_driver_is_stopped_by_one(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = rules_of("SELECT 'Note.' AS text, DATE 'infinity' AS day", record_id='day')
    ((found,),) = pieces(where, rules)
    assert isinstance(found, Rejection) and found.reason is read.Reason.WRONG_TYPE
    assert b'"infinity"' in found.raw
    monkeypatch.setattr(database, '_TAKEN_AS_TEXT', {})
    with pytest.raises(ConnectionError, match='Expected all rows'):
        pieces(where, rules)


@pytest.mark.run
@pytest.mark.parametrize('where', ['postgresql'], indirect=True)
@pytest.mark.parametrize(
    'key', ['CASE WHEN n > 50 THEN DATE \'infinity\' ELSE DATE \'2024-05-06\' + n END',
            'TIMESTAMPTZ \'-infinity\'', '(n / 10.0)::real', "lpad(n::text, 32, '0')::uuid"],
)  # fmt: skip
def test_every_row_is_in_one_part_whatever_the_type_of_the_key(where: str, key: str) -> None:
    query = f"SELECT 'Note ' || n AS text, {key} AS id FROM generate_series(1, 100) AS n"
    parts = pieces(where, rules_of(query, 'id'))
    texts = collections.Counter(one.text for part in parts for one in part if isinstance(one, Record))
    assert texts == {f'Note {n}': 1 for n in range(1, 101)}


@pytest.mark.run
@pytest.mark.parametrize('where', ['postgresql'], indirect=True)
def test_dates_are_written_as_python_writes_them(where: str) -> None:
    change(where, f'ALTER DATABASE "{sa.make_url(where).database}" SET datestyle = "German"')
    query = "SELECT 'Note.' AS text, DATE '2024-05-06' AS day, TIMESTAMP '2024-05-06 07:08:00' AS at"
    for column, expected in (('day', '2024-05-06'), ('at', '2024-05-06 07:08:00')):
        ((found,),) = pieces(where, rules_of(query, record_id=column))
        assert isinstance(found, Record) and found.record_id == expected


@pytest.mark.parametrize(
    ('query', 'message'),
    [
        ('SELECT id, note FROM notes', r"without missing=\['text'\].*Name the columns as --query does"),
        ('SELECT note AS text FROM notes', r"missing=\['id'\]"),
        ('SELECT note AS text, id FROM no_such', 'no_such'),
        ('SELEC note', 'Expected a query that the database takes'),
        ('DELETE FROM notes', 'Expected a query that the database takes'),
        ('SELECT 1 AS text, 2 AS id; DROP TABLE notes', 'Expected a query that the database takes'),
    ],
)
def test_a_bad_query_is_refused_before_anything_is_read(place: str, query: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read.check_input(place, rules_of(query, 'id').fields)
    (rest,) = pieces(place, rules_of())
    assert len(rest) == 100


def test_the_digest_is_of_the_rows_in_any_order(place: str) -> None:
    (file,) = read.list_input(place)
    fields = rules_of().fields
    first = file.checksum(fields)
    backwards = rules_of('SELECT note AS text FROM notes ORDER BY note DESC').fields
    assert file.checksum(backwards) == first
    change(place, "UPDATE notes SET other = 'not read'")
    assert file.checksum(fields) == first
    change(place, "UPDATE notes SET note = 'Another.' WHERE note LIKE 'Note 7:%%'")
    assert file.checksum(fields) != first


def test_a_table_that_changed_is_another_input(place: str, tmp_path: pathlib.Path) -> None:
    run = config(place, tmp_path)
    assert folders.prepare(methods.solve(run, launch=True)) == [place]
    folders.prepare(methods.solve(run, launch=True))
    change(place, "INSERT INTO notes (id, note, ward) VALUES (1000, 'A late one.', 1)")
    with pytest.raises(FileExistsError, match=r"changed=\['input'\]. The records of --input"):
        folders.prepare(methods.solve(run, launch=True))


@pytest.mark.first
@pytest.mark.run
def test_a_pipeline_reads_the_parts(place: str, tmp_path: pathlib.Path) -> None:
    run = config(place, tmp_path)
    rules = record_rules(run.input, run.budget.unit)
    with beam.Pipeline('FnApiRunner') as pipeline:
        records, rejected = pipeline | read.ReadRecords(place, rules, [place])
        texts = records | beam.Map(lambda one: one.text)
        util.assert_that(texts, util.equal_to([f'Note {n}: 100 % of it.' for n in range(100)]))
        util.assert_that(rejected, util.equal_to([]), label='Rejected')


# --- PostgreSQL alone --------------------------------------------------------------


@pytest.mark.run
def test_an_error_over_a_row_quotes_neither_the_row_nor_the_password(
    postgresql: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(places.PASSWORD_VARIABLE, PASSWORD)
    place = postgresql()
    change(place, "CREATE TABLE notes AS SELECT 1 AS id, 'Jane Doe, HIV' AS note")
    rules = rules_of('SELECT note AS text, note::int AS bad FROM notes', record_id='bad')
    with pytest.raises(ConnectionError, match=r'error=InvalidTextRepresentation \(22P02\)') as caught:
        pieces(place, rules)
    said = ''.join(traceback.format_exception(caught.value))
    assert 'Jane' not in said and PASSWORD not in said


@pytest.mark.first
@pytest.mark.run
def test_a_password_is_asked_of_the_environment_and_shown_nowhere(
    postgresql: Callable[[], str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    tmp_path: pathlib.Path,
) -> None:  # fmt: skip
    monkeypatch.setenv(places.PASSWORD_VARIABLE, '')
    place, user = postgresql(), f'u{uuid.uuid4().hex[:8]}'
    with engine_of(place).begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD.replace('%', '%%')}'")
        connection.exec_driver_sql("CREATE VIEW notes AS SELECT 1 AS id, 'A note.' AS text")
        connection.exec_driver_sql(f'GRANT SELECT ON notes TO {user}')
        rules = pathlib.Path(str(connection.exec_driver_sql('SHOW hba_file').scalar()))
        rules.write_text(f'local all {user} scram-sha-256\n{rules.read_text()}')
        connection.exec_driver_sql('SELECT pg_reload_conf()')
    place = place.replace('ledger@', f'{user}@')
    given = place.replace(f'{user}@', f'{user}:{PASSWORD}@')
    query = 'SELECT id, text FROM notes'
    for _ in range(50):  # until the server has read its rules anew
        try:
            read.check_input(place, rules_of(query).fields)
        except ConnectionError as error:
            assert 'password' in str(error) and places.PASSWORD_VARIABLE in str(error)
            break
    else:
        pytest.fail('The server asked for no password.')
    file = tmp_path / 'run.toml'
    file.write_text(f'input = "{given}"\nquery = "{query}"\ncontext_budget = 1.0\ndelta = 1e-9\n')
    with caplog.at_level(logging.WARNING):
        run = read_config(str(file), {'output': str(tmp_path / 'out')})
    assert 'list of processes' in caplog.text and PASSWORD not in caplog.text
    assert run.input.input == place and os.environ[places.PASSWORD_VARIABLE] == PASSWORD
    assert folders.prepare(methods.solve(run, launch=True)) == [place]
    written = [path.read_bytes() for path in tmp_path.rglob('*') if path.is_file() and path != file]
    assert written and not any(PASSWORD.encode() in data for data in written)
    monkeypatch.setenv(places.PASSWORD_VARIABLE, 'wrong' + PASSWORD)
    with pytest.raises(ConnectionError, match='authentication failed') as caught:
        read.check_input(place, rules_of(query).fields)
    assert PASSWORD not in ''.join(traceback.format_exception(caught.value))


@pytest.mark.run
def test_a_part_is_streamed(postgresql: Callable[[], str]) -> None:
    query = "SELECT i AS id, repeat('x', 1000) AS text FROM generate_series(1, 50000) AS i"
    place, rules = postgresql(), rules_of(query)

    def memory() -> int:
        return int(pathlib.Path('/proc/self/statm').read_text().split()[1]) * os.sysconf('SC_PAGESIZE')

    (piece,) = read.split_file(place, rules.fields.table)
    before, rows = memory(), read.read_piece(piece, rules)
    assert isinstance(next(rows), Record)
    # All of them are 50 MB.
    assert memory() - before < 20e6
    assert sum(1 for _ in rows) == 49_999


@pytest.mark.run
def test_a_text_column_of_another_type_or_of_two_is_refused(postgresql: Callable[[], str]) -> None:
    place = postgresql()
    with pytest.raises(ValueError, match=r"missing=\['text'\]"):
        read.check_input(place, rules_of("SELECT 'a' AS text, 'b' AS text").fields)
    for column in ('1', 'now()', 'true', "'{}'::json"):
        with pytest.raises(ValueError, match='text::text AS text'):
            read.check_input(place, rules_of(f'SELECT {column} AS text').fields)
    with pytest.raises(ValueError, match='could not identify an ordering operator for type json'):
        read.check_input(place, rules_of("SELECT 'a' AS text, '{}'::json AS key", 'key').fields)
    change(place, "CREATE TYPE word AS ENUM ('a')")
    for column in ("'a'", "'a'::varchar(3)", "'a'::char", "'a'::word"):
        assert [one.text for part in pieces(place, rules_of(f'SELECT {column} AS text')) for one in part] == [
            'a'
        ]


# --- SQLite alone ------------------------------------------------------------------


def test_text_that_is_not_utf8_is_a_rejected_row(tmp_path: pathlib.Path) -> None:
    place = f'sqlite:///{tmp_path}/a [1], b.db'
    change(place, 'CREATE TABLE notes (id TEXT, note TEXT)',
           *(f"INSERT INTO notes VALUES ('{n:02}', 'Note {n}')" for n in range(40)),
           "UPDATE notes SET note = CAST(x'4a61ff' AS TEXT), id = CAST(x'3130ff' AS TEXT) WHERE id = '10'",
           "UPDATE notes SET id = x'00' WHERE id = '20'")  # fmt: skip
    found = [
        one for part in pieces(place, rules_of('SELECT id, note AS text FROM notes', 'id')) for one in part
    ]
    records = [one.text for one in found if isinstance(one, Record)]
    assert sorted(records) == sorted(f'Note {n}' for n in range(40) if n != 10)
    assert [one.reason for one in found if isinstance(one, Rejection)] == [read.Reason.NOT_TEXT]


def test_a_sqlite_file_that_is_missing_or_none_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match='Expected a SQLite file'):
        read.check_input(f'sqlite:///{tmp_path}/no.db', rules_of().fields)
    assert not (tmp_path / 'no.db').exists()
    (tmp_path / 'no.db').write_text('text\nsecret\n' * 100)
    with pytest.raises(ValueError, match='file is not a database'):
        read.check_input(f'sqlite:///{tmp_path}/no.db', rules_of().fields)


def test_a_relative_sqlite_file_is_made_absolute(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = config('sqlite:///notes, all.db', tmp_path)
    assert methods.solve(run, launch=True).input.input == f'sqlite:///{tmp_path}/notes, all.db'


# --- Settings ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ('place', 'query', 'message'),
    [
        ('mysql://h/d', 'SELECT 1', 'Expected postgresql://'),
        ('postgresql://h', 'SELECT 1', 'Expected postgresql://'),
        ('postgresql://h:port/d', 'SELECT 1', 'Expected postgresql://'),
    ],
)
def test_another_database_is_refused(place: str, query: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read.check_input(place, rules_of(query).fields)
    assert 'port' not in str(caught.value)


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'input': 'sqlite:///a.db'}, 'Expected a query exactly with a database'),
        ({'input': 'a.csv', 'query': 'SELECT 1'}, 'Expected a query exactly with a database'),
        ({'input': 'a.csv', 'partition_column': 'id'}, 'Expected partition_column with a query'),
        ({'input': 'a.csv', 'sheet': 'Notes'}, r'Expected sheet with Excel workbooks'),
        ({'input': 'a.csv', 'split': 'train'}, r'Expected split with a data set'),
        ({'input': f'a.csv,postgresql://u:{PASSWORD}@h/d'}, 'Expected the URL of a database alone'),
        ({'input': 'postgresql://h/d?sslpassword=geheim', 'query': 'SELECT 1'}, 'without a password'),
    ],
)
def test_a_place_and_a_table_that_do_not_go_together_are_refused(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        job_config(context_budget=1.0, delta=1e-9, **settings)
    assert PASSWORD not in str(caught.value) and 'geheim' not in str(caught.value)
