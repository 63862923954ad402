"""The benchmark of masks in short: both sides walk, and every loop ends."""

import json

import numpy as np

from models.constraints import Grammar
from models.grammars.json_schema import schema
from tests.benchmarks import mask_benchmark as benchmark
from tests.models.grammars.llguidance_test import END, OPTIONS, SCHEMAS, TOKENS, _matcher, llguidance


def test_masks_and_loops_are_timed() -> None:
    of = SCHEMAS['objects'][0]
    theirs = _matcher(llguidance.LLMatcher.grammar_from_json_schema(json.dumps(of), overrides=OPTIONS))
    pieces = [*TOKENS[:END], b'']
    ours = Grammar.of(schema.compiled(of), pieces, tokens=np.arange(len(TOKENS)) != END, stop_tokens={END})
    masks = benchmark.masks(ours, theirs, frozenset({END}), 20)
    assert masks.keys() == {'whole vocabulary', 'candidates', 'llguidance'} and min(masks.values()) > 0
    theirs.reset()
    ends = np.arange(len(TOKENS)) == END
    loops = benchmark.loops(ours, theirs, ends, 20, 1)
    assert loops.keys() == {'no mask', 'table', 'callback'} and min(loops.values()) > 0
