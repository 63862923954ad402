"""The job on real records with a real model: what comes out, what it is worth, and what it takes.

    python -m tests.benchmarks.real_records_benchmark agnews difference --work DIR

Runs the command line as a user would, in a process of its own, and prints one JSON line: epsilon,
examples, tokens, seconds, peak memory, the accuracy on held-out real records of TF-IDF with logistic
regression that was trained on the corpus, and the first complete example of each label as it is. The
records are read from ../shared/data.

Arms: `public` is the job without a record, so the public prompt alone; `mean` has the clip bound and the
temperature of CL 4.1 and PP's top K; `difference` is this project's own; `-clusters` groups alike records.
All may cost epsilon = 3. `real` trains the classifier on the records themselves, for comparison.
"""

import argparse
import collections
import csv
import dataclasses
import itertools
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from pyarrow import dataset

DATA = pathlib.Path(__file__).parents[3] / 'shared' / 'data'
Record = tuple[str, str]  # label and text


def _agnews(name: str) -> list[Record]:
    with open(DATA / 'agnews' / name, newline='', encoding='utf-8') as file:
        return [(label, f'{title}. {text}'.replace('\\', ' ')) for label, title, text in csv.reader(file)]


def _trec(name: str) -> list[Record]:
    """Questions are stored as tokens with spaces between them; these are undone as far as marks go."""
    lines = (DATA / 'trec' / name).read_text(encoding='utf-8').splitlines()
    pairs = (line.split(' ', 1) for line in lines)
    return [
        (head.split(':')[0], re.sub(r" (\?|,|\.|'s|'t|'re|'ll|'d|'m)(?=\s|$)", r'\1', text).strip())
        for head, text in pairs
    ]


def _mts_dialog(*names: str) -> list[Record]:
    rows: list[Record] = []
    for name in names:
        with open(DATA / 'mts_dialog' / f'MTS-Dialog-{name}.csv', newline='', encoding='utf-8') as file:
            rows += [(row['section_header'], row['section_text']) for row in csv.DictReader(file)]
    return rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """Records with labels, and what is publicly said of them.

    Attributes:
        labels: What prompts call each label.
        description: The corpus in one line.
        label_name: What prompts call the label.
        text_name: What prompts call a text.
        max_prompt_tokens: Length of a prompt.
        train: The sensitive records.
        held_out: Records that the classifier is tested on.
    """

    labels: dict[str, str]
    description: str
    label_name: str
    text_name: str
    max_prompt_tokens: int
    train: Callable[[], list[Record]]
    held_out: Callable[[], list[Record]]


DATASETS = {
    'agnews': Dataset(
        labels={'1': 'World', '2': 'Sports', '3': 'Business', '4': 'Science and technology'},
        description='Short news items, one after another.',
        label_name='Section',
        text_name='News',
        max_prompt_tokens=112,
        train=lambda: _agnews('train_head.csv') + _agnews('train_more.csv'),
        held_out=lambda: _agnews('test.csv'),
    ),
    'trec': Dataset(
        labels={
            'ABBR': 'abbreviations', 'DESC': 'descriptions and reasons', 'ENTY': 'things',
            'HUM': 'people', 'LOC': 'places', 'NUM': 'numbers and dates',
        },
        description='Short quiz questions, one after another.',
        label_name='Asks for',
        text_name='Question',
        max_prompt_tokens=56,
        train=lambda: _trec('train.txt'),
        held_out=lambda: _trec('test.txt'),
    ),
    'mts_dialog': Dataset(
        labels={
            'FAM/SOCHX': 'Family and social history', 'GENHX': 'History of present illness',
            'PASTMEDICALHX': 'Past medical history', 'CC': 'Chief complaint',
        },
        description="Sections of doctors' notes on patients, one after another.",
        label_name='Section',
        text_name='Note',
        max_prompt_tokens=144,
        train=lambda: _mts_dialog('TrainingSet'),
        held_out=lambda: _mts_dialog(
            'ValidationSet', 'TestSet-1-MEDIQA-Chat-2023', 'TestSet-2-MEDIQA-Sum-2023'
        ),
    ),
}  # fmt: skip

BATCH_SIZE = 64
# Chosen on the invented messages of the demo, never on these records.
COMMON = [
    '--model', 'gemma3-270m', '--batch-size', str(BATCH_SIZE), '--epsilon', '3', '--delta', '1e-5',
    '--public-top-k', '1024', '--max-batch-tokens', '64', '--max-example-tokens', '64',
]  # fmt: skip
DIFFERENCE = [
    '--aggregate', 'difference', '--accounting', 'worst-case', '--temperature', '0.8', '--clip-bound', '3.5',
]  # fmt: skip
ARMS = {
    'public': DIFFERENCE,
    'mean': ['--aggregate', 'mean', '--clip-bound', '9', '--temperature', '1.5'],
    'difference': DIFFERENCE,
    'difference-clusters': [*DIFFERENCE, '--clusters', '3'],
}


def _sample(records: Iterable[Record], labels: Iterable[str], limit: int | None) -> list[Record]:
    """Records of the declared labels, every n-th of them, so that about `limit` are left."""
    known = [record for record in records if record[0] in set(labels)]
    return known[:: max(1, len(known) // limit)][:limit] if limit else known


def flags(data: Dataset, arm: str, records: list[Record], folder: pathlib.Path) -> list[str]:
    """Writes the records, and gives the flags of the arm; of `public` the file is empty."""
    with open(folder / 'records.csv', 'w', newline='', encoding='utf-8') as file:
        writer = csv.writer(file)
        writer.writerow(['label', 'text'])
        writer.writerows([] if arm == 'public' else records)
    size = ['--records', str(len(records))]
    if arm == 'public':  # as many batches as the others have, of nothing
        batches = max(1, len(records) // (BATCH_SIZE * len(data.labels)))
        size = ['--batches-per-label', str(batches), '--micro-batch-size', '8']
    return [
        '--input', str(folder / 'records.csv'), '--text-field', 'text', '--label-field', 'label',
        '--labels', ','.join(f'{value}={words}' for value, words in data.labels.items()),
        '--corpus-description', data.description, '--label-name', data.label_name,
        '--text-name', data.text_name, *size, '--max-prompt-tokens', str(data.max_prompt_tokens),
        *COMMON, *ARMS[arm],
    ]  # fmt: skip


def accuracy(train: list[Record], held_out: list[Record]) -> float | None:
    """Of TF-IDF with logistic regression; None where the training texts have fewer than two labels."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    if len({label for label, _ in train}) < 2:
        return None
    model = make_pipeline(
        TfidfVectorizer(sublinear_tf=True), LogisticRegression(max_iter=1000, class_weight='balanced')
    )
    model.fit([text for _, text in train], [label for label, _ in train])
    return float(model.score([text for _, text in held_out], [label for label, _ in held_out]))


def run(name: str, arm: str, folder: pathlib.Path, limit: int | None, extra: list[str]) -> dict[str, Any]:
    """Runs one job and measures it from outside."""
    data = DATASETS[name]
    records = _sample(data.train(), data.labels, limit)
    held_out = _sample(data.held_out(), data.labels, None)
    result: dict[str, Any] = {'data': name, 'arm': arm, 'records': len(records), 'held_out': len(held_out)}
    if arm == 'real':
        return result | {'accuracy': accuracy(records, held_out)}
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / 'corpus'
    command = [sys.executable, '-m', 'pipeline.main', 'generate', *flags(data, arm, records, folder),
               '--output', str(output), '--quiet', *extra]  # fmt: skip
    started = time.monotonic()
    subprocess.run(command, check=True, env=os.environ)
    seconds = time.monotonic() - started
    report = json.loads((output / 'privacy_report.json').read_text())
    rows = dataset.dataset(output / 'data', format='parquet').to_table().to_pylist()
    complete = [row for row in rows if not row['truncated'] and row['text'].strip()]
    by_label = collections.defaultdict(list)
    for row in complete:
        by_label[row['label']].append(row['text'])
    totals = report['corpus']
    return result | {
        'epsilon': None if arm == 'public' else report['epsilon'],
        'delta': report['delta'],
        'settings': {key: value for key, value in report['mechanism'].items() if value is not None},
        'batches': sum(group['batches'] for group in report['plan']),
        **totals,
        'complete': len(complete),
        'seconds': round(seconds, 1),
        'tokens_per_second': round((totals['private_tokens'] + totals['public_tokens']) / seconds, 2),
        'peak_gigabytes': round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, 2),
        'accuracy': accuracy([(row['label'], row['text']) for row in rows if row['text'].strip()], held_out),
        'samples': [
            {'label': label, 'text': text}
            for texts in itertools.zip_longest(*by_label.values())
            for label, text in zip(by_label, texts, strict=True)
            if text is not None
        ][:5],
    }


def main() -> None:
    """Prints one JSON line. Further flags are those of `dp-corpus generate`."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('data', choices=list(DATASETS))
    parser.add_argument('arm', choices=[*ARMS, 'real'])
    parser.add_argument('--work', type=pathlib.Path, required=True, help='empty folder for input and output')
    parser.add_argument('--limit', type=int, help='records to take, spread over the file')
    args, extra = parser.parse_known_args()
    print(json.dumps(run(args.data, args.arm, args.work, args.limit, extra), ensure_ascii=False))


if __name__ == '__main__':
    main()
