"""Files to records and rejections, as a transform."""

import io
import pathlib

import apache_beam as beam
import hypothesis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam import coders
from apache_beam.testing import util
from hypothesis import strategies as st

from models.records import Record
from tests.transforms.read.samples import LABELLED, PACK, TEXT
from transforms import read
from transforms.read import Reason, files
from transforms.read.records import RecordCoder

TEXTS = st.text(st.characters(exclude_categories=['Cs']), max_size=5)

RECORDS = st.builds(
    Record,
    text=TEXTS,
    label=st.none() | TEXTS,
    unit=st.none() | TEXTS,
    record_id=st.none() | TEXTS,
    embedding=st.none() | st.binary(max_size=9),
    cluster=st.none() | st.integers(0, 2**31 - 1),
)


@pytest.mark.first
def test_an_error_of_the_filesystem_reaches_the_runner(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, 'Input/output error')

    monkeypatch.setattr(files, 'open_file', lambda path: Failing(bytes(1_000)))
    for name in ('a.jsonl.bz2', 'a.csv', 'a.parquet'):
        with pytest.raises(OSError, match='Input/output error'):
            list(read.read_piece((name, 0), TEXT))


@pytest.mark.first
@hypothesis.given(record=RECORDS)
def test_a_record_crosses_a_shuffle_whole(record: Record) -> None:
    coder = coders.registry.get_coder(Record)
    assert isinstance(coder, RecordCoder) and coder.is_deterministic()
    assert coder.decode(coder.encode(record)) == record


@pytest.mark.first
def test_a_record_shows_neither_embedding_nor_cluster() -> None:
    shown = repr(Record(text='secret', embedding=b'bytes', cluster=7))
    assert shown == 'Record()'


@pytest.mark.first
@pytest.mark.run
def test_the_transform_reads_all_files_into_records_and_rejections(tmp_path: pathlib.Path) -> None:
    (tmp_path / 'a.csv').write_bytes(b'label,text\nb,from csv\nc,x\n')
    (tmp_path / 'b.jsonl.zst').write_bytes(PACK['.zst'](b'{"text": "from json", "label": 1}\n{"text": ""}\n'))
    pq.write_table(
        pa.table({'text': ['from parquet', None], 'label': [True, True]}),
        tmp_path / 'c.parquet',
        row_group_size=1,
    )
    with beam.Pipeline('FnApiRunner') as pipeline:
        records, rejected = pipeline | read.ReadRecords(str(tmp_path / '*'), LABELLED)
        assert records.element_type is Record
        util.assert_that(
            records,
            util.equal_to(
                [
                    Record(text='from csv', label='b'),
                    Record(text='from json', label='1'),
                    Record(text='from parquet', label='true'),
                ]
            ),
        )
        where = rejected | beam.Map(lambda one: (one.reason, one.file, one.ordinal))
        expected = [
            (Reason.UNDECLARED_LABEL, 'a.csv', 1),
            (Reason.BLANK_TEXT, 'b.jsonl.zst', 1),
            (Reason.MISSING_FIELD, 'c.parquet', 0),
        ]
        util.assert_that(where, util.equal_to(expected), label='Rejected')


@pytest.mark.first
def test_the_transform_checks_the_input_when_the_pipeline_is_built() -> None:
    with pytest.raises(FileNotFoundError):
        beam.Pipeline('FnApiRunner') | read.ReadRecords('no/such/*.csv', TEXT)
