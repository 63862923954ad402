"""The texts that a run begins with where they are given: of a release, or of public files."""

import functools
import hashlib
from collections.abc import Sequence

from models.evolution.generation import Candidate, candidates_to_json
from models.records import BatchId, Record
from pipeline.ledger.ledger import Ledger
from pipeline.methods import beside_input, earlier
from pipeline.release import released_corpus
from pipeline.settings.input import Input
from transforms.read import Reason, list_input

# They travel to every worker.
MOST_TEXTS = 50_000


def read_start(place: str, declared: Input, name: str, *, labelled: bool = False) -> tuple[Candidate, ...]:
    """The texts of a corpus as a list of candidates, in the order of its files.

    Truncated examples of a release, and rows that are no records of the run's rules, are left out.

    Raises:
        FileNotFoundError: There is nothing.
        ValueError: A file is the input's, damaged, or no corpus; there is no text, or there are too many; one
            has no declared label where it needs one.
    """
    of_release = released_corpus.is_release(place)
    files = released_corpus.list_shards(place, name) if of_release else list_input(place)
    beside_input.refuse_input(declared, files, name)
    # A file that was written to is read anew.
    candidates = _read(place, tuple(files), declared, name, of_release, labelled)
    if not candidates:
        raise ValueError(f'Expected texts in {name}={place!r}, got none. Name another corpus.')
    if len(candidates) > MOST_TEXTS:
        raise ValueError(
            f'Expected {MOST_TEXTS:,} texts at the most, got {name}={place!r} with {len(candidates):,}. They '
            'travel to every worker: give a part of them.'
        )
    return candidates


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
        columns = (declared.label_field, declared.attributes) if labelled else (None, ())
        for path, row in beside_input.rows_of_texts(place, files, declared, name, *columns):
            if isinstance(row, Record):
                rows.append((row.label, row.text))
            elif row.reason in (Reason.UNDECLARED_LABEL, Reason.MISSING_FIELD) and labelled:
                raise _without_label(f'{name} file={path!r}, row={row.ordinal}', labels)
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


def check_start(start: str | None, name: str, dataset: str | None, ledger: Ledger) -> None:
    """Refuses texts of a run that says it was charged and was not: its cost would be counted nowhere."""
    if start is not None:
        earlier.check(earlier.origin_of_texts(start, name).releases, 'a corpus', start, name, dataset, ledger)
