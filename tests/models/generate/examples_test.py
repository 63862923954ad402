"""Examples are cut from a stream where the loop began them."""

import dataclasses

import numpy as np
import pytest

from models.generate.examples import places_in_examples, split_examples
from models.generate.stream import TokenStream
from models.stop_rule import StopRule
from tests import oracles
from tests.models.generate.table import VOCAB


@pytest.mark.parametrize('stop', [frozenset(), frozenset({0}), frozenset({0, 3})])
@pytest.mark.parametrize('cap', [1, 3, 100])
def test_examples_are_cut_where_the_loop_began_them_anew(stop: frozenset[int], cap: int) -> None:
    rng = np.random.default_rng(cap)
    for length in (0, 1, 2, 3, 6, 40):
        tokens = rng.integers(0, 5, length).astype(np.int32)
        flags = rng.random(length) < 0.5
        examples = split_examples(
            TokenStream(tokens, flags),
            stop_rule=StopRule.of(VOCAB, tokens=stop),
            max_example_tokens=cap,
        )
        expected = oracles.split(tuple(zip(tokens.tolist(), flags.tolist(), strict=True)), stop, cap)
        assert [dataclasses.astuple(example)[:-1] for example in examples] == expected
        assert sum(e.private_tokens for e in examples) == flags.sum()
        assert sum(e.private_tokens + e.public_tokens for e in examples) == length


@pytest.mark.parametrize(
    'tokens, expected',
    [
        ([], []),
        ([0], [((), 0, 1, False)]),
        ([4, 0], [((4,), 1, 1, False)]),
        ([4, 3], [((4, 3), 1, 1, True)]),  # at the length cap
        ([4, 3, 0, 4], [((4, 3), 1, 1, True), ((), 1, 0, False), ((4,), 0, 1, True)]),
    ],
)
def test_examples_by_hand(tokens: list[int], expected: list[tuple]) -> None:
    """Stop token 0, two tokens at most; private tokens at even positions, but for a leading 0."""
    flags = np.array([(bool(t) and i % 2 == 0) or i == 2 for i, t in enumerate(tokens)], bool)
    stream = TokenStream(np.array(tokens, np.int32), flags)
    examples = split_examples(stream, stop_rule=StopRule.of(VOCAB, tokens={0}), max_example_tokens=2)
    assert [dataclasses.astuple(example)[:-1] for example in examples] == expected


@pytest.mark.parametrize('stop', [frozenset(), frozenset({0}), frozenset({0, 3})])
@pytest.mark.parametrize('cap', [1, 3, 100])
def test_places_begin_anew_where_examples_are_cut(stop: frozenset[int], cap: int) -> None:
    rng = np.random.default_rng(cap)
    for length in (0, 1, 3, 40):
        tokens = rng.integers(0, 5, length).astype(np.int32)
        places = places_in_examples(tokens, stop_rule=StopRule.of(VOCAB, tokens=stop), max_example_tokens=cap)
        output = tuple((token, True) for token in tokens.tolist())
        sizes = [private for _, private, _, _ in oracles.split(output, stop, cap)]
        assert places == tuple(place for size in sizes for place in range(size))
