"""The result of an audit by canaries: what was run, what an attacker guessed, and the verdict."""

import dataclasses
import json
from typing import Literal

from models.audits.one_run import Bounds
from models.privacy import report
from models.privacy.params import Unit

SCHEMA, SCHEMA_VERSION = 'dp-corpus/canary-audit', 1

# Who could see the scores: the public, or the curator alone.
Reads = Literal['released', 'restricted']


@dataclasses.dataclass(frozen=True, kw_only=True)
class CanaryAudit:
    """One run with canaries, and what an attacker guesses of them. Restricted to the curator.

    Attributes:
        method: Of the run.
        attack: What the attacker scores the canaries by.
        reads: 'released' where the public could do it, 'restricted' where only the curator can.
        unit: A canary is one unit of this kind.
        seed: Of the canaries and their coins.
        records: Records of the run beside the canaries.
        delta: What every ε is stated at.
        epsilon: Proven.
        confidence: With which both bounds hold together.
        bounds: What the scores show.
    """

    method: str
    attack: str
    reads: Reads
    unit: Unit
    seed: int
    records: int = dataclasses.field(repr=False)
    delta: float
    epsilon: float
    confidence: float
    bounds: Bounds = dataclasses.field(repr=False)

    @property
    def ok(self) -> bool:
        """True if the guesses do not contradict the proven curve."""
        return not self.bounds.contradicts

    def to_json(self) -> str:
        """The audit as JSON text, marked as restricted."""
        header = {
            'schema': SCHEMA,
            'schema_version': SCHEMA_VERSION,
            'audience': report.RESTRICTED,
            'ok': self.ok,
        }
        return json.dumps(header | dataclasses.asdict(self), indent=2, allow_nan=False) + '\n'
