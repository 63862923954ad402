"""The decoding loop against a plain-Python twin that consumes the same draws, token for token.

The model is a table (`table.py`). Keys are fixed, so every test is deterministic.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from models.constraints import Vocabulary
from models.generate import loop
from models.generate.examples import places_in_examples, split_examples
from models.generate.loop import Watch, decode_stream
from models.generate.rows import prefill_public
from models.generate.stream import TokenStream
from models.privacy import randomness, sampling, sparse_vector, whole_numbers
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule
from tests import oracles, samples
from tests.models.generate.table import (
    BASE,
    DECODERS,
    PUBLIC,
    SPARSE,
    TABLE,
    VOCAB,
    TableDecoder,
    contexts_of,
    draws_of,
    logits_at_of,
    table_of,
)

pytestmark = pytest.mark.heavy

ODDS = 1e-6  # false alarms of a statistical test


def _decode(
    params: MechanismParams,
    contexts: list[np.ndarray],
    draws: randomness.BatchDraws,
    *,
    decoder: TableDecoder = DECODERS[4],
    released: np.ndarray | None = None,
    stop: frozenset[int] = frozenset({0}),
) -> oracles.Output:
    stream = _stream(params, contexts, draws, decoder=decoder, released=released, stop=stop)
    return tuple(zip(stream.tokens.tolist(), stream.is_private.tolist(), strict=True))


def _stream(
    params: MechanismParams,
    contexts: list[np.ndarray],
    draws: randomness.BatchDraws,
    *,
    decoder: TableDecoder = DECODERS[4],
    released: np.ndarray | None = None,
    stop: frozenset[int] = frozenset({0}),
    watch: Watch = lambda doing, tokens: None,
) -> TokenStream:
    return decode_stream(
        decoder,
        samples.public_rows(decoder, PUBLIC, params),
        contexts,
        params=params,
        draws=draws,
        constraint=Vocabulary.of(np.ones(decoder.vocab_size, bool) if released is None else released),
        stop_rule=StopRule.of(decoder.vocab_size, tokens=stop),
        watch=watch,
    )


def _twin(
    params: MechanismParams,
    contexts: list[np.ndarray],
    draws: randomness.BatchDraws,
    *,
    table: np.ndarray = TABLE,
    released: np.ndarray | None = None,
    stop: oracles.Stop = frozenset({0}),
    **wrong: object,
) -> oracles.Output:
    return oracles.stream(
        logits_at_of(table, contexts),
        dataclasses.replace(oracles.Mechanism.of(params, stop), **wrong),
        threshold_noise=sparse_vector.probability(draws.threshold_noise, params),
        distance_noise=sparse_vector.probability(draws.distance_noise, params),
        token_words=draws.token_words,
        released=np.ones(table.shape[-1], bool) if released is None else released,
    )


MEDIAN, SPARSE_MEDIAN, DIFFERENCE, SPARSE_DIFFERENCE = (
    dataclasses.replace(params, aggregate=aggregate)
    for aggregate in ('median', 'difference')
    for params in (BASE, SPARSE)
)

# Params, stop tokens, released tokens.
CASES = {
    'private tokens only': (BASE, {0}, None),
    'no stop token, the length cap alone': (BASE, set(), None),
    'every example one token long': (dataclasses.replace(BASE, max_example_tokens=1), {0}, None),
    'sparse vector': (SPARSE, {0}, None),
    'sparse vector, many public tokens': (
        dataclasses.replace(SPARSE, threshold=1.2, max_private_tokens=3),
        {0},
        None,
    ),
    'sparse vector, cap on all tokens': (
        dataclasses.replace(SPARSE, threshold=1.6, max_batch_tokens=7),
        {0},
        None,
    ),
    'sparse vector, two stop tokens': (SPARSE, {0, 3}, None),
    'one private token': (dataclasses.replace(SPARSE, max_private_tokens=1), {0}, None),
    'one token': (dataclasses.replace(SPARSE, max_batch_tokens=1), {0}, None),
    'restricted vocabulary': (SPARSE, {0}, [1, 0, 1, 1, 0]),
    'top 2 of the public prompt': (dataclasses.replace(BASE, public_top_k=2), {0}, None),
    'sparse vector, top 3 of the released': (
        dataclasses.replace(SPARSE, public_top_k=3),
        {0},
        [1, 1, 0, 1, 1],
    ),
    'widest range of scores': (
        dataclasses.replace(BASE, clip_bound=15.0, temperature=1.0, batch_size=1),
        {0},
        None,
    ),
    'median': (MEDIAN, {0}, None),
    'median, sparse vector, top 3 of the released': (
        dataclasses.replace(SPARSE_MEDIAN, public_top_k=3),
        {0},
        [1, 1, 0, 1, 1],
    ),
    'median, every example one token long': (
        dataclasses.replace(SPARSE_MEDIAN, max_example_tokens=1),
        {0},
        None,
    ),
    'difference': (DIFFERENCE, {0}, None),
    'difference, Top-k+': (dataclasses.replace(DIFFERENCE, public_top_k=2, clip_bound=1.0), {0}, None),
    'difference, sparse vector': (SPARSE_DIFFERENCE, {0}, [1, 0, 1, 1, 1]),
}


@pytest.mark.parametrize('name', samples.with_first(CASES, next(iter(CASES))))
def test_stream_equals_the_twin_token_for_token(name: str) -> None:
    """Twelve batches of 0 to 9 contexts for each case.

    A float32 score may turn a token near its boundary, once in about 1e5 tokens; the keys are
    fixed and none of theirs does.
    """
    params, stop, released = CASES[name]
    stop = frozenset(stop)
    mask = None if released is None else np.array(released, bool)
    # A program for each number of micro-batches: of the median, one, since each takes seconds to compile.
    decoder = DECODERS[16 if params.is_ex_post else 4]
    streams = []
    for number, count in enumerate([0, 0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]):
        contexts, draws = contexts_of(count, number), draws_of(params, number)
        ours = _decode(params, contexts, draws, decoder=decoder, released=mask, stop=stop)
        assert ours == _twin(params, contexts, draws, released=mask, stop=stop)
        private = sum(flag for _, flag in ours)
        assert len(ours) == params.max_batch_tokens or private == params.max_private_tokens
        assert private <= params.max_private_tokens and len(ours) <= params.max_batch_tokens
        assert mask is None or all(mask[token] for token, _ in ours)
        streams.append(ours)
    flags = {flag for stream in streams for _, flag in stream}
    assert flags == ({True, False} if params.uses_sparse_vector else {True})


def test_the_order_of_contexts_changes_nothing() -> None:
    for number in range(5):
        contexts, draws = contexts_of(7, number), draws_of(SPARSE, 200 + number)
        assert _decode(SPARSE, contexts, draws) == _decode(SPARSE, contexts[::-1], draws)


def test_the_private_token_cap_stops_a_batch_at_once_mid_example() -> None:
    """A batch that ends at t = r ends with a private token, and most often within an example."""
    unfinished = 0
    for number in range(20):
        params = dataclasses.replace(SPARSE, max_private_tokens=2 + 2 * (number % 2))
        stream = _decode(params, contexts_of(4, number), draws_of(params, 400 + number))
        private = [flag for _, flag in stream]
        if sum(private) == params.max_private_tokens:
            assert private[-1]
            examples = oracles.split(stream, frozenset({0}), params.max_example_tokens)
            unfinished += examples[-1][3] and len(examples[-1][0]) < params.max_example_tokens
        else:
            assert len(stream) == params.max_batch_tokens
    assert unfinished >= 5


@pytest.mark.parametrize('params', [BASE, SPARSE, MEDIAN], ids=['private', 'sparse', 'median'])
def test_a_batch_without_room_for_its_votes_is_an_error_before_a_token(
    params: MechanismParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the error tell the number of its contexts; one context less has room."""
    monkeypatch.setattr(whole_numbers, 'MOST_CONTEXTS', 4)
    assert _decode(params, contexts_of(4), draws_of(params, 650))
    monkeypatch.setattr('models.generate.rows.prefill_batch', None)
    with pytest.raises(MemoryError) as caught:
        _decode(params, contexts_of(5), draws_of(params, 650))
    assert not set('0123456789') & set(str(caught.value))


def test_the_test_is_refused_where_a_vocabulary_leaves_its_sums_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sparse_vector, 'MOST_COLUMNS', VOCAB - 1)
    assert _decode(BASE, contexts_of(4), draws_of(BASE, 650))
    with pytest.raises(ValueError, match=f'vocab_size={VOCAB}'):
        _decode(SPARSE, contexts_of(4), draws_of(SPARSE, 650))


def test_threshold_noise_is_refreshed_after_every_private_token_and_only_then() -> None:
    """The twin that keeps one threshold gives other streams; ours reads noise t after t private tokens."""
    stale = 0
    for number in range(20):
        contexts, draws = contexts_of(5, number), draws_of(SPARSE, 600 + number)
        ours = _decode(SPARSE, contexts, draws)
        stale += ours != _twin(SPARSE, contexts, draws, refresh_threshold=False)
        # Noise that decides alone: private where it is very low, public where it is very high.
        pattern = np.where(np.arange(SPARSE.max_private_tokens + 1) < 4, -(2**50), 2**50)
        forced = dataclasses.replace(draws, threshold_noise=pattern)
        flags = [flag for _, flag in _decode(SPARSE, contexts, forced)]
        assert flags == [True] * 4 + [False] * (SPARSE.max_batch_tokens - 4)
    assert stale >= 5


# -------------------------------------------------------------------- ex-post losses


def _losses_by_hand(
    params: MechanismParams, contexts: list[np.ndarray], stream: TokenStream, released: np.ndarray
) -> np.ndarray:
    """`[2, n]`: METHOD 5 at every private token, its range from all neighbours built one by one."""
    logits_at, example, found = logits_at_of(TABLE, contexts), (), []
    for token, is_private in zip(stream.tokens.tolist(), stream.is_private.tolist(), strict=True):
        logits, public = logits_at(example)
        allowed = oracles.Mechanism.of(params).allowed(public, released)
        # With K nothing but the allowed tokens is seen of a row.
        seen = allowed if params.public_top_k is not None else np.ones(VOCAB, bool)
        logits, public, index = logits[:, seen], public[seen], int(seen[:token].sum())
        middle = oracles.median_aggregate(logits, public, params.clip_bound)
        ends = np.full((2, len(public)), [[-params.clip_bound], [params.clip_bound]])
        if len(logits) >= 3:
            others = oracles.medians_after_one_change(
                oracles.clip(logits, params.clip_bound),
                params.clip_bound,
                replace=params.examples_per_context > 1,
                random=np.zeros((0, len(public))),
            )
            ends = np.stack([others.min(axis=0), others.max(axis=0)])
        losses = oracles.token_losses(middle, *ends, allowed[seen], index, params.temperature)
        found.append(losses if is_private else (0.0, 0.0))
        ended = token == 0 or len(example) + 1 == params.max_example_tokens
        example = () if ended else (*example, token)
    return np.array(found).T


@pytest.mark.parametrize(
    'params',
    [
        MEDIAN,
        SPARSE_MEDIAN,
        dataclasses.replace(SPARSE_MEDIAN, public_top_k=3),
        dataclasses.replace(MEDIAN, examples_per_context=2),
    ],
    ids=['private', 'sparse', 'top 3', 'replace'],
)
def test_the_losses_of_a_stream_are_those_of_its_tokens(params: MechanismParams) -> None:
    """A loss is of the votes that its token was sampled from, not of those after it; 0 for a public token."""
    released = np.array([1, 1, 1, 0, 1], bool)
    public_tokens = 0
    for number in (0, 1, 2, 3, 5, 8):
        contexts, draws = contexts_of(number, number), draws_of(params, 900 + number)
        # One micro-batch holds them all: one program for every number of contexts.
        stream = _stream(params, contexts, draws, decoder=DECODERS[16], released=released)
        assert stream.losses.shape == (2, len(stream.tokens))
        expected = _losses_by_hand(params, contexts, stream, released)
        np.testing.assert_allclose(stream.losses, expected, rtol=1e-4, atol=1e-5)
        assert not stream.losses[:, ~stream.is_private].any()
        public_tokens += (~stream.is_private).sum()
        if number == 5:  # two micro-batches
            other = _stream(params, contexts, draws, decoder=DECODERS[3], released=released)
            np.testing.assert_allclose(other.losses, stream.losses, rtol=1e-5, atol=1e-6)
    assert (public_tokens > 0) == params.uses_sparse_vector


@pytest.mark.parametrize('params', [BASE, SPARSE, DIFFERENCE, SPARSE_DIFFERENCE])
def test_an_aggregate_with_a_price_has_no_losses(params: MechanismParams) -> None:
    assert _stream(params, contexts_of(4), draws_of(params, 0)).losses is None


@pytest.mark.parametrize(
    ('theta', 'aggregate'),
    [
        (0.8, 'mean'),
        (0.8, 'median'),
        (0.8, 'difference'),
        (None, 'difference'),
        (None, 'mean'),
        (None, 'median'),
    ],
)
def test_streams_come_as_often_as_enumeration_says(theta: float | None, aggregate: str) -> None:
    """3000 batches of a vocabulary of 3; chi-square over all outputs at odds 1e-6.

    The same streams are rejected against the distribution of a wrong mechanism: another aggregate,
    division by the true size, one threshold for the whole batch, half the distance noise, no threshold noise.
    """
    vocab, batches, stop = 3, 3000, frozenset({2})
    table = table_of(5, vocab)
    params = MechanismParams(
        batch_size=2,
        clip_bound=2.0,
        temperature=1.0,
        max_private_tokens=2,
        max_batch_tokens=3,
        max_example_tokens=2,
        threshold=theta,
        threshold_noise_scale=None if theta is None else 0.5,
        aggregate=aggregate,
    )
    contexts = [np.array([token], np.int32) for token in (4, 5, 6, 0)]
    decoder = TableDecoder(table, 4)
    settings = oracles.Mechanism.of(params, stop)
    outputs = oracles.outputs_of(vocab, settings)
    index = oracles.prefixes(vocab, params.max_example_tokens)
    positions = [oracles.positions_of(output, settings, index) for output in outputs]
    at = [logits_at_of(table, contexts)(prefix) for prefix in index]
    logits, public = np.stack([a for a, _ in at], axis=1), np.stack([b for _, b in at])

    def distribution(settings: oracles.Mechanism) -> np.ndarray:
        steps = oracles.steps_of(logits, public, settings)
        return np.exp(oracles.log_distribution(steps, outputs, positions, settings))

    number_of = {output: number for number, output in enumerate(outputs)}
    counts = np.zeros(len(outputs))
    for number in range(batches):
        draws = draws_of(params, number, sampling.tree_levels(vocab))
        counts[number_of[_decode(params, contexts, draws, decoder=decoder, stop=stop)]] += 1

    patterns = sorted({tuple(flag for _, flag in output) for output in outputs})
    pattern_of = np.array([patterns.index(tuple(flag for _, flag in output)) for output in outputs])

    def accepts(expected: np.ndarray, *, flags_alone: bool = False) -> bool:
        assert expected.sum() == pytest.approx(1, abs=1e-9)
        seen = counts
        if flags_alone:  # a few cells, hence more power against a wrong threshold
            seen, expected = np.bincount(pattern_of, counts), np.bincount(pattern_of, expected)
        statistic, degrees = oracles.chi_square(seen, expected)
        return statistic <= oracles.chi_square_bound(degrees, ODDS)

    assert accepts(distribution(settings))
    for other in {'mean', 'median', 'difference'} - {aggregate}:
        assert not accepts(distribution(dataclasses.replace(settings, aggregate=other))), other
    if aggregate != 'median':  # which divides by nothing
        assert not accepts(distribution(dataclasses.replace(settings, divide_by_true_size=True)))
    if theta is not None:
        assert accepts(distribution(settings), flags_alone=True)
        for wrong in (
            {'refresh_threshold': False},
            {'distance_noise_factor': 1.0},
            {'threshold_noise': False},
        ):
            assert not accepts(distribution(dataclasses.replace(settings, **wrong)), flags_alone=True), wrong


# -------------------------------------------------------------------- stop texts

# Tokens of the table's model as bytes; two of them are halves of a character.
PIECES = (b'', b'a\n', b'\nb', b'\xc3', b'\xa9')


def _text(ids: Sequence[int]) -> str:
    return b''.join(PIECES[index] for index in ids).decode(errors='replace')


@pytest.mark.parametrize('seconds', [0.0, 1e6])
def test_stretches_change_no_token_and_say_how_far_the_batch_is(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Token by token, or the first two alone and then all at once."""
    params = dataclasses.replace(MEDIAN, max_private_tokens=30)
    contexts, draws = contexts_of(3, 1), draws_of(params, 1)
    whole = _stream(params, contexts, draws)
    monkeypatch.setattr(loop, '_STRETCH_SECONDS', seconds)
    seen: list[tuple[str, int]] = []
    stream = _stream(params, contexts, draws, watch=lambda doing, tokens: seen.append((doing, tokens)))
    np.testing.assert_array_equal(stream.tokens, whole.tokens)
    assert stream.losses is not None and whole.losses is not None
    np.testing.assert_array_equal(stream.losses, whole.losses)
    assert seen[:2] == [('Reading prompts', 0), ('Decoding', 0)]
    places = [tokens for _, tokens in seen[2:]]
    assert places == (list(range(1, len(stream.tokens))) if seconds == 0 else [1, 2])


@pytest.mark.parametrize('texts', [('\n\n',), ('\na', 'é'), ('b\nba', 'a'), ('é\n',)], ids=repr)
def test_stop_texts_end_examples_of_the_loop_as_of_the_twin(texts: tuple[str, ...]) -> None:
    """Token for token, texts beginning and ending within tokens; the loop, its cuts and places agree."""
    stop = oracles.StopTexts(frozenset({0}), texts, _text)
    rule = StopRule.of(VOCAB, tokens={0}, texts=texts, token_bytes=PIECES)
    params = dataclasses.replace(BASE, max_private_tokens=40, max_batch_tokens=40)
    ended_by_text = 0
    for number in range(12):
        contexts, draws = contexts_of(3, number), draws_of(params, number)
        stream = decode_stream(
            DECODERS[4], None, contexts, params=params, draws=draws, stop_rule=rule,
            constraint=Vocabulary.of(np.ones(VOCAB, bool)),
        )  # fmt: skip
        output = tuple(zip(stream.tokens.tolist(), stream.is_private.tolist(), strict=True))
        assert output == _twin(params, contexts, draws, stop=stop)
        cap = params.max_example_tokens
        examples = split_examples(stream, stop_rule=rule, max_example_tokens=cap)
        assert [dataclasses.astuple(example)[:-1] for example in examples] == oracles.split(output, stop, cap)
        lengths = [example.private_tokens + example.public_tokens for example in examples]
        assert places_in_examples(stream.tokens, stop_rule=rule, max_example_tokens=cap) == tuple(
            place for length in lengths for place in range(length)
        )
        ended_by_text += sum(not e.truncated and len(e.tokens) == n for e, n in zip(examples, lengths))
    assert ended_by_text > 0


# ---------------------------------------------------------------------- refusals


def test_a_public_prompt_is_given_exactly_where_it_is_read() -> None:
    for params, public in ((BASE, prefill_public(DECODERS[4], [PUBLIC])), (SPARSE, None)):
        with pytest.raises(ValueError, match='public rows'):
            decode_stream(
                DECODERS[4],
                public,
                contexts_of(2),
                params=params,
                draws=draws_of(params, 0),
                constraint=Vocabulary.of(np.ones(VOCAB, bool)),
                stop_rule=StopRule.of(VOCAB, tokens={0}),
            )


def test_an_example_longer_than_the_decoders_cache_is_refused() -> None:
    """The loop would step past the cache, where a device clamps the write and says nothing."""
    params = dataclasses.replace(BASE, max_example_tokens=DECODERS[4].shapes.max_example_tokens + 1)
    with pytest.raises(ValueError, match='max_example_tokens'):
        _decode(params, contexts_of(2), draws_of(params, 0))


def test_a_stop_rule_of_another_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match=rf"model's {VOCAB} tokens, got a table of shape=\(1, {VOCAB + 1}\)"):
        decode_stream(
            DECODERS[4], None, contexts_of(2), params=BASE, draws=draws_of(BASE, 0),
            constraint=Vocabulary.of(np.ones(VOCAB, bool)), stop_rule=StopRule.of(VOCAB + 1, tokens={0}),
        )  # fmt: skip
