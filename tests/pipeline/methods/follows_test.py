"""Numbers that follow from declared lengths and texts wanted: public ones, where nobody said otherwise."""

import math
from typing import Any

import pytest

from models.privacy import accounting
from pipeline import methods
from pipeline.asked.config import following, job_config, read_config, settings_of
from pipeline.methods import METHODS, follows
from pipeline.settings.job_config import JobConfig

pytestmark = pytest.mark.heavy

OF_RECORDS = [name for name, method in METHODS.items() if method.needs_only_records]
GEMMA = {'model': 'gemma3-270m'}
# Records and texts for which votes on tokens take a sample, or all.
SAMPLED = [(100_000, 20), (100_000, 333), (31_007, 77), (9_999, 90), (700, 110)]


def given_of(method: str, **more: Any) -> dict[str, Any]:
    return {'method': method, 'records': 5000, 'epsilon': 3.0, 'typical_words': 40, 'examples': 120, **more}


def text_tokens(config: JobConfig) -> int:
    return follows.typical_tokens(config.method)


# --- Any method --------------------------------------------------------------------


@pytest.mark.parametrize('method', OF_RECORDS)
@pytest.mark.parametrize('more', [{}, GEMMA, {'labels': ('a=Long words', 'b'), 'label_field': 'l'}])
def test_lengths_of_a_run_follow_from_the_declared_words(method: str, more: dict[str, Any]) -> None:
    config = job_config(**given_of(method, **more))
    typical = text_tokens(config)
    assert typical >= 40
    # The cap cuts no text that is up to twice as long as the typical one, and steps by sixteens.
    assert 2 * typical <= config.method.max_example_tokens < 2 * typical + 16
    short = job_config(**given_of(method, **{**more, 'typical_words': 2})).method
    assert short.max_example_tokens == (64 if short.model == 'bundled' else 48)
    assert config.method.max_prompt_tokens >= len(config.method.corpus_description) // 2
    assert config.method.max_prompt_tokens % 16 == 0


@pytest.mark.parametrize('method', OF_RECORDS)
def test_nothing_follows_where_no_length_and_no_number_of_texts_is_given(method: str) -> None:
    bare = {'method': method, 'records': 5000, 'epsilon': 3.0}
    assert following(**bare) == {}
    defaults = {name: setting.default for name, setting in settings_of(method).items()}
    config = job_config(**bare)
    assert {**defaults, **bare} == config.settings()


@pytest.mark.first
@pytest.mark.parametrize('method', OF_RECORDS)
def test_what_was_given_stays(method: str) -> None:
    """Every single setting that would follow, given another value."""
    for name, found in following(**given_of(method)).items():
        other = found.value / 2 if isinstance(found.value, float) else found.value + 16
        own = given_of(method, **{name: other})
        if name == 'batch_size':
            own['examples'] = 10  # fewer batches write fewer texts
        if name == 'max_batch_tokens':
            own['examples'] = 60
        assert getattr(job_config(**own).method, name, None) == other or name == 'sample_rate'
        assert name not in following(**own)


@pytest.mark.parametrize(
    'method, records, examples',
    [*((name, 5000, 120) for name in OF_RECORDS), *(('predict', *each) for each in SAMPLED)],
)
def test_a_saved_config_is_read_back_to_an_equal_one(
    method: str, records: int, examples: int, tmp_path: Any
) -> None:
    config = job_config(**given_of(method, records=records, examples=examples, **GEMMA))
    path = tmp_path / 'run.toml'
    path.write_text(config.to_toml(), encoding='utf-8')
    assert read_config(str(path), {}) == config


def test_words_of_a_small_vocabulary_are_more_tokens() -> None:
    small, large = (job_config(**given_of('evolve', **own)).method for own in ({}, GEMMA))
    assert follows.tokens_of_words(small, 100) == 221 and follows.tokens_of_words(large, 100) == 141


def test_the_cap_of_very_long_texts_has_an_end_and_says_so() -> None:
    found = following(**given_of('fine-tune', typical_words=5000))['max_example_tokens']
    assert found.value == 1024 and '1,024 at most' in found.because


# --- Votes on tokens ----------------------------------------------------------------


@pytest.mark.parametrize('records, epsilon', [(800, 1.0), (5000, 3.0), (100_000, 1.0), (1000, 10.0)])
@pytest.mark.parametrize('examples', [20, 100])
@pytest.mark.parametrize('words', [12, 60])
def test_votes_write_about_as_many_texts_as_wanted(
    records: int, epsilon: float, examples: int, words: int
) -> None:
    config = job_config(
        **given_of(
            'predict', records=records, epsilon=epsilon, examples=examples, typical_words=words, **GEMMA
        )
    )
    plan = methods.of(config).plan(methods.solve(config))
    texts = plan.written_texts()
    # A whole number of batches, each several texts long, and one of a label for each of two rounds.
    most_of_batch = math.ceil(config.method.max_batch_tokens / text_tokens(config))
    assert 0.8 * examples <= texts <= examples + 3 * most_of_batch
    assert plan.epsilon <= epsilon


def test_the_budget_of_contexts_lasts_for_the_batch_as_long_as_the_default_one_would() -> None:
    for records, epsilon, examples in ((800, 1.0, 90), (5000, 3.0, 400), (20_000, 1.0, 50)):
        given = given_of('predict', records=records, epsilon=epsilon, examples=examples)
        config = job_config(**given)
        params = methods.solve(config.replace(max_batch_tokens=None)).params
        assert params.context_budget is not None
        worst = accounting.worst_case_tokens(params, params.context_budget)
        assert config.method.max_batch_tokens <= 16 * worst


def test_few_texts_of_many_records_take_large_batches_and_a_sample() -> None:
    config = job_config(**given_of('predict', records=100_000, **GEMMA))
    assert config.method.batch_size == 255 and config.input.sample_rate < 0.1
    many = job_config(**given_of('predict', records=100_000, examples=1000, **GEMMA))
    assert many.input.sample_rate > 5 * config.input.sample_rate


def test_long_texts_take_batches_that_fit_into_memory() -> None:
    config = job_config(**given_of('predict', typical_words=600, examples=20, epsilon=10.0))
    assert config.method.batch_size == 64


def test_texts_that_no_budget_pays_for_are_refused_with_the_most() -> None:
    with pytest.raises(ValueError, match=r'Expected examples <= \d+, which votes of records=800 at') as error:
        job_config(**given_of('predict', records=800, examples=10_000, epsilon=1.0))
    most = int(str(error.value).partition('<= ')[2].partition(',')[0])
    # The most is what the error says, and it is no guess.
    assert job_config(**given_of('predict', records=800, examples=most, epsilon=1.0)).method.examples == most
    with pytest.raises(ValueError, match='Expected examples <='):
        job_config(**given_of('predict', records=800, examples=most + 2, epsilon=1.0))


def test_texts_of_votes_need_declared_records() -> None:
    with pytest.raises(ValueError, match='Expected a declared number of records with examples'):
        job_config(method='predict', epsilon=1.0, delta=1e-5, examples=50)


# --- Fine-tuning ----------------------------------------------------------------------


def test_texts_of_an_adapter_are_of_all_labels_together() -> None:
    labels = {'labels': ('a', 'b', 'c'), 'label_field': 'l'}
    config = job_config(**given_of('fine-tune', examples=100, **labels))
    plan = methods.of(config).plan(methods.solve(config))
    assert plan.written_texts() == 100
    assert config.method.texts_of_labels(config.input) == (34, 33, 33)
    shares = config.replace(label_mix=('a=2', 'b=1', 'c=1'))
    assert shares.method.texts_of_labels(shares.input) == (50, 25, 25)
    assert config.method.texts_of_labels(config.input, (1, 1, 2)) == (25, 25, 50)


def test_texts_of_an_adapter_are_given_once() -> None:
    with pytest.raises(ValueError, match='Expected examples or examples_per_label'):
        job_config(**given_of('fine-tune', examples_per_label=7))


def test_steps_of_few_records_are_small() -> None:
    assert job_config(**given_of('fine-tune', records=100)).method.expected_batch_size == 12
    assert job_config(**given_of('fine-tune')).method.expected_batch_size == 64


@pytest.mark.parametrize('method', ['fine-tune', 'evolve'])
def test_fewer_long_texts_go_through_the_model_together(method: str) -> None:
    short, long = (
        job_config(**given_of(method, typical_words=words)).method.rows_together for words in (10, 400)
    )
    assert long < short


def test_a_comparison_of_an_adapter_says_nothing_of_lengths() -> None:
    found = following(method='fine-tune', adapter='tuned', typical_words=40, examples=9)
    assert found == {}


# --- Training and votes ---------------------------------------------------------------


def test_long_texts_are_trained_on_in_fewer_steps_and_few_units_in_small_ones() -> None:
    def of(**changed: object) -> tuple[int, int]:
        method = job_config(**given_of('tune-refine', model='gemma3-270m', **changed)).method
        return method.tuning_steps, method.expected_batch_size

    assert of(typical_words=10) == (15, 128)
    assert 6 < of(typical_words=100)[0] < 15 and of(typical_words=400)[0] == 6
    assert of(typical_words=10, records=800) == (15, 100)
    assert of(typical_words=400, tuning_steps=20) == (20, 128)
