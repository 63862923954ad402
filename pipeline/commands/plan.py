"""`dp-corpus plan`: what a run would release and cost, before anything is read or paid."""

import dataclasses
from typing import Annotated, Any

import rich.console
import rich.table
import typer

from pipeline import calibration
from pipeline import plan as plan_lib
from pipeline.commands import exit_codes, flags
from pipeline.commands.flags import config_of, with_config_flags

CalibrateFlag = Annotated[
    bool,
    typer.Option(
        '--calibrate',
        help="Measure for some ten seconds how fast this machine decodes with the model's dimensions, and "
        'keep it for later plans.',
    ),
]


@with_config_flags
def plan(
    config: flags.ConfigFlag = None,
    as_json: flags.JsonFlag = False,
    calibrate: CalibrateFlag = False,
    **settings: Any,
) -> None:
    """Say what a run would release and cost, before anything is read or paid.

    Give --epsilon and it solves for the budget of one context, or for the private tokens of a
    batch where accounting is worst-case; or give --context-budget or --max-private-tokens and
    it answers with epsilon. With --dataset and --ledger it asks
    whether the run would fit into what is left, and ends with 3 where it would not.

    How long decoding takes is estimated from this machine's rates, which --calibrate measures; without
    them from those of a reference machine, and the plan says so.
    """
    job_config = config_of(config, settings)
    run_plan = plan_lib.plan_run(job_config)
    rates_of = calibration.calibrate if calibrate else calibration.known
    found = rates_of(job_config.model, dtype=job_config.dtype)
    run_plan = dataclasses.replace(run_plan, decoding=plan_lib.estimate_decoding(job_config, found))
    if job_config.dataset is not None:
        run_plan = dataclasses.replace(run_plan, budget=plan_lib.ask_ledger(job_config))
    if as_json:
        print(run_plan.to_json())
    else:
        print_plan(run_plan)
    if run_plan.budget is not None and not run_plan.budget.fits:
        raise typer.Exit(exit_codes.BUDGET)


def statement(run_plan: plan_lib.RunPlan) -> str:
    """The guarantee in a few words."""
    if run_plan.statement == 'ex-post':
        return 'ex-post: the loss is known after the run, to the curator only'
    if run_plan.statement == 'none':
        return 'NONE: the centres were fitted on private records, for research only'
    return f'ε = {run_plan.epsilon:.6g} at δ = {run_plan.delta:.6g}'


def tokens_of_a_batch(run_plan: plan_lib.RunPlan) -> str:
    """How much a batch may write, and what that rests on, in a few words."""
    if run_plan.context_budget is None:
        return f'{run_plan.max_private_tokens:,} private tokens per batch'
    budget = f'B = {run_plan.context_budget:.3g} for each context'
    return f'{budget}, at most {run_plan.max_batch_tokens:,} tokens per batch'


def sampled_from(run_plan: plan_lib.RunPlan) -> str:
    """Which tokens a private one may be."""
    if run_plan.public_top_k is None:
        return 'the whole vocabulary'
    return f'the {run_plan.public_top_k:,} most probable public tokens'


def print_plan(run_plan: plan_lib.RunPlan) -> None:
    """The plan as a table."""
    table = rich.table.Table(show_header=False, box=None, pad_edge=False)
    rows = [('Guarantee', statement(run_plan))]
    if run_plan.rho_total is not None:
        closed_form = f'closed form ε = {run_plan.epsilon_closed_form:.6g}'
        kind = 'zCDP'
        if run_plan.order is not None:
            kind = f'truncated zCDP, orders up to ω = {run_plan.omega:g}, α = {run_plan.order:.6g} used'
        rows.append(('', f'ρ = {run_plan.rho_total:.6g} in {kind}; {closed_form}'))
    if run_plan.context_budget is not None:
        rows += [
            ('Budget of one context', f'B = {run_plan.context_budget:.6g}, individual accounting'),
            (
                '',
                f'pays for {run_plan.worst_case_tokens:,} tokens at the highest price; who gives less votes '
                'for longer',
            ),
        ]
    else:
        rows.append(('Private tokens per batch', f'at most {run_plan.max_private_tokens:,}'))
    shift = '' if run_plan.shift_bound is None else f'c₂ = {run_plan.shift_bound:g}, '
    rows += [
        ('All tokens per batch', f'at most {run_plan.max_batch_tokens:,}'),
        ('Bounds, temperature', f'c = {run_plan.clip_bound:g}, {shift}τ = {run_plan.temperature:g}'),
        ('Sampled from', sampled_from(run_plan)),
    ]
    if run_plan.rho_per_private_token is not None:
        rows.append(('ρ per private token', f'{run_plan.rho_per_private_token:.6g}'))
    rows.append(('ρ of noisy counts', f'{run_plan.rho_counts:.6g}'))
    if run_plan.rho_centers:
        rows.append(('ρ of the centres', f'{run_plan.rho_centers:.6g}'))
    if run_plan.expected_batches is None:
        rows.append(('Batches', 'not known: declare --records or --batches-per-label'))
    else:
        rows.append(('Batches', f'about {run_plan.expected_batches:,}'))
        rows.append(('Private tokens', f'about {run_plan.expected_private_tokens:,}'))
    if run_plan.decoding is not None:
        rows += _decoding_rows(run_plan.decoding)
    if run_plan.budget is not None:
        rows += _budget_rows(run_plan.budget)
    for name, value in rows:
        table.add_row(name, value)
    rich.console.Console().print(table)


def _decoding_rows(estimate: plan_lib.DecodingEstimate) -> list[tuple[str, str]]:
    """The estimate, and what it rests on, as rows of the plan's table."""
    if estimate.measured_on is None:
        source = f'from rates of {estimate.device}; measure this machine: {calibration.REMEDY}'
    else:
        source = f'from rates measured on this machine on {estimate.measured_on} ({estimate.device})'
    step = 1000 * estimate.seconds_per_step
    rows = [
        (
            'One batch',
            f'{estimate.prompts_seconds:.2g} s for its prompts, {step:.3g} ms a token in {estimate.dtype}',
        )
    ]
    if estimate.hours is not None:
        rows.append(('Decoding', f'up to {_duration(estimate.hours)}'))
    return [*rows, ('Estimated', source)]


def _duration(hours: float) -> str:
    if hours < 1:
        return f'{60 * hours:.2g} minutes'
    return f'{hours:.2g} hours' if hours < 10 else f'{hours:,.0f} hours'


def _budget_rows(answer: plan_lib.BudgetAnswer) -> list[tuple[str, str]]:
    """The ledger's answer as rows of the plan's table."""
    from models.privacy.report import format_down, format_exact, format_up

    if answer.is_charged:
        verdict = 'was charged already: resuming it is free'
    else:
        verdict = 'fits' if answer.fits else 'DOES NOT FIT: it would not start'
    left = f'ρ = {format_down(answer.rho_left)} left {"now" if not answer.fits else "after it"}'
    return [
        ('Budget', f'{answer.dataset}: {verdict}'),
        ('', f'ρ = {format_up(answer.rho_spent)} of {format_down(answer.rho_budget)} spent, {left}'),
        (
            '',
            f'which is ε = {format_down(answer.epsilon_left)} at δ = {format_exact(answer.delta)} '
            'for one more run',
        ),
    ]
