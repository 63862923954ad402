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
# Of each source; a larger one is sampled.
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
# Of the same problem: Newton's method takes the fewest passes over many sparse words, L-BFGS the least
# time on few dense columns.
_SOLVERS: dict[Kind, Literal['newton-cg', 'lbfgs']] = {'tfidf': 'newton-cg', 'head': 'lbfgs'}
# Of the bootstrap.
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
        texts: n texts.
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
    """How well predicted labels match true ones; errors are None of fewer than two texts.

    Attributes:
        accuracy: Share of the texts with the right label.
        macro_f1: Mean of `f1`.
        f1: Of each label, `[K]`; 0 for one that is never predicted, not a number for one that is neither
            true nor predicted of any text.
        accuracy_error: Standard error of `accuracy`, of the draw of test texts; where `widened`, of the draw
            of texts trained on, too.
        macro_f1_error: The same of `macro_f1`.
        f1_error: Standard errors of `f1`, `[K]`, of the test texts' draw.
    """

    accuracy: float
    macro_f1: float
    f1: np.ndarray
    accuracy_error: float | None
    macro_f1_error: float | None
    f1_error: np.ndarray | None

    def widened(self, accuracy_error: float, macro_f1_error: float) -> Scores:
        """With a further, independent error of accuracy and macro-F1."""
        if self.accuracy_error is None or self.macro_f1_error is None:
            return self
        return dataclasses.replace(
            self,
            accuracy_error=math.hypot(self.accuracy_error, accuracy_error),
            macro_f1_error=math.hypot(self.macro_f1_error, macro_f1_error),
        )


def draws(sources: Sources, name: str, index: int = 0) -> np.random.Generator:
    """The generator of one draw, which no other draw shares."""
    return np.random.default_rng([sources.seed, index, *name.encode()])


def capped(sources: Sources, texts: Texts) -> Texts:
    """The source itself, or `MOST_TEXTS` of its texts, drawn without replacement."""
    if len(texts) <= MOST_TEXTS:
        return texts
    rows = np.sort(draws(sources, 'cap').choice(len(texts), MOST_TEXTS, replace=False))
    return Texts(
        name=texts.name,
        texts=tuple(texts.texts[row] for row in rows),
        labels=None if texts.labels is None else tuple(texts.labels[row] for row in rows),
    )


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


def confusion(true: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Counts of texts by true label (rows) and predicted label (columns), `[K, K]`."""
    return np.bincount(true * classes + predicted, minlength=classes**2).reshape(classes, classes)


def scores(counts: np.ndarray, rng: np.random.Generator) -> Scores:
    """Scores of a confusion matrix, with standard errors by the bootstrap over its texts.

    Args:
        counts: As `confusion` gives them, of at least one text.
        rng: Draws the resamples.
    """
    total = int(counts.sum())
    accuracy, macro_f1, f1 = _scores(counts)
    if total < 2:
        return Scores(
            accuracy=accuracy,
            macro_f1=macro_f1,
            f1=f1,
            accuracy_error=None,
            macro_f1_error=None,
            f1_error=None,
        )
    # Texts drawn with replacement fall into the cells as a multinomial does.
    cells = np.flatnonzero(counts)
    drawn = rng.multinomial(total, counts.flat[cells] / total, size=RESAMPLES)
    resampled = []
    for row in drawn:
        again = np.zeros(counts.size, np.int64)
        again[cells] = row
        resampled.append(_scores(again.reshape(counts.shape)))
    return Scores(
        accuracy=accuracy,
        macro_f1=macro_f1,
        f1=f1,
        accuracy_error=float(np.std([each[0] for each in resampled], ddof=1)),
        macro_f1_error=float(np.std([each[1] for each in resampled], ddof=1)),
        f1_error=_spread(np.array([each[2] for each in resampled])),
    )


def retrained_errors(
    kind: Kind, texts: Labelled, tests: Labelled, classes: int, rng: np.random.Generator
) -> tuple[float, float]:
    """How far accuracy and macro-F1 vary with the draw of the texts that a classifier is trained on.

    The bootstrap over these texts: standard deviations over `RETRAINED` resamples. Of more than
    `MOST_RETRAINED_ON` texts resamples have so many, and the deviation is scaled by the root of the share.

    Args:
        kind: Of classifier.
        texts: n ≥ 1 texts, trained on.
        tests: At least one text.
        classes: K.
        rng: Draws the resamples.
    """
    size = min(len(texts), MOST_RETRAINED_ON)
    if len(tests) > MOST_RETESTED:
        tests = tests.take(rng.choice(len(tests), MOST_RETESTED, replace=False))
    found = []
    for _ in range(RETRAINED):
        again = texts.take(rng.integers(len(texts), size=size))
        predicted = train(kind, again, classes)(tests).argmax(axis=1)
        found.append(_scores(confusion(tests.labels, predicted, classes))[:2])
    accuracy, macro_f1 = np.std(found, axis=0, ddof=1) * math.sqrt(size / len(texts))
    return float(accuracy), float(macro_f1)


def _scores(counts: np.ndarray) -> tuple[float, float, np.ndarray]:
    right = np.diag(counts)
    met = counts.sum(axis=0) + counts.sum(axis=1)
    f1 = np.divide(2 * right, met, out=np.full(len(right), np.nan), where=met > 0)
    return float(right.sum() / counts.sum()), float(f1[met > 0].mean()), f1


def _spread(values: np.ndarray) -> np.ndarray:
    """Standard deviation of each column over the numbers in it; not a number where they are under two."""
    result = np.full(values.shape[1], np.nan)
    for column in range(values.shape[1]):
        numbers = values[:, column][~np.isnan(values[:, column])]
        if len(numbers) > 1:
            result[column] = numbers.std(ddof=1)
    return result


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
