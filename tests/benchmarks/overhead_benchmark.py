"""Overhead of the whole job over decoding the same batches and nothing else, each in a fresh process.

    python -m tests.benchmarks.overhead_benchmark --batches 64 --rounds 3
    python -m tests.benchmarks.overhead_benchmark --method fine-tune --steps 20

One side is the command as a user runs it: reading, planning, shuffles, files, reports. The other
imports, loads the same model and decodes the same batches, with the same key and so to the same
tokens, in a plain loop. `ratio` is of wall times from process start to process end, both with imports
and model. `over_loop` is the command's wall time, imports and all, over the bare loop's alone: it
falls with the work, since starting takes the same seconds. `decoding_ratio` is of decoding alone:
from the first finished batch to the last, over the loop's time for as many. Sides are interleaved,
and the figures are medians over rounds. Prints one JSON line.

With `--method fine-tune` the other side trains on the same units and samples the same texts, in plain
loops, to the same adapter. There it is `ratio` alone that says what the job adds.
"""

import argparse
import json
import os
import pathlib
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from launch.demo.records import demo_records
from pipeline import methods
from pipeline.asked.config import read_config
from pipeline.settings.job_config import JobConfig
from transforms import run_files

KEY = 'run.key'
TIMES = 'times.json'


def write_config(folder: pathlib.Path, *, batches: int, contexts: int, tokens: int) -> JobConfig:
    """Writes records for `batches` of about `contexts` each, and the run's settings."""
    rows = demo_records(batches * contexts)
    with (folder / 'records.jsonl').open('w', encoding='utf-8') as file:
        file.writelines(json.dumps(row) + '\n' for row in rows)
    settings = {
        'input': str(folder / 'records.jsonl'), 'output': str(folder / 'corpus'), 'run_id': 'overhead',
        'batches_per_label': batches, 'batch_size': contexts, 'aggregate': 'mean',
        'max_private_tokens': tokens,
        'max_example_tokens': tokens, 'max_prompt_tokens': 128, 'delta': 1e-6,
    }  # fmt: skip
    lines = (f'{name} = {json.dumps(value)}' for name, value in settings.items())
    (folder / 'config.toml').write_text('\n'.join(lines) + '\n', encoding='utf-8')
    return read_config(str(folder / 'config.toml'), {})


def write_tuning_config(folder: pathlib.Path, *, steps: int, texts: int) -> JobConfig:
    """Writes records, and the settings of a run that fine-tunes on them and samples `texts` of each label."""
    from launch.demo.records import LABELS

    rows = list(demo_records(5_000))
    with (folder / 'records.jsonl').open('w', encoding='utf-8') as file:
        file.writelines(json.dumps(row) + '\n' for row in rows)
    settings = {
        'method': 'fine-tune', 'input': str(folder / 'records.jsonl'), 'output': str(folder / 'corpus'),
        'run_id': 'overhead', 'label_field': 'label', 'labels': list(LABELS), 'records': len(rows),
        'epsilon': 8.0, 'delta': 1e-5, 'tuning_steps': steps, 'expected_batch_size': 64,
        'examples_per_label': texts, 'max_prompt_tokens': 48, 'max_example_tokens': 64,
    }  # fmt: skip
    lines = (f'{name} = {json.dumps(value)}' for name, value in settings.items())
    (folder / 'config.toml').write_text('\n'.join(lines) + '\n', encoding='utf-8')
    return read_config(str(folder / 'config.toml'), {})


def fine_tune(folder: pathlib.Path) -> None:
    """The bare side of fine-tuning: trains, samples every batch, and writes down what came out."""
    from models.finetuning import adapter, sample, train, units
    from models.privacy.randomness import RunKey
    from models.records import BatchId
    from pipeline import methods

    config = read_config(str(folder / 'config.toml'), {})
    settings = methods.of(config).prepare(methods.solve(config, launch=True))
    key = RunKey.read(folder / KEY)
    rows = pickle.loads((folder / 'units.pickle').read_bytes())
    factors = train.Trainer(settings).train(units.in_order(rows), key, str(folder / 'bare'))
    sampler = sample.TextSampler(settings, factors)
    size = settings.sampled_together
    batches = [
        sample.PlannedTexts(BatchId(group=group, index=first // size), label, min(size, texts - first))
        for group, (label, texts) in enumerate(zip(settings.labels, settings.texts_of_labels, strict=True))
        for first in range(0, texts, size)
    ]
    tokens = sum(example.tokens for found in sampler.sample(batches, key) for example in found)
    written = {'adapter': adapter.digest(adapter.to_bytes(factors)), 'tokens': tokens}
    (folder / TIMES).write_text(json.dumps(written))
    shutil.rmtree(folder / 'bare')


def form_units(folder: pathlib.Path, config: JobConfig, key: pathlib.Path) -> None:
    """Forms the run's units for the bare side."""
    from models import batching
    from models.privacy.randomness import RunKey
    from pipeline.run.record_rules import record_rules
    from transforms.read import read_piece, split_file

    shutil.copy2(key, folder / KEY)
    run_key = RunKey.read(folder / KEY)
    rows = []
    rules = record_rules(config.input, config.budget.unit)
    for piece in split_file(str(config.input.input)):
        for record in read_piece(piece, rules):
            rows.append((batching.record_hash(run_key, record), record.label, [record.text]))
    (folder / 'units.pickle').write_bytes(pickle.dumps(rows))


def measure_tuning(folder: pathlib.Path, *, steps: int, texts: int, rounds: int) -> dict[str, Any]:
    """Medians of both sides, of fine-tuning."""
    config = write_tuning_config(folder, steps=steps, texts=texts)
    work_dir, output = pathlib.Path(config.output.curator), pathlib.Path(str(config.output.output))
    whole, bare = [], []
    for number in range(rounds):
        if number:
            shutil.rmtree(output)
            shutil.rmtree(work_dir / run_files.TUNING_FOLDER)
            for path in (*work_dir.glob('batches/*'), *work_dir.glob('restricted*')):
                path.unlink()
            (work_dir / run_files.ADAPTER_TENSORS).unlink()
        command = ['generate', '--config', str(folder / 'config.toml'), '--quiet']
        whole.append(_seconds(['-m', 'pipeline.main', *command]))
        if not number:
            form_units(folder, config, work_dir / KEY)
        bare.append(_seconds(['-m', 'tests.benchmarks.overhead_benchmark', '--bare-tuning', str(folder)]))
        found = json.loads((folder / TIMES).read_text())
        released = json.loads((output / 'privacy_report.json').read_text())['corpus']
        card = json.loads((output / run_files.ADAPTER_FOLDER / run_files.ADAPTER_CARD).read_text())
        if (found['adapter'], found['tokens']) != (card['factors'], released['sampled_tokens']):
            raise RuntimeError(f'Expected equal work, got {found} and {released}.')
    return {
        'method': 'fine-tune',
        'ratio': round(statistics.median(map(float.__truediv__, whole, bare)), 3),
        'whole_seconds': round(statistics.median(whole), 2),
        'bare_seconds': round(statistics.median(bare), 2),
        'steps': steps,
        'texts': released['examples'],
        'tokens': released['sampled_tokens'],
        'cores': os.cpu_count(),
        'rounds': rounds,
    }


def decode(folder: pathlib.Path) -> None:
    """The bare side: decodes the batches, and writes down when each was finished."""
    from models.privacy.randomness import RunKey
    from pipeline.methods.predict.graph import generator_settings

    settings = generator_settings(methods.solve(read_config(str(folder / 'config.toml'), {}), launch=True))
    batches = pickle.loads((folder / 'batches.pickle').read_bytes())
    key = RunKey.read(folder / KEY)
    generator = settings.build()
    finished, tokens = [], 0
    for batch in batches:
        examples = generator.generate(batch, key).examples
        tokens += sum(example.private_tokens + example.public_tokens for example in examples)
        finished.append(time.time())
    (folder / TIMES).write_text(json.dumps({'finished': finished, 'tokens': tokens}))


def form_batches(folder: pathlib.Path, config: JobConfig, key: pathlib.Path) -> None:
    """Forms the run's batches, in its order, for the bare side."""
    from models.privacy.randomness import RunKey
    from pipeline import methods
    from pipeline.methods import canary_audit
    from pipeline.methods.predict import audit

    shutil.copy2(key, folder / KEY)
    run = methods.solve(config)
    _, batches = audit.form_batches(run, RunKey.read(folder / KEY), canary_audit.records_of(run))
    (folder / 'batches.pickle').write_bytes(pickle.dumps(batches))


def _seconds(arguments: list[str]) -> float:
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], check=False, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(
            f'Expected the command to succeed, got code={done.returncode}: {done.stderr[-2000:]}'
        )
    return seconds


def measure(folder: pathlib.Path, *, batches: int, contexts: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Medians of both sides."""
    config = write_config(folder, batches=batches, contexts=contexts, tokens=tokens)
    work_dir, output = pathlib.Path(config.output.curator), pathlib.Path(str(config.output.output))
    whole, bare, whole_decoding, bare_decoding = [], [], [], []
    for number in range(rounds):
        if number:
            # Another run of the same key: the same tokens.
            shutil.rmtree(output)
            for path in (*work_dir.glob('batches/*'), *work_dir.glob('restricted*')):
                path.unlink()
        whole.append(
            _seconds(['-m', 'pipeline.main', 'generate', '--config', str(folder / 'config.toml'), '--quiet'])
        )
        if not number:
            form_batches(folder, config, work_dir / KEY)
        times = sorted(path.stat().st_mtime for path in work_dir.glob('batches/*.json'))
        whole_decoding.append(times[-1] - times[0])
        bare.append(_seconds(['-m', 'tests.benchmarks.overhead_benchmark', '--bare', str(folder)]))
        found = json.loads((folder / TIMES).read_text())
        bare_decoding.append(found['finished'][-1] - found['finished'][0])
        report = json.loads((output / 'privacy_report.json').read_text())['corpus']
        released = report['private_tokens'] + report['public_tokens']
        if found['tokens'] != released or {len(times), len(found['finished'])} != {batches}:
            raise RuntimeError(f'Expected equal work, got tokens={found["tokens"]} and {released}.')
    return {
        'ratio': round(statistics.median(map(float.__truediv__, whole, bare)), 3),
        'over_loop': round(statistics.median(map(float.__truediv__, whole, bare_decoding)), 3),
        'decoding_ratio': round(statistics.median(map(float.__truediv__, whole_decoding, bare_decoding)), 3),
        'whole_seconds': round(statistics.median(whole), 2),
        'bare_seconds': round(statistics.median(bare), 2),
        'whole_decoding_seconds': round(statistics.median(whole_decoding), 2),
        'bare_decoding_seconds': round(statistics.median(bare_decoding), 2),
        'batches': batches,
        'contexts': contexts,
        'tokens': released,
        'cores': os.cpu_count(),
        'rounds': rounds,
    }


def main() -> None:
    """Measures and prints the line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--batches', type=int, default=64)
    parser.add_argument('--contexts', type=int, default=64)
    parser.add_argument('--tokens', type=int, default=64)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--method', choices=('predict', 'fine-tune'), default='predict')
    parser.add_argument('--steps', type=int, default=20, help='of fine-tuning')
    parser.add_argument('--texts', type=int, default=64, help='of each label, of fine-tuning')
    parser.add_argument('--bare', metavar='FOLDER', help='Decode the batches of a folder and nothing else.')
    parser.add_argument('--bare-tuning', metavar='FOLDER', help='Train on the units of a folder, and sample.')
    args = parser.parse_args()
    if args.bare:
        decode(pathlib.Path(args.bare))
        return
    if args.bare_tuning:
        fine_tune(pathlib.Path(args.bare_tuning))
        return
    with tempfile.TemporaryDirectory() as folder:
        if args.method == 'fine-tune':
            place = pathlib.Path(folder)
            print(json.dumps(measure_tuning(place, steps=args.steps, texts=args.texts, rounds=args.rounds)))
            return
        found = measure(
            pathlib.Path(folder),
            batches=args.batches,
            contexts=args.contexts,
            tokens=args.tokens,
            rounds=args.rounds,
        )
    print(json.dumps(found))


if __name__ == '__main__':
    main()
