"""JSON records under a schema beside PP's sparse vector: how many are valid, and what tokens are spent on.

    python -m tests.benchmarks.validity_benchmark wikimovies schema --work DIR --epsilon 3
    python -m tests.benchmarks.validity_benchmark table --work DIR

Runs the command line as a user would, with Gemma 3 270M, into a folder of DIR named by data, row and
epsilon, and prints one JSON line, which it also leaves there. A run that was cut off goes on. Data: films
of WikiMovies and section texts of MTS dialog as JSON, from ../shared/data, and the invented visits of
`launch.demo`.

Rows: `schema` is the difference with individual accounting in two rounds under `--json-schema`; `no-schema`
the same without it, the schema in the public prompt alone; `public` the job under the schema without a
record; `sparse-vector` is PP's, the mean with c = 10, τ = 2, θ = 1.5 (the best of its table 4) and a public
prompt that shows the schema.

Of all texts: the shares that parse and that are valid; of the complete ones, which neither cap cut short,
again. Shares of tokens that are private, public and forced. Seconds are the whole command's, of which a step
has its part in `seconds_per_token`; compare rows of one quiet machine only. `variation` is the mean total
variation of the fields to those of the records, of `dp-corpus evaluate`, with all figures of single fields.
"""

import argparse
import csv
import gzip
import json
import pathlib
import random
from typing import Any

from pyarrow import dataset

from launch.demo import clinic_records
from pipeline.evaluation import asked, measures
from pipeline.evaluation.settings import EvaluationSettings
from tests.benchmarks import utility_benchmark
from tests.benchmarks.real_records import DATA

BATCH_SIZE, RESULT = 64, 'row.json'
_SECTIONS = ('FAM/SOCHX', 'GENHX', 'PASTMEDICALHX', 'CC', 'PASTSURGICAL', 'ALLERGY', 'ROS', 'MEDICATIONS',
             'ASSESSMENT', 'EXAM', 'DIAGNOSIS', 'DISPOSITION', 'PLAN', 'EDCOURSE', 'IMMUNIZATIONS', 'IMAGING',
             'GYNHX', 'PROCEDURES', 'OTHER_HISTORY', 'LABS')  # fmt: skip


_GENRES = ('Drama', 'Comedy', 'Action', 'Thriller', 'Horror', 'Romance', 'Crime', 'Adventure', 'Family')


def _object(**properties: Any) -> dict[str, Any]:
    return {
        'type': 'object', 'properties': properties, 'required': list(properties),
        'additionalProperties': False,
    }  # fmt: skip


def _films() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """PP's six fields, cut to what a laptop's prompts hold."""
    text = {'type': 'string', 'minLength': 1, 'maxLength': 60}
    schema = _object(
        title=text,
        year={'type': 'integer', 'minimum': 1900, 'maximum': 2029},
        cast={'type': 'array', 'items': text, 'minItems': 1, 'maxItems': 3},
        genres={'type': 'array', 'items': {'enum': list(_GENRES)}, 'minItems': 1, 'maxItems': 3},
        href={'type': 'string', 'pattern': r'^[^\s"\\]{1,60}$'},
        extract={'type': 'string', 'minLength': 1, 'maxLength': 200},
    )
    rows = []
    for decade in ('1980s', '1990s', '2000s', '2010s'):
        with gzip.open(DATA / 'wikimovies' / f'movies-{decade}.json.gz', 'rt', encoding='utf-8') as file:
            for film in json.load(file):
                if film.get('extract') and film.get('href') and film['genres'] and film['cast']:
                    film['extract'] = film['extract'].split('. ')[0].rstrip('.') + '.'
                    rows.append(
                        {
                            name: film[name][:3] if name in ('cast', 'genres') else film[name]
                            for name in schema['properties']
                        }
                    )
    return schema, rows


def _sections() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    schema = _object(
        section={'enum': list(_SECTIONS)}, text={'type': 'string', 'minLength': 3, 'maxLength': 240}
    )
    rows = []
    for name in ('TrainingSet', 'ValidationSet'):
        with open(DATA / 'mts_dialog' / f'MTS-Dialog-{name}.csv', newline='', encoding='utf-8') as file:
            rows += [{'section': row['section_header'], 'text': ' '.join(row['section_text'].split())}
                     for row in csv.DictReader(file)]  # fmt: skip
    return schema, rows


def _visits() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    schema = json.loads(clinic_records.SCHEMA_FILE.read_text(encoding='utf-8'))
    return schema, [json.loads(row['text']) for row in clinic_records.clinic_records(4_000)]


DATASETS = {'wikimovies': _films, 'mts_dialog': _sections, 'visits': _visits}
DESCRIPTIONS = {
    'wikimovies': 'Films, one after another, each as a JSON record.',
    'mts_dialog': 'Sections of clinical notes, one after another, each as a JSON record.',
    'visits': 'Visits to a clinic, one after another, each as a JSON record.',
}
# What the longest prompt takes: the public one, with the schema.
PROMPT_TOKENS = {'wikimovies': '272', 'mts_dialog': '176', 'visits': '416'}
INDIVIDUAL = ['--aggregate', 'difference', '--temperature', '0.8', '--public-top-k', '1024',
              '--reference-rounds', '2', '--reference-size', '4']  # fmt: skip
ROWS = {
    'schema': INDIVIDUAL,
    'no-schema': INDIVIDUAL,
    'public': INDIVIDUAL,
    'sparse-vector': ['--aggregate', 'mean', '--clip-bound', '10', '--temperature', '2', '--threshold', '1.5',
                      '--threshold-noise-scale', '0.2', '--public-temperature', '1'],
}  # fmt: skip


def fitting(schema: dict[str, Any], rows: list[dict[str, Any]], number: int) -> list[str]:
    """So many of the rows that are valid and at most 480 characters long, as texts, by a fixed seed."""
    import jsonschema

    valid = jsonschema.Draft202012Validator(schema)
    texts = [json.dumps(row, ensure_ascii=False) for row in rows if valid.is_valid(row)]
    texts = [text for text in texts if len(text) <= 480]
    return random.Random(0).sample(texts, number)


def _write(path: pathlib.Path, texts: list[str]) -> str:
    path.write_text(''.join(json.dumps({'text': text}) + '\n' for text in texts), encoding='utf-8')
    return str(path)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """One row: the job, and what its records are."""
    schema, rows = DATASETS[args.data]()
    texts = fitting(schema, rows, BATCH_SIZE * args.batches)
    folder = args.work / f'{args.data}-{args.row}-{args.prompt}-{args.epsilon:g}'
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'schema.json').write_text(json.dumps(schema))
    empty = args.row == 'public'
    held = '--json-schema' if args.row in ('schema', 'public') else '--schema'
    clip_bound, shift_bound = utility_benchmark.SHIFT_BOUNDS[args.epsilon]
    bounds = [] if args.row == 'sparse-vector' else ['--clip-bound', clip_bound, '--shift-bound', shift_bound]
    measured = utility_benchmark.generate(folder, [
        '--model', 'gemma3-270m', '--input', _write(folder / 'records.jsonl', [] if empty else texts),
        '--text-field', 'text', '--prompt', args.prompt, held, str(folder / 'schema.json'),
        '--corpus-description', DESCRIPTIONS[args.data], '--text-name', 'Record',
        '--batches-per-label', str(args.batches),
        '--batch-size', str(BATCH_SIZE), '--epsilon', str(args.epsilon), '--delta', '1e-5',
        '--dtype', 'float32', '--max-prompt-tokens', PROMPT_TOKENS[args.data],
        '--max-batch-tokens', str(args.max_batch_tokens), '--max-example-tokens', '192',
        *ROWS[args.row], *bounds,
    ])  # fmt: skip
    report = json.loads((folder / 'corpus' / 'privacy_report.json').read_text())
    examples = dataset.dataset(folder / 'corpus' / 'data', format='parquet').to_table().to_pylist()
    settings = EvaluationSettings(
        only=('structure',),
        records=_write(folder / 'judge.jsonl', texts),
        json_schema=str(folder / 'schema.json'),
    )
    read = asked.read_texts([('corpus', str(folder / 'corpus'))], settings)
    (found,) = asked.measure(read, measures.measures_of(settings), settings).corpora[0].measures
    if found.findings is None:
        raise ValueError(f'Expected the structure to be measured, got reason={found.reason!r}.')
    figures = {figure.name: figure.value for figure in found.findings.figures}
    totals = report['corpus']
    forced = totals.get('forced_tokens', 0)
    tokens = totals['private_tokens'] + totals['public_tokens'] + forced
    complete = [row['text'] for row in examples if not row['truncated']]
    result = {
        'data': args.data,
        'row': args.row,
        'prompt': args.prompt,
        'epsilon': 0.0 if empty else report['epsilon'],
        'batches': args.batches,
        'examples': len(examples),
        'complete': len(complete),
        'parses': _share([row['text'] for row in examples], None),
        'valid': _share([row['text'] for row in examples], schema),
        'complete_parses': _share(complete, None),
        'complete_valid': _share(complete, schema),
        'tokens': tokens,
        'private': totals['private_tokens'] / tokens,
        'public': totals['public_tokens'] / tokens,
        'forced': forced / tokens,
        **measured,
        'seconds_per_token': measured['seconds'] / tokens,
        'structure': {name: value for name, value in figures.items() if value is not None},
        'samples': complete[:4],
    }
    (folder / RESULT).write_text(json.dumps(result, ensure_ascii=False))
    return result


def _share(texts: list[str], schema: dict[str, Any] | None) -> float | None:
    """Share of texts that parse, or that are valid; None without texts."""
    import jsonschema

    valid = None if schema is None else jsonschema.Draft202012Validator(schema)

    def is_one(text: str) -> bool:
        try:
            value = json.loads(text)
        except ValueError:
            return False
        return valid is None or bool(valid.is_valid(value))

    return sum(map(is_one, texts)) / len(texts) if texts else None


def table(work: pathlib.Path) -> list[str]:
    """Markdown lines, one for each row that was run."""
    titles = ['data', 'row', 'prompt', 'ε', 'texts', 'complete', 'parse', 'valid', 'complete and valid',
              'private', 'public', 'forced']  # fmt: skip
    lines = ['| ' + ' | '.join(titles) + ' |', '|' + ' --- |' * len(titles)]
    for path in sorted(work.glob(f'*/{RESULT}')):
        row = json.loads(path.read_text())
        shares = (
            row['parses'],
            row['valid'],
            row['complete_valid'],
            row['private'],
            row['public'],
            row['forced'],
        )
        counts = [f'{row["epsilon"]:.2f}', str(row['examples']), str(row['complete'])]
        cells = [row['data'], row['row'], row['prompt'], *counts,
                 *('' if share is None else f'{share:.0%}' for share in shares)]  # fmt: skip
        lines.append('| ' + ' | '.join(cells) + ' |')
    return lines


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('data', choices=[*DATASETS, 'table'])
    parser.add_argument('row', choices=[*ROWS], nargs='?', default='schema')
    parser.add_argument('--work', type=pathlib.Path, required=True)
    parser.add_argument('--epsilon', type=float, default=3.0)
    parser.add_argument(
        '--prompt', default='pretrained-json', help='The sparse vector needs the schema in it.'
    )
    parser.add_argument('--batches', type=int, default=4)
    parser.add_argument('--max-batch-tokens', type=int, default=384)
    args = parser.parse_args()
    if args.data == 'table':
        print('\n'.join(table(args.work)))
    else:
        print(json.dumps(run(args), ensure_ascii=False))


if __name__ == '__main__':
    main()
