"""Embedding, against a slow twin."""

import dataclasses

import apache_beam as beam
import pytest
from apache_beam.testing import util

from models.records import Record
from tests.samples import pipeline
from tests.transforms.cluster.letters import (
    CENTERS,
    LETTERS,
    LetterEmbedder,
    calls_in,
    settings_in,
    slow_nearest,
    some_records,
)
from transforms import cluster


def test_embedding_finds_the_nearest_of_all_centres(work_dir: str) -> None:
    records = some_records()
    embedder = LetterEmbedder(f'{work_dir}/calls')
    found = cluster.embed_records(records, embedder.embed, CENTERS, None)
    for before, after in zip(records, found, strict=True):
        (vector,) = embedder.embed([before.text])
        assert after.embedding == vector.astype('<f4').tobytes()
        assert after.cluster == slow_nearest(before.text)
        assert dataclasses.replace(after, embedding=None, cluster=None) == before
    assert len({record.cluster for record in found}) >= 5
    # In any company, a record's row is its own.
    assert [cluster.embed_records([record], embedder.embed, CENTERS, None)[0] for record in records] == found
    assert cluster.embed_records(found[::-1], embedder.embed, CENTERS, None) == found[::-1]


def test_a_text_is_cut_before_it_is_embedded_and_stays_whole(work_dir: str) -> None:
    embedder = LetterEmbedder(f'{work_dir}/calls')
    (found,) = cluster.embed_records([Record(text='q' + 'p' * 9)], embedder.embed, CENTERS, 1)
    assert found.cluster == slow_nearest('q') != slow_nearest('q' + 'p' * 9)
    assert found.text == 'q' + 'p' * 9


@pytest.mark.run
def test_the_records_of_a_full_bundle_keep_their_times_and_windows(work_dir: str) -> None:
    records = [Record(text=LETTERS[second % 5] * (1 + second % 3)) for second in range(600)]

    def outcome(
        record: Record, time: object = beam.DoFn.TimestampParam, window: object = beam.DoFn.WindowParam
    ) -> tuple[str, int | None, int, tuple[int, int]]:
        return record.text, record.cluster, int(time), (int(window.start), int(window.end))

    expected = [
        (record.text, slow_nearest(record.text, kept), second, (second // 10 * 10, second // 10 * 10 + 10))
        for kept in [range(CENTERS.count)]
        for second, record in enumerate(records)
    ]
    with pipeline() as p:
        found = (
            p
            | beam.Create(list(enumerate(records)), reshuffle=False)
            | beam.MapTuple(lambda second, record: beam.window.TimestampedValue(record, second))
            | beam.WindowInto(beam.window.FixedWindows(10))
            | cluster.EmbedRecords(settings_in(work_dir), work_dir)
            | beam.Map(outcome)
        )
        util.assert_that(found, util.equal_to(expected))
    assert sorted(calls_in(work_dir)[1]) == [88, 256, 256]
