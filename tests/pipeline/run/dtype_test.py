"""The type of computation is decided where a run is launched, and is part of what the run is."""

import pathlib

import pytest

from models.decoders import device
from pipeline import methods
from pipeline.config import job_config
from pipeline.methods.predict.worker_settings import cluster_settings, generator_settings
from pipeline.run import identity
from pipeline.run.launched import with_dtype
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
    assert generator_settings(config(tmp_path)).dtype == dtype
    other = {'float32': 'bfloat16', 'bfloat16': 'float32'}[dtype]
    assert generator_settings(config(tmp_path, dtype=other)).dtype == other


def test_a_run_that_goes_on_elsewhere_goes_on_in_its_type(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another kind of machine it is another run, unless it is told the first one's type."""
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: 'bfloat16')
    begun = identity.fingerprint(config(tmp_path))
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: 'float32')
    assert identity.fingerprint(config(tmp_path))['config'] != begun['config']
    assert identity.fingerprint(config(tmp_path, dtype='bfloat16')) == begun


def test_centres_are_of_one_type_wherever_records_are_embedded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: 'bfloat16')
    files = {'embedder': 'decoder', 'centers': str(tmp_path)}
    clustered = with_dtype(config(tmp_path, clusters=3, **files))
    assert clustered.method.dtype == 'float32'
    assert cluster_settings(clustered).dtype == 'float32'
    assert with_dtype(config(tmp_path)).method.dtype == 'bfloat16'


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
    assert with_dtype(run).method.dtype == dtype
    assert with_dtype(run.replace(dtype='bfloat16')).method.dtype == 'bfloat16'


@pytest.mark.parametrize('fastest', ['float32', 'bfloat16'])
@pytest.mark.parametrize('method', ['fine-tune', 'evolve', 'refine'])
def test_other_methods_take_what_the_machine_is_fastest_in(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, method: str, fastest: str
) -> None:
    """As the help of --dtype says; an estimate is of the same type."""
    monkeypatch.setattr(device, 'platform_here', lambda: 'cpu')
    monkeypatch.setattr(device, 'fastest_dtype', lambda *_: fastest)
    (tmp_path / 'in.jsonl').write_text('{"text": "some text"}\n', encoding='utf-8')
    given = {
        'method': method, 'input': str(tmp_path / 'in.jsonl'), 'output': str(tmp_path / 'out'),
        'records': 1000, 'epsilon': 1.0, **({'corpus': 'texts.jsonl'} if method == 'refine' else {}),
    }  # fmt: skip
    run = job_config(**given)
    assert with_dtype(run).method.dtype == fastest
    assert methods.of(run).estimate(run).dtype == fastest
    assert with_dtype(run.replace(dtype='float32')).method.dtype == 'float32'
