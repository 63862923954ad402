"""A method is one registration: its columns, price and facts go through the whole graph."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.batching import BatchPlan
from models.privacy import accounting
from models.privacy.facts import Facts, MethodFacts, Reproduction, RhoStage
from models.privacy.report import BatchFacts
from models.records import BatchId
from pipeline import methods, plan
from pipeline.config import JobConfig
from pipeline.ledger.ledger import Ledger
from pipeline.run import start
from tests.samples import needs_model
from transforms import run_files, write

RHO = 0.125


@dataclasses.dataclass(frozen=True, kw_only=True)
class Motto:
    """A row of the constant method."""

    batch_id: str
    motto: str
    letters: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mottoes:
    """Totals of its corpus."""

    mottoes: int
    letters: int


def _count(rows: Sequence[Motto]) -> Mottoes:
    return Mottoes(mottoes=len(rows), letters=sum(row.letters for row in rows))


@dataclasses.dataclass(eq=False)
class SayMotto(beam.PTransform):
    """Says the same for every planned batch, whatever the records are."""

    motto: str
    plan: beam.PCollection[BatchPlan]

    @beam.typehints.no_annotations
    def expand(self, records: beam.PCollection) -> tuple[beam.PCollection, ...]:
        batches = self.plan | 'Batches' >> beam.FlatMap(lambda plan: plan.batch_ids())
        rows = batches | 'Say' >> beam.Map(
            lambda batch: Motto(batch_id=str(batch), motto=self.motto, letters=len(self.motto))
        )
        nothing = self.plan.pipeline | 'NoLosses' >> beam.Create([], reshuffle=False)
        sizes = batches | 'Size' >> beam.Map(lambda batch: (batch, 0)).with_output_types(tuple[BatchId, int])
        return rows, sizes, nothing, nothing


class Constant(methods.Method):
    """A stand-in that needs no model."""

    name = 'constant'
    summary = 'one motto for each batch'
    panels = ('Privacy',)

    def check(self, config: JobConfig) -> None:
        if config.shards > 100:
            raise ValueError(f'Expected shards <= 100, got shards={config.shards}. Give fewer.')

    def has_price_in_advance(self, config: JobConfig) -> bool:
        return True

    def cost(self, config: JobConfig) -> Mapping[str, accounting.DpEvent]:
        return {'mottoes': accounting.ZCDpEvent(rho=RHO)}

    def facts(self, config: JobConfig, prepared: Any) -> MethodFacts:
        stage = RhoStage(name='Mottoes', rho=RHO, explanation='Saying them.', formula='1/8', numbers='1/8')
        cost = Reproduction(cost='mottoes', settings=(f'mottoes = {RHO}  # all of them',))
        return MethodFacts(
            unit_nouns=('record', 'records'),
            unit_of_privacy='One record.',
            mechanism_output='All mottoes',
            accounting='zCDP.',
            settings={'motto': 'Festina lente', 'unit': config.unit},
            contexts=Facts(),
            parts=(Facts(stages=(stage,), reproduction=cost),),
            decoding=Facts(assumptions_enforced=('A motto does not depend on a record.',)),
            rho_per_private_token=0.0,
            reproduction=cost,
        )

    def prepare(self, config: JobConfig) -> str:
        return 'Festina lente'

    def columns(self, config: JobConfig) -> write.Columns:
        return write.Columns(
            row=Motto,
            schema=pa.schema([
                pa.field('motto', pa.string(), nullable=False), pa.field('letters', pa.int16()),
                pa.field('batch_id', pa.string()),
            ]),
            order=('batch_id',),
            totals=Mottoes,
            count=_count,
            meanings={},
        )  # fmt: skip

    def transform(self, config: JobConfig, prepared: Any, plan: Any) -> beam.PTransform:
        return SayMotto(prepared, plan)

    def of_batches(self, config: JobConfig, facts: Sequence[BatchFacts]) -> None:
        assert facts == []

    def pages(self, config: JobConfig, prepared: Any, privacy_report: Any) -> Mapping[str, bytes]:
        return {'MOTTO.md': privacy_report.guarantee.encode()}


@contextlib.contextmanager
def registered(method: methods.Method) -> Iterator[None]:
    methods.register(method)
    try:
        yield
    finally:
        del methods.METHODS[method.name]


def config(folder: pathlib.Path, **settings: Any) -> JobConfig:
    given = {
        'method': 'constant', 'input': str(folder / 'in.jsonl'), 'output': str(folder / 'out'),
        'delta': 1e-3, 'aggregate': 'mean', 'max_private_tokens': 8, 'batch_size': 8,
        'batches_per_label': 3, 'shards': 2,
    }  # fmt: skip
    return JobConfig(**(given | settings))


@pytest.fixture
def with_records(tmp_path: pathlib.Path) -> pathlib.Path:
    rows = ''.join(json.dumps({'text': f'Record {number}.'}) + '\n' for number in range(9))
    (tmp_path / 'in.jsonl').write_text(rows, encoding='utf-8')
    return tmp_path


@needs_model
@pytest.mark.run
def test_a_method_brings_its_columns_facts_and_price(with_records: pathlib.Path) -> None:
    ledger = Ledger.create(str(with_records / 'ledger.db'))
    ledger.add_dataset('mottoes', unit='example', delta=1e-3, rho=1.0)
    with registered(Constant()):
        run = config(with_records, dataset='mottoes', ledger=str(with_records / 'ledger.db'))
        assert plan.plan_run(run).rho_total == RHO
        start.run(run, [])
    output = with_records / 'out'
    # Columns
    tables = [pq.read_table(path) for path in sorted((output / run_files.DATA_FOLDER).iterdir())]
    assert len(tables) == 2 and {tuple(table.column_names) for table in tables} == {
        ('motto', 'letters', 'batch_id')
    }
    rows = [row for table in tables for row in table.to_pylist()]
    assert rows == [
        {'motto': 'Festina lente', 'letters': 13, 'batch_id': f'0000-00000{index}'} for index in range(3)
    ]
    # Facts
    report = json.loads((output / run_files.REPORT).read_text())
    assert report['corpus'] == {'mottoes': 3, 'letters': 39}
    assert report['stages'][0]['name'] == 'Mottoes' and report['rho_total'] == RHO
    assert report['mechanism'] == {'motto': 'Festina lente', 'unit': 'example'}
    assert 'A motto does not depend on a record.' in report['assumptions_enforced']
    assert {path.name for path in output.iterdir()} == {'data', 'MOTTO.md', run_files.REPORT}
    # Price
    (charged,) = ledger.account('mottoes').runs
    assert charged.cost.rho_by_stage == {'centers': 0.0, 'noisy_counts': 0.0, 'mottoes': RHO}
    restricted = json.loads((with_records / 'out.curator' / run_files.RESTRICTED_REPORT).read_text())
    assert restricted['records_read'] == 9 and restricted['losses'] is None


def test_an_unknown_method_is_refused_and_a_known_one_checks_itself(tmp_path: pathlib.Path) -> None:
    with pytest.raises(
        ValueError, match="Expected 'predict' or 'fine-tune' for method, got method='constant'"
    ):
        config(tmp_path)
    with registered(Constant()):
        with pytest.raises(ValueError, match='shards <= 100'):
            config(tmp_path, shards=101)
        with pytest.raises(ValueError, match='is taken'):
            methods.register(Constant())


def test_the_price_of_private_prediction_is_that_of_its_mechanism() -> None:
    predict = JobConfig(
        delta=1e-6,
        aggregate='mean',
        max_private_tokens=300,
        clusters=2,
        threshold=0.5,
        threshold_noise_scale=0.2,
    )
    assert plan.run_cost(predict).rho_by_stage == {
        'centers': 0.0,
        'noisy_counts': 0.005,
        'generation': accounting.generation_rho(predict.params()),
    }
