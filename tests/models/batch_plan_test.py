"""A plan names its groups and batches, refuses what is no plan, and survives its JSON."""

import dataclasses
import math

import pytest

from models.batch_plan import BatchPlan, Clustering
from tests.samples import CLUSTERED, PLAN


def test_a_plan_survives_json() -> None:
    for plan in (
        PLAN,
        BatchPlan(labels=('é',), batches_per_group=(2,), noisy_counts=(-3,), contexts_rho=0.005),
        BatchPlan(labels=(None,), batches_per_group=(1,), noisy_counts=None, contexts_rho=0.0),
        CLUSTERED,
        dataclasses.replace(CLUSTERED, noisy_counts=None, contexts_rho=0.0),
    ):
        assert BatchPlan.from_json(plan.to_json()) == plan
        assert BatchPlan.from_json(plan.to_json()).to_json() == plan.to_json()


def test_batch_ids_are_in_order() -> None:
    assert [str(batch_id) for batch_id in PLAN.batch_ids()] == [
        '0000-000000', '0000-000001', '0000-000002', '0001-000000', '0001-000001',
    ]  # fmt: skip


def test_a_plan_of_no_text_has_no_batch() -> None:
    plan = BatchPlan(labels=('a', 'b'), batches_per_group=(0, 0), noisy_counts=None, contexts_rho=0.0)
    assert list(plan.batch_ids()) == [] and BatchPlan.from_json(plan.to_json()) == plan
    # An adapter alone may release counts of labels for those who sample from it.
    counted = dataclasses.replace(plan, noisy_counts=(7, -1), contexts_rho=0.1)
    assert list(counted.batch_ids()) == [] and BatchPlan.from_json(counted.to_json()) == counted


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'labels': ('a', 'a')}, 'distinct labels'),
        (
            {'batches_per_group': (2, 0), 'noisy_counts': (1, 2), 'contexts_rho': 0.1},
            'at least one batch for each of 2 groups',
        ),
        ({'labels': ()}, 'distinct labels'),
        ({'labels': ('a', None)}, 'distinct labels'),
        ({'batches_per_group': (1,)}, 'at least one batch'),
        ({'batches_per_group': (1, 0)}, 'at least one batch'),
        ({'noisy_counts': (1,), 'contexts_rho': 0.1}, 'one noisy count for each of 2 groups'),
        ({'noisy_counts': (1, 2)}, 'positive contexts_rho'),
        ({'contexts_rho': 0.1}, 'positive contexts_rho'),
        ({'noisy_counts': (1, 2), 'contexts_rho': float('nan')}, 'positive contexts_rho'),
    ],
)
def test_an_impossible_plan_is_refused(changed: dict, message: str) -> None:
    fields = {'labels': ('a', 'b'), 'batches_per_group': (3, 2), 'noisy_counts': None, 'contexts_rho': 0.0}
    with pytest.raises(ValueError, match=message):
        BatchPlan(**fields | changed)


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'batches_per_group': (3, 2)}, 'at least one batch for each of 4 groups'),
        ({'noisy_counts': (30, 20)}, 'one noisy count for each of 4 groups'),
        ({'labels': ('a',)}, 'kept centres for each label'),
        ({'clustering': None}, 'at least one batch for each of 2 groups'),
    ],
)
def test_a_plan_that_does_not_fit_its_clusters_is_refused(changed: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CLUSTERED, **changed)


def test_more_groups_than_a_batch_id_can_name_are_refused() -> None:
    def plan(labels: int) -> BatchPlan:
        clustering = Clustering(
            kept=(tuple(range(1000)),) * labels, noisy_counts=((0,) * 1000,) * labels, rho=1.0
        )
        names = tuple(f'label {number}' for number in range(labels))
        return BatchPlan(
            labels=names,
            batches_per_group=(1,) * 1000 * labels,
            noisy_counts=None,
            contexts_rho=0.0,
            clustering=clustering,
        )

    names = [str(batch_id) for batch_id in plan(10).batch_ids()]
    assert len(names) == 10_000 and names == sorted(names)
    with pytest.raises(ValueError, match='at most 10000 groups, got groups=11000'):
        plan(11)


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ({'kept': ((0, 2),)}, 'ascending indices below 3'),
        ({'kept': ((0, 2), ())}, 'ascending indices below 3'),
        ({'kept': ((2, 0), (1, 2))}, 'ascending indices below 3'),
        ({'kept': ((0, 0), (1, 2))}, 'ascending indices below 3'),
        ({'kept': ((-1, 2), (1, 2))}, 'ascending indices below 3'),
        ({'kept': ((0, 3), (1, 2))}, 'ascending indices below 3'),
        ({'noisy_counts': ((9, -4, 8), (0, 5))}, 'as many noisy counts'),
        ({'noisy_counts': ()}, 'as many noisy counts'),
        ({'rho': 0.0}, 'rho > 0'),
        ({'rho': math.inf}, 'rho > 0'),
        ({'rho': math.nan}, 'rho > 0'),
    ],
)
def test_an_impossible_clustering_is_refused(changed: dict, message: str) -> None:
    assert CLUSTERED.clustering is not None
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CLUSTERED.clustering, **changed)


NO_JSON_OF_OURS = ['', '[]', '{"labels": ["a"]}', PLAN.to_json()[:-5]]


@pytest.mark.parametrize('text', [*NO_JSON_OF_OURS, CLUSTERED.to_json().replace('"kept"', '"other"')])
def test_json_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        BatchPlan.from_json(text)


def test_a_clustering_survives_json() -> None:
    clustering = CLUSTERED.clustering
    assert clustering is not None
    assert Clustering.from_json(clustering.to_json()) == clustering


@pytest.mark.parametrize('text', [*NO_JSON_OF_OURS, PLAN.to_json()])
def test_json_that_is_no_clustering_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Clustering.from_json(text)
