"""What every audit by canaries gives: its settings, its result, and who may see it."""

import abc
from collections.abc import Callable
from typing import Any

import numpy as np

from models.audits import one_run
from models.records import Record
from pipeline.canaries import CanaryAudit, Sabotage
from pipeline.methods.solved import Run
from pipeline.settings.job_config import JobConfig

CANARIES = 512


def check(
    run: Run[Any] | JobConfig[Any], canaries: int, sabotage: Sabotage, sabotages: frozenset[str]
) -> None:
    """Refuses what no audit can be of; imports nothing heavy.

    Args:
        run: The run.
        canaries: m.
        sabotage: What to break.
        sabotages: Those that make sense for the method, beside 'none'.

    Raises:
        ValueError: See above.
    """
    name = run.method.name
    if sabotage not in sabotages | {'none'}:
        raise ValueError(
            f'Expected a sabotage that method={name!r} can have, got sabotage={sabotage!r}. Choose from: '
            f'none, {", ".join(sorted(sabotages))}.'
        )
    if run.input.attributes:
        raise ValueError(
            f'Expected labels of one column, got attributes={run.input.attributes!r}. Audit the run '
            'with one of them as --label-field.'
        )
    one_run.check_canaries(canaries)


class CanaryAuditor[R: Run](abc.ABC):
    """How one method's runs are audited by canaries."""

    def __init__(self, sabotages: frozenset[str]) -> None:
        """Takes the sabotages that make sense for the method, beside 'none'."""
        self._sabotages = sabotages

    @abc.abstractmethod
    def attacks(
        self,
        run: R,
        records: list[Record],
        coins: np.ndarray,
        *,
        seed: int,
        sabotage: Sabotage,
        progress: Callable[[str], None],
    ) -> tuple[one_run.Attack, ...]:
        """Runs the method once on the records and on the canaries whose coin says so, and attacks it.

        Args:
            run: The run; no budget is charged.
            records: Of the input, beside the canaries; none without an input.
            coins: `[m]` bool.
            seed: Of the canaries.
            sabotage: One of the method's, or 'none'.
            progress: Told, in words without private facts, what goes on.
        """

    @abc.abstractmethod
    def guarantee(self, run: R) -> one_run.Guarantee:
        """What is proven of the run as it should be."""

    def audit(
        self,
        run: R,
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
        check(run, canaries, sabotage, self._sabotages)
        coins = one_run.coins(canaries, seed)
        proven = self.guarantee(run)
        records = records_of(run)
        found = self.attacks(run, records, coins, seed=seed, sabotage=sabotage, progress=progress)
        progress('Guessing')
        results = one_run.examine(found, proven)
        return CanaryAudit(
            method=run.method.name,
            sabotage=sabotage,
            unit=run.budget.unit,
            seed=seed,
            records=len(records),
            delta=proven.delta,
            epsilon=proven.epsilon,
            confidence=one_run.CONFIDENCE,
            epsilon_at_least=max(result.epsilon_at_least for result in results),
            attacks=results,
        )


def records_of(run: Run[Any]) -> list[Record]:
    """The records of all input files; rows that are none are left out. None without an input."""
    if run.input.input is None:
        return []
    # Not at the top: they take Beam along, and a wrong flag is refused at once.
    from pipeline.run.record_rules import record_rules
    from transforms import read

    rules = record_rules(run.input, run.budget.unit)
    return [
        found
        for file in read.check_input(str(run.input.input), rules.fields)
        for found in read.read_place(file.path, rules)
        if isinstance(found, Record)
    ]


def canary_records(texts: list[str], labels: list[str | None], run: Run[Any]) -> list[list[Record]]:
    """The records of each canary: one, or of a user as many as may vote, all of the same text.

    Args:
        texts: Of each canary.
        labels: Declared labels, one of each canary.
        run: The run.
    """
    of_unit = run.budget.examples_per_context if run.budget.unit == 'user' else 1
    return [
        [
            Record(text=text, label=label, unit=f'canary {number}', record_id=f'canary {number} {copy}')
            for copy in range(of_unit)
        ]
        for number, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]


def labels_of(run: Run[Any], count: int) -> list[str | None]:
    """A label for each canary, all labels in turn."""
    values = run.input.label_values
    return [values[number % len(values)] for number in range(count)]
