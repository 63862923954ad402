"""The benchmark of structures in short, and that it finds what it looks for."""

import numpy as np
import pytest

from models.grammars.json_schema import schema
from tests.benchmarks import grammar_benchmark as benchmark
from tests.models.grammars import llguidance_test


@pytest.fixture(scope='module')
def found() -> dict[str, object]:
    return benchmark.run(1500, 30, 2000, (1, 10))


def test_every_disagreement_is_explained(found: dict[str, object]) -> None:
    assert found['unexplained'] == 0, found['disagreements']
    assert found['schemas'] == 30 and found['tokens'] == 1500
    masks, texts = found['masks'], found['texts']
    assert isinstance(masks, int) and masks > 300 and isinstance(texts, int) and texts > 20


def test_it_says_what_an_automaton_takes(found: dict[str, object]) -> None:
    automata = found['automata']
    assert isinstance(automata, list)
    assert [of['fields'] for of in automata] == [1, 10]
    assert automata[1]['states'] > automata[0]['states'] > 2
    assert len(set(benchmark.vocabulary(2000))) == 2000


def test_masks_are_those_of_a_walk_by_bytes() -> None:
    of = benchmark.of_fields(3)
    compiled = schema.compiled(of)
    masks = benchmark._Masks(compiled)
    for text in (b'', b'{"field_0":"', b'{"field_0":"a","field_1":1'):
        state = compiled.walk(text)
        expected = [compiled.walk(token, state) != 0 for token in llguidance_test.TOKENS]
        expected[llguidance_test.END] = bool(compiled.accepting[state])
        np.testing.assert_array_equal(masks.allowed(state), expected)


def test_an_automaton_of_another_schema_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too wide, too narrow, or of another form: each leaves disagreements that nothing explains."""
    of = {'type': 'object', 'properties': {'n': {'type': 'integer', 'minimum': 3, 'maximum': 40}},
          'required': ['n'], 'additionalProperties': False}  # fmt: skip
    assert not any(name.startswith('unexplained') for name in benchmark.walk(of, 60, seed=0))
    right = schema.compiled
    for minimum, maximum in ((3, 400), (5, 40), (3, 39)):
        other = {**of, 'properties': {'n': {'type': 'integer', 'minimum': minimum, 'maximum': maximum}}}
        monkeypatch.setattr(benchmark.schema, 'compiled', lambda _, wrong=other: right(wrong))
        counts = benchmark.walk(of, 300, seed=0)
        assert any(name.startswith('unexplained') for name in counts), (minimum, maximum, counts)
