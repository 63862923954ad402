"""Several attributes in place of one label: the labels that they make, their names, and what is refused."""

import itertools
import pathlib
from typing import Any

import pytest

from models import attributes
from models.attributes import Attribute
from pipeline import methods
from pipeline.asked.config import job_config, read_config
from pipeline.methods import workers
from pipeline.run.record_rules import record_rules
from pipeline.settings.job_config import JobConfig
from transforms import evolve, finetune, predict
from transforms.read import RecordFields
from transforms.run_files import CORPUS_COLUMNS

REVIEWS = {
    'attributes': ('category', 'sentiment'),
    'labels': ('category:books=Books', 'category:music', 'sentiment:pos=positive', 'sentiment:neg'),
}
EACH_METHOD = [{}, {'method': 'fine-tune', 'records': 100, 'epsilon': 3.0}]


def config(**given: Any) -> JobConfig:
    """Small and legal; with any other method what that needs."""
    needed: dict[str, Any] = {'delta': 1e-3}
    if given.get('method', 'predict') == 'predict':
        needed |= {'aggregate': 'mean', 'max_private_tokens': 8}
    return job_config(**(needed | given))


def attributes_of(run: JobConfig) -> tuple[Attribute, ...]:
    return run.method.label_attributes(run.input)


@pytest.mark.parametrize('method', EACH_METHOD)
def test_labels_are_all_combinations_in_declared_order(method: dict[str, Any]) -> None:
    found = config(**REVIEWS, **method)
    assert found.input.label_values == ('books|pos', 'books|neg', 'music|pos', 'music|neg')
    assert found.input.label_words == {
        'books|pos': 'Books, positive', 'books|neg': 'Books, neg',
        'music|pos': 'music, positive', 'music|neg': 'music, neg',
    }  # fmt: skip
    # Words of a label are those that anybody declared.
    assert found.input.declared_words == {
        label: words for label, words in found.input.label_words.items() if label != 'music|neg'
    }
    assert [attributes.values_of(str(label)) for label in found.input.label_values] == list(
        itertools.product(['books', 'music'], ['pos', 'neg'])
    )
    rules = record_rules(found.input, found.budget.unit)
    assert rules.fields == RecordFields(text='text', attributes=('category', 'sentiment'))
    assert rules.labels == found.input.label_values
    # A share for each, whatever stands in a label.
    if found.method.name == 'fine-tune':
        mixed = config(
            **REVIEWS, **method, examples_per_label=10,
            label_mix=('books|pos=5', 'books|neg=1', 'music|pos=1', 'music|neg=1'),
        )  # fmt: skip
        assert methods.solve(mixed).texts_of_labels == (25, 5, 5, 5)


def test_values_may_be_spelt_in_every_other_way() -> None:
    found = config(attributes=('time', 'mood'), labels=('time:10:30=half past = ten', 'time:', 'mood: a b'))
    assert found.input.label_values == ('10:30|a b', '|a b')
    assert found.input.label_words['10:30|a b'] == 'half past = ten, a b'
    assert found.input.attribute_words == {'time': {'10:30': 'half past = ten', '': ''}, 'mood': {'a b': ''}}
    one = config(attributes=('mood',), labels=('mood:good', 'mood:bad'))
    assert one.input.label_values == ('good', 'bad')


def test_prompts_call_an_attribute_as_its_column_or_as_they_are_told() -> None:
    words = (('books', 'Books'), ('music', 'music')), (('pos', 'positive'), ('neg', 'neg'))
    found = attributes_of(config(**REVIEWS))
    assert found == (
        Attribute(column='category', name='category', words=words[0]),
        Attribute(column='sentiment', name='sentiment', words=words[1]),
    )
    for given, names in (
        ('category=About,sentiment=Mood', ['About', 'Mood']),
        (' sentiment = The mood ', ['category', 'The mood']),
    ):
        told = config(**REVIEWS, label_name=given)
        assert [of.name for of in attributes_of(told)] == names
        assert workers.prompt_settings(told.method, told.input)['attributes'] == attributes_of(told)
    assert attributes_of(config(label_field='ward', labels=('a',), label_name='a=b')) == ()


@pytest.mark.parametrize(
    'changed, expectation, remedy',
    [
        ({'label_field': 'ward'}, "label_field or attributes, got label_field='ward'", 'leave out one'),
        ({'attributes': ('category', 'category')}, 'distinct attributes', 'once'),
        ({'attributes': ()}, 'labels and label_field together', '--attributes'),
        ({'labels': ()}, "values of each attribute, got none of attribute='category'", 'never read'),
        (
            {'labels': ('category:books', 'category:music')},
            "got none of attribute='sentiment'",
            "--labels 'sentiment:VALUE=WORDS,...'",
        ),
        ({'labels': ('books', 'sentiment:pos')}, "COLUMN:VALUE=WORDS .* got 'books'", 'category:books=Books'),
        ({'labels': ('Books:books', 'sentiment:pos')}, "got 'Books:books', attributes=", '--attributes'),
        ({'labels': ('category=books:a', 'sentiment:pos')}, "got 'category=books:a'", '--attributes'),
        (
            {'labels': ('category:a=A', 'category:a=B', 'sentiment:pos')},
            "distinct values .* of attribute='category'",
            'once',
        ),
        ({'labels': ('category:a|b', 'sentiment:pos')}, r"without \|, .* got \['a\|b'\]", 'Spell them'),
        *(
            (
                {'attributes': (name, 'sentiment'), 'labels': (f'{name}:a', 'sentiment:pos')},
                'attributes named without',
                'Rename',
            )
            for name in ('', ' ', 'a:b', 'a,b', 'a=b', 'a|b', 'a{b}', 'a`b', 'a\nb')
        ),
        *(
            ({'attributes': (name, 'mood')}, f'columns of every corpus, got attribute={name!r}', 'rename')
            for name in CORPUS_COLUMNS
        ),
        (
            {'labels': (*(f'category:{n}' for n in range(501)), 'sentiment:a', 'sentiment:b')},
            'at most 1,000 combinations of declared values, got 501 x 2 = 1,002',
            'declare fewer',
        ),
        ({'label_name': 'Topic'}, "COLUMN=NAME of attributes in .* label_name='Topic'", 'leave it'),
        ({'label_name': 'topic=Topic'}, 'COLUMN=NAME of attributes', "--label-name 'category=About'"),
        ({'label_name': 'category='}, 'COLUMN=NAME of attributes', 'as its column is'),
    ],
)  # fmt: skip
@pytest.mark.parametrize('method', EACH_METHOD)
def test_declarations_that_do_not_fit_are_refused(
    method: dict[str, Any], changed: dict[str, Any], expectation: str, remedy: str
) -> None:
    with pytest.raises(ValueError, match=expectation) as caught:
        config(**(REVIEWS | method | changed))
    assert caught.match(remedy)


def test_as_many_combinations_as_the_cap_are_taken() -> None:
    labels = (*(f'category:{n}' for n in range(500)), 'sentiment:a', 'sentiment:b')
    assert len(config(attributes=REVIEWS['attributes'], labels=labels).input.label_values) == 1_000
    assert attributes.MOST_COMBINATIONS == 1_000


def test_no_attribute_takes_the_column_of_any_corpus() -> None:
    """Columns of every method count, with and without a structure, and words of labels."""
    of_methods = (predict.COLUMNS, predict.STRUCTURED_COLUMNS, finetune.COLUMNS, evolve.COLUMNS)
    found = {name for columns in of_methods for name in columns.with_label_words({'a': 'A'}).schema.names}
    assert found == set(CORPUS_COLUMNS)


def test_a_file_may_hold_a_table_of_words_for_each_attribute(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'run.toml'
    head = (
        'delta = 1e-5\naggregate = "mean"\nmax_private_tokens = 8\nattributes = ["category", "sentiment"]\n'
    )
    path.write_text(
        f'{head}[labels.category]\nbooks = "Books"\nmusic = ""\n'
        '[labels.sentiment]\npos = "positive"\nneg = ""\n'
    )
    read = read_config(str(path), {})
    assert (read.input.attributes, read.input.labels) == (REVIEWS['attributes'], REVIEWS['labels'])
    (tmp_path / 'kept.toml').write_text(read.to_toml())
    assert read_config(str(tmp_path / 'kept.toml'), {}) == read
    listed = ', '.join(f'"{label}"' for label in REVIEWS['labels'])
    path.write_text(f'{head}labels = [{listed}]\n')
    assert read_config(str(path), {}) == read
    for wrong in ('[labels.category]\nbooks = 2\n', '[labels.category.books]\na = "b"\n'):
        path.write_text(head + wrong)
        with pytest.raises(ValueError, match='Expected a table of words by label'):
            read_config(str(path), {})
