"""Sampling: the nucleus against a sort, rows against a loop without a cache, and texts by run and batch."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import pytest

from models.decoders.gemma import forward
from models.finetuning.sample import TextSampler, nucleus
from models.privacy.randomness import RunKey
from models.records import BatchId
from tests.models.finetuning import tiny
from tests.samples import SECRET

KEY = RunKey(SECRET)


@pytest.fixture(autouse=True, scope='module')
def _tiny() -> Iterator[None]:
    with tiny.known():
        yield


def slow_nucleus(logits: np.ndarray, top_p: float, top_k: int | None) -> np.ndarray:
    shares = np.exp(logits - logits.max())
    shares /= shares.sum()
    order = np.argsort(-shares, kind='stable')
    kept = order[: top_k or len(order)]
    before = np.cumsum(shares[kept]) - shares[kept]
    kept = kept[before < top_p * shares[kept].sum()]
    mask = np.zeros(len(logits), bool)
    mask[kept] = True
    return mask & (shares > 0)


@pytest.mark.parametrize('top_p, top_k', [(0.8, None), (0.3, 5), (1.0, 3), (1.0, None), (0.999, 200)])
def test_the_nucleus_is_that_of_a_sort(top_p: float, top_k: int | None) -> None:
    logits = 3 * np.random.default_rng(0).normal(size=(6, 50)).astype(np.float32)
    logits[0, :30] = -np.inf
    logits[1, 0] = 200.0
    found = np.asarray(nucleus(jnp.asarray(logits), top_p=top_p, top_k=top_k))
    expected = np.stack([slow_nucleus(row, top_p, top_k) for row in logits.astype(float)])
    assert (found == expected).all()


def test_rows_with_tokens_of_their_own_are_those_of_longer_prompts() -> None:
    weights, tokens = tiny.weights(), np.random.default_rng(1).integers(4, 260, (4, 9)).astype(np.int32)
    a, lengths = tiny.ARCHITECTURE, jnp.full(4, 6)
    _, cache = forward.read_prompts(
        a, weights, jnp.asarray(tokens[:, :6]), lengths, example_slots=5, in_pieces=False
    )
    for place in range(3):
        states, cache = forward.append(
            a, weights, cache, jnp.asarray(tokens[:, 6 + place : 7 + place]), jnp.int32(1), jnp.int32(place)
        )
        whole = forward.states(a, weights, jnp.asarray(tokens[:, : 7 + place]))[:, -1]
        np.testing.assert_allclose(states, whole, atol=1e-4)


def test_texts_are_a_function_of_the_key_and_the_batch() -> None:
    settings = tiny.settings(max_example_tokens=10, temperature=1.3, top_p=0.95)
    sampler = TextSampler(settings, tiny.adapter())
    first = sampler.sample(BatchId(group=0, index=0), 'a', 3, KEY)
    assert first == sampler.sample(BatchId(group=0, index=0), 'a', 3, RunKey(SECRET))
    assert len(first) == 3 and len({text.text for text in first}) > 1
    others = [
        sampler.sample(BatchId(group=0, index=1), 'a', 3, KEY),
        sampler.sample(BatchId(group=0, index=0), 'a', 3, RunKey(bytes(32))),
    ]
    assert all([text.text for text in other] != [text.text for text in first] for other in others)
    for text in first:
        assert text.truncated == (text.tokens == 10 and ';' not in text.text) or not text.truncated
        assert ';' not in text.text and text.label == 'a' and text.batch_id == '0000-000000'
