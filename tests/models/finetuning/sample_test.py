"""Sampling: the nucleus against a sort, rows against a loop without cache or compiled masks, valid texts."""

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.decoders import decoder, family
from models.finetuning.sample import PlannedTexts, TextSampler
from models.grammars.structure import Structure
from models.privacy.randomness import RunKey
from models.records import BatchId
from models.sampling.nucleus import nucleus
from tests import oracles
from tests.models.finetuning import tiny
from tests.samples import SECRET

pytestmark = pytest.mark.heavy

KEY = RunKey(SECRET)
# High, so that rows differ.
TEMPERATURE = 4.0


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


@pytest.mark.parametrize('top_p, top_k', [(0.8, None), (0.3, 5), (1.0, 3), (1.0, None), (0.999, 200)])
def test_the_nucleus_is_that_of_a_sort(top_p: float, top_k: int | None) -> None:
    logits = 3 * np.random.default_rng(0).normal(size=(6, 50)).astype(np.float32)
    logits[0, :30] = -np.inf
    logits[1, 0] = 200.0
    found = np.asarray(nucleus(jnp.asarray(logits), top_p=top_p, top_k=top_k))
    expected = np.stack([oracles.nucleus(row, top_p, top_k) for row in logits.astype(float)])
    assert (found == expected).all()


@pytest.mark.first
def test_texts_are_a_function_of_the_key_and_the_batch() -> None:
    settings = tiny.settings(max_example_tokens=10, temperature=TEMPERATURE, top_p=0.95)
    sampler = TextSampler(settings, tiny.adapter())
    (first,) = sampler.sample([planned(0, 'a', 3)], KEY)
    assert [first] == sampler.sample([planned(0, 'a', 3)], RunKey(SECRET))
    assert len(first) == 3 and len({text.text for text in first}) > 1
    others = [
        sampler.sample([planned(index, 'a', 3)], key)[0] for index, key in ((1, KEY), (0, RunKey(bytes(32))))
    ]
    assert all([text.text for text in other] != [text.text for text in first] for other in others)
    for text in first:
        assert text.truncated == (text.tokens == 10 and ';' not in text.text) or not text.truncated
        assert ';' not in text.text and text.label == 'a' and text.batch_id == '0000-000000'


def test_batches_that_are_sampled_together_have_the_texts_that_they_have_alone() -> None:
    """Batches differ in labels and sizes, and have more texts than rows: rows go on with the next batch."""
    settings = tiny.settings(
        max_example_tokens=10, temperature=TEMPERATURE, top_p=0.95, labels=('a', 'b'), micro_batch_size=8
    )
    sampler = TextSampler(settings, tiny.adapter())
    batches = [planned(0, 'a', 5), planned(1, 'a', 3), planned(0, 'b', 8), planned(1, 'b', 1)]
    together = sampler.sample(batches, KEY)
    assert together == [found for batch in batches for found in sampler.sample([batch], KEY)]
    assert [len(found) for found in together] == [5, 3, 8, 1]
    assert sampler.sample([], KEY) == []


def planned(index: int, label: str, size: int) -> PlannedTexts:
    return PlannedTexts(BatchId(group='ab'.index(label), index=index), label, size)


# --- Structure -----------------------------------------------------------------------

WORDS = [first + rest for first in ('ab', 'ab;', 'q') for rest in ('', 'c', 'cd', 'cde;', 'x' * 12)]
STRUCTURES = {
    'none': None,
    'none, long enough': None,
    'regex': Structure(regex='(ab;?|q)((cd?|cde;)?|x{12})'),
    'schema': Structure(json_schema=json.dumps({'enum': WORDS, 'type': 'string'})),
    'schema, fixed': Structure(
        json_schema=json.dumps({
            'type': 'object', 'properties': {'k': {'enum': ['x', 'y']}, 'n': {'enum': [10, 21, 32, 43]}},
            'required': ['k', 'n'], 'additionalProperties': False,
        }),
        fixed=(('k', 'y'),),
    ),
}  # fmt: skip
MIN_TOKENS = {'none, long enough': 9}
ENDS = frozenset({tiny.EOS, tiny.FIRST_BYTE + ord(';')})
TEXTS: dict[str, list[str]] = {
    'regex': WORDS,
    'schema': [f'"{word}"' for word in WORDS],
    'schema, fixed': [f'{{"k":"y","n":{number}}}' for number in (10, 21, 32, 43)],
}


def _twin_mask(name: str) -> oracles.Allowed:
    pieces, released = tiny.Bytes().token_bytes(), tiny.Bytes().released_token_mask()
    if name not in TEXTS:
        return oracles.long_enough(oracles.vocabulary(released), ENDS, MIN_TOKENS.get(name, 0))
    whole = {text.encode() for text in TEXTS[name]}
    begun = {text[:length] for text in whole for length in range(len(text) + 1)}
    sampled = set(np.flatnonzero(released).tolist()) - {tiny.EOS}
    return oracles.grammar(begun.__contains__, whole.__contains__, pieces, sampled, {tiny.EOS})


@pytest.mark.parametrize('name', STRUCTURES)
@pytest.mark.parametrize('top_p, top_k', [(0.6, None), (1.0, 2), (0.9, 40)])
def test_rows_are_those_of_a_loop_without_a_cache_or_a_compiled_mask(
    name: str, top_p: float, top_k: int | None
) -> None:
    """In their own states, each of its own length; a mask behind the nucleus would give others."""
    structure, most = STRUCTURES[name], 16
    settings = tiny.settings(
        max_example_tokens=most, temperature=TEMPERATURE, top_p=top_p, top_k=top_k, structure=structure,
        micro_batch_size=8, min_example_tokens=MIN_TOKENS.get(name, 0),
    )  # fmt: skip
    sampler = TextSampler(settings, tiny.adapter())
    # More than rows, which are filled again.
    texts = 13
    whole = _whole_prompts(8)
    prompt = settings.writer().public_prompt('a')

    def draws(row: int, place: int) -> Iterator[float]:
        seed = KEY.hash('text', f'tiny/0000-000000/{row:06d}'.encode(), size=8)
        key = jax.random.wrap_key_data(jnp.asarray(np.frombuffer(seed, np.uint32)))
        for trial in itertools.count():
            yield float(jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, place), trial)))

    def is_over(row: tuple[int, ...]) -> bool:
        return row[-1] == tiny.EOS or (structure is None and row[-1] in ENDS)

    def of(row: int, *, masks_last: bool = False) -> tuple[str, int, bool]:
        tokens = oracles.sampled_row(
            lambda example: whole(np.array([*prompt, *example], np.int32)),
            _twin_mask(name),
            [draws(row, place) for place in range(most)],
            temperature=TEMPERATURE,
            top_p=top_p,
            top_k=top_k,
            is_over=is_over,
            masks_last=masks_last,
        )
        text = tiny.Bytes().decode_batch([[token for token in tokens if token != tiny.EOS]])[0]
        shown = text.partition(';')[0].strip() if structure is None else text
        return shown, len(tokens), not is_over(tokens)

    (sampled,) = sampler.sample([planned(0, 'a', texts)], KEY)
    found = [(text.text, text.tokens, text.truncated) for text in sampled]
    assert found == [of(row) for row in range(texts)]
    assert all(tokens > MIN_TOKENS.get(name, 0) for _, tokens, is_cut in found if not is_cut)
    if structure is not None:
        assert {text for text, _, is_cut in found if not is_cut} <= set(TEXTS[name])
        assert len({text for text, *_ in found}) > 1
        assert found != [of(row, masks_last=True) for row in range(texts)]


def _whole_prompts(rows: int) -> Callable[[np.ndarray], np.ndarray]:
    """Logits after all tokens, which are read at once."""
    shapes = decoder.Shapes(max_prompt_tokens=32, max_example_tokens=1, micro_batch_size=rows)
    model = family.family_of('tiny').load_decoder(
        'tiny', '', shapes=shapes, dtype='float32', adapter=tiny.adapter()
    )

    @functools.cache
    def of(tokens: tuple[int, ...]) -> np.ndarray:
        states, _ = model.prefill([np.array(tokens, np.int32)] * rows)
        return np.asarray(model.logits(model.weights, states[0]))[0]

    return lambda tokens: of(tuple(tokens.tolist()))


def test_what_the_cap_cut_short_is_closed_with_the_shortest_ending_where_that_is_asked_for() -> None:
    """And stays marked; what ended by itself is the same."""
    cut_short = tiny.settings(max_example_tokens=7, structure=STRUCTURES['regex'], micro_batch_size=8)
    structure = dataclasses.replace(STRUCTURES['regex'], closes_truncated=True)
    closing = dataclasses.replace(cut_short, structure=structure)
    cut, closed = (
        [
            text
            for of_batch in TextSampler(settings, tiny.adapter()).sample(
                [planned(index, 'a', 8) for index in range(4)], KEY
            )
            for text in of_batch
        ]
        for settings in (cut_short, closing)
    )
    assert any(text.truncated and text.text not in WORDS for text in cut)
    assert {text.text for text in closed} <= set(WORDS)
    for before, after in zip(cut, closed, strict=True):
        endings = [word for word in WORDS if word.startswith(before.text)]
        text = min(endings, key=len) if before.truncated else before.text
        assert dataclasses.replace(before, text=text) == after


def test_a_structure_that_does_not_go_with_the_prompt_is_refused_before_a_model_is_loaded() -> None:
    template = dataclasses.replace(tiny.TEMPLATE, response_prefix='{')
    settings = tiny.settings(template=template, structure=STRUCTURES['regex'])
    with pytest.raises(ValueError, match='response prefix begins a text of the structure'):
        settings.check_prompts()


def test_training_reads_records_as_texts_are_sampled() -> None:
    """JSON in the form that the mask holds, with a stop token for its end, and all else as it is."""
    settings = tiny.settings(structure=STRUCTURES['schema, fixed'])
    valid, other = settings.writer().continuations(['{"n": 32, "k": "x"}', 'x; {"n": 7'], 40)
    assert tiny.Bytes().decode_batch([valid, other]) == ['{"k":"x","n":32}', 'x; {"n": 7']
    assert valid[-1] == other[-1] == tiny.EOS
