"""A batch's output is as likely without each of its contexts as its bound says, by the slow twins.

The output is decoded as in a run; the twins say how probable it was with each context and without it.
The model is the table of `tests/models/generate/table.py` over the bundled vocabulary: some of its rows
are broken or have extreme logits, which a right mechanism has to bear. Keys are fixed, so every test is
deterministic.
"""

import dataclasses
import itertools
import typing

import numpy as np
import pytest

from models import bundled, prompt_templates, prompts, records
from models.decoders.gemma import tokenizer
from models.generate.batch import BatchGenerator
from models.generate.stream import TokenStream
from models.grammars.structure import Structure
from models.privacy import sparse_vector
from models.privacy.params import Change, MechanismParams
from models.privacy.randomness import RunKey
from tests import oracles
from tests.models.generate import table as tables

pytestmark = pytest.mark.heavy

KEYS = [RunKey(bytes([number]) * 32) for number in range(3)]
# Error that rounding may add to a loss: decoding sums float32.
SLACK = 1e-3
AGGREGATES = ('mean', 'median', 'difference')
PARAMS = MechanismParams(
    batch_size=6, clip_bound=3.0, temperature=1.5, max_private_tokens=8, max_batch_tokens=16,
    max_example_tokens=4,
)  # fmt: skip
ADDS_PUBLIC_LOGITS = ('difference',)
SPARSE = {'threshold': 0.9, 'threshold_noise_scale': 0.3}
TEXTS = ('a ball', 'the goal', 'one match', 'cup', 'two teams', 'a late win', 'the referee')
OTHERS = ('shares', 'a bank', 'profits')


def generator_of(params: MechanismParams, structure: Structure | None = None) -> BatchGenerator:
    vocabulary = tokenizer.GemmaTokenizer(bundled.TOKENIZER, '3')
    writer = prompts.PromptWriter(
        template=prompt_templates.read_template('instruction'), tokenizer=vocabulary, max_prompt_tokens=200,
        structure=structure,
    )  # fmt: skip
    table = tables.table_of(11, vocabulary.vocab_size)
    if structure is None:
        table[:, :, sorted(writer.tokenizer.stop_tokens)] += 6
    # Room for the largest batch: one program for every number of contexts.
    decoder = tables.TableDecoder(table, micro_batch_size=8, max_example_tokens=params.max_example_tokens)
    return BatchGenerator(decoder=decoder, writer=writer, params=params, run_id='audit')


@pytest.fixture(scope='module')
def generator() -> BatchGenerator:
    return generator_of(PARAMS)


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


def neighbours_of(
    held: tuple[records.Context, ...], change: Change
) -> typing.Iterator[tuple[records.Context, ...]]:
    """All with a context less or more, or where a unit may replace one, with another in its place."""
    others = contexts(OTHERS)
    yield from (held[:i] + held[i + 1 :] for i in range(len(held)))
    yield from ((*held, other) for other in others)
    if change is Change.REPLACE:
        yield from ((*held[:i], others[i % len(others)], *held[i + 1 :]) for i in range(len(held)))


def bound_of(generator: BatchGenerator, key: RunKey, stream: TokenStream, held: records.Batch) -> float:
    """The loss that a run reports for an output, or the pure bound of one whose price is known in advance."""
    params = generator.params
    if params.is_ex_post:
        loss = generator.generate(held, key).loss
        assert loss is not None
        return loss.epsilon(params)
    flags = stream.is_private[stream.is_chosen]
    # Each private token ends a run of the sparse-vector test, and the last one may stay open.
    runs = 0 if params.threshold is None else int(flags.sum()) + (not flags[-1])
    tests = sparse_vector.pure_cost(params) if runs else 0.0
    return int(flags.sum()) * 2 * params.aggregate_sensitivity / params.temperature + runs * tests


def assert_within(
    generator: BatchGenerator,
    held: records.Batch,
) -> None:
    """Over all keys and neighbours; and not all of it is for nothing."""
    largest = 0.0
    for key in KEYS:
        stream = generator.decode(held, generator.draws(held, key))
        bound = bound_of(generator, key, stream, held)
        whole = log_probability(generator, held.contexts, stream)
        for other in neighbours_of(held.contexts, generator.params.change):
            ratio = abs(whole - log_probability(generator, other, stream))
            assert ratio <= bound * (1 + SLACK) + 1e-6, (key, len(other))
            largest = max(largest, ratio)
    assert largest > 0.01


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


def log_probability(
    generator: BatchGenerator, held: typing.Sequence[records.Context], stream: TokenStream
) -> float:
    """Exact log-probability of a whole output under a batch, by the slow twins."""
    params, writer = generator.params, generator.writer
    table, stop = np.asarray(generator.decoder.weights), writer.tokenizer.stop_tokens
    types = [tables.type_of(p) for p in writer.private_prompts('sports', held)]
    public_type = tables.type_of(writer.public_prompt('sports'))
    narrows = writer.structure is not None
    settings = dataclasses.replace(oracles.Mechanism.of(params, stop), narrows=narrows)
    masks = oracles.vocabulary(writer.released_tokens(table.shape[-1]))
    if narrows:
        released = frozenset(np.flatnonzero(writer.released_tokens(table.shape[-1])).tolist())
        masks = oracles.grammar(
            PREFIXES.__contains__, VALID.__contains__, writer.tokenizer.token_bytes(), released, stop
        )
    total, below, example, state = 0.0, list[float](), tuple[int, ...](), tables.STATES
    for token, is_private, is_chosen in zip(stream.tokens.tolist(), stream.is_private, stream.is_chosen):
        if is_chosen:
            logits, public = table[np.array(types, int), state], table[public_type, state]
            mask = masks(example)
            assert mask[token] and mask.sum() > 1
            allowed = settings.allowed(public, mask)
            if settings.aggregate in ADDS_PUBLIC_LOGITS and not narrows:  # the sampler's range
                allowed &= public >= public[mask].max() - 2 * (15 * params.temperature - params.clip_bound)
            scores = public / params.public_temperature
            if is_private:
                scores = settings.private_scores(logits, public, mask)
            total += oracles.log_softmax(np.where(allowed, scores, -1e9).astype(np.float64))[token]
            if params.threshold is not None:
                d = float(settings.distance(logits, public, mask))
                if is_private:
                    total += oracles.log_run_probability(below, [d], params.threshold, settings)
                below = [] if is_private else [*below, d]
        ended = token in stop or len(example) + 1 == params.max_example_tokens
        state = tables.STATES if ended else tables.next_state(state, token, len(example))
        example = () if ended else (*example, token)
    if below:
        assert params.threshold is not None
        total += oracles.log_run_probability(below, [], params.threshold, settings)
    return total


@pytest.mark.parametrize('texts', [pytest.param(TEXTS[:2], marks=pytest.mark.first), TEXTS], ids=len)
@pytest.mark.parametrize('mask', [{}, {**SPARSE, 'public_top_k': 3}], ids=['', 'sparse vector, top 3'])
@pytest.mark.parametrize('k', [1, 2], ids=['', 'replace'])
@pytest.mark.parametrize('aggregate', AGGREGATES)
def test_an_output_tells_no_more_of_a_context_than_its_bound(
    generator: BatchGenerator, aggregate: str, k: int, mask: dict[str, float], texts: tuple[str, ...]
) -> None:
    found = with_params(generator, aggregate=aggregate, examples_per_context=k, **mask)
    assert_within(found, batch(texts))


@pytest.mark.parametrize('aggregate', ['mean', 'difference'])
def test_without_clipping_an_output_tells_more_than_its_bound(
    generator: BatchGenerator, aggregate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = oracles.Mechanism.of
    monkeypatch.setattr(
        oracles.Mechanism, 'of', lambda *arguments: dataclasses.replace(right(*arguments), c=None)
    )
    with pytest.raises(AssertionError, match='<='):
        assert_within(with_params(generator, aggregate=aggregate), batch())


@pytest.mark.parametrize('texts', [(), TEXTS[:1], TEXTS], ids=len)
def test_contexts_pay_for_the_tokens_that_they_vote_on(
    generator: BatchGenerator, texts: tuple[str, ...]
) -> None:
    """Each within B, as the twin says; and the output tells no more of it than 4c/(sτ) a token."""
    found = with_params(generator, **INDIVIDUAL)
    params, held = found.params, contexts(texts)
    vote = 4 * params.clip_bound / (params.batch_size * params.temperature)
    silent = False
    for key in KEYS:
        stream = found.decode(batch(texts), found.draws(batch(texts), key))
        spending = stream.spending
        assert spending is not None and params.context_budget is not None
        whole, spent = individual_log_probability(found, held, stream)
        np.testing.assert_allclose(spending.charged.sum(axis=0, dtype=np.float64), spent, rtol=1e-3)
        assert (spent <= params.context_budget * (1 + 1e-6)).all()
        for gone, tokens in enumerate((spending.charged > 0).sum(axis=0)):
            log, others = individual_log_probability(found, held[:gone] + held[gone + 1 :], stream)
            assert abs(whole - log) <= tokens * vote * (1 + SLACK) + 1e-6
            # The others' payments hang on the released tokens alone.
            np.testing.assert_array_equal(others, np.delete(spent, gone))
        silent |= not spending.voted.all()
    assert silent == bool(texts)


# --- Texts of a structure ---------------------------------------------------------

COLOURS, THINGS, ENDS = ('red', 'blue', 'bright green'), ('ball', 'shirt', 'cup', 'cart'), ('', ' and old')
VALID = {
    f'A {colour} {thing}{end}.'.encode() for colour, thing, end in itertools.product(COLOURS, THINGS, ENDS)
}
PREFIXES = {text[:length] for text in VALID for length in range(len(text) + 1)}
PATTERN = rf'A ({"|".join(COLOURS)}) ({"|".join(THINGS)})( and old)?\.'
# One that has not the structure among them.
STRUCTURED = (
    'A red ball.',
    'A blue cup.',
    'Nothing of the kind',
    'A bright green cart and old.',
    'A red shirt.',
)
LONGER = MechanismParams(
    batch_size=6, clip_bound=3.0, temperature=1.5, max_private_tokens=8, max_batch_tokens=60,
    max_example_tokens=24,
)  # fmt: skip
OFTEN = {'threshold': 0.6, 'threshold_noise_scale': 0.3}
MECHANISMS: dict[str, dict[str, typing.Any]] = {
    'mean': {},
    'mean, top 3': {'public_top_k': 3},
    'sparse vector': OFTEN,
    'sparse vector, top 4': {**OFTEN, 'public_top_k': 4},
    'median': {'aggregate': 'median'},
    'difference': {'aggregate': 'difference', 'clip_bound': 1.5},
    'difference, top 4': {'aggregate': 'difference', 'clip_bound': 1.5, 'public_top_k': 4},
}


@pytest.fixture(scope='module')
def structured() -> BatchGenerator:
    return generator_of(LONGER, Structure(regex=PATTERN))


@pytest.mark.parametrize('name', MECHANISMS)
def test_where_texts_have_a_structure_forced_tokens_tell_nothing(
    structured: BatchGenerator, name: str
) -> None:
    found = with_params(structured, public_temperature=1.5, **MECHANISMS[name])
    held = batch(STRUCTURED)
    assert int((~found.decode(held, found.draws(held, KEYS[0])).is_chosen).sum()) > 3
    assert_within(found, held)
