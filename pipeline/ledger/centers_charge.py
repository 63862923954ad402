"""The charge for centres of private records, and how a later run recognises centres that are paid for.

`dp-corpus centers --source dp-k-means` draws its noise from a key that it keeps nowhere, so each fit is a
release of its own. It is charged once, before a record is read, under a name of its own. Under a name that
was charged before, nothing is fitted: that would be fresh noise, and the charge paid for other noise.

A file beside the centres says which charge paid for them. The ledger has the commitment of a key that was
drawn for this charge alone; the file opens the commitment and seals the centres with the key. So a run that
uses the centres can tell them from other centres of the same name, and from centres that were changed.
Nothing else depends on the key, so it is no secret afterwards.
"""

import dataclasses
import json
import os
import re
import secrets
from typing import TYPE_CHECKING

from etils import epath

from models.clustering.centers import Centers
from models.privacy import intact
from models.privacy.accounting import RunCost
from models.privacy.randomness import KEY_BYTES, RunKey
from pipeline.ledger.account import Account

if TYPE_CHECKING:
    # SQLAlchemy is heavy.
    from pipeline.ledger.ledger import Ledger

FILE = 'ledger_charge.json'
SCHEMA = 'dp-corpus/centers-charge'
SCHEMA_VERSION = 1
STAGE = 'centers'


@dataclasses.dataclass(frozen=True, kw_only=True)
class CentersCharge:
    """Which charge of which dataset paid for centres. All of it is public once they are fitted.

    Attributes:
        dataset: Name under which the ledger keeps the records' budget.
        run_id: Name of the charge among the dataset's runs.
        opening: 64 hexadecimal digits: the key whose commitment the ledger has.
        seal: Keyed digest of the centres' fingerprint.
    """

    dataset: str
    run_id: str
    opening: str
    seal: str

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Writes the file that stands beside the centres."""
        document = {'schema': SCHEMA, 'schema_version': SCHEMA_VERSION, **dataclasses.asdict(self)}
        (epath.Path(folder) / FILE).write_text(json.dumps(document, indent=2) + '\n')

    @classmethod
    @intact.reading(FILE, 'Restore the folder of centres, or fit them again')
    def read(cls, folder: str | os.PathLike[str]) -> 'CentersCharge | None':
        """What `write` wrote; None for centres that were charged to no ledger.

        Raises:
            ValueError: The file is of another schema or form.
        """
        path = epath.Path(folder) / FILE
        if not path.exists():
            return None
        document = json.loads(path.read_text())
        names = {field.name for field in dataclasses.fields(cls)}
        known = isinstance(document, dict) and document.keys() == names | {'schema', 'schema_version'}
        if not (
            known
            and (document['schema'], document['schema_version']) == (SCHEMA, SCHEMA_VERSION)
            and all(isinstance(document[name], str) for name in names)
            and re.fullmatch(f'[0-9a-f]{{{2 * KEY_BYTES}}}', document['opening'])
        ):
            raise ValueError(
                f'Expected {FILE} of schema={SCHEMA!r}, version {SCHEMA_VERSION}, got another form. Restore '
                'the folder of centres, or fit them again.'
            )
        return cls(**{name: document[name] for name in names})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reservation:
    """A charge whose centres are not fitted yet; `of` makes the artefact's file of it.

    Attributes:
        dataset: Name under which the ledger keeps the records' budget.
        run_id: Name of the charge.
        opening: The key, for the artefact alone.
    """

    dataset: str
    run_id: str
    opening: bytes = dataclasses.field(repr=False)

    def of(self, centers: Centers) -> CentersCharge:
        """Binds the fitted centres to the charge."""
        return CentersCharge(
            dataset=self.dataset,
            run_id=self.run_id,
            opening=self.opening.hex(),
            seal=_seal(RunKey(self.opening), centers),
        )


def reserve(
    ledger: 'Ledger', *, dataset: str, run_id: str, rho: float, settings: dict[str, object]
) -> Reservation:
    """Charges a fit of centres that has not begun.

    Args:
        ledger: Where the dataset's budget is.
        dataset: Its name.
        run_id: Name of the charge; never charged before.
        rho: zCDP cost of the centres.
        settings: Public settings of the fit.

    Raises:
        ValueError: There is a charge of this name, no such dataset, or one of another unit.
        BudgetExceeded: It costs more than is left. Nothing is charged.
        ConnectionError: The ledger is lost.
    """
    if ledger.account(dataset).run(run_id) is not None:
        raise ValueError(
            f'Expected a name that was not charged yet, got run_id={run_id!r}, which dataset={dataset!r} was '
            'charged for: centres under it were begun, with noise that is drawn once. Use those; fitting '
            'anew is a new release, under another --run-id, and charged anew.'
        )
    opening = secrets.token_bytes(KEY_BYTES)
    key = RunKey(opening)
    # The key is new, so of two that race for the name the ledger refuses the second.
    ledger.reserve(
        dataset,
        run_id=run_id,
        unit='example',
        cost=RunCost.of_rho({STAGE: rho}),
        # Of public settings alone: whoever has the artefact can compute it.
        identity=key.hash('identity', json.dumps(settings, sort_keys=True).encode(), size=32).hex(),
        key_commitment=key.commitment(run_id),
    )
    return Reservation(dataset=dataset, run_id=run_id, opening=opening)


def paid_by(account: Account, folder: str | os.PathLike[str]) -> str | None:
    """The name of the charge that paid for the centres of a folder, or None where the account has none.

    Raises:
        ValueError: The account has the charge, and the centres are not those that it paid for.
    """
    charge = CentersCharge.read(folder)
    if charge is None or charge.dataset != account.dataset.name:
        return None
    run, key = account.run(charge.run_id), RunKey(bytes.fromhex(charge.opening))
    if run is None or run.key_commitment != key.commitment(charge.run_id):
        return None
    centers = Centers.read(folder)
    if run.cost != RunCost.of_rho({STAGE: centers.rho}) or charge.seal != _seal(key, centers):
        raise ValueError(
            f'Expected the centres that run_id={charge.run_id!r} of dataset={charge.dataset!r} paid for, got '
            'others beside its charge. Restore the folder as it was written, or fit centres anew, which is '
            'charged anew.'
        )
    return charge.run_id


def _seal(key: RunKey, centers: Centers) -> str:
    return key.hash('centers', centers.fingerprint.encode(), size=32).hex()
