"""Texts beside the records are not the records, whatever their names are."""

import pathlib

import pytest

from pipeline.asked.config import job_config
from pipeline.methods import beside_input
from transforms.read import list_input


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    for name in ('in.jsonl', 'other.jsonl'):
        (tmp_path / name).write_text('{"text": "x"}\n')
    (tmp_path / 'link.jsonl').symlink_to('in.jsonl')
    (tmp_path / 'hard.jsonl').hardlink_to(tmp_path / 'in.jsonl')
    for name in ('g/pos/1.txt', 'g/a.csv', 'h/pos/2.txt'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('text\nx\n')
    (tmp_path / 'h' / 'pos' / '1.txt').hardlink_to(tmp_path / 'g' / 'pos' / '1.txt')
    (tmp_path / 'linked').symlink_to('g')
    return tmp_path


@pytest.mark.parametrize(
    'texts', ['in.jsonl', 'link.jsonl', 'hard.jsonl', 'g/../in.jsonl', 'g', 'g/pos', 'g/a.csv', 'linked', 'h']
)
def test_the_records_are_refused_by_any_name(folder: pathlib.Path, texts: str) -> None:
    config = job_config(input=f'{folder}/in.jsonl,{folder}/g', context_budget=1.0, delta=1e-9)
    with pytest.raises(ValueError, match='which --input names too'):
        beside_input.refuse_input(config.input, list_input(str(folder / texts)), 'reference')


def test_other_texts_are_let_in(folder: pathlib.Path) -> None:
    config = job_config(input=f'{folder}/in.jsonl', context_budget=1.0, delta=1e-9)
    beside_input.refuse_input(config.input, list_input(f'{folder}/other.jsonl,{folder}/g'), 'reference')
