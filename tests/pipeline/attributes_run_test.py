"""Whole runs with several attributes: what they read, train on, release, and are evaluated by."""

import csv
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from models import attributes
from models.finetuning import label_mix, train
from models.finetuning.units import Instructions
from models.privacy.randomness import RunKey
from models.privacy.report import PrivacyReport, RestrictedReport
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.check.records import check_records
from pipeline.evaluation import reading
from pipeline.evaluation.settings import EvaluationSettings
from pipeline.methods.fine_tune import released
from pipeline.methods.fine_tune.settings import FineTuneSettings
from pipeline.run import folders, record_rules
from pipeline.settings.job_config import JobConfig
from tests.launched import launch, rows_of
from tests.models.finetuning import tiny
from tests.samples import SECRET, needs_model
from transforms import run_files

pytestmark = pytest.mark.run
ATTRIBUTES = ('category', 'sentiment')
VALUES = (('books', 'music', 'film'), ('pos', 'neg'))
COMBINATIONS = tuple(map('|'.join, itertools.product(*VALUES)))
DECLARED = {
    'attributes': ATTRIBUTES,
    'labels': (
        'category:books=Books', 'category:music=Music', 'category:film=Film',
        'sentiment:pos=good', 'sentiment:neg=bad',
    ),
}  # fmt: skip
# The same labels as one column of all values has them.
JOINED = {
    'label_field': 'both',
    'labels': tuple(
        f'{category}|{sentiment}={category.capitalize()}, {"good" if sentiment == "pos" else "bad"}'
        for category, sentiment in itertools.product(*VALUES)
    ),
}
CANARY = 'Zyxquortle'
# With an undeclared value of either attribute, of both, without one, and with one that is no value.
BAD: list[dict[str, Any]] = [
    {'category': CANARY, 'sentiment': 'pos'},
    {'category': 'books', 'sentiment': CANARY},
    {'category': CANARY, 'sentiment': CANARY},
    {'category': 'books|pos', 'sentiment': ''},
    {'category': 'books'},
    {'sentiment': 'pos'},
    {'category': 'books', 'sentiment': ['pos']},
]
REASONS = {'undeclared_label': 4, 'missing_field': 2, 'wrong_type': 1}


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One key for all runs, so that what differs between two of them is not the key."""
    monkeypatch.setattr(folders.RunKey, 'new', staticmethod(lambda: RunKey(SECRET)))
    with tiny.known():
        yield


def some_rows(number: int = 48) -> list[dict[str, Any]]:
    found = []
    for place in range(number):
        category, sentiment = VALUES[0][place % 3], VALUES[1][place // 3 % 2]
        found.append({
            'id': str(place), 'text': f'{category[:2]} {sentiment} {place % 20}', 'category': category,
            'sentiment': sentiment, 'both': f'{category}|{sentiment}',
        })  # fmt: skip
    return found


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    rows = [*some_rows(), *({'id': f'bad {place}', 'text': CANARY} | row for place, row in enumerate(BAD))]
    (tmp_path / 'in.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return tmp_path


TUNED = {
    'method': 'fine-tune', 'records': 48, 'epsilon': 6.0, 'tuning_steps': 3, 'expected_batch_size': 8,
    'lora_rank': 2, 'micro_batch_size': 4, 'max_prompt_tokens': 40, 'max_example_tokens': 10,
    'examples_per_label': 3,
}  # fmt: skip
PREDICTED = {
    'accounting': 'worst-case', 'max_private_tokens': 8, 'batches_per_label': 1, 'batch_size': 8,
    'reference_rounds': 1, 'max_prompt_tokens': 64, 'max_example_tokens': 6, 'micro_batch_size': 16,
}  # fmt: skip


def config(folder: pathlib.Path, name: str, *given: dict[str, Any], **changed: Any) -> JobConfig:
    values: dict[str, Any] = {
        'input': str(folder / 'in.jsonl'), 'output': str(folder / name), 'run_id': 'reviews',
        'record_id_field': 'id', 'delta': 1e-2, 'model': 'tiny', 'prompt': 'pretrained', 'shards': 1,
    }  # fmt: skip
    for more in (*given, changed):
        values |= more
    return job_config(**values)


def restricted_of(output: pathlib.Path) -> RestrictedReport:
    path = output.parent / f'{output.name}.curator' / run_files.RESTRICTED_REPORT
    return RestrictedReport.from_json(path.read_text())


def check_columns(rows: list[dict[str, Any]]) -> None:
    """The columns of attributes, which are taken away, say what the label says."""
    assert list(rows[0])[1:5] == ['label', 'label_words', *ATTRIBUTES]
    for row in rows:
        values = tuple(row.pop(name) for name in ATTRIBUTES)
        assert attributes.values_of(row['label']) == values and row['label'] in COMBINATIONS


@pytest.mark.parametrize(
    'method', [TUNED, pytest.param(PREDICTED, marks=pytest.mark.first)], ids=['fine-tune', 'predict']
)
def test_a_run_is_that_of_one_column_with_all_values(folder: pathlib.Path, method: dict[str, Any]) -> None:
    """Everything but how labels are read and shown: hashes, batches, gradients, votes, texts."""
    launch(config(folder, 'several', method, DECLARED), [])
    launch(config(folder, 'joined', method, JOINED), [])
    several, joined = rows_of(folder / 'several'), rows_of(folder / 'joined')
    check_columns(several)
    assert several == joined and {row['label'] for row in several} == set(COMBINATIONS)
    if method is TUNED:
        assert len(several) == 3 * len(COMBINATIONS)
        factors = [
            (folder / name / 'adapter' / 'adapter.safetensors').read_bytes() for name in ('several', 'joined')
        ]
        assert factors[0] == factors[1]
    # Records are counted as those of any label, and those that have none of it by why.
    found, other = restricted_of(folder / 'several'), restricted_of(folder / 'joined')
    assert found.rejected_by_reason == REASONS
    assert found.true_counts_by_group == other.true_counts_by_group
    assert [group.true_count for group in found.true_counts_by_group] == [8] * 6
    assert [group.restricted_label for group in found.true_counts_by_group] == list(COMBINATIONS)
    # The report is the same, but for the settings.
    reports = [
        PrivacyReport.from_json((folder / name / run_files.REPORT).read_text())
        for name in ('several', 'joined')
    ]
    assert reports[0].settings['attributes'] == 'category, sentiment'
    assert reports[0].guarantee == reports[1].guarantee and reports[0].plan == reports[1].plan
    card = (folder / 'several' / 'README.md').read_text()
    assert '| `category` | string |' in card and r'books\|pos Books, good' in card
    for path in (folder / 'several').rglob('*'):
        assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path


def test_wrong_instructions_are_those_of_other_combinations(folder: pathlib.Path) -> None:
    """FT 3.2: of every other one, those that share a value with the right one too."""
    run = config(folder, 'out', TUNED, DECLARED, prompt='document', max_prompt_tokens=120, wrong_prompts=9)
    prepared = methods.of(run).prepare(methods.solve(run, launch=True))
    assert prepared.labels == COMBINATIONS and prepared.wrong_prompts_of_step == len(COMBINATIONS) - 1
    writer = prepared.writer()
    instructions = Instructions.of(writer, prepared.labels)
    shown = [
        tiny.Bytes().decode_batch([row[:length]])[0].splitlines()[2:4]
        for row, length in zip(instructions.tokens, instructions.lengths, strict=True)
    ]
    assert shown == [
        [f'category: {category.capitalize()}', f'sentiment: {"good" if sentiment == "pos" else "bad"}']
        for category, sentiment in itertools.product(*VALUES)
    ]
    trainer = train.Trainer(prepared)
    for right in range(len(COMBINATIONS)):
        chosen = trainer._chosen(right, 7)
        assert chosen[0] == right and sorted(chosen[1:]) == [
            other for other in range(len(COMBINATIONS)) if other != right
        ]


def test_combinations_that_a_template_does_not_tell_apart_are_refused(folder: pathlib.Path) -> None:
    own = folder / 'own.toml'
    forms = 'private = "{examples}"\nexample = "{text}"\nstop = ["\\n"]\n'
    own.write_text(forms + 'public = "A {label.sentiment} review:"\n')
    run = config(folder, 'out', TUNED, DECLARED, prompt=str(own))
    with pytest.raises(ValueError, match='an instruction of its own for each label'):
        methods.of(run).prepare(methods.solve(run, launch=True))
    own.write_text(forms + 'public = "A {label.sentiment} review of {label.category}:"\n')
    run = config(folder, 'out', TUNED, DECLARED, prompt=str(own))
    found = methods.of(run).prepare(methods.solve(run, launch=True))
    (first, *_) = (found.writer().public_prompt(label) for label in found.labels)
    assert tiny.Bytes().decode_batch([first]) == ['A good review of Books:']


@needs_model
def test_an_adapter_of_the_bundled_model_writes_texts_of_all_combinations(folder: pathlib.Path) -> None:
    run = config(
        folder, 'out', TUNED, DECLARED, model='bundled', tuning_steps=2, expected_batch_size=4,
        label_name='category=About', prompt='document', max_example_tokens=12, max_prompt_tokens=48,
        examples_per_label=2,
    )  # fmt: skip
    launch(run, [])
    rows = rows_of(folder / 'out')
    check_columns(rows)
    assert sorted(row['label'] for row in rows) == sorted(COMBINATIONS * 2)
    card = released.read_card(str(folder / 'out'))
    assert (card.attributes, card.labels) == (ATTRIBUTES, DECLARED['labels'])
    # More of it, without a record: labels, names and columns are those of the training.
    (folder / 'in.jsonl').rename(folder / 'kept.jsonl')
    given = job_config(
        adapter=str(folder / 'out'), method='fine-tune', output=str(folder / 'more'), examples_per_label=4,
        label_mix=('books|pos=2', *(f'{label}=1' for label in COMBINATIONS[1:])), micro_batch_size=8,
    )  # fmt: skip
    sampling = methods.solve(given)
    names = sampling.method.label_attributes(sampling.input)
    assert names == run.method.label_attributes(run.input)
    assert names[0].name == 'About'
    launch(given, [])
    more = rows_of(folder / 'more')
    check_columns(more)
    assert [sum(row['label'] == label for row in more) for label in COMBINATIONS] == [7, 4, 4, 3, 3, 3]
    report = PrivacyReport.from_json((folder / 'more' / run_files.REPORT).read_text())
    assert 'attributes' not in report.settings and report.settings['label_mix'].startswith('books|pos=2')
    # The card's settings are not given again.
    with pytest.raises(
        ValueError, match=r"no attributes with method='fine-tune', got attributes=.* no record is read"
    ):
        methods.solve(given.replace(label_mix=(), **DECLARED))


def test_a_corpus_is_read_by_any_of_its_attributes(folder: pathlib.Path) -> None:
    launch(config(folder, 'out', TUNED, DECLARED), [])
    rows = rows_of(folder / 'out')
    for field, column in (
        ('category', 'category'),
        ('sentiment', 'sentiment'),
        (None, 'label'),
        ('both', 'label'),
        # A column of every corpus is no attribute, whatever the records have of this name.
        ('truncated', 'label'),
        ('label_words', 'label'),
    ):
        settings = EvaluationSettings(label_field=field)
        found = reading.read_source(str(folder / 'out'), settings, name='corpus', flag='CORPUS').texts
        pairs = [(row['text'], row[column]) for row in rows if row['text'].strip()]
        assert found.labels is not None and list(zip(found.texts, found.labels, strict=True)) == pairs

    # Several together, in the order that is asked for, of corpus and records alike.
    def labels_of(place: str, *attributes: str) -> list[str]:
        settings = EvaluationSettings(attributes=attributes)
        found = reading.read_source(place, settings, name='it', flag='--records')
        assert found.texts.labels is not None
        return list(found.texts.labels)

    kept = [row for row in rows if row['text'].strip()]
    assert labels_of(str(folder / 'out'), 'category', 'sentiment') == [row['label'] for row in kept]
    turned = [f'{row["sentiment"]}|{row["category"]}' for row in kept]
    assert labels_of(str(folder / 'out'), 'sentiment', 'category') == turned
    assert labels_of(str(folder / 'out'), 'sentiment', 'both') == [row['label'] for row in kept]
    records = [json.loads(line) for line in (folder / 'in.jsonl').read_text().splitlines()]
    whole = [
        f'{row["sentiment"]}|{row["category"]}'
        for row in records
        if all(isinstance(row.get(name), str) for name in ('sentiment', 'category'))
    ]
    assert len(whole) < len(records)
    assert labels_of(str(folder / 'in.jsonl'), 'sentiment', 'category') == whole


@pytest.mark.parametrize('full', [False, True], ids=['factors', 'all-weights'])
def test_combinations_are_counted_with_noise_and_the_card_has_a_count_of_each(
    folder: pathlib.Path, full: bool
) -> None:
    of_weights = {'full': True, 'lora_rank': FineTuneSettings.lora_rank} if full else {}
    launch(config(folder, 'out', TUNED, DECLARED, of_weights, label_mix_rho=2.0, examples_per_label=4), [])
    rows = rows_of(folder / 'out')
    card = released.read_card(str(folder / 'out'))
    assert (card.lora_rank is None) == full and len(card.labels) == 5
    assert card.label_counts is not None and len(card.label_counts) == len(COMBINATIONS)
    texts = label_mix.texts_of_counts(4 * len(COMBINATIONS), card.label_counts)
    assert tuple(sum(row['label'] == label for row in rows) for label in COMBINATIONS) == texts
    given = job_config(adapter=str(folder / 'out'), method='fine-tune', model='tiny',
                      output=str(folder / 'more'), examples_per_label=4, micro_batch_size=4)  # fmt: skip
    launch(given, [])
    more = rows_of(folder / 'more')
    assert tuple(sum(row['label'] == label for row in more) for label in COMBINATIONS) == texts
    with pytest.raises(ValueError, match='a noisy count of each label'):
        dataclasses.replace(card, label_counts=card.label_counts[:5])


def test_the_check_of_an_input_counts_combinations(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'in.csv'
    with path.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(('text', *ATTRIBUTES))
        writer.writerows((row['text'], row['category'], row['sentiment']) for row in some_rows())
        writer.writerows([('x', 'books', 'so so'), ('y', 'books', 'so so'), ('z', 'radio', 'pos')])
    run = job_config(input=str(path), context_budget=1.0, delta=1e-9, batch_size=8, **DECLARED)
    found = check_records(run)
    assert [(each.label, each.records) for each in found.labels] == [
        *((label, 8) for label in COMBINATIONS), ('books|so so', 2), ('radio|pos', 1),
    ]  # fmt: skip
    assert found.records == 48 and found.undeclared == 2
    assert record_rules.record_rules(run.input, run.budget.unit).labels == COMBINATIONS
