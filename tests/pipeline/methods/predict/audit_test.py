"""Audits of votes on tokens by canaries form their batches as a run does."""

import csv
import pathlib

import pytest

from models.privacy.randomness import RunKey
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods import canary_audit
from pipeline.methods.predict import audit
from pipeline.settings.job_config import JobConfig
from tests.samples import needs_model


@pytest.fixture
def config(tmp_path: pathlib.Path) -> JobConfig:
    """60 records of two labels."""
    with (tmp_path / 'records.csv').open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(['id', 'user', 'label', 'text'])
        for number in range(60):
            text = f'{number} times they asked about the {"bill" if number % 2 else "parcel"}.'
            writer.writerow([number, f'user {number % 25}', number % 2, text])
    return job_config(
        input=str(tmp_path / 'records.csv'), label_field='label', labels=('0=Delivery', '1=Billing'),
        batch_size=15, temperature=1.5, aggregate='median', max_private_tokens=6, max_prompt_tokens=60,
        delta=1e-5, batches_per_label=2, max_example_tokens=8,
    )  # fmt: skip


@needs_model
@pytest.mark.parametrize(
    'changes',
    [
        {'batches_per_label': None},
        {'batches_per_label': None, 'count_rho': 1.0, 'clusters': 3},
        {'unit': 'user', 'unit_field': 'user', 'examples_per_context': 2},
        {'examples_per_context': 2},
        {'label_field': None, 'labels': ()},
    ],
    ids=['noisy counts', 'clusters', 'users', 'slots', 'no labels'],
)
def test_batches_hold_every_record_or_unit_once(config: JobConfig, changes: dict[str, object]) -> None:
    changed = config.replace(**changes)
    run = methods.solve(changed)
    plan, batches = audit.form_batches(run, RunKey(bytes(32)), canary_audit.records_of(run))
    assert [batch.batch_id for batch in batches] == list(plan.batch_ids())
    texts = [text for batch in batches for context in batch.contexts for text in context.texts]
    assert len(texts) == len(set(texts))
    units = sum(len(batch.contexts) for batch in batches)
    if 'unit' in changes:
        assert units == 25
    elif 'examples_per_context' in changes:
        assert 40 < len(texts) <= 60 and units < 60
    else:
        assert units == len(texts) == 60
