"""The identity of a run: digests of settings, input, model and code. None may change until it ends."""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from models import extras
from pipeline import methods
from pipeline.methods.solved import Run
from pipeline.run.digests import HASHED_BYTES, digest_of_files
from pipeline.run.record_rules import record_rules
from transforms.durable import is_local, read_file
from transforms.read import RecordFields, check_input, check_same, list_input

# Settings that change nothing of what a run writes: they say where it is carried out.
MAY_CHANGE = frozenset({'runner', 'accelerator', 'compilation_cache', 'device_hour_price', 'ledger'})
PACKAGE = 'dp-corpus'
# Its extras that a run may use, in setup.py's words; others train, test and compare.
RUN_EXTRAS = (extras.GCP, extras.MINILM, extras.ENDPOINT, extras.GEMMA)
# The words of an error for each part that differs.
CHANGES = {
    'run_id': 'It has another run id.',
    'config': 'Its settings were others: config.toml there holds them.',
    'input': 'The records of --input are not those that it began with.',
    'model': 'The weights, the tokenizer, the adapter, the prompt, the centres or the reference are not '
    'those that it began with.',
    'code': 'Another version of dp-corpus or of a library began it.',
}
_ROOT = pathlib.Path(__file__).parents[2]


def fingerprint(run: Run, files: Sequence[str] | None = None) -> dict[str, str]:
    """Digests of what may not change between a run and its resumption: config, input, model, code.

    Settings that change nothing about the output, `MAY_CHANGE`, are left out. Files of up to 64
    MiB, and weights in one file, are known by content; larger ones by name, size and time: reading
    tens of gigabytes would take as long as the run's first stage.

    Raises:
        ValueError: The input names other files now.
    """
    files = input_files(run) if files is None else files
    settings = {name: value for name, value in run.config.settings().items() if name not in MAY_CHANGE}
    digests = {
        'run_id': run.run_id,
        'config': hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
        'code': _code_digest(),
        **methods.of(run).digests(run),
    }
    if run.method.reads_records:
        digests['input'] = input_digest(
            str(run.input.input), files, record_rules(run.input, run.budget.unit).fields
        )
    return digests


def input_files(run: Run) -> list[str]:
    """The files of a run's input, after a look at each."""
    if not run.method.reads_records:
        return []
    files = check_input(str(run.input.input), record_rules(run.input, run.budget.unit).fields)
    return [file.path for file in files]


def input_digest(pattern: str, files: Sequence[str], fields: RecordFields) -> str:
    """Digest of the names and contents of all files that are read, and of no other.

    `files` are those that the pattern named when they were looked at.

    Raises:
        ValueError: The pattern names others now.
    """
    listing = list_input(pattern)
    check_same(files, [file.path for file in listing])
    parts: list[Any] = []
    for file in listing:
        if is_local(file.path) and file.size <= HASHED_BYTES and os.path.isfile(file.path):
            parts.append((file.path, hashlib.sha256(read_file(file.path)).hexdigest()))
        else:
            # Object stores keep a checksum of the content; of a local file Beam knows its size; a folder and
            # a database have a digest of all that is read of them.
            parts.append((file.path, file.size, file.updated, file.checksum(fields)))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


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
    parts = digest_of_files(sources), json.dumps(versions, sort_keys=True)
    return hashlib.sha256('\n'.join(parts).encode()).hexdigest()


def installed_versions() -> Mapping[str, str]:
    """Versions of every installed distribution that this package needs, directly or not.

    What a distribution needs only with an extra that nobody asked for is left out, and so is
    what is not installed.
    """
    versions: dict[str, str] = {}
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
        versions[name] = distribution.version
        for requirement in map(Requirement, distribution.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({'extra': extra}):
                wanted = canonicalize_name(requirement.name)
                waiting += [(wanted, chosen) for chosen in ('', *requirement.extras)]
    return versions


def software_versions() -> dict[str, str]:
    """Versions that a report names, of what is installed."""
    versions = {'python': platform.python_version()}
    for name in ('dp-corpus', 'apache-beam', 'jax', 'gemma', 'tensorflow-text', 'sentencepiece', 'numpy'):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
