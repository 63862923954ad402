"""The texts that a run begins with where they are given: of a release, or of public files."""

import functools
import hashlib
import json
from collections.abc import Sequence

from apache_beam.io.filesystems import FileSystems

from models.evolution.generation import Candidate, candidates_to_json
from models.evolution.settings import EvolutionSettings
from models.privacy.facts import Facts
from models.privacy.report import PRIVACY_REPORT_SCHEMA, earlier_run, text_votes
from models.privacy.report.earlier_run import EarlierRun
from models.records import BatchId, Record
from pipeline import released_corpus
from pipeline.ledger.ledger import Ledger
from pipeline.methods import beside_input
from pipeline.methods.fine_tune import released
from pipeline.settings.input import Input
from transforms.durable import read_file
from transforms.read import (
    Dialect,
    Reason,
    RecordFields,
    RecordRules,
    check_input,
    list_input,
    read_place,
)
from transforms.run_files import REPORT

# They travel to every worker.
MOST_TEXTS = 50_000


def read_start(place: str, declared: Input, name: str, *, labelled: bool = False) -> tuple[Candidate, ...]:
    """The texts of a corpus as a list of candidates, in the order of its files.

    Truncated examples of a release, and rows that are no records of the run's rules, are left out.

    Args:
        place: Folder of a finished run, or files like those of --input.
        declared: The input, for the columns and the labels.
        name: What errors call it: the flag without dashes.
        labelled: Whether each text needs a declared label. Without, those of files have none, and one that
            the run does not declare is left out.

    Raises:
        FileNotFoundError: There is nothing.
        ValueError: A file is the input's, damaged, or no corpus; there is no text, or there are too many; one
            has no declared label where it needs one.
    """
    of_release = released_corpus.is_release(place)
    files = released_corpus.list_shards(place, name) if of_release else list_input(place)
    beside_input.refuse_input(declared, files, name)
    # A file that was written to is read anew.
    found = _read(place, tuple(files), declared, name, of_release, labelled)
    if not found:
        raise ValueError(f'Expected texts in {name}={place!r}, got none. Name another corpus.')
    if len(found) > MOST_TEXTS:
        raise ValueError(
            f'Expected {MOST_TEXTS:,} texts at the most, got {name}={place!r} with {len(found):,}. They '
            'travel to every worker: give a part of them.'
        )
    return found


@functools.lru_cache(maxsize=2)
def _read(
    place: str, files: tuple, declared: Input, name: str, of_release: bool, labelled: bool
) -> tuple[Candidate, ...]:
    labels = declared.label_values
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
        fields = RecordFields(
            text=declared.text_field,
            label=declared.label_field if labelled else None,
            attributes=declared.attributes if labelled else (),
            dialect=dialect,
        )
        rules = RecordRules(
            fields=fields,
            labels=tuple(label for label in labels if label is not None) or None if labelled else None,
            max_record_bytes=declared.max_record_bytes,
        )
        check_input(place, rules.fields)
        for file in files:
            for found in read_place(file.path, rules):
                if isinstance(found, Record):
                    rows.append((found.label, found.text))
                elif found.reason in (Reason.UNDECLARED_LABEL, Reason.MISSING_FIELD) and labelled:
                    raise _without_label(f'{name} file={file.path!r}, row={found.ordinal}', labels)
                elif found.reason is Reason.UNREADABLE_REST:
                    raise ValueError(
                        f'Expected a whole file of texts, got {name} file={file.path!r}, whose rest cannot '
                        'be read. Fetch it again.'
                    )
    if labelled and (others := [label for label, _ in rows if label not in labels]):
        raise _without_label(f'{name}={place!r} with label={others[0]!r}', labels)
    groups = [labels.index(label) if label in labels else 0 for label, _ in rows]
    return tuple(
        Candidate(
            name=f'{BatchId(group=group, index=0)}-{place:05d}',
            text=text,
            label=label if label in labels else None,
        )
        for place, (group, (label, text)) in enumerate(zip(groups, rows, strict=True))
    )


def _without_label(got: str, labels: Sequence[str | None]) -> ValueError:
    return ValueError(
        f'Expected texts that each have a label of the run, got {got}, labels={list(labels)!r}. Give texts '
        'of these labels, or leave the others out.'
    )


def digest(texts: Sequence[Candidate]) -> str:
    """SHA-256 of a list, in hexadecimal."""
    return hashlib.sha256(candidates_to_json(0, texts).encode()).hexdigest()


def release_of(place: str, name: str) -> EarlierRun | None:
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
    card = released.card_of_texts(place)
    if card is not None:
        return EarlierRun(
            run_id=card.run_id,
            dataset=card.dataset,
            run_number=card.run_number,
            sampled_by=str(report.get('run_id')),
        )
    charged = report.get('ledger')
    try:
        return EarlierRun(
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
        return earlier_run.public_texts(text_votes.FIRST_LIST)
    return earlier_run.released_texts(text_votes.FIRST_LIST, prepared.start_release, dataset=prepared.dataset)


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
    earlier = None if start is None else release_of(start, name)
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
