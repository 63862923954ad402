"""Invented visits to a clinic, as JSON of twelve fields, to try structured records: no real person.

`python -m launch.demo.clinic_records --output demo/visits.jsonl` writes JSON lines with the keys `id` and
`text`. The text is a visit as JSON, whose schema is [clinic_visit.json](clinic_visit.json). The fields depend
on each other: each ward has its own complaints, codes and ages.
"""

import datetime
import json
import pathlib
import random
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from launch.demo.records import SEED

SCHEMA_FILE = pathlib.Path(__file__).with_name('clinic_visit.json')
# Ward -> (complaints with their codes, range of the patients' ages).
_WARDS: Mapping[str, tuple[tuple[tuple[str, str], ...], tuple[int, int]]] = {
    'Cardiology': (
        (('chest pain on exertion', 'I20.9'), ('palpitations at rest', 'R00.2'), ('swollen ankles', 'R60.0')),
        (45, 92),
    ),
    'Surgery': (
        (
            ('pain in the lower right belly', 'K35.8'),
            ('a lump in the groin', 'K40.9'),
            ('gallstones', 'K80.2'),
        ),
        (18, 85),
    ),
    'Paediatrics': (
        (
            ('an earache since yesterday', 'H66.9'),
            ('a barking cough', 'J05.0'),
            ('fever and a rash', 'B09.9'),
        ),
        (0, 16),
    ),
    'Neurology': (
        (('headache with flashes', 'G43.1'), ('numb fingers', 'G56.0'), ('dizziness on standing', 'R42.0')),
        (20, 88),
    ),
}
_ALLERGIES = ('penicillin', 'latex', 'nuts', 'aspirin')


def clinic_records(records: int, seed: int = SEED) -> Iterator[dict[str, str]]:
    """Rows with `id` and `text`; the same for the same number and seed."""
    source = random.Random(seed)
    for number in range(records):
        yield {'id': f'V{number:06d}', 'text': json.dumps(_visit(source), ensure_ascii=False)}


def _visit(source: random.Random) -> dict[str, Any]:
    ward = source.choice(tuple(_WARDS))
    complaints, ages = _WARDS[ward]
    complaint, code = source.choice(complaints)
    age, urgent = source.randint(*ages), source.random() < 0.3
    day = datetime.date(2025, 1, 1) + datetime.timedelta(days=source.randrange(365))
    weight = source.uniform(45, 110) if age > 15 else 3.5 + 3.1 * age
    visit: dict[str, Any] = {
        'ward': ward,
        'date': day.isoformat(),
        'age': age,
        'sex': source.choice(('female', 'male')),
        'weight_kg': round(2 * weight) / 2,
        'emergency': urgent,
        'complaint': complaint,
        'diagnosis_codes': [code, *(['Z03.9'] if source.random() < 0.2 else [])],
        'vitals': {
            'pulse': source.randint(60, 100) + 25 * urgent,
            'systolic': source.randint(100, 150) + 15 * urgent,
        },
        'allergy': source.choice(_ALLERGIES) if source.random() < 0.25 else None,
        'outcome': 'admitted'
        if urgent and source.random() < 0.6
        else source.choice(('discharged', 'referred')),
    }
    if source.random() < 0.5:
        visit['follow_up'] = (day + datetime.timedelta(days=source.randrange(7, 60))).isoformat()
    return visit


def main(
    output: Annotated[
        pathlib.Path, typer.Option(help='JSON lines file to write; a file that is there is replaced.')
    ],
    records: Annotated[int, typer.Option(min=1, help='How many records.')] = 2_000,
) -> None:
    """Write invented visits to a clinic."""
    rows = [json.dumps(row, ensure_ascii=False) + '\n' for row in clinic_records(records)]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(''.join(rows), encoding='utf-8')
    print(f'Wrote {records:,} invented visits to {output}. Their schema is {SCHEMA_FILE.name}.')


if __name__ == '__main__':
    typer.run(main)
