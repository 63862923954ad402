"""Forced tokens go through the model with the chosen token before them, up to R in a step.

The model is a table whose states are whole numbers, so a stream with any R is the same bits, and equals
the plain-Python twin of Algorithm 1, which knows of no steps. Of texts of 14 tokens, stretches of
three, five and four are forced, the last with the stop token.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import jax
import numpy as np
import pytest

from models.constraints import Grammar, Vocabulary
from models.decoders.decoder import Cache, Decoder, Shapes
from models.generate import loop
from models.generate.examples import places_in_examples
from models.generate.loop import decode_stream
from models.generate.stream import TokenStream
from models.grammars import automaton, regular_expressions
from models.privacy import sampling, sparse_vector
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule
from tests import oracles, samples
from tests.contracts.decoder_test import STATES, TableDecoder

pytestmark = pytest.mark.heavy

TOKEN_BYTES = [b'', b'a', b'b', b'c', b'd']
VOCAB, STOP = len(TOKEN_BYTES), frozenset({0})
PATTERN = 'bab(a|d)(c|d)bcabc(b|d)aab'
TEXTS = {
    b'bab' + bytes((first, second)) + b'bcabc' + bytes((third,)) + b'aab'
    for first, second, third in itertools.product(b'ad', b'cd', b'bd')
}
PREFIXES = {text[:length] for text in TEXTS for length in range(len(text) + 1)}
LONGEST = 16
PUBLIC = np.array([6, 2, 6], np.int32)
CONTEXTS = [np.array(prompt, np.int32) for prompt in ([1, 4], [9], [3, 3, 8])]

MEAN = MechanismParams(
    batch_size=3, clip_bound=3.0, temperature=1.5, max_private_tokens=60, max_batch_tokens=60,
    max_example_tokens=LONGEST,
)  # fmt: skip
SPARSE = dataclasses.replace(MEAN, threshold=0.4, threshold_noise_scale=0.3)
MECHANISMS = {
    'mean': MEAN,
    'mean, sparse vector, top 2': dataclasses.replace(SPARSE, public_top_k=2),
    'median, sparse vector': dataclasses.replace(SPARSE, aggregate='median'),
    'difference, worst case': dataclasses.replace(MEAN, aggregate='difference', clip_bound=1.0),
    'difference, individual': MechanismParams(
        aggregate='difference', accounting='individual', batch_size=3, clip_bound=0.5, shift_bound=0.4,
        temperature=2.0, context_budget=0.3, omega=3.0, public_top_k=4, max_batch_tokens=60,
        max_example_tokens=LONGEST,
    ),
}  # fmt: skip


class _Table(TableDecoder):
    """The table of the contract, with this vocabulary and steps of up to R tokens.

    Args:
        step_tokens: R.
        wrong: As of the contract's; 'cut' has the states depend on how tokens are cut into steps.
    """

    def __init__(self, step_tokens: int, wrong: str = '') -> None:
        super().__init__(
            Shapes(
                max_prompt_tokens=4, max_example_tokens=LONGEST, micro_batch_size=4, step_tokens=step_tokens
            ),
            wrong,
        )
        self.weights, self.vocab_size = self.weights[:, :VOCAB], VOCAB
        self.counts: list[int] = []

    def append(
        self,
        weights: jax.Array,
        cache: tuple[Cache, ...],
        tokens: jax.Array,
        count: jax.Array,
        offset: jax.Array,
    ) -> tuple[tuple[jax.Array, ...], tuple[Cache, ...]]:
        jax.debug.callback(lambda found: self.counts.append(int(found)), count, ordered=True)
        states, kept = super().append(weights, cache, tokens, count, offset)
        if self._wrong == 'cut':
            kept = tuple({**part, 'state': (part['state'] + 7 * count) % STATES} for part in kept)
        return states, kept


@functools.cache
def _decoder(step_tokens: int, wrong: str = '') -> _Table:
    return _Table(step_tokens, wrong)


def _grammar() -> Grammar:
    found = automaton.build(regular_expressions.matched(PATTERN))
    table = np.full(found.states, -1, np.int32)
    for prefix in PREFIXES:
        following = np.flatnonzero(_allowed_bytes(prefix))
        table[found.walk(prefix)] = following[0] if len(following) == 1 else -1
    return Grammar.of(found, TOKEN_BYTES, tokens=np.ones(VOCAB, bool), stop_tokens=STOP, forced_tokens=table)


def _allowed_bytes(prefix: bytes) -> np.ndarray:
    return np.array([
        prefix in TEXTS if token in STOP else prefix + data in PREFIXES
        for token, data in enumerate(TOKEN_BYTES)
    ])  # fmt: skip


def _twin_mask(example: tuple[int, ...]) -> np.ndarray:
    return _allowed_bytes(b''.join(TOKEN_BYTES[token] for token in example))


GRAMMAR = _grammar()
RULES: dict[str, tuple[StopRule, oracles.Stop]] = {
    'stop token': (StopRule.of(VOCAB, tokens=STOP), STOP),
    # It ends within the second of the forced stretches.
    'stop text': (
        StopRule.of(VOCAB, tokens=STOP, texts=('ca',), token_bytes=TOKEN_BYTES),
        oracles.StopTexts(
            STOP, ('ca',), lambda ids: b''.join(TOKEN_BYTES[token] for token in ids).decode()
        ),
    ),
}  # fmt: skip


def _stream(
    params: MechanismParams,
    decoder: Decoder,
    *,
    rule: str = 'stop token',
    contexts: Sequence[int] = (0, 1, 2),
) -> TokenStream:
    return decode_stream(
        decoder,
        samples.public_rows(decoder, PUBLIC, params),
        [CONTEXTS[index] for index in contexts],
        params=params,
        draws=samples.batch_draws(params, sampling.tree_levels(VOCAB)),
        constraint=GRAMMAR,
        stop_rule=RULES[rule][0],
    )


def _state(prompt: np.ndarray, example: tuple[int, ...]) -> int:
    state = 0
    for token in (*prompt.tolist(), *example):
        state = (5 * state + 3 * token + 1) % STATES
    return state


def _twin(params: MechanismParams, rule: str = 'stop token') -> oracles.Output:
    draws, table = samples.batch_draws(params, sampling.tree_levels(VOCAB)), np.asarray(_decoder(1).weights)

    def logits_at(example: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        return np.stack([table[_state(row, example)] for row in CONTEXTS]), table[_state(PUBLIC, example)]

    return oracles.stream(
        logits_at,
        dataclasses.replace(oracles.Mechanism.of(params, RULES[rule][1]), narrows=True),
        threshold_noise=sparse_vector.probability(draws.threshold_noise, params),
        distance_noise=sparse_vector.probability(draws.distance_noise, params),
        token_words=draws.token_words,
        released=_twin_mask,
    )


def _output(stream: TokenStream) -> oracles.Output:
    flags = [
        flag if chosen else None
        for flag, chosen in zip(stream.is_private.tolist(), stream.is_chosen.tolist(), strict=True)
    ]
    return tuple(zip(stream.tokens.tolist(), flags, strict=True))


def _assert_equal(found: TokenStream, expected: TokenStream) -> None:
    """Every field, bit for bit."""
    leaves, wanted = jax.tree.leaves(found), jax.tree.leaves(expected)
    assert jax.tree.structure(found) == jax.tree.structure(expected) and len(leaves) >= 3
    for leaf, other in zip(leaves, wanted, strict=True):
        np.testing.assert_array_equal(leaf, other)


def _expected_steps(stream: TokenStream, most: int, cap: int = LONGEST) -> list[int]:
    """Tokens of each step, in plain Python: those that are forced join the token before, if it is no last."""
    steps: list[int] = []
    places = places_in_examples(stream.tokens, stop_rule=RULES['stop token'][0], max_example_tokens=cap)
    for place, is_chosen in zip(places, stream.is_chosen.tolist(), strict=True):
        if is_chosen or place == 0 or steps[-1] == most:
            steps.append(0)
        steps[-1] += 1
    return steps


@pytest.mark.parametrize('name', samples.with_first(MECHANISMS, next(iter(MECHANISMS))))
def test_a_stream_is_the_same_however_many_tokens_a_step_takes(name: str) -> None:
    """Tokens, what each is, losses, and who was charged; 2 is shorter than every forced stretch, 8 longer."""
    params = MECHANISMS[name]
    single = _stream(params, _decoder(1))
    assert single.is_forced is not None and single.is_forced.sum() > 20 and len(set(single.tokens)) == VOCAB
    if params.uses_sparse_vector:
        assert 0 < single.is_private.sum() < single.is_chosen.sum()
    if params.is_individual:
        assert single.spending is not None and single.spending.charged.any()
    else:
        assert _output(single) == _twin(params)
    for most in (2, 8):
        _assert_equal(_stream(params, _decoder(most)), single)


@pytest.mark.parametrize('rule', RULES)
@pytest.mark.parametrize(
    'caps',
    [
        {'max_batch_tokens': 7},
        {'max_batch_tokens': 30},
        # Longer texts: an example ends within a forced stretch, and the next begins with one.
        {'max_example_tokens': 2},
        {'max_example_tokens': 9},
        # A private token is the last, though forced ones would follow.
        {'max_private_tokens': 2},
        {'max_private_tokens': 3},
    ],
    ids=str,
)
def test_caps_and_ends_within_a_step(caps: dict[str, int], rule: str) -> None:
    params = dataclasses.replace(SPARSE, **caps)
    expected = _twin(params, rule)
    assert _output(_stream(params, _decoder(4), rule=rule)) == expected
    examples = oracles.split(
        tuple((token, bool(flag)) for token, flag in expected), RULES[rule][1], params.max_example_tokens
    )
    if 'max_private_tokens' in caps:
        assert expected[-1][1] is True
    elif 'max_batch_tokens' in caps:
        assert len(expected) == caps['max_batch_tokens'] and expected[-1][1] is None
    else:
        assert len(examples) > 3


@pytest.mark.parametrize('most', [1, 2, 4, 8])
def test_steps_are_as_few_as_they_can_be(most: int) -> None:
    """One for each chosen token and what is forced behind it, R tokens at most."""
    decoder = _Table(most)
    # The cap on all tokens falls within a forced stretch.
    stream = _stream(dataclasses.replace(MEAN, max_batch_tokens=58), decoder)
    jax.effects_barrier()
    steps = _expected_steps(stream, most)
    assert len(decoder.counts) == len(steps) and max(steps) == min(most, 6)
    assert decoder.counts[-1] == steps[-1]
    # One token of a step that ends an example is enough, for nothing reads it.
    assert all(found in (1, wanted) for found, wanted in zip(decoder.counts, steps, strict=True))
    assert (len(steps) < len(stream.tokens)) == (most > 1)


@pytest.mark.parametrize('seconds', [0.0, 1e6])
def test_stretches_do_not_cut_steps(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a model that can tell: its states depend on where steps end, and so would the stream."""
    usual = _stream(MEAN, _decoder(4, 'cut'))
    monkeypatch.setattr(loop, '_STRETCH_SECONDS', seconds)
    _assert_equal(_stream(MEAN, _decoder(4, 'cut')), usual)
    for other in (1, 2):
        assert _output(_stream(MEAN, _decoder(other, 'cut'))) != _output(usual)


def test_other_contexts_cut_a_stream_nowhere_else() -> None:
    """The end of a step says no more than its tokens do: those of an equal stream are the same."""
    counts = []
    for contexts in ((0, 1, 2), (2, 1), ()):
        decoder = _Table(4)
        stream = _stream(MEAN, decoder, contexts=contexts)
        jax.effects_barrier()
        counts.append(len(decoder.counts))
        assert counts[-1] == len(_expected_steps(stream, 4))


@pytest.mark.first
def test_a_model_that_reads_past_a_steps_tokens_is_found() -> None:
    assert _output(_stream(MEAN, _decoder(4, 'behind'))) != _twin(MEAN)


def test_text_without_a_structure_takes_single_steps() -> None:
    """Whatever the decoder is built for: nothing is forced there."""
    decoder = _Table(4)
    stream = decode_stream(
        decoder, None, CONTEXTS, params=MEAN, draws=samples.batch_draws(MEAN, sampling.tree_levels(VOCAB)),
        constraint=Vocabulary.of(np.ones(VOCAB, bool)), stop_rule=RULES['stop token'][0],
    )  # fmt: skip
    jax.effects_barrier()
    assert decoder.counts == [1] * len(stream.tokens) and stream.is_forced is None
