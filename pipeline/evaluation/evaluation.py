"""Behind `dp-corpus evaluate`: every measure on every corpus, and the document of what they found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence

from pipeline.evaluation.measure import Measure, MeasureResult, NotDefined
from pipeline.evaluation.sources import Sources, Texts
from pipeline.evaluation.verdict import Verdict, verdict_of

SCHEMA = 'dp-corpus/evaluation'
SCHEMA_VERSION = 3
RESTRICTED = (
    'Restricted to the curator. Records, or others like them, were read for it, and no budget paid for '
    'that: never publish it.'
)
SHAREABLE = (
    'As public as the texts that it names as corpora: no record, and no other like them, was read for it.'
)
# Flags of the sources that a measure may lack.
_FLAGS = {'records': '--records', 'test': '--test', 'public': '--public'}

type OnProgress = Callable[[str, str, int, int], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """One source of texts.

    Attributes:
        name: What tables call it.
        role: 'corpus', 'records', 'test' or 'public'.
        texts: How many.
        labels: How many different labels; None where it has none.
        left_out: Rows that were no texts, by reason.
    """

    name: str
    role: str
    texts: int
    labels: int | None
    left_out: dict[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusResult:
    """All measures on one corpus.

    Attributes:
        corpus: Its name.
        measures: In the order of the table of measures.
        verdict: What they come to; None where those that it rests on were not asked for, or are not defined.
    """

    corpus: str
    measures: tuple[MeasureResult, ...]
    verdict: Verdict | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The worth of corpora, and whether they keep quiet, side by side.

    Attributes:
        reads_records: Whether records, or others like them, were read.
        sources: What was read.
        embedder: Name of what maps texts to vectors.
        embedder_model: The language model whose states it takes; None where it takes none.
        embedder_fingerprint: SHA-256 of all that its output depends on.
        seed: Of every draw.
        corpora: The results, a corpus each.
    """

    reads_records: bool
    sources: tuple[Source, ...]
    embedder: str
    embedder_model: str | None
    embedder_fingerprint: str
    seed: int
    corpora: tuple[CorpusResult, ...]

    @property
    def audience(self) -> str:
        """Who may read it."""
        return RESTRICTED if self.reads_records else SHAREABLE

    @property
    def failed(self) -> tuple[str, ...]:
        """Measures that ended with an error that nobody foresaw, as 'corpus: measure'."""
        return tuple(
            f'{result.corpus}: {measured.measure}'
            for result in self.corpora
            for measured in result.measures
            if measured.failed
        )

    def to_json(self) -> str:
        """The evaluation as JSON text, marked for its readers."""
        header = {'schema': SCHEMA, 'schema_version': SCHEMA_VERSION, 'audience': self.audience}
        values = header | dataclasses.asdict(self)
        return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + '\n'


def evaluate(
    corpora: Sequence[Sources],
    measures: Sequence[Measure],
    *,
    left_out: Sequence[tuple[str, str, dict[str, int]]] = (),
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Runs measures on corpora that are compared with the same texts.

    Args:
        corpora: A corpus each, beside the same records, test and public texts, embedder and seed.
        measures: In the order of the results.
        left_out: (name, role, rows by reason) of sources with rows that gave no text.
        on_progress: Told corpus, measure, parts done and parts in all.

    Raises:
        ValueError: No corpus, or two of the same name.
    """
    names = [sources.corpus.name for sources in corpora]
    if not names or len(set(names)) < len(names):
        raise ValueError(f'Expected corpora with names of their own, got names={names}. Rename one.')
    first = corpora[0]
    results = []
    for sources in corpora:
        measured = tuple(_result(measure, sources, on_progress) for measure in measures)
        results.append(
            CorpusResult(corpus=sources.corpus.name, measures=measured, verdict=verdict_of(measured, sources))
        )
    rows = {(name, role): reasons for name, role, reasons in left_out}
    read: list[tuple[str, Texts]] = [('corpus', sources.corpus) for sources in corpora]
    for role in ('records', 'test', 'public'):
        if (texts := getattr(first, role)) is not None:
            read.append((role, texts))
    return Evaluation(
        reads_records=first.reads_records,
        sources=tuple(
            Source(
                name=texts.name,
                role=role,
                texts=len(texts),
                labels=None if texts.labels is None else len(set(texts.labels)),
                left_out=rows.get((texts.name, role), {}),
            )
            for role, texts in read
        ),
        embedder=first.embedder.name,
        embedder_model=first.embedder.model,
        embedder_fingerprint=first.embedder.fingerprint,
        seed=first.seed,
        corpora=tuple(results),
    )


def _result(measure: Measure, sources: Sources, on_progress: OnProgress | None) -> MeasureResult:
    def progress(done: int, total: int) -> None:
        if on_progress is not None:
            on_progress(sources.corpus.name, measure.title, done, total)

    progress(0, 1)
    findings, failed = None, False
    reason = missing_of(measure, sources)
    if reason is None:
        try:
            findings = measure.measure(sources, progress)
        except NotDefined as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - the other measures still run
            # Its text may quote records.
            failed = True
            reason = (
                f'It ended with an error of the kind {type(error).__name__}, whose text may quote records '
                'and is not shown: a defect of the measure.'
            )
    progress(1, 1)
    return MeasureResult(
        measure=measure.name,
        title=measure.title,
        question=measure.question,
        source=measure.source,
        reason=reason,
        failed=failed,
        findings=findings,
    )


def missing_of(measure: Measure, sources: Sources) -> str | None:
    """Needs of a measure that these sources lack, as a sentence; None where nothing is missing."""
    missing = [flag for role, flag in _FLAGS.items() if role in measure.needs and not getattr(sources, role)]
    if missing:
        return f'It needs {" and ".join(missing)}.'
    if measure.needs_labels:
        compared = [sources.corpus, *(getattr(sources, role) for role in sorted(measure.needs))]
        without = [texts.name for texts in compared if texts.labels is None]
        if without:
            return f'It needs labels, and there are none of: {", ".join(without)}.'
    return None
