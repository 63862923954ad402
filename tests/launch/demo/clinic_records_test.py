"""The invented visits: every one is valid by the schema beside them, and the same for the same seed."""

import json
import pathlib

import jsonschema
import typer
from typer.testing import CliRunner

from launch.demo import clinic_records
from models.grammars.structure import Structure
from tests.samples import ROOT

SCHEMA = json.loads(clinic_records.SCHEMA_FILE.read_text(encoding='utf-8'))
ROWS = list(clinic_records.clinic_records(300))


def test_every_visit_is_valid_and_can_be_written_by_a_run() -> None:
    structure = Structure(json_schema=clinic_records.SCHEMA_FILE.read_text(encoding='utf-8'))
    for row in ROWS:
        jsonschema.validate(json.loads(row['text']), SCHEMA)
        assert structure.holds(row['text'])
    values = [json.loads(row['text']) for row in ROWS]
    assert len(SCHEMA['properties']) == 12 and {value['ward'] for value in values} == {
        'Cardiology', 'Surgery', 'Paediatrics', 'Neurology',
    }  # fmt: skip
    assert {'follow_up' in value for value in values} == {True, False}


def test_visits_are_a_function_of_number_and_seed(tmp_path: pathlib.Path) -> None:
    assert list(clinic_records.clinic_records(300)) == ROWS
    assert [row['text'] for row in clinic_records.clinic_records(300, seed=1)] != [
        row['text'] for row in ROWS
    ]
    assert len({row['id'] for row in ROWS}) == 300
    app = typer.Typer()
    app.command()(clinic_records.main)
    path = tmp_path / 'new' / 'visits.jsonl'
    found = CliRunner().invoke(app, ['--output', str(path), '--records', '3'])
    assert found.exit_code == 0 and 'clinic_visit.json' in found.stdout
    assert [json.loads(line) for line in path.read_text(encoding='utf-8').splitlines()] == ROWS[:3]
    assert (ROOT / 'launch' / 'demo' / 'clinic_visit.json') == clinic_records.SCHEMA_FILE
