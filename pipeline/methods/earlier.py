"""Earlier releases that a run begins with: what their reports and cards say, held against the ledger."""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence

from apache_beam.io.filesystems import FileSystems

from models.privacy import accounting, codec, earlier_release, intact
from models.privacy.earlier_release import EarlierRelease, TextOrigin
from models.privacy.report import PrivacyReport
from pipeline.ledger.ledger import Ledger
from pipeline.methods.fine_tune import released
from pipeline.release import released_corpus
from transforms.durable import is_local, read_file
from transforms.places import DATASET, is_database, is_dataset
from transforms.read import list_input
from transforms.run_files import REPORT, SAMPLED_ADAPTER


def origin_of_texts(place: str, name: str) -> TextOrigin:
    """The origin of texts, by the report or the card of the run that released them.

    Of a folder these lie in it. Of files they may lie beside them or in any folder above; the nearest one
    counts. Of files without either nothing but the curator's word is known.

    Raises:
        FileNotFoundError: There is nothing.
        ValueError: A release states no (epsilon, delta), or its report or its card is damaged.
    """
    if released_corpus.is_release(place):
        return TextOrigin(releases=_of_folder(place, name))
    folders: dict[str | None, None] = {}
    for file in list_input(place):
        folders[_folder_of_release(file.path)] = None
    releases = [_of_folder(folder, name) for folder in folders if folder is not None]
    return TextOrigin(releases=earlier_release.each_once(*releases), vouched=None in folders)


def _folder_of_release(path: str) -> str | None:
    """The nearest folder around a file that has a report or a card; None where none has."""
    for folder in _folders_above(path):
        for kept in (REPORT, SAMPLED_ADAPTER):
            if FileSystems.exists(FileSystems.join(folder, kept)):
                return folder
    return None


def _folders_above(path: str) -> Iterator[str]:
    """The folder of a file and all above it, nearest first; through links too."""
    if is_dataset(path):
        path = path.removeprefix(DATASET).partition('?')[0]
        if not os.path.exists(path):
            return  # on the hub
        path = os.path.join(path, 'any')  # the folder itself counts
    elif is_database(path):
        return
    if not is_local(path):
        scheme, _, rest = path.partition('://')
        while (rest := rest.rpartition('/')[0]).strip('/'):
            yield f'{scheme}://{rest}'
        return
    for folder in dict.fromkeys(
        (os.path.dirname(os.path.realpath(path)), os.path.dirname(os.path.abspath(path)))
    ):
        while True:
            yield folder
            if (above := os.path.dirname(folder)) == folder:
                break
            folder = above


def _of_folder(folder: str, name: str) -> tuple[EarlierRelease, ...]:
    """The releases that reach a run by the texts of a folder; a card, if there, says whose they are."""
    with intact.reading(f'{SAMPLED_ADAPTER} of {name}={folder!r}', 'Restore the release as its run wrote it'):
        card = released.card_of_texts(folder)
    report = FileSystems.join(folder, REPORT)
    if card is not None and not FileSystems.exists(report):
        return card.handed_on(sampled_by=os.path.basename(folder))
    try:
        text = read_file(report).decode()
        document = json.loads(text)
    except (RecursionError, ValueError):
        document = None
    is_report = isinstance(document, dict) and document.get('schema') == PrivacyReport.schema
    if not is_report or document.get('statement') != 'differential privacy':
        statement = document.get('statement') if is_report else None
        raise ValueError(
            f'Expected a release that states (epsilon, delta), got {name}={folder!r} with '
            f'statement={statement!r}. Its texts would carry into this corpus what nothing has charged: '
            'choose another release, or public texts.'
        )
    report_of_run = codec.read(
        PrivacyReport, text, f'{REPORT} of {name}={folder!r}', 'Restore the release as its run wrote it'
    )
    if card is not None:
        return card.handed_on(sampled_by=report_of_run.run_id)
    return report_of_run.handed_on(hashlib.sha256(text.encode()).hexdigest())


def check(
    releases: Sequence[EarlierRelease], what: str, place: str, name: str, dataset: str | None, ledger: Ledger
) -> None:
    """Refuses what says that it was charged and was not: its cost would be counted nowhere.

    A release of a dataset that this ledger does not keep is of another ledger, and one that was charged to
    none says so: of both the report says that no sum of a ledger has them.

    Raises:
        ValueError: The ledger does not hold a charge that a release claims.
    """
    accounts = {account.dataset.name: account for account in ledger.accounts()}
    for release in releases:
        if release.dataset is None or (release.dataset not in accounts and release.dataset != dataset):
            continue
        account = accounts.get(release.dataset)
        charged = None if account is None else account.run(release.run_id)
        if (
            charged is not None
            and charged.number == release.run_number
            and is_charge_of(charged.rho, charged.cost, release)
        ):
            continue
        raise ValueError(
            f'Expected {what} whose charge the ledger holds, got {name}={place!r}, of which a '
            f'{release.told_by} says run_id={release.run_id!r}, dataset={release.dataset!r}, '
            f'run_number={release.run_number}, rho={release.charged_rho!r}, epsilon={release.epsilon!r}. '
            'What it tells of the records would be in no sum: give the --ledger that charged it, or choose '
            'another release, or public texts. '
            f'`dp-corpus ledger show {release.dataset}` lists the runs.'
        )


def is_charge_of(rho: float, cost: accounting.RunCost, release: EarlierRelease) -> bool:
    """True if a run's charge is the cost of a release, as this version states it or an older one did."""
    if release.charged_rho is not None:
        # The report has the ledger's own number, written and read as JSON.
        return math.isclose(rho, release.charged_rho, rel_tol=1e-12)
    charged = cost.curve
    stated = accounting.compose(map(accounting.curve_of, release.costs.values()))
    return charged.sampled == stated.sampled and math.isclose(charged.rho, stated.rho, rel_tol=1e-9)
