"""The result of an audit by canaries: what was run, what attackers guessed, and the verdict."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Literal

from models.audits.one_run import AttackResult
from models.privacy import report
from models.privacy.params import Unit

SCHEMA, SCHEMA_VERSION = 'dp-corpus/canary-audit', 1

Sabotage = Literal[
    'none', 'half-noise', 'no-noise', 'noise-again', 'counted-twice', 'two-gradients', 'no-clipping',
    'by-position', 'own-text',
]  # fmt: skip
SABOTAGES: Mapping[str, str] = {
    'none': 'the mechanism as it is',
    'half-noise': 'the noise has half of its scale',
    'no-noise': 'hardly any noise is added',
    'noise-again': 'every retry draws other noise, and shows its result',
    'counted-twice': 'a retry counts every vote once more',
    'two-gradients': 'a unit gives two gradients to a batch',
    'no-clipping': 'what a unit gives is not clipped',
    'by-position': 'the batch of a step is a piece of the file',
    'own-text': 'the text of a record itself may be released',
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CanaryAudit:
    """One run with canaries, and what attackers guess of them. Restricted to the curator.

    Attributes:
        method: Of the run.
        sabotage: What was broken on purpose; 'none' for the mechanism as it is.
        unit: A canary is one unit of this kind.
        seed: Of the canaries and their coins.
        records: Records of the run beside the canaries.
        delta: What every ε is stated at.
        epsilon: Proven.
        confidence: With which all ε̂ of `attacks` hold together.
        epsilon_at_least: The largest ε̂.
        attacks: One for each way to score the canaries.

    Sample::

        {
          "schema": "dp-corpus/canary-audit",
          "schema_version": 1,
          "audience": "Restricted to the curator. It holds true counts: never publish it.",
          "ok": true,
          "method": "refine",
          "sabotage": "none",
          "unit": "example",
          "seed": 0,
          "records": 0,
          "delta": 1e-06,
          "epsilon": 3.0,
          "confidence": 0.95,
          "epsilon_at_least": 0.57,
          "attacks": [
            {"name": "losses of texts", "reads": "released", "canaries": 64, "area": 0.6,
             "epsilon_at_least": 0.57, "epsilon_of_any": 0.44, "epsilon_of_curve": 0.57, "contradicts": false,
             "most": 4.5, "scores_in": [1.5, 0.25], "scores_out": [-0.5]}
          ]
        }
    """

    method: str
    sabotage: Sabotage
    unit: Unit
    seed: int
    records: int = dataclasses.field(repr=False)
    delta: float
    epsilon: float
    confidence: float
    epsilon_at_least: float = dataclasses.field(repr=False)
    attacks: tuple[AttackResult, ...] = dataclasses.field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether no attack contradicts what was proven."""
        return not any(attack.contradicts for attack in self.attacks)

    def to_json(self) -> str:
        """The audit as JSON text, marked as restricted."""
        header = {
            'schema': SCHEMA,
            'schema_version': SCHEMA_VERSION,
            'audience': report.RESTRICTED,
            'ok': self.ok,
        }
        return json.dumps(header | dataclasses.asdict(self), indent=2, allow_nan=False) + '\n'
