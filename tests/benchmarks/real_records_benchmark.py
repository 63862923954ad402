"""The job on real records with a real model: what comes out, what it is worth, and what it takes.

    python -m tests.benchmarks.real_records_benchmark agnews difference --work DIR

Runs the command line as a user would, in a process of its own, and prints one JSON line: epsilon,
examples, tokens, seconds, peak memory, the accuracy on held-out real records of TF-IDF with logistic
regression that was trained on the corpus, and the first complete example of each label as it is. The
records are read from ../shared/data.

Arms: `public` is the job without a record, so the public prompt alone, and `reference` the same from 8
public texts of the genre; both are of ε = 0. `mean` has the clip bound and the temperature of CL 4.1 and PP's
top K. Of the difference, `difference` charges every context the worst case and `difference-clusters` groups
alike records besides; in `individual` each context pays for what it gives, `individual-rounds` has what a
first round released as reference, and `individual-reference` the public texts. `real` trains the
classifier on the records themselves, for comparison.

The public texts are of the held-out records, all labels together, which leaves the others to be
tested on. Prices are means over tokens and contexts, in units of ρ; the share of contexts that are silent
at the end of a batch is the curator's. With `--walks`, the folder of `reference_benchmark`, `distance` is
the mean total variation to the unclipped average at these settings along the walk of one label. `--mauve`
names a folder that `pip install --target` put mauve-text into; its features are 64 components of TF-IDF,
so scores compare arms with each other and with nothing else, and of some dozens of texts they say little.
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
import statistics
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

BATCH_SIZE, REFERENCE_SIZE, REFERENCE_TEXTS = 64, 8, 100
# Chosen on the invented messages of the demo and on the stand-ins of `reference_benchmark`, never on these
# records.
COMMON = [
    '--model', 'gemma3-270m', '--batch-size', str(BATCH_SIZE), '--public-top-k', '1024',
    '--max-example-tokens', '64', '--reference-size', str(REFERENCE_SIZE),
]  # fmt: skip
DIFFERENCE = ['--aggregate', 'difference', '--temperature', '0.8']
WORST_CASE = [
    *DIFFERENCE, '--accounting', 'worst-case', '--reference-rounds', '1', '--clip-bound', '3.5',
]  # fmt: skip
INDIVIDUAL = [*DIFFERENCE, '--accounting', 'individual', '--clip-bound', '1.4', '--shift-bound', '0.2']
ARMS = {
    'public': [*INDIVIDUAL, '--reference-rounds', '1'],
    'reference': INDIVIDUAL,
    'mean': ['--aggregate', 'mean', '--clip-bound', '9', '--temperature', '1.5'],
    'difference': WORST_CASE,
    'difference-clusters': [*WORST_CASE, '--clusters', '3'],
    'individual': [*INDIVIDUAL, '--reference-rounds', '1'],
    'individual-rounds': [*INDIVIDUAL, '--reference-rounds', '2'],
    'individual-reference': INDIVIDUAL,
}
WITHOUT_RECORDS = ('public', 'reference')
# Which reference of a walk stands for the arm's.
KIND_OF = {
    'public': 'public', 'reference': 'genre', 'mean': 'public', 'difference': 'public',
    'difference-clusters': 'public', 'individual': 'public', 'individual-rounds': 'released',
    'individual-reference': 'genre',
}  # fmt: skip


def _sample(
    records: Iterable[Record], labels: Iterable[str], limit: int | None = None, seed: int = 0
) -> list[Record]:
    """Records of the declared labels, every n-th of them from the seed on, so that about `limit` are left."""
    known = [record for record in records if record[0] in set(labels)]
    if not limit:
        return known
    step = max(1, len(known) // limit)
    return known[seed % step :: step][:limit]


def _write(path: pathlib.Path, records: Iterable[Record]) -> str:
    with open(path, 'w', newline='', encoding='utf-8') as file:
        writer = csv.writer(file)
        writer.writerow(['label', 'text'])
        writer.writerows(records)
    return str(path)


def flags(
    data: Dataset,
    arm: str,
    records: list[Record],
    public: list[Record],
    folder: pathlib.Path,
    *,
    epsilon: float,
    delta: float | None,
    max_batch_tokens: int,
) -> list[str]:
    """Writes the records, and gives the flags of the arm; an arm without records has an empty file."""
    empty = arm in WITHOUT_RECORDS
    size = ['--records', str(len(records))]
    if empty:  # as many batches as the others have, of nothing
        batches = max(1, len(records) // (BATCH_SIZE * len(data.labels)))
        size = ['--batches-per-label', str(batches), '--micro-batch-size', '8']
    reference = []
    if arm in ('reference', 'individual-reference'):
        reference = ['--reference', _write(folder / 'reference.csv', public)]
    return [
        '--input', _write(folder / 'records.csv', [] if empty else records), '--text-field', 'text',
        '--label-field', 'label',
        '--labels', ','.join(f'{value}={words}' for value, words in data.labels.items()),
        '--corpus-description', data.description, '--label-name', data.label_name,
        '--text-name', data.text_name, *size, '--max-prompt-tokens', str(data.max_prompt_tokens),
        '--epsilon', str(epsilon), '--delta', f'{delta or len(records) ** -1.1:.2e}',
        '--max-batch-tokens', str(max_batch_tokens), *COMMON, *reference, *ARMS[arm],
    ]  # fmt: skip


def price_per_token(mechanism: dict[str, Any], spending: dict[str, Any] | None) -> float | None:
    """Mean ρ that a context paid for a token of its batch; None for an arm that is not of this kind."""
    if spending is None:
        change = mechanism['clip_bound'] / (mechanism['batch_size'] * mechanism['temperature'])
        return float(change**2 / 2)
    batches = [batch for batch in spending['spending_by_batch'].values() if batch['stream_tokens']]
    paid = [batch['mean_share_spent'] / batch['stream_tokens'] for batch in batches]
    return mechanism['context_budget'] * statistics.mean(paid) if paid else None


def share_silent(spending: dict[str, Any], contexts: dict[str, int]) -> float | None:
    """Share of all contexts that did not vote on their batch's last token; None without contexts."""
    batches = spending['spending_by_batch']
    total = sum(contexts[name] for name in batches)
    return 1 - sum(batch['last_voters'] for batch in batches.values()) / total if total else None


def distance(walk: pathlib.Path, arm: str, mechanism: dict[str, Any], reference_size: int) -> float:
    """Mean total variation to the unclipped average at the arm's settings, before any context is silent."""
    from tests.benchmarks import reference_benchmark

    temperature, c = mechanism['temperature'], mechanism['clip_bound']
    found = []
    for step in reference_benchmark.steps_of(
        reference_benchmark.Walk.load(walk), KIND_OF[arm], reference_size, temperature
    ):
        if arm in WITHOUT_RECORDS:
            found.append(step.distance(step.reference / temperature))
        elif arm == 'mean':
            found.append(reference_benchmark.mean(step, c)[0])
        elif mechanism['accounting'] == 'individual':
            omega, c2 = mechanism['omega'], mechanism['shift_bound']
            found.append(reference_benchmark.individual(step, c, (c2,), omega)[0][0])
        else:
            found.append(reference_benchmark.worst_case(step, c)[0])
    return statistics.mean(found)


def mauve_score(folder: pathlib.Path, texts: list[str], held_out: list[str]) -> float:
    """MAUVE of a corpus against as many real texts, on 64 components of TF-IDF."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    sys.path.append(str(folder))
    import mauve

    features = make_pipeline(TfidfVectorizer(sublinear_tf=True), TruncatedSVD(64, random_state=0)).fit(
        held_out
    )
    real = held_out[:: max(1, len(held_out) // len(texts))][: len(texts)]
    found = mauve.compute_mauve(
        p_features=features.transform(real), q_features=features.transform(texts), num_buckets=8
    )
    return float(found.mauve)


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


def run(args: argparse.Namespace, extra: list[str]) -> dict[str, Any]:
    """Runs one job and measures it from outside."""
    name, arm, folder = args.data, args.arm, args.work
    data = DATASETS[name]
    records = _sample(data.train(), data.labels, args.limit, args.seed)
    kept = _sample(data.held_out(), data.labels)
    public, held_out = kept[:REFERENCE_TEXTS], kept[REFERENCE_TEXTS:]
    result: dict[str, Any] = {
        'data': name, 'arm': arm, 'seed': args.seed, 'records': len(records), 'held_out': len(held_out),
    }  # fmt: skip
    if arm == 'real':
        return result | {'accuracy': accuracy(records, held_out)}
    folder.mkdir(parents=True, exist_ok=True)
    output, work = folder / 'corpus', folder / 'curator'
    arguments = flags(
        data,
        arm,
        records,
        public,
        folder,
        epsilon=args.epsilon,
        delta=args.delta,
        max_batch_tokens=args.max_batch_tokens,
    )
    command = [sys.executable, '-m', 'pipeline.main', 'generate', *arguments,
               '--output', str(output), '--work-dir', str(work), '--quiet', *extra]  # fmt: skip
    started = time.monotonic()
    subprocess.run(command, check=True, env=os.environ)
    seconds = time.monotonic() - started
    report = json.loads((output / 'privacy_report.json').read_text())
    restricted = json.loads((work / 'restricted_report.json').read_text())
    mechanism, spending = report['mechanism'], restricted['spending']
    rows = dataset.dataset(output / 'data', format='parquet').to_table().to_pylist()
    complete = [row for row in rows if not row['truncated'] and row['text'].strip()]
    texts = [(row['label'], row['text']) for row in rows if row['text'].strip()]
    by_label = collections.defaultdict(list)
    for row in complete:
        by_label[row['label']].append(row['text'])
    totals = report['corpus']
    tokens = totals['private_tokens'] + totals['public_tokens']
    batches = sum(group['batches'] for group in report['plan'])
    empty = arm in WITHOUT_RECORDS
    walk = args.walks / f'{name}.npz' if args.walks else None
    return result | {
        'epsilon': 0.0 if empty else report['epsilon'],
        'delta': report['delta'],
        'settings': {key: value for key, value in mechanism.items() if value is not None},
        'batches': batches,
        **totals,
        'complete': len(complete),
        'tokens_per_batch': round(tokens / batches, 1),
        'price_per_token': 0.0 if empty else price_per_token(mechanism, spending),
        'share_silent': None
        if empty or spending is None
        else share_silent(spending, restricted['contexts_per_batch']),
        'distance': round(distance(walk, arm, mechanism, REFERENCE_SIZE), 4) if walk else None,
        'seconds': round(seconds, 1),
        'tokens_per_second': round(tokens / seconds, 2),
        'peak_gigabytes': round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, 2),
        'accuracy': accuracy(texts, held_out),
        'mauve': mauve_score(args.mauve, [text for _, text in texts], [text for _, text in held_out])
        if args.mauve and texts
        else None,
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
    parser.add_argument('--seed', type=int, default=0, help='which of every n-th records these are')
    parser.add_argument('--epsilon', type=float, default=3.0)
    parser.add_argument('--delta', type=float, help='default: records ** -1.1')
    parser.add_argument('--max-batch-tokens', type=int, default=64)
    parser.add_argument('--walks', type=pathlib.Path, help='folder of walks, for distances')
    parser.add_argument('--mauve', type=pathlib.Path, help='folder with mauve-text')
    args, extra = parser.parse_known_args()
    print(json.dumps(run(args, extra), ensure_ascii=False))


if __name__ == '__main__':
    main()
