"""The number of texts of each label: against slow twins, and where counts are below zero."""

import dataclasses
import fractions
import math

import hypothesis
import pytest
from hypothesis import strategies as st

from models.batch_plan import BatchPlan
from models.finetuning import label_mix
from models.finetuning.settings import TuningSettings
from tests.models.finetuning import tiny


def slow_texts(texts: int, shares: list[int]) -> tuple[int, ...]:
    """Slow twin: whole parts first, then one text at a time to whom most is missing; then one for each."""
    exact = [fractions.Fraction(texts * share, sum(shares)) for share in shares]
    found = [math.floor(number) for number in exact]
    while sum(found) < texts:
        missing = [of - has if has == math.floor(of) else -1 for of, has in zip(exact, found, strict=True)]
        found[missing.index(max(missing))] += 1
    return tuple(number or 1 for number in found)


@hypothesis.given(noisy=st.lists(st.integers(-50, 1000), min_size=1, max_size=7), each=st.integers(1, 40))
@hypothesis.example(noisy=[-3, 0, -1], each=5)
@hypothesis.example(noisy=[-3, 10, 0], each=5)
def test_texts_have_the_shares_of_the_counts(noisy: list[int], each: int) -> None:
    texts = each * len(noisy)
    found = label_mix.texts_of_counts(texts, noisy)
    positive = [max(0, count) for count in noisy]
    shares = positive if any(positive) else [1] * len(noisy)
    assert sum(abs(one - other) for one, other in zip(found, slow_texts(texts, shares), strict=True)) <= 2
    assert all(number >= 1 for number in found)
    # Texts beyond the number asked for are of labels that have hardly a share.
    assert 0 <= sum(found) - texts <= sum(texts * share < sum(shares) for share in shares)
    if not any(positive):
        assert found == (each,) * len(noisy)
    # Batches hold them, the last of a label what is left.
    batches = label_mix.batches_of_counts(noisy, texts=texts, together=7)
    assert all(7 * (of - 1) < number <= 7 * of for number, of in zip(found, batches, strict=True))


def test_a_label_with_a_count_below_zero_has_one_text_and_takes_it_from_nobody() -> None:
    assert label_mix.texts_of_counts(20, [300, 100, -7, 0]) == (15, 5, 1, 1)
    assert label_mix.texts_of_counts(8, [-1, -20]) == (4, 4)
    # Negative counts that were kept, or taken without a sign, would give the others another share.
    assert label_mix.texts_of_counts(20, [300, 100, 0, 0]) == (15, 5, 1, 1)


def test_of_no_texts_each_label_has_none() -> None:
    assert label_mix.texts_of_counts(0, [5, -1]) == (0, 0)
    assert label_mix.batches_of_counts([5, -1], texts=0, together=4) == (0, 0)


def test_settings_take_texts_from_the_plans_counts_where_it_has_any() -> None:
    found: TuningSettings = tiny.settings(examples_per_label=4)
    labels = ('a', 'b', 'c')
    given = BatchPlan(labels=labels, batches_per_group=(2, 2, 2), noisy_counts=None, contexts_rho=0.0)
    assert found.texts_by(given) == (4, 4, 4)
    counted = BatchPlan(
        labels=labels, batches_per_group=(2, 2, 1), noisy_counts=(30, 25, 5), contexts_rho=0.5
    )
    assert found.texts_by(counted) == (6, 5, 1)
    # The total is shared out among all labels, where a total is what was asked for.
    wanted = dataclasses.replace(found, examples=24, texts_of_labels=(8, 8, 8))
    assert wanted.texts_by(given) == (8, 8, 8) and wanted.texts_by(counted) == (12, 10, 2)


@pytest.mark.parametrize('shares', [(1.0, 3.0), (0.25, 0.75), (1e-9, 3e-9)])
def test_only_the_relation_of_shares_counts(shares: tuple[float, float]) -> None:
    assert label_mix.texts_of_shares(8, shares) == (2, 6)
