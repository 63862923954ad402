"""The job on real records with the bundled model: what comes out, and what it takes.

    python -m tests.benchmarks.real_records_benchmark agnews --work DIR
    python -m tests.benchmarks.real_records_benchmark agnews-sparse-vector --work DIR
    python -m tests.benchmarks.real_records_benchmark wikimovies --work DIR

Runs the command line as a user would, in a process of its own, and prints one JSON
line: examples, tokens, share of public tokens, seconds, peak memory, the share of
JSON records that parse and have the schema's fields, and the first five complete
examples as they are. The records are read from ../shared/data.
"""

import argparse
import csv
import gzip
import itertools
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
from typing import Any

from pyarrow import dataset

DATA = pathlib.Path(__file__).parents[3] / 'shared' / 'data'
FIELDS = ('title', 'year', 'cast', 'genres', 'href', 'extract')
SCHEMA = (
    '{"title": "str", "year": "int", "cast": ["str"], "genres": ["str"], "href": "str", "extract": "str"}'
)
COMMON = ['--batch-size', '64', '--clip-bound', '10', '--temperature', '2', '--epsilon', '10']
SPARSE_VECTOR = ['--threshold', '0.3', '--threshold-noise-scale', '0.1']
JSON_SPARSE_VECTOR = ['--threshold', '0.9', '--threshold-noise-scale', '0.2']


def agnews(folder: pathlib.Path, limit: int) -> list[str]:
    """Writes the first rows of the training file, and gives the flags that read them."""
    with open(DATA / 'agnews' / 'train_head.csv', newline='', encoding='utf-8') as file:
        rows = list(itertools.islice(csv.reader(file), limit))
    with open(folder / 'agnews.csv', 'w', newline='', encoding='utf-8') as file:
        csv.writer(file).writerows(rows)
    return [
        '--input', str(folder / 'agnews.csv'), '--text-field', '2', '--label-field', '0',
        '--labels', '1=World,2=Sports,3=Business,4=Technology', '--records', str(len(rows)),
        '--max-prompt-tokens', '128', '--max-example-tokens', '80', *COMMON,
    ]  # fmt: skip


def wikimovies(folder: pathlib.Path, limit: int) -> list[str]:
    """Writes movies with all six fields as JSONL, and gives the flags that read them."""
    rows = []
    for path in sorted((DATA / 'wikimovies').glob('movies-*.json.gz')):
        for movie in json.loads(gzip.decompress(path.read_bytes())):
            if all(movie.get(field) for field in FIELDS):
                record = json.dumps({field: movie[field] for field in FIELDS}, ensure_ascii=False)
                rows.append(json.dumps({'text': record}, ensure_ascii=False))
    chosen = rows[:: max(1, len(rows) // limit)][:limit]
    (folder / 'movies.jsonl').write_text('\n'.join(chosen) + '\n', encoding='utf-8')
    (folder / 'schema.txt').write_text(SCHEMA + '\n', encoding='utf-8')
    return [
        '--input', str(folder / 'movies.jsonl'), '--prompt', 'pretrained-json',
        '--schema', str(folder / 'schema.txt'), '--records', str(limit),
        '--max-prompt-tokens', '256', '--max-example-tokens', '192', *COMMON, *JSON_SPARSE_VECTOR,
    ]  # fmt: skip


def has_schema(text: str) -> tuple[bool, bool]:
    """Whether a text parses as JSON, and whether it is a record of the schema's fields and types."""
    try:
        record = json.loads(text)
    except ValueError:
        return False, False
    kinds = {'title': str, 'year': int, 'cast': list, 'genres': list, 'href': str, 'extract': str}
    valid = isinstance(record, dict) and set(record) == set(kinds)
    return True, valid and all(isinstance(record[name], kind) for name, kind in kinds.items())


def run(name: str, folder: pathlib.Path, limit: int, extra: list[str]) -> dict[str, Any]:
    """Runs one job and measures it from outside."""
    folder.mkdir(parents=True, exist_ok=True)
    if name == 'wikimovies':
        flags = wikimovies(folder, limit)
    else:
        flags = agnews(folder, limit) + (SPARSE_VECTOR if name == 'agnews-sparse-vector' else [])
    output = folder / name
    command = [sys.executable, '-m', 'pipeline.main', 'generate', *flags, '--output', str(output), *extra]
    started = time.monotonic()
    subprocess.run([*command, '--quiet'], check=True, env=os.environ)
    seconds = time.monotonic() - started
    report = json.loads((output / 'privacy_report.json').read_text())
    rows = dataset.dataset(output / 'data', format='parquet').to_table().to_pylist()
    totals = report['corpus']
    tokens = totals['private_tokens'] + totals['public_tokens']
    result = {
        'name': name,
        'epsilon': report['epsilon'],
        'delta': report['delta'],
        'max_private_tokens': report['mechanism']['max_private_tokens'],
        'batches': sum(group['batches'] for group in report['plan']),
        **totals,
        'public_share': totals['public_tokens'] / tokens,
        'seconds': round(seconds, 1),
        'tokens_per_second': round(tokens / seconds, 1),
        'peak_gigabytes': round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, 2),
    }
    complete = [row for row in rows if not row['truncated'] and row['text']]
    if name == 'wikimovies':
        checks = [has_schema(row['text']) for row in complete] or [(False, False)]
        result['parses'] = sum(parses for parses, _ in checks) / len(checks)
        result['validates'] = sum(valid for _, valid in checks) / len(checks)
    result['samples'] = [
        {'label': row['label'], 'text': row['text']} for row in complete[:: max(1, len(complete) // 5)][:5]
    ]
    return result


def main() -> None:
    """Prints one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('name', choices=['agnews', 'agnews-sparse-vector', 'wikimovies'])
    parser.add_argument('--work', type=pathlib.Path, required=True, help='empty folder for input and output')
    parser.add_argument('--limit', type=int, default=10_429, help='records to take, spread over the movies')
    args, extra = parser.parse_known_args()
    print(json.dumps(run(args.name, args.work, args.limit, extra), ensure_ascii=False))


if __name__ == '__main__':
    main()
