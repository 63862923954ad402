"""Files that somebody edited: each is refused by name, none runs anything, and no path leaves its folder."""

import copy
import dataclasses
import json
import os
import pathlib
import pickle
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from safetensors import numpy as safetensors_numpy

from models.batch_plan import BatchPlan, Clustering
from models.bundled import FOLDER as BUNDLED
from models.clustering.centers import Centers
from models.decoders.gemma import architectures
from models.decoders.gemma.checkpoints import gguf, safetensors
from models.finetuning import adapter as adapters
from models.finetuning.adapter import AdapterCard
from models.privacy.accounting import RunCost
from models.privacy.report import PrivacyReport
from pipeline.config import job_config
from pipeline.ledger import centers_charge
from pipeline.ledger import ledger as ledgers
from pipeline.ledger.ledger import Ledger
from pipeline.methods import start_corpus
from pipeline.methods.fine_tune import released
from pipeline.methods.predict import reference
from pipeline.run import folders
from tests.models.privacy.report import golden_test
from tests.pipeline.ledger import machine_test
from transforms import batch_files, run_files
from transforms.durable import write_file
from transforms.evolve import files as round_files
from transforms.read import RecordFields, check_input
from transforms.read.sources import source_of

WRONG: tuple[Any, ...] = (None, 'x', -1, 10**400, [], [[]], {}, {'x': 1}, True, float('nan'), '../../x')


def edits(document: Any) -> Iterator[Any]:
    """The document with one value replaced, left out or put in, everywhere and in every way."""
    if isinstance(document, dict):
        yield document | {'unknown': 1}
        for name, value in document.items():
            yield {key: of for key, of in document.items() if key != name}
            yield from (document | {name: wrong} for wrong in WRONG if wrong != value or wrong is not value)
            yield from (document | {name: edited} for edited in edits(value))
    elif isinstance(document, list) and document:
        yield document[1:]
        for place, value in enumerate(document[:2]):
            yield from (document[:place] + [edited] + document[place + 1 :] for edited in (*WRONG, *edits(value)))


def refusals_of(read: Callable[[str], Any], text: str) -> list[str]:
    """What is wrong with how a reader takes every edit of a file: errors that are not of the contract."""
    document = json.loads(text)
    texts = ['', '{', '[]', 'null', '[' * 100_000, *(json.dumps(edited) for edited in edits(document))]
    found = []
    for edited in texts:
        try:
            read(edited)
        except ValueError as error:
            if type(error) is not ValueError or not str(error).startswith('Expected '):
                found.append(f'{type(error).__name__}: {str(error)[:80]} for {edited[:120]}')
        except Exception as error:  # noqa: BLE001
            found.append(f'{type(error).__name__}: {str(error)[:80]} for {edited[:120]}')
    return found


PLAN = BatchPlan(
    labels=('a', 'b'), batches_per_group=(1, 2), noisy_counts=(4, 5), contexts_rho=0.1,
    clustering=None,
)  # fmt: skip


def in_file(path: pathlib.Path, read: Callable[[], Any]) -> Callable[[str], Any]:
    """A reader of a text that is put at a path first."""

    def reading(text: str) -> Any:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return read()

    return reading
