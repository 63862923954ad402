"""`dp-corpus plan`: what a run would release and cost, before anything is read or paid."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

import rich.console
import rich.table
import typer

from pipeline import calibration, vote_estimate
from pipeline import plan as plan_lib
from pipeline.commands import exit_codes, flags, screen
from pipeline.commands.flags import config_of, with_config_flags
from pipeline.config import JobConfig

if TYPE_CHECKING:
    from pipeline.tuning_plan import TuningPlan

CalibrateFlag = Annotated[
    bool,
    typer.Option(
        '--calibrate',
        help="Measure for some ten seconds how fast this machine decodes with the model's dimensions, and "
        'keep it for later plans.',
    ),
]
CalibrationFlag = Annotated[
    str | None,
    typer.Option(
        '--calibration',
        help="Public texts of the records' own genre, files like those of --input: decode a batch of them "
        'and say how long votes would last with individual accounting. It costs nothing and tells nothing of '
        'the records.',
    ),
]
CalibrationLabelFieldFlag = Annotated[
    str | None,
    typer.Option(
        '--calibration-label-field',
        help='Column of the label in the files of --calibration: only texts of the first declared label then '
        'serve. Without it all do.',
    ),
]


@with_config_flags
def plan(
    config: flags.ConfigFlag = None,
    as_json: flags.JsonFlag = False,
    calibrate: CalibrateFlag = False,
    calibration_files: CalibrationFlag = None,
    calibration_label_field: CalibrationLabelFieldFlag = None,
    **settings: Any,
) -> None:
    """Say what a run would release and cost, before anything is read or paid.

    Give --epsilon and it solves for the budget of one context, or for the private tokens of a
    batch where accounting is worst-case; or give --context-budget or --max-private-tokens and
    it answers with epsilon. With --dataset and --ledger it asks
    whether the run would fit into what is left, and ends with 3 where it would not.

    How long decoding takes is estimated from this machine's rates, which --calibrate measures; without
    them from those of a reference machine, and the plan says so.

    With --calibration it loads the model and estimates from public texts how long votes last with
    individual accounting, with --reference and without, and so whether a reference is of the right genre.
    """
    job_config = config_of(config, settings)
    if not job_config.votes:
        _plan_tuning(job_config, calibrate, calibration_files, as_json=as_json)
        return
    if calibration_files is not None:
        vote_estimate.check(job_config, calibration_label_field)
    elif calibration_label_field is not None:
        raise ValueError(
            'Expected calibration_label_field with calibration only, got '
            f'calibration_label_field={calibration_label_field!r}, calibration=None. Give --calibration FILE '
            'too, or leave it out.'
        )
    run_plan = plan_lib.plan_run(job_config)
    rates_of = calibration.calibrate if calibrate else calibration.known
    found = rates_of(job_config.model, dtype=plan_lib.requested_dtype(job_config))
    run_plan = dataclasses.replace(run_plan, decoding=plan_lib.estimate_decoding(job_config, found))
    if job_config.dataset is not None:
        run_plan = dataclasses.replace(run_plan, budget=plan_lib.ask_ledger(job_config))
    if calibration_files is not None:
        votes = _estimate_votes(job_config, calibration_files, calibration_label_field, quiet=as_json)
        run_plan = dataclasses.replace(run_plan, votes=votes)
    if as_json:
        print(run_plan.to_json())
    else:
        print_plan(run_plan)
    if run_plan.budget is not None and not run_plan.budget.fits:
        raise typer.Exit(exit_codes.BUDGET)


def _plan_tuning(
    job_config: JobConfig, calibrate: bool, calibration_files: str | None, *, as_json: bool
) -> None:
    """The plan of a fine-tuning run."""
    from pipeline import fine_tuning, tuning_plan
    from pipeline.commands import tuning

    if calibration_files is not None:
        raise ValueError(
            f'Expected no calibration with method={job_config.method!r}, got calibration='
            f'{calibration_files!r}. It estimates how long votes last, and there are none: leave it out.'
        )
    job_config = fine_tuning.with_adapter(job_config)
    run_plan = tuning_plan.plan_run(job_config)
    rates_of = calibration.calibrate if calibrate else calibration.known
    found = rates_of(job_config.model, dtype=plan_lib.requested_dtype(job_config))
    run_plan = dataclasses.replace(run_plan, estimate=tuning_plan.estimate(job_config, found))
    if job_config.dataset is not None:
        run_plan = tuning_plan.with_budget(run_plan, job_config, plan_lib.ask_ledger(job_config))
    if as_json:
        print(run_plan.to_json())
    else:
        tuning.print_plan(run_plan)
    if run_plan.budget is not None and not run_plan.budget.fits:
        raise typer.Exit(exit_codes.BUDGET)


def _estimate_votes(
    job_config: JobConfig, files: str, label_field: str | None, *, quiet: bool
) -> vote_estimate.VoteEstimate:
    """The estimate, with its progress on the screen."""
    screen.silence_libraries()
    # Standard error is held back meanwhile.
    console = rich.console.Console(quiet=quiet)
    with console.status('Starting') as status, screen.without_chatter():
        return vote_estimate.estimate_votes(
            job_config, files, label_field=label_field, progress=lambda said: status.update(said)
        )


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
    if run_plan.forced is not None:
        share = run_plan.forced
        rows.append(
            (
                'Structure',
                f'forced tokens are free: {share.forced_bytes:,} of the {share.shortest_bytes:,} bytes of '
                'the shortest example',
            )
        )
    if run_plan.rho_per_private_token is not None:
        rows.append(('ρ per private token', f'{run_plan.rho_per_private_token:.6g}'))
    rows.append(('ρ of noisy counts', f'{run_plan.rho_counts:.6g}'))
    if run_plan.rho_cells:
        rows.append(('ρ of counts of --condition-on', f'{run_plan.rho_cells:.6g}'))
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
        rows += budget_rows(run_plan.budget, run_plan)
    if run_plan.votes is not None:
        rows += _votes_rows(run_plan.votes, run_plan.max_batch_tokens)
    rows += [('WARNING', text) for text in run_plan.warnings]
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
            f'{number(estimate.prompts_seconds)} s for its prompts, {number(step)} ms a token in '
            f'{estimate.dtype}',
        )
    ]
    if estimate.hours is not None:
        rows.append(('Decoding', f'up to {duration(estimate.hours)}'))
    rows.append(
        ('Memory', f'{estimate.memory_bytes / 2**30:.1f} GiB for weights and one batch, at the least')
    )
    return [*rows, ('Estimated', source)]


def number(value: float) -> str:
    """A number of an estimate, of three digits or without a fraction.

    >>> number(0.03456), number(15.02), number(1041.7)
    ('0.0346', '15', '1,042')
    """
    return f'{value:.3g}' if value < 100 else f'{value:,.0f}'


def duration(hours: float) -> str:
    """Hours in words."""
    if hours < 1 / 60:
        return f'{3600 * hours:.2g} seconds'
    if hours < 1:
        return f'{60 * hours:.2g} minutes'
    return f'{hours:.2g} hours' if hours < 10 else f'{hours:,.0f} hours'


def budget_rows(
    answer: plan_lib.BudgetAnswer, run_plan: 'plan_lib.RunPlan | TuningPlan'
) -> list[tuple[str, str]]:
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
        *_restricted_orders_rows(answer, run_plan),
        *(() if answer.fits else _refused_rows(answer, run_plan)),
    ]


def _restricted_orders_rows(
    answer: plan_lib.BudgetAnswer, run_plan: 'plan_lib.RunPlan | TuningPlan'
) -> list[tuple[str, str]]:
    """What is left for a run with this one's ω, where that makes a difference."""
    from models.privacy.report import format_down

    left, whole = answer.epsilon_left_up_to_omega, answer.epsilon_left
    if left is None or not isinstance(run_plan, plan_lib.RunPlan) or not left > whole * (1 + 1e-3):
        return []
    return [
        (
            '',
            f'or --epsilon {format_down(left)} with --omega {run_plan.omega:.10g}: orders end there',
        )
    ]


def _refused_rows(
    answer: plan_lib.BudgetAnswer, run_plan: 'plan_lib.RunPlan | TuningPlan'
) -> list[tuple[str, str]]:
    """Why a run does not fit, and what would."""
    from models.privacy.report import format_exact, format_up

    at_own = f'; the plan states its ε at its own δ = {format_exact(run_plan.delta)}'
    return [
        (
            '',
            f'This run is ε = {format_up(answer.epsilon)} by itself at that δ = {format_exact(answer.delta)}'
            + (at_own if answer.delta != run_plan.delta else ''),
        ),
        ('', plan_lib.fitting_words(answer.fitting, run_plan.delta)),
    ]


def _votes_rows(votes: vote_estimate.VoteEstimate, batch_tokens: int) -> list[tuple[str, str]]:
    """How long votes last, as rows of the plan's table."""
    of_label = '' if votes.label is None else f' as a batch of {votes.label!r}'
    rows = [
        (
            'Votes, estimated',
            f'{votes.contexts:,} contexts of public texts{of_label}, {votes.tokens:,} tokens',
        ),
        (
            '',
            'of one stream: more texts would make more of them'
            if votes.streams == 1
            else f'of each of {votes.streams} streams, other texts in each',
        ),
        ('', 'decoded; costs nothing, and tells nothing of the records'),
    ]
    for found in votes.against:
        against = f'{found.reference_texts} reference texts' if found.reference_texts else 'the public prompt'
        silent = f'the {batch_tokens:,} tokens'
        if found.first_silent is not None:
            silent = f'{found.first_silent:,} tokens'
        shares = ', '.join(f'{share:.0%}' for share in found.voting)
        rows += [
            (f'Against {against}', f'ρ = {found.mean_price:.3g} a token and context; all vote for {silent}'),
            ('', f'{shares} still vote at 1/4, 1/2, 3/4 and the end'),
            ('', f'{found.budget_left:.0%} of B left at the end, in the mean'),
        ]
    if len(votes.against) > 1:
        rows.append(('The reference', _verdict(votes)))
    return rows


def _verdict(votes: vote_estimate.VoteEstimate) -> str:
    """What a reference does to the price, in a few words."""
    with_reference, without = (found.mean_price for found in votes.against)
    if not votes.is_clear:
        return 'no clear difference: these tokens do not tell whether it is better than none'
    if with_reference > without:
        times = (
            f'{with_reference / without:.3g} times as much' if without else 'something, and nothing without'
        )
        return (
            f'WORSE THAN NONE: a token costs {times}. Take texts of the genre of the records, or leave '
            '--reference out'
        )
    if not with_reference:
        return 'makes tokens free'
    return f'makes a token {without / with_reference:.3g} times cheaper'
