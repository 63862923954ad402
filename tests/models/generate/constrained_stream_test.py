"""Constraints in the compiled loop: carried, moved on by the sampled token, begun anew with every example.

By a table of logits for a model, and token for token against the twin of Algorithm 1.
"""

import dataclasses
import itertools
from typing import Any

import jax
import numpy as np
import pytest

from models.constraints import Constraint, Grammar, LongEnough, Vocabulary
from models.decoders.decoder import Shapes
from models.generate import loop
from models.generate.examples import split_examples
from models.generate.loop import decode_stream
from models.generate.stream import TokenStream
from models.grammars import automaton, expressions, regular_expressions
from models.privacy import sampling, sparse_vector
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule
from tests import oracles, samples
from tests.contracts.aggregate_test import Halved, registered
from tests.contracts.constraint_test import CASES, SAMPLED, STOP, TOKEN_BYTES, VOCAB
from tests.contracts.decoder_test import STATES, TableDecoder
from tests.dummies.rising import Rising

pytestmark = pytest.mark.heavy

BASE = MechanismParams(
    batch_size=3,
    clip_bound=3.0,
    temperature=1.5,
    max_private_tokens=30,
    max_batch_tokens=30,
    max_example_tokens=6,
)
SPARSE = dataclasses.replace(BASE, threshold=0.9, threshold_noise_scale=0.3)
MECHANISMS = {
    'mean': BASE,
    'sparse vector, top 2': dataclasses.replace(SPARSE, public_top_k=2),
    'difference, top 3': dataclasses.replace(SPARSE, aggregate='difference', clip_bound=1.0, public_top_k=3),
}
PUBLIC = np.array([6, 2, 6], np.int32)
CONTEXTS = [np.array(prompt, np.int32) for prompt in ([1, 4], [9], [3, 3, 8])]


class _Table(TableDecoder):
    """`TableDecoder` with the vocabulary of the cases."""

    def __init__(self) -> None:
        super().__init__(Shapes(max_prompt_tokens=4, max_example_tokens=6, micro_batch_size=4))
        self.weights, self.vocab_size = self.weights[:, :VOCAB], VOCAB


DECODER = _Table()


def _state(prompt: np.ndarray, example: tuple[int, ...]) -> int:
    state = 0
    for token in (*prompt.tolist(), *example):
        state = (5 * state + 3 * token + 1) % STATES
    return state


def _logits_at(example: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    table = np.asarray(DECODER.weights)
    return np.stack([table[_state(row, example)] for row in CONTEXTS]), table[_state(PUBLIC, example)]


def _stream(params: MechanismParams, constraint: Constraint, stop: frozenset[int] | StopRule) -> TokenStream:
    return decode_stream(
        DECODER,
        samples.public_rows(DECODER, PUBLIC, params),
        CONTEXTS,
        params=params,
        draws=samples.batch_draws(params, sampling.tree_levels(VOCAB)),
        constraint=constraint,
        stop_rule=stop if isinstance(stop, StopRule) else StopRule.of(VOCAB, tokens=stop),
    )


def _twin(
    params: MechanismParams,
    allowed: oracles.Allowed | list[oracles.Allowed],
    stop: frozenset[int],
    **spoilt: Any,
) -> oracles.Output:
    draws = samples.batch_draws(params, sampling.tree_levels(VOCAB))
    return oracles.stream(
        _logits_at,
        dataclasses.replace(oracles.Mechanism.of(params, stop), **spoilt),
        threshold_noise=sparse_vector.probability(draws.threshold_noise, params),
        distance_noise=sparse_vector.probability(draws.distance_noise, params),
        token_words=draws.token_words,
        released=allowed,
    )


def _examples(tokens: list[int], stop: frozenset[int], most: int) -> list[tuple[int, ...]]:
    """The tokens before each token in its example."""
    before, example = [], ()
    for token in tokens:
        before.append(example)
        example = (*example, token)
        if token in stop or len(example) == most:
            example = ()
    return before


def _flags(stream: TokenStream) -> list[bool | None]:
    """The flag of each token: private, public, or neither."""
    return [
        None if not chosen else flag
        for flag, chosen in zip(stream.is_private.tolist(), stream.is_chosen.tolist(), strict=True)
    ]


@pytest.mark.parametrize('mechanism', MECHANISMS)
@pytest.mark.parametrize('name', samples.with_first(CASES, next(iter(CASES))))
def test_a_constrained_stream_equals_the_twin_and_holds_no_other_token(name: str, mechanism: str) -> None:
    case, params = CASES[name], MECHANISMS[mechanism]
    stream = _stream(params, case.constraint, case.stop_tokens)
    tokens = stream.tokens.tolist()
    before = _examples(tokens, case.stop_tokens, params.max_example_tokens)
    assert before.count(()) > 2, 'several examples, so that a state is begun anew'
    for example, token in zip(before, tokens, strict=True):
        assert case.twin(example)[token], (example, token)
    # Without a table of forced tokens they are put to the vote.
    expected = _twin(
        params,
        case.twin,
        case.stop_tokens,
        narrows=case.constraint.narrows_predictions,
        charges_forced=name == 'grammar' or case.constraint.forced(case.constraint.start()) is None,
    )
    assert tuple(zip(tokens, _flags(stream), strict=True)) == expected


@pytest.mark.parametrize('mechanism', MECHANISMS)
def test_forced_tokens_are_free_and_wrong_streams_are_others(mechanism: str) -> None:
    """They use up no private token; masks after the votes, and a bare distance, are noticed."""
    case, params = (
        CASES['forcing grammar'],
        dataclasses.replace(MECHANISMS[mechanism], max_private_tokens=15, max_batch_tokens=80),
    )
    stream = _stream(params, case.constraint, case.stop_tokens)
    flags = _flags(stream)
    assert flags.count(None) > 3 and flags.count(True) == 15
    assert not (stream.is_private & ~stream.is_chosen).any()
    found = tuple(zip(stream.tokens.tolist(), flags, strict=True))
    assert found == _twin(params, case.twin, case.stop_tokens, narrows=True)
    charged = _twin(params, case.twin, case.stop_tokens, narrows=True, charges_forced=True)
    assert None not in [flag for _, flag in charged] and len(charged) < len(found)
    cut = split_examples(stream, stop_rule=StopRule.of(VOCAB, tokens=case.stop_tokens), max_example_tokens=6)
    assert sum(example.forced_tokens for example in cut) == flags.count(None)
    assert sum(example.public_tokens for example in cut) == flags.count(False)
    if params.uses_sparse_vector:
        for spoilt in ({'renormalises': 'nothing'}, {'narrows': False}):
            other = {'narrows': True, **spoilt}
            assert any(
                _stream(changed, case.constraint, case.stop_tokens).tokens.tolist()
                != [token for token, _ in _twin(changed, case.twin, case.stop_tokens, **other)]
                for threshold in (0.3, 0.6, 0.9)
                for changed in (dataclasses.replace(params, threshold=threshold),)
            )


def test_a_median_loses_nothing_by_forced_tokens() -> None:
    case = CASES['forcing grammar']
    params = dataclasses.replace(BASE, aggregate='median', max_private_tokens=9)
    stream = _stream(params, case.constraint, case.stop_tokens)
    assert stream.losses is not None and (stream.losses[:, ~stream.is_chosen] == 0).all()
    assert (stream.losses[:, stream.is_private] > 0).any()
    found = tuple(zip(stream.tokens.tolist(), _flags(stream), strict=True))
    assert found == _twin(params, case.twin, case.stop_tokens, narrows=True)


def test_a_forced_token_is_charged_to_nobody() -> None:
    """Individual accounting: of a step without a choice there is no price and no vote."""
    case = CASES['forcing grammar']
    params = MechanismParams(
        aggregate='difference', accounting='individual', batch_size=3, clip_bound=0.5, shift_bound=0.4,
        temperature=1.0, context_budget=0.5, omega=3.0, public_top_k=3, max_batch_tokens=30,
        max_example_tokens=6,
    )  # fmt: skip
    stream = _stream(params, case.constraint, case.stop_tokens)
    assert stream.spending is not None and len(stream.tokens) == 30
    forced = ~stream.is_chosen
    assert 3 < forced.sum() < 25 and not stream.spending.voted[forced].any()
    assert (stream.spending.charged[forced] == 0).all()
    assert stream.spending.voted[~forced].any() and stream.is_private[~forced].all()
    for example, token in zip(
        _examples(stream.tokens.tolist(), case.stop_tokens, 6), stream.tokens.tolist(), strict=True
    ):
        assert case.twin(example)[token]


# `ba` ends an example too, in one token or in two.
ENDING = oracles.StopTexts(
    STOP, ('ba',), lambda ids: b''.join(TOKEN_BYTES[token] for token in ids).decode('latin')
)
ENDS = StopRule.of(VOCAB, tokens=STOP, texts=ENDING.texts, token_bytes=TOKEN_BYTES)


@pytest.mark.parametrize('min_tokens', [1, 3, 6])
@pytest.mark.parametrize('mechanism', MECHANISMS)
def test_an_example_ends_by_itself_after_as_many_tokens_and_not_before(
    mechanism: str, min_tokens: int
) -> None:
    """By stop tokens and by a stop text, which decides what may come."""
    params = dataclasses.replace(MECHANISMS[mechanism], max_private_tokens=90, max_batch_tokens=90)
    constraint = LongEnough.held(Vocabulary.of(SAMPLED), ENDS, min_tokens)
    stream = _stream(params, constraint, ENDS)
    draws = samples.batch_draws(params, sampling.tree_levels(VOCAB))
    settings = dataclasses.replace(
        oracles.Mechanism.of(params, ENDING), narrows=True, min_example_tokens=min_tokens
    )

    def twin(settings: oracles.Mechanism) -> oracles.Output:
        return oracles.stream(
            _logits_at, settings, threshold_noise=sparse_vector.probability(draws.threshold_noise, params),
            distance_noise=sparse_vector.probability(draws.distance_noise, params),
            token_words=draws.token_words, released=SAMPLED,
        )  # fmt: skip

    found = tuple(zip(stream.tokens.tolist(), stream.is_private.tolist(), strict=True))
    assert found == twin(settings)
    assert found != twin(dataclasses.replace(settings, min_example_tokens=min_tokens - 1))
    lengths = [
        example.private_tokens + example.public_tokens
        for example in split_examples(stream, stop_rule=ENDS, max_example_tokens=params.max_example_tokens)
        if not example.truncated
    ]
    assert all(length > min_tokens for length in lengths)
    assert (min_tokens + 1 in lengths) == (min_tokens < params.max_example_tokens)


def test_where_every_token_ends_an_example_one_of_them_comes() -> None:
    """No step is left without a token."""
    only = np.isin(np.arange(VOCAB), sorted(STOP))
    constraint = LongEnough.held(Vocabulary.of(only), StopRule.of(VOCAB, tokens=STOP), 3)
    stream = _stream(BASE, constraint, STOP)
    assert len(stream.tokens) == 30 and set(stream.tokens.tolist()) == STOP


# In no text, so that what tells them apart is no text.
MARKS = (b'\xf8', b'\xf9')
BEGINS = ('(a|bc)d?', '(c|ca)(a|b){1,2}')


def _of_two_cells(cells: list[int]) -> tuple[Grammar, list[oracles.Allowed]]:
    """A grammar whose examples begin in two states, and the twin of each: no start leaves one token alone."""
    marked = [
        expressions.concatenation(expressions.literal(mark), regular_expressions.matched(pattern))
        for mark, pattern in zip(MARKS, BEGINS, strict=True)
    ]
    found = automaton.build(expressions.union(*marked))
    constraint = Grammar.of(
        found,
        TOKEN_BYTES,
        tokens=SAMPLED,
        stop_tokens=STOP,
        first=[found.walk(mark) for mark in MARKS],
    )
    texts = (
        {start + end for start in (b'a', b'bc') for end in (b'', b'd')},
        {
            start + b''.join(rest)
            for start in (b'c', b'ca')
            for count in (1, 2)
            for rest in itertools.product((b'a', b'b'), repeat=count)
        },
    )
    twins = [
        oracles.grammar(
            {text[:length] for text in of for length in range(len(text) + 1)}.__contains__,
            of.__contains__,
            TOKEN_BYTES,
            np.flatnonzero(SAMPLED).tolist(),
            STOP,
        )
        for of in texts
    ]
    return constraint.of_cells(cells), [twins[cell] for cell in cells]


@pytest.mark.parametrize('mechanism', MECHANISMS)
def test_each_example_begins_in_the_state_of_its_own(mechanism: str) -> None:
    """Votes at an example's beginning are taken on what that example may begin with, not the one before."""
    params, cells = MECHANISMS[mechanism], [number * number % 3 % 2 for number in range(30)]
    constraint, twins = _of_two_cells(cells)
    stream = _stream(params, constraint, STOP)
    found = tuple(zip(stream.tokens.tolist(), _flags(stream), strict=True))
    assert found == _twin(params, twins, STOP, narrows=True, charges_forced=True)
    assert found != _twin(params, twins[:1] * 30, STOP, narrows=True, charges_forced=True)


def test_further_examples_begin_in_the_last_state() -> None:
    constraint, _ = _of_two_cells([0, 1])
    starts = [int(constraint.start(example)) for example in range(4)]
    assert starts[0] != starts[1] == starts[2] == starts[3]


@pytest.mark.first
def test_a_state_that_is_not_begun_anew_is_another_stream() -> None:
    """The check has teeth: the twin that goes on from the example before differs."""
    case = CASES['rising']
    stream = _stream(BASE, case.constraint, case.stop_tokens).tokens.tolist()
    before = _examples(stream, case.stop_tokens, BASE.max_example_tokens)
    seen: tuple[int, ...] = ()
    stale = []
    for token in stream:
        stale.append(bool(case.twin(seen)[token]))
        seen = (*seen, token)
    assert not all(stale) and all(case.twin(example)[token] for example, token in zip(before, stream))


def test_another_mask_of_the_same_size_is_no_other_program() -> None:
    masks = [np.arange(VOCAB) % 2 == 0, np.arange(VOCAB) < 9]
    _stream(BASE, Vocabulary.of(masks[0]), frozenset({0}))
    compiled = loop._run_loop._cache_size()
    tokens = _stream(BASE, Vocabulary.of(masks[1]), frozenset({0})).tokens
    assert loop._run_loop._cache_size() == compiled and (tokens < 9).all()


def test_a_constraint_of_another_vocabulary_is_refused() -> None:
    for constraint in (Vocabulary.of(np.ones(VOCAB + 1, bool)), Rising.of(VOCAB - 1)):
        with pytest.raises(ValueError, match=rf'shape=\({VOCAB}|shape=\({VOCAB - 1},|{VOCAB} tokens'):
            _stream(BASE, constraint, frozenset({0}))


def test_an_aggregate_that_one_call_registers_is_decoded() -> None:
    """Through the compiled loop, token for token as its twin says."""
    with registered(Halved()) as name:
        for params in (BASE, SPARSE):
            params = dataclasses.replace(params, aggregate=name)
            case = CASES['vocabulary']
            stream = _stream(params, case.constraint, case.stop_tokens)
            found = tuple(zip(stream.tokens.tolist(), stream.is_private.tolist(), strict=True))
            assert found == _twin(params, case.twin, case.stop_tokens)


def test_the_loop_gives_a_constraint_no_logits() -> None:
    """Arguments of a constraint have the shape of a token or of its own state."""
    given: list[tuple[int, ...]] = []

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Spy(Rising):
        def advance(self, state: jax.Array, token: jax.Array) -> jax.Array:
            given.extend((state.shape, token.shape))
            return super().advance(state, token)

        def allowed(self, state: jax.Array) -> jax.Array:
            given.append(state.shape)
            return super().allowed(state)

    _stream(BASE, Spy.of(VOCAB), frozenset({0}))
    assert given and set(given) == {()}
