"""The measure of in-context use: accuracies on real texts by what a prompt shows."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping, Sequence
from typing import final

import numpy as np

from pipeline.evaluation import classifiers, comparison
from pipeline.evaluation.in_context.answers import Questions, answers, calibrated
from pipeline.evaluation.in_context.prompts import (
    AFTER_TEXT,
    BEFORE_TEXT,
    HEADER,
    Shots,
    drawn_prompts,
    words_of,
)
from pipeline.evaluation.in_context.settings import InContextSettings
from pipeline.evaluation.measure import (
    Chart,
    Figure,
    Findings,
    Measure,
    NotDefined,
    Progress,
    Series,
    Setting,
)
from pipeline.evaluation.sources import Sources

# Zhao et al. 2021, section 5.
CONTENT_FREE = ('N/A', '', '[MASK]')
# Comparisons: the start of the figures' names, and the examples' name in tables.
_CORPUS, _RECORDS, _PUBLIC = (
    ('', 'examples of the corpus'),
    ('real_', 'examples of the records'),
    ('public_', 'examples of the public prompt'),
)
_ZERO_SHOT = ('zero_shot_', 'no examples')

# A mean and its standard error.
type _Mean = tuple[float | None, float | None]


@final
class InContext(Measure):
    """Accuracy on real texts of a decoder whose prompt shows examples, with contextual calibration.

    The probabilities of the labels after a text are divided by those after content-free inputs in the same
    prompt, renormalised, and averaged over orders of the examples; the largest is the answer.
    """

    name = 'in-context'
    title = 'In-context use'
    question = 'How well does a language model that is shown texts of the corpus label real ones?'
    source = 'Zhao et al. 2021, Calibrate Before Use, section 5; PP section 5.1 and figure 2'
    needs = frozenset({'test'})
    needs_labels = True

    def __init__(self, settings: InContextSettings | None = None) -> None:
        self._settings = settings

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        settings, test = self._settings, sources.test
        if settings is None:
            raise NotDefined('It needs a model to ask. Give --in-context-model, such as gemma3-270m.')
        assert test is not None and test.labels is not None
        words = words_of(settings, test)
        prompts = {_CORPUS: drawn_prompts(sources, sources.corpus, words, settings)}
        rows = comparison.drawn(
            classifiers.draws(sources, 'in-context test'),
            len(test),
            min(len(test), settings.most_test_texts),
        )
        places = {label: place for place, label in enumerate(words)}
        true = np.array([places[test.labels[row]] for row in rows])
        queries = (*CONTENT_FREE, *(test.texts[row] for row in rows))

        lacking: dict[tuple[str, str], str] = {}
        for key, texts, name in (
            (_RECORDS, sources.records, 'records'),
            (_PUBLIC, sources.public, 'public texts'),
        ):
            if texts is None:
                lacking[key] = f'No {name} were given.'
            elif texts.labels is None:
                lacking[key] = f'The {name} have no labels.'
            else:
                try:
                    prompts[key] = drawn_prompts(sources, texts, words, settings)
                except NotDefined:
                    lacking[key] = f'The {name} have fewer than two of the labels.'
        prompts[_ZERO_SHOT] = [()]
        of_corpus = Questions(
            settings=settings, words=tuple(words.items()), prompts=tuple(prompts[_CORPUS]), queries=queries
        )
        # The other prompts are the same for every corpus, and so asked once.
        beside = [shots for key, each in prompts.items() if key != _CORPUS for shots in each]
        others = dataclasses.replace(of_corpus, prompts=tuple(beside))
        shares, parts = [], of_corpus.parts + others.parts
        for before, questions in ((0, of_corpus), (of_corpus.parts, others)):
            told = functools.partial(lambda before, done: progress(before + done, parts), before)
            shares.append(answers(dataclasses.replace(questions, progress=told)))
            progress(before + questions.parts, parts)
        ends = np.cumsum([len(each) for each in prompts.values()])
        outcomes = {
            key: _Outcome.of(of_key, settings.draws if key != _ZERO_SHOT else 1)
            for key, of_key in zip(prompts, np.split(np.concatenate(shares), ends[:-1]), strict=True)
        }
        return _findings(sources, of_corpus, true, prompts, outcomes, lacking)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Outcome:
    """Answers of one kind of prompt.

    Attributes:
        averaged: Label of each text by calibrated probabilities, averaged over orders, `[draws, n]`.
        plain: The same without calibration.
        single: Label of each text by the calibrated probabilities of one order, `[draws, orders, n]`.
    """

    averaged: np.ndarray
    plain: np.ndarray
    single: np.ndarray

    @classmethod
    def of(cls, shares: np.ndarray, draws: int) -> _Outcome:
        """The outcome of `answers` of all orders of each draw, whose first queries are content-free."""
        by_draw = shares.reshape(draws, -1, *shares.shape[1:])
        content_free, texts = np.split(by_draw, [len(CONTENT_FREE)], axis=2)
        fair = calibrated(texts, content_free)
        return cls(
            averaged=fair.mean(axis=1).argmax(axis=-1),
            plain=texts.mean(axis=1).argmax(axis=-1),
            single=fair.argmax(axis=-1),
        )


def _mean(of_draws: np.ndarray) -> _Mean:
    """Mean over draws with its standard error, which one draw has not."""
    count = len(of_draws)
    # Equal shares have no deviation, and not one of rounding.
    error = float(of_draws.std(ddof=1) / math.sqrt(count)) if np.ptp(of_draws) else 0.0
    return float(of_draws.mean()), error if count > 1 else None


def _findings(
    sources: Sources,
    questions: Questions,
    true: np.ndarray,
    prompts: Mapping[tuple[str, str], Sequence[Shots]],
    outcomes: Mapping[tuple[str, str], _Outcome],
    lacking: Mapping[tuple[str, str], str],
) -> Findings:
    words = dict(questions.words)
    figures: dict[str, list[Figure]] = {'accuracy': [], 'plain': [], 'single': []}
    for key in (_CORPUS, _RECORDS, _PUBLIC, _ZERO_SHOT):
        prefix, title = key
        outcome, note = outcomes.get(key), lacking.get(key, '')
        averaged: _Mean = (None, None)
        plain, single = averaged, averaged
        if outcome is not None:
            note = _note_of(prompts.get(key), words)
            averaged = _mean((outcome.averaged == true).mean(axis=-1))
            plain = _mean((outcome.plain == true).mean(axis=-1))
            single = _mean((outcome.single == true).mean(axis=(1, 2)))
        for kind, name, label, (value, error) in (
            ('accuracy', 'accuracy', f'Accuracy, {title}', averaged),
            ('plain', 'uncalibrated_accuracy', f'Accuracy without calibration, {title}', plain),
            ('single', 'one_order_accuracy', f'Accuracy of one order, {title}', single),
        ):
            if kind == 'single' and key == _ZERO_SHOT:
                continue
            figures[kind].append(
                Figure(
                    name=prefix + name,
                    label=label,
                    value=value,
                    standard_error=error,
                    better='higher' if key == _CORPUS and kind == 'accuracy' else 'neither',
                    note=note,
                )
            )
    counts = np.bincount(true, minlength=len(words))
    by_label = [
        float((outcomes[_CORPUS].averaged[:, true == place] == place).mean()) if counts[place] else None
        for place in range(len(words))
    ]
    tested = [(label, value) for label, value in zip(words, by_label) if value is not None]
    return Findings(
        settings=_settings(sources, questions),
        figures=(
            *figures['accuracy'],
            Figure(
                name='majority_accuracy',
                label='Accuracy, majority label',
                value=float(counts.max() / len(true)),
                note='The best answer that is the same for all texts.',
            ),
            *figures['plain'],
            *figures['single'],
            Figure(
                name='test_texts',
                label='Texts asked about',
                value=len(true),
                note=f'Another draw of so many moves an accuracy by up to {0.5 / math.sqrt(len(true)):.2f}, '
                'beside the error over draws of examples.',
            ),
            *(
                Figure(
                    name=f'accuracy_by_label/{label}',
                    label=f'Accuracy on {label}',
                    value=value,
                    better='higher',
                )
                for label, value in zip(words, by_label)
            ),
        ),
        charts=(
            Chart(
                kind='bars',
                title='Accuracy on real texts by what a prompt shows',
                x_label='examples',
                y_label='accuracy',
                series=tuple(
                    Series(
                        name=name,
                        x=tuple(title for _, title in outcomes),
                        y=tuple(float((labels == true).mean()) for labels in of_kind),
                    )
                    for name, of_kind in (
                        ('calibrated', [each.averaged for each in outcomes.values()]),
                        ('not calibrated', [each.plain for each in outcomes.values()]),
                    )
                ),
            ),
            Chart(
                kind='bars',
                title='Accuracy on real texts by label, with examples of the corpus',
                x_label='label',
                y_label='accuracy',
                series=(
                    Series(
                        name='calibrated',
                        x=tuple(label for label, _ in tested),
                        y=tuple(value for _, value in tested),
                    ),
                ),
            ),
        ),
    )


def _note_of(prompts: Sequence[Shots] | None, words: Mapping[str, str]) -> str:
    """The number of labels without an example, in words; empty where there is none."""
    if prompts is None:
        return ''
    missing = len(words) - len({label for _, label in prompts[0]})
    return f'No examples of {missing} of {len(words)} labels, which it lacks.' if missing else ''


def _settings(sources: Sources, questions: Questions) -> dict[str, Setting]:
    """All that the answers to the corpus's prompts depend on beside the texts."""
    settings, model, prompts = questions.settings, questions.model(), questions.prompts
    return {
        'model': settings.model,
        'model_fingerprint': model.fingerprint,
        'dtype': questions.dtype,
        'header': HEADER.format(labels='…'),
        'prompt': json.dumps(f'{BEFORE_TEXT} …{AFTER_TEXT} …', ensure_ascii=False),
        'label_words': ', '.join(words for _, words in questions.words),
        'label_score': 'probability of the first token after what the words of all labels begin with, among '
        'those of all labels',
        'calibration': 'divided by the mean over content-free inputs in the same prompt, renormalised',
        'content_free_inputs': json.dumps(CONTENT_FREE),
        'orders_averaged': 'calibrated probabilities, before the largest is taken',
        'examples_per_label': settings.examples_per_label,
        'examples_of_the_corpus': len(prompts[0]),
        'draws': settings.draws,
        'orders': len(prompts) // settings.draws,
        'all_orders': len(prompts) // settings.draws == math.factorial(len(prompts[0])),
        'most_orders': settings.most_orders,
        'test_texts': len(questions.queries) - len(CONTENT_FREE),
        'most_test_texts': settings.most_test_texts,
        'most_text_tokens': settings.most_text_tokens,
        'prompt_tokens': model.decoder.shapes.max_prompt_tokens,
        'standard_error': 'over draws of examples; the test texts are the same in all',
        'seed': sources.seed,
        **comparison.library_versions('jax', 'numpy'),
    }
