"""The config: one field, one key, one flag; precedence, types, and errors that say what to do."""

import dataclasses
import inspect
import math
import pathlib
import re
import tomllib
import typing
from typing import Any

import numpy as np
import pytest
import typer.main

from models.clustering import centers
from models.privacy import accounting
from models.privacy.aggregates import AGGREGATES
from pipeline import fine_tuning, main, plan
from pipeline.config import JobConfig, read_config

ENOUGH: dict[str, Any] = {'delta': 1e-6, 'max_private_tokens': 8, 'aggregate': 'mean'}
# Charged alike whatever they give: the difference has another way by default.
WORST_CASE: dict[str, Any] = {'aggregate': 'difference', 'accounting': 'worst-case'}
INDIVIDUAL: dict[str, Any] = {'aggregate': 'difference', 'max_private_tokens': None, 'epsilon': 3.0}
FIELDS = [field.name for field in dataclasses.fields(JobConfig)]
# The names that users and launch files rely on.
PRODUCT_FLAGS = {
    '--config', '--input', '--text-field', '--label-field', '--labels', '--unit', '--unit-field',
    '--record-id-field', '--examples-per-context', '--records', '--output', '--work-dir', '--run-id',
    '--model', '--checkpoint', '--tokenizer', '--prompt', '--epsilon', '--delta', '--batch-size',
    '--clip-bound', '--temperature', '--threshold', '--threshold-noise-scale', '--public-temperature',
    '--public-top-k', '--max-private-tokens', '--max-example-tokens', '--batches-per-label',
    '--aggregate', '--embedder', '--centers', '--clusters', '--clustering-rho', '--shards', '--runner',
    '--json', '--quiet',
}  # fmt: skip


def config(**settings: Any) -> JobConfig:
    return JobConfig(**(ENOUGH | settings))


def write_toml(folder: pathlib.Path, text: str) -> str:
    path = folder / 'run.toml'
    path.write_text(text, encoding='utf-8')
    return str(path)


# --- Files and flags -------------------------------------------------------------


def test_flags_win_over_the_file_and_the_file_over_defaults(tmp_path: pathlib.Path) -> None:
    path = write_toml(
        tmp_path, 'delta = 1e-5\naggregate = "mean"\nmax_private_tokens = 8\nbatch_size = 32\nshards = 3\n'
    )
    read = read_config(path, {'batch_size': 128, 'shards': None})
    assert (read.batch_size, read.shards, read.delta) == (128, 3, 1e-5)
    assert read.count_rho == JobConfig(**ENOUGH).count_rho


@pytest.mark.parametrize('aggregate', list(AGGREGATES))
def test_what_is_not_set_is_the_aggregates_own_default(aggregate: str) -> None:
    """And what is set wins; 0 asks for the whole vocabulary."""
    known = AGGREGATES[aggregate]
    alike = {'aggregate': aggregate, 'accounting': 'worst-case'}
    params = config(**alike).params()
    assert (params.clip_bound, params.temperature, params.public_top_k) == (
        known.default_clip_bound,
        known.default_temperature,
        known.default_public_top_k,
    )
    given = config(**alike, clip_bound=0.5, temperature=3.0, public_top_k=7).params()
    assert (given.clip_bound, given.temperature, given.public_top_k) == (0.5, 3.0, 7)
    assert config(**alike, public_top_k=0).params().public_top_k is None


def test_the_difference_samples_1024_tokens_at_temperature_1() -> None:
    for settings, clip_bound in ((WORST_CASE, 1.0), (INDIVIDUAL, 1.4)):
        params = config(**settings).params()
        assert (params.clip_bound, params.temperature, params.public_top_k) == (clip_bound, 1.0, 1024)


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
        assert getattr(read, name) == flag.get(name)


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


def test_toml_round_trip(tmp_path: pathlib.Path) -> None:
    before = config(
        input='a.jsonl,b*.csv.gz', output='out', label_field='label', labels=('a=A "quoted" word', 'ü\\b'),
        unit='user', unit_field='customer', records=1000, threshold=0.5, threshold_noise_scale=0.1,
        keep_rejected=True, clip_bound=9, run_id='run-1', work_dir='secret', public_top_k=1024,
    )  # fmt: skip
    after = read_config(write_toml(tmp_path, before.to_toml()), {})
    assert after == before
    assert after.to_toml() == before.to_toml()


def test_toml_of_the_defaults_names_every_field(tmp_path: pathlib.Path) -> None:
    text = config().to_toml()
    assert read_config(write_toml(tmp_path, text), {}) == config()
    unset = {line.split()[1] for line in text.splitlines() if line.endswith('is not set')}
    assert unset | set(tomllib.loads(text)) == set(FIELDS)


# --- Types -----------------------------------------------------------------------


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
    assert isinstance(config(clip_bound=10).clip_bound, float)


# --- Settings that do not fit ----------------------------------------------------


@pytest.mark.parametrize(
    'settings, expectation, remedy',
    [
        ({'model': 'gema3-1b'}, "model='gema3-1b'", 'Expected a model among'),
        ({'model': 'gemma3-1b'}, 'a checkpoint and a tokenizer', '--model bundled'),
        ({'model': 'gemma3-1b', 'checkpoint': 'a'}, 'tokenizer=None', '--tokenizer'),
        ({'epsilon': 1.0}, 'either epsilon or max_private_tokens', 'give one'),
        ({'max_private_tokens': None}, 'either epsilon or max_private_tokens', 'give one'),
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
        ({'count_rho': 0.0}, 'count_rho > 0', '--batches-per-label'),
        ({'count_rho': float('inf')}, 'count_rho > 0', '--batches-per-label'),
        ({'batches_per_label': 0}, 'batches_per_label >= 1', 'positive whole number'),
        ({'shards': 0}, 'shards >= 1', 'positive whole number'),
        ({'max_prompt_tokens': 0}, 'max_prompt_tokens >= 1', 'positive whole number'),
        ({'max_record_bytes': -1}, 'max_record_bytes >= 1', 'positive whole number'),
        ({'micro_batch_size': 0}, 'micro_batch_size >= 1', 'positive whole number'),
        ({'run_id': 'a b'}, 'letters, digits', 'published'),
        ({'run_id': '../up'}, 'letters, digits', 'published'),
        ({'output': 'out', 'work_dir': 'out'}, 'outside the output', 'holds the key'),
        ({'output': 'out', 'work_dir': 'out/curator/'}, 'outside the output', 'holds the key'),
        ({'batch_size': 0}, 'batch_size >= 1', 'positive whole number'),
        ({'threshold': 0.5}, 'threshold and threshold_noise_scale together', 'Set both'),
        ({'clip_bound': 40.0}, 'clip_bound / temperature', 'Lower --clip-bound'),
        ({'temperature': 0.0}, 'temperature > 0', 'positive finite'),
        ({'public_top_k': -1}, 'public_top_k >= 0', '0 for the whole vocabulary'),
        ({'dataset': 'visits'}, 'dataset and ledger together', 'charges the run'),
        ({'ledger': 'ledger.db'}, 'dataset and ledger together', 'charges the run'),
        ({'accelerator': 'nvidia-l4'}, "accelerator='nvidia-l4'", 'type:nvidia-l4;count:1'),
        (
            {'dataset': 'visits', 'ledger': 'ledger.db', 'aggregate': 'median'},
            "no dataset with aggregate='median'",
            'no price',
        ),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], expectation: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=expectation) as caught:
        config(**settings)
    assert caught.match(remedy)


def test_a_near_model_is_suggested() -> None:
    with pytest.raises(ValueError, match=r'Did you mean bundled\?'):
        config(model='bundeld')


def test_a_budget_that_buys_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match='epsilon=1e-06'):
        config(max_private_tokens=None, epsilon=1e-6, batch_size=1, batches_per_label=1)


def test_a_budget_that_buys_nothing_with_the_mean_says_what_it_buys_with_the_difference() -> None:
    target = {'max_private_tokens': None, 'batches_per_label': 1, 'delta': 1e-6}
    with pytest.raises(ValueError, match='--epsilon .* is the smallest that pays for one') as caught:
        config(**target, epsilon=0.25)
    found = re.search(r'give --aggregate difference: .* pays for (\d+) tokens', str(caught.value))
    assert found is not None
    other = config(**target, epsilon=0.25, aggregate='difference').params()
    assert other.context_budget is not None
    assert accounting.worst_case_tokens(other, other.context_budget) == int(found[1]) >= 1
    with pytest.raises(ValueError) as caught:
        config(**target, epsilon=1e-3)
    assert '--aggregate difference' not in str(caught.value)


# --- What follows from the settings ----------------------------------------------


def test_delta_from_the_declared_records() -> None:
    # 1000 ** -1.1 is 0.00050118...: three digits, rounded down.
    assert config(delta=None, records=1000).resolved_delta == 0.000501
    assert config(delta=1e-3, records=1000).resolved_delta == 1e-3


def test_epsilon_solves_for_the_largest_cap() -> None:
    solved = config(max_private_tokens=None, epsilon=4.0)
    cap = solved.params().max_private_tokens

    def epsilon(tokens: int) -> float:
        params = dataclasses.replace(solved.params(), max_private_tokens=tokens)
        return accounting.epsilon_from_rho(
            accounting.generation_rho(params) + solved.noisy_count_rho, solved.resolved_delta
        )

    assert epsilon(cap) <= 4.0 < epsilon(cap + 1)


def test_counts_are_charged_only_where_they_are_drawn() -> None:
    assert config().noisy_count_rho == 0.005
    assert config(batches_per_label=2).noisy_count_rho == 0


def test_labels_and_their_words() -> None:
    labelled = config(label_field='label', labels=('1=World news', 'Sports', 'x=a=b'))
    assert labelled.label_values == ('1', 'Sports', 'x')
    assert labelled.label_words == {'1': 'World news', 'Sports': 'Sports', 'x': 'a=b'}
    assert config().label_values == (None,)


def test_labels_may_be_a_table_of_words(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'run.toml'
    path.write_text(
        'delta = 1e-5\naggregate = "mean"\nmax_private_tokens = 8\nlabel_field = "class"\n'
        '[labels]\n1 = "neoplasms"\n2 = "digestive system diseases"\n"other, or none" = ""\n'
    )
    read = read_config(str(path), {})
    assert read.labels == ('1=neoplasms', '2=digestive system diseases', 'other, or none')
    assert read.declared_words == {'1': 'neoplasms', '2': 'digestive system diseases'}
    assert config(label_field='class', labels=('1', '2')).declared_words == {}
    # What a run keeps of itself is read back.
    (tmp_path / 'kept.toml').write_text(read.to_toml())
    assert read_config(str(tmp_path / 'kept.toml'), {}) == read
    for wrong, said in (('1 = 2', 'labels.1=2'), ('"a=b" = "c"', "labels.a=b='c'")):
        path.write_text(f'[labels]\n{wrong}\n')
        with pytest.raises(ValueError, match=f'Expected a table of words by label, got {said}'):
            read_config(str(path), {})


@pytest.mark.parametrize(('batches', 'shards'), [(1, 1), (100, 1), (101, 2), (700, 7), (701, 8), (10**6, 8)])
def test_few_planned_batches_make_one_shard(batches: int, shards: int) -> None:
    assert config().resolved_shards(batches) == shards
    assert config(shards=5).resolved_shards(batches) == 5


def test_folders_and_names() -> None:
    given = config(output='some/corpus 1/')
    assert given.resolved_work_dir == 'some/corpus 1.curator'
    assert given.resolved_run_id == 'corpus-1'
    assert config(output='o', work_dir='w', run_id='r').resolved_work_dir == 'w'


def test_default_token_caps() -> None:
    assert config().params().max_batch_tokens == 8
    assert config(threshold=0.5, threshold_noise_scale=0.1).params().max_batch_tokens == 64
    assert config(max_batch_tokens=20).params().max_batch_tokens == 20


# --- One name everywhere ---------------------------------------------------------


def flags_of(command: str) -> dict[str, Any]:
    group = typing.cast(Any, typer.main.get_command(main.app))
    return {name: option for option in group.commands[command].params for name in option.opts}


# Flags that say how a command answers, and are no setting of a run.
SWITCHES = {
    'plan': {'--json', '--calibrate', '--calibration', '--calibration-label-field'},
    'generate': {'--json', '--quiet'},
}


@pytest.mark.parametrize('command', ['plan', 'generate'])
def test_every_field_is_a_flag_and_every_flag_a_field(command: str) -> None:
    own = {'--config'} | SWITCHES[command]
    assert set(flags_of(command)) - own == {f'--{name.replace("_", "-")}' for name in FIELDS}


def test_training_has_the_flags_of_a_run_without_those_of_votes_and_sampling() -> None:
    own, every = set(flags_of('fine-tune')), set(flags_of('generate'))
    assert own < every
    assert every - own == {
        f'--{name.replace("_", "-")}'
        for name in (
            *fine_tuning.PREDICTION_SETTINGS, 'temperature', 'top_p', 'top_k', 'shards', 'label_mix',
            'fixed', 'close_truncated', 'examples_per_label', 'adapter', 'method',
        )
    }  # fmt: skip
    assert own >= {
        '--input',
        '--labels',
        '--epsilon',
        '--tuning-steps',
        '--lora-rank',
        '--output',
        '--ledger',
    }


def test_the_flags_of_the_product_exist() -> None:
    assert set(flags_of('generate')) >= PRODUCT_FLAGS


@pytest.mark.parametrize('command', ['plan', 'generate'])
def test_a_flag_that_is_not_given_leaves_the_file_alone(command: str) -> None:
    given = {name: flag.default for name, flag in flags_of(command).items() if name not in SWITCHES[command]}
    assert set(given.values()) == {None}


def test_every_field_has_help_and_a_panel() -> None:
    for field in dataclasses.fields(JobConfig):
        assert field.metadata['help'].endswith('.') and field.metadata['panel'], field.name


def test_positional_arguments_are_not_taken() -> None:
    kinds = {parameter.kind for parameter in inspect.signature(JobConfig).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}


def test_the_help_names_every_prompt_preset() -> None:
    from models import prompts
    from pipeline import config as config_module

    assert tuple(prompts.PRESETS) == config_module.PROMPT_PRESETS


def test_the_default_prompt_is_of_the_form_that_the_model_was_trained_on() -> None:
    assert config().resolved_prompt == 'pretrained'
    files = {'checkpoint': '/weights', 'tokenizer': '/tokenizer.model'}
    assert config(model='gemma3-270m', **files).resolved_prompt == 'document'
    for prompt in ('instruction', 'own.toml'):
        assert config(prompt=prompt).resolved_prompt == prompt
        assert config(model='gemma3-270m', prompt=prompt, **files).resolved_prompt == prompt


@pytest.mark.parametrize('name', ['label_name', 'text_name', 'corpus_description'])
def test_what_prompts_say_by_default_is_the_same_everywhere(name: str) -> None:
    from models.assembly import GeneratorSettings
    from models.prompts import PromptWriter

    places = (JobConfig, GeneratorSettings, PromptWriter)
    assert len({place.__dataclass_fields__[name].default for place in places}) == 1


@pytest.mark.parametrize(
    ('batch_size', 'rows', 'parts'), [(8, 12, 1), (64, 80, 1), (255, 95, 3), (1023, 121, 9)]
)
def test_micro_batches_are_equal_parts_of_a_full_batch(batch_size: int, rows: int, parts: int) -> None:
    size = config(batch_size=batch_size).resolved_micro_batch_size
    assert size == rows
    assert (parts - 1) * size < batch_size + 2 * math.isqrt(batch_size) <= parts * size
    assert config(batch_size=batch_size, micro_batch_size=7).resolved_micro_batch_size == 7


# --- Aggregates and clusters -----------------------------------------------------


@pytest.mark.parametrize('aggregate, bound', [('mean', 10.0), ('median', 6.0)])
def test_each_aggregate_has_a_clip_bound_of_its_own(aggregate: str, bound: float) -> None:
    assert config(aggregate=aggregate).params().clip_bound == bound
    assert config(aggregate=aggregate, clip_bound=2.5).params().clip_bound == 2.5


def test_a_median_run_takes_its_cap_and_no_epsilon() -> None:
    assert config(aggregate='median').params().max_private_tokens == 8
    with pytest.raises(ValueError, match='function of the records and the output.*max-private-tokens'):
        config(aggregate='median', epsilon=3.0, max_private_tokens=None)
    with pytest.raises(ValueError, match='got epsilon=3.0'):
        config(aggregate='median', epsilon=3.0)


@pytest.mark.parametrize(
    'settings, said',
    [
        ({'clustering_rho': 0.01}, 'clustering_rho with clusters only'),
        ({'centers': 'folder'}, 'centers with clusters only'),
        ({'embedder': 'tfidf'}, 'embedder with clusters only'),
        ({'clusters': 0}, 'clusters >= 1'),
        ({'clusters': 3, 'batches_per_label': 2}, 'clusters or batches_per_label'),
        ({'clusters': 3, 'clustering_rho': 0.0}, 'clustering_rho > 0'),
        ({'clusters': 3, 'embedder': 'minilm'}, 'centers for embedder'),
    ],
    ids=str,
)
def test_what_does_not_go_with_clusters_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config(**settings)


def test_tokens_that_no_batch_can_have_are_not_paid_for() -> None:
    budget = {**WORST_CASE, 'epsilon': 3.0, 'max_private_tokens': None}
    assert config(**budget).params().max_private_tokens > 1_000
    assert config(**budget, max_batch_tokens=100).params().max_private_tokens == 100
    # Nor what no context can spend.
    whole, less = config(**INDIVIDUAL), config(**INDIVIDUAL, max_batch_tokens=20)
    assert less.params().max_batch_tokens == 20
    budget_of_20 = less.params().context_budget
    price = 2 * (1.4 / 64) ** 2
    assert 20 * price <= budget_of_20 < 21 * price < whole.params().context_budget
    assert plan.plan_run(less).epsilon < 0.5 * plan.plan_run(whole).epsilon
    # A budget that is given is what may be spent.
    given = config(**INDIVIDUAL | {'epsilon': None, 'context_budget': 0.5}, max_batch_tokens=100)
    assert given.params().context_budget == 0.5


def test_clusters_pay_their_own_price_for_counts() -> None:
    assert config(clusters=3).noisy_count_rho == 0.005
    assert config(clusters=3, clustering_rho=0.02, count_rho=0.5).noisy_count_rho == 0.02
    assert config(count_rho=0.5).noisy_count_rho == 0.5


def _write_centers(folder: pathlib.Path, source: centers.Source) -> str:
    public = source == 'public'
    centers.Centers(
        vectors=np.eye(3, dtype=np.float32),
        embedder='tfidf',
        embedder_fingerprint='0' * 64,
        corpus_fingerprint='1' * 64 if public else None,
        corpus_texts=9 if public else None,
        seed=0,
        source=source,
        rho=0.25 if source == 'dp-k-means' else 0.0,
    ).write(folder)
    return str(folder)


def test_centres_that_cost_are_paid_for(tmp_path: pathlib.Path) -> None:
    budget = {'epsilon': 10.0, 'max_private_tokens': None, 'clusters': 2}
    free = config(**budget, centers=_write_centers(tmp_path / 'free', 'public'))
    paid = config(**budget, centers=_write_centers(tmp_path / 'paid', 'dp-k-means'))
    assert (free.centers_source, free.centers_rho) == ('public', 0.0)
    assert (paid.centers_source, paid.centers_rho) == ('dp-k-means', 0.25)
    per_token = accounting.rho_per_private_token(free.params())
    fewer = free.params().max_private_tokens - paid.params().max_private_tokens
    assert fewer == pytest.approx(0.25 / per_token, abs=1)


@pytest.mark.parametrize(
    'url', ['postgresql://me:opensesame@db/ledger', 'postgresql://db/ledger?user=me&password=opensesame']
)
def test_a_password_in_a_ledger_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match='PGPASSFILE') as caught:
        config(dataset='visits', ledger=url)
    assert 'opensesame' not in str(caught.value)
    assert config(dataset='visits', ledger='postgresql://me@db:5432/ledger').ledger is not None


def test_a_run_without_a_guarantee_is_charged_to_no_dataset(tmp_path: pathlib.Path) -> None:
    folder = _write_centers(tmp_path, 'k-means')
    with pytest.raises(ValueError, match='void every guarantee'):
        config(clusters=2, centers=folder, dataset='visits', ledger='ledger.db')


def test_centres_priced_by_record_do_not_serve_users(tmp_path: pathlib.Path) -> None:
    folder = _write_centers(tmp_path, 'dp-k-means')
    with pytest.raises(ValueError, match='price is that of one record'):
        config(clusters=2, centers=folder, unit='user', unit_field='id')


# --- Individual accounting --------------------------------------------------------


def test_who_pays_follows_from_the_aggregate_where_nobody_says() -> None:
    assert config(**INDIVIDUAL).is_individual and config(**INDIVIDUAL).params().is_individual
    assert not config(**INDIVIDUAL, accounting='worst-case').is_individual
    assert not config().is_individual and not config(aggregate='median').is_individual
    tested = {'threshold': 0.5, 'threshold_noise_scale': 0.1}
    assert not config(aggregate='difference', **tested).is_individual
    assert config(**INDIVIDUAL).params() == config(**INDIVIDUAL, accounting='individual').params()


@pytest.mark.parametrize('omega', [None, 5.0])
def test_epsilon_solves_for_the_budget_of_a_context(omega: float | None) -> None:
    solved = config(**INDIVIDUAL, omega=omega, count_rho=0.01)
    params = solved.params()
    assert omega is None or params.omega == omega
    assert params.max_private_tokens is None and params.shift_bound == 0.4

    def epsilon(budget: float) -> float:
        return accounting.epsilon_from_rho(budget + 0.01, 1e-6, largest_order=params.omega)

    assert epsilon(params.context_budget) <= 3.0 < epsilon(1.0001 * params.context_budget)
    # What ends a batch is public: 16 times what the highest price leaves, and 1,024 at most.
    tokens = math.floor(params.context_budget / (2 * (1.4 / 64) ** 2))
    assert params.max_batch_tokens == min(1024, 16 * tokens)
    assert config(**INDIVIDUAL, shift_bound=2.5).params().shift_bound == 2.5


def test_a_given_budget_takes_the_order_that_costs_no_epsilon() -> None:
    given = config(aggregate='difference', max_private_tokens=None, context_budget=0.25)
    omega = given.params().omega
    assert omega == accounting.omega_of_budget(given.params(), 0.25, delta=1e-6, other_rho=0.005)
    chosen = plan.plan_run(given).epsilon
    assert chosen == pytest.approx(accounting.epsilon_from_rho(0.255, 1e-6), rel=1e-12)


@pytest.mark.parametrize(
    'settings, expectation, remedy',
    [
        ({'aggregate': 'difference'}, 'no max_private_tokens with individual', '--accounting worst-case'),
        ({'aggregate': 'difference'}, 'accounting=None', 'leave it out, and give --max-batch-tokens'),
        ({**INDIVIDUAL, 'max_private_tokens': 8}, 'no max_private_tokens', '--accounting worst-case'),
        ({**INDIVIDUAL, 'context_budget': 0.5}, 'either epsilon or context_budget', 'give one'),
        ({**INDIVIDUAL, 'epsilon': None}, 'either epsilon or context_budget', '--max-private-tokens'),
        ({**INDIVIDUAL, 'aggregate': 'mean', 'accounting': 'individual'}, "aggregate='mean'", 'worst-case'),
        (
            {**INDIVIDUAL, 'epsilon': None, 'aggregate': 'median', 'accounting': 'individual'},
            "aggregate='median'",
            '--aggregate difference',
        ),
        (
            {**INDIVIDUAL, 'accounting': 'individual', 'threshold': 0.5, 'threshold_noise_scale': 0.1},
            'threshold=0.5',
            'no --threshold',
        ),
        ({**INDIVIDUAL, 'public_top_k': 0}, 'public_top_k >= 1', '--public-top-k 1024'),
        ({'context_budget': 0.5}, 'context_budget with individual accounting only', 'Leave it out'),
        ({'omega': 5.0}, 'omega with individual accounting only', '--accounting individual'),
        ({**WORST_CASE, 'shift_bound': 1.0}, "shift_bound.*accounting='worst-case'", 'Leave it out'),
        ({**INDIVIDUAL, 'epsilon': None, 'context_budget': 0.0}, 'context_budget > 0', '--context-budget'),
        (
            {**INDIVIDUAL, 'epsilon': None, 'context_budget': 1e-9},
            'pays for one token',
            'Raise --context-budget',
        ),
        ({**INDIVIDUAL, 'omega': 1.0}, 'omega > 1', 'leave it out'),
        ({**INDIVIDUAL, 'omega': float('inf')}, 'finite omega', 'leave it out'),
        ({**INDIVIDUAL, 'omega': 1.01}, 'budget for one token', 'or leave --omega out'),
        ({**INDIVIDUAL, 'omega': 5e3}, 'prices that grow', 'Lower --omega'),
        ({**INDIVIDUAL, 'shift_bound': -1.0}, 'shift_bound > 0', '--shift-bound'),
        ({**INDIVIDUAL, 'count_rho': 5.0}, 'budget for one token', '--epsilon .* is the smallest'),
        ({**INDIVIDUAL, 'accounting': 'both'}, "'individual' or 'worst-case'", 'Who pays'),
    ],
)
def test_what_does_not_go_with_individual_accounting_is_refused(
    settings: dict[str, Any], expectation: str, remedy: str
) -> None:
    with pytest.raises(ValueError, match=expectation) as caught:
        config(**settings)
    assert caught.match(remedy)


def test_settings_of_individual_accounting_go_round_as_toml(tmp_path: pathlib.Path) -> None:
    before = config(**INDIVIDUAL, omega=6.5, shift_bound=2.0, accounting='individual')
    assert read_config(write_toml(tmp_path, before.to_toml()), {}) == before
