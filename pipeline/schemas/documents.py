"""The JSON documents that dp-corpus writes for users, and their published schemas.

The schemas are JSON Schema, draft 2020-12, one file for each document in this folder.
`pipeline.schemas.generated` makes them from the types that write the JSON.

No schema can tell NaN from a number: NaN is not JSON at all, and nothing here writes it.
"""

import importlib.resources
from collections.abc import Mapping

SUFFIX = '.schema.json'

DOCUMENTS: Mapping[str, str] = {
    'privacy-report': 'privacy_report.json in the corpus folder.',
    'restricted-report': 'restricted_report.json in the work directory.',
    'canary-audit': 'What `dp-corpus audit canaries` writes and prints with --json.',
    'input-check': 'What `dp-corpus check --json` prints.',
    'evaluation': 'What `dp-corpus evaluate` writes and prints with --json.',
    'run-plan': 'What `dp-corpus plan --json` prints.',
    'tuning-plan': 'What `dp-corpus plan --method fine-tune --json` prints.',
    'voting-plan': 'What `dp-corpus plan --json` prints with --method evolve or refine.',
    'plan-comparison': 'What `dp-corpus plan --compare --json` prints.',
    'adapter': 'adapter.json beside a released adapter.',
    'batch-plan': 'plan.json in the work directory.',
    'clustering': 'clustering.json in the work directory.',
    'centers': 'centers.json in a folder of centres.',
    'ledger': 'What `dp-corpus ledger export` writes.',
    'ledger-restricted': 'What `dp-corpus ledger export --restricted` writes.',
    'ledger-accounts': 'What `dp-corpus ledger show --json` prints.',
    'ledger-accounts-restricted': 'What `dp-corpus ledger show --json --restricted` prints.',
    'models': 'What `dp-corpus models --json` prints.',
    'fitted-centers': 'What `dp-corpus centers --json` prints.',
    'run': 'run.json in the work directory.',
    'failure': 'What any command prints with --json when it fails.',
}
"""Which file, or which command's output, each document is: name to a sentence."""


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
