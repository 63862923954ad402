"""The corpus on disk: a function of the plan and the examples, which common readers load."""

import collections
import dataclasses
import json
import pathlib
import random
from collections.abc import Iterable

import apache_beam as beam
import datasets
import pandas as pd
import pyarrow.parquet as pq
import pytest
from apache_beam.testing import util

from models.batching import BatchPlan
from models.privacy.ex_post import BatchLoss
from models.privacy.report import CorpusTotals
from models.records import BatchId, SyntheticExample
from tests.samples import pipeline
from transforms import write
from transforms.predict import COLUMNS
from transforms.read import Reason, Rejection

PLAN = BatchPlan(labels=('a', 'b'), batches_per_group=(5, 3), noisy_counts=None, contexts_rho=0.0)


def encode_shard(examples: Iterable[SyntheticExample]) -> bytes:
    return write.encode_shard(examples, COLUMNS)


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


# --- One shard -------------------------------------------------------------------


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


@pytest.mark.parametrize('shards', [1, 2, 3, 8, 20])
def test_every_shard_gets_its_share_in_order(shards: int) -> None:
    plan = dataclasses.replace(PLAN, batches_per_group=(17, 24))
    found = [write.shard_of(str(batch_id), plan, shards) for batch_id in plan.batch_ids()]
    assert found == sorted(found)
    counts = collections.Counter(found)
    assert set(counts) == set(range(shards))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_more_shards_than_batches_stay_in_range() -> None:
    found = [write.shard_of(str(batch_id), PLAN, 100) for batch_id in PLAN.batch_ids()]
    assert len(set(found)) == len(found) and min(found) >= 0 and max(found) < 100


def test_declared_words_stand_beside_the_label(tmp_path: pathlib.Path) -> None:
    columns = COLUMNS.with_label_words({'a': 'digestive system diseases'})
    path = tmp_path / 'shard.parquet'
    path.write_bytes(write.encode_shard(some_examples(), columns))
    names = COLUMNS.schema.names
    assert pq.read_schema(path).names == [*names[:2], 'label_words', *names[2:]] == list(columns.meanings)
    rows = pq.read_table(path).to_pylist()
    words = {(row['label'], row.pop('label_words')) for row in rows}
    assert words == {('a', 'digestive system diseases'), ('b', None)}
    assert [SyntheticExample(**row) for row in rows] == some_examples()
    assert COLUMNS.with_label_words({}) is COLUMNS


@pytest.mark.parametrize('words', [{}, {'a|1': 'A, 1'}])
def test_attributes_stand_beside_the_label(tmp_path: pathlib.Path, words: dict[str | None, str]) -> None:
    columns = COLUMNS.with_attributes(('kind', 'stars')).with_label_words(words)
    examples = [dataclasses.replace(example, label=f'{example.label}|1') for example in some_examples()]
    path = tmp_path / 'shard.parquet'
    path.write_bytes(write.encode_shard(examples, columns))
    names, added = COLUMNS.schema.names, ['label_words'] * bool(words) + ['kind', 'stars']
    assert pq.read_schema(path).names == [*names[:2], *added, *names[2:]] == list(columns.meanings)
    rows = pq.read_table(path).to_pylist()
    found = {(row['label'], *(row.pop(name) for name in added)) for row in rows}
    assert found == {
        (f'{kind}|1', *([words.get(f'{kind}|1')] if words else []), kind, '1') for kind in ('a', 'b')
    }
    assert [SyntheticExample(**row) for row in rows] == examples
    assert COLUMNS.with_attributes(()) is COLUMNS


# --- Transforms ------------------------------------------------------------------


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


@pytest.mark.run
def test_reports_are_rendered_from_the_totals_and_the_plan(tmp_path: pathlib.Path) -> None:
    totals = CorpusTotals(examples=1, private_tokens=2, public_tokens=3, truncated=0)
    with pipeline() as root:
        plan = root | 'P' >> beam.Create([PLAN])
        _ = root | 'T' >> beam.Create([totals]) | write.WriteReports(plan, _render, str(tmp_path))
    assert (tmp_path / 'totals.txt').read_text() == f'{totals} {PLAN.batches_per_group}'


def _render(totals: CorpusTotals, plan: BatchPlan) -> write.Files:
    return {'totals.txt': f'{totals} {plan.batches_per_group}'.encode()}


REJECTED = [
    Rejection(reason=Reason.BLANK_TEXT, file='b.jsonl', ordinal=3, raw=b'{"text": " "}'),
    Rejection(reason=Reason.NOT_TEXT, file='a.jsonl', ordinal=10, raw=b'\xff\x00'),
    Rejection(reason=Reason.BLANK_TEXT, file='a.jsonl', ordinal=2, raw=b''),
]
SIZES = [(BatchId(group=0, index=1), 0), (BatchId(group=0, index=0), 1)]
LOSSES = [
    BatchLoss(batch_id=name, minus_log_alpha=(0.5,), log_beta=(0.25,), places=(0,), is_private=(True,))
    for name in ('0000-000001', '0000-000000')
]


@pytest.mark.run
@pytest.mark.parametrize('empty', [False, True])
def test_restricted_counts(tmp_path: pathlib.Path, empty: bool) -> None:
    with pipeline() as root:
        records = root | 'R' >> beam.Create([] if empty else ['x'] * 7)
        rejected = root | 'J' >> beam.Create([] if empty else REJECTED)
        sizes = root | 'B' >> beam.Create(SIZES)
        losses = root | 'L' >> beam.Create([] if empty else LOSSES)
        counted = root | 'S' >> beam.Create([] if empty else [('records_in_reference', 2)])
        left_out = root | 'O' >> beam.Create([] if empty else [3])
        plan = root | 'P' >> beam.Create([PLAN])
        _ = records | write.WriteRestricted(
            rejected, sizes, losses, counted, left_out, plan, _render_restricted, str(tmp_path)
        )
    reasons = {} if empty else {'blank_text': 2, 'not_text': 1}
    found = json.loads((tmp_path / 'restricted.json').read_text())
    by_batch = [] if empty else ['0000-000000', '0000-000001']
    groups, counts = list(PLAN.batches_per_group), {} if empty else {'records_in_reference': 2}
    assert found == [
        reasons,
        {'0000-000000': 1, '0000-000001': 0},
        0 if empty else 7,
        by_batch,
        counts,
        None if empty else 3,
        groups,
    ]


def _render_restricted(
    reasons: dict[str, int],
    sizes: dict[BatchId, int],
    records: int,
    losses: list[BatchLoss],
    counted: dict[str, int],
    left_out: int | None,
    plan: BatchPlan,
) -> write.Files:
    by_batch = [loss.batch_id for loss in losses]
    by_size = {str(batch_id): size for batch_id, size in sizes.items()}
    found = [reasons, by_size, records, by_batch, counted, left_out, list(plan.batches_per_group)]
    return {'restricted.json': json.dumps(found).encode()}


@pytest.mark.run
def test_rejected_rows_are_kept_in_order_and_byte_for_byte(tmp_path: pathlib.Path) -> None:
    with pipeline() as root:
        _ = root | beam.Create(REJECTED) | write.KeepRejected(str(tmp_path))
    rows = [json.loads(line) for line in (tmp_path / 'rejected.jsonl').read_text().splitlines()]
    assert [(row['file'], row['ordinal'], row['reason']) for row in rows] == [
        ('a.jsonl', 2, 'blank_text'), ('a.jsonl', 10, 'not_text'), ('b.jsonl', 3, 'blank_text')
    ]  # fmt: skip
    assert rows[1]['raw'].encode('latin-1') == b'\xff\x00'
