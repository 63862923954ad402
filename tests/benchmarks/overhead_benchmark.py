"""Overhead of the whole job over decoding the same batches and nothing else, each in a fresh process.

    python -m tests.benchmarks.overhead_benchmark --batches 64 --rounds 3

One side is the command as a user runs it: reading, planning, shuffles, files, reports. The other
imports, loads the same model and decodes the same batches, with the same key and so to the same
tokens, in a plain loop. `ratio` is of wall times from process start to process end, both with imports
and model. `over_loop` is the command's wall time, imports and all, over the bare loop's alone: it
falls with the work, since starting takes the same seconds. `decoding_ratio` is of decoding alone:
from the first finished batch to the last, over the loop's time for as many. Sides are interleaved,
and the figures are medians over rounds. Prints one JSON line.
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
from pipeline.config import JobConfig, read_config

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


def decode(folder: pathlib.Path) -> None:
    """The bare side: decodes the batches, and writes down when each was finished."""
    from models.privacy.randomness import RunKey
    from pipeline.run.settings import generator_settings

    settings = generator_settings(read_config(str(folder / 'config.toml'), {}))
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
    from pipeline import audit

    shutil.copy2(key, folder / KEY)
    _, batches = audit.form_batches(config, RunKey.read(folder / KEY))
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
    work_dir, output = pathlib.Path(config.resolved_work_dir), pathlib.Path(str(config.output))
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
    parser.add_argument('--bare', metavar='FOLDER', help='Decode the batches of a folder and nothing else.')
    args = parser.parse_args()
    if args.bare:
        decode(pathlib.Path(args.bare))
        return
    with tempfile.TemporaryDirectory() as folder:
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
