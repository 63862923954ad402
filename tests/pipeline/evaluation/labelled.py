"""Made-up texts of three labels, and one figure of a measure on them."""

from typing import Any

import numpy as np

from models.clustering.embedder import TfidfEmbedder
from pipeline.evaluation.measure import Figure, Findings, Measure
from pipeline.evaluation.sources import Sources, Texts

WORDS = {
    'sport': ('match', 'goal', 'coach', 'league', 'striker', 'referee', 'stadium', 'keeper'),
    'money': ('bank', 'share', 'profit', 'market', 'loan', 'bond', 'trader', 'merger'),
    'science': ('orbit', 'cell', 'protein', 'comet', 'fossil', 'quantum', 'vaccine', 'telescope'),
}
COMMON = ('said', 'today', 'after', 'their', 'report', 'people', 'later', 'week', 'added', 'first')


def real(
    count: int,
    seed: int,
    name: str,
    labels: tuple[str, ...] = tuple(WORDS),
    *,
    mixed: float = 0.0,
    unclear: float = 0.0,
) -> Texts:
    """Texts of ten words, two of which tell the label; of a share `unclear` of the texts none does.

    Each of the two tells a label that is drawn anew with probability `mixed`.
    """
    rng = np.random.default_rng(seed)
    texts, own = [], []
    for _ in range(count):
        label = labels[rng.integers(len(labels))]
        if rng.random() < unclear:
            telling = [*rng.choice(COMMON, 2)]
        else:
            told = [label if rng.random() >= mixed else labels[rng.integers(len(labels))] for _ in range(2)]
            telling = [rng.choice(WORDS[each]) for each in told]
        texts.append(' '.join(rng.permutation([*rng.choice(COMMON, 8), *telling])))
        own.append(label)
    return Texts(name=name, texts=tuple(texts), labels=tuple(own))


EMBEDDER = TfidfEmbedder.fit(real(300, 99, 'public').texts, max_terms=100, min_texts=1, dimensions=20, seed=0)


def findings_of(measure: Measure, **sources: Any) -> Findings:
    return measure.measure(Sources(embedder=EMBEDDER, **sources), lambda done, total: None)


def relabelled(texts: Texts, labels: Any) -> Texts:
    return Texts(name=texts.name, texts=texts.texts, labels=tuple(labels))


def figure(findings: Findings, name: str) -> Figure:
    (found,) = (each for each in findings.figures if each.name == name)
    return found


def value(findings: Findings, name: str) -> float:
    found = figure(findings, name).value
    assert found is not None
    return found
