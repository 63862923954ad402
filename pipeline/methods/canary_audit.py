"""The audit of any method by canaries: from settings to a verdict.

A method gives how it makes a run with canaries and how an attacker scores them; the rest is here.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from models.audits import one_run
from models.audits.result import CanaryAudit, Reads
from models.records import Record
from pipeline.methods.solved import Run
from pipeline.settings.job_config import JobConfig


class Canaries[R: Run](abc.ABC):
    """Canaries of one method: a run with them, and the scores that an attacker gives them.

    Attributes:
        attack: The attacker's quantity, in two words or three.
        reads: Who could have it.
    """

    attack: ClassVar[str]
    reads: ClassVar[Reads]

    @abc.abstractmethod
    def guarantee(self, run: R) -> one_run.Guarantee:
        """The guarantee that is proven of the run; a ValueError where canaries could contradict nothing."""

    @abc.abstractmethod
    def scores(
        self,
        run: R,
        records: list[Record],
        coins: np.ndarray,
        *,
        seed: int,
        progress: Callable[[str], None],
    ) -> np.ndarray:
        """Scores of the canaries, `[m]`, after one run on the records and on those whose coin says so.

        Larger scores speak for "in". No budget is charged.

        Args:
            run: The run.
            records: Records of the input, beside the canaries; none without an input.
            coins: `[m]` bool.
            seed: Seed of the canaries.
            progress: Told, in words without private facts, what goes on.
        """


def check(run: Run[Any] | JobConfig[Any], canaries: int) -> None:
    """Refuses runs and numbers of canaries that no audit can be of; imports nothing heavy."""
    if run.input.attributes:
        raise ValueError(
            f'Expected labels of one column, got attributes={run.input.attributes!r}. Audit the run '
            'with one of them as --label-field.'
        )
    one_run.check_canaries(canaries)


def audit[R: Run](
    of_method: Canaries[R],
    run: R,
    *,
    canaries: int,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> CanaryAudit:
    """The audit from the settings to the verdict; no budget is charged."""
    check(run, canaries)
    proven = of_method.guarantee(run)
    coins = one_run.coins(canaries, seed)
    records = records_of(run)
    scores = of_method.scores(run, records, coins, seed=seed, progress=progress)
    progress('Guessing')
    return CanaryAudit(
        method=run.method.name,
        attack=of_method.attack,
        reads=of_method.reads,
        unit=run.budget.unit,
        seed=seed,
        records=len(records),
        delta=proven.delta,
        epsilon=proven.epsilon,
        confidence=one_run.CONFIDENCE,
        bounds=one_run.bounds(scores, coins, proven),
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
        row
        for file in read.check_input(str(run.input.input), rules.fields)
        for row in read.read_place(file.path, rules)
        if isinstance(row, Record)
    ]


def canary_records(texts: list[str], run: Run[Any]) -> list[list[Record]]:
    """The records of each canary: one, or of a user as many as may vote, all of the same text and label.

    Labels take turns.
    """
    of_unit = run.budget.examples_per_context if run.budget.unit == 'user' else 1
    labels = run.input.label_values
    return [
        [
            Record(
                text=text,
                label=labels[number % len(labels)],
                unit=f'canary {number}',
                record_id=f'canary {number} {copy}',
            )
            for copy in range(of_unit)
        ]
        for number, text in enumerate(texts)
    ]
