"""Files of other programs whose columns have types: what `check` finds, and what commands refuse."""

import pathlib
from typing import Any

import pytest

from pipeline.asked.config import job_config
from pipeline.check.input_check import InputCheck
from pipeline.check.records import check_records
from tests.command_line import in_this_process
from tests.samples import needs_model
from transforms.read import Reason

CASES = pathlib.Path(__file__).parents[3] / 'shared' / 'cases'
TYPES, IDS = CASES / '06-arrow-types', CASES / '29-ids'
pytestmark = pytest.mark.skipif(not CASES.exists(), reason='the cases are not in ../shared/cases')


def checked(path: str, **changes: Any) -> InputCheck:
    values = {'context_budget': 1.0, 'delta': 1e-9, 'batch_size': 8, 'records': 40}
    return check_records(job_config(**values | {'input': path} | changes))


def by_label(name: str, *labels: str, **changes: Any) -> dict[str | None, int]:
    found = checked(str(TYPES / name), label_field='label', labels=labels, **changes)
    return {each.label: each.records for each in found.labels}


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('f32', {'0.1': 20, '0.7': 20}), ('ts', {'2024-05-06': 20, '2024-05-07': 20}),
        ('bool', {'true': 20, 'false': 20}), ('dict', {'a': 20, 'b': 20}), ('large', {'a': 20, 'b': 20}),
        ('view', {'a': 20, 'b': 20}),
    ],
)  # fmt: skip
def test_labels_of_columns_with_types_are_found(name: str, expected: dict[str, int]) -> None:
    assert by_label(f'{name}.parquet', *expected) == expected


@pytest.mark.parametrize('labels', [('1.50', '2.00'), ('1.50', '2')])
def test_a_decimal_is_the_label_that_is_declared_with_its_digits(labels: tuple[str, ...]) -> None:
    assert by_label('dec.parquet', *labels) == {'1.50': 20, '2': 20}


@pytest.mark.parametrize('midnight', ['{} 00:00:00', '{}T00:00:00', '{}T00:00:00.000'])
def test_midnight_may_be_declared_with_its_time(midnight: str) -> None:
    labels = [midnight.format(day) for day in ('2024-05-06', '2024-05-07')]
    assert by_label('ts.parquet', *labels) == {'2024-05-06': 20, '2024-05-07': 20}


def test_a_column_whose_name_has_a_dot_is_not_that_of_a_struct() -> None:
    assert by_label('dot.parquet', 'a', 'b', text_field='note.text') == {'a': 20, 'b': 20}


def test_a_whole_number_is_a_label_beside_rows_without_one() -> None:
    found = checked(str(TYPES / 'intnull.parquet'), label_field='label', labels=('1', '2', '3'))
    assert [each.records for each in found.labels] == [10, 10, 10]
    assert found.rejected == {Reason.MISSING_FIELD.value: 10}


def test_a_file_without_any_text_rejects_its_rows() -> None:
    found = checked(str(TYPES / 'nulls.parquet'), label_field='label', labels=('a', 'b'))
    assert (found.records, found.rejected) == (0, {Reason.MISSING_FIELD.value: 40})


SPENT = ('--epsilon', '8', '--records', '640')
COMMANDS = {
    'check': (),
    'generate': (*SPENT, '--output', 'out'),
    'fine-tune': (*SPENT, '--output', 'out'),
    'refine': (*SPENT, '--output', 'out'),
    'split': ('--output', 'out'),
}


@pytest.mark.first
@pytest.mark.heavy
@needs_model
@pytest.mark.parametrize('command', COMMANDS)
@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('dup', "column='text' 2 times. Give each column a name of its own."),
        ('list', "column='label', type='list<element: string>'. Convert the column."),
    ],
)
def test_a_column_that_cannot_be_read_is_the_users_to_correct(
    command: str, name: str, message: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'texts.jsonl').write_text('{"text": "A text.", "label": "a"}\n' * 8)
    corpus = ('texts.jsonl',) if command == 'refine' else ()
    path = TYPES / f'{name}.parquet'
    of_label = (
        ('--unit-field', 'label') if command == 'split' else ('--label-field', 'label', '--labels', 'a,b')
    )
    done = in_this_process(command, *corpus, '--input', str(path), *of_label, *COMMANDS[command])
    said = ' '.join(done.stderr.split())
    assert done.returncode == 2 and f"path='{path}', {message}" in said, said


# --- Ids ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    'names', ['a.csv,b.csv', 'a.parquet,b.parquet', 'a.jsonl,b.jsonl', 'a.xlsx,b.xlsx', 'space.csv']
)
def test_ids_that_differ_in_type_or_blanks_are_of_one_unit(names: str) -> None:
    found = checked(
        ','.join(str(IDS / name) for name in names.split(',')), unit='user', unit_field='who', records=20
    )
    assert (found.records, found.units, found.alike_units) == (40, 20, 0)


def test_ids_that_differ_in_case_are_said() -> None:
    found = checked(str(IDS / 'case.csv'), unit='user', unit_field='who', records=20)
    assert (found.units, found.alike_units) == (40, 40)
    assert any('40 unit ids differ from another one in case' in finding for finding in found.findings)


def test_labels_and_ids_of_two_forms_of_unicode_are_one() -> None:
    of_label = {'label_field': 'label', 'labels': ('Café',)}
    found = checked(str(IDS / 'nfd.csv'), unit='user', unit_field='who', records=20, **of_label)
    assert (found.records, found.units, found.rejected) == (40, 20, {})
