"""MAUVE, with the settings of two papers on differentially private text."""

from __future__ import annotations

import contextlib
import math
import os
import typing
from collections.abc import Iterator, Mapping

import numpy as np

from models import extras
from pipeline.evaluation import comparison
from pipeline.evaluation.measure import Chart, Figure, Findings, Measure, NotDefined, Progress, Series
from pipeline.evaluation.sources import Sources

# Both papers take 1,000 texts of each side; a score depends on the number.
MAX_TEXTS = 1000
# Five buckets at n/20. Fewer tell hardly anything apart.
MIN_TEXTS = 100
SEEDS = 5


class _MauveSettings(typing.NamedTuple):
    """Settings of one paper; the names of `compute_mauve`, but for buckets."""

    label: str
    # Buckets are n / this, of n texts on each side.
    texts_per_bucket: int
    mauve_scaling_factor: float
    divergence_curve_discretization_size: int
    kmeans_explained_var: float = 0.9
    kmeans_num_redo: int = 5
    kmeans_max_iter: int = 500
    pca_max_data: int = -1

    def arguments(self, texts: int) -> dict[str, int | float]:
        """Keyword arguments of `compute_mauve` for so many texts on each side."""
        values = self._asdict()
        del values['label'], values['texts_per_bucket']
        return {'num_buckets': round(texts / self.texts_per_bucket), **values}


SETTINGS: Mapping[str, _MauveSettings] = {
    # CL (Clustering improves differentially private inference), appendix E.1.
    'clustering': _MauveSettings('MAUVE, scaling 5, n/10 buckets', 10, 5, 32),
    # InvisibleInk (Vinod et al. 2025): 0.9 and n/20, else the defaults of mauve-text, written out here.
    'invisibleink': _MauveSettings('MAUVE, scaling 0.9, n/20 buckets', 20, 0.9, 25),
}


@typing.final
class Mauve(Measure):
    """Area under the divergence curve of real texts and the corpus, by clusters of their vectors.

    Each seed draws the texts anew, where a source has more than are compared, and starts k-means anew.
    Where records and held-out texts are both there, the records score beside the corpus: as much as
    real text gets.
    """

    name = 'mauve'
    title = 'MAUVE'
    question = 'How like the distribution of real texts is that of the corpus?'
    source = 'Pillutla et al. 2021; settings of CL, appendix E.1, and of InvisibleInk (Vinod et al. 2025)'

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        real = comparison.real_texts(sources)
        size = comparison.equal_size(sources.corpus, real, least=MIN_TEXTS, most=MAX_TEXTS)
        comparison.check_known(sources, real)
        compared = {'': sources.corpus}
        records = comparison.ceiling_texts(sources, size)
        if records is not None:
            compared['/records'] = records
        real_vectors = sources.vectors(real)
        settings = {
            f'{name}/{key}': value
            for name, pinned in SETTINGS.items()
            for key, value in pinned.arguments(size).items()
        }
        figures, curves = [], []
        for done, (suffix, texts) in enumerate(compared.items()):
            vectors = sources.vectors(texts)
            scores: dict[str, list[float]] = {name: [] for name in SETTINGS}
            for seed in range(SEEDS):
                generator = np.random.default_rng([sources.seed, seed])
                p_features = real_vectors[comparison.drawn(generator, len(real), size)]
                q_features = vectors[comparison.drawn(generator, len(texts), size)]
                start = int(generator.integers(2**30))
                for name, pinned in SETTINGS.items():
                    score, curve = _mauve(p_features, q_features, start, pinned.arguments(size))
                    scores[name].append(score)
                    if not suffix and seed == 0:
                        curves.append(_curve(SETTINGS[name].label, curve))
                progress(done * SEEDS + seed + 1, len(compared) * SEEDS)
            figures += [_figure(name, suffix, values, real.name) for name, values in scores.items()]
        return Findings(
            settings={
                'texts_on_each_side': size,
                'seeds': SEEDS,
                'real': real.name,
                **settings,
                **comparison.embedder_settings(sources),
                **comparison.library_versions('mauve-text', 'faiss-cpu', 'scikit-learn', 'numpy'),
            },
            figures=tuple(figures),
            charts=(
                Chart(
                    kind='lines',
                    title='Divergence curves of the first seed: the further out, the more alike',
                    x_label='exp(-scaling · KL(corpus, mixture))',
                    y_label='exp(-scaling · KL(real, mixture))',
                    series=tuple(curves),
                ),
            ),
        )


def score_of_disjoint(scaling: float) -> float:
    """MAUVE of distributions that share nothing, with the scaling factor c: Γ(c+1)² / Γ(2c+1).

    The curve is then ((1-w)^c, w^c) for w from 0 to 1, so the area is c·B(c, c+1).
    """
    return math.gamma(scaling + 1) ** 2 / math.gamma(2 * scaling + 1)


def _figure(name: str, suffix: str, scores: list[float], real: str) -> Figure:
    pinned = SETTINGS[name]
    lowest = score_of_disjoint(pinned.mauve_scaling_factor)
    return Figure(
        name=f'mauve_{name}{suffix}',
        label=f'{pinned.label}{", of the records" if suffix else ""}',
        value=float(np.mean(scores)),
        standard_error=float(np.std(scores, ddof=1) / np.sqrt(len(scores))),
        better='neither' if suffix else 'higher',
        note=(
            f'What real text scores against {real}.'
            if suffix
            else f'From {lowest:.3f} (nothing in common) to 1. Compare it only with scores of the same '
            'embedder and number of texts: the papers have other embedders.'
        ),
    )


def _curve(label: str, curve: np.ndarray) -> Series:
    return Series(name=label, x=tuple(float(x) for x in curve[:, 0]), y=tuple(float(y) for y in curve[:, 1]))


def _mauve(
    p_features: np.ndarray, q_features: np.ndarray, seed: int, arguments: Mapping[str, int | float]
) -> tuple[float, np.ndarray]:
    """The score, and its curve `[points, 2]`."""
    try:
        extras.need(extras.EVALUATE, use='MAUVE', only='mauve')
    except extras.MissingExtraError as error:
        raise NotDefined(str(error)) from None
    import mauve

    with comparison.one_thread(), _quiet_faiss():
        result = mauve.compute_mauve(p_features=p_features, q_features=q_features, seed=seed, **arguments)
    # Equal histograms have one point in the curve, and mauve-text sorts it with its two ends in any order:
    # it may say 0.5 or 0.75 of the same texts.
    if np.array_equal(result.p_hist, result.q_hist):
        return 1.0, result.divergence_curve
    return float(result.mauve), result.divergence_curve


@contextlib.contextmanager
def _quiet_faiss() -> Iterator[None]:
    """Keeps faiss's warning of few texts per bucket off the terminal; the papers' settings all give it.

    It is written by C++ to the descriptor of standard error, which Python's own redirection does not reach.
    """
    kept = os.dup(2)
    try:
        with open(os.devnull, 'wb') as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
