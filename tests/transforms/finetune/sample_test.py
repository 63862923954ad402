"""What sampling reads back of a finished batch."""

import pathlib

import pytest

from transforms.finetune.sample import read_texts


@pytest.mark.parametrize('data', ['[{"text": "not released', '[{"text": "not released", "of": 1}]', '[3]'])
def test_a_damaged_batch_is_named_without_its_text(tmp_path: pathlib.Path, data: str) -> None:
    path = tmp_path / '0000-000001.json'
    path.write_text(data)
    with pytest.raises(ValueError, match='damaged file=batches/0000-000001.json') as raised:
        read_texts(str(path), '0000-000001')
    assert 'not released' not in str(raised.value) and raised.value.__context__ is None
