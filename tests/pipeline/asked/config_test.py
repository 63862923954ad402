"""A config from flat keys: of a file, of flags, of both; what chooses the method, and what is refused."""

import pathlib
from typing import Any

import pytest
import tomli_w

from pipeline.asked.config import job_config, read_config

ENOUGH: dict[str, Any] = {'delta': 1e-6, 'max_private_tokens': 8, 'aggregate': 'mean'}
TUNED: dict[str, Any] = {'method': 'fine-tune', 'epsilon': 1.0, 'records': 1000}


def write_toml(folder: pathlib.Path, text: str) -> str:
    path = folder / 'run.toml'
    path.write_text(text, encoding='utf-8')
    return str(path)


# --- Files and flags ---------------------------------------------------------------


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: pathlib.Path) -> None:
    path = write_toml(
        tmp_path, 'delta = 1e-5\naggregate = "mean"\nmax_private_tokens = 8\nbatch_size = 32\nshards = 3\n'
    )
    read = read_config(path, {'batch_size': 128, 'shards': None})
    assert (read.method.batch_size, read.output.shards, read.budget.delta) == (128, 3, 1e-5)
    assert read.method.count_rho == job_config(**ENOUGH).method.count_rho


@pytest.mark.parametrize(
    'text, flag',
    [
        ('max_private_tokens = 8', {'epsilon': 3.0}),
        ('epsilon = 3.0', {'max_private_tokens': 5}),
        ('aggregate = "difference"\nepsilon = 3.0', {'context_budget': 0.5}),
        ('aggregate = "difference"\ncontext_budget = 0.5', {'epsilon': 3.0}),
        (
            'aggregate = "difference"\ncontext_budget = 0.5',
            {'max_private_tokens': 3, 'accounting': 'worst-case'},
        ),
    ],
)
def test_a_flag_replaces_its_counterpart_in_the_file(
    tmp_path: pathlib.Path, text: str, flag: dict[str, Any]
) -> None:
    if 'aggregate' not in text:
        text = f'aggregate = "mean"\n{text}'
    read = read_config(write_toml(tmp_path, f'delta = 1e-5\n{text}\n'), flag)
    for name in ('epsilon', 'max_private_tokens', 'context_budget'):
        assert read.settings()[name] == flag.get(name)


def test_unknown_key_is_refused_with_the_near_one(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"key='batchsize'.*Did you mean batch_size\?"):
        read_config(write_toml(tmp_path, 'batchsize = 3\n'), ENOUGH)
    with pytest.raises(ValueError, match=r"key='zzzz'.*--help"):
        read_config(write_toml(tmp_path, 'zzzz = 3\n'), ENOUGH)


def test_a_file_that_is_not_there_or_no_toml(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match='not there'):
        read_config(str(tmp_path / 'none.toml'), ENOUGH)
    with pytest.raises(ValueError, match='Expected TOML'):
        read_config(write_toml(tmp_path, 'delta = \n'), ENOUGH)


def test_labels_may_be_a_table_of_words(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'run.toml'
    path.write_text(
        'delta = 1e-5\naggregate = "mean"\nmax_private_tokens = 8\nlabel_field = "class"\n'
        '[labels]\n1 = "neoplasms"\n2 = "digestive system diseases"\n"other, or none" = ""\n'
    )
    read = read_config(str(path), {})
    assert read.input.labels == ('1=neoplasms', '2=digestive system diseases', 'other, or none')
    assert read.input.declared_words == {'1': 'neoplasms', '2': 'digestive system diseases'}
    plain = job_config(**ENOUGH, label_field='class', labels=('1', '2'))
    assert plain.input.declared_words == {}
    # A run's own record of its config is read back.
    (tmp_path / 'kept.toml').write_text(read.to_toml())
    assert read_config(str(tmp_path / 'kept.toml'), {}) == read
    for wrong, said in (('1 = 2', 'labels.1=2'), ('"a=b" = "c"', "labels.a=b='c'")):
        path.write_text(f'[labels]\n{wrong}\n')
        with pytest.raises(ValueError, match=f'Expected a table of words by label, got {said}'):
            read_config(str(path), {})


# --- Methods ---------------------------------------------------------------------


def test_a_setting_may_choose_its_method(tmp_path: pathlib.Path) -> None:
    """A file, flags and a call choose so; a method that is named wins."""
    path = write_toml(tmp_path, 'adapter = "tuned"\n')
    assert read_config(path, {}).method.name == 'fine-tune'
    assert read_config(None, {'adapter': 'tuned'}).method.name == 'fine-tune'
    assert job_config(adapter='tuned').method.name == 'fine-tune'
    assert read_config(path, {'method': 'predict', **ENOUGH}).method.name == 'predict'
    assert job_config(**ENOUGH).method.name == 'predict'


@pytest.mark.parametrize(
    'given, name, value, why',
    [
        (TUNED, 'batch_size', 8, 'It is the number of contexts that vote. Give --expected-batch-size'),
        (TUNED, 'omega', 4.0, 'It is a setting of --method predict.'),
        (ENOUGH, 'tuning_steps', 3, 'It is a setting of --method fine-tune and tune-refine.'),
        (ENOUGH, 'label_mix', ('a=1',), 'It is a setting of --method fine-tune.'),
        (ENOUGH, 'top_p', 0.5, 'It is a setting of --method fine-tune and tune-refine and evolve.'),
    ],
)
def test_a_setting_of_another_method_is_refused_with_what_to_give(
    tmp_path: pathlib.Path, given: dict[str, Any], name: str, value: Any, why: str
) -> None:
    method = job_config(**given).method.name
    said = f'Expected no {name} with method={method!r}, got {name}={value!r}. {why}'
    for build in (
        lambda: job_config(**given, **{name: value}),
        lambda: read_config(None, {**given, name: value}),
        lambda: read_config(write_toml(tmp_path, tomli_w.dumps(given)), {name: value}),
    ):
        with pytest.raises(ValueError) as caught:
            build()
        assert str(caught.value).startswith(said) and str(caught.value).endswith(' Leave it out.')


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected a known setting, got 'batchsize'.*--help"):
        job_config(**ENOUGH, batchsize=3)
