"""A batch plan, and two examples of each of its batches."""

from models.batch_plan import BatchPlan
from models.records import SyntheticExample

PLAN = BatchPlan(labels=('a', 'b'), batches_per_group=(5, 3), noisy_counts=None, contexts_rho=0.0)


def some_examples() -> list[SyntheticExample]:
    """Two examples of every batch, the first of them with awkward text."""
    return [
        SyntheticExample(
            text=f'é"\n\0 {batch_id}' if index == 0 else '',
            label=PLAN.labels[batch_id.group],
            batch_id=str(batch_id),
            index_in_batch=index,
            private_tokens=3 + index,
            public_tokens=index,
            truncated=index == 1,
        )
        for batch_id in PLAN.batch_ids()
        for index in range(2)
    ]
