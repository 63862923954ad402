"""What a run is: digests of its settings, input, model and code, none of which may change until it ends."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import pathlib
import platform
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from models.prompts import PRESETS
from pipeline.config import JobConfig
from pipeline.run.reference import read_reference
from pipeline.run.settings import record_rules, with_absolute_paths, with_dtype
from transforms.durable import is_local, read_file
from transforms.read import check_input, check_same, list_input

# Where a run is carried out changes nothing of what it writes.
MAY_CHANGE = frozenset({'runner', 'accelerator', 'ledger'})
PACKAGE = 'dp-corpus'
# Its extras that a run may use, in setup.py's words; others train, test and compare.
RUN_EXTRAS = ('gcp', 'minilm')
# What an error says of each part that differs.
CHANGES = {
    'run_id': 'It has another run id.',
    'config': 'Its settings were others: config.toml there holds them.',
    'input': 'The input files are not those that it began with.',
    'model': 'The weights, the tokenizer, the adapter, the prompt, the centres or the reference are not '
    'those that it began with.',
    'code': 'Another version of dp-corpus or of a library began it.',
}
_ROOT = pathlib.Path(__file__).parents[2]
_HASHED_BYTES = 64 * 2**20


def fingerprint(config: JobConfig, files: Sequence[str] | None = None) -> dict[str, str]:
    """What may not change between a run and its resumption, as digests: config, input, model, code.

    Settings that change nothing about the output, `MAY_CHANGE`, are left out. Files of up to 64
    MiB, and weights in one file, are known by content; larger ones by name, size and time: reading
    tens of gigabytes would take as long as the run's first stage.

    Args:
        config: The run.
        files: Its `input_files`; looked up where they are not given.

    Raises:
        ValueError: The input names other files now.
    """
    config = with_dtype(with_absolute_paths(config))
    files = input_files(config) if files is None else files
    settings = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in MAY_CHANGE
    }
    return {
        'run_id': config.resolved_run_id,
        'config': hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
        'input': input_digest(str(config.input), files) if config.reads_records else _adapter_digest(config),
        'model': _model_digest(config),
        'code': _code_digest(),
    }


def input_files(config: JobConfig) -> list[str]:
    """The files of a run's input, after a look at each."""
    if not config.reads_records:
        return []
    files = check_input(str(with_absolute_paths(config).input), record_rules(config).fields)
    return [file.path for file in files]


def input_digest(pattern: str, files: Sequence[str]) -> str:
    """Digest of the names and contents of all files that are read, and of no other.

    Args:
        pattern: Comma-separated paths and globs.
        files: What they named when the files were looked at.

    Raises:
        ValueError: They name others now.
    """
    listing = list_input(pattern)
    check_same(files, [file.path for file in listing])
    parts: list[Any] = []
    for file in listing:
        if is_local(file.path) and file.size <= _HASHED_BYTES:
            parts.append((file.path, hashlib.sha256(read_file(file.path)).hexdigest()))
        else:
            # Object stores keep a checksum of the content; of a local file Beam knows its size.
            parts.append((file.path, file.size, file.updated, file.checksum()))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _state(path: pathlib.Path) -> tuple[int, ...]:
    """What changes with a file's content: the system sets the time of its last change."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@functools.lru_cache(maxsize=4096)  # weights are asked for several times on the way to a run
def _content_digest(path: pathlib.Path, state: tuple[int, ...]) -> bytes:
    with path.open('rb') as file:
        return hashlib.file_digest(file, 'sha256').digest()


def _digest_of_files(paths: Iterable[pathlib.Path], whole: Container[pathlib.Path] = ()) -> str:
    """Digest of names and contents; of size and time for what is large and not in `whole`."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        status = path.stat()
        if status.st_size <= _HASHED_BYTES or path in whole:
            content = _content_digest(path, _state(path))
        else:
            content = hashlib.sha256(str(status.st_mtime_ns).encode()).digest()
        for part in (path.name.encode(), str(status.st_size).encode()):
            digest.update(hashlib.sha256(part).digest())
        digest.update(content)
    return digest.hexdigest()


@functools.cache  # of what this process began with
def _code_digest() -> str:
    """Digest of this package's source and of all that is installed for it."""
    sources = (
        path
        for package in ('models', 'transforms', 'pipeline')
        for path in (_ROOT / package).rglob('*')
        if path.suffix in ('.py', '.jinja')
    )
    versions = {'python': platform.python_version(), **installed_versions()}
    parts = _digest_of_files(sources), json.dumps(versions, sort_keys=True)
    return hashlib.sha256('\n'.join(parts).encode()).hexdigest()


def _adapter_digest(config: JobConfig) -> str:
    """Digest of a released adapter, by its card, which holds that of its factors."""
    from pipeline import fine_tuning

    return hashlib.sha256(fine_tuning.read_card(str(config.adapter)).to_json().encode()).hexdigest()


def checkpoint_digest(checkpoint: pathlib.Path) -> str:
    """SHA-256 of the contents of all files of a checkpoint, however large, with their names inside it."""
    digest = hashlib.sha256()
    paths = [checkpoint]
    if not checkpoint.is_file():
        paths = sorted(path for path in checkpoint.rglob('*') if path.is_file())
    for path in paths:
        name = '' if path == checkpoint else str(path.relative_to(checkpoint))
        digest.update(hashlib.sha256(name.encode()).digest())
        digest.update(_content_digest(path, _state(path)))
    return digest.hexdigest()


def _model_digest(config: JobConfig) -> str:
    """Digest of weights, tokenizer, adapter, the texts of the prompt and the reference, and the centres."""
    named = (config.prompt, config.schema, config.json_schema, config.grammar)
    texts = [pathlib.Path(name) for name in named if name and name not in PRESETS]
    files, folders = {config.tokenizer_path, *texts}, [config.checkpoint_path]
    if config.checkpoint_path.is_file():
        # Known by content: fetched again, it has another time and is the same model.
        files.add(config.checkpoint_path)
    if config.clusters is not None:
        folders.append(config.centers_path)
        if pathlib.Path(config.resolved_embedder).is_dir():
            folders.append(pathlib.Path(config.resolved_embedder))
    contents = {path for folder in folders for path in folder.rglob('*') if path.is_file()}
    digests, reference = [_digest_of_files(files | contents, whole=files)], read_reference(config)
    if reference is not None:
        digests.append(reference.digest)
    if config.votes and config.adapter is not None:
        digests.append(_adapter_digest(config))
    return digests[0] if len(digests) == 1 else hashlib.sha256(' '.join(digests).encode()).hexdigest()


def installed_versions() -> Mapping[str, str]:
    """Versions of every installed distribution that this package needs, directly or not.

    What a distribution needs only with an extra that nobody asked for is left out, and so is
    what is not installed.
    """
    found: dict[str, str] = {}
    # A distribution that is met again with another extra needs more.
    seen: set[tuple[str, str]] = set()
    waiting = [(PACKAGE, extra) for extra in ('', *RUN_EXTRAS)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        found[name] = distribution.version
        for requirement in map(Requirement, distribution.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({'extra': extra}):
                wanted = canonicalize_name(requirement.name)
                waiting += [(wanted, chosen) for chosen in ('', *requirement.extras)]
    return found


def software_versions() -> dict[str, str]:
    """Versions that a report names."""
    names = ('dp-corpus', 'apache-beam', 'jax', 'gemma', 'tensorflow-text', 'numpy', 'opendp')
    return {'python': platform.python_version()} | {name: importlib.metadata.version(name) for name in names}
