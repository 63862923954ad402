"""The list of models: every one that --model takes, with what a plan says of its memory and its prompt."""

import json
import pathlib

import pytest

from launch.dataflow.profiles import PROFILES
from models import cache, fetched
from models.decoders import family
from pipeline.commands import models
from pipeline.prepare import model_list
from tests.command_line import in_this_process
from tests.samples import on_terminal


def test_it_lists_every_model() -> None:
    done = in_this_process('models', '--json')
    found = json.loads(done.stdout)
    assert [one['model'] for one in found['models']] == list(family.model_names())
    by_name = {one['model']: one for one in found['models']}
    assert by_name['bundled']['here'] and by_name['bundled']['prompt'] == 'pretrained'
    assert by_name['gemma3-1b']['checkpoint'] is None and not by_name['gemma3-1b']['here']
    assert by_name['gemma3-1b']['instruction_prompt'] == 'instruction'


def test_it_names_the_machines_that_hold_a_model() -> None:
    """Three quarters of a GPU's memory; four chips of a v5p hold a shard each."""
    fits = {one.model: one.fits for one in model_list.model_list().models}
    assert set(model_list.MACHINES) == set(PROFILES) == set(fits['gemma4-e2b'])
    assert 'nvidia-l4' in fits['gemma4-e4b'] and 'nvidia-l4' not in fits['gemma3-12b']
    assert fits['gemma4-26b-a4b'] == ('nvidia-a100-80gb', 'nvidia-h100', 'tpu-v5p')
    assert fits['gemma4-31b'] == ('tpu-v5p',)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_its_memory_is_what_a_plan_says(dtype: str) -> None:
    flags = ('--epsilon', '1', '--delta', '1e-6', '--model', 'gemma3-270m', '--dtype', dtype)
    plan = json.loads(in_this_process('plan', '--json', *flags).stdout)
    (one,) = [one for one in model_list.model_list().models if one.model == 'gemma3-270m']
    assert plan['estimate']['memory_bytes'] == getattr(one, f'memory_{dtype}')


def test_a_fetched_model_is_here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))

    def listed() -> model_list.ListedModel:
        return next(one for one in model_list.model_list().models if one.model == fetched.MODEL)

    assert not listed().here and listed().how_to_get == 'dp-corpus models fetch gemma3-270m'
    fetched.fetched_file().parent.mkdir(parents=True)
    fetched.fetched_file().touch()
    assert listed().here and listed().checkpoint == str(fetched.fetched_file())


@pytest.mark.parametrize('columns', [80, 40])
def test_every_screen_shows_all_of_it(columns: int) -> None:
    found = model_list.model_list()
    shown = on_terminal(lambda console: models.render(found, console), columns)
    assert all(one.model in shown for one in found.models) and '…' not in shown
    assert '27,228 M' in shown and '112.9' in shown and '56.5' in shown
    assert max(map(len, shown.splitlines())) <= columns


@pytest.mark.parametrize(
    'model, said', [('bundled', 'comes with the package'), ('gemma3-1b', 'you bring'), ('gemma', 'among')]
)
def test_what_cannot_be_fetched_is_said(model: str, said: str) -> None:
    done = in_this_process('models', 'fetch', model)
    assert done.returncode == 2 and said in done.stderr and done.stdout == ''
