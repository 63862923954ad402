"""Batches in memory are those that a run would form."""

import dataclasses

import numpy as np
import pytest

from models import records
from models.audits import batches
from models.batch_plan import BatchPlan
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey
from tests import oracles

KEY = RunKey(bytes(range(32)))
PARAMS = MechanismParams(
    batch_size=6, clip_bound=3.0, temperature=1.5, max_private_tokens=8, max_batch_tokens=16,
    max_example_tokens=4,
)  # fmt: skip


@pytest.mark.parametrize('unit, k', [('example', 1), ('example', 3), ('user', 2)])
def test_batches_in_memory_are_those_of_the_slow_twin(unit: str, k: int) -> None:
    rng = np.random.default_rng(5)
    held = [
        records.Record(text=f'text {i}', label='ab'[rng.integers(2)], unit=str(rng.integers(20)))
        for i in range(90)
    ]
    params = dataclasses.replace(PARAMS, unit=unit, examples_per_context=k)
    plan = BatchPlan(labels=('a', 'b'), batches_per_group=(3, 2), noisy_counts=None, contexts_rho=0.0)
    found = batches.batches_of(batches.placements(held, ('a', 'b'), params, KEY), plan, params, KEY)
    expected = oracles.batches(held, plan, bytes(range(32)), unit=unit, slots=6, k=k, text_limit=100)
    assert found == expected
