"""Settings of every run: their types, what does not fit, and what follows from them."""

from typing import Any

import pytest

from pipeline import methods
from pipeline.asked.config import job_config, settings_of
from pipeline.methods import METHODS
from pipeline.settings.job_config import JobConfig
from pipeline.settings.prompt import PROMPT_PRESETS, Prompt

ENOUGH: dict[str, Any] = {'delta': 1e-6, 'max_private_tokens': 8, 'aggregate': 'mean'}


def config(**settings: Any) -> JobConfig:
    return job_config(**(ENOUGH | settings))


# --- Types -------------------------------------------------------------------------


@pytest.mark.parametrize(
    'name, value',
    [
        ('batch_size', 3.5), ('batch_size', '64'), ('batch_size', True), ('clip_bound', '10'),
        ('delta', True), ('labels', 'a,b'), ('labels', (1, 2)), ('keep_rejected', 1), ('input', 3),
        ('unit', 'users'), ('aggregate', 'mode'), ('clusters', 1.5), ('dtype', 'float16'),
        ('text_field', None), ('records', 10.0),
    ],
)  # fmt: skip
def test_wrong_types_name_the_field(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f'got {name}='):
        config(**{name: value})


def test_literals_are_spelt_out() -> None:
    with pytest.raises(ValueError, match="'example' or 'user'"):
        config(unit='person')


def test_whole_numbers_serve_as_floats() -> None:
    assert config(clip_bound=10) == config(clip_bound=10.0)
    assert isinstance(config(clip_bound=10).method.clip_bound, float)


# --- Settings that do not fit ------------------------------------------------------


@pytest.mark.parametrize(
    'settings, expectation, remedy',
    [
        ({'model': 'gema3-1b'}, "model='gema3-1b'", 'Expected a model among'),
        ({'model': 'gemma3-1b'}, 'a checkpoint and a tokenizer', '--model bundled'),
        ({'model': 'gemma3-1b', 'checkpoint': 'a'}, 'tokenizer=None', '--tokenizer'),
        ({'delta': None}, 'delta or a declared number', '--records N'),
        ({'delta': 0.0}, '0 < delta < 1', r'records \*\* -1.1'),
        ({'delta': 1.0}, '0 < delta < 1', r'records \*\* -1.1'),
        ({'delta': float('nan')}, '0 < delta < 1', r'records \*\* -1.1'),
        ({'records': 1}, 'records >= 2', 'public size'),
        ({'labels': ('a',)}, 'labels and label_field together', 'declared, never read'),
        ({'label_field': 'label'}, 'labels and label_field together', 'declared, never read'),
        ({'label_field': 'label', 'labels': ('a', 'b', 'a=other')}, 'distinct labels', 'once'),
        ({'unit': 'user'}, 'unit_field exactly with', '--unit user'),
        ({'unit_field': 'customer'}, 'unit_field exactly with', '--unit user'),
        ({'shards': 0}, 'shards >= 1', 'positive whole number'),
        ({'max_prompt_tokens': 0}, 'max_prompt_tokens >= 1', 'positive whole number'),
        ({'max_record_bytes': -1}, 'max_record_bytes >= 1', 'positive whole number'),
        ({'micro_batch_size': 0}, 'micro_batch_size >= 1', 'positive whole number'),
        ({'run_id': 'a b'}, 'letters, digits', 'published'),
        ({'run_id': '../up'}, 'letters, digits', 'published'),
        ({'output': 'out', 'work_dir': 'out'}, 'outside the output', 'holds the key'),
        ({'output': 'out', 'work_dir': 'out/curator/'}, 'outside the output', 'holds the key'),
        ({'dataset': 'visits'}, 'dataset and ledger together', 'charges the run'),
        ({'ledger': 'ledger.db'}, 'dataset and ledger together', 'charges the run'),
        ({'accelerator': 'nvidia-l4'}, "accelerator='nvidia-l4'", 'type:nvidia-l4;count:1'),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], expectation: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=expectation) as caught:
        config(**settings)
    assert caught.match(remedy)


def test_a_near_model_is_suggested() -> None:
    with pytest.raises(ValueError, match=r'Did you mean bundled\?'):
        config(model='bundeld')


@pytest.mark.parametrize(
    'url', ['postgresql://me:opensesame@db/ledger', 'postgresql://db/ledger?user=me&password=opensesame']
)
def test_a_password_in_a_ledger_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match='PGPASSFILE') as caught:
        config(dataset='visits', ledger=url)
    assert 'opensesame' not in str(caught.value)
    assert config(dataset='visits', ledger='postgresql://me@db:5432/ledger').budget.ledger is not None


# --- What follows from the settings ------------------------------------------------


def test_delta_from_the_declared_records() -> None:
    # 20000 ** -1.1 is 1.8572e-05: three digits, rounded down.
    assert config(delta=None, records=20_000).delta == 1.85e-05
    # 10,000 ** -1.1 is 3.9811e-05; fewer records have no larger one.
    assert config(delta=None, records=10_000).delta == config(delta=None, records=30).delta == 3.98e-05
    assert config(delta=1e-3, records=1000).delta == 1e-3


def test_labels_and_their_words() -> None:
    labelled = config(label_field='label', labels=('1=World news', 'Sports', 'x=a=b'))
    assert labelled.input.label_values == ('1', 'Sports', 'x')
    assert labelled.input.label_words == {'1': 'World news', 'Sports': 'Sports', 'x': 'a=b'}
    assert config().input.label_values == (None,)


@pytest.mark.parametrize(('batches', 'shards'), [(1, 1), (100, 1), (101, 2), (700, 7), (701, 8), (10**6, 8)])
def test_few_planned_batches_make_one_shard(batches: int, shards: int) -> None:
    assert methods.solve(config()).shards(batches) == shards
    assert methods.solve(config(shards=5)).shards(batches) == 5


def test_folders_and_names() -> None:
    given = config(output='some/corpus 1/')
    assert given.output.curator == 'some/corpus 1.curator'
    assert given.output.name == 'corpus-1'
    assert config(output='o', work_dir='w', run_id='r').output.curator == 'w'


# --- What prompts say --------------------------------------------------------------


def test_the_help_names_every_prompt_preset() -> None:
    from models import prompt_templates

    assert tuple(prompt_templates.PRESETS) == PROMPT_PRESETS


def test_the_default_prompt_is_of_the_form_that_the_model_was_trained_on() -> None:
    assert config().method.prompt_name == 'pretrained'
    files = {'checkpoint': '/weights', 'tokenizer': '/tokenizer.model'}
    assert config(model='gemma3-270m', **files).method.prompt_name == 'document'
    for prompt in ('instruction', 'own.toml'):
        assert config(prompt=prompt).method.prompt_name == prompt
        assert config(model='gemma3-270m', prompt=prompt, **files).method.prompt_name == prompt


@pytest.mark.parametrize('name', ['label_name', 'text_name', 'corpus_description'])
def test_what_prompts_say_by_default_is_the_same_everywhere(name: str) -> None:
    from models.assembly import GeneratorSettings
    from models.prompts import PromptWriter

    places = (Prompt, GeneratorSettings, PromptWriter)
    assert len({place.__dataclass_fields__[name].default for place in places}) == 1


# --- Fields ------------------------------------------------------------------------


@pytest.mark.parametrize('method', METHODS)
def test_every_field_has_help_and_a_panel(method: str) -> None:
    for setting in settings_of(method).values():
        assert setting.help.endswith('.') and setting.panel, setting.name


# --- Other values ----------------------------------------------------------------

TUNED: dict[str, Any] = {'method': 'fine-tune', 'epsilon': 1.0, 'records': 1000}


@pytest.mark.parametrize('given', [ENOUGH, TUNED])
def test_every_setting_can_be_replaced_by_its_name(given: dict[str, Any]) -> None:
    before = job_config(**given)
    settings = before.settings()
    method = settings.pop('method')
    assert before.replace(**settings) == before
    after = before.replace(shards=3, delta=1e-5, text_field='body', runner='FlinkRunner', text_name='Note')
    changed = {'shards': 3, 'delta': 1e-5, 'text_field': 'body', 'runner': 'FlinkRunner', 'text_name': 'Note'}
    assert after.settings() == settings | changed | {'method': method}
    assert after == job_config(**given | changed)
    # A config that is built anew is checked anew.
    with pytest.raises(ValueError, match='shards >= 1'):
        before.replace(shards=0)


@pytest.mark.parametrize('given', [ENOUGH, TUNED])
def test_a_setting_of_another_method_cannot_be_put_in_its_place(given: dict[str, Any]) -> None:
    run = job_config(**given)
    own = run.method.name
    others = {name for other in METHODS for name in settings_of(other)} - settings_of(own).keys()
    assert others
    for name in ('method', 'no_such_setting', *sorted(others)):
        with pytest.raises(ValueError, match=f"Expected a setting of method='{own}', got '{name}'"):
            run.replace(**{name: None})


@pytest.mark.parametrize(
    ('settings', 'said'),
    [
        ({'input': 'a.jsonl', 'delimiter': ';'}, r"Expected delimiter with CSV files, got delimiter=';'"),
        (
            {'input': 'a.xlsx,b.json', 'quoting': 'none'},
            r"Expected quoting with CSV files, got quoting='none'",
        ),
        (
            {'input': 'a.parquet', 'encoding': 'utf-16'},
            r'Expected encoding with files of text .* Leave it out',
        ),
        ({'input': 'hf://owner/name', 'encoding': 'utf-16'}, 'Expected encoding with files of text'),
    ],
)
def test_a_setting_of_files_that_are_not_there_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config(**settings)


@pytest.mark.parametrize(
    'settings',
    [
        {'input': 'a.parquet,b.csv', 'delimiter': ';', 'encoding': 'utf-16', 'quoting': 'backslash'},
        {'input': 'a.parquet,b.jsonl', 'encoding': 'utf-16'},
        # Public texts beside the records have the flag, too.
        {
            'input': 'a.parquet',
            'accounting': 'worst-case',
            'aggregate': 'difference',
            'reference': 'b.csv',
            'delimiter': ';',
        },
        {'delimiter': ';', 'quoting': 'none'},
    ],
)
def test_in_a_list_it_is_of_the_files_that_it_can_be_of(settings: dict[str, Any]) -> None:
    assert config(**settings).settings().items() >= settings.items()


def test_a_backslash_cannot_both_quote_and_separate() -> None:
    with pytest.raises(ValueError, match='no backslash with quoting'):
        config(delimiter='\\', quoting='backslash')
    assert config(delimiter='\\').input.delimiter == '\\'
