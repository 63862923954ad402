"""What audits compute again is what decoding computes, for every aggregate; and broken votes are another."""

import dataclasses
import typing

import jax.numpy as jnp
import numpy as np
import pytest

from models.privacy.aggregates import AGGREGATES
from models.privacy.params import MechanismParams

VOCAB = 40


PARAMS = MechanismParams(
    batch_size=5, clip_bound=2.0, temperature=1.5, max_private_tokens=8, max_batch_tokens=16,
    max_example_tokens=4,
)  # fmt: skip


def params_of(name: str, **changes: typing.Any) -> MechanismParams:
    return dataclasses.replace(PARAMS, aggregate=name, **changes)


def rows_of(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits, of which one row is broken and one is extreme, and the public ones."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 3, (count, VOCAB)).astype(np.float32)
    if count > 2:
        logits[1, 3] = np.nan
        logits[2] *= 30
    return logits, rng.normal(0, 3, VOCAB).astype(np.float32)


@pytest.mark.parametrize('count', [0, 1, 2, 5, 6])
@pytest.mark.parametrize('name', AGGREGATES)
def test_replayed_scores_are_the_aggregate_of_each_batch(name: str, count: int) -> None:
    """The batch, without each context, with one more, and with one in another's place."""
    params, strategy = params_of(name), AGGREGATES[name]
    logits, public = rows_of(count, count + 1)
    public = public if strategy.reads_public_logits else np.zeros(VOCAB, np.float32)
    batch = list(range(count))
    batches = [batch, [*batch, count], *([row for row in batch if row != gone] for gone in batch)]
    batches += [[count if row == gone else row for row in batch] for gone in batch]
    replayed = list(strategy.replayed_scores(logits, public, batches, params))
    assert len(replayed) == len(batches)
    for rows, scores in zip(batches, replayed, strict=True):
        held = jnp.asarray(np.concatenate([logits[rows], public[None]]))
        mask = jnp.arange(len(held)) < len(rows)
        tallied = strategy.tally((held,), (mask,), jnp.asarray(public), params)
        expected = strategy.combine(tallied, jnp.asarray(public), params)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize('name', AGGREGATES)
def test_votes_that_are_not_clipped_pass_the_bound(name: str) -> None:
    params, strategy = params_of(name), AGGREGATES[name]
    logits, public = rows_of(9, 2)
    batches = [[0, 1]]
    (kept,) = strategy.replayed_scores(logits, public, batches, params)
    (broken,) = strategy.replayed_scores(logits, public, batches, params, clips=False)
    assert np.abs(broken - kept).max() > 0.5


@pytest.mark.parametrize('k', [None, 1, 7, VOCAB, VOCAB + 1])
@pytest.mark.parametrize('clip_bound', [0.5, 2.0, 5.0])
@pytest.mark.parametrize('name', AGGREGATES)
def test_replayed_tokens_are_those_that_may_be_sampled(name: str, clip_bound: float, k: int | None) -> None:
    params, strategy = params_of(name, public_top_k=k, clip_bound=clip_bound), AGGREGATES[name]
    rng = np.random.default_rng(3)
    for scale in (1, 40):
        public, mask = (scale * rng.normal(0, 1, VOCAB)).astype(np.float32), rng.uniform(size=VOCAB) < 0.6
        expected = np.asarray(strategy.allowed(jnp.asarray(mask), jnp.asarray(public), params))
        replayed = strategy.replayed_tokens(mask, public, params)
        np.testing.assert_array_equal(replayed, expected)
        assert replayed.dtype == bool and replayed is not mask
