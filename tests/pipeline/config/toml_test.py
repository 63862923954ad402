"""What a config writes about itself can be read back, whatever its strings hold."""

import pathlib
import tempfile
import tomllib

import hypothesis
import pytest
from hypothesis import strategies as st

from pipeline.config import JobConfig, read_config

# All that UTF-8 can hold; a lone surrogate is in no file and in no flag.
TEXTS = st.text(st.characters(codec='utf-8'), max_size=20)


def round_trip(config: JobConfig) -> JobConfig:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'run.toml'
        # As a run writes it into its work directory.
        path.write_bytes(config.to_toml().encode())
        return read_config(str(path), {})


@hypothesis.given(name=TEXTS, files=TEXTS, label=TEXTS.filter(lambda label: '=' not in label))
@hypothesis.example(name='\x7f', files='\x7f', label='\x7f')
@hypothesis.example(name='"\'\\', files='a\nb\r\nc\rd', label='\t#[x]')
def test_every_string_is_read_back(name: str, files: str, label: str) -> None:
    before = JobConfig(
        delta=1e-6,
        aggregate='mean',
        max_private_tokens=8,
        input=files,
        text_name=name,
        label_field='label',
        labels=(label, f'{label}2=other'),
    )
    assert round_trip(before) == before


@pytest.mark.parametrize('number', [1e-300, 5e-324, 0.1 + 0.2, 1e16, 3.0])
def test_every_number_is_read_back_exactly(number: float) -> None:
    before = JobConfig(delta=1e-6, aggregate='mean', max_private_tokens=8, count_rho=number)
    assert round_trip(before) == before
    assert isinstance(tomllib.loads(before.to_toml())['count_rho'], float)
