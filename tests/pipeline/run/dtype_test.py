"""The type of computation is decided where a run is launched, and is part of what the run is."""

import pathlib

import pytest

from models.decoders import device
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods.predict.graph import cluster_settings, generator_settings
from pipeline.run import identity
from pipeline.settings.job_config import JobConfig


def config(folder: pathlib.Path, **more: object) -> JobConfig:
    (folder / 'in.jsonl').write_text('{"text": "some text"}\n', encoding='utf-8')
    given = {'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'), 'records': 1000}
    return job_config(**{**given, 'aggregate': 'mean', 'max_private_tokens': 4, **more})


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_workers_are_told_a_type_and_never_choose(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: dtype)
    assert generator_settings(methods.solve(config(tmp_path), launch=True)).dtype == dtype
    other = {'float32': 'bfloat16', 'bfloat16': 'float32'}[dtype]
    assert generator_settings(methods.solve(config(tmp_path, dtype=other), launch=True)).dtype == other


def test_a_run_that_goes_on_elsewhere_goes_on_in_its_type(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another kind of machine it is another run, unless it is told the first one's type."""
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: 'bfloat16')
    begun = identity.fingerprint(methods.solve(config(tmp_path), launch=True))
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: 'float32')
    assert identity.fingerprint(methods.solve(config(tmp_path), launch=True))['config'] != begun['config']
    assert identity.fingerprint(methods.solve(config(tmp_path, dtype='bfloat16'), launch=True)) == begun


def test_centres_are_of_one_type_wherever_records_are_embedded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: 'bfloat16')
    files = {'embedder': 'decoder', 'centers': str(tmp_path)}
    clustered = methods.solve(config(tmp_path, clusters=3, **files), launch=True)
    assert clustered.method.dtype == cluster_settings(clustered).dtype == 'float32'
    assert methods.solve(config(tmp_path), launch=True).method.dtype == 'bfloat16'


@pytest.mark.parametrize(
    ('aggregate', 'platform', 'dtype'),
    [
        ('difference', 'cpu', 'float32'), ('difference', 'gpu', 'bfloat16'), ('mean', 'cpu', 'bfloat16'),
        ('median', 'cpu', 'bfloat16'),
    ],
)  # fmt: skip
def test_a_difference_is_taken_in_float32_on_a_processor(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, aggregate: str, platform: str, dtype: str
) -> None:
    monkeypatch.setattr(device, 'platform_here', lambda: platform)
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: 'bfloat16')
    budget = {'max_private_tokens': None, 'epsilon': 1.0} if aggregate == 'difference' else {}
    run = config(tmp_path, aggregate=aggregate, **budget)
    assert methods.solve(run, launch=True).method.dtype == dtype
    given = methods.solve(run.replace(dtype='bfloat16'), launch=True)
    assert given.method.dtype == 'bfloat16'


@pytest.mark.parametrize('fastest', ['float32', 'bfloat16'])
@pytest.mark.parametrize('method', ['fine-tune', 'evolve', 'refine'])
def test_other_methods_take_what_the_machine_is_fastest_in(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, method: str, fastest: str
) -> None:
    """As the help of --dtype says; a plan is of the same type."""
    monkeypatch.setattr(device, 'platform_here', lambda: 'cpu')
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: fastest)
    (tmp_path / 'in.jsonl').write_text('{"text": "some text"}\n', encoding='utf-8')
    given = {
        'method': method, 'input': str(tmp_path / 'in.jsonl'), 'output': str(tmp_path / 'out'),
        'records': 1000, 'epsilon': 1.0,
        **({'corpus': str(tmp_path / 'texts.jsonl')} if method == 'refine' else {}),
    }  # fmt: skip
    (tmp_path / 'texts.jsonl').write_text('{"text": "a public text"}\n', encoding='utf-8')
    run = job_config(**given)
    assert methods.solve(run, launch=True).method.dtype == fastest
    assert methods.solve(run).method.planned_dtype == fastest
    told = methods.solve(run.replace(dtype='float32'), launch=True)
    assert told.method.dtype == 'float32'
