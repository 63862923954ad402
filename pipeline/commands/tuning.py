"""What `dp-corpus plan` and `generate` say of a fine-tuning run."""

import rich.console
import rich.table

from models.privacy import counts
from pipeline import calibration
from pipeline.commands import plan as plan_command
from pipeline.tuning_plan import TuningEstimate, TuningPlan


def statement(run_plan: TuningPlan) -> str:
    """The guarantee in a few words."""
    words = f'ε = {run_plan.epsilon:.6g} at δ = {run_plan.delta:.6g}'
    if run_plan.trained_by is None:
        return words
    return f'{words}, of the run {run_plan.trained_by}, which trained the adapter; texts are free'


def size(run_plan: TuningPlan) -> str:
    """What the run does, in a few words."""
    texts = f'{run_plan.examples:,} texts'
    if run_plan.trained_by is not None:
        return texts
    steps = f'{run_plan.tuning_steps:,} steps with noise multiplier {run_plan.noise_multiplier:g}'
    return f'{steps}, then {texts}' if run_plan.examples else f'{steps}, and no text yet'


def print_plan(run_plan: TuningPlan) -> None:
    """The plan as a table."""
    table = rich.table.Table(show_header=False, box=None, pad_edge=False)
    q = run_plan.sampling_probability
    rows = [('Guarantee', statement(run_plan))]
    rows += [
        ('', 'from the privacy loss distribution of all steps (PLD), an upper bound'),
        (
            'Steps',
            f'{run_plan.tuning_steps:,}, each of about {run_plan.expected_batch_size:,} units, q = {q:.4g}',
        ),
        ('Noise', f'z = {run_plan.noise_multiplier:g} clip norms, C = {run_plan.clip_norm:g}'),
        *_mix_rows(run_plan),
        ('Adapter', f'{_trained(run_plan.lora_rank)}, {run_plan.adapter_parameters:,} numbers'),
        ('Texts', f'{run_plan.examples:,}, free' if run_plan.examples else 'none; they are free later'),
    ]
    if run_plan.estimate is not None:
        rows += _estimate_rows(run_plan, run_plan.estimate)
    if run_plan.budget is not None:
        rows += plan_command.budget_rows(run_plan.budget, run_plan)
        rows.append(
            (
                '',
                'A ledger adds up Rényi divergences, a weaker bound than PLD that holds for runs of all '
                f'kinds together: it charges ρ = {run_plan.rho_at_order:.6g} at its order',
            )
        )
    rows += [('WARNING', text) for text in run_plan.warnings]
    for name, value in rows:
        table.add_row(name, value)
    rich.console.Console().print(table)


def _mix_rows(run_plan: TuningPlan) -> list[tuple[str, str]]:
    """What a noisy mix of labels costs, and what it is; nothing without one."""
    rho = run_plan.label_mix_rho
    if rho is None:
        return []
    scale = counts.gaussian_scale(rho)
    return [
        (
            'Label mix',
            f'from noisy counts, ρ = {rho:g}: discrete Gaussian noise of scale {scale:.4g} on the number of '
            'units of each label; ε has it in it',
        )
    ]


def _trained(rank: int | None) -> str:
    return 'all weights' if rank is None else f'rank {rank}'


def _estimate_rows(run_plan: TuningPlan, estimate: TuningEstimate) -> list[tuple[str, str]]:
    """The estimate, and what it rests on."""
    if estimate.measured_on is None:
        source = f'from rates of {estimate.device}; measure this machine: {calibration.REMEDY}'
    else:
        source = f'from rates measured on this machine on {estimate.measured_on} ({estimate.device})'
    rows = []
    if run_plan.trained_by is None:
        rows.append(
            (
                'Training',
                f'about {plan_command.duration(estimate.training_hours)}, '
                f'{plan_command.number(estimate.seconds_per_step)} s a step in {estimate.dtype}',
            )
        )
    if run_plan.examples:
        rows.append(('Sampling', f'up to {plan_command.duration(estimate.sampling_hours)}'))
    return [
        *rows,
        ('Memory', f'{estimate.memory_bytes / 2**30:.1f} GiB at the least'),
        ('Estimated', source),
    ]
