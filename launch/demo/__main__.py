"""The demo: invented messages, the job on real Gemma where its weights can be had, and what it wrote.

    python -m launch.demo
    python -m launch.demo fine-tune

The second fine-tunes the bundled model with DP-SGD in place of votes, and samples more texts from the
adapter. Everything lands in the folder `demo`, which is begun anew.
"""

import pathlib
import shutil
import subprocess
import sys

from pyarrow import dataset

_FOLDER = pathlib.Path('demo')
_HERE = pathlib.Path(__file__).parent
_SHOWN = 5


def first_texts(folder: pathlib.Path, count: int) -> list[tuple[str, str]]:
    """Label and text of complete examples as they came: the first of each label, then the second, ..."""
    rows = dataset.dataset(folder, format='parquet').to_table().to_pylist()
    seen: dict[str, int] = {}
    ranked = []
    for row in rows:
        if row['text'].strip() and not row['truncated']:
            seen[row['label']] = seen.get(row['label'], 0) + 1
            ranked.append((seen[row['label']], row['label'], row['text']))
    return [(label, text) for _, label, text in sorted(ranked, key=lambda row: row[0])[:count]]


def _run(*command: str) -> int:
    """Shows a command and runs it, in this interpreter."""
    print(f'\n$ python -m {" ".join(command)}', flush=True)
    return subprocess.run([sys.executable, '-m', *command], check=False).returncode


def fine_tune() -> None:
    """Runs the demo of fine-tuning."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    corpus, more = _FOLDER / 'corpus', _FOLDER / 'more'
    for command in (
        ('launch.demo.records', '--output', str(_FOLDER / 'records.jsonl'), '--records', '20000'),
        ('pipeline.main', 'generate', '--config', str(_HERE / 'fine_tune.toml')),
        (
            *('pipeline.main', 'generate', '--adapter', str(corpus)),
            *('--examples-per-label', '16', '--output', str(more)),
        ),
    ):
        if code := _run(*command):
            raise SystemExit(code)
    print(f'\nFrom {more}/data, sampled from the adapter for free, as they came:\n')
    for label, text in first_texts(more / 'data', _SHOWN):
        print(f'  {label}: {text.strip()}\n')
    print(f'Open {corpus}/privacy_report.html for what the adapter cost.')


def main() -> None:
    """Runs the demo."""
    if sys.argv[1:] == ['fine-tune']:
        fine_tune()
        return
    if sys.argv[1:]:
        raise SystemExit(f'Expected fine-tune or nothing, got arguments={sys.argv[1:]}. Leave them out.')
    name, records = 'gemma.toml', 2_048
    if _run('launch.weights'):
        name, records = 'demo.toml', 4_000
        print(
            'The weights of Gemma 3 270M cannot be had here, for the reason above: the demo goes on with the '
            'bundled model, whose text shows that everything works and does not read like English.',
            flush=True,
        )
    shutil.rmtree(_FOLDER, ignore_errors=True)
    for command in (
        ('launch.demo.records', '--output', str(_FOLDER / 'records.jsonl'), '--records', str(records)),
        ('pipeline.main', 'generate', '--config', str(_HERE / name)),
    ):
        if code := _run(*command):
            raise SystemExit(code)
    print(f'\nFrom {_FOLDER}/corpus/data, as they came:\n')
    for label, text in first_texts(_FOLDER / 'corpus' / 'data', _SHOWN):
        print(f'  {label}: {text.strip()}\n')
    print(f'Open {_FOLDER}/corpus/privacy_report.html for what they cost.')
    # Where the environment was made: its commands are beside the interpreter.
    activate = pathlib.Path(sys.executable).parent / 'activate'
    print(f'For records of your own: source {activate}, then dp-corpus --help works in any folder.')


if __name__ == '__main__':
    main()
