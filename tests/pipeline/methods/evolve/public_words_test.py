"""The words by which sampled texts that are none are told are those of the run's own prompts."""

import pathlib
from typing import Any

import pytest

from models.sampling.non_texts import non_text
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods.evolve import graph

ASKED: dict[str, Any] = {'method': 'evolve', 'records': 5000, 'epsilon': 1.0, 'text_name': 'Question'}


def words_of(**changes: Any) -> Any:
    run = methods.solve(job_config(**ASKED | changes))
    return graph._public_words(run, run.method)


def test_names_and_words_of_labels_are_the_prompts() -> None:
    words = words_of(label_field='kind', labels=('a=Card lost', 'b'), label_name='Topic')
    assert words.names == ('Question', 'Topic') and {'Card lost', 'b'} <= set(words.others)
    assert non_text('Topic: Card lost', words) == "prompt's words"
    several = words_of(attributes=('kind', 'mood'), labels=('kind:a', 'mood:calm'), label_name='kind=Topic')
    assert several.names == ('Question', 'Topic', 'mood')


def test_a_prompt_of_another_script_asks_for_that_script(tmp_path: pathlib.Path) -> None:
    """The fields of a template are no words of it."""
    text = 'Где моя карта?'
    assert non_text(text, words_of()) == 'another script'
    prompt = tmp_path / 'prompt.toml'
    prompt.write_text(
        "private = 'Вопросы: {examples}'\npublic = 'Вопросы клиентов банка: '\nexample = '{text} '\n"
    )
    assert non_text(text, words_of(prompt=str(prompt))) is None


@pytest.mark.parametrize('changes', [{'any_text': True}, {'regex': '[a-z]{3,9}'}])
def test_every_text_counts_as_asked_for_or_where_a_structure_decides(changes: dict[str, Any]) -> None:
    assert words_of(**changes) is None
