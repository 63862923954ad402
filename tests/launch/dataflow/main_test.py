"""The script and the command line behind it: what they show, and what they refuse."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from launch.dataflow import commands, profiles

ROOT = pathlib.Path(__file__).parents[3]
IMAGE = 'images.example.org/a-project/dp-corpus:1'
PLACE = profiles.Place(
    project='a-project', region='us-central1', image=IMAGE, temp_location='gs://a-bucket/tmp'
)


def script(*arguments: str, **environment: str) -> 'subprocess.CompletedProcess[str]':
    return subprocess.run(
        ['bash', str(ROOT / 'launch' / 'dataflow' / 'dataflow.sh'), *arguments],
        capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {'PYTHON': sys.executable} | environment,
    )  # fmt: skip


@pytest.mark.run
def test_the_script_shows_the_command_of_the_module() -> None:
    place = ['--project=a-project', '--region=us-central1', f'--image={IMAGE}']
    place.append('--temp-location=gs://a-bucket/tmp')
    done = script('nvidia-l4', '--dry-run', *place, '--', '--input=gs://a-bucket/in.jsonl', '--epsilon', '3')
    assert done.returncode == 0, done.stderr
    expected = commands.generate_command(
        profiles.PROFILES['nvidia-l4'], PLACE, ['--input=gs://a-bucket/in.jsonl', '--epsilon', '3']
    )
    assert shlex.split(done.stdout) == expected


def test_the_script_knows_the_profiles() -> None:
    text = (ROOT / 'launch' / 'dataflow' / 'dataflow.sh').read_text()
    (named,) = re.findall(r"^PROFILES='(.*)'$", text, re.MULTILINE)
    assert named.split() == list(profiles.PROFILES)


@pytest.mark.run
@pytest.mark.parametrize(
    'arguments, shown',
    [
        (['image', IMAGE, 'tpu'], f'--build-arg JAX=tpu --tag {IMAGE} .'),
        (['image', IMAGE, 'cuda12', 'launch'], '--build-context weights=launch'),
        (
            ['template', IMAGE, 'gs://a-bucket/t.json'],
            f'flex-template build gs://a-bucket/t.json --image={IMAGE}',
        ),
    ],
)
def test_the_script_shows_what_it_would_build(arguments: list[str], shown: str) -> None:
    done = script(*arguments, DRY_RUN='1')
    assert done.returncode == 0 and shown in done.stdout


@pytest.mark.run
@pytest.mark.parametrize(
    'arguments, said',
    [
        ([], 'start a run'),
        (['nvidia-h200'], 'start a run'),
        (['image', IMAGE, 'rocm'], 'cpu, cuda12 or tpu'),
        (['image', IMAGE, 'tpu', 'no-such-folder'], 'folder of weights'),
        (['template', IMAGE, 'here.json'], 'gs://BUCKET/NAME.json'),
        (
            ['nvidia-l4', '--project=p', '--region=r', '--image=x', '--temp-location=gs://b/t'],
            'image with a tag',
        ),
        (
            ['nvidia-l4', '--project=p', '--region=r', '--image=x', '--temp-location=t', '--template=t'],
            'Expected --template and --job-name together',
        ),
    ],
)
def test_the_script_refuses(arguments: list[str], said: str) -> None:
    done = script(*arguments)
    assert done.returncode == 2 and said in done.stderr
