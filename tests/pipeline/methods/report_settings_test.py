"""A report's words on a run's settings."""

from typing import Any

import pytest

from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods.predict import report as of_predict
from pipeline.settings.job_config import JobConfig

FILES = {'checkpoint': '/weights', 'tokenizer': '/tokenizer.model'}


def config(**settings: object) -> JobConfig:
    return job_config(records=1000, epsilon=1.0, **settings)


def public_settings(run: JobConfig) -> dict[str, Any]:
    return of_predict.settings(methods.solve(run))


@pytest.mark.parametrize(
    ('settings', 'prompt'),
    [
        ({}, 'pretrained'),
        ({'model': 'gemma3-270m', **FILES}, 'document'),
        ({'prompt': 'instruction'}, 'instruction'),
        ({'prompt': '/home/curator/own.toml'}, 'own template'),
    ],
)
def test_the_prompt_is_named_that_the_model_was_shown(settings: dict[str, str], prompt: str) -> None:
    """By default too, and without the path of a template of the curator's."""
    found = public_settings(config(**settings))
    assert found['prompt'] == prompt and '/' not in str(found['prompt'])


def test_the_words_of_the_public_prompt_are_said() -> None:
    words = {'corpus_description': 'Notes, one after another.', 'label_name': 'Ward', 'text_name': 'Note'}
    found = public_settings(config(**words))
    assert {name: found[name] for name in words} == words
    assert public_settings(config())['corpus_description'] == 'A collection of texts, one after another.'


def test_the_least_length_of_an_example_is_said_where_there_is_one() -> None:
    assert public_settings(config())['min_example_tokens'] == 8
    assert public_settings(config(min_example_tokens=0))['min_example_tokens'] == 0
    assert 'min_example_tokens' not in public_settings(config(regex='[a-z]+'))


def test_the_model_is_named_with_its_terms() -> None:
    found = public_settings(config(model='gemma3-270m', **FILES))['model_origin']
    terms = 'under the Gemma Terms of Use, ai.google.dev/gemma/terms'
    assert found == f'Gemma 3 270M by Google, or weights made from it, {terms}'
    found = public_settings(config(model='gemma3-270m'))['model_origin']
    assert found == f'Gemma 3 270M by Google, {terms}'
    assert 'dp-corpus' in str(public_settings(config())['model_origin'])
