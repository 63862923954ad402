"""What every audit by canaries gives: its settings, its result, and who may see it."""

import abc
import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from models.audits import one_run
from models.audits.one_run import AttackResult
from models.privacy import report
from models.privacy.params import Unit
from models.records import Record
from pipeline.settings.job_config import JobConfig

SCHEMA, SCHEMA_VERSION = 'dp-corpus/canary-audit', 1

Sabotage = Literal[
    'none', 'half-noise', 'no-noise', 'noise-again', 'votes-twice', 'two-gradients', 'no-clipping',
    'by-position', 'own-text',
]  # fmt: skip
SABOTAGES: Mapping[str, str] = {
    'none': 'the mechanism as it is',
    'half-noise': 'the noise has half of its scale',
    'no-noise': 'hardly any noise is added',
    'noise-again': 'every retry draws other noise, and shows its result',
    'votes-twice': 'a retry counts every vote once more',
    'two-gradients': 'a unit gives two gradients to a batch',
    'no-clipping': 'what a unit gives is not clipped',
    'by-position': 'the batch of a step is a piece of the file',
    'own-text': 'the text of a record itself may be released',
}
# Releases that an attacker sees under 'noise-again'.
RETRIES = 16
# What stands for no noise, in shares of the noise's scale.
HARDLY_ANY = 1e-3
CANARIES = 512


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
            {"name": "noisy votes", "reads": "released", "canaries": 64, "area": 0.6,
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


def check(config: JobConfig[Any], canaries: int, sabotage: Sabotage, sabotages: frozenset[str]) -> None:
    """Refuses what no audit can be of; imports nothing heavy.

    Args:
        config: The run's settings.
        canaries: m.
        sabotage: What to break.
        sabotages: Those that make sense for the method, beside 'none'.

    Raises:
        ValueError: See above.
    """
    name = config.method.name
    if sabotage not in sabotages | {'none'}:
        raise ValueError(
            f'Expected a sabotage that method={name!r} can have, got sabotage={sabotage!r}. Choose from: '
            f'none, {", ".join(sorted(sabotages))}.'
        )
    if config.input.attributes:
        raise ValueError(
            f'Expected labels of one column, got attributes={config.input.attributes!r}. Audit the run '
            'with one of them as --label-field.'
        )
    one_run.check_canaries(canaries)


class CanaryAuditor(abc.ABC):
    """How one method's runs are audited by canaries."""

    def __init__(self, sabotages: frozenset[str]) -> None:
        """Takes the sabotages that make sense for the method, beside 'none'."""
        self._sabotages = sabotages

    @abc.abstractmethod
    def attacks(
        self,
        config: JobConfig[Any],
        records: list[Record],
        coins: np.ndarray,
        *,
        seed: int,
        sabotage: Sabotage,
        progress: Callable[[str], None],
    ) -> tuple[one_run.Attack, ...]:
        """Runs the method once on the records and on the canaries whose coin says so, and attacks it.

        Args:
            config: The run's settings; no budget is charged.
            records: Of the input, beside the canaries; none without an input.
            coins: `[m]` bool.
            seed: Of the canaries.
            sabotage: One of the method's, or 'none'.
            progress: Told, in words without private facts, what goes on.
        """

    @abc.abstractmethod
    def guarantee(self, config: JobConfig[Any]) -> one_run.Guarantee:
        """What is proven of the run as it should be."""

    def audit(
        self,
        config: JobConfig[Any],
        *,
        canaries: int = CANARIES,
        seed: int = 0,
        sabotage: Sabotage = 'none',
        progress: Callable[[str], None] = lambda _: None,
    ) -> CanaryAudit:
        """The audit from the settings to the verdict.

        Raises:
            ValueError: Too few canaries, a sabotage that the method does not have, or settings that the
                audit cannot take.
        """
        check(config, canaries, sabotage, self._sabotages)
        coins = one_run.coins(canaries, seed)
        proven = self.guarantee(config)
        records = records_of(config)
        found = self.attacks(config, records, coins, seed=seed, sabotage=sabotage, progress=progress)
        progress('Guessing')
        results = one_run.examine(found, proven)
        return CanaryAudit(
            method=config.method.name,
            sabotage=sabotage,
            unit=config.budget.unit,
            seed=seed,
            records=len(records),
            delta=proven.delta,
            epsilon=proven.epsilon,
            confidence=one_run.CONFIDENCE,
            epsilon_at_least=max(result.epsilon_at_least for result in results),
            attacks=results,
        )


def records_of(config: JobConfig[Any]) -> list[Record]:
    """The records of all input files; rows that are none are left out. None without an input."""
    if config.input.input is None:
        return []
    # Not at the top: they take Beam along, and a wrong flag is refused at once.
    from pipeline.run.record_rules import record_rules
    from transforms import read

    rules = record_rules(config.input, config.budget.unit)
    return [
        found
        for file in read.check_input(str(config.input.input), rules.fields)
        for piece in read.split_file(file.path, rules.fields.table)
        for found in read.read_piece(piece, rules)
        if isinstance(found, Record)
    ]


def canary_records(texts: list[str], labels: list[str | None], config: JobConfig[Any]) -> list[list[Record]]:
    """The records of each canary: one, or of a user as many as may vote, all of the same text.

    Args:
        texts: Of each canary.
        labels: Declared labels, one of each canary.
        config: The run's settings.
    """
    of_unit = config.budget.examples_per_context if config.budget.unit == 'user' else 1
    return [
        [
            Record(text=text, label=label, unit=f'canary {number}', record_id=f'canary {number} {copy}')
            for copy in range(of_unit)
        ]
        for number, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]


def labels_of(config: JobConfig[Any], count: int) -> list[str | None]:
    """A label for each canary, all labels in turn."""
    values = config.input.label_values
    return [values[number % len(values)] for number in range(count)]


def work_folder(path: str, *folders: str) -> None:
    """Makes the folders that a launcher would make in a work directory."""
    for folder in folders:
        pathlib.Path(os.path.join(path, folder)).mkdir(parents=True, exist_ok=True)
