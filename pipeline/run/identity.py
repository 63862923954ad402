"""What a run is: digests of its settings, input, model and code, none of which may change until it ends."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import pathlib
import platform
from collections.abc import Iterable
from typing import Any

from apache_beam.io.filesystems import FileSystems

from models.prompts import PRESETS
from pipeline.config import JobConfig
from pipeline.run.settings import record_rules, with_absolute_paths
from transforms.durable import is_local, read_file
from transforms.read import check_input

# Where a run is carried out changes nothing of what it writes.
MAY_CHANGE = frozenset({'runner', 'accelerator', 'ledger'})
# What an error says of each part that differs.
CHANGES = {
    'run_id': 'It has another run id.',
    'config': 'Its settings were others: config.toml there holds them.',
    'input': 'The input files are not those that it began with.',
    'model': 'The weights, the tokenizer, the prompt or the centres are not those that it began with.',
    'code': 'Another version of dp-corpus or of a library began it.',
}
_ROOT = pathlib.Path(__file__).parents[2]
_HASHED_BYTES = 64 * 2**20


def fingerprint(config: JobConfig) -> dict[str, str]:
    """What may not change between a run and its resumption, as digests: config, input, model, code.

    Settings that change nothing about the output, `MAY_CHANGE`, are left out. Files of up to 64
    MiB are known by content, larger ones by name, size and time: reading them all would take as
    long as the run's first stage.
    """
    config = with_absolute_paths(config)
    settings = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)
        if field.name not in MAY_CHANGE
    }
    return {
        'run_id': config.resolved_run_id,
        'config': hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
        'input': _input_digest(config),
        'model': _digest_of_files(_model_files(config)),
        'code': _code_digest(),
    }


def _input_digest(config: JobConfig) -> str:
    files = check_input(str(config.input), record_rules(config).fields)
    listing = sorted(
        (metadata.path, metadata.size_in_bytes, metadata.last_updated_in_seconds)
        for match in FileSystems.match(files)
        for metadata in match.metadata_list
    )
    parts: list[Any] = []
    for path, size, updated in listing:
        if is_local(path) and size <= _HASHED_BYTES:
            parts.append((path, hashlib.sha256(read_file(path)).hexdigest()))
        else:
            # Object stores keep a checksum of the content; of a local file Beam knows its size.
            parts.append((path, size, updated, FileSystems.checksum(path)))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _digest_of_files(paths: Iterable[pathlib.Path]) -> str:
    """Digest of names and contents; of size and time for weights, which can be tens of gigabytes."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        status = path.stat()
        small = status.st_size <= _HASHED_BYTES
        content = path.read_bytes() if small else str(status.st_mtime_ns).encode()
        for part in (path.name.encode(), str(status.st_size).encode(), content):
            digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


@functools.cache  # of what this process began with
def _code_digest() -> str:
    """Digest of this package's source and of the versions that compute with it."""
    sources = (
        path
        for package in ('models', 'transforms', 'pipeline')
        for path in (_ROOT / package).rglob('*')
        if path.suffix in ('.py', '.jinja')
    )
    parts = _digest_of_files(sources), json.dumps(software_versions(), sort_keys=True)
    return hashlib.sha256('\n'.join(parts).encode()).hexdigest()


def _model_files(config: JobConfig) -> list[pathlib.Path]:
    checkpoint = config.checkpoint_path
    texts = [pathlib.Path(name) for name in (config.prompt, config.schema) if name and name not in PRESETS]
    folders = [checkpoint]
    if config.clusters is not None:
        folders.append(config.centers_path)
        if pathlib.Path(config.resolved_embedder).is_dir():
            folders.append(pathlib.Path(config.resolved_embedder))
    contents = (path for folder in folders for path in folder.rglob('*') if path.is_file())
    return [config.tokenizer_path, *texts, *contents]


def software_versions() -> dict[str, str]:
    """Versions that a report names."""
    names = ('dp-corpus', 'apache-beam', 'jax', 'gemma', 'tensorflow-text', 'numpy', 'opendp')
    return {'python': platform.python_version()} | {name: importlib.metadata.version(name) for name in names}
