"""A config's own TOML can be read back, whatever its strings hold."""

import dataclasses
import pathlib
import tempfile
import tomllib
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from pipeline.asked.config import job_config, read_config
from pipeline.settings.job_config import OF_EVERY_RUN, JobConfig

ENOUGH: dict[str, Any] = {'delta': 1e-6, 'max_private_tokens': 8, 'aggregate': 'mean'}
INDIVIDUAL: dict[str, Any] = {'aggregate': 'difference', 'max_private_tokens': None, 'epsilon': 3.0}
TUNED: dict[str, Any] = {'method': 'fine-tune', 'epsilon': 1.0, 'records': 1000}
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
    before = job_config(
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
    before = job_config(delta=1e-6, aggregate='mean', max_private_tokens=8, count_rho=number)
    assert round_trip(before) == before
    assert isinstance(tomllib.loads(before.to_toml())['count_rho'], float)


def write_toml(folder: pathlib.Path, text: str) -> str:
    path = folder / 'run.toml'
    path.write_text(text, encoding='utf-8')
    return str(path)


def test_toml_round_trip(tmp_path: pathlib.Path) -> None:
    before = job_config(
        **ENOUGH, input='a.jsonl,b*.csv.gz', output='out', label_field='label',
        labels=('a=A "quoted" word', 'ü\\b'),
        unit='user', unit_field='customer', records=1000, threshold=0.5, threshold_noise_scale=0.1,
        keep_rejected=True, clip_bound=9, run_id='run-1', work_dir='secret', public_top_k=1024,
    )  # fmt: skip
    after = read_config(write_toml(tmp_path, before.to_toml()), {})
    assert after == before
    assert after.to_toml() == before.to_toml()


@pytest.mark.parametrize('given', [ENOUGH, TUNED])
def test_toml_of_the_defaults_names_every_field(tmp_path: pathlib.Path, given: dict[str, Any]) -> None:
    run = job_config(**given)
    text = run.to_toml()
    assert read_config(write_toml(tmp_path, text), {}) == run
    unset = {line.split()[1] for line in text.splitlines() if line.endswith('is not set')}
    panels = (*OF_EVERY_RUN.values(), type(run.method))
    fields = {'method', *(field.name for of in panels for field in dataclasses.fields(of))}
    assert unset | set(tomllib.loads(text)) == fields
