"""Audits by canaries, from settings to a verdict: right runs pass, and each broken one is noticed.

A fault is a function of the mechanism that a test replaces. Nothing of the audit itself is.
"""

import dataclasses
import functools
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.bundled import FOLDER as BUNDLED
from models.clustering.embedder import Embedder
from models.evolution.generation import Candidate, candidates_to_json
from models.finetuning import train
from models.generate.batch import BatchGenerator
from models.privacy import accounting, gradients, text_votes, whole_numbers
from models.privacy.accounting import subsampled
from models.privacy.randomness import RunKey
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods import canary_audit
from pipeline.methods.canary_audit import CanaryAudit
from pipeline.settings.job_config import JobConfig
from tests.command_line import in_this_process
from tests.models.finetuning import tiny
from tests.samples import needs_model, write_rows
from transforms.evolve import embed, files, rounds, vote

pytestmark = pytest.mark.heavy

# The words that the bundled embedder knows.
TERMS = json.loads((BUNDLED / 'centers' / 'tfidf.json').read_text())['terms'].split()
LABELS = tuple('abcdefgh')


def audited(config: JobConfig, **arguments: Any) -> CanaryAudit:
    run = methods.solve(config, launch=True)
    return canary_audit.audit(methods.of(run).canaries(), run, **arguments)


def weaken_votes(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """Leaves a share of the noise on votes."""
    right = text_votes.noisy_votes
    monkeypatch.setattr(
        text_votes, 'noisy_votes', lambda sums, scale, source: right(sums, share * scale, source)
    )


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
    result = audited(refining(corpus), canaries=1024)
    assert result.ok and result.epsilon == pytest.approx(3.0, rel=1e-4) and result.records == 0
    # A vote is 0.6 of the noise: right by 2 in 3. Fewer than 0.6 would be a chance of 1 in a million.
    assert 0.6 < result.bounds.area < 0.73 and result.bounds.canaries == 1024


def test_votes_without_noise_are_noticed(corpus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weaken_votes(monkeypatch, 1e-3)
    result = audited(refining(corpus), canaries=1024)
    assert not result.ok and result.epsilon == pytest.approx(3.0, rel=1e-4)
    assert result.bounds.epsilon_at_least > 3.0


def test_a_list_with_texts_of_records_is_noticed(corpus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of units stand among the candidates before the vote."""
    right = embed.embedded
    folder: list[str] = []
    write_list = rounds.write_list

    def listing(settings: Any, work_dir: str, number: int, embedder: Embedder) -> None:
        folder.append(work_dir)
        write_list(settings, work_dir, number, embedder)

    def embedded(rows: Iterable[Any], labels: Any, embedder: Embedder) -> bytes:
        rows = list(rows)
        listed = files.read_candidates(folder[-1], 1)
        own = [text for _, _, texts in rows for text in texts]
        if own:
            more = tuple(
                Candidate(name=f'9999-000000-{n:04d}', text=text, label=None) for n, text in enumerate(own)
            )
            vectors = np.concatenate([files.read_vectors(folder[-1], 1), embedder.embed(own)])
            lists = pathlib.Path(files.round_path(folder[-1], files.candidates_name(1)))
            lists.write_text(candidates_to_json(1, (*listed, *more)))
            with open(os.fspath(files.vectors_path(folder[-1], 1)), 'wb') as file:
                file.write(files.vectors_to_bytes(vectors))
        return right(rows, labels, embedder)

    monkeypatch.setattr(rounds, 'write_list', listing)
    monkeypatch.setattr(embed, 'embedded', embedded)
    result = audited(refining(corpus), canaries=1024)
    assert not result.ok and result.bounds.epsilon_at_least > 3.0


@pytest.mark.parametrize('fault', ['none', 'half of the noise', 'counted twice'])
def test_many_canaries_notice_twice_the_signal(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A few thousand canaries are too few for any attack that tells half of the noise from all of it."""
    if fault == 'half of the noise':
        weaken_votes(monkeypatch, 0.5)
    elif fault == 'counted twice':
        right = vote.add_votes
        monkeypatch.setattr(vote, 'add_votes', lambda tables: right([*tables] * 2))
    config = refining(texts(tmp_path, 1050), epsilon=4.0, labels=tuple('abcdefghijklmnop'))
    result = audited(config, canaries=16_000)
    assert result.ok == (fault == 'none'), result.bounds.epsilon_at_least


def test_users_and_other_records_are_in_the_run(
    corpus: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's canary has several records of one text; records of the input vote beside it."""
    rows = [{'text': TERMS[number], 'label': 'a', 'user': str(number % 20)} for number in range(60)]
    config = refining(
        corpus, input=write_rows(tmp_path / 'in.jsonl', rows), unit='user', unit_field='user',
        examples_per_context=3, nearest=2,
    )  # fmt: skip
    weaken_votes(monkeypatch, 1e-3)
    result = audited(config, canaries=256)
    assert (result.records, result.unit) == (60, 'user')
    # Without noise the votes of overlapping canaries are told apart, but for some.
    assert result.bounds.area > 0.95


@needs_model
def test_rounds_are_audited_with_the_texts_that_they_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds, each of which samples; what the model writes is as it is."""
    with tiny.known():
        config = job_config(
            method='evolve', model='tiny', label_field='label', labels=('a', 'b'), records=200, delta=1e-5,
            epsilon=3.0, rounds=2, candidates=120, children=20, examples=40, unvoted=0, nearest=1, shots=1,
            regex='(' + '|'.join(TERMS[100:160]) + ')( (' + '|'.join(TERMS[200:260]) + ')){1,2}',
            max_prompt_tokens=96, max_example_tokens=48, temperature=3.0, top_p=1.0, prompt='pretrained',
            dtype='float32', micro_batch_size=32,
        )  # fmt: skip
        weaken_votes(monkeypatch, 1e-3)
        broken = audited(config, canaries=64)
        # Both rounds count: each shows every canary.
        assert broken.bounds.area > 0.95
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


def weaken_gradients(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """Leaves a share of the noise on sums of gradients."""
    right = gradients.noise_of_step

    def weaker(key: RunKey, run_id: str, step: int, size: int, params: gradients.TuningParams) -> Any:
        z = share * params.noise_multiplier
        return right(key, run_id, step, size, dataclasses.replace(params, noise_multiplier=z))

    monkeypatch.setattr(gradients, 'noise_of_step', weaker)


def leave_unclipped(gradient: Any, clip_norm: float) -> Any:
    scale = whole_numbers.RADIUS / clip_norm
    return jax.tree.map(lambda leaf: jnp.trunc(leaf * scale).astype(jnp.int32), gradient)


@pytest.mark.usefixtures('_one_key', '_tiny')
@pytest.mark.parametrize('fault', ['none', 'no noise', 'no clipping'])
def test_gradients_are_audited(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """One step with every unit in it, at ε = 4."""
    if fault == 'no noise':
        weaken_gradients(monkeypatch, 1e-3)
    elif fault == 'no clipping':
        monkeypatch.setattr(whole_numbers, 'steps', leave_unclipped)
    result = audited(tuning(), canaries=900)
    assert result.epsilon == pytest.approx(4.0, rel=1e-3)
    assert result.ok == (fault == 'none') and result.reads == 'restricted'
    if fault == 'none':
        assert 0.6 < result.bounds.area < 0.82


@pytest.mark.usefixtures('_one_key', '_tiny')
@pytest.mark.parametrize('fault', ['half of the noise', 'two gradients', 'none'])
def test_many_canaries_notice_what_is_nearly_right(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == 'half of the noise':
        weaken_gradients(monkeypatch, 0.5)
    elif fault == 'two gradients':
        right = train.Batches.of

        def twice(*arguments: Any) -> train.Batches:
            return train.Batches(tuple(np.repeat(of, 2) for of in right(*arguments).members))

        monkeypatch.setattr(train.Batches, 'of', twice)
    result = audited(tuning(lora_rank=32), canaries=10_500)
    assert result.ok == (fault == 'none'), result.bounds.epsilon_at_least


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
    assert (result.attack, result.method, result.ok) == ('pairs of words', 'predict', True)
    rho = sum(accounting.curve_of(event).rho for event in methods.solve(config).cost.stages.values())
    assert result.epsilon == pytest.approx(accounting.epsilon_from_rho(rho, 1e-5))


@needs_model
@pytest.mark.usefixtures('_one_key')
@pytest.mark.parametrize('is_copied', [False, True])
def test_many_batches_notice_what_is_copied(monkeypatch: pytest.MonkeyPatch, is_copied: bool) -> None:
    """Each batch shows one or two of its contexts, so there are enough where there are 64 of them."""
    right = BatchGenerator.generate

    def copied(generator: BatchGenerator, batch: Any, *arguments: Any, **named: Any) -> Any:
        made = right(generator, batch, *arguments, **named)
        own = itertools.cycle(context.texts[0] for context in batch.contexts)
        examples = [dataclasses.replace(one, text=text) for one, text in zip(made.examples, own)]
        return dataclasses.replace(made, examples=examples)

    if is_copied:
        monkeypatch.setattr(BatchGenerator, 'generate', copied)
    config = predicting(
        aggregate='difference', records=256, batch_size=8, batches_per_label=64, epsilon=1.0,
        clip_bound=0.5, max_private_tokens=None, max_batch_tokens=48,
    )  # fmt: skip
    result = audited(config, canaries=512)
    assert result.epsilon == pytest.approx(1.0, rel=1e-3)
    # Without the copies it is 0; with them it was 2.1, of a proven ε of 1.
    assert result.ok == (not is_copied)


# --- Input that does not fit, and who may see what --------------------------------


@pytest.mark.parametrize(
    'make, changed, arguments, message',
    [
        ('refining', {}, {'canaries': 10}, r'canaries >= 64, got canaries=10.*512'),
        ('refining', {}, {'canaries': 5000}, r'canaries=5000, labels=8, texts=1\d\d. Give fewer'),
        ('tuning', {}, {'canaries': 10_000}, r'canaries=10000, adapter_parameters=2944'),
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


def test_the_command_ends_with_what_it_found(
    corpus: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / 'audit.html'
    done = in_this_process(*command(corpus, '--canaries', '64', '--result', str(page)))
    assert done.returncode == 0 and 'which proves no privacy' in ' '.join(done.stdout.split()), done.stderr
    html = page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600 and html.count('<svg') == 1
    assert 'Restricted to the curator' in html and 'noisy votes' in html and 'http://' not in html[:500]
    kept = tmp_path / 'audit.json'
    weaken_votes(monkeypatch, 1e-3)
    done = in_this_process(*command(corpus, '--canaries', '1024', '--json', '--result', str(kept)))
    assert (done.returncode, done.stdout) == (1, kept.read_text())
    assert json.loads(done.stdout)['ok'] is False
    broken = in_this_process(*command(corpus, '--canaries', '1024'))
    assert broken.returncode == 1 and 'VIOLATION' in broken.stdout


def test_the_command_refuses_before_it_loads(corpus: str) -> None:
    done = in_this_process(*command(corpus, '--canaries', '1'))
    assert done.returncode == 2 and 'give 512 or more' in ' '.join(done.stderr.split())
    assert in_this_process(*command(corpus, '--result', 'a.txt')).returncode == 2
