"""An evaluation from its settings to its figures: what `dp-corpus evaluate` and `dp_corpus.evaluate` do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import rich.console
import rich.progress
from etils import epy

from models.clustering.centers import ClusterSettings
from models.decoders import device
from pipeline.evaluation import evaluation, reading
from pipeline.evaluation.evaluation import Evaluation, OnProgress
from pipeline.evaluation.measure import Measure
from pipeline.evaluation.reading import ReadTexts
from pipeline.evaluation.settings import EvaluationSettings
from pipeline.evaluation.sources import Sources, Texts
from pipeline.screen import off_screen

# Errors of the request come before scikit-learn is loaded.
with epy.lazy_imports():
    from pipeline.evaluation import measures


def evaluate(corpus: str, settings: EvaluationSettings, console: rich.console.Console) -> Evaluation:
    """Measures a corpus as a command does: progress is shown, and no error quotes a record.

    Raises:
        ValueError: Settings do not go together, or texts cannot be read.
        FileNotFoundError: A file is not there.
        RuntimeError: An error that nobody foresaw; its text is not shown, since it may quote records.
    """
    settings.check_places(corpus)
    off_screen.silence_libraries()
    with off_screen.without_chatter(), off_screen.unquoted():
        chosen = measures.measures_of(settings)
        read = read_texts([(settings.name, corpus), *settings.other_corpora], settings)
    with _progress(console) as on_progress, off_screen.unquoted():
        return measure(read, chosen, settings, on_progress)


def read_texts(
    corpora: Sequence[tuple[str, str]], settings: EvaluationSettings
) -> list[tuple[str, ReadTexts]]:
    """(role, texts) of every source: of each (name, place) of a corpus, then of the texts beside them."""
    places = [('corpus', name, place) for name, place in corpora]
    for role in ('records', 'test', 'public'):
        if (place := getattr(settings, role)) is not None:
            places.append((role, role, place))
    return [
        (
            role,
            reading.read_source(
                place,
                settings,
                name=name,
                flag='CORPUS' if role == 'corpus' else f'--{role}',
                has_units=role in ('records', 'test'),
            ),
        )
        for role, name, place in places
    ]


def measure(
    read: Sequence[tuple[str, ReadTexts]],
    chosen: Sequence[Measure],
    settings: EvaluationSettings,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Runs measures on what `read_texts` read."""
    # The fingerprint of a large model holds its type: the one that is fast here.
    dtype = 'float32' if settings.embedder_model == 'bundled' else device.fastest_dtype()
    embedder = ClusterSettings.of_embedder(
        settings.embedder, model=settings.embedder_model, checkpoint=None, tokenizer=None, dtype=dtype
    ).load_embedder()
    beside: dict[str, Texts] = {role: one.texts for role, one in read if role != 'corpus'}
    corpora = [
        Sources(corpus=one.texts, embedder=embedder, seed=settings.seed, **beside)
        for role, one in read
        if role == 'corpus'
    ]
    return evaluation.evaluate(
        corpora,
        chosen,
        left_out=[(one.texts.name, role, one.left_out) for role, one in read],
        on_progress=on_progress,
    )


@contextlib.contextmanager
def _progress(console: rich.console.Console) -> Iterator[OnProgress | None]:
    """Shows which measure runs on which corpus; silent but in a terminal or a notebook."""
    if not off_screen.shows_progress(console):
        yield None
        return
    with rich.progress.Progress(
        rich.progress.TextColumn('{task.description}', markup=False),
        rich.progress.BarColumn(),
        rich.progress.TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as display:
        task = display.add_task('Reading', total=None)

        def show(corpus: str, measure: str, done: int, total: int) -> None:
            display.update(task, description=f'{corpus}: {measure}', completed=done, total=total)

        yield show
