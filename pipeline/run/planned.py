"""The plan of a run with all that is known of it: its time on this machine, and what the ledger has left."""

from models import extras
from pipeline import calibration, methods
from pipeline.methods.method import RunPlan
from pipeline.settings.job_config import JobConfig
from pipeline.settings.model import Model


def planned(
    job_config: JobConfig,
    *,
    calibrate: bool = False,
) -> RunPlan:
    """The plan of a run, with an estimate of its time, and with what the ledger says where one is named.

    Args:
        job_config: The run.
        calibrate: Whether this machine's rates are measured first.

    Raises:
        ValueError: The settings do not fit, or the ledger does not know the dataset.
        ConnectionError: The ledger is not there.
        MissingExtraError: A library is not installed that decodes for an estimate.
    """
    if calibrate:
        extras.need(extras.GEMMA, use='--calibrate')
    run, rates = methods.solve(job_config), None
    if isinstance(run.method, Model):
        rates_of = calibration.calibrate if calibrate else calibration.known
        rates = rates_of(run.method.model, dtype=run.method.planned_dtype)
    answer = None
    if run.budget.dataset is not None:
        from pipeline.run import charge

        answer = charge.ask(run)
    return methods.of(run).plan(run, rates, answer)
