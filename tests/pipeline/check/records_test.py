"""Tests that `dp-corpus check` counts what a run would read, and that its words are in its figures."""

import csv
import json
import pathlib
from typing import Any

import openpyxl
import pytest

from models.records import Record
from pipeline.asked.config import job_config
from pipeline.check import records
from pipeline.check.input_check import InputCheck
from pipeline.methods import workers
from pipeline.run.record_rules import record_rules
from pipeline.settings.job_config import JobConfig
from tests import command_line
from transforms.read import read_piece, split_file

ROWS = [
    *(('a', f'u{n % 10}', f'Text number {n} of the first kind.') for n in range(40)),
    *(('b', f'u{n % 10}', 'Always the same.') for n in range(20)),
    *(('c', 'u1', f'Of a label that nobody declares, {n}.') for n in range(5)),
    ('a', 'u1', ''),
    ('a', '', 'Without a unit.'),
    ('a', 'u2', 'word ' * 400),
]


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / 'rows.csv'
    with open(file, 'w', newline='') as out:
        csv.writer(out).writerows([('kind', 'who', 'text'), *ROWS])
    return file


def config_of(path: pathlib.Path, **changes: Any) -> JobConfig:
    values: dict[str, Any] = {
        'input': str(path), 'text_field': 'text', 'label_field': 'kind', 'labels': ('a', 'b'),
        'context_budget': 1.0, 'delta': 1e-9, 'batch_size': 8, 'max_prompt_tokens': 64,
    }  # fmt: skip
    return job_config(**values | changes)


def checked(path: pathlib.Path, **changes: Any) -> InputCheck:
    return records.check_records(config_of(path, **changes))


@pytest.mark.parametrize('changes', [{}, {'unit': 'user', 'unit_field': 'who'}])
def test_it_counts_what_a_run_would_read(path: pathlib.Path, changes: dict[str, Any]) -> None:
    found = checked(path, **changes)
    given = config_of(path, **changes)
    rules = record_rules(given.input, given.budget.unit)
    rows = [row for piece in split_file(str(path)) for row in read_piece(piece, rules)]
    records = [row for row in rows if isinstance(row, Record)]
    reasons = [row.reason.value for row in rows if not isinstance(row, Record)]
    assert found.records == len(records)
    assert found.rejected == {reason: reasons.count(reason) for reason in set(reasons)}
    by_label = {each.label: each.records for each in found.labels}
    assert by_label == {label: sum(row.label == label for row in records) for label in 'ab'} | {'c': 5}
    assert [each.declared for each in found.labels] == [True, True, False] and found.undeclared == 1
    assert found.duplicates == len(records) - len({row.text for row in records}) == 19


def test_units_are_counted_once_and_under_one_label(path: pathlib.Path) -> None:
    found = checked(path, unit='user', unit_field='who')
    assert (found.units, found.largest_unit) == (10, 7)
    assert sum(each.contexts or 0 for each in found.labels) == 10
    alone = checked(path)
    assert (alone.units, alone.largest_unit) == (alone.records, 1)


def test_a_declared_number_of_users_is_held_against_users(path: pathlib.Path) -> None:
    of_users = {'unit': 'user', 'unit_field': 'who', 'batches_per_label': 1}
    assert not any('--records says' in one for one in checked(path, **of_users, records=11).findings)
    (said,) = (one for one in checked(path, **of_users, records=61).findings if '--records says' in one)
    assert said.startswith('--records says 61 users, and a run would take 10.')


def test_a_column_of_numbers_is_no_text(tmp_path: pathlib.Path) -> None:
    file = tmp_path / 'rows.csv'
    file.write_text('ref,text\n' + ''.join(f'{n},A text.\n' for n in range(10)))
    no_label: dict[str, Any] = {'label_field': None, 'labels': ()}
    said = (
        "10 of 10 texts have no letter, as numbers have none. Is --text-field 'ref' the column of the text?"
    )
    assert said in checked(file, text_field='ref', **no_label).findings
    assert not any('no letter' in one for one in checked(file, **no_label).findings)


def test_of_many_undeclared_labels_five_are_listed_and_the_others_counted(tmp_path: pathlib.Path) -> None:
    file = tmp_path / 'rows.csv'
    file.write_text('kind,text\na,One.\n' + ''.join(f'k{n},Text {n}.\n' for n in range(9)))
    arguments = ('check', '--input', str(file), '--text-field', 'text', '--label-field', 'kind')
    done = command_line.in_this_process(*arguments, '--labels', 'a')
    assert done.stdout.count('(not declared)') == 5
    assert '4 labels more that are not declared.' in done.stdout


def test_of_votes_on_texts_it_says_how_long_a_text_may_be(path: pathlib.Path) -> None:
    config = job_config(
        method='evolve', input=str(path), text_field='text', label_field='kind', labels=('a', 'b'),
        records=60, epsilon=1.0, max_example_tokens=16,
    )  # fmt: skip
    lengths = records.check_records(config).lengths
    assert lengths is not None and lengths.room == 16 < lengths.longest
    assert lengths.share_cut == 1 / lengths.texts


def test_batches_and_slots_are_those_of_the_true_count(path: pathlib.Path) -> None:
    found = {each.label: (each.contexts, each.batches) for each in checked(path).labels}
    assert found == {'a': (42, 5), 'b': (20, 2), 'c': (None, None)}
    assert [each.batches for each in checked(path, batches_per_label=3).labels] == [3, 3, None]
    # 42 records fall into 8 slots of each of 3 batches; the chance that a slot is empty is (23/24)^42.
    slots = checked(path, examples_per_context=2).labels[0]
    assert (slots.contexts, slots.batches) == (round(24 * (1 - (23 / 24) ** 42)), 3)


def test_lengths_are_those_of_prompts(path: pathlib.Path) -> None:
    found = checked(path).lengths
    assert found is not None
    given = config_of(path)
    writer = workers.prompt_writer(given.method, given.input)
    assert (found.texts, found.longest) == (62, writer.lengths(['word ' * 400])[0])
    assert found.room == writer.room('a', 1) < 64 and found.share_cut == pytest.approx(1 / 62)
    assert writer.room('a', 2) < writer.room('a', 1) / 2 + 1
    assert found.median <= found.upper_decile < found.room < found.longest


TUNING: dict[str, Any] = {
    'method': 'fine-tune', 'context_budget': None, 'epsilon': 1.0, 'records': 62, 'expected_batch_size': 31,
    'batch_size': None, 'max_prompt_tokens': 96, 'max_example_tokens': 100,
}  # fmt: skip


@pytest.mark.parametrize('changes', [{}, {'unit': 'user', 'unit_field': 'who', 'records': 10,
                                         'expected_batch_size': 5}])  # fmt: skip
def test_of_fine_tuning_it_says_what_is_trained_on(path: pathlib.Path, changes: dict[str, Any]) -> None:
    config = config_of(path, **TUNING | changes)
    found = records.check_records(config)
    assert found.batch_size == config.method.expected_batch_size and found.units == config.input.records
    assert sum(each.contexts or 0 for each in found.labels) == found.units
    assert {each.batches for each in found.labels} == {None}
    assert found.lengths is not None
    writer = workers.prompt_writer(config.method, config.input)
    # Tokens of the text and of its end, as training reads both: nothing is cut where all of them have an end.
    [longest] = writer.continuations(['word ' * 400], found.lengths.longest)
    assert (found.lengths.room, found.lengths.longest) == (100, len(longest))
    assert len(writer.continuations(['word ' * 400], None)[0]) == found.lengths.longest
    assert not any('A batch' in finding or '--records says' in finding for finding in found.findings)


def test_of_fine_tuning_it_says_what_to_change(path: pathlib.Path) -> None:
    found = checked(path, **TUNING | {'records': 620, 'max_example_tokens': 8})
    assert any(
        '--records says 620, and a run would take 62. What `plan` says of a step, which would hold 3.1 units,'
        in finding
        for finding in found.findings
    )
    assert any('are cut at 8 tokens. Raise --max-example-tokens' in finding for finding in found.findings)


@pytest.mark.parametrize(
    ('changes', 'said'),
    [
        ({'labels': ('Cardio', 'Neuro')}, 'A run would take none of these rows'),
        ({'labels': ('Cardio', 'Neuro')}, "labels that --labels does not declare: 'a', 'b', 'c'"),
        ({'labels': ('a', 'd')}, "No row has the declared label 'd'"),
        ({'batches_per_label': 1}, "A batch of 'a' would hold 42 contexts, where --batch-size says 8"),
        ({'batches_per_label': 9}, "A batch of 'b' would hold 2.2 contexts"),
        ({'records': 1_000}, '--records says 1,000, and a run would take 62'),
        ({'max_prompt_tokens': 22}, 'of the texts are cut at'),
        ({}, '19 records repeat a text of another'),
        ({'delta': 0.5}, 'delta=0.5 is no less than one over the number of units'),
    ],
)
def test_it_says_what_to_change(path: pathlib.Path, changes: dict[str, Any], said: str) -> None:
    assert any(said in finding for finding in checked(path, **changes).findings)


def test_an_input_that_fits_needs_no_change(tmp_path: pathlib.Path) -> None:
    file = tmp_path / 'rows.jsonl'
    file.write_text(''.join(json.dumps({'text': f'A short text, number {n}.'}) + '\n' for n in range(64)))
    found = checked(file, label_field=None, labels=())
    assert (found.findings, found.rejected, found.labels[0].label) == ((), {}, None)


def test_an_empty_file_and_a_sample_of_many(
    tmp_path: pathlib.Path, path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / 'empty.csv'
    empty.write_text('kind,who,text\n')
    found = checked(empty)
    assert (found.records, found.units, found.lengths) == (0, 0, None)
    assert found.findings == ('There is no row in these files. Check --input.',)
    done = command_line.in_this_process('check', '--input', str(empty), '--text-field', 'text')
    assert done.returncode == 2 and 'There is no row in these files.' in done.stdout
    monkeypatch.setattr(records, 'SAMPLED_TEXTS', 10)
    lengths = checked(path).lengths
    assert lengths is not None and lengths.texts == 10


def test_no_repr_shows_a_true_figure(path: pathlib.Path) -> None:
    assert not {'62', '42', '19', '5'} & set(repr(checked(path)).replace('=', ' ').replace(',', ' ').split())


def test_the_command_says_first_whom_it_is_for_and_ends_well_whatever_it_finds(path: pathlib.Path) -> None:
    arguments = ('check', '--input', str(path), '--text-field', 'text', '--label-field', 'kind')
    for labels in ('a=Alpha visits,b', 'Cardio,Neuro'):
        done = command_line.in_this_process(*arguments, '--labels', labels)
        # No row has one of the latter.
        assert done.returncode == 2 * (labels == 'Cardio,Neuro'), done.stderr
        assert done.stdout.startswith('For the curator alone: true figures of private records.')
        assert ('a Alpha visits ' in done.stdout) == labels.startswith('a=')
    assert 'A run would take none of these rows' in done.stdout
    shown = command_line.in_this_process(*arguments, '--labels', 'a,b', '--json')
    document = json.loads(shown.stdout)
    assert document['audience'].startswith('Restricted to the curator')
    assert document['records'] == 62
    tuning = ('--method', 'fine-tune', '--records', '62', '--expected-batch-size', '31')
    of_tuning = command_line.in_this_process(*arguments, '--labels', 'a,b', *tuning)
    assert of_tuning.returncode == 0, of_tuning.stderr
    assert 'are read of it' in of_tuning.stdout and 'contexts' not in of_tuning.stdout
    refused = command_line.in_this_process('check', '--text-field', 'text')
    assert refused.returncode == 2 and 'Give --input FILES' in refused.stderr


def test_long_labels_are_cut_and_said_to_be(path: pathlib.Path) -> None:
    """As of a column of texts that was named for that of labels."""
    arguments = ('check', '--input', str(path), '--text-field', 'text', '--label-field', 'text')
    done = command_line.in_this_process(*arguments, '--labels', 'a,b')
    assert done.returncode == 2  # no text is a declared label
    whole = "does not declare: 'Always the same.', 'Text number 0 of the first kind.'"
    long = ('word ' * 400).strip()
    assert whole in done.stdout and long not in ' '.join(done.stdout.split())
    shown = json.loads(command_line.in_this_process(*arguments, '--labels', 'a,b', '--json').stdout)
    names = [each['label'] for each in shown['labels']]
    assert all(len(name) < 80 for name in names)
    declared = 'A label that is declared is public, however long it is.'
    assert checked(path, labels=('a', declared)).labels[1].label == declared
    one = path.with_name('one.csv')
    one.write_text('kind,text\n' + f'{long},some text\n')
    done = command_line.in_this_process(
        'check', '--input', str(one), '--text-field', 'text', '--label-field', 'kind', '--labels', 'a,b'
    )
    cut = f'{long[:40]}… (cut, of {len(long):,} characters)'
    assert done.returncode == 2
    assert cut in ' '.join(done.stdout.split()) and long not in done.stdout


def test_labels_that_are_alike_are_said(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'rows.csv'
    path.write_text('kind,text\na1,One.\n2.0,Two.\nx,Three.\n')
    found = checked(path, labels=('A-01', '2'))
    assert [finding for finding in found.findings if "'a1'" in finding and "declares 'A-01'" in finding]
    assert not [finding for finding in found.findings if "label 'x'" in finding or "label '2'" in finding]


@pytest.mark.parametrize(
    ('ids', 'alike'),
    [(('P000', 'p000', 'P001'), 2), (('7', '007', '7-'), 3), (('7', '7.0', ' 7'), 0), (('7', '8', '9'), 0)],
)
def test_unit_ids_that_are_alike_are_counted_and_said(
    tmp_path: pathlib.Path, ids: tuple[str, ...], alike: int
) -> None:
    path = tmp_path / 'rows.csv'
    path.write_text('who,text\n' + ''.join(f'{who},Text {n}.\n' for n, who in enumerate(2 * ids)))
    found = checked(path, label_field=None, labels=(), unit='user', unit_field='who')
    assert found.alike_units == alike and found.units == (len(ids) if alike or '8' in ids else 1)
    said = [finding for finding in found.findings if finding.startswith(f'{alike} unit ids differ')]
    assert len(said) == bool(alike) and not any(each in ' '.join(said) for each in ids if len(each) > 1)


def test_formulas_without_a_value_are_said(tmp_path: pathlib.Path) -> None:
    workbook = openpyxl.Workbook()
    for row in [('kind', 'text'), *(('a', f'Text {n}.') for n in range(40)), ('a', '=B2')]:
        workbook.worksheets[0].append(row)
    workbook.save(tmp_path / 'rows.xlsx')
    found = checked(tmp_path / 'rows.xlsx')
    assert found.rejected == {'a formula without a value': 1}
    assert any(finding.startswith('1 rows hold a formula without a value') for finding in found.findings)


@pytest.mark.parametrize(
    ('found', 'said'),
    [
        ('WARD 1', 'in case alone'),
        ('Ward\u200b 1', "in '\\u200b' (ZERO WIDTH SPACE) against nothing alone"),
        ('Ward\u00a01', "in '\\xa0' (NO-BREAK SPACE) against ' ' (SPACE) alone"),
        ('Ward \uff11', "in '\\uff11' (FULLWIDTH DIGIT ONE) against '1' (DIGIT ONE) alone"),
    ],
)
def test_a_label_that_looks_like_a_declared_one_is_told_apart(
    tmp_path: pathlib.Path, found: str, said: str
) -> None:
    path = tmp_path / 'rows.csv'
    path.write_text(f'kind,text\n{found},One.\n')
    findings = checked(path, labels=('Ward 1',)).findings
    assert [one for one in findings if f"declares 'Ward 1': they differ {said}, and are two" in one], findings


# --- Files of text -------------------------------------------------------------------


def of_file(path: pathlib.Path, data: bytes, **changes: Any) -> InputCheck:
    path.write_bytes(data)
    return checked(path, **{'label_field': None, 'labels': (), 'text_field': 'text'} | changes)


@pytest.mark.parametrize(
    ('data', 'changes', 'said'),
    [
        (b'id,text\n1,"a\n2,b\n', {}, 'give --quoting none.'),
        (b'id,text\n1,"a\n2,b\n3,c"\n', {}, 'part of one value: 2. Of these look like rows: 2.'),
        (b'id,text\n1,"a \\"b\\" c"\n', {}, 'give --quoting backslash.'),
        (b'id,text\n1,"a\\"\n2,"b"\n', {'quoting': 'backslash'}, 'give --quoting double.'),
        # Two fields by RFC 4180, without an error.
        (b'id,text\n1,"a \\",\\" b"\n', {}, 'Rows rejected because of a quote: 1. Quotes after a backslash'),
        (b'id,text\n1,"a"b, c\n', {}, 'give --quoting backslash or --quoting none, else mend the rows.'),
        (b'0\t"a\n1\tb\n', {'text_field': '1', 'delimiter': 'tab'}, 'give --quoting none.'),
        ('id,text\n1,caf\xe9\n'.encode('latin-1'), {}, 'give --encoding windows-1252'),
        ('1,a\n'.encode('utf-16-le'), {'text_field': '1'}, 'give --encoding utf-16'),
    ],
)
def test_it_says_how_a_file_may_be_written(
    tmp_path: pathlib.Path, data: bytes, changes: dict[str, Any], said: str
) -> None:
    findings = of_file(tmp_path / 'rows.csv', data, **changes).findings
    assert any(said.lower() in finding.lower() for finding in findings), findings


@pytest.mark.parametrize(
    ('data', 'lines'),
    [
        # Texts of several lines, as notes have them; one line of them happens to have a comma.
        (b'id,text\n1,"Dear patient,\nplease come.\nYours"\n2,"One\ntwo"\n', 3),
        (b'text\n"a\nb"\n', 1),
        (b'id,text\n1,a\n', 0),
    ],
)
def test_quoted_texts_of_several_lines_are_counted_and_not_warned_of(
    tmp_path: pathlib.Path, data: bytes, lines: int
) -> None:
    found = of_file(tmp_path / 'rows.csv', data)
    assert found.continued_lines == lines
    assert not any('quot' in finding for finding in found.findings)


def test_rejected_rows_are_shown_on_the_screen_and_in_no_document(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'rows.csv'
    path.write_bytes(b'id,text\n1,Zyx\x1b[2Jcaf\xe9\n2,b\n3,"Quort"le\n4,\n')
    line = ('check', '--input', str(path))
    done = command_line.in_this_process(*line, '--show-rejected', '2')
    assert done.returncode == 0, done.stderr
    assert 'Rejected: rows.csv, row 0: not text of its encoding' in done.stdout
    assert (
        '1,Zyx\\x1b[2Jcaf\\xe9' in done.stdout and '"Quort"le' in done.stdout and '\x1b[2J' not in done.stdout
    )
    assert 'blank' not in done.stdout.partition('Rejected: ')[2] and 'Zyx' not in done.stderr
    for none in (line, (*line, '--json')):
        done = command_line.in_this_process(*none)
        assert done.returncode == 0 and 'Zyx' not in done.stdout + done.stderr
    done = command_line.in_this_process(*line, '--json', '--show-rejected', '2')
    assert done.returncode == 2 and 'Expected a screen for rejected rows' in done.stderr
