"""Audits by canaries, from settings to a verdict: right runs pass, and each broken one is noticed."""

import functools
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from models.audits import one_run
from models.bundled import FOLDER as BUNDLED
from models.privacy import accounting
from models.privacy.accounting import subsampled
from models.privacy.randomness import RunKey
from pipeline import methods
from pipeline.canaries import CanaryAudit
from pipeline.config import job_config
from pipeline.settings.job_config import JobConfig
from tests.command_line import in_this_process
from tests.documents import check_document
from tests.models.finetuning import tiny
from tests.samples import needs_model, write_rows

pytestmark = pytest.mark.heavy

# The words that the bundled embedder knows.
TERMS = json.loads((BUNDLED / 'centers' / 'tfidf.json').read_text())['terms'].split()
LABELS = tuple('abcdefgh')


def audited(config: JobConfig, **arguments: Any) -> CanaryAudit:
    return methods.of(config).canary_auditor().audit(methods.solve(config, launch=True), **arguments)


def found(result: CanaryAudit) -> dict[str, one_run.AttackResult]:
    return {attack.name: attack for attack in result.attacks}


# --- Votes on texts ---------------------------------------------------------------


def texts(folder: pathlib.Path, count: int) -> str:
    rng = np.random.default_rng(0)
    rows = [{'text': ' '.join(TERMS[word] for word in rng.choice(len(TERMS), 4))} for _ in range(count)]
    return write_rows(folder / 'texts.jsonl', rows)


@pytest.fixture(scope='module')
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return texts(tmp_path_factory.mktemp('corpus'), 200)


def refining(corpus: str, **changed: Any) -> JobConfig:
    given = {
        'method': 'refine', 'corpus': corpus, 'label_field': 'label', 'labels': LABELS,
        'records': 1000, 'delta': 1e-6, 'epsilon': 3.0, 'nearest': 1,
    }  # fmt: skip
    return job_config(**(given | changed))


@pytest.mark.first
def test_votes_as_they_are_pass(corpus: str) -> None:
    config = refining(corpus)
    result = audited(config, canaries=1024)
    assert result.ok and result.epsilon == pytest.approx(3.0, rel=1e-4) and result.records == 0
    votes, listed = found(result)['noisy votes'], found(result)['listed texts']
    # A vote is 0.6 of the noise: right by 2 in 3. Fewer than 0.6 would be a chance of 1 in a million.
    assert 0.6 < votes.area < 0.73 and votes.canaries == 1024
    assert listed.area == 0.5 and listed.epsilon_at_least == 0


@pytest.mark.parametrize(
    'sabotage, attack',
    [('no-noise', 'noisy votes'), ('noise-again', 'noisy votes'), ('own-text', 'listed texts')],
)
def test_broken_votes_are_noticed(corpus: str, sabotage: str, attack: str) -> None:
    result = audited(refining(corpus), canaries=1024, sabotage=sabotage)
    assert not result.ok and result.sabotage == sabotage and result.epsilon == pytest.approx(3.0, rel=1e-4)
    assert found(result)[attack].contradicts
    assert found(result)[attack].epsilon_at_least == result.epsilon_at_least > 3.0


@pytest.mark.parametrize('sabotage', ['none', 'half-noise', 'counted-twice'])
def test_many_canaries_notice_twice_the_signal(tmp_path: pathlib.Path, sabotage: str) -> None:
    """Of a few thousand canaries no attack tells half of the noise from all of it."""
    config = refining(texts(tmp_path, 1050), epsilon=4.0, labels=tuple('abcdefghijklmnop'))
    result = audited(config, canaries=16_000, sabotage=sabotage)
    assert result.ok == (sabotage == 'none'), result.epsilon_at_least


def test_users_and_other_records_are_in_the_run(corpus: str, tmp_path: pathlib.Path) -> None:
    """A user's canary has several records of one text; records of the input vote beside it."""
    rows = [{'text': TERMS[number], 'label': 'a', 'user': str(number % 20)} for number in range(60)]
    config = refining(
        corpus, input=write_rows(tmp_path / 'in.jsonl', rows), unit='user', unit_field='user',
        examples_per_context=3, nearest=2,
    )  # fmt: skip
    result = audited(config, canaries=256, sabotage='no-noise')
    assert (result.records, result.unit) == (60, 'user')
    # Without noise the votes of overlapping canaries are told apart, but for some.
    assert found(result)['noisy votes'].area > 0.95


@needs_model
def test_rounds_are_audited_with_the_texts_that_they_sample() -> None:
    """Two rounds, each of which samples; what the model writes is as it is."""
    with tiny.known():
        config = job_config(
            method='evolve', model='tiny', label_field='label', labels=('a', 'b'), records=200, delta=1e-5,
            epsilon=3.0, rounds=2, candidates=120, children=20, examples=40, unvoted=0, nearest=1, shots=1,
            regex='(' + '|'.join(TERMS[100:160]) + ')( (' + '|'.join(TERMS[200:260]) + ')){1,2}',
            max_prompt_tokens=96, max_example_tokens=48, temperature=3.0, top_p=1.0, prompt='pretrained',
            dtype='float32', micro_batch_size=32,
        )  # fmt: skip
        broken = audited(config, canaries=64, sabotage='no-noise')
        # Both rounds count: each shows every canary.
        assert found(broken)['noisy votes'].area > 0.95
        assert broken.epsilon == pytest.approx(3.0, rel=1e-4)


# --- Fine-tuning ------------------------------------------------------------------


@pytest.fixture
def _one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same coins and noise each time: all of them follow from the key."""
    monkeypatch.setattr(RunKey, 'new', lambda: RunKey(bytes(32)))


@pytest.fixture
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


def tuning(**changed: Any) -> JobConfig:
    given = {
        'method': 'fine-tune', 'model': 'tiny', 'label_field': 'label', 'labels': ('a', 'b'),
        'records': 1000, 'delta': 1e-5, 'noise_multiplier': 1.0812, 'tuning_steps': 1,
        'expected_batch_size': 1000, 'lora_rank': 8, 'micro_batch_size': 32, 'max_prompt_tokens': 24,
        'max_example_tokens': 8, 'mismatch_weight': 0.0, 'examples_per_label': 0, 'prompt': 'pretrained',
        'dtype': 'float32',
    }  # fmt: skip
    return job_config(**(given | changed))


@pytest.mark.usefixtures('_one_key', '_tiny')
@pytest.mark.parametrize('sabotage', ['none', 'no-noise', 'no-clipping'])
def test_gradients_are_audited(sabotage: str) -> None:
    """One step with every unit in it, at ε = 4."""
    result = audited(tuning(), canaries=1200, sabotage=sabotage)
    assert result.epsilon == pytest.approx(4.0, rel=1e-3)
    gradients = found(result)['noisy gradients']
    assert result.ok == (sabotage == 'none') == (not gradients.contradicts)
    assert gradients.canaries == 900 and gradients.reads == 'restricted'
    assert found(result)['losses of texts'].canaries == 300
    if sabotage == 'none':
        assert 0.6 < gradients.area < 0.82


# At ε = 3; the most that a sample of a tenth gains over pieces of the file.
SAMPLED = {'tuning_steps': 20, 'records': 1024, 'expected_batch_size': 100, 'noise_multiplier': 1.0835}


@pytest.mark.usefixtures('_one_key', '_tiny')
@pytest.mark.parametrize(
    'sabotage, changed',
    [
        ('half-noise', {}), ('two-gradients', {}), ('noise-again', {}), ('none', {}),
        ('by-position', SAMPLED), ('none', SAMPLED),
    ],
)  # fmt: skip
def test_many_canaries_notice_what_is_nearly_right(sabotage: str, changed: dict[str, Any]) -> None:
    config = tuning(**({'lora_rank': 32} | changed))
    result = audited(config, canaries=8000 if changed else 14_000, sabotage=sabotage)
    assert result.ok == (sabotage == 'none'), result.epsilon_at_least


def test_the_curve_of_steps_is_that_of_their_epsilon() -> None:
    z, q, steps = 0.9, 0.2, 5
    epsilon = subsampled.epsilon_of_steps(q, z, steps, 1e-5)
    (delta,) = subsampled.deltas_of_steps(q, z, steps, (epsilon,))
    assert delta == pytest.approx(1e-5, rel=0.05)
    counted = subsampled.epsilon_of_steps(q, z, steps, 1e-5, 10.0)
    (delta,) = subsampled.deltas_of_steps(q, z, steps, (counted,), 10.0)
    assert delta == pytest.approx(1e-5, rel=0.05)


# --- Private prediction -----------------------------------------------------------


def predicting(**changed: Any) -> JobConfig:
    given = {
        'method': 'predict', 'records': 64, 'delta': 1e-5, 'batch_size': 16, 'temperature': 1.5,
        'aggregate': 'mean', 'max_private_tokens': 24, 'max_prompt_tokens': 64, 'batches_per_label': 2,
    }  # fmt: skip
    return job_config(**(given | changed))


@needs_model
def test_a_corpus_is_attacked_by_its_words() -> None:
    config = predicting()
    result = audited(config, canaries=64)
    names = [attack.name for attack in result.attacks]
    assert names == ['pairs of words', 'neighbours'] and result.method == 'predict' and result.ok
    rho = methods.solve(config).cost.curve.rho
    assert result.epsilon == pytest.approx(accounting.epsilon_from_rho(rho, 1e-5))


@needs_model
@pytest.mark.usefixtures('_one_key')
@pytest.mark.parametrize('sabotage', ['none', 'own-text'])
def test_many_batches_notice_what_is_copied(sabotage: str) -> None:
    """Each batch shows one or two of its contexts, so there are enough where there are 64 of them."""
    config = predicting(
        aggregate='difference', records=256, batch_size=8, batches_per_label=64, epsilon=1.0,
        clip_bound=0.5, max_private_tokens=None, max_batch_tokens=48,
    )  # fmt: skip
    result = audited(config, canaries=512, sabotage=sabotage)
    assert result.epsilon == pytest.approx(1.0, rel=1e-3)
    # Without the copies it is 0; with them it was 2.1, of a proven ε of 1.
    assert result.ok == (sabotage == 'none')
    if sabotage == 'own-text':
        assert found(result)['pairs of words'].contradicts


# --- Input that does not fit, and who may see what --------------------------------


@pytest.mark.parametrize(
    'make, changed, arguments, message',
    [
        ('refining', {}, {'canaries': 10}, r'canaries >= 64, got canaries=10.*512'),
        ('refining', {}, {'canaries': 64, 'sabotage': 'two-gradients'}, "'refine'.*own-text"),
        ('refining', {}, {'canaries': 64, 'sabotage': 'fire'}, "sabotage='fire'"),
        ('refining', {}, {'canaries': 5000}, r'canaries=5000, labels=8, texts=1\d\d. Give fewer'),
        ('tuning', {}, {'canaries': 64, 'sabotage': 'own-text'}, "'fine-tune'.*by-position"),
        ('tuning', {}, {'canaries': 10_000}, r'three in four are, adapter_parameters=2944'),
        ('predicting', {}, {'canaries': 64, 'sabotage': 'by-position'}, "'predict'.*none, own-text"),
        ('predicting', {'aggregate': 'median'}, {'canaries': 64}, 'a price in advance'),
        ('predicting', {'regex': 'a'}, {'canaries': 64}, 'no structure'),
    ],
)  # fmt: skip
@pytest.mark.usefixtures('_tiny')
def test_what_does_not_fit_is_refused(
    corpus: str, make: str, changed: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    made = {'refining': functools.partial(refining, corpus), 'tuning': tuning, 'predicting': predicting}
    with pytest.raises(ValueError, match=message):
        audited(made[make](**changed), **arguments)


def command(corpus: str, *further: str) -> tuple[str, ...]:
    return (
        'audit', 'canaries', '--method', 'refine', '--corpus', corpus, '--records', '1000', '--delta',
        '1e-6', '--epsilon', '3', '--nearest', '1', '--label-field', 'label', '--labels', ','.join(LABELS),
        *further,
    )  # fmt: skip


@pytest.mark.first
def test_the_command_ends_with_what_it_found(corpus: str, tmp_path: pathlib.Path) -> None:
    page = tmp_path / 'audit.html'
    done = in_this_process(*command(corpus, '--canaries', '64', '--result', str(page)))
    assert done.returncode == 0 and 'which proves no privacy' in ' '.join(done.stdout.split()), done.stderr
    html = page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600 and html.count('<svg') == 4
    assert 'Restricted to the curator' in html and 'noisy votes' in html and 'http://' not in html[:500]
    kept = tmp_path / 'audit.json'
    done = in_this_process(
        *command(corpus, '--canaries', '1024', '--sabotage', 'no-noise', '--json', '--result', str(kept))
    )
    assert (done.returncode, done.stdout) == (1, kept.read_text())
    check_document('canary-audit', done.stdout)
    assert json.loads(done.stdout)['ok'] is False
    broken = in_this_process(*command(corpus, '--canaries', '1024', '--sabotage', 'no-noise'))
    assert broken.returncode == 1 and 'VIOLATION' in broken.stdout


def test_the_command_refuses_before_it_loads(corpus: str) -> None:
    done = in_this_process(*command(corpus, '--canaries', '1'))
    assert done.returncode == 2 and 'give 512 or more' in ' '.join(done.stderr.split())
    assert in_this_process(*command(corpus, '--result', 'a.txt')).returncode == 2
