"""The plan of a run with all that is known of it: its time on this machine, and what the ledger has left."""

from models import extras
from pipeline import calibration, methods
from pipeline.methods.method import RunPlan
from pipeline.screen import off_screen, terminal
from pipeline.settings.job_config import JobConfig
from pipeline.settings.model import Model


def planned(
    job_config: JobConfig,
    *,
    calibrate: bool = False,
    calibration_files: str | None = None,
    calibration_label_field: str | None = None,
    quiet: bool = True,
) -> RunPlan:
    """The plan of a run, with an estimate of its time, and with what the ledger says where one is named.

    Args:
        job_config: The run.
        calibrate: Whether this machine's rates are measured first.
        calibration_files: Public texts of the records' genre, for an estimate of how far a budget reaches.
        calibration_label_field: Column of their label.
        quiet: Whether nothing shows what goes on.

    Raises:
        ValueError: Public texts do not go with the run, or the ledger does not know the dataset.
        ConnectionError: The ledger is not there.
        MissingExtraError: A library is not installed that decodes for an estimate.
    """
    method = methods.of(job_config)
    if calibrate:
        extras.need(extras.GEMMA, use='--calibrate')
    if calibration_files is not None:
        extras.need(extras.GEMMA, use='--calibration')
    method.check_public_texts(job_config, calibration_files, calibration_label_field)
    if calibration_files is None and calibration_label_field is not None:
        raise ValueError(
            'Expected calibration_label_field with calibration only, got '
            f'calibration_label_field={calibration_label_field!r}, calibration=None. Give --calibration FILE '
            'too, or leave it out.'
        )
    job_config = method.resolved(job_config)
    run_plan = method.plan(job_config)
    if isinstance(job_config.method, Model):
        rates_of = calibration.calibrate if calibrate else calibration.known
        found = rates_of(job_config.method.model, dtype=method.planned_dtype(job_config))
        run_plan = method.with_rates(run_plan, job_config, found)
    if job_config.budget.dataset is not None:
        from pipeline.run import charge

        run_plan = method.with_budget(run_plan, job_config, charge.ask(job_config))
    if calibration_files is not None:
        run_plan = _with_public_texts(
            run_plan, job_config, calibration_files, calibration_label_field, quiet=quiet
        )
    return run_plan


def _with_public_texts(
    run_plan: RunPlan, job_config: JobConfig, files: str, label_field: str | None, *, quiet: bool
) -> RunPlan:
    """The plan with the estimate from public texts, whose progress is on the screen."""
    off_screen.silence_libraries()
    # Standard error is held back meanwhile.
    console = terminal.console(quiet=quiet)
    with console.status('Starting') as status, off_screen.without_chatter():
        return methods.of(job_config).with_public_texts(
            run_plan, job_config, files, label_field, lambda said: status.update(said)
        )
