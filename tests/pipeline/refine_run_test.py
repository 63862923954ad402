"""`dp-corpus refine`: records vote on the texts of a corpus, and those that they favour stay."""

import json
import pathlib
from typing import Any

import pytest

from models.privacy import text_votes
from models.records import EvolvedExample
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.ledger import Ledger
from pipeline.methods.predict.reference import read_reference
from pipeline.settings.job_config import JobConfig
from tests.command_line import Done, in_this_process
from tests.documents import check_document
from tests.launched import rows_of
from tests.models.privacy.report.samples import released_report
from tests.samples import write_rows
from transforms import run_files
from transforms.evolve import COLUMNS
from transforms.write import encode_shard

WORDS = {
    'billing': ('refund', 'payment', 'charged', 'account', 'price'),
    'delivery': ('parcel', 'courier', 'address', 'shipping', 'road'),
}
CANARY = 'xqzzarn'
RECORDS = [
    {'text': f'{WORDS[label][number % 5]} {WORDS[label][(number + 2) % 5]} {CANARY}', 'label': label}
    for number in range(40)
    for label in [('billing', 'delivery')[number % 2]]
]
# Texts of other labels than the records', or none: votes decide.
TEXTS = [
    {'text': f'{first} {second}', 'label': 'anything'}
    for words in WORDS.values()
    for place, first in enumerate(words)
    for second in words[place + 1 :]
]


def filled(folder: pathlib.Path) -> pathlib.Path:
    write_rows(folder / 'in.jsonl', RECORDS)
    write_rows(folder / 'texts.jsonl', TEXTS)
    Ledger.create(str(folder / 'ledger.db')).add_dataset('mail', unit='example', delta=1e-2, epsilon=60.0)
    return folder


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return filled(tmp_path)


def charged(folder: pathlib.Path) -> dict[str, str | None]:
    return {'dataset': 'mail', 'ledger': str(folder / 'ledger.db'), 'keep': '8'}


@pytest.fixture(scope='module')
def refined(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with texts that were refined once."""
    folder = filled(tmp_path_factory.mktemp('refined'))
    refine(folder, folder / 'texts.jsonl', **charged(folder))
    return folder


def flags(folder: pathlib.Path, **changed: str | None) -> list[str]:
    given: dict[str, str | None] = {
        'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'), 'label-field': 'label',
        'labels': 'billing=Billing,delivery', 'records': '40', 'delta': '1e-2', 'epsilon': '20',
        'nearest': '1', 'shards': '1',
    }  # fmt: skip
    named = {**given, **{name.replace('_', '-'): value for name, value in changed.items()}}
    return [part for name, value in named.items() if value is not None for part in (f'--{name}', value)]


def refine(folder: pathlib.Path, corpus: pathlib.Path | str, code: int = 0, **changed: str | None) -> Done:
    done = in_this_process('refine', str(corpus), *flags(folder, **changed))
    assert done.returncode == code, done.stdout + done.stderr
    assert CANARY not in done.stdout + done.stderr
    return done


@pytest.mark.first
@pytest.mark.run
def test_texts_stay_that_records_favour_and_are_charged_once(refined: pathlib.Path) -> None:
    folder = refined
    rows = rows_of(folder / 'out')
    assert 6 <= len(rows) <= 8
    for row in rows:
        assert {'text': row['text'], 'label': 'anything'} in TEXTS
        assert (row['round'], row['tokens'], row['parents'], row['truncated']) == (1, 0, '', False)
    # The embedder finds some words of one label like those of the other.
    right = [row for row in rows if row['text'].split()[0] in WORDS[row['label']]]
    assert len(right) > len(rows) / 2 and {row['label'] for row in rows} <= WORDS.keys()
    assert {row['label_words'] for row in rows if row['label'] == 'billing'} == {'Billing'}
    report = json.loads((folder / 'out' / run_files.REPORT).read_text())
    check_document('privacy-report', json.dumps(report))
    params = report['method']['mechanism']
    noise = text_votes.solve_noise_scale(epsilon=20.0, delta=1e-2, rounds=1, nearest=params['nearest'])
    assert report['rho_total'] == 1 / (2 * noise**2) and params['noise_scale'] == noise
    assert 19.9 < report['epsilon'] == text_votes.TextVoteParams(**params).epsilon(1e-2) <= 20.0
    assert (report['settings']['keep'], report['settings']['embedder']) == (8, 'tfidf')
    assert not {'corpus', 'model', 'dtype', 'examples', 'prompt'} & report['settings'].keys()
    assert str(folder) not in json.dumps(report)
    assert report['ledger']['run_number'] == 1
    released = {path.name for path in (folder / 'out' / 'rounds').iterdir()}
    assert released == {'candidates-01.json', 'votes-01.json'}
    (run,) = Ledger.open(str(folder / 'ledger.db')).account('mail').runs
    assert run.rho == report['rho_total']
    # The same command again changes and costs nothing.
    before = {path: path.read_bytes() for path in (folder / 'out').rglob('*') if path.is_file()}
    refine(folder, folder / 'texts.jsonl', **charged(folder))
    assert before == {path: path.read_bytes() for path in (folder / 'out').rglob('*') if path.is_file()}
    assert len(Ledger.open(str(folder / 'ledger.db')).account('mail').runs) == 1


@pytest.mark.run
def test_a_release_is_refined_as_files_are_and_may_be_a_reference(refined: pathlib.Path) -> None:
    folder, rows = refined, rows_of(refined / 'out')
    # The ledger adds both runs up, and the report says so.
    refine(folder, folder / 'out', **{**charged(folder), 'keep': '2', 'output': str(folder / 'second')})
    assert len(Ledger.open(str(folder / 'ledger.db')).account('mail').runs) == 2
    second = rows_of(folder / 'second')
    assert 1 <= len(second) <= 2 and {row['text'] for row in second} <= {row['text'] for row in rows}
    report = json.loads((folder / 'second' / run_files.REPORT).read_text())
    assert any("run 1 on dataset 'mail'" in text for text in report['assumptions_enforced'])
    # Without a ledger the curator vouches for it.
    refine(folder, folder / 'out', output=str(folder / 'third'), keep='2')
    report = json.loads((folder / 'third' / run_files.REPORT).read_text())
    assert any("counts the run 'out' too" in text for text in report['assumptions_of_curator'])
    assert [release['run_id'] for release in report['method']['releases']] == ['out']
    assert report['epsilon'] > report['epsilon_of_run']
    # As public text of another run's prompts: it has all that a reference needs.
    given = job_config(
        input=str(folder / 'in.jsonl'), output='x', epsilon=1.0, delta=1e-2, records=40,
        aggregate='difference', reference=str(folder / 'out'), label_field='label',
        labels=('billing', 'delivery'), reference_size=1,
    )  # fmt: skip
    reference = read_reference(given)
    assert reference is not None
    assert [release.run_number for release in reference.origin.releases] == [1]


@pytest.mark.run
def test_half_of_the_texts_stay_by_default_and_need_no_labels(folder: pathlib.Path) -> None:
    refine(folder, folder / 'texts.jsonl', label_field=None, labels=None)
    rows = rows_of(folder / 'out')
    # Texts that are much alike are voted on once.
    assert 5 < len(rows) <= len(TEXTS) // 2 and {row['label'] for row in rows} == {None}


def refused(folder: pathlib.Path, corpus: pathlib.Path | str, said: str, **changed: str | None) -> None:
    done = refine(folder, corpus, code=2, **changed)
    assert said in ' '.join(done.stderr.split()), done.stderr
    assert not (folder / 'out').exists()


def test_the_records_are_no_corpus(folder: pathlib.Path) -> None:
    (folder / 'link.jsonl').symlink_to(folder / 'in.jsonl')
    for name in ('in.jsonl', 'link.jsonl', '*.jsonl', '../' + folder.name + '/in.jsonl'):
        refused(folder, folder / name, 'which --input names too')


def test_a_corpus_without_texts_is_refused(folder: pathlib.Path) -> None:
    (folder / 'empty.jsonl').write_text('')
    write_rows(folder / 'blank.jsonl', [{'text': ''}, {'text': 3}])
    for name in ('empty.jsonl', 'blank.jsonl'):
        done = in_this_process('refine', str(folder / name), *flags(folder))
        assert done.returncode == 2 and 'Expected' in done.stderr, done.stderr
    refused(folder, folder / 'nothing.jsonl', 'nothing.jsonl')
    (folder / 'unfinished').mkdir()
    refused(folder, folder / 'unfinished', 'a folder without privacy_report.json')


def release(folder: pathlib.Path, report: str) -> pathlib.Path:
    """A folder with one text and some report."""
    place = folder / 'release'
    (place / 'data').mkdir(parents=True)
    row = EvolvedExample(
        text='a parcel', label='delivery', batch_id='0000-000000', index_in_batch=0, tokens=3,
        truncated=False, round=1, noisy_votes=1.0, parents='',
    )  # fmt: skip
    (place / 'data' / 'train-00000-of-00001.parquet').write_bytes(encode_shard([row], COLUMNS))
    (place / run_files.REPORT).write_text(report)
    return place


SOUND = json.loads(released_report('first', {'dataset': 'mail', 'run_number': 1, 'rho': 0.1}))


@pytest.mark.parametrize(
    'report, said',
    [
        (json.dumps(SOUND)[:-9], 'Expected a release that states (epsilon, delta)'),
        ('[]', 'Expected a release that states (epsilon, delta)'),
        (json.dumps(SOUND | {'statement': 'a diagnostic'}), 'got corpus='),
        (json.dumps(SOUND | {'ledger': {'dataset': 'mail'}}), 'Restore the release as its run wrote it'),
        (json.dumps(SOUND), 'Expected a corpus whose charge the ledger holds'),
    ],
)
def test_a_release_whose_price_is_unknown_is_refused(folder: pathlib.Path, report: str, said: str) -> None:
    refused(folder, release(folder, report), said, dataset='mail', ledger=str(folder / 'ledger.db'))
    assert Ledger.open(str(folder / 'ledger.db')).account('mail').runs == ()


def config(folder: pathlib.Path, **changed: Any) -> JobConfig:
    given = {
        'method': 'refine', 'corpus': str(folder / 'texts.jsonl'), 'input': str(folder / 'in.jsonl'),
        'output': str(folder / 'out'), 'records': 40, 'delta': 1e-2, 'epsilon': 20.0,
    }  # fmt: skip
    return job_config(**(given | changed))


def test_the_plan_counts_texts_and_says_where_noise_drowns_votes(folder: pathlib.Path) -> None:
    run = config(folder)
    plan = methods.of(run).plan(methods.solve(run))
    assert (plan.candidates, plan.examples) == (len(TEXTS), len(TEXTS) // 2) and plan.warnings == ()
    check_document('plan', plan.to_json())
    faint = config(folder, epsilon=0.1, nearest=1)
    (warning,) = methods.of(faint).plan(methods.solve(faint)).warnings
    assert 'the votes drown in it. Give fewer texts, raise --nearest or --epsilon' in warning
    arguments = ('--method', 'refine', '--corpus', str(folder / 'texts.jsonl'), '--records', '40')
    arguments = (*arguments, '--delta', '1e-2', '--epsilon', '20', '--keep', '3')
    done = in_this_process('plan', *arguments, '--json')
    assert done.returncode == 0, done.stderr
    check_document('plan', done.stdout)
    assert json.loads(done.stdout)['examples'] == 3
    shown = ' '.join(in_this_process('plan', *arguments).stdout.split())
    assert f'{len(TEXTS)}, of which 3 stay at the most' in shown


@pytest.mark.parametrize(
    'changed, said',
    [
        ({'corpus': None}, 'Expected a corpus to refine, got corpus=None'),
        ({'keep': 0}, 'keep >= 1'),
        ({'records': None}, 'Expected a declared number of units'),
        ({'vote_noise': 1.0}, 'Expected either epsilon or vote_noise'),
        ({'rounds': 2}, "Expected no rounds with method='refine', got rounds=2. The texts are given"),
        ({'start': 'x'}, 'Give --corpus, the texts to vote on.'),
        ({'examples': 3}, 'Give --keep, the texts that stay.'),
        ({'batch_size': 3}, 'It is a setting of --method predict.'),
    ],
)
def test_settings_that_do_not_go_with_refining_are_refused(
    folder: pathlib.Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match='Expected') as failed:
        config(folder, **changed)
    assert said in str(failed.value)
