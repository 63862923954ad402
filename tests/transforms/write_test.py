"""The corpus on disk: a function of the plan and the examples, which common readers load."""

import collections
import dataclasses
import pathlib
import random
from collections.abc import Iterable

import apache_beam as beam
import datasets
import pandas as pd
import pyarrow.parquet as pq
import pytest
from apache_beam.testing import util

from models.batch_plan import BatchPlan
from models.privacy.report import CorpusTotals
from models.records import SyntheticExample
from tests.samples import pipeline
from tests.transforms.examples import PLAN, some_examples
from transforms import write
from transforms.durable import TEMPORARY_SUFFIX
from transforms.predict import COLUMNS


def encode_shard(examples: Iterable[SyntheticExample]) -> bytes:
    return write.encode_shard(examples, COLUMNS)


def test_a_shard_is_a_function_of_the_set_of_examples() -> None:
    examples = some_examples()
    shuffled = random.Random(1).sample(examples, len(examples))
    assert encode_shard(shuffled) == encode_shard(iter(examples))
    changed = [dataclasses.replace(examples[0], text='other'), *examples[1:]]
    assert encode_shard(changed) != encode_shard(examples)


def test_a_shard_is_sorted_and_whole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'shard.parquet'
    path.write_bytes(encode_shard(reversed(some_examples())))
    assert pq.read_schema(path).equals(COLUMNS.schema)
    assert [SyntheticExample(**row) for row in pq.read_table(path).to_pylist()] == some_examples()


def test_an_empty_shard_loads(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    (tmp_path / write.shard_name(0, 2)).write_bytes(encode_shard([]))
    (tmp_path / write.shard_name(1, 2)).write_bytes(encode_shard(some_examples()))
    assert pd.read_parquet(tmp_path / write.shard_name(0, 2)).columns.tolist() == COLUMNS.schema.names
    loaded = datasets.load_dataset(
        'parquet', data_files=str(tmp_path / '*.parquet'), cache_dir=str(tmp_path / 'cache'), split='train'
    )
    assert loaded['text'][:] == [example.text for example in some_examples()]


@pytest.mark.parametrize('shards', [1, 2, 3, 8, 20, 41])
def test_every_shard_gets_its_share_in_order(shards: int) -> None:
    plan = dataclasses.replace(PLAN, batches_per_group=(17, 24))
    found = [write.shard_of(str(batch_id), plan, shards) for batch_id in plan.batch_ids()]
    assert found == sorted(found)
    counts = collections.Counter(found)
    assert set(counts) == set(range(shards))
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.first
@pytest.mark.run
@pytest.mark.parametrize('shards', [1, 3, 12])
def test_write_corpus(tmp_path: pathlib.Path, shards: int) -> None:
    (tmp_path / write.DATA_FOLDER).mkdir()
    totals = CorpusTotals(examples=16, private_tokens=8 * 7, public_tokens=8, truncated=8)
    with pipeline() as root:
        plan = root | 'P' >> beam.Create([PLAN])
        examples = root | 'E' >> beam.Create(some_examples())
        found = examples | write.WriteCorpus(plan, str(tmp_path), lambda _: shards, COLUMNS)
        util.assert_that(found, util.equal_to([totals]))
    folder = tmp_path / write.DATA_FOLDER
    assert sorted(path.name for path in folder.iterdir()) == [
        write.shard_name(shard, shards) for shard in range(shards)
    ]
    rows = [row for path in sorted(folder.iterdir()) for row in pq.read_table(path).to_pylist()]
    assert [SyntheticExample(**row) for row in rows] == some_examples()


@pytest.mark.first
@pytest.mark.run
def test_reports_are_rendered_from_the_totals_and_the_plan(tmp_path: pathlib.Path) -> None:
    """And what killed writers left behind is not published, in whichever folder of the release."""
    totals = CorpusTotals(examples=1, private_tokens=2, public_tokens=3, truncated=0)
    for place in (tmp_path, tmp_path / write.DATA_FOLDER, tmp_path / 'adapter'):
        place.mkdir(exist_ok=True)
        (place / f'a.json.b{TEMPORARY_SUFFIX}').write_text('half')
    with pipeline() as root:
        plan = root | 'P' >> beam.Create([PLAN])
        _ = root | 'T' >> beam.Create([totals]) | write.WriteReports(plan, _render, str(tmp_path))
    assert (tmp_path / 'totals.txt').read_text() == f'{totals} {PLAN.batches_per_group}'
    assert [path.name for path in sorted(tmp_path.rglob('*.*'))] == ['card.json', 'totals.txt']


def _render(totals: CorpusTotals, plan: BatchPlan) -> write.Files:
    return {'totals.txt': f'{totals} {plan.batches_per_group}'.encode(), 'adapter/card.json': b'{}'}
