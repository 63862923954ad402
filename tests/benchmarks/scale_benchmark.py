"""Cost of a run at 10^5, 10^6 and 10^8 records: measured slopes, and the decoder's roofline.

    python -m tests.benchmarks.scale_benchmark measure --records 200000 > measured.jsonl
    python -m tests.benchmarks.scale_benchmark table measured.jsonl
    python -m tests.benchmarks.scale_benchmark stage group 100000 2

`measure` runs the main job's own transforms on one worker, and encodes rows and batches with
the coders that shuffle them; one JSON line each. `table` multiplies, and `stage` runs one stage
on several threads.
Decoding on accelerators is a lower bound and not a measurement: the time in which the
device could at best read weights and cache, or do the arithmetic, whichever takes longer.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from models import batching
from models.batch_plan import BatchPlan
from models.clustering.centers import ClusterSettings
from models.decoders.gemma.architectures import ARCHITECTURES
from models.decoders.transformer.architecture import Architecture
from models.privacy.randomness import RunKey
from models.records import Batch, BatchId, Record
from transforms import assign, cluster, durable, read

SHARDS = 8
BATCH_SIZE = 255
CHARACTERS = 240  # of a record: AG News has 236 on average
PROMPT_TOKENS = 160
BATCH_TOKENS = 500
EXAMPLE_TOKENS = 96
SIZES = (10**5, 10**6, 10**8)
_SUPERSCRIPTS = {10**5: '⁵', 10**6: '⁶', 10**8: '⁸'}
LABELS = ('a', 'b', 'c', 'd')
# Ten of the commonest words, drawn with made-up ones: TF-IDF knows some and not others.
_WORDS = ['the', 'of', 'and', 'in', 'to', 'a', 'was', 'is', 'for', 'on']


@dataclasses.dataclass(frozen=True)
class Device:
    """An accelerator, by its vendor's data sheet: bfloat16 without sparsity."""

    name: str
    flops_per_second: float
    bytes_per_second: float
    memory_bytes: float


DEVICES = (
    Device('NVIDIA L4', 121e12, 300e9, 24e9),
    Device('TPU v5e', 197e12, 819e9, 16e9),
    Device('NVIDIA H100', 989e12, 3350e9, 80e9),
)


# --- Measuring -------------------------------------------------------------------


def write_records(folder: pathlib.Path, records: int) -> None:
    generator = np.random.default_rng(0)
    alphabet = np.frombuffer(b'abcdefghijklmnopqrstuvwxyz', dtype=np.uint8)
    for shard in range(SHARDS):
        with open(folder / f'{shard}.jsonl', 'w') as file:
            for number in range(shard, records, SHARDS):
                letters = generator.choice(alphabet, CHARACTERS).tobytes().decode()
                words = [letters[i : i + 6] for i in range(0, CHARACTERS // 2, 6)]
                words += list(generator.choice(_WORDS, CHARACTERS // 8))
                text = ' '.join(words)[:CHARACTERS]
                row = {'id': number, 'text': text, 'label': LABELS[number % 4]}
                file.write(json.dumps(row) + '\n')


def job_of(stage: str, records: int, workers: int) -> dict[str, object]:
    """Runs one stage in this process; seconds, and bytes of its memory at most."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / durable.ERRORS_FOLDER).mkdir()
        write_records(folder, records)
        durable.write_key(name, RunKey.new())
        fields = read.RecordFields(text='text', label='label', record_id='id')
        rules = read.RecordRules(fields=fields, labels=LABELS)
        per_group = max(1, records // (BATCH_SIZE * len(LABELS)))
        plan = BatchPlan(
            labels=LABELS, batches_per_group=(per_group,) * 4, noisy_counts=None, contexts_rho=0.0
        )
        flags = ['--runner=FnApiRunner', f'--direct_num_workers={workers}']
        begin = time.perf_counter()
        with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
            found, _ = pipeline | 'Read' >> read.ReadRecords(str(folder / '*.jsonl'), rules)
            if stage == 'embed':
                found = found | beam.ParDo(cluster.EmbedRecords(ClusterSettings(), name))
                counted = found | beam.combiners.Count.Globally()
            else:
                batches = found | 'Assign' >> assign.AssignBatches(plan, name, BATCH_SIZE)
                sizes = batches | beam.Map(lambda batch: len(batch.contexts))
                counted = sizes | beam.CombineGlobally(sum)
            _ = counted | beam.Map(_expect, records)
        seconds = time.perf_counter() - begin
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        'benchmark': 'scale',
        'stage': stage,
        'records': records,
        'workers': workers,
        'seconds': round(seconds, 2),
        'cpu_seconds': round(usage.ru_utime + usage.ru_stime, 1),
        # Linux counts in KiB.
        'worker_rss_bytes': usage.ru_maxrss * 1024,
    }


def _expect(found: int, records: int) -> None:
    if found != records:
        raise RuntimeError(f'Expected {records} records at the end, got found={found}.')


def shuffled_bytes() -> dict[str, object]:
    """Bytes of a record in the two shuffles that carry texts, and of a synthetic example."""
    key = RunKey.new()
    plan = BatchPlan(labels=(None,), batches_per_group=(1,), noisy_counts=None, contexts_rho=0.0)
    records = [Record(text='x' * CHARACTERS, record_id=str(number)) for number in range(BATCH_SIZE)]
    rows = [(batching.record_hash(key, record), [record.text]) for record in records]
    row_coder = beam.coders.registry.get_coder(tuple[tuple[int, int], list[tuple[bytes, list[str]]]])
    batch = batching.form_batch(
        key, BatchId(group=0, index=0), rows, plan, unit='example', slots=BATCH_SIZE, k=1
    )
    return {
        'benchmark': 'scale',
        'stage': 'shuffle',
        'characters': CHARACTERS,
        'row_bytes': round(sum(len(row_coder.encode(((0, 0), [row]))) for row in rows) / len(rows), 1),
        'batch_bytes_per_record': round(
            len(beam.coders.registry.get_coder(Batch).encode(batch)) / len(rows), 1
        ),
    }


def measure(records: int) -> Iterator[dict[str, object]]:
    yield shuffled_bytes()
    for stage in ('embed', 'group'):
        # Two sizes, for the slope between them: starting up is not paid per record.
        for number in (records // 4, records):
            # A process of its own: peak memory does not go down again.
            command = [sys.executable, '-m', __spec__.name, 'stage', stage, str(number), '1']
            yield json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


# --- Multiplying -----------------------------------------------------------------


def decoding_seconds(architecture: Architecture, device: Device) -> float:
    """Least seconds in which a device decodes one batch: its prompts once, then token by token."""
    rows = BATCH_SIZE + 1
    length = PROMPT_TOKENS + EXAMPLE_TOKENS
    weights = 2 * architecture.num_parameters
    cache = length * architecture.cache_bytes_per_token(2)
    fitting = math.floor((0.9 * device.memory_bytes - weights) / cache)
    if fitting < 1:
        return math.inf
    passes = math.ceil(rows / fitting)
    arithmetic = 2 * architecture.num_parameters * rows / device.flops_per_second
    traffic = (passes * weights + rows * cache) / device.bytes_per_second
    # A new example begins with the prompts' cache, so they are read once for the batch.
    return PROMPT_TOKENS * arithmetic + BATCH_TOKENS * max(arithmetic, traffic)


def table(lines: list[dict]) -> str:
    """The Markdown table of docs, from the lines of `measure`."""
    seconds: dict[str, dict[int, float]] = {}
    for line in lines:
        if 'workers' in line:
            seconds.setdefault(line['stage'], {})[line['records']] = line['seconds']
    rate = {
        arm: (max(by_size) - min(by_size)) / (by_size[max(by_size)] - by_size[min(by_size)])
        for arm, by_size in seconds.items()
    }
    shuffle = next(line for line in lines if line['stage'] == 'shuffle')
    per_record = shuffle['row_bytes'] + shuffle['batch_bytes_per_record']
    rows: list[tuple[str, list[str]]] = [
        ('batches of 255', [f'{n // BATCH_SIZE:,}' for n in SIZES]),
        ('bytes through shuffles', [_bytes(n * per_record) for n in SIZES]),
        ('read, hash and group', [_hours(n / rate['group']) for n in SIZES]),
        ('read and embed (TF-IDF)', [_hours(n / rate['embed']) for n in SIZES]),
    ]
    for model in ('gemma2-2b', 'gemma3-4b'):
        for device in DEVICES:
            per_batch = decoding_seconds(ARCHITECTURES[model], device)
            hours = [_hours(n / BATCH_SIZE * per_batch) for n in SIZES]
            rows.append((f'{model} on {device.name}, at least', hours))
    head = '| | ' + ' | '.join(f'10{_SUPERSCRIPTS[n]} records' for n in SIZES) + ' |'
    body = [f'| {name} | ' + ' | '.join(cells) + ' |' for name, cells in rows]
    return '\n'.join([head, '| --- |' + ' --- |' * len(SIZES), *body])


def _hours(seconds: float) -> str:
    return f'{_plain(seconds)} s' if seconds < 600 else f'{_plain(seconds / 3600)} h'


def _bytes(number: float) -> str:
    return f'{_plain(number / 1e6)} MB' if number < 1e9 else f'{_plain(number / 1e9)} GB'


def _plain(number: float) -> str:
    """Two digits, never with an exponent."""
    if number < 10:
        return f'{number:.2g}'
    digits = 1 - math.floor(math.log10(number))
    return f'{round(number, digits):,.0f}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    commands = parser.add_subparsers(dest='command', required=True)
    command = commands.add_parser('measure')
    command.add_argument('--records', type=int, default=200_000)
    command = commands.add_parser('table')
    command.add_argument('measured', type=pathlib.Path)
    command = commands.add_parser('stage')
    command.add_argument('stage', choices=('embed', 'group'))
    command.add_argument('records', type=int)
    command.add_argument('workers', type=int)
    flags = parser.parse_args()
    if flags.command == 'measure':
        for line in measure(flags.records):
            print(json.dumps(line), flush=True)
    elif flags.command == 'stage':
        print(json.dumps(job_of(flags.stage, flags.records, flags.workers)))
    else:
        print(table([json.loads(line) for line in flags.measured.read_text().splitlines()]))


if __name__ == '__main__':
    main()
