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
    rule = StopRule.of(VOCAB, tokens=stop)
    for length in (0, 1, 2, 3, 6, 40):
        tokens = rng.integers(0, 5, length).astype(np.int32)
        flags = rng.random(length) < 0.5
        examples = split_examples(TokenStream(tokens, flags), stop_rule=rule, max_example_tokens=cap)
        expected = oracles.split(tuple(zip(tokens.tolist(), flags.tolist(), strict=True)), stop, cap)
        assert [dataclasses.astuple(example)[:-1] for example in examples] == expected
        assert sum(e.private_tokens for e in examples) == flags.sum()
        sizes = [e.private_tokens + e.public_tokens for e in examples]
        assert sum(sizes) == length
        places = places_in_examples(tokens, stop_rule=rule, max_example_tokens=cap)
        assert places == tuple(place for size in sizes for place in range(size))
