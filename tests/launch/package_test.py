"""The package as others install it: from its sources alone, with and without a network."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pyarrow.parquet as pq
import pytest

ROOT = pathlib.Path(__file__).parents[2]
# Folders that an engine or a person reads in the checkout, and no module opens.
READ_IN_THE_CHECKOUT = {'launch/airflow', 'launch/image', 'launch/kubernetes'}
WITHOUT_NETWORK = ['unshare', '--map-root-user', '--net']


def run(*command: object, folder: pathlib.Path = ROOT, **variables: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.run
def test_a_wheel_of_the_source_archive_holds_every_file_that_a_module_opens(tmp_path: pathlib.Path) -> None:
    tracked = run('git', 'ls-files', 'dp_corpus', 'launch', 'models', 'pipeline', 'transforms').split()
    sources = tmp_path / 'sources'
    for name in [*tracked, 'LICENSE', 'README.md', 'pyproject.toml', 'setup.py']:
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, sources / name)
    build = 'import setuptools.build_meta; setuptools.build_meta.build_sdist("..")'
    run(sys.executable, '-c', build, folder=sources)
    (archive,) = tmp_path.glob('*.tar.gz')
    run(sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps', '--no-build-isolation',
        '--wheel-dir', tmp_path, archive)  # fmt: skip
    (wheel,) = tmp_path.glob('*.whl')
    held = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        name
        for name in tracked
        if pathlib.Path(name).suffix not in ('.md', '.sh')
        and not any(name.startswith(f'{folder}/') for folder in READ_IN_THE_CHECKOUT)
    }
    assert len(expected) > 150 and expected - held == set()


@pytest.mark.run
def test_a_machine_without_a_network_installs_the_wheelhouse_and_runs_a_job(tmp_path: pathlib.Path) -> None:
    """An empty environment and an empty folder, in a network namespace that has no way out."""
    if subprocess.run([*WITHOUT_NETWORK, 'true'], capture_output=True).returncode:
        pytest.skip('No network namespaces here: an installation without a network is not tested.')
    house, environment, folder = (tmp_path / name for name in ('wheelhouse', 'environment', 'empty'))
    run('make', 'wheelhouse', f'WHEELHOUSE={house}')
    run(sys.executable, '-m', 'venv', environment)
    pip = [*WITHOUT_NETWORK, environment / 'bin/pip', '--disable-pip-version-check']
    # It would compile four gigabytes, of which a run needs a tenth.
    run(*pip, 'install', '--quiet', '--no-compile', '--no-index', '--find-links', house, 'dp-corpus[gemma]')
    shutil.rmtree(house)
    folder.mkdir()
    rows = [{'text': f'The guest of room {n} found the bed hard.', 'label': 'Hotel'} for n in range(40)]
    (folder / 'records.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    run(
        *WITHOUT_NETWORK, environment / 'bin/dp-corpus', 'generate', '--input', 'records.jsonl',
        '--label-field', 'label', '--labels', 'Hotel', '--epsilon', '5', '--delta', '1e-3',
        '--batch-size', '16', '--batches-per-label', '1', '--max-batch-tokens', '16',
        '--output', 'corpus', '--quiet',
        folder=folder, PYTHONPATH='',
    )  # fmt: skip
    assert pq.read_table(folder / 'corpus' / 'data').num_rows
    report = json.loads((folder / 'corpus' / 'privacy_report.json').read_text())
    assert 0 < report['epsilon'] <= 5
    shutil.rmtree(environment)


# Megabytes of an environment as `du -sm` counts them, by extras: docs/quickstart.md has what was measured.
MOST_MEGABYTES = {'': 900, '[endpoint]': 1200}


@pytest.mark.run
@pytest.mark.parametrize('extras', MOST_MEGABYTES)
def test_an_installation_without_models_is_light_and_plans(extras: str, tmp_path: pathlib.Path) -> None:
    tracked = run('git', 'ls-files', 'dp_corpus', 'launch', 'models', 'pipeline', 'transforms').split()
    sources, environment = tmp_path / 'sources', tmp_path / 'environment'
    for name in [*tracked, 'LICENSE', 'README.md', 'pyproject.toml', 'setup.py']:
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, sources / name)
    run(sys.executable, '-m', 'venv', environment)
    run(environment / 'bin/pip', 'install', '--quiet', f'{sources}{extras}', folder=tmp_path)
    assert int(run('du', '-sm', environment).split()[0]) < MOST_MEGABYTES[extras]
    plan = ('plan', '--method', 'evolve', '--epsilon', '1', '--records', '1000', '--json')
    shown = run(environment / 'bin/dp-corpus', *plan, folder=tmp_path, PYTHONPATH='')
    assert json.loads(shown)['epsilon'] <= 1
    shutil.rmtree(environment)
