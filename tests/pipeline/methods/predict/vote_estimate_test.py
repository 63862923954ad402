"""How long votes last, on public texts: what is decoded, what it says of a run, and what is refused."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from models.generate.batch import BatchGenerator
from models.privacy.randomness import RunKey
from models.records import Batch
from models.reference import pick
from pipeline.config import job_config
from pipeline.methods.predict import vote_estimate
from pipeline.methods.predict.vote_estimate import VoteEstimate, VotesAgainst, estimate_votes, lasting
from pipeline.methods.predict.worker_settings import generator_settings
from pipeline.settings.job_config import JobConfig
from tests.command_line import in_this_process
from tests.one_model import one_model
from tests.samples import assert_import_leaves, batch, needs_model, write_rows

THINGS = ('parcel', 'bill', 'router', 'visit', 'invoice', 'phone', 'meter', 'refund')
NAMES = ('Ada', 'Ben', 'Cleo', 'Dan', 'Eve', 'Finn', 'Gus', 'Hal')
MESSAGES = [
    f'Dear support, I am {name} and I would like to ask about my {thing}, thank you.'
    for name in NAMES
    for thing in THINGS
]
TOWNS = [
    f'{name}ville is a small town in the county of {thing.title()} in the north, founded in 18{number}0.'
    for number, (name, thing) in enumerate(zip(NAMES, THINGS, strict=True))
]


@pytest.fixture(scope='module', autouse=True)
def _one_model() -> Iterator[None]:
    with one_model():
        yield


def config(**settings: Any) -> JobConfig:
    given = {
        'delta': 1e-5, 'batches_per_label': 2, 'batch_size': 8, 'aggregate': 'difference',
        'context_budget': 0.5, 'omega': 8.0, 'max_batch_tokens': 200, 'max_prompt_tokens': 60,
        'max_example_tokens': 24, 'public_top_k': 200, 'reference_size': 4,
    }  # fmt: skip
    return job_config(**(given | settings))


def write_texts(path: pathlib.Path, texts: Sequence[str], label: str | None = None) -> str:
    return write_rows(path, ({'text': text, 'topic': label} for text in texts))


# --- Arithmetic ------------------------------------------------------------------


def step_by_step(
    prices: Sequence[float], budget: float, tokens: int
) -> tuple[list[float], int | None, float]:
    """Every context pays its price token by token, until it cannot: the slow twin of `lasting`."""
    voters, spent = [], [0.0] * len(prices)
    for token in range(tokens):
        can = [(token + 1) * price <= budget for price in prices]
        spent = [
            (token + 1) * price if pays else had for price, pays, had in zip(prices, can, spent, strict=True)
        ]
        voters.append(sum(can))
    silent = next((token for token, count in enumerate(voters) if count < len(prices)), None)
    shares = [voters[-(-quarter * tokens // 4) - 1] / len(prices) for quarter in (1, 2, 3, 4)]
    return shares, silent, sum(1 - had / budget for had in spent) / len(prices)


@pytest.mark.parametrize('tokens', [1, 3, 4, 10, 101])
def test_votes_last_as_long_as_token_by_token(tokens: int) -> None:
    budget = 1.0
    # In powers of two, so that both are exact.
    prices = [0.0, 2.0**-9, 2.0**-5, 2.0**-4, 2.0**-3, 2.0**-2, 0.5, 4.0]
    # Two decoded tokens, of which the mean counts.
    charged = np.array([prices, prices]) * np.array([[0.5], [1.5]])
    found = lasting([charged], budget, tokens)
    shares, silent, left = step_by_step(prices, budget, tokens)
    assert found.voting == tuple(shares)
    assert found.first_silent == silent == 0
    assert found.budget_left == pytest.approx(left)
    assert found.mean_price == pytest.approx(np.mean(prices))
    few = lasting([charged[:, :3]], budget, tokens)
    assert few.first_silent == step_by_step(prices[:3], budget, tokens)[1]


def test_whoever_pays_to_the_end_leaves_the_rest() -> None:
    found = lasting([np.full((5, 3), 0.125)], 1.0, 8, reference_texts=7)
    assert found == VotesAgainst(
        reference_texts=7, mean_price=0.125, standard_error=0.0, voting=(1.0,) * 4, first_silent=None,
        budget_left=0.0,
    )  # fmt: skip
    assert lasting([np.full((5, 3), 0.125)], 2.0, 8).budget_left == 0.5
    assert lasting([np.full((1, 3), 0.125)], 2.0, 8).standard_error is None
    assert lasting([np.full((5, 3), 0.126)], 1.0, 8).first_silent == 7


def test_several_streams_count_by_how_they_differ() -> None:
    """Tokens of a stream that agree tell little where streams do not."""
    streams = [np.full((100, 3), price) for price in (1.0, 2.0, 3.0)]
    found = lasting(streams, 250.0, 100)
    assert found.mean_price == 2.0
    by_streams = np.std([1.0, 2.0, 3.0], ddof=1) / np.sqrt(3)
    assert found.standard_error == pytest.approx(by_streams)
    assert found.standard_error > 5 * np.concatenate(streams).mean(axis=1).std() / np.sqrt(300)
    # Two of three streams pay to the end, and the dearest contexts are silent first.
    assert found.voting[3] == pytest.approx(2 / 3) and found.first_silent == 83
    # Where tokens differ more than streams, they count.
    noisy = np.arange(100.0)[:, None] % 2 * np.ones((1, 3))
    alike = lasting([noisy, noisy], 250.0, 100)
    assert alike.standard_error == pytest.approx(noisy.mean(axis=1).std() / np.sqrt(200), rel=0.01)


def test_prices_that_tokens_leave_open_are_no_verdict() -> None:
    def estimate(*mean_prices: float, error: float | None) -> VoteEstimate:
        against = tuple(
            VotesAgainst(
                reference_texts=0, mean_price=price, standard_error=error, voting=(), first_silent=None,
                budget_left=0.0,
            )
            for price in mean_prices
        )  # fmt: skip
        return VoteEstimate(label=None, streams=1, contexts=2, tokens=2, against=against)

    assert estimate(1.0, 2.0, error=0.3).is_clear and estimate(2.0, 1.0, error=0.3).is_clear
    assert not estimate(1.0, 2.0, error=0.4).is_clear
    assert not estimate(1.0, 2.0, error=None).is_clear


# --- What is decoded -------------------------------------------------------------


@needs_model
def test_a_reference_of_the_genre_is_cheaper_than_none_and_one_of_another_is_not(
    tmp_path: pathlib.Path,
) -> None:
    public = write_texts(tmp_path / 'messages.jsonl', MESSAGES)
    of_genre = config(reference=write_texts(tmp_path / 'alike.jsonl', MESSAGES[::3]))
    of_another = config(reference=write_texts(tmp_path / 'towns.jsonl', TOWNS))
    same, other = estimate_votes(of_genre, public), estimate_votes(of_another, public)
    for found in (same, other):
        assert (found.streams, found.contexts, found.tokens, found.label) == (3, 8, 128, None)
        assert [each.reference_texts for each in found.against] == [4, 0]
    # Messages of one form, which the model repeats once it sees them.
    assert same.is_clear and 10 * same.against[0].mean_price < same.against[1].mean_price
    assert same.against[0].budget_left > 0.5 > same.against[1].budget_left
    assert other.is_clear and other.against[0].mean_price > 1.3 * other.against[1].mean_price
    assert other.against[0].first_silent < other.against[1].first_silent


@needs_model
@pytest.mark.parametrize('with_reference', [False, True])
def test_the_estimate_of_a_short_batch_is_what_the_batch_spends(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, with_reference: bool
) -> None:
    """A batch of no more tokens than are decoded, of contexts that can pay for all of them."""
    monkeypatch.setattr(vote_estimate, 'MOST_TOKENS', 12)
    monkeypatch.setattr(vote_estimate, 'MOST_STREAMS', 1)
    public = write_texts(tmp_path / 'messages.jsonl', MESSAGES)
    reference = write_texts(tmp_path / 'towns.jsonl', TOWNS) if with_reference else None
    # Prompts are padded to another length, which bfloat16 would show.
    run = config(max_batch_tokens=12, reference=reference, dtype='float32')
    found = estimate_votes(run, public)
    settings = generator_settings(run)
    texts = () if settings.reference is None else settings.reference.of_label(None)
    contexts = pick(MESSAGES, run.method.batch_size)
    # Under the key of the estimate, whose tokens are then the same.
    generator = dataclasses.replace(settings, run_id='calibration').build()
    spending = generator.generate(batch(contexts, label=None), RunKey(bytes(32)), texts).spending
    assert spending is not None and spending.first_silent is None
    against = found.against[0]
    assert against.mean_price * 12 == pytest.approx(np.mean(spending.spent), rel=1e-3)
    assert against.budget_left == pytest.approx(1 - np.mean(spending.spent) / 0.5, rel=1e-3)
    assert against.voting == (1.0,) * 4 and against.first_silent is None
    assert len(found.against) == 1 + with_reference


@needs_model
def test_contexts_fall_silent_about_when_the_estimate_says(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vote_estimate, 'MOST_STREAMS', 1)
    public = write_texts(tmp_path / 'messages.jsonl', MESSAGES)
    whole = config(max_batch_tokens=64, context_budget=10.0)
    price = estimate_votes(whole, public).against[0].mean_price
    # Half of what the batch costs.
    run = whole.replace(context_budget=32 * price)
    found = estimate_votes(run, public).against[0]
    generator = dataclasses.replace(generator_settings(run), run_id='calibration').build()
    made = generator.generate(batch(pick(MESSAGES, 8), label=None), RunKey(bytes(32)))
    assert made.spending is not None and made.spending.first_silent is not None
    assert found.first_silent is not None
    assert 0.4 < found.first_silent / made.spending.first_silent < 2.5
    assert found.voting[0] >= found.voting[1] >= found.voting[2] >= found.voting[3]
    assert found.voting[0] == 1 and found.voting[3] < 0.5


@needs_model
@pytest.mark.parametrize(
    'texts, streams, contexts', [(8, 1, 8), (15, 1, 8), (16, 2, 8), (64, 3, 8), (5, 1, 5)]
)
def test_there_are_as_many_streams_as_whole_batches_of_texts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, texts: int, streams: int, contexts: int
) -> None:
    seen: list[str] = []
    real = BatchGenerator.decode

    def decode(generator: BatchGenerator, batch: Batch, *arguments: Any, **named: Any) -> Any:
        seen.extend(text for context in batch.contexts for text in context.texts)
        return real(generator, batch, *arguments, **named)

    monkeypatch.setattr(BatchGenerator, 'decode', decode)
    public = write_texts(tmp_path / 'messages.jsonl', MESSAGES[:texts])
    found = estimate_votes(config(max_batch_tokens=2), public)
    assert (found.streams, found.contexts) == (streams, contexts)
    # No text is in two of them, and they are the first by the public hash.
    assert seen == list(pick(MESSAGES[:texts], streams * contexts))


@needs_model
def test_reference_texts_are_no_contexts_and_other_labels_stay_out(tmp_path: pathlib.Path) -> None:
    public = write_texts(tmp_path / 'all.jsonl', MESSAGES[:10])
    run = config(reference=public, reference_size=4, max_batch_tokens=2)
    assert estimate_votes(run, public).contexts == 6
    assert estimate_votes(config(max_batch_tokens=2, examples_per_context=3, omega=2.0), public).contexts == 3
    labelled = f'{write_texts(tmp_path / "a.jsonl", MESSAGES[:3], "a")},' + write_texts(
        tmp_path / 'b.jsonl', MESSAGES[3:30], 'b'
    )
    labels = config(labels=('a', 'b'), label_field='label', max_batch_tokens=2)
    found = estimate_votes(labels, labelled, label_field='topic')
    assert (found.label, found.contexts) == ('a', 3)
    assert estimate_votes(labels, labelled).contexts == 8


# --- The command -----------------------------------------------------------------

FLAGS = (
    'plan', '--delta', '1e-5', '--batches-per-label', '2', '--batch-size', '8', '--max-prompt-tokens', '60',
    '--max-example-tokens', '24', '--public-top-k', '200', '--reference-size', '4', '--epsilon', '3',
)  # fmt: skip


@needs_model
def test_the_command_prints_the_estimate_and_its_json_is_stable(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vote_estimate, 'MOST_TOKENS', 48)
    public = write_texts(tmp_path / 'messages.jsonl', MESSAGES)
    flags = (*FLAGS, '--calibration', public, '--reference', write_texts(tmp_path / 'r.jsonl', MESSAGES[::3]))
    first, again = (in_this_process(*flags, '--json') for _ in range(2))
    assert (first.returncode, first.stderr) == (0, '') and first.stdout == again.stdout
    votes = json.loads(first.stdout)['votes']
    assert set(votes) == {'label', 'streams', 'contexts', 'tokens', 'against'}
    shown = in_this_process(*flags)
    words = ' '.join(shown.stdout.split())
    assert (shown.returncode, shown.stderr) == (0, '')
    for said in (
        '8 contexts of public texts', 'of each of 3 streams, other texts in each',
        'costs nothing, and tells nothing of the records',
        'Against 4 reference texts', 'Against the public prompt', 'of B left at the end', 'times cheaper',
        f'ρ = {votes["against"][1]["mean_price"]:.3g} a token and context',
    ):  # fmt: skip
        assert said in words, said
    without = json.loads(in_this_process(*FLAGS, '--json').stdout)
    assert without['votes'] is None


@pytest.mark.parametrize(
    'flags, match',
    [
        (('--accounting', 'worst-case'), 'Expected individual accounting with calibration'),
        (('--aggregate', 'mean'), 'give --accounting individual'),
        (('--calibration-label-field', 'topic'), 'leave --calibration-label-field out'),
    ],
)
def test_what_cannot_be_estimated_is_refused_before_anything_is_read(
    flags: tuple[str, ...], match: str
) -> None:
    done = in_this_process(*FLAGS, '--calibration', 'not-there.jsonl', *flags)
    assert done.returncode != 0 and match in ' '.join(done.stderr.replace('│', ' ').split())


def test_a_column_without_a_file_is_refused() -> None:
    done = in_this_process(*FLAGS, '--calibration-label-field', 'topic')
    assert done.returncode != 0
    assert 'Expected calibration_label_field with calibration only' in ' '.join(done.stderr.split())


@pytest.mark.parametrize(
    'texts, settings, match',
    [
        ([' '], {}, r'Expected 2 or more .* got texts=0 in calibration=.*Add public texts'),
        (MESSAGES[:1] * 3, {}, 'got texts=1'),
        (MESSAGES[:5], {'examples_per_context': 3, 'omega': 2.0}, 'Expected 6 or more .* got texts=5'),
        (MESSAGES[:4], {'text_field': 'body'}, "without missing=.'body'."),
        (
            MESSAGES[:9],
            {'reference_size': 8, 'reference': 'public.jsonl'},
            'no reference texts.* got texts=1',
        ),
    ],
)
@needs_model
def test_a_poor_file_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, texts: list[str], settings: dict[str, Any],
    match: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    public = write_texts(tmp_path / 'public.jsonl', texts)
    with pytest.raises(ValueError, match=match):
        estimate_votes(config(**settings), public)


@needs_model
def test_too_few_texts_of_the_label_are_refused(tmp_path: pathlib.Path) -> None:
    public = write_texts(tmp_path / 'public.jsonl', MESSAGES, 'b')
    labels = config(labels=('a', 'b'), label_field='label')
    with pytest.raises(ValueError, match="of label 'a' .* got texts=0 .*leave out --calibration-label-field"):
        estimate_votes(labels, public, label_field='topic')


@needs_model
@pytest.mark.parametrize('name', ['records.jsonl', 'link.jsonl'])
def test_a_file_of_the_input_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    records = write_texts(tmp_path / 'records.jsonl', MESSAGES)
    os.symlink(records, tmp_path / 'link.jsonl')
    run = config(input=f'{tmp_path}/not-yet.jsonl,{tmp_path}/rec*.jsonl')
    with pytest.raises(
        ValueError, match=r'a file of --calibration which --input names too.*name another file'
    ):
        estimate_votes(run, str(tmp_path / name))
    # Records that are not there yet are none of these texts.
    other = write_texts(tmp_path / 'public.jsonl', MESSAGES)
    later = config(input=f'{tmp_path}/not-yet.jsonl', max_batch_tokens=2)
    assert estimate_votes(later, other).contexts == 8


@needs_model
def test_a_file_that_is_not_there_is_named_with_its_flag(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match='--calibration'):
        estimate_votes(config(), str(tmp_path / 'nowhere.jsonl'))


@pytest.mark.run
def test_a_plan_without_texts_loads_no_model_and_no_beam() -> None:
    assert_import_leaves('pipeline.commands.plan', 'jax', 'apache_beam', 'gemma')
