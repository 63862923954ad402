"""Benchmark of the records' side: read, hash and group on one local process.

Writes short records as JSON lines in 8 shards, reads them back, assigns each to its
batch and forms the batches. Prints one JSON line. Run from the repository root:

    python -m tests.benchmarks.records_benchmark --records 1000000

Aim: a million records of 200 characters in at most 3 minutes and 4 GB on 2 cores.
"""

import argparse
import json
import pathlib
import resource
import tempfile
import time

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import util

from models.batch_plan import BatchPlan
from models.privacy.params import Unit
from models.privacy.randomness import RunKey
from transforms import assign, durable, read

SHARDS = 8
CHARACTERS = 200
BATCH_SIZE = 255
LABELS = tuple('abcd')


def write_records(folder: pathlib.Path, records: int, unit: Unit) -> None:
    """Writes random texts, with five records to a user under the `user` unit."""
    generator = np.random.default_rng(0)
    alphabet = np.frombuffer(b'abcdefghijklmnopqrstuvwxyz     ', dtype='u1')
    for shard in range(SHARDS):
        with (folder / f'records-{shard}.jsonl').open('w') as file:
            for number in range(shard, records, SHARDS):
                text = generator.choice(alphabet, CHARACTERS).tobytes().decode()
                row = {'text': text, 'label': LABELS[number % 5 % 4]}
                file.write(json.dumps(row | {'unit': number // 5} if unit == 'user' else row) + '\n')


def measure(records: int, unit: Unit, k: int) -> dict[str, object]:
    """Runs the transforms once; seconds and bytes of the whole process."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_records(folder, records, unit)
        durable.write_key(name, RunKey.new())
        fields = read.RecordFields(text='text', label='label', unit='unit' if unit == 'user' else None)
        rules = read.RecordRules(fields=fields, labels=LABELS, unit=unit)
        per_group = max(1, records // (BATCH_SIZE * k * len(LABELS)))
        plan = BatchPlan(
            labels=LABELS, batches_per_group=(per_group,) * 4, noisy_counts=None, contexts_rho=0.0
        )
        begin = time.perf_counter()
        with beam.Pipeline(options=PipelineOptions(['--runner=FnApiRunner'])) as pipeline:
            found, _ = pipeline | 'Read' >> read.ReadRecords(str(folder / '*.jsonl'), rules)
            batches = found | 'Assign' >> assign.AssignBatches(plan, name, BATCH_SIZE, unit, k)
            texts = batches | beam.Map(lambda batch: sum(len(context.texts) for context in batch.contexts))
            totals = texts | beam.CombineGlobally(sum)
            if k == 1 and unit == 'example':
                util.assert_that(totals, util.equal_to([records]))
        seconds = time.perf_counter() - begin
    # Linux counts in KiB.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        'benchmark': 'records',
        'unit': unit,
        'examples_per_context': k,
        'records': records,
        'seconds': round(seconds, 1),
        'records_per_second': round(records / seconds),
        'peak_rss_bytes': peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    parser.add_argument('--records', type=int, default=1_000_000)
    parser.add_argument('--unit', choices=('example', 'user'), default='example')
    parser.add_argument('--examples_per_context', type=int, default=1)
    flags = parser.parse_args()
    print(json.dumps(measure(flags.records, flags.unit, flags.examples_per_context)))


if __name__ == '__main__':
    main()
