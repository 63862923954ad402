"""The whole job with --method evolve, on a real but tiny Gemma: charge, rounds, corpus, resumption."""

import base64
import contextlib
import functools
import itertools
import json
import logging
import operator
import pathlib
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from models.attributes import label_of
from models.clustering.embedder import TfidfEmbedder
from models.clustering.similarities import quantized
from models.privacy import text_votes
from models.privacy.grid import NoiseSource
from models.privacy.report import RestrictedReport
from models.sampling import loading
from pipeline import job, methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.release import released_corpus
from pipeline.run import folders
from pipeline.run.beam_options import beam_options
from pipeline.settings.job_config import JobConfig
from tests import completions_server
from tests.documents import check_document
from tests.launched import launch, report_of, rows_of
from tests.models.finetuning import tiny
from tests.oracles import text_votes as oracle
from tests.samples import unpacked, write_rows
from transforms import run_files
from transforms.evolve import sample
from transforms.evolve.embed import read_shard

pytestmark = pytest.mark.run

LABELS = ('billing', 'delivery')
WORDS = {
    'billing': ('invoice', 'refund', 'payment', 'charged', 'account', 'price'),
    'delivery': ('parcel', 'courier', 'late', 'address', 'shipping', 'road'),
}
# In every record, in no vocabulary and in no prompt.
CANARY = 'xqzzarn'
# Texts of one label's words each: a tiny model of random weights writes anything else, and knows no label.
REGEX = '|'.join(f'({any_word})( ({any_word})){{1,2}}' for any_word in map('|'.join, WORDS.values()))
ROWS = [
    {
        'text': f'{" ".join(WORDS[label][(number * step) % 6] for step in (1, 2, 5))} {CANARY}{number}',
        'label': label, 'id': str(number), 'user': f'user {number % 13}',
        'team': LABELS[number % 2], 'ward': 'AB'[number % 3 == 0],
    }
    for number in range(40) for label in [LABELS[number % 2]]
]  # fmt: skip


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    """The tiny family; its model is loaded and compiled once for all runs."""
    with tiny.known(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample, 'load_source', functools.lru_cache(loading.load_source))
        yield


def config(folder: pathlib.Path, **changed: Any) -> JobConfig:
    given = {
        'method': 'evolve', 'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'),
        'label_field': 'label', 'labels': ('billing=Billing', 'delivery'), 'record_id_field': 'id',
        'records': 40, 'delta': 1e-2, 'epsilon': 30.0, 'rounds': 2, 'candidates': 24,
        'children': 12, 'examples': 30,
        'nearest': 2, 'shots': 2, 'regex': REGEX, 'max_prompt_tokens': 96, 'max_example_tokens': 40,
        'temperature': 3.0, 'top_p': 1.0, 'model': 'tiny', 'prompt': 'pretrained', 'micro_batch_size': 16,
        'dtype': 'float32', 'shards': 1,
    }  # fmt: skip
    return job_config(**(given | changed))


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob('*') if path.is_file()}


@contextlib.contextmanager
def counted() -> Iterator[tuple[list[np.ndarray], list[str]]]:
    """Tables that noise was added to, and texts that were embedded, meanwhile."""
    draw, embed = text_votes.noisy_votes, TfidfEmbedder.embed
    drawn: list[np.ndarray] = []
    texts: list[str] = []

    def drawing(sums: np.ndarray, noise_scale: float, source: NoiseSource) -> np.ndarray:
        drawn.append(sums)
        return draw(sums, noise_scale, source)

    def embedding(self: TfidfEmbedder, of: Sequence[str]) -> np.ndarray:
        texts.extend(of)
        return embed(self, of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_votes, 'noisy_votes', drawing)
        patch.setattr(TfidfEmbedder, 'embed', embedding)
        yield drawn, texts


@pytest.fixture(scope='module')
def first(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of a finished run of two rounds that a ledger charged."""
    folder = tmp_path_factory.mktemp('first')
    write_rows(folder / 'in.jsonl', ROWS)
    open_ledger(folder)
    with counted() as (drawn, texts):
        launch(charged(folder), [])
    assert len(drawn) == 2 and sum(CANARY in text for text in texts) == len(ROWS)
    return folder


def votes_by_definition(candidates: Sequence[str]) -> np.ndarray:
    """Votes of `ROWS` on these texts before noise, a record at a time: `[label, candidate]` quanta."""
    method = config(pathlib.Path()).method
    embedder = method.embedder_settings(method).load_embedder()
    vectors = quantized(embedder.embed(candidates)).astype(np.int64).tolist()
    table = np.zeros((len(LABELS), len(candidates)), np.int64)
    for row in ROWS:
        (record,) = quantized(embedder.embed([row['text']])).astype(np.int64).tolist()
        products = [sum(map(operator.mul, record, vector)) for vector in vectors]
        # A record without a word that the embedder knows votes for nothing.
        named = [oracle.nearest(products, 2)] if any(record) else []
        cells = oracle.votes_of_unit(named, text_votes.QUANTA_PER_VOTE)
        for candidate, quanta in cells.items():
            table[LABELS.index(row['label']), candidate] += quanta
    return table


def open_ledger(folder: pathlib.Path) -> None:
    """A new ledger, in which no run is settled."""
    (folder / 'ledger.db').unlink(missing_ok=True)
    Ledger.create(str(folder / 'ledger.db')).add_dataset('mail', unit='example', delta=1e-2, epsilon=90.0)


def charged(folder: pathlib.Path, **changed: Any) -> JobConfig:
    return config(folder, dataset='mail', ledger=str(folder / 'ledger.db'), **changed)


# --- What a run releases ---------------------------------------------------------


@pytest.mark.first
def test_the_corpus_has_the_labels_that_records_voted_for(first: pathlib.Path) -> None:
    rows, report = rows_of(first / 'out'), report_of(first / 'out')
    assert 4 <= len(rows) <= 30 and {row['label'] for row in rows} == set(LABELS)
    assert set(rows[0]) == {
        'text', 'label', 'label_words', 'batch_id', 'index_in_batch', 'tokens', 'truncated', 'round',
        'noisy_votes', 'parents',
    }  # fmt: skip
    # Records vote for the texts nearest to them, in the row of their own label. What a cell has beside that
    # is noise, of which one draw in 500 million is beyond six standard deviations; that it is as wide as it
    # should be is tested where it is drawn (tests/models/privacy/text_votes_test.py).
    listed, votes = (
        json.loads((first / 'out' / 'rounds' / f'{name}-02.json').read_text())
        for name in ('candidates', 'votes')
    )
    exact = votes_by_definition([of['text'] for of in listed['candidates']])
    quanta, bound = np.array(votes['quanta']), 6 * votes['noise_scale'] * text_votes.QUANTA_PER_VOTE
    assert np.abs(quanta - exact).max() < bound < np.abs(quanta - exact[::-1]).max()
    assert {row['label_words'] for row in rows if row['label'] == 'billing'} == {'Billing'}
    assert all((row['round'] is None) == (row['noisy_votes'] is None) for row in rows)
    assert all(0 < row['tokens'] <= 40 and not row['truncated'] for row in rows)
    totals = {
        'examples': len(rows), 'voted': sum(row['round'] is not None for row in rows),
        'sampled_tokens': sum(row['tokens'] for row in rows), 'truncated': 0,
    }  # fmt: skip
    assert json.loads(report.to_json())['corpus'] == totals
    # Every text is one of a list, with the votes that stand there.
    for row in rows:
        # The last list has all texts that were voted on, and its votes count.
        number = 3 if row['round'] is None else 2
        listed = json.loads((first / 'out' / 'rounds' / f'candidates-{number:02d}.json').read_text())
        (place,) = [
            place for place, of in enumerate(listed['candidates'])
            if of['name'] == f'{row["batch_id"]}-{row["index_in_batch"]:04d}'
        ]  # fmt: skip
        assert listed['candidates'][place]['text'] == row['text']
        assert ','.join(listed['candidates'][place]['parents']) == row['parents']
        if row['round'] is not None:
            votes = json.loads((first / 'out' / 'rounds' / f'votes-{number:02d}.json').read_text())
            quanta = votes['quanta'][LABELS.index(row['label'])][place]
            assert row['noisy_votes'] == quanta / text_votes.QUANTA_PER_VOTE
    # The corpus is read as any other.
    (path,) = (first / 'out' / 'data').iterdir()
    assert [of.text for of in released_corpus.read_examples(str(path), 'reference')] == [
        row['text'] for row in rows
    ]


@pytest.mark.first
def test_the_report_has_the_price_and_no_place(first: pathlib.Path) -> None:
    run, report = charged(first), report_of(first / 'out')
    params = methods.solve(run).params
    assert report.rho_total == params.rho == 2 / (2 * params.noise_scale**2)
    assert 29.9 < (report.epsilon or 0.0) == params.epsilon(1e-2) <= 30.0
    (stage,) = report.stages
    assert (stage.name, stage.rho) == ('Votes on texts', params.rho)
    assert report.method.mechanism == params
    assert (report.settings['embedder'], report.settings['candidates']) == ('tfidf', 24)
    assert not {'start', 'endpoint', 'endpoint_model', 'batch_size', 'corpus'} & report.settings.keys()
    check_document('privacy-report', report.to_json())
    assert report.ledger is not None and report.ledger.run_number == 1
    assert any('sampled from public prompts' in text for text in report.assumptions_enforced)
    assert not any('adapter' in text for text in report.assumptions_enforced)
    for name in ('README.md', 'privacy_report.html', run_files.REPORT):
        text = (first / 'out' / name).read_text()
        assert str(first) not in text and 'noisy' in text
    reported = {(of.label, of.batches) for of in report.plan}
    assert reported == {('billing', 3), ('delivery', 3)}
    restricted = (first / 'out.curator' / run_files.RESTRICTED_REPORT).read_text()
    assert RestrictedReport.from_json(restricted).losses is None
    counts = [of['true_count'] for of in json.loads(restricted)['true_counts_by_group']]
    assert counts == [20, 20] and json.loads(restricted)['records_read'] == 40


@pytest.mark.first
def test_lists_and_noisy_votes_are_released_as_they_were_drawn(first: pathlib.Path) -> None:
    released, kept = contents(first / 'out' / 'rounds'), contents(first / 'out.curator' / 'rounds')
    assert set(released) == {
        'candidates-01.json', 'candidates-02.json', 'candidates-03.json', 'votes-01.json', 'votes-02.json',
    }  # fmt: skip
    assert all(kept[name] == data for name, data in released.items())
    batches = {path.stem for path in (first / 'out.curator' / 'batches').iterdir()}
    assert batches == {str(batch) for batch in methods.solve(config(first)).batch_plan.batch_ids()}


@pytest.mark.first
def test_a_run_is_charged_once_and_a_finished_one_stays(first: pathlib.Path) -> None:
    before = contents(first / 'out')
    with counted() as (drawn, texts):
        launch(charged(first), [])
    assert contents(first / 'out') == before and not drawn and not any(CANARY in text for text in texts)
    (run,) = Ledger.open(str(first / 'ledger.db')).account('mail').runs
    assert run.cost == methods.solve(charged(first)).cost
    assert run.cost.stages['votes_on_texts'] == methods.solve(charged(first)).params.event
    assert run.rho == methods.solve(charged(first)).params.rho


# --- Resumption ------------------------------------------------------------------


def remove(folder: pathlib.Path, *kept: str) -> None:
    """Leaves of a work directory what was drawn with noise, what every run has, and what else is named."""
    shutil.rmtree(folder / 'out')
    work_dir = folder / 'out.curator'
    always = (run_files.RUN_KEY, run_files.RUN, run_files.CONFIG, run_files.PLAN, 'rounds/votes-')
    for path in work_dir.rglob('*'):
        name = str(path.relative_to(work_dir))
        if path.is_file() and not name.startswith((*always, *kept)):
            path.unlink()


@pytest.mark.parametrize('kept', [('embeddings/', 'rounds/', 'batches/'), ('embeddings/',)], ids=str)
def test_from_the_votes_on_a_run_ends_with_the_same_corpus(
    first: pathlib.Path, kept: tuple[str, ...]
) -> None:
    """All of it follows from the votes and the run key: texts, lists, embeddings and corpus."""
    before, rounds = contents(first / 'out'), contents(first / 'out.curator' / 'rounds')
    remove(first, *kept)
    open_ledger(first)
    with counted() as (drawn, texts):
        launch(charged(first), [])
    assert not drawn and not any(CANARY in text for text in texts)
    assert contents(first / 'out') == before
    assert contents(first / 'out.curator' / 'rounds') == rounds
    assert len(Ledger.open(str(first / 'ledger.db')).account('mail').runs) == 1


def test_a_run_that_died_in_a_vote_goes_on_and_draws_nothing_again(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    write_rows(tmp_path / 'in.jsonl', ROWS)
    open_ledger(tmp_path)
    draw = text_votes.noisy_votes
    run, rounds = charged(tmp_path), []

    def dies_once(sums: np.ndarray, noise_scale: float, source: NoiseSource) -> np.ndarray:
        rounds.append(sums.sum())
        if len(rounds) == 2:
            raise KeyError(ROWS[0]['text'])
        return draw(sums, noise_scale, source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_votes, 'noisy_votes', dies_once)
        with pytest.raises(RuntimeError) as failed:
            launch(run, [])
    shown = ''.join(traceback.format_exception(failed.value))
    said = '\n'.join(f'{each.getMessage()} {each.__dict__}' for each in caplog.records)
    assert CANARY not in shown + said + ''.join(capfd.readouterr())
    assert "step='Generate/Votes2/Draw'" in str(failed.value)
    died = contents(tmp_path / 'out.curator' / 'rounds')
    assert 'votes-01.json' in died and 'candidates-02.json' in died and 'votes-02.json' not in died
    with counted() as (drawn, texts):
        launch(run, [])
    assert len(drawn) == 1 and not any(CANARY in text for text in texts)
    done = contents(tmp_path / 'out.curator' / 'rounds')
    assert all(done[name] == data for name, data in died.items()) and 'votes-02.json' in done
    assert len(Ledger.open(str(tmp_path / 'ledger.db')).account('mail').runs) == 1
    # Other records are another run.
    write_rows(tmp_path / 'in.jsonl', ROWS[:-1])
    with pytest.raises(FileExistsError, match='The records of --input are not those that it began with'):
        launch(run, [])


# --- Nothing private gets out ----------------------------------------------------


@pytest.mark.first
def test_no_record_embedding_or_true_count_is_in_a_released_file(first: pathlib.Path) -> None:
    vectors, units, groups = read_shard(str(first / 'out.curator'), 0)
    assert len(vectors) == len(units) == len(groups) == 40
    for name, data in contents(first / 'out').items():
        assert CANARY.encode() not in data, name
        assert not any(vector.tobytes() in data for vector in vectors if vector.any()), name
    assert not any(CANARY in str(row) for row in rows_of(first / 'out'))
    # Embeddings stay, and no text.
    assert not any(CANARY.encode() in data for data in contents(first / 'out.curator').values())
    kept = (first / 'out.curator' / 'embeddings' / '00000.safetensors').read_bytes()
    assert all(vector.tobytes() in kept for vector in vectors)


def built(run: JobConfig) -> tuple[beam.Pipeline, bytes]:
    """The pipeline of a run, and all that a runner shows of it."""
    options = beam_options(run.runner.runner, [])
    solved = methods.solve(run, launch=True)
    prepared = methods.of(run).prepare(solved)
    folders.prepare(solved)
    root = beam.Pipeline(options=options)
    job.build(root, solved, prepared)
    proto = unpacked(root.to_runner_api().SerializeToString())
    return root, proto + repr(options.get_all_options()).encode()


def upstream(root: beam.Pipeline, label: str, stop: Callable[[str], bool] = lambda _: False) -> set[str]:
    """Labels of all steps whose output reaches a step, not beyond those where `stop` holds."""
    steps: dict[str, Any] = {}

    class Collect(beam.pipeline.PipelineVisitor):
        def visit_transform(self, node: Any) -> None:
            steps[node.full_label] = node

    root.visit(Collect())
    found: set[str] = set()
    waiting = [steps[label]]
    while waiting:
        node = waiting.pop()
        sides = [side.pvalue for side in node.side_inputs]
        for of in (*node.inputs, *sides):
            producer = of.producer
            if producer is not None and producer.full_label not in found:
                found.add(producer.full_label)
                if not stop(producer.full_label):
                    waiting.append(producer)
    return found


def is_private(label: str) -> bool:
    return label.startswith(('Read', 'Sample', 'Generate/Select', 'Generate/Embed')) or '/Count' in label


def test_no_record_reaches_the_sampler(tmp_path: pathlib.Path) -> None:
    write_rows(tmp_path / 'in.jsonl', ROWS)
    root, shown = built(config(tmp_path, rounds=3, examples=60))
    for number, name in enumerate(('Round1', 'Round2', 'Round3', 'After')):
        label = f'Generate/{name}/Sample'
        steps = upstream(root, label, stop=lambda step: step.endswith('/Draw'))
        assert not any(map(is_private, steps)), steps
        # The last thing before it is the table of noisy votes: past it there are the records.
        assert {step for step in steps if step.endswith('/Draw')} == (
            {f'Generate/Votes{number}/Draw'} if number else set()
        )
        assert any(map(is_private, upstream(root, label))) == bool(number)
    assert b'max_prompt_tokens' in shown and CANARY.encode() not in shown
    secret = (tmp_path / 'out.curator' / run_files.RUN_KEY).read_bytes()
    for form in (secret, secret.hex().encode(), base64.b64encode(secret)):
        assert form not in shown


# --- Other kinds of runs ---------------------------------------------------------


@pytest.mark.parametrize(
    'changed, labels',
    [
        (
            {'unit': 'user', 'unit_field': 'user', 'examples_per_context': 3, 'rounds': 1, 'records': 13},
            LABELS,
        ),
        ({'label_field': None, 'labels': (), 'rounds': 1}, (None,)),
        (
            {
                'label_field': None, 'attributes': ('team', 'ward'), 'rounds': 1,
                'labels': ('team:billing=Billing', 'team:delivery', 'ward:A', 'ward:B'),
            },
            tuple(label_of(values) for values in itertools.product(LABELS, 'AB')),
        ),
    ],
    ids=['users', 'no labels', 'attributes'],
)  # fmt: skip
def test_units_and_labels(
    tmp_path: pathlib.Path, changed: dict[str, Any], labels: tuple[str | None, ...]
) -> None:
    write_rows(tmp_path / 'in.jsonl', ROWS)
    run = config(tmp_path, **changed)
    with counted() as (drawn, texts):
        launch(run, [])
    params, report, rows = methods.solve(run).params, report_of(tmp_path / 'out'), rows_of(tmp_path / 'out')
    assert [table.shape[0] for table in drawn] == [len(labels)]
    # A unit has one vote at the most, whatever it holds.
    units = 13 if params.unit == 'user' else 40
    sums = drawn[0] / text_votes.QUANTA_PER_VOTE
    assert 0 < sums.sum() <= units * params.nearest**0.5 * params.examples_per_context**0.5
    assert sum(CANARY in text for text in texts) <= len(ROWS)
    assert report.rho_total == params.rho and report.unit == params.unit
    assert rows and {row['label'] for row in rows} <= set(labels)
    assert {of.label for of in report.plan} == set(labels)
    if 'attributes' in changed:
        assert all(row['label'] == label_of((row['team'], row['ward'])) for row in rows)
    check_document('privacy-report', report.to_json())


def test_a_later_round_whose_texts_are_all_like_earlier_ones_stops_nothing(tmp_path: pathlib.Path) -> None:
    write_rows(tmp_path / 'in.jsonl', ROWS)
    run = config(
        tmp_path, regex='parcel late|payment road', candidates=48, children=4, examples=4, temperature=9.0,
        top_k=None,
    )  # fmt: skip
    launch(run, [])
    rounds = tmp_path / 'out' / 'rounds'
    listed = [json.loads((rounds / f'candidates-0{number}.json').read_text()) for number in (1, 2)]
    assert len(listed[0]['candidates']) == 2 and listed[1]['candidates'] == listed[0]['candidates']
    votes = json.loads((rounds / 'votes-02.json').read_text())['quanta']
    assert [len(row) for row in votes] == [2, 2]
    assert {row['text'] for row in rows_of(tmp_path / 'out')} == {'parcel late', 'payment road'}


def test_without_records_of_a_declared_label_noise_is_all_there_is(tmp_path: pathlib.Path) -> None:
    write_rows(tmp_path / 'in.jsonl', [{**row, 'label': 'other'} for row in ROWS])
    run = config(tmp_path, rounds=1, epsilon=2.0)
    with counted() as (drawn, texts):
        launch(run, [])
    assert len(drawn) == 1 and not drawn[0].any() and not any(CANARY in text for text in texts)
    votes = json.loads((tmp_path / 'out' / 'rounds' / 'votes-01.json').read_text())['quanta']
    assert np.array(votes).any() and report_of(tmp_path / 'out').epsilon <= 2.0


# --- Texts that are given --------------------------------------------------------

GIVEN = [' '.join(words) for label in LABELS for words in zip(WORDS[label], WORDS[label][1:], strict=False)]


def test_the_first_list_may_be_of_files_or_of_a_release(first: pathlib.Path, tmp_path: pathlib.Path) -> None:
    write_rows(tmp_path / 'in.jsonl', ROWS)
    write_rows(tmp_path / 'public.jsonl', [{'text': text} for text in (*GIVEN, GIVEN[0], 'zzz')])
    run = config(tmp_path, start=str(tmp_path / 'public.jsonl'), output=str(tmp_path / 'files'))
    launch(run, [])
    listed = json.loads((tmp_path / 'files' / 'rounds' / 'candidates-01.json').read_text())['candidates']
    # One that is there twice, and one of which the embedder knows nothing, are left out.
    texts = [of['text'] for of in listed]
    assert len(texts) > 5 and texts == [text for text in GIVEN if text in texts]
    assert len({of['name'] for of in listed}) == len(texts) and {of['tokens'] for of in listed} == {0}
    report = report_of(tmp_path / 'files')
    assert not any('sampled from public prompts: no record' in text for text in report.assumptions_enforced)
    assert str(tmp_path) not in report.to_json()
    # The run before, on the same records: the ledger adds both up, and the report says so.
    ledger = shutil.copy(first / 'ledger.db', tmp_path / 'ledger.db')
    given = {'dataset': 'mail', 'ledger': str(ledger), 'start': str(first / 'out'), 'rounds': 1}
    launch(config(tmp_path, output=str(tmp_path / 'second'), **given), [])
    assert len(Ledger.open(str(ledger)).account('mail').runs) == 2
    said = report_of(tmp_path / 'second').assumptions_enforced
    assert any("run 1 on dataset 'mail'" in text for text in said)
    second = report_of(tmp_path / 'second')
    assert [(of.run_id, of.dataset) for of in second.releases] == [('out', 'mail')]
    assert second.ledger is not None and second.epsilon == pytest.approx(second.ledger.epsilon_after)
    texts = {row['text'] for row in rows_of(first / 'out')}
    listed = json.loads((tmp_path / 'second' / 'rounds' / 'candidates-01.json').read_text())['candidates']
    assert {of['text'] for of in listed} == texts
    # A ledger that does not hold the charge
    Ledger.create(str(tmp_path / 'new.db')).add_dataset('mail', unit='example', delta=1e-2, epsilon=90.0)
    with pytest.raises(ValueError, match='Expected a corpus whose charge the ledger holds, got start='):
        launch(
            config(tmp_path, output=str(tmp_path / 'c'), **given | {'ledger': str(tmp_path / 'new.db')}), []
        )
    assert not (tmp_path / 'c').exists()
    assert Ledger.open(str(tmp_path / 'new.db')).account('mail').runs == ()
    # The records themselves, by whatever path
    (tmp_path / 'link.jsonl').symlink_to(tmp_path / 'in.jsonl')
    for same in ('in.jsonl', 'link.jsonl'):
        with pytest.raises(ValueError, match='which --input names too') as failed:
            launch(config(tmp_path, start=str(tmp_path / same), output=str(tmp_path / 'd')), [])
        assert CANARY not in str(failed.value)


# --- Texts of an endpoint --------------------------------------------------------


def test_an_endpoint_that_fails_in_round_2_stops_a_run_which_goes_on_when_it_is_repeated(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / 'in.jsonl', ROWS)
    Ledger.create(str(tmp_path / 'ledger.db')).add_dataset('mail', unit='example', delta=1e-2, epsilon=90.0)
    monkeypatch.setenv('TOKEN_OF_A_TEST', 'opensesame')
    with completions_server.running() as url:
        run = charged(
            tmp_path, endpoint=f'{url}/v1', endpoint_model='words-of-chance',
            endpoint_token='TOKEN_OF_A_TEST', text_name='Mail [words-and-401]', prompt='document',
            fresh_share=0.0, regex=None, candidates=24, model='bundled', examples=8,
            min_example_tokens=1,
        )  # fmt: skip
        with pytest.raises(RuntimeError, match='Expected an endpoint that takes requests') as failed:
            launch(run, [])
        shown = ''.join(traceback.format_exception(failed.value))
        assert "step='Generate/Round2/Sample'" in shown and CANARY not in shown and 'opensesame' not in shown
        (of_run,) = Ledger.open(str(tmp_path / 'ledger.db')).account('mail').runs
        assert of_run.cost == methods.solve(run).cost
        died = contents(tmp_path / 'out.curator' / 'rounds')
        assert 'votes-01.json' in died and 'requests-02.json' in died and 'candidates-02.json' not in died
        with counted() as (drawn, texts):
            launch(run, [])
        asked = completions_server.seen(url)['seen']
    assert len(drawn) == 1 and not any(CANARY in text for text in texts)
    done = contents(tmp_path / 'out.curator' / 'rounds')
    assert all(done[name] == data for name, data in died.items())
    assert len(Ledger.open(str(tmp_path / 'ledger.db')).account('mail').runs) == 1
    # Labels and released texts left, and no record.
    assert not any(CANARY in json.dumps(request) for request in asked)
    assert {request['headers']['authorization'] for request in asked} == {'Bearer opensesame'}
    listed = [
        of['text']
        for number in (1, 2)
        for of in json.loads(done[f'candidates-{number:02d}.json'])['candidates']
    ]
    later = [request for request in asked if any(text in request['body']['prompt'] for text in listed)]
    assert 0 < len(later) < len(asked)
    # The release names the model, and neither the endpoint nor its token.
    report, rows = report_of(tmp_path / 'out'), rows_of(tmp_path / 'out')
    assert rows and report.settings['endpoint_model'] == 'words-of-chance'
    assert not {'model', 'dtype', 'endpoint', 'endpoint_token'} & report.settings.keys()
    for name, data in contents(tmp_path / 'out').items():
        assert b'127.0.0.1' not in data and b'TOKEN_OF_A_TEST' not in data, name
    everything = {**contents(tmp_path / 'out'), **contents(tmp_path / 'out.curator')}
    assert not any(b'opensesame' in data for data in everything.values())
