"""`dp-corpus evaluate`: sources are read as they are, each measure has a result, its readers are named."""

import csv
import dataclasses
import doctest
import json
import pathlib
import re
import stat
import typing
from collections.abc import Callable, Sequence

import jsonschema
import pyarrow as pa
import pytest
from pyarrow import parquet

from pipeline import main
from pipeline.evaluation import asked, evaluation, measures, reading
from pipeline.evaluation.measure import Chart, Figure, Findings, Measure, NotDefined, Progress, Sample, Series
from pipeline.evaluation.settings import EvaluationSettings
from pipeline.evaluation.sources import Sources, Texts
from pipeline.pages import evaluation_page
from pipeline.schemas import documents
from tests.pipeline.evaluation.placed import plain_sources
from tests.samples import needs_model
from transforms.run_files import DATA_FOLDER, REPORT

type Ask = Callable[..., 'Answer']
SECRET = 'Zanzibar'
TOPICS = {
    'boats': 'The boat left the harbour with sail {} and rope {}.',
    'bread': 'Bake {} loaves with {} salt.',
}


def rows_of(count: int, first: int = 0) -> list[tuple[str, str]]:
    return [
        (label, words.format(index, index * 7 % 11))
        for index in range(first, first + count // 2)
        for label, words in TOPICS.items()
    ]


def write(path: pathlib.Path, rows: Sequence[tuple[str, str]]) -> str:
    with open(path, 'w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(['ward', 'note'])
        writer.writerows(rows)
    return str(path)


def run_folder(folder: pathlib.Path, rows: Sequence[tuple[str | None, str]]) -> str:
    """A finished run, as far as a reader of its corpus looks."""
    (folder / DATA_FOLDER).mkdir(parents=True)
    (folder / REPORT).write_text('{}')
    table = pa.table({
        'text': pa.array([text for _, text in rows], pa.string()),
        'label': pa.array([label for label, _ in rows], pa.string()),
        'private_tokens': [9] * len(rows), 'public_tokens': [0] * len(rows), 'truncated': [False] * len(rows),
    })  # fmt: skip
    half = len(rows) // 2
    parquet.write_table(table.slice(0, half), folder / DATA_FOLDER / 'train-00000-of-00002.parquet')
    parquet.write_table(table.slice(half), folder / DATA_FOLDER / 'train-00001-of-00002.parquet')
    return str(folder)


def read(place: str, label_field: str | None = 'ward') -> reading.ReadTexts:
    settings = EvaluationSettings(text_field='note', label_field=label_field)
    return reading.read_source(place, settings, name='it', flag='--test')


# --- Reading ---------------------------------------------------------------------


def test_files_are_read_in_their_order_and_rows_without_text_are_counted(tmp_path: pathlib.Path) -> None:
    rows = rows_of(6)
    found = read(write(tmp_path / 'a.csv', [*rows[:3], ('boats', ' '), *rows[3:]]))
    assert found.texts.texts == tuple(text for _, text in rows)
    assert found.texts.labels == tuple(label for label, _ in rows)
    assert found.left_out == {'blank text': 1}
    assert read(str(tmp_path / 'a.csv'), None).texts.labels is None
    assert SECRET not in repr(Texts(name='x', texts=(SECRET,), labels=(SECRET,)))


def test_units_are_read_of_records_and_held_out_texts_alone(tmp_path: pathlib.Path) -> None:
    records = write(tmp_path / 'a.csv', rows_of(6))
    settings = EvaluationSettings(text_field='note', unit_field='ward', records=records)
    found = reading.read_source(records, settings, name='it', flag='--test', has_units=True)
    assert found.texts.units == tuple(label for label, _ in rows_of(6))
    assert SECRET not in repr(Texts(name='x', texts=('a',), units=(SECRET,)))
    (tmp_path / 'corpus.csv').write_text('note\nA text without a unit.\n')
    (_, corpus), (_, of_records) = asked.read_texts([('corpus', str(tmp_path / 'corpus.csv'))], settings)
    assert corpus.texts.units is None and of_records.texts.units == found.texts.units


def test_a_model_is_of_the_embedder_that_takes_its_states() -> None:
    with pytest.raises(
        ValueError, match="embedder='minilm', embedder_model='gemma3-270m'. Add --embedder dec"
    ):
        EvaluationSettings(embedder='minilm', embedder_model='gemma3-270m')


def test_a_model_without_weights_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ValueError, match="weights are here, got embedder_model='gemma2-2b'.*models fetch"):
        EvaluationSettings(embedder='decoder', embedder_model='gemma2-2b')
    with pytest.raises(ValueError, match="got model='gemma9'"):
        EvaluationSettings(embedder='decoder', embedder_model='gemma9')


@pytest.mark.parametrize('labelled', [True, False])
def test_a_run_is_read_by_its_own_columns(tmp_path: pathlib.Path, labelled: bool) -> None:
    rows = [(label if labelled else None, text) for label, text in rows_of(8)]
    found = read(run_folder(tmp_path / 'corpus', rows))
    assert found.texts.texts == tuple(text for _, text in rows)
    assert found.texts.labels == (tuple(label for label, _ in rows) if labelled else None)


def test_what_cannot_be_read_is_an_error_that_names_the_flag(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'folder').mkdir()
    with pytest.raises(ValueError, match='test=.*folder without'):
        read(str(tmp_path / 'folder'))
    damaged = pathlib.Path(
        run_folder(tmp_path / 'run', rows_of(8)), DATA_FOLDER, 'train-00001-of-00002.parquet'
    )
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(ValueError, match='test file=.*Restore the release'):
        read(str(tmp_path / 'run'))
    with pytest.raises(FileNotFoundError, match='--test'):
        read(str(tmp_path / 'none.csv'))
    with pytest.raises(ValueError, match='--test.*none in'):
        read(write(tmp_path / 'empty.csv', []))
    (tmp_path / 'other.csv').write_text('a,b\n1,2\n')
    with pytest.raises(ValueError, match='--test'):
        read(str(tmp_path / 'other.csv'))
    (tmp_path / 'cut.parquet').write_bytes(b'PAR1 and no more')
    with pytest.raises(ValueError, match='--test'):
        read(str(tmp_path / 'cut.parquet'))


# --- Measures that find, lack and fail -------------------------------------------


@typing.final
class Counting(Measure):
    name = 'counting'
    title = 'Counting'
    question = 'How many texts are there?'

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        count = float(len(sources.corpus))
        return Findings(
            settings={'unit': 'texts'},
            figures=(
                Figure(name='texts', label='Texts', value=count, standard_error=0.5, better='higher'),
                Figure(name='texts/long', label='Long texts', value=1234567.0),
                Figure(name='nothing', label='Never there', value=None),
            ),
            charts=tuple(
                Chart(
                    kind=kind, title=f'As {kind}', x_label='x', y_label='y',
                    series=tuple(Series(name=f'{kind} $1 {n}', x=x, y=(1.0, 2.0, count)) for n in (1, 2)),
                )
                for kind, x in (('lines', (1.0, 10.0, 100.0)), ('bars', ('a', 'b', 'c')))
            ),
            samples=(Sample(caption='The first', texts=(('corpus', sources.corpus.texts[0]),)),),
        )  # fmt: skip


@typing.final
class Lacking(Measure):
    name = 'lacking'
    title = 'Lacking'
    question = 'Is there enough?'

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        raise NotDefined('There are too few.')


@typing.final
class Failing(Measure):
    name = 'failing'
    title = 'Failing'
    question = 'Does it end?'

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        raise KeyError(SECRET)


@typing.final
class Needing(Counting):  # type: ignore[misc]
    name = 'needing'
    needs = frozenset({'records', 'test'})
    needs_labels = True


def results_of(sources: Sources, *found: Measure) -> dict[str, evaluation.MeasureResult]:
    [corpus] = evaluation.evaluate([sources], found).corpora
    return {result.measure: result for result in corpus.measures}


def test_a_measure_that_fails_is_told_without_its_words_and_the_others_run() -> None:
    told: list[tuple[str, str, int, int]] = []
    sources = plain_sources(['One text.', 'Another.'])
    made = evaluation.evaluate(
        [sources], [Failing(), Lacking(), Counting()], on_progress=lambda *parts: told.append(parts)
    )
    failing, lacking, counting = made.corpora[0].measures
    assert failing.failed and failing.findings is None and 'KeyError' in str(failing.reason)
    assert not lacking.failed and lacking.reason == 'There are too few.'
    assert counting.findings is not None and counting.findings.figures[0].value == 2
    assert made.failed == ('corpus: failing',)
    assert SECRET not in made.to_json() + evaluation_page.render_html(made)
    assert [(title, done) for _, title, done, _ in told if done == 0] == [
        ('Failing', 0), ('Lacking', 0), ('Counting', 0),
    ]  # fmt: skip


def test_what_a_measure_needs_and_is_not_there_is_named() -> None:
    assert results_of(plain_sources(['a']), Needing())['needing'].reason == 'It needs --records and --test.'
    there = plain_sources(['a'], test=['b'], records=['c'])
    reason = results_of(there, Needing())['needing'].reason
    assert reason == 'It needs labels, and there are none of: corpus, records, test.'


def test_corpora_have_names_of_their_own() -> None:
    sources = plain_sources(['a'])
    with pytest.raises(ValueError, match='names='):
        evaluation.evaluate([sources, sources], [])


@pytest.mark.parametrize(
    'beside, restricted', [({}, False), ({'test': ['b']}, True), ({'records': ['b']}, True)]
)
def test_who_may_read_it_follows_from_what_was_read(beside: dict[str, list[str]], restricted: bool) -> None:
    made = evaluation.evaluate([plain_sources(['a'], **beside)], [Counting()])
    assert made.reads_records == restricted
    assert made.audience.startswith('Restricted') == restricted
    page = evaluation_page.render_html(made)
    assert ('(restricted)' in page, 'class="readers warn"' in page) == (restricted, restricted)


@needs_model
def test_the_document_and_the_page_name_the_model_whose_states_are_compared() -> None:
    text = 'Where is my parcel?'
    settings = EvaluationSettings(embedder='decoder')
    read = [('corpus', reading.ReadTexts(texts=Texts(name='corpus', texts=(text,)), left_out={}))]
    made = asked.measure(read, [Counting()], settings)
    assert (made.embedder, made.embedder_model) == ('decoder', 'bundled')
    assert json.loads(made.to_json())['embedder_model'] == 'bundled'
    assert 'Vectors of texts: decoder of bundled. Seed' in evaluation_page.render_html(made)
    of_words = asked.measure(read, [Counting()], EvaluationSettings())
    assert of_words.embedder_model is None
    assert 'Vectors of texts: tfidf. Seed' in evaluation_page.render_html(of_words)


def test_the_document_keeps_its_schema_and_another_does_not() -> None:
    made = evaluation.evaluate([plain_sources(['a'], test=['b'])], [Counting(), Lacking(), Failing()])
    written, schema = json.loads(made.to_json()), json.loads(documents.committed('evaluation'))
    jsonschema.validate(written, schema)
    written['corpora'][0]['measures'][0]['findings']['figures'][0]['colour'] = 'red'
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written, schema)


def test_the_page_shows_every_kind_of_chart_and_escapes_texts() -> None:
    sources = plain_sources(['<script>alert(1)</script> & more'])
    page = evaluation_page.render_html(evaluation.evaluate([sources], [Counting(), Lacking()]))
    assert page.count('<svg') == 2 and '<script>' not in page and '&lt;script&gt;' in page
    for kind in ('lines', 'bars'):
        assert f'As {kind}' in page
    assert '1 ± 0.5' in page and '1,234,567' in page and 'Never there' not in page
    assert 'Not defined. There are too few.' in page


@typing.final
class Growing(Measure):
    name = 'growing'
    title = 'Growing'
    question = 'How far does it go?'

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        if sources.corpus.name == 'short':
            raise NotDefined('There are too few.')
        sizes = tuple(float(size) for size in range(1, 1 + len(sources.corpus)))
        lines = (
            Series(name='score, corpus', x=sizes, y=sizes),
            Series(name=f'score, {len(sizes)} records', x=sizes, y=sizes, real=True),
        )
        chart = Chart(
            kind='lines', title='By size', x_label='x', y_label='y', series=lines, together=True
        )  # fmt: skip
        return Findings(settings={}, figures=(), charts=(chart,))


def test_corpora_are_drawn_together_and_what_they_are_compared_with_once() -> None:
    def page_of(*names: str) -> str:
        sources = [
            dataclasses.replace(plain_sources([]), corpus=Texts(name=name, texts=('a',) * (2 + number)))
            for number, name in enumerate(names)
        ]
        return evaluation_page.render_html(evaluation.evaluate(sources, [Growing()]))

    page = page_of('tuned', 'voted', 'short')
    titles = re.findall('<figcaption><strong>(.*?)</strong>', page)
    assert titles == ['By size', 'tuned: By size', 'voted: By size']
    together = re.findall('<svg.*?</svg>', page, re.DOTALL)[0]
    for name, drawn in {
        'tuned: score, corpus': 1, 'voted: score, corpus': 1, 'score, 3 records': 1, 'score, 2 records': 0,
    }.items():  # fmt: skip
        assert together.count(f'>{name}<') == drawn, name
    assert page_of('tuned', 'short').count('<svg') == 1
    assert page_of('tuned').count('<svg') == 1


def test_examples_of_the_page_hold() -> None:
    assert doctest.testmod(evaluation_page).failed == 0


# --- The command -----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Answer:
    """The output of the command, and its end."""

    stdout: str
    output: str
    exit_code: int
    exception: BaseException | None


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Runs the command in this process."""
    monkeypatch.setenv('COLUMNS', '120')

    def asked(*arguments: str) -> Answer:
        code, raised = 0, None
        try:
            code = main.app(['evaluate', *arguments], standalone_mode=False) or 0
        except Exception as error:  # noqa: BLE001 - the tests look at it
            code, raised = 1, error
        printed = capfd.readouterr()
        return Answer(printed.out, printed.out + printed.err, code, raised)

    return asked


@pytest.fixture
def files(tmp_path: pathlib.Path) -> list[str]:
    """A corpus, records and held-out records, as flags."""
    corpus = run_folder(tmp_path / 'corpus', rows_of(40, first=500))
    return [
        corpus, '--records', write(tmp_path / 'records.csv', rows_of(60)),
        '--test', write(tmp_path / 'test.csv', rows_of(40, first=200)),
        '--text-field', 'note', '--label-field', 'ward',
    ]  # fmt: skip


@pytest.mark.first
@pytest.mark.heavy
def test_it_writes_for_the_curator_alone_and_prints_no_text(
    tmp_path: pathlib.Path, files: list[str], ask: Ask
) -> None:
    output = tmp_path / 'evaluation'
    found = ask(*files, '--output', str(output), '--also', f'same={files[0]}', '--only', 'use,surface')
    assert found.exit_code == 0, found.output
    assert 'Restricted to the curator' in found.output and 'corpus' in found.output and 'same' in found.output
    assert 'harbour' not in found.output and 'loaves' not in found.output
    written = json.loads((output / 'evaluation.json').read_text())
    jsonschema.validate(written, json.loads(documents.committed('evaluation')))
    assert [result['measure'] for result in written['corpora'][0]['measures']] == ['use', 'surface']
    assert {source['role']: source['texts'] for source in written['sources']} == {
        'corpus': 40, 'records': 60, 'test': 40,
    }  # fmt: skip
    # Two topics of different words: whoever trains on the corpus tells them apart.
    figures = written['corpora'][0]['measures'][0]['findings']['figures']
    assert figures[0]['value'] > 0.9
    for path in (output, *output.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    again = ask(*files, '--output', str(output))
    assert isinstance(again.exception, FileExistsError)


def test_it_is_never_written_beside_a_corpus(files: list[str], ask: Ask) -> None:
    refused = ask(*files, '--output', f'{files[0]}/evaluation')
    assert isinstance(refused.exception, ValueError) and 'without a corpus' in str(refused.exception)


def test_a_measure_that_fails_is_told_by_the_exit_code(
    tmp_path: pathlib.Path, files: list[str], monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    monkeypatch.setitem(measures.MEASURES, 'failing', Failing())
    found = ask(*files, '--only', 'failing,surface', '--output', str(tmp_path / 'e'))
    assert (
        found.exit_code == 1 and SECRET not in found.output and (tmp_path / 'e' / 'evaluation.json').exists()
    )


@pytest.mark.parametrize(
    'arguments, words',
    [
        (['--only', 'beauty'], 'Choose from: use'),
        (['--only', ','], 'Choose from'),
        (['--also', 'nameless.csv'], 'NAME=PATH'),
        (['--json-schema', '{schema}'], 'Expected a JSON schema'),
    ],
)
def test_a_request_that_is_none_says_what_to_ask_for(
    tmp_path: pathlib.Path, files: list[str], arguments: list[str], words: str, ask: Ask
) -> None:
    (tmp_path / 'schema.json').write_text('{"type": 7}')
    found = ask(*files, *(part.format(schema=tmp_path / 'schema.json') for part in arguments))
    assert isinstance(found.exception, ValueError) and words in str(found.exception)


def test_a_schema_is_what_structure_holds_texts_to(tmp_path: pathlib.Path, ask: Ask) -> None:
    rows = [('x', json.dumps({'age': index})) for index in range(20)]
    (tmp_path / 'schema.json').write_text('{"properties": {"age": {"maximum": 9}}}')
    corpus = write(tmp_path / 'c.csv', rows)
    given = ('--text-field', 'note', '--json-schema', str(tmp_path / 'schema.json'))
    found = ask(corpus, *given, '--only', 'structure', '--json')
    [result] = json.loads(found.stdout)['corpora'][0]['measures']
    assert result['reason'] is None, result['reason']
    assert 0.5 in [figure['value'] for figure in result['findings']['figures']]
