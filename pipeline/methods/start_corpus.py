"""The texts that the first round votes on where they are given: of a release, or of public files."""

import functools
import hashlib
import json
from collections.abc import Sequence

from apache_beam.io.filesystems import FileSystems

from models.evolution.generation import Candidate, candidates_to_json
from models.evolution.settings import EvolutionSettings
from models.privacy.facts import Facts
from models.privacy.report import PRIVACY_REPORT_SCHEMA, text_votes
from models.privacy.report.text_votes import EarlierCorpus
from models.records import BatchId, Record
from pipeline import released_corpus
from pipeline.ledger.ledger import Ledger
from pipeline.methods import beside_input
from pipeline.settings.input import Input
from transforms.durable import read_file
from transforms.read import (
    Dialect,
    Reason,
    RecordFields,
    RecordRules,
    check_input,
    list_input,
    read_piece,
    split_file,
)
from transforms.run_files import REPORT

# They travel to every worker.
MOST_TEXTS = 50_000


def read_start(place: str, declared: Input, name: str) -> tuple[Candidate, ...]:
    """The texts of a corpus as a list of candidates, in the order of its files.

    A label that the run does not declare is left out; texts are labelled by votes in any case. Truncated
    examples of a release, and rows that are no records of the run's rules, are left out.

    Args:
        place: Folder of a finished run, or files like those of --input.
        declared: The input, for the column of the text and the labels.
        name: What errors call it: the flag without dashes.

    Raises:
        FileNotFoundError: There is nothing.
        ValueError: A file is the input's, damaged, or no corpus; there is no text, or there are too many.
    """
    of_release = released_corpus.is_release(place)
    files = released_corpus.list_shards(place, name) if of_release else list_input(place)
    beside_input.refuse_input(declared, files, name)
    # A file that was written to is read anew.
    found = _read(place, tuple(files), declared, name, of_release)
    if not found:
        raise ValueError(f'Expected texts in {name}={place!r}, got none. Name another corpus.')
    if len(found) > MOST_TEXTS:
        raise ValueError(
            f'Expected {MOST_TEXTS:,} texts at the most, got {name}={place!r} with {len(found):,}. Votes '
            'could not tell so many apart: give a part of them.'
        )
    return found


@functools.lru_cache(maxsize=2)
def _read(place: str, files: tuple, declared: Input, name: str, of_release: bool) -> tuple[Candidate, ...]:
    rows: list[tuple[str | None, str]] = []
    if of_release:
        for file in files:
            rows += [
                (example.label, example.text)
                for example in released_corpus.read_examples(file.path, name, declared.attributes)
                if not example.truncated
            ]
    else:
        dialect = Dialect(delimiter=declared.resolved_delimiter, encoding=declared.encoding)
        rules = RecordRules(
            fields=RecordFields(text=declared.text_field, label=None, dialect=dialect),
            labels=None,
            max_record_bytes=declared.max_record_bytes,
        )
        check_input(place, rules.fields)
        for file in files:
            for piece in split_file(file.path):
                for found in read_piece(piece, rules):
                    if isinstance(found, Record):
                        rows.append((None, found.text))
                    elif found.reason is Reason.UNREADABLE_REST:
                        raise ValueError(
                            f'Expected a whole file of texts, got {name} file={file.path!r}, whose rest '
                            'cannot be read. Fetch it again.'
                        )
    labels = declared.label_values
    groups = [labels.index(label) if label in labels else 0 for label, _ in rows]
    return tuple(
        Candidate(
            name=f'{BatchId(group=group, index=0)}-{place:05d}',
            text=text,
            label=label if label in labels else None,
        )
        for place, (group, (label, text)) in enumerate(zip(groups, rows, strict=True))
    )


def digest(texts: Sequence[Candidate]) -> str:
    """SHA-256 of a list, in hexadecimal."""
    return hashlib.sha256(candidates_to_json(0, texts).encode()).hexdigest()


def earlier_corpus(place: str, name: str) -> EarlierCorpus | None:
    """The run that released a corpus, by its report; None of files, which the curator vouches for.

    Args:
        place: The corpus.
        name: What errors call it: the flag without dashes.

    Raises:
        ValueError: It states no (epsilon, delta), or its report is damaged.
    """
    if not released_corpus.is_release(place):
        return None
    try:
        report = json.loads(read_file(FileSystems.join(place, REPORT)))
    except (RecursionError, ValueError):
        report = None
    is_report = isinstance(report, dict) and report.get('schema') == PRIVACY_REPORT_SCHEMA
    if not is_report or report.get('statement') != 'differential privacy':
        statement = report.get('statement') if is_report else None
        raise ValueError(
            f'Expected a release that states (epsilon, delta), got {name}={place!r} with '
            f'statement={statement!r}. Its texts would carry into this corpus what nothing has charged: '
            'choose another one, or public texts.'
        )
    charged = report.get('ledger')
    try:
        return EarlierCorpus(
            run_id=str(report['run_id']),
            dataset=None if charged is None else str(charged['dataset']),
            run_number=None if charged is None else int(charged['run_number']),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            "Expected the ledger's entry of a release with its dataset and run_number, got another value in "
            f'the report of {name}={place!r}. Restore the release as its run wrote it.'
        ) from error


def facts_of_start(prepared: EvolutionSettings) -> Facts:
    """Where the list of the first round comes from, for a report.

    Workers write it, who know neither the ledger nor the place of the corpus: `prepared` has both from the
    launch.
    """
    if not prepared.start:
        return text_votes.SAMPLED_START
    if prepared.start_release is None:
        return text_votes.PUBLIC_START
    return text_votes.start_of_release(prepared.start_release, dataset=prepared.dataset)


def check_start(start: str | None, name: str, dataset: str | None, ledger: Ledger) -> None:
    """Refuses texts of a run that says it was charged and was not: its cost would be counted nowhere.

    A release of a dataset that this ledger does not keep is of another ledger, and one that was charged to
    none says so: of both the report lists what the curator vouches for.

    Args:
        start: The corpus; None without.
        name: What errors call it: the flag without dashes.
        dataset: The dataset that the run is charged to.
        ledger: Its ledger.

    Raises:
        ValueError: The ledger does not hold the charge that the release claims.
    """
    earlier = None if start is None else earlier_corpus(start, name)
    if earlier is None or earlier.dataset is None:
        return
    accounts = (known for known in ledger.accounts() if known.dataset.name == earlier.dataset)
    account = next(accounts, None)
    if account is None and earlier.dataset != dataset:
        return
    charged = None if account is None else account.run(earlier.run_id)
    if charged is not None and charged.number == earlier.run_number:
        return
    raise ValueError(
        f'Expected a corpus whose charge the ledger holds, got {name}={start!r}, whose report says '
        f'run_id={earlier.run_id!r}, dataset={earlier.dataset!r}, run_number={earlier.run_number}. What it '
        'tells of the records would be in no sum: give the --ledger that charged it, or other texts. '
        f'`dp-corpus ledger show {earlier.dataset}` lists the runs.'
    )
