"""The classifiers that people would train on a corpus, and the scores that they reach.

Two of them, which differ in what they see of a text: TF-IDF of words and pairs of words, and the
embedder's vector. On top of either sits logistic regression, where labels weigh alike however many texts
they have. A word is a run of letters and digits, and each mark is one, so that every text has a word; in
scripts without spaces the words are long and rarely met again, and the vectors serve better.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from pipeline.evaluation import comparison
from pipeline.evaluation.measure import NotDefined, Setting
from pipeline.evaluation.sources import Sources, Texts

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

type Kind = Literal['tfidf', 'head']
KINDS: tuple[Kind, ...] = get_args(Kind.__value__)
TITLES: dict[Kind, str] = {'tfidf': 'TF-IDF', 'head': 'head on vectors'}
# Texts of one source; a larger one is sampled.
MOST_TEXTS = 20_000
# A column of more values is a name, not a label.
MOST_LABELS = 200
MAX_FEATURES = 50_000
# Labels times words: Newton's method holds a few copies of such a matrix.
_MAX_COEFFICIENTS = 4_000_000
_TOKEN = r'(?u)\w+|[^\w\s]'
# Entries of unit rows are small, which scikit-learn's default of 1 punishes.
_C = 10.0
_MAX_ITERATIONS = 200
_TOLERANCE = 1e-4
# Solvers of one problem: Newton's method takes the fewest passes over many sparse words, L-BFGS the least
# time on few dense columns.
_SOLVERS: dict[Kind, Literal['newton-cg', 'lbfgs']] = {'tfidf': 'newton-cg', 'head': 'lbfgs'}
# Resamples of the bootstrap.
RESAMPLES = 200
# Times that a classifier is trained anew on a resample of its texts, on at most so many, and tested on
# at most so many: a small corpus varies far more by its own texts than by those it is tested on.
RETRAINED = 10
MOST_RETRAINED_ON = 1_000
MOST_RETESTED = 2_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Labelled:
    """Texts to train or test on.

    Attributes:
        labels: `[n]` integers, places in a tuple of labels that goes with them.
        vectors: `[n, d]` float32, the embedder's.
    """

    texts: tuple[str, ...] = dataclasses.field(repr=False)
    labels: np.ndarray = dataclasses.field(repr=False)
    vectors: np.ndarray = dataclasses.field(repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: np.ndarray) -> Labelled:
        """The texts at these places, in their order."""
        return Labelled(
            texts=tuple(self.texts[row] for row in rows), labels=self.labels[rows], vectors=self.vectors[rows]
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """Agreement of predicted labels with true ones.

    Attributes:
        macro_f1: Mean of `f1` over its numbers.
        f1: Of each label, `[K]`; 0 for one that is never predicted, not a number for one that is neither
            true nor predicted of any text.
        accuracy_error: Standard error of `accuracy`; None where it was not asked for.
        macro_f1_error: The same of `macro_f1`.
    """

    accuracy: float
    macro_f1: float
    f1: np.ndarray
    accuracy_error: float | None = None
    macro_f1_error: float | None = None


def draws(sources: Sources, name: str, index: int = 0) -> np.random.Generator:
    """The generator of one draw, which no other draw shares."""
    return np.random.default_rng([sources.seed, index, *name.encode()])


def capped(sources: Sources, texts: Texts) -> Texts:
    """The source itself, or `MOST_TEXTS` of its texts, drawn without replacement."""
    if len(texts) <= MOST_TEXTS:
        return texts
    rows = np.sort(draws(sources, 'cap').choice(len(texts), MOST_TEXTS, replace=False))
    return texts.take(rows.tolist())


def classes_of(texts: Texts) -> tuple[str, ...]:
    """The labels of a source in their order.

    Raises:
        NotDefined: They are more than `MOST_LABELS`.
    """
    classes = tuple(sorted(set(texts.labels or ())))
    if len(classes) > MOST_LABELS:
        raise NotDefined(f'{len(classes)} labels are more than {MOST_LABELS}: the column is not a label.')
    return classes


def labelled(sources: Sources, texts: Texts, classes: Sequence[str]) -> Labelled:
    """The texts of a source, at most `MOST_TEXTS` of them, whose labels are among `classes`."""
    if texts.labels is None:
        raise ValueError(f'Expected labels, got labels=None of {texts.name!r}. Name the label field.')
    places = {label: place for place, label in enumerate(classes)}
    labels = np.array([places.get(label, -1) for label in texts.labels], np.int64)
    known = np.flatnonzero(labels >= 0)
    return Labelled(texts=texts.texts, labels=labels, vectors=sources.vectors(texts)).take(known)


def train(kind: Kind, texts: Labelled, classes: int) -> Callable[[Labelled], np.ndarray]:
    """Trains a classifier.

    Args:
        kind: Which one.
        texts: At least one, to train on.
        classes: K, how many labels there are; those that `texts` lacks get probability 0.

    Returns:
        Texts to probabilities of labels, `[n, K]` float64.
    """
    present = np.unique(texts.labels)
    if len(present) == 1:
        return lambda tests: np.tile(np.eye(classes)[present[0]], (len(tests), 1))
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=_C, class_weight='balanced', solver=_SOLVERS[kind], tol=_TOLERANCE, max_iter=_MAX_ITERATIONS
    )
    with comparison.one_thread():
        if kind == 'tfidf':
            vectorizer = _vectorizer(classes)
            model.fit(vectorizer.fit_transform(texts.texts), texts.labels)
        else:
            model.fit(texts.vectors.astype(np.float64), texts.labels)

    def probabilities(tests: Labelled) -> np.ndarray:
        result = np.zeros((len(tests), classes))
        if len(tests):
            rows = vectorizer.transform(tests.texts) if kind == 'tfidf' else tests.vectors.astype(np.float64)
            result[:, model.classes_] = model.predict_proba(rows)
        return result

    return probabilities


def _vectorizer(classes: int) -> TfidfVectorizer:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(
        sublinear_tf=True, ngram_range=(1, 2), token_pattern=_TOKEN, max_features=_max_features(classes)
    )


def _max_features(classes: int) -> int:
    return min(MAX_FEATURES, _MAX_COEFFICIENTS // classes)


def scores(true: np.ndarray, predicted: np.ndarray, classes: int) -> Scores:
    """Scores of predicted labels `[n]` of K classes against the right ones `[n]`, n ≥ 1."""
    from sklearn import metrics

    f1 = metrics.f1_score(true, predicted, labels=range(classes), average=None, zero_division=np.nan)
    return Scores(accuracy=float((true == predicted).mean()), macro_f1=float(np.nanmean(f1)), f1=f1)


def with_errors(
    scored: Scores,
    kind: Kind,
    texts: Labelled,
    tests: Labelled,
    predicted: np.ndarray,
    rng: np.random.Generator,
) -> Scores:
    """Scores with their standard errors, of the draw of the test texts and of that of the texts trained on.

    Both are bootstraps: `RESAMPLES` of the test texts, `RETRAINED` of the others. Of more than
    `MOST_RETRAINED_ON` texts the latter have so many, and the deviation is scaled by the root of the share.
    """
    count, classes = len(tests), len(scored.f1)
    if count < 2:
        return scored
    of_tests = [
        scores(tests.labels[rows], predicted[rows], classes)
        for rows in rng.integers(count, size=(RESAMPLES, count))
    ]
    if count > MOST_RETESTED:
        tests = tests.take(rng.choice(count, MOST_RETESTED, replace=False))
    size = min(len(texts), MOST_RETRAINED_ON)
    of_texts = []
    for _ in range(RETRAINED):
        classifier = train(kind, texts.take(rng.integers(len(texts), size=size)), classes)
        of_texts.append(scores(tests.labels, classifier(tests).argmax(axis=1), classes))
    spreads = [
        np.std([(each.accuracy, each.macro_f1) for each in resampled], axis=0, ddof=1)
        for resampled in (of_tests, of_texts)
    ]
    accuracy, macro_f1 = np.hypot(spreads[0], spreads[1] * math.sqrt(size / len(texts)))
    return dataclasses.replace(scored, accuracy_error=float(accuracy), macro_f1_error=float(macro_f1))


def settings(sources: Sources, classes: int) -> dict[str, Setting]:
    """All that the classifiers depend on beside the texts."""
    return {
        'classifier': 'multinomial logistic regression, L2, balanced class weights',
        'tfidf_solver': _SOLVERS['tfidf'],
        'head_solver': _SOLVERS['head'],
        'tolerance': _TOLERANCE,
        'C': _C,
        'max_iterations': _MAX_ITERATIONS,
        'tfidf': 'sublinear, lower case, words and pairs of words, unit rows',
        'tfidf_token': _TOKEN,
        'tfidf_max_features': _max_features(classes),
        **comparison.embedder_settings(sources),
        'most_texts': MOST_TEXTS,
        'most_labels': MOST_LABELS,
        'seed': sources.seed,
        **comparison.library_versions('scikit-learn', 'numpy'),
    }
