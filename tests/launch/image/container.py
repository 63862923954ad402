"""The image for its test: its Dockerfile built by Buildah, on bases that are made here, and run by runc.

A container registry is not asked. In place of the three images that the Dockerfile names stand

* python: a Debian of the same release (debootstrap), and a copy of the Python that runs the tests, of the
  same minor version, with a pip of its own;
* Beam's: its boot program, compiled from the source of the same release. The rest of /opt/apache/beam is
  licences;
* the launcher of a Flex Template, whose source nobody publishes: a file that does nothing.

So it does not show that the registry has these tags. All else of the Dockerfile is carried out as it stands.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests import setup_file
from tests.launch.image.dockerfile_test import instructions

IMAGE = setup_file.ROOT / 'launch' / 'image'

LAUNCHER = 'opt/google/dataflow/python_template_launcher'
BOOT = 'opt/apache/beam/boot'
# Packages that Python's own modules are linked with.
LIBRARIES = (
    'ca-certificates', 'libbz2-1.0', 'libexpat1', 'libffi8', 'liblzma5', 'libncursesw6', 'libreadline8',
    'libsqlite3-0', 'libssl3', 'libuuid1', 'netbase', 'tzdata', 'zlib1g',
)  # fmt: skip
PATH = '/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin'


def missing() -> str:
    """Why no image can be built and run here; empty if one can."""
    absent = [name for name in ('buildah', 'debootstrap', 'go', 'runc') if shutil.which(name) is None]
    if absent:
        return f'Not installed: {", ".join(absent)}'
    return 'Not root' if os.geteuid() else ''


def run(*command: object, **environment: str) -> str:
    """Runs a program to its end, and gives what it wrote to standard output.

    Raises:
        AssertionError: It failed; the text has the end of all that it wrote.
    """
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True, text=True, check=False, env=os.environ | environment,
    )  # fmt: skip
    assert done.returncode == 0, f'{command}: {(done.stdout + done.stderr)[-4000:]}'
    return done.stdout


class Store:
    """Images, in a folder of their own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def buildah(self, *words: object) -> str:
        places = ('--root', self.folder / 'images', '--runroot', self.folder / 'running')
        # Without it Buildah copies gigabytes at each step. It is used where the kernel has it.
        driver = 'overlay' if 'overlay' in pathlib.Path('/proc/filesystems').read_text() else 'vfs'
        return run('buildah', *places, *words, STORAGE_DRIVER=os.environ.get('STORAGE_DRIVER', driver))

    @contextlib.contextmanager
    def container(self, image: str) -> Iterator[tuple[str, pathlib.Path]]:
        """A container of an image, and the folder of its files."""
        name = self.buildah('from', '--pull-never', image).strip()
        try:
            yield name, pathlib.Path(self.buildah('mount', name).strip())
        finally:
            self.buildah('rm', name)

    def base(self, tag: str, fill: Callable[[pathlib.Path], None]) -> None:
        with self.container('scratch') as (name, root):
            fill(root)
            self.buildah('config', '--env', f'PATH={PATH}', name)
            self.buildah('commit', '--quiet', name, tag)

    def bases(self) -> None:
        """The images that the Dockerfile asks a registry for."""
        text = (IMAGE / 'Dockerfile').read_text()
        defaults = dict(re.findall(r'^ARG (\w+)=(\S+)$', text, re.MULTILINE))
        named = [rest.split(' AS ') for instruction, rest in instructions(text) if instruction == 'FROM']
        images = {
            stage: re.sub(r'\$\{(\w+)\}', lambda name: defaults[name[1]], image) for image, stage in named
        }
        release = images['beam'].partition(':')[2]
        self.base(f'docker.io/library/{images["common"]}', _python)
        self.base(f'docker.io/{images["beam"]}', lambda root: _boot(root, release, self.folder))
        self.base(images['launcher'], _launcher)

    def build(self, tag: str, jax: str, *options: str) -> None:
        """Carries out the Dockerfile."""
        # Buildah of Debian 12 does not know a stage by a build argument.
        written = self.folder / 'Dockerfile'
        written.write_text((IMAGE / 'Dockerfile').read_text().replace('${JAX}', jax))
        settings = _index_settings()
        for name, text in (('pip.conf', _of_pip(settings)), ('uv.toml', _of_uv(settings))):
            (self.folder / name).touch(mode=0o600)
            (self.folder / name).write_text(text)
        certificates = pathlib.Path('/etc/ssl/certs')
        self.buildah(
            'build', '--isolation', 'chroot', '--pull-never', '--layers',
            '--ignorefile', IMAGE / 'Dockerfile.dockerignore', '--file', written,
            # The way of this machine to the package index, for the steps alone.
            '--volume', f'{self.folder / "pip.conf"}:/etc/pip.conf:ro',
            '--volume', f'{self.folder / "uv.toml"}:/etc/uv/uv.toml:ro',
            '--volume', f'{certificates}:{certificates}:ro',
            '--tag', tag, *options, setup_file.ROOT,
        )  # fmt: skip

    def config(self, image: str) -> dict[str, Any]:
        """User, environment, entry point and labels, as a container engine reads them."""
        return json.loads(self.buildah('inspect', '--type', 'image', image))['OCIv1']['config']

    def remove(self) -> None:
        self.buildah('rm', '--all')
        self.buildah('rmi', '--all', '--force')
        shutil.rmtree(self.folder)


def _index_settings() -> dict[str, str]:
    """The settings of pip here that say how to reach an index."""
    settings = {}
    for line in run(sys.executable, '-m', 'pip', 'config', 'list').splitlines():
        name, _, value = line.partition('=')
        name = name.removeprefix(':env:.').removeprefix('global.')
        if name in ('cert', 'default-timeout', 'extra-index-url', 'index-url', 'proxy', 'trusted-host'):
            settings.setdefault(name, value.strip(chr(39)))
    return settings


def _of_pip(settings: Mapping[str, str]) -> str:
    """pip.conf."""
    lines = [f'{name} = {value}' for name, value in settings.items()]
    return '\n'.join(['[global]', 'disable-pip-version-check = true', *lines, ''])


def _of_uv(settings: Mapping[str, str]) -> str:
    """uv.toml. The certificates are those of the mounted folder."""
    lines = ['system-certs = true']
    for name, of_uv in (('index-url', 'index-url'), ('proxy', 'http-proxy')):
        if name in settings:
            lines.append(f'{of_uv} = {json.dumps(settings[name])}')
    for name, of_uv in (('extra-index-url', 'extra-index-url'), ('trusted-host', 'allow-insecure-host')):
        if name in settings:
            lines.append(f'{of_uv} = {json.dumps(settings[name].split())}')
    return '\n'.join([*lines, ''])


def _python(root: pathlib.Path) -> None:
    release = run('sh', '-c', '. /etc/os-release && echo $VERSION_CODENAME').strip()
    (asked,) = set(re.findall(r'python:\S+-slim-(\w+) AS', (IMAGE / 'Dockerfile').read_text()))
    assert release == asked, f'Expected Debian {asked}, whose libraries this Python is linked with.'
    run('debootstrap', '--variant=minbase', f'--include={",".join(LIBRARIES)}', asked, root)
    for archive in (root / 'var/cache/apt/archives').glob('*.deb'):
        archive.unlink()
    installed, version = pathlib.Path(sys.base_prefix), f'python{sysconfig.get_python_version()}'
    into = root / 'usr/local'
    shutil.copy2(installed / 'bin' / version, into / 'bin' / version)
    for library in (installed / 'lib').glob('libpython3*.so*'):
        shutil.copy2(library, into / 'lib', follow_symlinks=False)
    shutil.copytree(
        installed / 'lib' / version, into / 'lib' / version,
        ignore=shutil.ignore_patterns('site-packages', 'test', '__pycache__'),
    )  # fmt: skip
    (into / 'lib' / version / 'site-packages').mkdir()
    for name in ('python3', 'python'):
        (into / 'bin' / name).symlink_to(version)
    run('chroot', root, 'ldconfig')
    run('chroot', root, f'/usr/local/bin/{version}', '-m', 'ensurepip', '--default-pip', PATH=PATH)


def _boot(root: pathlib.Path, release: str, folder: pathlib.Path) -> None:
    source = f'github.com/apache/beam/sdks/v2/python/container@v{release}'
    run('go', 'install', source, GOBIN=str(folder / 'go'), GOFLAGS='-modcacherw', CGO_ENABLED='0')
    (root / BOOT).parent.mkdir(parents=True)
    shutil.copy2(folder / 'go' / 'container', root / BOOT)


def _launcher(root: pathlib.Path) -> None:
    (root / LAUNCHER).parent.mkdir(parents=True)
    (root / LAUNCHER).write_text('#!/bin/sh\nexit 1\n')
    (root / LAUNCHER).chmod(0o755)


# --- A container that runs -------------------------------------------------------


def started(
    root: pathlib.Path,
    image: Mapping[str, Any],
    command: list[str],
    bundle: pathlib.Path,
    volumes: Mapping[str, pathlib.Path],
) -> 'subprocess.CompletedProcess[str]':
    """Runs a command as a pod under Kubernetes' restricted standard does, and without a network.

    The image's user and environment; no capability and no way to get one; all files read-only but the
    volumes and a /tmp of memory.

    Args:
        root: Files of the image.
        image: Its config.
        command: The command that runs in place of the entry point.
        bundle: An empty folder, for the container's own config.
        volumes: Folder in the container -> folder here.
    """
    bundle.mkdir()
    run('runc', 'spec', '--bundle', bundle)
    config = json.loads((bundle / 'config.json').read_text())
    user, group = (int(number) for number in image['User'].split(':'))
    config['root'] = {'path': str(root), 'readonly': True}
    config['process'] |= {
        'terminal': False,
        'user': {'uid': user, 'gid': group},
        'args': command,
        'env': image['Env'],
        'cwd': image['WorkingDir'],
        'capabilities': {name: [] for name in config['process']['capabilities']},
        'noNewPrivileges': True,
        'rlimits': [],  # those of this machine, and not runc's example
    }
    # As every container engine writes it: workers find each other by the host's name.
    config['hostname'] = 'pod'
    (bundle / 'hosts').write_text('127.0.0.1 localhost pod\n')
    config['mounts'] += [
        {
            'destination': '/etc/hosts',
            'type': 'bind',
            'source': str(bundle / 'hosts'),
            'options': ['bind', 'ro'],
        },
        {
            'destination': '/tmp',
            'type': 'tmpfs',
            'source': 'tmpfs',
            'options': ['mode=1777', 'nosuid', 'nodev'],
        },
        *(
            {'destination': there, 'type': 'bind', 'source': str(here), 'options': ['rbind', 'rw', 'nosuid']}
            for there, here in volumes.items()
        ),
    ]
    (bundle / 'config.json').write_text(json.dumps(config))
    return subprocess.run(
        ['runc', 'run', '--bundle', str(bundle), f'dp-corpus-{bundle.name}-{os.getpid()}'],
        capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
