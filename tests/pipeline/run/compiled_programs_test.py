"""A run keeps what it compiles where its setting says, and the next one compiles nothing."""

import os
import pathlib
import subprocess
import sys

import pytest

from launch.demo.records import demo_records
from tests.samples import write_rows

ROOT = pathlib.Path(__file__).parents[3]


def _run(folder: pathlib.Path, name: str, *flags: str) -> list[str]:
    """Names of the compiled programs in the user's cache folder after a run."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith('JAX_')}
    done = subprocess.run(
        [sys.executable, '-m', 'pipeline.main', 'predict', f'--input={folder / "records.jsonl"}',
         '--label-field=label', '--labels=Billing,Delivery', '--record-id-field=id', '--records=40',
         '--epsilon=8', '--delta=1e-3', '--batch-size=8', '--max-batch-tokens=6', '--max-prompt-tokens=48',
         # Any draw of batches and examples has the same programs.
         '--micro-batch-size=64', '--reference-rounds=1', '--max-example-tokens=6',
         f'--output={folder / name}', f'--run-id={name}', *flags],
        cwd=ROOT, env=environment | {'JAX_PLATFORMS': 'cpu', 'DP_CORPUS_CACHE': str(folder / 'cache')},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Nothing of it lies beside the corpus.
    assert not list((folder / name).rglob('*-cache'))
    return sorted(path.name for path in (folder / 'cache').rglob('compiled/*/*'))


@pytest.mark.run
@pytest.mark.heavy
def test_the_second_run_compiles_nothing(tmp_path: pathlib.Path) -> None:
    write_rows(
        tmp_path / 'records.jsonl',
        [record for record in demo_records(80) if record['label'] in ('Billing', 'Delivery')],
    )
    assert not _run(tmp_path, 'without', '--compilation-cache=none')
    programs = _run(tmp_path, 'first')
    assert any('run_loop' in name for name in programs)
    assert _run(tmp_path, 'second') == programs
