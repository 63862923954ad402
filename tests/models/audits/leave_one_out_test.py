"""Leaving one context out finds what is there: exact log ratios, and broken mechanisms.

The model is the table of `tests/models/generate/table.py` over the bundled vocabulary: some of its rows
are broken or have extreme logits, which a right mechanism has to bear. Keys are fixed, so every test is
deterministic.
"""

import dataclasses
import itertools
import typing

import mpmath
import numpy as np
import pytest

from models import bundled, prompt_templates, prompts, records
from models.audits import bounds, leave_one_out, replay
from models.decoders.gemma import tokenizer
from models.generate.batch import BatchGenerator
from models.generate.stream import TokenStream
from models.privacy import accounting
from models.privacy.params import Change, MechanismParams
from models.privacy.randomness import RunKey
from tests import oracles
from tests.models.generate import table as tables

KEY = RunKey(bytes(range(32)))
AGGREGATES = ('mean', 'median', 'difference')
PARAMS = MechanismParams(
    batch_size=6, clip_bound=3.0, temperature=1.5, max_private_tokens=8, max_batch_tokens=16,
    max_example_tokens=4,
)  # fmt: skip
ADDS_PUBLIC_LOGITS = ('difference',)
SPARSE = {'threshold': 0.9, 'threshold_noise_scale': 0.3}
TEXTS = ('a ball', 'the goal', 'one match', 'cup', 'two teams', 'a late win', 'the referee')
OTHERS = ('shares', 'a bank', 'profits')


@pytest.fixture(scope='module')
def generator() -> BatchGenerator:
    vocabulary = tokenizer.GemmaTokenizer(bundled.TOKENIZER, 3)
    writer = prompts.PromptWriter(
        template=prompt_templates.read_template('instruction'), tokenizer=vocabulary, max_prompt_tokens=200
    )
    table = tables.table_of(11, vocabulary.vocab_size)
    table[:, :, sorted(writer.tokenizer.stop_tokens)] += 6
    return BatchGenerator(
        # Room for the largest batch: one program for every number of contexts.
        decoder=tables.TableDecoder(table, micro_batch_size=8),
        writer=writer,
        params=PARAMS,
        run_id='audit',
    )


def contexts(texts: typing.Sequence[str]) -> tuple[records.Context, ...]:
    return tuple(
        records.Context(context_hash=bytes([number]) * 16, texts=(text,)) for number, text in enumerate(texts)
    )


def batch(texts: typing.Sequence[str] = TEXTS) -> records.Batch:
    return records.Batch(batch_id=records.BatchId(group=0, index=0), label='sports', contexts=contexts(texts))


def with_params(generator: BatchGenerator, **changes: object) -> BatchGenerator:
    return dataclasses.replace(generator, params=dataclasses.replace(generator.params, **changes))


INDIVIDUAL = {
    'aggregate': 'difference', 'accounting': 'individual', 'max_private_tokens': None, 'clip_bound': 1.5,
    'shift_bound': 0.3, 'context_budget': 0.0061, 'omega': 16.0, 'public_top_k': 30, 'max_batch_tokens': 12,
    'batch_size': 16,
}  # fmt: skip


def individual_log_probability(
    generator: BatchGenerator, held: typing.Sequence[records.Context], stream: TokenStream
) -> tuple[float, np.ndarray]:
    """Exact log-probability of an output under a batch, and what its contexts spent, by the slow twins."""
    params, writer = generator.params, generator.writer
    table = np.asarray(generator.decoder.weights)
    types = [tables.type_of(p) for p in writer.private_prompts('sports', held)]
    public_type = tables.type_of(writer.public_prompt('sports'))
    settings = oracles.Individual.of(params, writer.tokenizer.stop_tokens)
    released = writer.released_tokens(table.shape[-1])
    total, example, spent, state = 0.0, (), np.zeros(len(held)), tables.STATES
    for token in stream.tokens.tolist():
        logits, public = table[np.array(types, int), state], table[public_type, state]
        allowed = oracles.allowed_tokens(public, released, settings.top_k, settings.s, 0.0)
        allowed &= public >= public[released].max() - 2 * 15 * settings.tau
        votes = oracles.individual_votes(logits, public, allowed, settings)[:, allowed]
        log_p = oracles.log_softmax(public[allowed].astype(np.float64))
        prices = np.array([float(oracles.individual_price(u, log_p, settings)) for u in votes])
        voting = spent + prices <= settings.budget
        spent = spent + np.where(voting, prices, 0)
        shift = oracles.link(votes[voting].sum(axis=0) / settings.s, settings.c2, settings.tau)
        total += oracles.log_softmax((log_p + shift) / settings.tau)[int(allowed[:token].sum())]
        offset, example = len(example), (*example, token)
        state = tables.next_state(state, token, offset)
        if oracles.example_of(example, settings) == ():
            state, example = tables.STATES, ()
    return total, spent


@pytest.mark.parametrize('k', [1, 2], ids=['', 'replace'])
def test_log_ratios_and_payments_of_individual_accounting_are_exact(
    generator: BatchGenerator, k: int
) -> None:
    # With k = 2 prices grow more steeply: a larger s, and a budget of as many tokens.
    more = {'batch_size': 64, 'context_budget': 0.0005} if k == 2 else {}
    found = with_params(generator, **INDIVIDUAL | more, examples_per_context=k)
    held, others = contexts(TEXTS), contexts(OTHERS)[:2]
    result = leave_one_out.leave_one_out(found, batch(), KEY, outsiders=others)
    assert result.ok
    stream = found.decode(batch(), found.draws(batch(), KEY))
    assert not stream.spending.voted.all()  # somebody has fallen silent
    neighbours = [held[:i] + held[i + 1 :] for i in range(len(held))] + [(*held, other) for other in others]
    if k == 2:
        neighbours += [(*held[:i], others[i % 2], *held[i + 1 :]) for i in range(len(held))]
    whole, spent = individual_log_probability(found, held, stream)
    signs = [1] * len(held) + [-1] * 2 + [1] * len(held)
    exact = [individual_log_probability(found, other, stream) for other in neighbours]
    ratios = [sign * (whole - log) for sign, (log, _) in zip(signs, exact)]
    np.testing.assert_allclose(result.removed + result.added + result.replaced, ratios, rtol=2e-3, atol=1e-4)
    added = [exact[len(held) + number][1][-1] for number in range(2)]
    paid = [*spent, *added]
    if k == 2:
        paid += [2 * (spent[i] + added[i % 2]) for i in range(len(held))]
    payments = result.payments
    np.testing.assert_allclose([payment.paid for payment in payments], paid, rtol=1e-3)
    # A price is an upper bound, and not one that forgives all.
    assert all(0 <= payment.divergence <= payment.paid for payment in payments)
    assert max(payment.divergence / payment.paid for payment in payments if payment.paid > 0) > 0.05
    cap = found.params.context_budget
    assert {payment.most for payment in payments} == ({cap, 4 * cap} if k == 2 else {cap})
    assert all(payment.paid <= payment.most for payment in payments)
    tokens = (stream.spending.charged > 0).sum(axis=0)
    votes = 4 * found.params.clip_bound / (found.params.batch_size * found.params.temperature)
    assert [payment.bound for payment in payments[: len(held)]] == pytest.approx(tokens * votes)
    assert result.bound == max(payment.bound for payment in payments)


@pytest.mark.parametrize('texts', [(), TEXTS[:1], TEXTS], ids=len)
def test_individual_accounting_charges_for_what_is_given(
    generator: BatchGenerator, texts: tuple[str, ...]
) -> None:
    """Over ten keys, rows with broken and with extreme logits among the contexts."""
    found = with_params(generator, **INDIVIDUAL)
    for number in range(10):
        key = RunKey(bytes([number]) * 32)
        result = leave_one_out.leave_one_out(found, batch(texts), key, outsiders=contexts(OTHERS))
        assert result.ok, (number, result.payments)
        assert len(result.payments) == len(texts) + 3


@pytest.mark.parametrize('sabotage', ['no-filter', 'no-growth', 'half-price', 'no-clipping', 'paste'])
def test_a_broken_price_or_filter_is_found(generator: BatchGenerator, sabotage: replay.Sabotage) -> None:
    found = with_params(generator, **INDIVIDUAL, public_temperature=1.5)
    result = leave_one_out.leave_one_out(found, batch(), KEY, sabotage=sabotage)
    assert not result.ok
    worst = max(payment.divergence / max(payment.paid, 1e-9) for payment in result.payments)
    if sabotage == 'no-filter':
        assert max(payment.paid / payment.most for payment in result.payments) > 2
    else:
        assert worst > 1.1


@pytest.mark.parametrize('sabotage', replay.INDIVIDUAL)
def test_the_same_outlier_is_paid_for_by_the_right_mechanism(
    generator: BatchGenerator, sabotage: replay.Sabotage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found is the broken price or filter, not the outlier and not the small s."""
    found = with_params(generator, **INDIVIDUAL)
    settle = replay.Case.settle

    def right(case: replay.Case, *args: typing.Any) -> typing.Any:
        return settle(dataclasses.replace(case, sabotage='none'), *args)

    monkeypatch.setattr(replay.Case, 'settle', right)
    result = leave_one_out.leave_one_out(found, batch(), KEY, sabotage=sabotage)
    assert result.ok and result.payments[0].paid > 0


def test_a_sabotage_of_individual_accounting_needs_it(generator: BatchGenerator) -> None:
    with pytest.raises(ValueError, match="sabotage='half-price'"):
        leave_one_out.leave_one_out(generator, batch(), KEY, sabotage='half-price')


def log_probability(
    generator: BatchGenerator, held: typing.Sequence[records.Context], stream: TokenStream
) -> float:
    """Exact log-probability of a whole output under a batch, by the slow twins."""
    params, writer = generator.params, generator.writer
    table = np.asarray(generator.decoder.weights)
    types = [tables.type_of(p) for p in writer.private_prompts('sports', held)]
    public_type = tables.type_of(writer.public_prompt('sports'))
    settings = oracles.Mechanism.of(params, writer.tokenizer.stop_tokens)
    released = writer.released_tokens(table.shape[-1])
    total, below, state, offset = 0.0, [], tables.STATES, 0
    for token, is_private in zip(stream.tokens.tolist(), stream.is_private.tolist(), strict=True):
        logits, public = table[np.array(types, int), state], table[public_type, state]
        scores = public / params.public_temperature
        if is_private:
            scores = settings.private_scores(logits, public, released)
        allowed = settings.allowed(public, released)
        if settings.aggregate in ADDS_PUBLIC_LOGITS:  # the sampler's range
            top = public[released].max()
            allowed &= public >= top - 2 * (15 * params.temperature - params.clip_bound)
        total += oracles.log_softmax(np.where(allowed, scores, -1e9).astype(np.float64))[token]
        if params.threshold is not None:
            d = float(oracles.distance(logits, public, params.batch_size))
            if is_private:
                total += oracles.log_run_probability(below, [d], params.threshold, settings)
            below = [] if is_private else [*below, d]
        ended = token in writer.tokenizer.stop_tokens or offset + 1 == params.max_example_tokens
        state = tables.STATES if ended else tables.next_state(state, token, offset)
        offset = 0 if ended else offset + 1
    if below:
        total += oracles.log_run_probability(below, [], params.threshold, settings)
    return total


@pytest.mark.parametrize(
    'sparse',
    [{}, SPARSE, {'public_top_k': 2}, {**SPARSE, 'public_top_k': 3}],
    ids=['', 'sparse vector', 'top 2', 'sparse vector, top 3'],
)
@pytest.mark.parametrize('k', [1, 2], ids=['', 'replace'])
@pytest.mark.parametrize('aggregate', AGGREGATES)
def test_log_ratios_are_those_of_the_exact_distribution(
    generator: BatchGenerator, aggregate: str, k: int, sparse: dict[str, float]
) -> None:
    found = with_params(generator, aggregate=aggregate, examples_per_context=k, **sparse)
    held, others = contexts(TEXTS), contexts(OTHERS)[:2]
    result = leave_one_out.leave_one_out(found, batch(), KEY, outsiders=others)
    stream = found.decode(batch(), found.draws(batch(), KEY))
    assert (result.private_tokens, result.public_tokens) == (
        stream.is_private.sum(), (~stream.is_private).sum(),
    )  # fmt: skip
    assert 'threshold' not in sparse or result.public_tokens > 0
    whole = log_probability(found, held, stream)
    removed = [whole - log_probability(found, held[:i] + held[i + 1 :], stream) for i in range(len(held))]
    np.testing.assert_allclose(result.removed, removed, rtol=1e-4, atol=1e-5)
    added = [log_probability(found, (*held, other), stream) - whole for other in others]
    np.testing.assert_allclose(result.added, added, rtol=1e-4, atol=1e-5)
    if found.params.change is Change.REPLACE:
        replaced = [
            whole - log_probability(found, (*held[:i], others[i % 2], *held[i + 1 :]), stream)
            for i in range(len(held))
        ]
        np.testing.assert_allclose(result.replaced, replaced, rtol=1e-4, atol=1e-5)
    else:
        assert result.replaced == ()
    assert result.empirical_epsilon == max(map(abs, result.removed + result.added + result.replaced)) > 0


def test_micro_batches_change_no_ratio(generator: BatchGenerator) -> None:
    sparse = with_params(generator, **SPARSE)
    table = np.asarray(generator.decoder.weights)
    parts = dataclasses.replace(sparse, decoder=tables.TableDecoder(table, micro_batch_size=4))
    whole, found = (
        leave_one_out.leave_one_out(one, batch(), KEY, outsiders=contexts(OTHERS)) for one in (sparse, parts)
    )
    assert (found.private_tokens, found.public_tokens) == (whole.private_tokens, whole.public_tokens)
    np.testing.assert_allclose(found.removed, whole.removed, rtol=1e-9)
    np.testing.assert_allclose(found.added, whole.added, rtol=1e-9)


@pytest.mark.parametrize('texts', [(), TEXTS[:1], TEXTS[:2], TEXTS[:3], TEXTS], ids=len)
@pytest.mark.parametrize('sparse', [{}, SPARSE], ids=['', 'sparse vector'])
@pytest.mark.parametrize('aggregate', AGGREGATES)
def test_a_right_mechanism_stays_within_its_bound(
    generator: BatchGenerator, aggregate: str, sparse: dict[str, float], texts: tuple[str, ...]
) -> None:
    """Over ten keys, rows with broken and with extreme logits among the contexts."""
    found = with_params(generator, aggregate=aggregate, **sparse)
    for number in range(10):
        key = RunKey(bytes([number]) * 32)
        result = leave_one_out.leave_one_out(found, batch(texts), key, outsiders=contexts(OTHERS))
        assert result.ok, (number, result.bound, result.empirical_epsilon)
        assert result.contexts == len(result.removed) == len(texts) and len(result.added) == 3


@pytest.mark.parametrize('sabotage', ['no-clipping', 'paste'])
@pytest.mark.parametrize('sparse', [{}, SPARSE], ids=['', 'sparse vector'])
@pytest.mark.parametrize('aggregate', AGGREGATES)
def test_a_broken_mechanism_is_found(
    generator: BatchGenerator, aggregate: str, sparse: dict[str, float], sabotage: replay.Sabotage
) -> None:
    found = with_params(generator, aggregate=aggregate, **sparse)
    result = leave_one_out.leave_one_out(found, batch(), KEY, sabotage=sabotage)
    assert not result.ok
    assert result.empirical_epsilon > 2 * result.bound


def test_the_bound_is_the_reported_loss_of_a_median_and_the_pure_bound_of_the_others(
    generator: BatchGenerator,
) -> None:
    median = with_params(generator, aggregate='median', **SPARSE)
    reported = median.generate(batch(), KEY).loss
    assert reported is not None
    assert leave_one_out.leave_one_out(median, batch(), KEY).bound == pytest.approx(
        reported.epsilon(median.params), rel=1e-12
    )
    mean = with_params(generator, aggregate='mean', examples_per_context=2)
    # Δ = 2c/s where a context may be replaced; 8 private tokens.
    assert leave_one_out.leave_one_out(mean, batch(), KEY).bound == pytest.approx(8 * 2 * (2 * 3 / 6) / 1.5)
    stream = TokenStream(np.zeros(5, np.int32), np.array([0, 1, 0, 1, 0], bool))
    sparse = dataclasses.replace(PARAMS, **SPARSE)
    tests = 3 * accounting.sparse_vector_pure_cost(sparse)  # the open run at the end as well
    assert bounds.output_bound(stream, sparse) == pytest.approx(2 * 2 * (3 / 6) / 1.5 + tests)


def test_what_contexts_paid_is_not_shown(generator: BatchGenerator) -> None:
    result = leave_one_out.leave_one_out(with_params(generator, **INDIVIDUAL), batch(), KEY)
    assert repr(result.payments[0]) == 'Payment(most=0.0061)' and 'Payment' not in repr(result)


def test_the_audit_of_a_batch_shows_none_of_it(generator: BatchGenerator) -> None:
    result = leave_one_out.leave_one_out(generator, batch(), KEY, outsiders=contexts(OTHERS))
    assert repr(result) == (
        "LeaveOneOut(batch_id='0000-000000', label='sports', reference_texts=0, private_tokens=8, "
        'public_tokens=0, forced_tokens=0)'
    )


@pytest.mark.parametrize('length', [1, 4])
def test_the_flags_of_all_streams_have_total_probability_one(length: int) -> None:
    params = dataclasses.replace(PARAMS, threshold=0.4, threshold_noise_scale=0.2)
    rng = np.random.default_rng(0)
    found = rng.uniform(0, 2, (length, 3))
    logs = [
        leave_one_out.log_flag_probabilities(found, np.array(flags, bool), params)
        for flags in itertools.product([False, True], repeat=length)
    ]
    np.testing.assert_allclose(np.exp(logs).sum(axis=0), 1.0, rtol=1e-10)


@pytest.mark.parametrize('count', [1, 2, 5, 60, 400])
@pytest.mark.parametrize('ends_above', [True, False])
def test_a_run_of_any_length_has_the_exact_probability(count: int, ends_above: bool) -> None:
    """Against 30-digit quadrature, where float64 would long have become 0."""
    params = dataclasses.replace(PARAMS, threshold=0.5, threshold_noise_scale=0.1)
    run = np.random.default_rng(count).choice([0.55, 0.7, 1.1], count)
    with mpmath.workdps(30):

        def cdf(x: mpmath.mpf) -> mpmath.mpf:
            small = mpmath.exp(-abs(x)) / 2
            return small if x < 0 else 1 - small

        def integrand(u: mpmath.mpf) -> mpmath.mpf:
            product = mpmath.exp(-abs(u) / 0.1) / 0.2
            values, numbers = np.unique(run[: count - ends_above], return_counts=True)
            for d, number in zip(values, numbers, strict=True):
                product *= cdf((0.5 + u - mpmath.mpf(float(d))) / 0.2) ** int(number)
            return product * cdf(-(0.5 + u - mpmath.mpf(float(run[-1]))) / 0.2) if ends_above else product

        points = [-5, 0, 0.05, 0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.5, 2, 3, 5, 10]
        expected = float(mpmath.log(mpmath.quad(integrand, points)))
    assert leave_one_out._log_run_probability(run, ends_above, params) == pytest.approx(expected, rel=1e-9)
