"""The demo: what it prints, what it falls back on, and that its settings are settings."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pyarrow
import pyarrow.parquet
import pytest

from launch.demo.__main__ import first_texts
from pipeline.asked.config import read_config
from tests.listening import Listener

ROOT = pathlib.Path(__file__).parents[3]


def test_first_texts_are_complete_ones_of_each_label_in_turn(tmp_path: pathlib.Path) -> None:
    rows = [
        ('b', 'cut', True), ('b', 'b1', False), ('b', ' ', False), ('a', 'a1', False), ('b', 'b2', False),
        ('b', 'b3', False), ('a', 'a2', False), ('c', 'c1', False),
    ]  # fmt: skip
    names = ('label', 'text', 'truncated')
    table = pyarrow.table({name: [row[index] for row in rows] for index, name in enumerate(names)})
    pyarrow.parquet.write_table(table, tmp_path / 'train-00000-of-00001.parquet')
    assert first_texts(tmp_path, 5) == [('b', 'b1'), ('a', 'a1'), ('c', 'c1'), ('b', 'b2'), ('a', 'a2')]


def test_the_bundled_settings_are_settings() -> None:
    assert read_config(str(ROOT / 'launch' / 'demo' / 'demo.toml'), {}).method.model == 'bundled'


@pytest.mark.heavy
def test_the_settings_on_gemma_are_settings() -> None:
    config = read_config(str(ROOT / 'launch' / 'demo' / 'gemma.toml'), {})
    assert config.method.model == 'gemma3-270m' and config.method.prompt_name == 'document'


@pytest.mark.first
@pytest.mark.run
def test_without_the_weights_it_says_so_and_goes_on(tmp_path: pathlib.Path) -> None:
    """pip is told that there is no registry, and the cache is empty; the corpus is the bundled model's.

    No process of the demo listens anywhere.
    """
    environment = os.environ | {
        'PYTHONPATH': str(ROOT), 'PIP_NO_INDEX': '1', 'XDG_CACHE_HOME': str(tmp_path / 'cache'),
        'DP_CORPUS_CACHE': str(tmp_path / 'cache'),
    }  # fmt: skip
    listener = Listener()
    done = listener.run([sys.executable, '-m', 'launch.demo'], cwd=tmp_path, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    assert listener.wait() == set()
    said = 'cannot be downloaded, for the reason above: the demo goes on with the bundled model'
    assert said in done.stdout
    assert 'demo/corpus/privacy_report.html' in done.stdout
    report = json.loads((tmp_path / 'demo' / 'corpus' / 'privacy_report.json').read_text())
    for label, text in first_texts(tmp_path / 'demo' / 'corpus' / 'data', 5):
        assert f'{label}: {text.strip()}' in done.stdout
    assert report['corpus']['examples'] > 5
    (activate,) = re.findall(r'source (\S+), then dp-corpus --help', done.stdout)
    found = subprocess.run(
        ['bash', '-c', f'source {activate} && command -v dp-corpus'],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stdout.strip() == str(pathlib.Path(activate).with_name('dp-corpus')), found.stderr
