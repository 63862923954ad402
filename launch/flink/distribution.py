"""Flink itself: the files of a binary release, taken from its two packages on PyPI."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

# Its minor version must be that of the job server (job_server.py). Beam 2.77 publishes job servers for 1.19
# to 2.2; of these, the modules of pom.xml exist for 1.19.
FLINK = '1.19.3'
FLINK_MINOR = FLINK.rpartition('.')[0]
_MIN_JAVA = 11


def fetch_flink(cache: pathlib.Path) -> pathlib.Path:
    """The folder of Flink; downloads it first if it is missing.

    pip checks each download against the checksum of its index. The folder appears whole or not at all, so a
    download that was killed leaves no folder that looks complete.

    Args:
        cache: Folder of downloads.

    Raises:
        RuntimeError: pip cannot download it.
    """
    home = cache / f'flink-{FLINK}'
    if home.is_dir():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix='flink-') as temporary:
        downloads, made = pathlib.Path(temporary) / 'downloads', pathlib.Path(temporary) / 'home'
        pip = [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', f'--dest={downloads}']
        # The wheel has the scripts and the config, the source package has the jars. Nothing of the wheel is
        # imported, so it may be for another Python: 3.11 is the last that it was built for.
        for options in (
            ('--only-binary=:all:', '--python-version=3.11', f'apache-flink=={FLINK}'),
            ('--no-binary=:all:', '--no-build-isolation', f'apache-flink-libraries=={FLINK}'),
        ):
            result = subprocess.run([*pip, *options], capture_output=True, text=True)
            if result.returncode:
                raise RuntimeError(
                    f'Expected pip to download {options[-1]}, got: {_last_lines(result.stderr)} Check the '
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
        for script in (made / 'bin').glob('*.sh'):
            script.chmod(0o755)
        made.rename(home)
    return home


def check_java() -> None:
    """Checks that this machine has a Java that can run Flink.

    Raises:
        FileNotFoundError: There is no Java.
        RuntimeError: It is too old.
    """
    home = os.environ.get('JAVA_HOME')
    java = str(pathlib.Path(home) / 'bin' / 'java') if home else shutil.which('java')
    if java is None or not pathlib.Path(java).is_file():
        raise FileNotFoundError(
            f'Expected Java {_MIN_JAVA} or later, got no command java, JAVA_HOME={home!r}. Install it '
            '(Debian: apt-get install openjdk-17-jre-headless).'
        )
    text = subprocess.run([java, '-version'], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', text)
    if found is None or int(found[1]) < _MIN_JAVA:
        raise RuntimeError(
            f'Expected Java {_MIN_JAVA} or later, got java={java!r}, which answers {text.splitlines()[:1]}. '
            'Install 17, or set JAVA_HOME.'
        )


def _write(path: pathlib.Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _last_lines(text: str) -> str:
    return ' '.join(text.split('\n')[-4:]).strip()
