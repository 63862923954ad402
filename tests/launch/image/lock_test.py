"""The locks: every package at one version that setup.py allows, with the hashes of its files."""

import pathlib
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests import setup_file

IMAGE = setup_file.ROOT / 'launch' / 'image'
EVERYTHING = setup_file.ROOT / 'requirements.txt'
LOCKS = [EVERYTHING, *sorted(IMAGE.glob('requirements*.txt'))]
REMEDY = 'Run make lock.'


def faults(text: str) -> list[str]:
    """The lines of a lock that are no package at one version with its hashes."""
    found = []
    lines = re.sub(r' \\\n\s*', ' ', re.sub(r'^#.*\n', '', text, flags=re.MULTILINE)).splitlines()
    for line in lines:
        name = re.match(r'([a-z0-9-]+)==([^\s;*]+)((?: --hash=sha256:[0-9a-f]{64})+)$', line)
        if name is None:
            found.append(line)
    return found


def pins(lock: pathlib.Path) -> dict[str, Version]:
    """Package -> its one version."""
    found = re.findall(r'^([a-z0-9-]+)==([^\s;]+)', lock.read_text(), re.MULTILINE)
    assert len(found) == len(dict(found))
    return {name: Version(version) for name, version in found}


def extras_of(variable: str) -> list[str]:
    """The extras that a variable of the Makefile names."""
    text = (setup_file.ROOT / 'Makefile').read_text()
    (named,) = re.findall(rf'^{variable} \?= (.*)$', text, re.MULTILINE)
    return named.split()


def asked_with(extras: list[str]) -> list[str]:
    """The requirements of setup.py, with some of its extras."""
    told = setup_file.requirements()
    return [text for key in (setup_file.INSTALL, *extras) for text in told[key]]


def unmet(lock: dict[str, Version], asked: list[str]) -> list[str]:
    """The requirements that a lock has not, or at a version that they do not allow."""
    needed = [Requirement(text) for text in asked]
    return [
        str(one)
        for one in needed
        if canonicalize_name(one.name) not in lock or lock[canonicalize_name(one.name)] not in one.specifier
    ]


@pytest.mark.parametrize('lock', LOCKS, ids=lambda lock: lock.name)
def test_every_line_is_a_package_at_one_version_with_its_hashes(lock: pathlib.Path) -> None:
    text = lock.read_text()
    assert faults(text) == [] and len(pins(lock)) > 2
    # The index is for the user of the lock to choose.
    assert re.search(r'://|--(?:extra-)?index-url|--find-links', text) is None


def test_everything_that_setup_asks_for_is_locked() -> None:
    extras = extras_of('LOCK_EXTRAS')
    # Compilers for absent devices lie beside the environment.
    assert set(extras) == setup_file.requirements().keys() - {setup_file.INSTALL, 'compile'}, (
        'LOCK_EXTRAS of the Makefile'
    )
    assert unmet(pins(EVERYTHING), asked_with(extras)) == [], REMEDY


def test_what_the_image_needs_is_locked() -> None:
    locked = pins(IMAGE / 'requirements.txt')
    assert unmet(locked, asked_with(extras_of('IMAGE_EXTRAS'))) == [], REMEDY
    assert {'google-cloud-dataflow-client', 'google-cloud-storage', 'psycopg'} <= set(locked)


@pytest.mark.parametrize('variant', ['cuda12', 'tpu', 'build'])
def test_a_variant_changes_no_version_and_fits_jax(variant: str) -> None:
    common, more = pins(IMAGE / 'requirements.txt'), pins(IMAGE / f'requirements-{variant}.txt')
    assert {
        name: version for name, version in more.items() if name in common and version != common[name]
    } == {}
    if variant == 'cuda12':
        assert more['jax-cuda12-plugin'] == more['jax-cuda12-pjrt'] == common['jax']
    elif variant == 'tpu':
        assert 'libtpu' in more


def test_people_and_images_install_the_same_versions() -> None:
    locked = pins(EVERYTHING)
    assert {
        name: version for name, version in pins(IMAGE / 'requirements.txt').items() if version != locked[name]
    } == {}


@pytest.mark.run
def test_pip_refuses_a_file_with_another_hash(tmp_path: pathlib.Path) -> None:
    """On a package of the lock, fetched as its lines say, and with one digit changed."""
    (lines,) = re.findall(r'^six==(?:.*\\\n)+.*\n', EVERYTHING.read_text(), re.MULTILINE)
    changed = re.sub(r'sha256:(.)', lambda digit: f'sha256:{"0" if digit[1] != "0" else "1"}', lines)
    said = {}
    for name, text in (('right', lines), ('wrong', changed)):
        (tmp_path / f'{name}.txt').write_text(text)
        done = subprocess.run(
            [sys.executable, '-m', 'pip', 'download', '--no-cache-dir', '--no-deps', '--require-hashes',
             '--dest', str(tmp_path / name), '--requirement', str(tmp_path / f'{name}.txt')],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        said[name] = done.returncode, done.stderr
    assert said['right'][0] == 0, said['right'][1]
    assert said['wrong'][0] != 0 and 'DO NOT MATCH THE HASHES' in said['wrong'][1]
    assert not list(tmp_path.glob('wrong/*'))
