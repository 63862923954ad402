"""The demo: writes invented messages, runs the job on them and shows texts of the corpus.

    python -m launch.demo
    python -m launch.demo fine-tune

The first uses real Gemma if its weights can be downloaded, else the bundled model. The second fine-tunes the
bundled model with DP-SGD and samples more texts from the adapter. Both replace the folder `demo`.
"""

import pathlib
import shutil
import subprocess
import sys

from pyarrow import dataset

from models import fetched

_FOLDER = pathlib.Path('demo')
_HERE = pathlib.Path(__file__).parent
_SHOWN = 5


def first_texts(folder: pathlib.Path, count: int) -> list[tuple[str, str]]:
    """Label and text of the first complete examples of each label, then of the second of each, and so on.

    Of texts that were voted on those with the most noisy votes come first.
    """
    rows = dataset.dataset(folder, format='parquet').to_table().to_pylist()
    rows.sort(key=lambda row: -(row.get('noisy_votes') or 0.0))
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


def _carry_out(folder: pathlib.Path, said: str, records: int, *commands: tuple[str, ...]) -> None:
    """Writes records, runs the commands on them and shows texts of a corpus; an error ends the demo."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    written = ('launch.demo.records', '--output', str(_FOLDER / 'records.jsonl'), '--records', str(records))
    for command in (written, *(('pipeline.main', 'generate', *command) for command in commands)):
        if code := _run(*command):
            raise SystemExit(code)
    print(f'\nFirst texts of {folder}/data{said}:\n')
    for label, text in first_texts(folder / 'data', _SHOWN):
        print(f'  {label}: {text.strip()}\n')


def fine_tune() -> None:
    """Runs the demo of fine-tuning."""
    corpus, more = _FOLDER / 'corpus', _FOLDER / 'more'
    _carry_out(
        more, ', which the adapter gave at no cost', 20_000, ('--config', str(_HERE / 'fine_tune.toml')),
        ('--adapter', str(corpus), '--examples-per-label', '16', '--output', str(more)),
    )  # fmt: skip
    print(f'{corpus}/privacy_report.html says what the adapter cost.')


def main() -> None:
    """Runs the demo."""
    if sys.argv[1:] == ['fine-tune']:
        fine_tune()
        return
    if sys.argv[1:]:
        raise SystemExit(f'Expected fine-tune or no argument, got arguments={sys.argv[1:]}. Leave them out.')
    name, records = 'gemma.toml', 20_000
    if _run('pipeline.main', 'models', 'fetch', fetched.MODEL):
        name, records = 'demo.toml', 4_000
        print(
            'The weights of Gemma 3 270M cannot be downloaded, for the reason above: the demo goes on with '
            'the bundled model. Its text shows that everything works, but it does not read like English.',
            flush=True,
        )
    _carry_out(_FOLDER / 'corpus', '', records, ('--config', str(_HERE / name)))
    print(f'{_FOLDER}/corpus/privacy_report.html says what they cost.')
    # The commands of the environment are beside the interpreter.
    activate = pathlib.Path(sys.executable).parent / 'activate'
    print(f'For your own records: source {activate}, then dp-corpus --help works in any folder.')


if __name__ == '__main__':
    main()
