"""The demo data: invented, varied, the same on every machine, and readable by the job."""

import collections
import json
import pathlib
import re
import subprocess
import sys

import pytest

from launch.demo import records as demo_records
from transforms.read import RecordFields, RecordRules, read_piece, split_file

ROWS = list(demo_records.demo_records(2_000))


def test_same_records_every_time() -> None:
    assert list(demo_records.demo_records(2_000)) == ROWS
    assert list(demo_records.demo_records(2_000, seed=1)) != ROWS


def test_rows_have_the_keys_of_the_command() -> None:
    assert {tuple(row) for row in ROWS} == {('id', 'customer', 'text', 'label')}
    assert len({row['id'] for row in ROWS}) == len(ROWS)
    assert collections.Counter(row['label'] for row in ROWS).keys() == set(demo_records.LABELS)


def test_no_address_could_be_a_real_one() -> None:
    addresses = {found for row in ROWS for found in re.findall(r'\S+@(\S+?)[.,?]?(?:\s|$)', row['text'])}
    assert addresses == {'example.org'}


@pytest.mark.run
def test_command_writes_a_file_that_the_job_reads(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'demo' / 'records.jsonl'
    command = [sys.executable, '-m', 'launch.demo.records', '--output', str(path), '--records', '50']
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert '50' in done.stdout and done.stderr == ''
    assert [json.loads(line) for line in path.read_text().splitlines()] == list(demo_records.demo_records(50))
    fields = RecordFields(text='text', label='label', unit='customer', record_id='id')
    rules = RecordRules(fields=fields, labels=demo_records.LABELS, unit='user')
    found = [row for piece in split_file(str(path)) for row in read_piece(piece, rules)]
    assert len(found) == 50
    assert {type(row).__name__ for row in found} == {'Record'}
