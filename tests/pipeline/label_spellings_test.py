"""A declared label is that of the records, however either of them is spelled; so is one that a mix names."""

import pathlib
import unicodedata
from typing import Any

import pytest

from models import spelling
from pipeline.asked.config import job_config
from pipeline.check.records import check_records
from transforms.read import Reason

CAFE, JOSE = 'Café', 'José'


@pytest.mark.parametrize('declared', ['NFC', 'NFD'])
@pytest.mark.parametrize('found', ['NFC', 'NFD'])
@pytest.mark.parametrize('shown', [False, True], ids=['label', 'attributes'])
def test_a_declared_label_is_the_records_however_both_are_composed(
    tmp_path: pathlib.Path, declared: str, found: str, shown: bool
) -> None:
    path = tmp_path / 'a.csv'
    kind = unicodedata.normalize(found, CAFE)
    people = [unicodedata.normalize(form, JOSE) for form in ('NFC', 'NFD')]
    path.write_text(
        'text,who,kind,size\n'
        + ''.join(f'Note {n}.,{people[n % 2]}{n // 2},{kind} ,1.0\n' for n in range(40))
    )  # fmt: skip
    label = unicodedata.normalize(declared, CAFE)
    columns: dict[str, Any] = (
        {'attributes': ('kind', 'size'), 'labels': (f'kind:{label}=Coffee', 'size:1')}
        if shown
        else {'label_field': 'kind', 'labels': (f'{label}=Coffee',)}
    )
    config = job_config(
        input=str(path),
        unit='user',
        unit_field='who',
        context_budget=1.0,
        delta=1e-9,
        batch_size=8,
        **columns,
    )
    checked = check_records(config)
    assert (checked.records, checked.units, checked.alike_units, checked.rejected) == (40, 20, 0, {})
    assert config.input.label_values == ((f'{CAFE}|1',) if shown else (CAFE,))


def test_one_label_that_is_declared_in_two_spellings_is_refused() -> None:
    for labels in (('Café', unicodedata.normalize('NFD', 'Café')), ('1', '1.0'), ('a', 'a\u200b')):
        with pytest.raises(ValueError, match='Declare each label once'):
            job_config(label_field='kind', labels=labels, context_budget=1.0, delta=1e-9)


def test_without_the_rule_the_records_have_another_label(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open twin, which compares labels as they are written, is told by the records that it leaves out."""
    path = tmp_path / 'a.csv'
    path.write_text('text,kind\nNote.,' + unicodedata.normalize('NFD', CAFE) + '\n')
    config = job_config(
        input=str(path), label_field='kind', labels=(CAFE,), context_budget=1.0, delta=1e-9, batch_size=8
    )
    assert check_records(config).records == 1
    monkeypatch.setattr(spelling, 'spelled', str)
    assert check_records(config).rejected == {Reason.UNDECLARED_LABEL.value: 1}


def test_a_mix_names_labels_in_any_spelling() -> None:
    config = job_config(
        method='fine-tune', label_field='kind', labels=(CAFE, '1'), epsilon=1.0, records=100, examples=4,
        expected_batch_size=10, label_mix=(unicodedata.normalize('NFD', CAFE) + '=3', '1.0=1'),
    )  # fmt: skip
    assert config.method.texts_of_labels(config.input) == (3, 1)
