"""Worth of corpora at equal epsilon and tokens: the job on real records with a real model, row by row.

    python -m tests.benchmarks.utility_benchmark run trec individual-rounds --work DIR --seed 0
    python -m tests.benchmarks.utility_benchmark table --work DIR

`run` runs the command line as a user would, in a process of its own, into a folder of DIR named by data, row,
epsilon and seed, evaluates what came out, and prints one JSON line, which it also leaves there: epsilon,
examples, tokens, seconds, peak memory, and the first complete examples as they are. A run that was
cut off goes on; one that is finished is evaluated again. `table` prints what all rows in DIR came to, as
Markdown: means over seeds with their standard errors. The records are read from ../shared/data.

Rows: `public` is the job without a record, so the public prompt alone, and `reference` the same from 8
public texts of the genre; both are of ε = 0. `mean` has the clip bound and the temperature of CL 4.1 and PP's
top K. `median-clusters` is CL's, whose loss is ex post: as many tokens as the other rows, and no ε. Of
the difference, `difference` charges every context the worst case; in `individual` each context pays for what
it gives, `individual-rounds` has what a first round released as reference, `individual-clusters` clusters
besides, and `individual-reference` the public texts. `fine-tune` has no votes: DP-SGD in 30 steps, and 50
texts of each label, which are free.
`tune-refine` is the method of that name with its defaults: 15 steps of 128, and 500 of 2,000 texts.
`evolve` has votes on whole texts, and 200 of them; give it all records (`--limit 8000`).

Scores are those of `dp-corpus evaluate`: accuracy on 1,000 held-out records (or all) of TF-IDF with logistic
regression and of a head on MiniLM's vectors, both trained on the corpus; the share of texts whose label the
better of both, trained on 2,000 records (or as many as there are, in part those of the corpus), gives as
well; MAUVE of CL's settings. Of a hundred texts the first two say little: another draw of as many texts
moves them by nearly a tenth, which the standard error of one corpus counts in. MAUVE is there twice: by
MiniLM, which votes in some rows, and by the states of Gemma 3 270M (`by-decoder`), which does not.

The public texts are of the held-out records, all labels together, which leaves the others to be
tested on. Prices are means over tokens and contexts, in units of ρ; the share of contexts that are silent
at the end of a batch is the curator's.
"""

import argparse
import collections
import csv
import dataclasses
import itertools
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from pyarrow import dataset

from pipeline.evaluation import asked, measures
from pipeline.evaluation.settings import EvaluationSettings
from tests.benchmarks import real_records
from tests.benchmarks.real_records import Dataset, Record, sample

BATCH_SIZE, REFERENCE_SIZE, REFERENCE_TEXTS = 64, 8, 100
COMMON = [
    '--model', 'gemma3-270m', '--batch-size', str(BATCH_SIZE), '--public-top-k', '1024',
    '--max-example-tokens', '64', '--reference-size', str(REFERENCE_SIZE),
]  # fmt: skip
# Settings by ε, chosen on walks of two stand-ins, never on these records: with worst-case accounting
# the c that 128 tokens leave, or less; with individual accounting the largest c₂ of a grid whose mean
# price is below that on both walks.
CLIP_BOUNDS = {1.0: '1.4', 3.0: '3.5', 10.0: '6'}
SHIFT_BOUNDS = {1.0: ('2.8', '0.8'), 3.0: ('3.5', '2.8'), 10.0: ('6', '4')}
DIFFERENCE = ['--aggregate', 'difference', '--temperature', '0.8']
INDIVIDUAL = [*DIFFERENCE, '--accounting', 'individual']
CLUSTERS = ['--clusters', '3']
ROWS = {
    'public': [*INDIVIDUAL, '--reference-rounds', '1'],
    'reference': INDIVIDUAL,
    'mean': ['--aggregate', 'mean', '--clip-bound', '9', '--temperature', '1.5'],
    'median-clusters': ['--aggregate', 'median', '--clip-bound', '6', '--temperature', '1.5', *CLUSTERS],
    'difference': [*DIFFERENCE, '--accounting', 'worst-case', '--reference-rounds', '1'],
    'individual': [*INDIVIDUAL, '--reference-rounds', '1'],
    'individual-rounds': [*INDIVIDUAL, '--reference-rounds', '2'],
    'individual-clusters': [*INDIVIDUAL, '--reference-rounds', '2', *CLUSTERS],
    'individual-reference': INDIVIDUAL,
    'fine-tune': [],
    'tune-refine': [],
    'evolve': [],
}
# DP-SGD in place of votes: 30 steps are what two cores do in an hour or less.
FINE_TUNE = [
    '--method', 'fine-tune', '--model', 'gemma3-270m', '--tuning-steps', '30', '--expected-batch-size', '64',
    '--learning-rate', '0.003', '--max-example-tokens', '64', '--examples-per-label', '50',
]  # fmt: skip
# Votes on whole texts, with the defaults of 200. MiniLM judges them too, so look at TF-IDF beside the head.
EVOLVE = [
    '--method', 'evolve', '--model', 'gemma3-270m', '--embedder', 'minilm', '--examples', '200',
    '--max-example-tokens', '64',
]  # fmt: skip
# Room for three texts, which are cut where they are long: whole ones leave their children less variety.
EVOLVE_PROMPT_TOKENS = 112
# Training, then votes on what it gave, with the defaults.
TUNE_REFINE = [
    '--method', 'tune-refine', '--model', 'gemma3-270m', '--embedder', 'minilm', '--max-example-tokens', '64',
]  # fmt: skip
# Texts that go through a language model for MAUVE.
JUDGED_BY_DECODER = 500
# Flags of the rows in which no batch of contexts votes on tokens.
OF_WHOLE_TEXTS = {'fine-tune': FINE_TUNE, 'tune-refine': TUNE_REFINE, 'evolve': EVOLVE}
WITHOUT_RECORDS = ('public', 'reference')
# Records that judges of labels are trained on, and held-out ones.
JUDGED_BY, TESTED_ON = 2_000, 1_000
RESULT = 'row.json'


def bounds(row: str, epsilon: float) -> list[str]:
    """c, and c₂ where there is one, of a row that does not fix them."""
    if '--clip-bound' in ROWS[row]:
        return []
    if epsilon not in CLIP_BOUNDS:
        raise ValueError(
            f'Expected an epsilon that bounds were chosen for, got epsilon={epsilon}. Choose from '
            f'{", ".join(map(str, CLIP_BOUNDS))}.'
        )
    if 'individual' not in ROWS[row]:
        return ['--clip-bound', CLIP_BOUNDS[epsilon]]
    clip_bound, shift_bound = SHIFT_BOUNDS[epsilon]
    return ['--clip-bound', clip_bound, '--shift-bound', shift_bound]


def _write(path: pathlib.Path, records: Iterable[Record]) -> str:
    with open(path, 'w', newline='', encoding='utf-8') as file:
        writer = csv.writer(file)
        writer.writerow(['label', 'text'])
        writer.writerows(records)
    return str(path)


def flags(
    data: Dataset,
    row: str,
    records: list[Record],
    public: list[Record],
    folder: pathlib.Path,
    *,
    epsilon: float,
    delta: float | None,
    max_batch_tokens: int,
) -> list[str]:
    """Writes the records, and gives the flags of the row; a row without records has an empty file."""
    empty = row in WITHOUT_RECORDS
    size = ['--records', str(len(records))]
    given = [
        '--input', _write(folder / 'records.csv', [] if empty else records), '--text-field', 'text',
        '--label-field', 'label',
        *declared(data, len(records), delta),
        '--corpus-description', data.description, '--label-name', data.label_name,
        '--text-name', data.text_name, '--max-prompt-tokens', str(data.max_prompt_tokens),
    ]  # fmt: skip
    if row in OF_WHOLE_TEXTS:
        length = max(EVOLVE_PROMPT_TOKENS if row == 'evolve' else 0, data.max_prompt_tokens)
        prompts = ['--max-prompt-tokens', str(length)]
        return [*given, *size, '--epsilon', str(epsilon), *OF_WHOLE_TEXTS[row], *prompts]
    if empty:  # as many batches as the others have, of nothing
        batches = max(1, len(records) // (BATCH_SIZE * len(data.labels)))
        size = ['--batches-per-label', str(batches), '--micro-batch-size', '8']
    reference = []
    if row in ('reference', 'individual-reference'):
        reference = ['--reference', _write(folder / 'reference.csv', public)]
    spent = ['--epsilon', str(epsilon)]
    if row == 'median-clusters':
        spent = ['--max-private-tokens', str(max_batch_tokens)]
    return [
        *given, *size, *spent, '--max-batch-tokens', str(max_batch_tokens), *COMMON, *reference, *ROWS[row],
        *bounds(row, epsilon),
    ]  # fmt: skip


def declared(data: Dataset, records: int, delta: float | None) -> list[str]:
    """The flags of what every job on these records is told."""
    return [
        '--labels', ','.join(f'{value}={words}' for value, words in data.labels.items()),
        '--delta', f'{delta or records ** -1.1:.2e}',
    ]  # fmt: skip


def price_per_token(mechanism: dict[str, Any], spending: dict[str, Any] | None) -> float | None:
    """Mean ρ that a context paid for a token of its batch."""
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


def scores(folder: pathlib.Path, data: Dataset, public: pathlib.Path | None) -> dict[str, list[float | None]]:
    """Figures of `dp-corpus evaluate` on the corpus in a folder and their standard errors, by name."""
    records = sample(data.train(), data.labels, JUDGED_BY)
    held_out = sample(sample(data.held_out(), data.labels)[REFERENCE_TEXTS:], data.labels, TESTED_ON)
    corpora = [('corpus', str(folder / 'corpus'))]
    settings = EvaluationSettings(
        only=('use', 'labels', 'mauve'),
        records=_write(folder / 'judge.csv', records),
        test=_write(folder / 'held_out.csv', held_out),
        public=None if public is None else str(public),
        label_field='label',
        embedder='minilm',
    )
    # Fewer texts: each goes through a language model.
    by_decoder = dataclasses.replace(
        settings,
        only=('mauve',),
        records=_write(folder / 'judge_by_decoder.csv', sample(records, data.labels, JUDGED_BY_DECODER)),
        test=_write(folder / 'held_out_by_decoder.csv', sample(held_out, data.labels, JUDGED_BY_DECODER)),
        embedder='decoder',
        embedder_model='gemma3-270m',
    )
    found: dict[str, list[float | None]] = {}
    for each, suffix in ((settings, ''), (by_decoder, '-by-decoder')):
        evaluation = asked.measure(asked.read_texts(corpora, each), measures.measures_of(each), each)
        for result in evaluation.corpora[0].measures:
            if result.findings is None:
                print(f'{folder.name}: {result.measure}: {result.reason}', file=sys.stderr)
                continue
            for figure in result.findings.figures:
                # MAUVE of the records is the one figure of parts that is kept, to compare the corpus's with.
                is_whole = '/' not in figure.name or figure.name.startswith('mauve')
                if is_whole and figure.value is not None:
                    found[f'{figure.name}{suffix}'] = [figure.value, figure.standard_error]
    return found


def generate(folder: pathlib.Path, arguments: list[str]) -> dict[str, float]:
    """Runs the job, or the rest of one, and measures it from outside."""
    finished = folder / 'measured.json'
    if finished.exists():
        return dict(json.loads(finished.read_text()))
    line = [sys.executable, '-m', 'pipeline.main', 'generate', *arguments, '--output', str(folder / 'corpus'),
            '--work-dir', str(folder / 'curator'), '--quiet']  # fmt: skip
    started = time.monotonic()
    subprocess.run(line, check=True, env=os.environ)
    measured = {
        'seconds': round(time.monotonic() - started, 1),
        'peak_gigabytes': round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, 2),
    }
    finished.write_text(json.dumps(measured))
    return measured


def run(args: argparse.Namespace, extra: list[str]) -> dict[str, Any]:
    """One row: the job, and what its corpus is worth."""
    name, row = args.data, args.row
    folder = args.work / f'{name}-{row}-{args.epsilon:g}-{args.seed}'
    data = real_records.DATASETS[name]
    records = sample(data.train(), data.labels, args.limit, args.seed)
    public = sample(data.held_out(), data.labels)[:REFERENCE_TEXTS]
    folder.mkdir(parents=True, exist_ok=True)
    arguments = flags(
        data,
        row,
        records,
        public,
        folder,
        epsilon=args.epsilon,
        delta=args.delta,
        max_batch_tokens=args.max_batch_tokens,
    )
    measured = generate(folder, [*arguments, *extra])
    report = json.loads((folder / 'corpus' / 'privacy_report.json').read_text())
    restricted = json.loads((folder / 'curator' / 'restricted_report.json').read_text())
    mechanism, spending = report['method']['mechanism'], restricted.get('spending')
    texts = dataset.dataset(folder / 'corpus' / 'data', format='parquet').to_table().to_pylist()
    complete = collections.defaultdict(list)
    for text in texts:
        if not text['truncated'] and text['text'].strip():
            complete[text['label']].append(text['text'])
    totals = report['corpus']
    whole = row in OF_WHOLE_TEXTS
    tokens = totals.get('sampled_tokens', 0)
    if not whole:
        tokens = totals['private_tokens'] + totals['public_tokens']
    batches = sum(group['batches'] for group in report['plan'])
    empty = row in WITHOUT_RECORDS
    found = scores(folder, data, _public_corpus(args.work, name))
    result = {
        'data': name,
        'row': row,
        'seed': args.seed,
        'records': len(records),
        'epsilon_asked': args.epsilon,
        'epsilon': 0.0 if empty else report['epsilon'],
        'delta': report['delta'],
        'settings': {key: value for key, value in mechanism.items() if value is not None},
        'batches': batches,
        **totals,
        'complete': sum(map(len, complete.values())),
        'tokens': tokens,
        'tokens_per_batch': None if whole else round(tokens / batches, 1),
        'price_per_token': None if whole else 0.0 if empty else price_per_token(mechanism, spending),
        'share_silent': None
        if empty or spending is None
        else share_silent(spending, restricted['contexts_per_batch']),
        **measured,
        'scores': found,
        'samples': [
            {'label': label, 'text': text}
            for of_labels in itertools.zip_longest(*complete.values())
            for label, text in zip(complete, of_labels, strict=True)
            if text is not None
        ][:5],
    }
    (folder / RESULT).write_text(json.dumps(result, ensure_ascii=False))
    return result


def _public_corpus(work: pathlib.Path, name: str) -> pathlib.Path | None:
    """The corpus of the row `public` of the data, where it was run."""
    found = sorted(work.glob(f'{name}-public-*/measured.json'))
    return found[0].parent / 'corpus' if found else None


# Columns of the table: a title, and the score that it shows.
COLUMNS = {
    'accuracy, TF-IDF': 'tfidf_accuracy',
    'accuracy, head': 'head_accuracy',
    'labels agreed with': 'label_accuracy',
    'MAUVE': 'mauve_clustering',
    'MAUVE, decoder': 'mauve_clustering-by-decoder',
}


def table(work: pathlib.Path) -> list[str]:
    """Markdown lines: one for each data, row and epsilon, means over seeds ± their standard error."""
    groups = collections.defaultdict(list)
    for path in sorted(work.glob(f'*/{RESULT}')):
        result = json.loads(path.read_text())
        groups[result['data'], result['epsilon_asked'], result['row']].append(result)
    titles = ['data', 'ε', 'row', 'seeds', 'texts', 'tokens', 'price of a token', 'silent', *COLUMNS]
    lines = ['| ' + ' | '.join(titles) + ' |', '|' + ' --- |' * len(titles)]
    for (name, _, row), results in sorted(groups.items()):
        epsilons = [result['epsilon'] for result in results]
        cells = [
            name,
            'ex post' if None in epsilons else f'{max(epsilons):.2f}',
            row,
            str(len(results)),
            f'{statistics.mean(result["examples"] for result in results):.0f}',
            f'{statistics.mean(each["tokens"] for each in results):.0f}',
            _cell([result['price_per_token'] for result in results], '.1e'),
            _cell([result['share_silent'] for result in results], '.2f'),
            *(_cell([_score(result, key) for result in results]) for key in COLUMNS.values()),
        ]
        lines.append('| ' + ' | '.join(cells) + ' |')
    return lines


def _score(result: dict[str, Any], key: str) -> float | None:
    """A score of a row; of the two judges' that of the better one on real text."""
    found = result['scores']
    if key == 'label_accuracy':
        judges = [kind for kind in ('tfidf', 'head') if f'{kind}_judge_accuracy' in found]
        if not judges:
            return None
        best = max(judges, key=lambda kind: found[f'{kind}_judge_accuracy'][0])
        key = f'{best}_{key}'
    return found[key][0] if key in found else None


def _cell(values: list[float | None], form: str = '.3f') -> str:
    """Mean, and its standard error where there are several values."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return ''
    mean = f'{statistics.mean(numbers):{form}}'
    if len(numbers) == 1:
        return mean
    return f'{mean} ± {statistics.stdev(numbers) / len(numbers) ** 0.5:{form}}'


def main() -> None:
    """Prints one JSON line, or the table. Further flags of `run` are those of `dp-corpus generate`."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    commands = parser.add_subparsers(dest='command', required=True)
    one = commands.add_parser('run', help='runs and evaluates one row')
    one.add_argument('data', choices=list(real_records.DATASETS))
    one.add_argument('row', choices=list(ROWS))
    one.add_argument('--limit', type=int, default=768, help='records to take, spread over the file')
    one.add_argument('--seed', type=int, default=0, help='which of every n-th records these are')
    one.add_argument('--epsilon', type=float, default=1.0)
    one.add_argument('--delta', type=float, help='default: records ** -1.1')
    one.add_argument('--max-batch-tokens', type=int, default=128)
    every = commands.add_parser('table', help='prints what the rows came to')
    for each in (one, every):
        each.add_argument('--work', type=pathlib.Path, required=True, help='folder of the rows')
    args, extra = parser.parse_known_args()
    if args.command == 'table':
        if extra:
            parser.error(f'unrecognized arguments: {" ".join(extra)}')
        print('\n'.join(table(args.work)))
    else:
        print(json.dumps(run(args, extra), ensure_ascii=False))


if __name__ == '__main__':
    main()
