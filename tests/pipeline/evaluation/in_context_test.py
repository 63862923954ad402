"""In-context use: answers are those of one prompt at a time, and what the model prefers is divided out."""

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest

from models.decoders import family
from models.decoders.decoder import Decoder, Shapes
from models.decoders.tokenizer import Tokenizer
from pipeline.evaluation import evaluation, measures
from pipeline.evaluation.in_context import answers as answers_lib
from pipeline.evaluation.in_context import in_context
from pipeline.evaluation.in_context.answers import Questions, calibrated
from pipeline.evaluation.in_context.in_context import CONTENT_FREE, InContext
from pipeline.evaluation.in_context.prompts import orders
from pipeline.evaluation.in_context.settings import InContextSettings
from pipeline.evaluation.measure import Findings, NotDefined
from pipeline.evaluation.settings import EvaluationSettings
from pipeline.evaluation.sources import Sources, Texts
from tests.pipeline.evaluation.texts import NoEmbedder, figures_of

pytestmark = pytest.mark.heavy

MODEL = 'bundled'
SETTINGS = InContextSettings(
    model=MODEL, dtype='float32', draws=2, most_orders=6, most_test_texts=6, most_text_tokens=12
)
WORDS = {'1': 'River', '2': 'Film', '3': 'School'}
SHOTS = (
    ('The river flows north to the sea.', '1'),
    ('It is a 1994 film directed by a young man.', '2'),
    ('A public high school in the north of the city.', '3'),
)
CORPUS = Texts(
    name='corpus', texts=tuple(text for text, _ in SHOTS), labels=tuple(label for _, label in SHOTS)
)
TEST = Texts(
    name='test',
    texts=(
        'a tributary of the river', 'a drama film of 2003\nwith songs', 'the school has 300 students',
        'a short silent film', 'the stream joins the lake', 'teachers and pupils',
    ),
    labels=('1', '2', '3', '2', '1', '3'),
)  # fmt: skip
LABELS = tuple(f'{value}={words}' for value, words in WORDS.items())


def measure(
    corpus: Texts = CORPUS, test: Texts = TEST, settings: InContextSettings | None = None, **others: Any
) -> Findings:
    return InContext(settings or dataclasses.replace(SETTINGS, labels=LABELS)).measure(
        Sources(corpus=corpus, test=test, embedder=NoEmbedder(), **others), lambda done, total: None
    )


@functools.cache
def loaded() -> tuple[Decoder, Tokenizer]:
    """A decoder of one row at a time."""
    own, files = family.family_of(MODEL), family.files_of(MODEL)
    shapes = Shapes(max_prompt_tokens=128, max_example_tokens=1, micro_batch_size=1)
    decoder = own.load_decoder(MODEL, files.checkpoint, shapes=shapes, dtype='float32')
    return decoder, own.load_tokenizer(MODEL, files.tokenizer)


def alone(shots: tuple[tuple[str, str], ...], text: str) -> np.ndarray:
    """Probabilities of the labels after one prompt, written as a text and read in one piece, `[K]`."""
    decoder, tokenizer = loaded()

    def cut(text: str) -> str:
        (ids,) = tokenizer.encode_batch([' ' + ' '.join(text.split())] if text else [''])
        return tokenizer.decode_batch([ids[: SETTINGS.most_text_tokens]])[0].strip()

    prompt = 'Classify the texts into the categories of River, Film and School.'
    for shown, label in shots:
        prompt += f'\n\nText: {cut(shown)}\nLabel: {WORDS[label]}'
    prompt += f'\n\nText: {cut(text)}\nLabel:' if text else '\n\nText:\nLabel:'
    (ids,) = tokenizer.encode_batch([prompt])
    states, _ = decoder.prefill([np.append(tokenizer.start_tokens, ids).astype(np.int32)])
    logits = np.asarray(decoder.logits(decoder.weights, states[0]), np.float64)[0]
    assert logits.shape == (decoder.vocab_size,)
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    first = [tokenizer.encode_batch([' ' + word])[0][0] for word in WORDS.values()]
    return probabilities[first] / probabilities[first].sum()


@pytest.fixture(scope='module')
def one_at_a_time() -> np.ndarray:
    """Probabilities of every order of the examples, and of none, `[1 + orders, queries, K]`."""
    prompts = ((), *itertools.permutations(SHOTS))
    return np.array([[alone(shots, text) for text in (*CONTENT_FREE, *TEST.texts)] for shots in prompts])


# --- Against one prompt at a time ------------------------------------------------


def test_answers_are_those_of_one_prompt_at_a_time(one_at_a_time: np.ndarray) -> None:
    questions = Questions(
        settings=SETTINGS,
        words=tuple(WORDS.items()),
        prompts=((), *itertools.permutations(SHOTS)),
        queries=(*CONTENT_FREE, *TEST.texts),
    )
    found = answers_lib.answers(questions)
    np.testing.assert_allclose(found, one_at_a_time, atol=1e-4)
    # The order, the examples and the text matter.
    assert np.ptp(found[1:], axis=0).max() > 0.01 and np.ptp(found[1], axis=0).max() > 0.01


@pytest.mark.first
def test_figures_are_those_of_a_loop_over_prompts(one_at_a_time: np.ndarray) -> None:
    places = [list(WORDS).index(label) for label in TEST.labels or ()]

    def right(of_orders: np.ndarray, *, calibrate: bool) -> float:
        """Share of test texts whose probabilities, averaged over orders, are largest at their label."""
        count = 0
        for row, place in enumerate(places):
            mean = np.zeros(3)
            for of_order in of_orders:
                weights = of_order[len(CONTENT_FREE) + row]
                if calibrate:
                    weights = weights / np.mean(of_order[: len(CONTENT_FREE)], axis=0)
                mean += weights / weights.sum()
            count += int(mean.argmax()) == place
        return count / len(places)

    figures = figures_of(measure())
    # One text of each label, so that every draw is the same, and all six orders are there.
    assert figures['accuracy'] == pytest.approx(right(one_at_a_time[1:], calibrate=True))
    assert figures['uncalibrated_accuracy'] == pytest.approx(right(one_at_a_time[1:], calibrate=False))
    assert figures['zero_shot_accuracy'] == pytest.approx(right(one_at_a_time[:1], calibrate=True))
    single = [right(of_order[None], calibrate=True) for of_order in one_at_a_time[1:]]
    assert figures['one_order_accuracy'] == pytest.approx(np.mean(single))
    of_labels = [figures[f'accuracy_by_label/{label}'] or 0.0 for label in WORDS]
    assert np.mean(of_labels) == pytest.approx(figures['accuracy'])
    assert figures['majority_accuracy'] == pytest.approx(1 / 3)
    # A twin without calibration is another measure.
    assert figures['accuracy'] != figures['uncalibrated_accuracy']


def test_rows_do_not_hang_on_the_block_that_they_are_in(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = Questions(
        settings=SETTINGS,
        words=tuple(WORDS.items()),
        prompts=tuple(itertools.permutations(SHOTS)) * 2,
        queries=TEST.texts,
    )
    whole = answers_lib.answers(questions)
    monkeypatch.setattr(answers_lib, 'MOST_ROWS', 8)
    answers_lib.answers.cache_clear()
    np.testing.assert_allclose(answers_lib.answers(questions), whole, atol=1e-5)


# --- Calibration -----------------------------------------------------------------


def test_what_the_model_prefers_without_content_is_divided_out() -> None:
    questions = Questions(
        settings=SETTINGS, words=tuple(WORDS.items()), prompts=(SHOTS,), queries=(*CONTENT_FREE, 'N/A')
    )
    found = answers_lib.answers(questions)[0]
    content_free, text = found[:-1], found[-1:]
    assert content_free.argmax(axis=-1).tolist() == [int(text.argmax())] * 3
    # The mean of the content-free inputs has no preference, and neither has the input if it is the only one.
    mean = content_free.mean(axis=0, keepdims=True)
    np.testing.assert_array_equal(calibrated(mean, content_free), np.full((1, 3), 1 / 3))
    np.testing.assert_array_equal(calibrated(text, text), np.full((1, 3), 1 / 3))


def test_calibration_by_hand() -> None:
    # 0.6 / 0.8 and 0.4 / 0.2, renormalised: a preference for the first becomes one for the second.
    found = calibrated(np.array([[0.6, 0.4]]), np.array([[0.9, 0.1], [0.7, 0.3]]))
    np.testing.assert_allclose(found, [[0.75 / 2.75, 2 / 2.75]])


# --- Examples, orders and draws --------------------------------------------------


def test_all_orders_or_as_many_drawn_ones() -> None:
    rng = np.random.default_rng(0)
    assert sorted(orders(3, 6, rng)) == sorted(itertools.permutations(range(3)))
    drawn = orders(9, 8, rng)
    assert len(set(drawn)) == 8 and all(sorted(order) == list(range(9)) for order in drawn)
    assert orders(9, 8, np.random.default_rng(1)) == orders(9, 8, np.random.default_rng(1)) != drawn
    # More than a computer could list.
    assert len(orders(200, 4, rng)) == 4


def larger(count: int, name: str) -> Texts:
    texts = tuple(f'{text} {number}' for number in range(count) for text, _ in SHOTS)
    return Texts(name=name, texts=texts, labels=CORPUS.labels * count if CORPUS.labels else None)


def test_draws_have_an_error_and_comparisons_a_value() -> None:
    small = dataclasses.replace(
        SETTINGS, labels=LABELS, most_orders=2, examples_per_label=2, most_test_texts=4
    )
    findings = measure(
        larger(4, 'corpus'), settings=small, records=larger(3, 'records'), public=larger(2, 'public')
    )
    figures = {figure.name: figure for figure in findings.figures}
    for name in ('accuracy', 'real_accuracy', 'public_accuracy'):
        assert figures[name].value is not None and figures[name].standard_error is not None
    assert figures['zero_shot_accuracy'].standard_error is None
    assert figures['test_texts'].value == 4
    assert findings.settings['examples_of_the_corpus'] == 6 and findings.settings['orders'] == 2
    assert not findings.settings['all_orders'] and measure().settings['all_orders']
    assert len({figure.name for figure in findings.figures}) == len(findings.figures)
    assert findings == measure(
        larger(4, 'corpus'), settings=small, records=larger(3, 'records'), public=larger(2, 'public')
    )


def test_another_seed_draws_others(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Questions] = []
    answers = answers_lib.answers

    def watched(questions: Questions) -> np.ndarray:
        seen.append(questions)
        return answers(questions)

    monkeypatch.setattr(in_context, 'answers', watched)
    small = dataclasses.replace(SETTINGS, labels=LABELS, most_orders=1, draws=1, most_test_texts=2)
    for seed in (0, 0, 1):
        measure(larger(20, 'corpus'), settings=small, seed=seed)
    assert seen[0] == seen[2] and seen[0].prompts != seen[4].prompts and seen[0].queries != seen[4].queries
    labels = [label for _, label in seen[0].prompts[0]]
    assert sorted(labels) == list(WORDS)


def test_what_several_corpora_are_compared_with_is_asked_once() -> None:
    answers_lib.answers.cache_clear()
    sources = [
        Sources(corpus=larger(count, f'{count}'), test=TEST, records=CORPUS, embedder=NoEmbedder())
        for count in (2, 3)
    ]
    small = dataclasses.replace(SETTINGS, labels=LABELS, most_orders=1, draws=1, most_test_texts=2)
    told: list[tuple[str, str, int, int]] = []
    made = evaluation.evaluate(sources, [InContext(small)], on_progress=lambda *parts: told.append(parts))
    assert made.failed == () and answers_lib.answers.cache_info().misses == 3
    for corpus in ('2', '3'):
        done = [parts for name, _, *parts in told if name == corpus]
        # Five queries to the corpus's prompts and five to the others.
        assert done[-2] == [10, 10] and all(
            before <= after for [before, _], [after, _] in itertools.pairwise(done[1:-1])
        )


# --- Labels that differ, and what is not there -----------------------------------


def test_numbers_are_told_apart_after_the_space_that_they_share() -> None:
    findings = measure(settings=SETTINGS)
    assert findings.settings['label_words'] == '1, 2, 3'
    assert figures_of(findings)['accuracy'] is not None


@pytest.mark.parametrize('labels', ['1=New York,2=New Jersey,3=Boston', '1=Film,2=Film,3=School'])
def test_labels_that_begin_with_one_token_are_refused(labels: str) -> None:
    with pytest.raises(NotDefined, match=r'2 labels \(\w[\w ,]*\) have words that begin with the same token'):
        measure(settings=dataclasses.replace(SETTINGS, labels=tuple(labels.split(','))))


def test_values_of_test_texts_are_not_quoted() -> None:
    secret = dict(zip(WORDS, ('Zanzibar north', 'Zanzibar south', 'Boston')))
    test, corpus = (
        Texts(name=of.name, texts=of.texts, labels=tuple(secret[label] for label in of.labels or ()))
        for of in (TEST, CORPUS)
    )
    with pytest.raises(NotDefined, match='^2 labels have words') as refused:
        measure(corpus, test, SETTINGS)
    assert 'Zanzibar' not in str(refused.value)


def one_label(name: str) -> Texts:
    return Texts(name=name, texts=TEST.texts, labels=('1',) * len(TEST))


@pytest.mark.parametrize(
    ('corpus', 'test', 'labels', 'reason'),
    [
        (one_label('corpus'), TEST, LABELS, 'has 1 of the 3 labels'),
        (CORPUS, one_label('test'), LABELS, 'one label only'),
        (CORPUS, one_label('test'), (), 'one label only'),
        (Texts(name='corpus', texts=('a',), labels=('x',)), TEST, (), 'has 0 of the 3 labels'),
        (CORPUS, TEST, ('1=River', '2=Film'), 'Test texts have 1 labels that --in-context-labels'),
    ],
)
def test_too_few_labels_define_nothing(
    corpus: Texts, test: Texts, labels: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(NotDefined, match=reason):
        measure(corpus, test, dataclasses.replace(SETTINGS, labels=labels))


def test_without_a_model_it_is_not_defined_and_says_what_to_give() -> None:
    with pytest.raises(NotDefined, match='--in-context-model'):
        InContext().measure(Sources(corpus=CORPUS, test=TEST, embedder=NoEmbedder()), lambda *_: None)


def test_comparisons_that_are_not_there_say_why_and_lacking_labels_are_told() -> None:
    two = Texts(name='corpus', texts=CORPUS.texts[:2], labels=('1', '2'))
    unlabelled = Texts(name='records', texts=CORPUS.texts)
    figures = {
        figure.name: figure for figure in measure(two, records=unlabelled, public=one_label('public')).figures
    }
    assert figures['accuracy'].note.startswith('No examples of 1 of 3 labels')
    assert figures['real_accuracy'].value is None and 'no labels' in figures['real_accuracy'].note
    assert 'fewer than two' in figures['public_accuracy'].note
    assert figures['public_one_order_accuracy'].value is None
    assert (
        figures_of(measure(test=dataclasses.replace(TEST, labels=('1', '2') * 3)))['accuracy_by_label/3']
        is None
    )


# --- Flags -----------------------------------------------------------------------


def test_flags_become_settings() -> None:
    labels = ('1=River', '2=Film', '3')
    settings = EvaluationSettings(in_context_model=MODEL, in_context_labels=labels, in_context_orders=2)
    made = settings.in_context
    assert made is not None and made == InContextSettings(model=MODEL, labels=labels, most_orders=2)
    assert made.label_words == {'1': 'River', '2': 'Film', '3': '3'}
    assert EvaluationSettings().in_context is None


@pytest.mark.parametrize(
    ('model', 'given', 'words'),
    [
        (None, {'checkpoint': 'weights'}, 'Give --in-context-model'),
        ('gemma3-271m', {}, 'Did you mean gemma3-270m'),
        ('gemma3-1b', {}, 'Expected a checkpoint and a tokenizer'),
        (MODEL, {'in_context_labels': ('1=A', '1=B')}, 'Expected distinct labels'),
        (MODEL, {'in_context_labels': ('1=', '2=B')}, 'VALUE=WORDS or VALUE'),
        (MODEL, {'in_context_examples': 0}, 'examples_per_label >= 1'),
    ],
)
def test_flags_that_make_no_settings(model: str | None, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _ = EvaluationSettings(in_context_model=model, **given).in_context


def test_weights_that_are_not_there_are_told_before_anything_is_read(tmp_path: Any) -> None:
    settings = EvaluationSettings(
        only=('in-context',), in_context_model='gemma3-270m', checkpoint=str(tmp_path / 'none.gguf')
    )
    with pytest.raises(FileNotFoundError, match='none.gguf'):
        measures.measures_of(settings)


# --- Real weights ----------------------------------------------------------------


def test_a_real_model_reads_topics(gemma_file: Any) -> None:
    """Two labels by nothing but examples and words: chance is a half."""
    corpus = Texts(
        name='corpus',
        texts=('The team won the final by two goals.', 'The bank lent the firm two million dollars.'),
        labels=('1', '2'),
    )
    test = Texts(
        name='test',
        texts=(
            'The striker scored twice.',
            'Shares fell as profits shrank.',
            'The coach praised the goalkeeper.',
            'The central bank raised interest rates.',
            'She won gold in the marathon.',
            'The merger cost ten jobs.',
        ),
        labels=('1', '2') * 3,
    )
    settings = InContextSettings(
        model='gemma3-270m', checkpoint=str(gemma_file), labels=('1=Sports', '2=Business'), draws=1
    )
    figures = figures_of(measure(corpus, test, settings))
    assert figures['accuracy'] is not None and figures['accuracy'] >= 5 / 6
    assert math.isclose(figures['majority_accuracy'] or 0, 0.5)
