"""The plan of a run with all that is known of it: its time on this machine, and what the ledger has left."""

from typing import Any

from pipeline import methods
from pipeline.methods import notes
from pipeline.methods.method import RunPlan
from pipeline.settings.job_config import JobConfig


def planned(config: JobConfig[Any]) -> RunPlan:
    """The plan of a run, with what it takes of this machine, and what the ledger says where one is named."""
    run, answer = methods.solve(config), None
    method = methods.of(run)
    if run.budget.dataset is not None:
        from pipeline.run import charge

        answer = charge.ask(run)
    return notes.noted(run, method.plan(run, method.estimate(run), answer))
