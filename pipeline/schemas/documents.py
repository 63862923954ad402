"""The JSON documents that others than the curator read, and their published schemas.

The schemas are JSON Schema, draft 2020-12, one file for each document in this folder.
`pipeline.schemas.generated` makes them from the types that write the JSON.

No schema can tell NaN from a number: NaN is not JSON at all, and nothing here writes it.
"""

import importlib.resources
from collections.abc import Mapping

SUFFIX = '.schema.json'

DOCUMENTS: Mapping[str, str] = {
    'privacy-report': 'privacy_report.json in the corpus folder.',
    'adapter': 'adapter.json beside a released adapter.',
    'ledger': 'What `dp-corpus ledger export` writes.',
    'evaluation': 'What `dp-corpus evaluate` writes and prints with --json.',
    'plan': 'What `dp-corpus plan --json` prints, by method.',
    'failure': 'What any command prints with --json when it fails.',
}
"""Name of each document to a sentence: the file, or the output of a command, that it is."""


def names() -> list[str]:
    """The names of all documents, sorted."""
    return sorted(DOCUMENTS)


def committed(name: str) -> str:
    """The schema of a document as text, from the package's files.

    Raises:
        ValueError: There is no document of this name.
    """
    if name not in DOCUMENTS:
        raise ValueError(
            f'Expected the name of a document, got name={name!r}. Choose from: {", ".join(names())}.'
        )
    return importlib.resources.files('pipeline.schemas').joinpath(f'{name}{SUFFIX}').read_text('utf-8')
