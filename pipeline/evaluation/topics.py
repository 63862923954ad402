"""Topics: clusters of the vectors, how much of each side lies in them, and a map of both."""

from __future__ import annotations

import typing

import numpy as np

from pipeline.evaluation import comparison
from pipeline.evaluation.measure import (
    Chart,
    Figure,
    Findings,
    Measure,
    NotDefined,
    Progress,
    Sample,
    Series,
)
from pipeline.evaluation.sources import Sources, Texts

MAX_TEXTS = 5000
MIN_TEXTS = 20
MAX_TOPICS = 20
TEXTS_PER_TOPIC = 10
INITIALIZATIONS = 5
# Of each side, on the map.
MAP_TEXTS = 500
PERPLEXITY = 30
# A word that names a topic is in so many texts or more: a name out of one record does not come up.
NAMING_TEXTS = 5
NAMING_WORDS = 3
MAX_VOCABULARY = 5000
# Topics of which a text is shown, and where its end is cut, in characters.
SHOWN_TOPICS = 5
SHOWN_CHARACTERS = 1000
# Draws behind what two samples of one distribution differ by.
CHANCE_DRAWS = 1000


@typing.final
class Topics(Measure):
    """Shares of the corpus and of real texts by topic.

    Topics are clusters of k-means, fitted on the real texts, or on the corpus where there are none.
    """

    name = 'topics'
    title = 'Topics'
    question = 'Which topics has the corpus too much or too little of?'

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        real = comparison.real_texts_if_any(sources)
        sides = [sources.corpus] if real is None else [sources.corpus, real]
        fitted_on = sides[-1]
        if len(fitted_on) < MIN_TEXTS:
            raise NotDefined(
                f'It needs {MIN_TEXTS} or more texts to cluster, got {fitted_on.name}={len(fitted_on)}.'
            )
        comparison.check_known(sources, fitted_on)
        generator = np.random.default_rng(sources.seed)
        drawn = [comparison.drawn(generator, len(texts), min(len(texts), MAX_TEXTS)) for texts in sides]
        vectors = [sources.vectors(texts)[rows] for texts, rows in zip(sides, drawn)]
        distinct = len(np.unique(vectors[-1], axis=0))
        topics = min(MAX_TOPICS, len(vectors[-1]) // TEXTS_PER_TOPIC, distinct)
        if topics < 2:
            raise NotDefined(f'All texts of {fitted_on.name} have the same vector.')
        topic_of, distances = _topics(vectors, topics, sources.seed)
        progress(1, 3)
        counts = [np.bincount(of_side, minlength=topics) for of_side in topic_of]
        texts_of = [[texts.texts[row] for row in rows] for texts, rows in zip(sides, drawn)]
        names = _names(texts_of, topic_of, topics)
        order = np.argsort(-counts[-1], kind='stable')
        charts = [_shares_chart([texts.name for texts in sides], counts, names, order)]
        progress(2, 3)
        charts += _map(sides, vectors, sources.seed)
        progress(3, 3)
        shown = _shown(counts)
        return Findings(
            settings={
                'topics': topics,
                'clusters_fitted_on': fitted_on.name,
                'texts_corpus': len(drawn[0]),
                'texts_real': len(drawn[1]) if real is not None else 0,
                'kmeans_initializations': INITIALIZATIONS,
                'map': f'PCA to 50, then t-SNE, perplexity {PERPLEXITY} or a third of the texts',
                'map_texts_on_each_side': MAP_TEXTS,
                **comparison.embedder_settings(sources),
                **comparison.library_versions('scikit-learn', 'numpy'),
            },
            figures=tuple(_figures(counts, generator)),
            charts=tuple(charts),
            samples=tuple(
                _sample(texts_of[0], sides[0].name, topic_of[0], distances[0], topic, names[topic])
                for topic in shown
            ),
        )


def _topics(vectors: list[np.ndarray], topics: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Of each side, the topic of each text and its distance to the centre; fitted on the last side."""
    from sklearn.cluster import KMeans

    with comparison.one_thread():
        clusters = KMeans(topics, n_init=INITIALIZATIONS, random_state=_short_seed(seed)).fit(vectors[-1])
        distances = [clusters.transform(of_side) for of_side in vectors]
    return [of_side.argmin(axis=1) for of_side in distances], [of_side.min(axis=1) for of_side in distances]


def _short_seed(seed: int) -> int:
    """A seed that scikit-learn takes, of 32 bits."""
    return int(np.random.default_rng(seed).integers(2**32))


def total_variation(counts: np.ndarray, other: np.ndarray) -> float:
    """Of the two distributions, from 0 to 1: half the sum of what shares differ by.

    Args:
        counts: `[categories]`, not all zero.
        other: `[categories]`, not all zero.
    """
    return float(np.abs(counts / counts.sum() - other / other.sum()).sum() / 2)


def chance_variation(counts: np.ndarray, other: np.ndarray, generator: np.random.Generator) -> float:
    """Mean total variation of two samples of one distribution that are as large as these two.

    What is drawn at random out of both together is compared with what is left.
    """
    together = counts + other
    draws = generator.multivariate_hypergeometric(together, counts.sum(), size=CHANCE_DRAWS)
    return float(np.mean([total_variation(draw, together - draw) for draw in draws]))


def _figures(counts: list[np.ndarray], generator: np.random.Generator) -> list[Figure]:
    shares = counts[0] / counts[0].sum()
    even = float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum() / np.log(len(shares)))
    evenness = Figure(
        name='evenness',
        label='Evenness of topics',
        value=even,
        note='Entropy of the shares over that of even ones: 0 where all texts are of one topic.',
    )
    if len(counts) == 1:
        return [evenness]
    return [
        Figure(
            name='total_variation',
            label='Total variation of topics',
            value=total_variation(counts[0], counts[1]),
            better='lower',
            note='Share of texts that would have to change topic for the shares of real texts.',
        ),
        Figure(
            name='total_variation_by_chance',
            label='Total variation by chance',
            value=chance_variation(counts[0], counts[1], generator),
            note='What two samples of the same texts, as large as these, differ by in the mean.',
        ),
        Figure(
            name='topics_missing',
            label='Topics without a text',
            value=float(((counts[0] == 0) & (counts[1] > 0)).sum()),
            better='lower',
            note=f'Of {len(shares)}.',
        ),
        evenness,
    ]


def _names(texts_of: list[list[str]], topic_of: list[np.ndarray], topics: int) -> list[str]:
    """What bars are called: the words whose share of texts is most above that outside the topic."""
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [text for of_side in texts_of for text in of_side]
    of_topic = np.concatenate(topic_of)
    vectorizer = CountVectorizer(
        binary=True, max_features=MAX_VOCABULARY, min_df=NAMING_TEXTS, token_pattern=r'(?u)\b[^\W\d_]{2,}\b'
    )
    try:
        found = vectorizer.fit_transform(texts)
    except ValueError:
        # No word is in as many texts.
        return [str(topic + 1) for topic in range(topics)]
    words = vectorizer.get_feature_names_out()
    totals = np.asarray(found.sum(axis=0)).ravel()
    # A word of most texts names none of them, in whatever language.
    weight = np.log(len(texts) / totals)
    names = []
    for topic in range(topics):
        inside = of_topic == topic
        counts = np.asarray(found[inside].sum(axis=0)).ravel()
        gain = counts / max(inside.sum(), 1) - (totals - counts) / max((~inside).sum(), 1)
        gain[counts < NAMING_TEXTS] = -1
        gain *= weight
        best = [index for index in np.argsort(-gain, kind='stable')[:NAMING_WORDS] if gain[index] > 0]
        names.append(f'{topic + 1}: {", ".join(words[index] for index in best)}' if best else str(topic + 1))
    return names


def _shares_chart(sides: list[str], counts: list[np.ndarray], names: list[str], order: np.ndarray) -> Chart:
    return Chart(
        kind='bars',
        title='Share of texts by topic; topics are called by words of their own',
        x_label='Topic',
        y_label='Share of texts',
        series=tuple(
            Series(
                name=side,
                x=tuple(names[topic] for topic in order),
                y=tuple(float(of_side[topic] / of_side.sum()) for topic in order),
            )
            for side, of_side in zip(sides, counts)
        ),
    )


def _map(sides: list[Texts], vectors: list[np.ndarray], seed: int) -> list[Chart]:
    """One chart; none where the vectors cannot be laid out."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    # Drawn anew, as vectors are in the order of the texts.
    generator = np.random.default_rng([seed, 1])
    parts = [
        of_side[comparison.drawn(generator, len(of_side), min(len(of_side), MAP_TEXTS))]
        for of_side in vectors
    ]
    together = np.concatenate(parts).astype(np.float64)
    with comparison.one_thread():
        reduced = PCA(
            min(50, *together.shape), svd_solver='full', random_state=_short_seed(seed)
        ).fit_transform(together)
        # A layout starts from the two directions that vary most, scaled by the first of them.
        if reduced.shape[1] < 2 or reduced[:, 0].std() < 1e-6:
            return []
        places = TSNE(
            init='pca', perplexity=min(PERPLEXITY, (len(reduced) - 1) / 3), random_state=_short_seed(seed)
        ).fit_transform(reduced)
    series, first = [], 0
    for texts, part in zip(sides, parts):
        own = places[first : first + len(part)]
        first += len(part)
        series.append(Series(name=texts.name, x=tuple(map(float, own[:, 0])), y=tuple(map(float, own[:, 1]))))
    return [
        Chart(
            kind='points',
            title='Texts near each other are alike; far distances and directions mean nothing',
            x_label='t-SNE 1',
            y_label='t-SNE 2',
            series=tuple(series),
        )
    ]


def _shown(counts: list[np.ndarray]) -> list[int]:
    """Topics of the corpus that differ most from the real share, or are the largest."""
    shares = [of_side / of_side.sum() for of_side in counts]
    weight = np.abs(shares[0] - shares[1]) if len(shares) == 2 else shares[0]
    order = [int(topic) for topic in np.argsort(-weight, kind='stable') if counts[0][topic]]
    return order[:SHOWN_TOPICS]


def _sample(
    texts: list[str], side: str, topic_of: np.ndarray, distances: np.ndarray, topic: int, name: str
) -> Sample:
    """The corpus text nearest to the centre."""
    members = np.flatnonzero(topic_of == topic)
    text = texts[members[distances[members].argmin()]]
    shown = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + '…'
    return Sample(caption=f'The text in the middle of topic {name}', texts=((side, shown),))
