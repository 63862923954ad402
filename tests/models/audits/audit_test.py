"""The audits find what is there: exact log ratios, broken mechanisms, and keys that come out.

The model is the table of `generate_test` over the bundled vocabulary: some of its rows are broken
or have extreme logits, which a right mechanism has to bear. Keys are fixed, so every test is
deterministic.
"""

import dataclasses
import itertools
import math
import typing

import mpmath
import numpy as np
import pytest

from models import bundled, generate, prompts, records
from models.audits import audit
from models.decoders.gemma import tokenizer
from models.privacy import accounting
from models.privacy.params import Change, MechanismParams
from models.privacy.randomness import RunKey
from tests import oracles
from tests.models import generate_test

KEY = RunKey(bytes(range(32)))
AGGREGATES = ('mean', 'median', 'difference')
PARAMS = MechanismParams(
    batch_size=6, clip_bound=3.0, temperature=1.5, max_private_tokens=8, max_batch_tokens=16,
    max_example_tokens=4,
)  # fmt: skip
SPARSE = {'threshold': 0.9, 'threshold_noise_scale': 0.3}
TEXTS = ('a ball', 'the goal', 'one match', 'cup', 'two teams', 'a late win', 'the referee')
OTHERS = ('shares', 'a bank', 'profits')


@pytest.fixture(scope='module')
def generator() -> generate.BatchGenerator:
    vocabulary = tokenizer.GemmaTokenizer(bundled.TOKENIZER, 3)
    writer = prompts.PromptWriter(
        template=prompts.read_template('instruction'), tokenizer=vocabulary, max_prompt_tokens=200
    )
    table = generate_test._table(11, vocabulary.vocab_size)
    table[:, :, sorted(writer.stop_tokens)] += 6
    return generate.BatchGenerator(
        # Room for the largest batch: one program for every number of contexts.
        decoder=generate_test.TableDecoder(table, micro_batch_size=8),
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


def with_params(generator: generate.BatchGenerator, **changes: object) -> generate.BatchGenerator:
    return dataclasses.replace(generator, params=dataclasses.replace(generator.params, **changes))


def log_probability(
    generator: generate.BatchGenerator, held: typing.Sequence[records.Context], stream: generate.TokenStream
) -> float:
    """Exact log-probability of a whole output under a batch, by the slow twins."""
    params, writer = generator.params, generator.writer
    table = np.asarray(generator.decoder.weights)
    types = [generate_test._type_of(p) for p in writer.private_prompts('sports', held)]
    public_type = generate_test._type_of(writer.public_prompt('sports'))
    settings = oracles.Mechanism.of(params, writer.stop_tokens)
    released = writer.released_tokens(table.shape[-1])
    total, below, state, offset = 0.0, [], generate_test.STATES, 0
    for token, is_private in zip(stream.tokens.tolist(), stream.is_private.tolist(), strict=True):
        logits, public = table[np.array(types, int), state], table[public_type, state]
        scores = settings.private_scores(logits, public) if is_private else public / params.public_temperature
        allowed = released.copy()
        if params.aggregate == 'difference':  # the sampler's range
            top = public[released].max()
            allowed &= public >= top - 2 * (15 * params.temperature - params.clip_bound)
        total += oracles.log_softmax(np.where(allowed, scores, -1e9).astype(np.float64))[token]
        if params.threshold is not None:
            d = float(oracles.distance(logits, public, params.batch_size))
            if is_private:
                total += oracles.log_run_probability(below, [d], params.threshold, settings)
            below = [] if is_private else [*below, d]
        ended = token in writer.stop_tokens or offset + 1 == params.max_example_tokens
        state = generate_test.STATES if ended else generate_test._next_state(state, token, offset)
        offset = 0 if ended else offset + 1
    if below:
        total += oracles.log_run_probability(below, [], params.threshold, settings)
    return total


# ---------------------------------------------------------------- leave one context out


@pytest.mark.parametrize('sparse', [{}, SPARSE], ids=['', 'sparse vector'])
@pytest.mark.parametrize('k', [1, 2], ids=['', 'replace'])
@pytest.mark.parametrize('aggregate', AGGREGATES)
def test_log_ratios_are_those_of_the_exact_distribution(
    generator: generate.BatchGenerator, aggregate: str, k: int, sparse: dict[str, float]
) -> None:
    found = with_params(generator, aggregate=aggregate, examples_per_context=k, **sparse)
    held, others = contexts(TEXTS), contexts(OTHERS)[:2]
    result = audit.leave_one_out(found, batch(), KEY, outsiders=others)
    stream = audit.decode(found, batch(), audit.batch_draws(found, batch(), KEY))
    assert (result.private_tokens, result.public_tokens) == (
        stream.is_private.sum(), (~stream.is_private).sum(),
    )  # fmt: skip
    assert not sparse or result.public_tokens > 0
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


def test_micro_batches_change_no_ratio(generator: generate.BatchGenerator) -> None:
    sparse = with_params(generator, **SPARSE)
    table = np.asarray(generator.decoder.weights)
    parts = dataclasses.replace(sparse, decoder=generate_test.TableDecoder(table, micro_batch_size=4))
    whole, found = (
        audit.leave_one_out(one, batch(), KEY, outsiders=contexts(OTHERS)) for one in (sparse, parts)
    )
    assert (found.private_tokens, found.public_tokens) == (whole.private_tokens, whole.public_tokens)
    np.testing.assert_allclose(found.removed, whole.removed, rtol=1e-9)
    np.testing.assert_allclose(found.added, whole.added, rtol=1e-9)


@pytest.mark.parametrize('texts', [(), TEXTS[:1], TEXTS[:2], TEXTS[:3], TEXTS], ids=len)
@pytest.mark.parametrize('sparse', [{}, SPARSE], ids=['', 'sparse vector'])
@pytest.mark.parametrize('aggregate', AGGREGATES)
def test_a_right_mechanism_stays_within_its_bound(
    generator: generate.BatchGenerator, aggregate: str, sparse: dict[str, float], texts: tuple[str, ...]
) -> None:
    """Over ten keys, rows with broken and with extreme logits among the contexts."""
    found = with_params(generator, aggregate=aggregate, **sparse)
    for number in range(10):
        key = RunKey(bytes([number]) * 32)
        result = audit.leave_one_out(found, batch(texts), key, outsiders=contexts(OTHERS))
        assert result.ok, (number, result.bound, result.empirical_epsilon)
        assert result.contexts == len(result.removed) == len(texts) and len(result.added) == 3


@pytest.mark.parametrize('sabotage', ['no-clipping', 'paste'])
@pytest.mark.parametrize('sparse', [{}, SPARSE], ids=['', 'sparse vector'])
@pytest.mark.parametrize('aggregate', AGGREGATES)
def test_a_broken_mechanism_is_found(
    generator: generate.BatchGenerator, aggregate: str, sparse: dict[str, float], sabotage: audit.Sabotage
) -> None:
    found = with_params(generator, aggregate=aggregate, **sparse)
    result = audit.leave_one_out(found, batch(), KEY, sabotage=sabotage)
    assert not result.ok
    assert result.empirical_epsilon > 2 * result.bound


def test_the_bound_is_the_reported_loss_of_a_median_and_the_pure_bound_of_the_others(
    generator: generate.BatchGenerator,
) -> None:
    median = with_params(generator, aggregate='median', **SPARSE)
    reported = median.generate(batch(), KEY).loss
    assert reported is not None
    assert audit.leave_one_out(median, batch(), KEY).bound == pytest.approx(
        reported.epsilon(median.params), rel=1e-12
    )
    mean = with_params(generator, aggregate='mean', examples_per_context=2)
    # Δ = 2c/s where a context may be replaced; 8 private tokens.
    assert audit.leave_one_out(mean, batch(), KEY).bound == pytest.approx(8 * 2 * (2 * 3 / 6) / 1.5)
    stream = generate.TokenStream(np.zeros(5, np.int32), np.array([0, 1, 0, 1, 0], bool))
    sparse = dataclasses.replace(PARAMS, **SPARSE)
    tests = 3 * accounting.sparse_vector_pure_cost(sparse)  # the open run at the end as well
    assert audit.output_bound(stream, sparse) == pytest.approx(2 * 2 * (3 / 6) / 1.5 + tests)


def test_the_audit_of_a_batch_shows_none_of_it(generator: generate.BatchGenerator) -> None:
    result = audit.leave_one_out(generator, batch(), KEY, outsiders=contexts(OTHERS))
    assert repr(result) == (
        "LeaveOneOut(batch_id='0000-000000', label='sports', private_tokens=8, public_tokens=0)"
    )


@pytest.mark.parametrize('length', [1, 4])
def test_the_flags_of_all_streams_have_total_probability_one(length: int) -> None:
    params = dataclasses.replace(PARAMS, threshold=0.4, threshold_noise_scale=0.2)
    rng = np.random.default_rng(0)
    found = rng.uniform(0, 2, (length, 3))
    logs = [
        audit.log_flag_probabilities(found, np.array(flags, bool), params)
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
    assert audit._log_run_probability(run, ends_above, params) == pytest.approx(expected, rel=1e-9)


# ---------------------------------------------------------------- keys to be reconstructed


def test_keys_are_unique_and_fall_into_equal_halves_by_a_seed() -> None:
    sets = audit.draw_keys(1000, seed=1)
    assert len(sets.source) == len(sets.holdout) == 500 and not sets.source & sets.holdout
    assert all(len(key) == 5 and key.isdigit() for key in sets.source | sets.holdout)
    assert audit.draw_keys(1000, seed=1) == sets != audit.draw_keys(1000, seed=2)
    assert any(key.startswith('0') for key in sets.source)


@pytest.mark.parametrize('count', [0, 7, 100_002])
def test_an_impossible_number_of_keys_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f'keys={count}'):
        audit.draw_keys(count, seed=0)


SETS = audit.KeySets(
    source=frozenset({'00001', '00002', '00003'}), holdout=frozenset({'10000', '10001', '10002'})
)


def test_synthetic_keys_by_hand() -> None:
    texts = [
        'My 5-digit key is 00001.',
        'My 5-digit key is 00001',
        'My 5-digit key is 10002 or so',
        'My 5-digit key is 55555.',
        'My 5-digit key is 000012.',  # six digits
        'My 5-digit key is 0000',
        'My key is 00002.',
        '',
    ]
    assert audit.count_keys(texts, SETS) == audit.Reconstruction(
        keys=6, synthetic=4, source_hits=2, holdout_hits=1, distinct=3, distinct_source_hits=1,
        distinct_holdout_hits=1, examples=8,
    )  # fmt: skip


def reconstruction(source: int, holdout: int, keys: int) -> audit.Reconstruction:
    hits = source + holdout
    return audit.Reconstruction(
        keys=keys, synthetic=hits, source_hits=source, holdout_hits=holdout, distinct=hits,
        distinct_source_hits=source, distinct_holdout_hits=holdout, examples=hits,
    )  # fmt: skip


@pytest.mark.parametrize('source, holdout', [(0, 0), (0, 3), (1, 2), (2, 2), (3, 1), (4, 0)])
def test_the_p_value_counts_the_halves_that_would_look_as_bad(source: int, holdout: int) -> None:
    """All 924 ways to halve 12 keys, the hits fixed."""
    hits = range(source + holdout)
    worse = [len({*half} & {*hits}) >= source for half in itertools.combinations(range(12), 6)]
    assert reconstruction(source, holdout, 12).p_value == pytest.approx(np.mean(worse))


def test_the_alarm_is_raised_by_source_keys_and_not_by_luck() -> None:
    assert reconstruction(30, 25, 10_000).ok and reconstruction(0, 40, 10_000).ok
    assert not reconstruction(40, 10, 10_000).ok and not reconstruction(12, 0, 10_000).ok
    repeated = audit.count_keys(['My 5-digit key is 00001.'] * 100, SETS)
    assert repeated.source_hits == 100 and repeated.ok  # one key that the model likes


def test_few_synthetic_keys_cannot_tell() -> None:
    assert not reconstruction(0, 0, 1000).conclusive and not reconstruction(2, 7, 1000).conclusive
    assert reconstruction(5, 5, 1000).conclusive
    assert [reconstruction(hits, 0, 1000).ok for hits in (9, 10)] == [True, False]


def test_rates_have_wilson_intervals() -> None:
    low, high = reconstruction(10, 30, 1000).interval(10)
    z = 1.959963984540054
    middle, spread = (0.25 + z**2 / 80) / (1 + z**2 / 40), z * math.sqrt(0.25 * 0.75 / 40 + z**2 / 6400)
    assert (low, high) == pytest.approx(
        (middle - spread / (1 + z**2 / 40), middle + spread / (1 + z**2 / 40))
    )
    assert reconstruction(0, 0, 1000).interval(0) == (0.0, 1.0)


@pytest.mark.parametrize('k, batches', [(1, 17), (2, 8)])
def test_every_source_key_votes_once_and_no_holdout_key_does(k: int, batches: int) -> None:
    sets = audit.draw_keys(200, seed=3)
    found = audit.key_batches(sets, dataclasses.replace(PARAMS, examples_per_context=k), KEY)
    texts = [text for one in found for context in one.contexts for text in context.texts]
    assert len(found) == batches
    if k == 1:
        assert sorted(texts) == sorted(f'My 5-digit key is {key}.' for key in sets.source)
    else:  # a full slot takes no third record
        assert set(texts) < {f'My 5-digit key is {key}.' for key in sets.source} and len(texts) > 60
        assert all(len(context.texts) <= 2 for one in found for context in one.contexts)


# ---------------------------------------------------------------- batches in memory


@pytest.mark.parametrize('unit, k', [('example', 1), ('example', 3), ('user', 2)])
def test_batches_in_memory_are_those_of_the_slow_twin(unit: str, k: int) -> None:
    from models.batching import BatchPlan

    rng = np.random.default_rng(5)
    held = [
        records.Record(text=f'text {i}', label='ab'[rng.integers(2)], unit=str(rng.integers(20)))
        for i in range(90)
    ]
    params = dataclasses.replace(PARAMS, unit=unit, examples_per_context=k)
    plan = BatchPlan(labels=('a', 'b'), batches_per_group=(3, 2), noisy_counts=None, contexts_rho=0.0)
    found = audit.batches_of(audit.placements(held, ('a', 'b'), params, KEY), plan, params, KEY)
    expected = oracles.batches(held, plan, bytes(range(32)), unit=unit, slots=6, k=k, text_limit=100)
    assert found == expected
