"""The parts of a finished batch in tests: an example, its losses, its spending."""

import pytest

from models.privacy.ex_post import BatchLoss
from models.privacy.individual import BatchSpending
from models.records import SyntheticExample


def example(batch_id: str, index: int = 0) -> SyntheticExample:
    return SyntheticExample(
        text='é"\n\0\u2028', label=None, batch_id=batch_id, index_in_batch=index, private_tokens=3,
        public_tokens=0, truncated=True,
    )  # fmt: skip


LOSS = BatchLoss(
    batch_id='0000-000001',
    minus_log_alpha=(0.1, 0.0),
    log_beta=(1e-17, 0.0),
    places=(0, 1),
    is_private=(True, False),
)

SPENDING = BatchSpending(batch_id='0000-000001', spent=(0.1, 1e-17), voters=(2, 2, 1), first_silent=2)

FACTS = [pytest.param(LOSS, 'losses', id='losses'), pytest.param(SPENDING, 'spending', id='spending')]
