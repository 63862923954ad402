"""Beam's job server, which turns a pipeline into a Flink job; Maven downloads it.

Beam publishes it as one jar. Where Maven's repository does not hold that jar, the job server is put together
from the modules of Beam that pom.xml names. Either is changed so that its servers, and those of task
managers, listen on localhost alone (`bound_servers`).
"""

import importlib.metadata
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
import zipfile

from launch.flink import bound_servers
from launch.flink.distribution import FLINK_MINOR

POM = pathlib.Path(__file__).with_name('pom.xml')
_LOG_SETTINGS = POM.with_name('simplelogger.properties')
_MODULES = xml.etree.ElementTree.parse(POM).findtext('{*}properties/{*}beam.version')
JOB_SERVER = f'beam-runners-flink-{FLINK_MINOR}-job-server'
ASSEMBLED = f'{JOB_SERVER}-{_MODULES}-assembled-bound.jar'
_MAVEN_COPY = 'org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy'
# Their versions are the pom's.
_MAVEN_JAR = 'org.apache.maven.plugins:maven-jar-plugin:jar'
_MAVEN_SHADE = 'org.apache.maven.plugins:maven-shade-plugin:shade'
# -U: what was missing yesterday may be there today.
_MAVEN_OPTIONS = ('-B', '-q', '-U', '-Dstyle.color=never')


def fetch_job_server(cache: pathlib.Path) -> pathlib.Path:
    """The file of Beam's job server for this Flink; downloads it first if it is missing.

    This is the jar that Beam publishes for the installed version. Where Maven's repository does not hold
    it, a jar is put together from the modules of pom.xml; its name ends in -assembled. Maven checks each
    download against the checksums of its repository. The file appears whole or not at all.

    Args:
        cache: Folder of downloads. A jar of either kind that it holds is used again.

    Raises:
        FileNotFoundError: There is no Maven.
        RuntimeError: Maven cannot download it.
    """
    version = importlib.metadata.version('apache-beam')
    published, assembled = cache / f'{JOB_SERVER}-{version}-bound.jar', cache / ASSEMBLED
    for jar in (published, assembled):
        if jar.is_file():
            return jar
    maven = _find_maven()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix='job-server-') as temporary:
        folder = pathlib.Path(temporary)
        artifact, fetched = f'org.apache.beam:{JOB_SERVER}:{version}', folder / f'{JOB_SERVER}-{version}.jar'
        answer = _run_maven(
            maven, folder, _MAVEN_COPY, f'-Dartifact={artifact}', '-DoutputDirectory=.', made=fetched.name
        )
        if answer is None:
            bound_servers.bind(fetched)
            fetched.rename(published)
            return published
        # If the repository cannot be reached, Maven says 'Could not transfer artifact' instead.
        if f'Could not find artifact org.apache.beam:{JOB_SERVER}:' not in answer:
            raise _maven_failed(artifact, answer)
        print(
            f"Maven's repository does not hold {artifact}. The job server is put together from the modules "
            f'of Beam {_MODULES} instead.',
            file=sys.stderr,
        )
        # The two goals of `mvn package` that are needed. The others would download more plugins.
        classes = folder / 'target' / 'classes'
        classes.mkdir(parents=True)
        shutil.copyfile(POM, folder / POM.name)
        shutil.copyfile(_LOG_SETTINGS, classes / _LOG_SETTINGS.name)
        answer = _run_maven(maven, folder, _MAVEN_JAR, _MAVEN_SHADE, made='target/job-server.jar')
        if answer is not None:
            raise _maven_failed(f'org.apache.beam:beam-runners-flink-{FLINK_MINOR}:{_MODULES}', answer)
        made = folder / 'target' / 'job-server.jar'
        bound_servers.bind(made)
        made.rename(assembled)
    return assembled


def bound_copy(jar: pathlib.Path, cache: pathlib.Path) -> pathlib.Path:
    """A copy of somebody's job server in the cache, whose servers listen on localhost alone.

    Raises:
        ValueError: It is no job server of Beam.
    """
    cache.mkdir(parents=True, exist_ok=True)
    made = cache / f'{jar.stem}-bound.jar'
    with tempfile.TemporaryDirectory(dir=cache, prefix='job-server-') as temporary:
        copied = pathlib.Path(temporary) / jar.name
        shutil.copyfile(jar, copied)
        bound_servers.bind(copied)
        copied.replace(made)
    return made


def describe(jar: pathlib.Path) -> str:
    """The origin of a fetched job server, in words."""
    assembled = jar.name == ASSEMBLED
    return f'put together from modules of Beam {_MODULES}' if assembled else 'as Beam publishes it'


def _find_maven() -> str:
    maven = shutil.which('mvn')
    if maven is None:
        raise FileNotFoundError(
            "Expected Maven, which downloads Beam's job server, got no command mvn. Install it "
            '(Debian: apt-get install maven), or give the jar with --job-server-jar.'
        )
    return maven


def _run_maven(maven: str, folder: pathlib.Path, *arguments: str, made: str) -> str | None:
    """Runs Maven in a folder; returns None if it made the file `made`, else what it printed."""
    result = subprocess.run([maven, *_MAVEN_OPTIONS, *arguments], capture_output=True, text=True, cwd=folder)
    return None if result.returncode == 0 and zipfile.is_zipfile(folder / made) else result.stdout


def _maven_failed(artifact: str, answer: str) -> RuntimeError:
    return RuntimeError(
        f'Expected Maven to download {artifact}, got: {_first_error(answer)} Check the network and '
        "Maven's settings, or give the jar with --job-server-jar."
    )


def _first_error(text: str) -> str:
    return next((line for line in text.split('\n') if 'ERROR' in line), text.strip()[-300:])
