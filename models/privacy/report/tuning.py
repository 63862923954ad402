"""The facts of DP fine-tuning for a report: its steps, its clipping, and who trained the adapter.

FT = Mattern et al. 2022; AB = Abadi et al. 2016, "Deep learning with differential privacy".
"""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence

from models.privacy import counts
from models.privacy.accounting import conversion, gaussian, run_cost, subsampled
from models.privacy.earlier_release import EarlierRelease
from models.privacy.facts import Facts, MethodFacts, SampledGaussianStage, Sensitivity, Setting
from models.privacy.gradients import TuningParams
from models.privacy.numbers import format_exact
from models.privacy.report.ledger import GaussianLedgerEntry, LedgerEntry, MixedLedgerEntry

# For a run whose settings say how many texts each label has.
LABEL_MIX = Facts(
    assumptions_of_curator=(
        "The labels' shares of the texts were given, and were not counted in the records.",
    ),
)
# For a run that gives labels to texts in the shares of noisy counts: its own, or those of its adapter.
COUNTED_MIX = Facts(
    assumptions_enforced=(
        'How many texts each label has follows from the released noisy counts: one below zero is taken for '
        'zero, where none is above zero all labels have equally many, and each has one text at the least.',
    ),
)
# What reports call the texts that an adapter is trained on before its first private step.
WARM_START = 'the warm start'
RELEASED = 'The adapter, every text that is sampled from it, and this report'


def is_of_tuning(mechanism: Mapping[str, Setting]) -> bool:
    """Whether settings by name are those of fine-tuning, and not of another method."""
    return 'noise_multiplier' in mechanism and 'clip_norm' in mechanism


def params_of(mechanism: Mapping[str, Setting]) -> TuningParams:
    """The mechanism of the settings that a report holds.

    Raises:
        ValueError: This installation knows no mechanism with these settings.
    """
    values = typing.cast(dict[str, typing.Any], dict(mechanism))
    try:
        return TuningParams(**values)
    except TypeError:
        raise ValueError(
            f'Expected the settings of fine-tuning, got mechanism={sorted(values)}. Read it with the version '
            'that wrote it.'
        ) from None


def facts(
    params: TuningParams,
    trained_by: EarlierRelease | None = None,
    sampling: tuple[Facts, ...] = (),
    *,
    writes_texts: bool = True,
    releases: tuple[EarlierRelease, ...] = (),
) -> MethodFacts:
    """The facts of a run with these settings, from public values alone.

    Args:
        params: The mechanism.
        trained_by: The run that trained the adapter; None if this run did.
        sampling: Further facts on how texts are sampled (`models.privacy.report.structure`, and
            `LABEL_MIX` or `COUNTED_MIX`), and on what training began with
            (`models.privacy.report.earlier_releases`, of `WARM_START`).
        writes_texts: Whether the run samples texts too.
        releases: The releases that went in, `trained_by` the first where there is one.
    """
    one, many = ('user', 'users') if params.unit == 'user' else ('record', 'records')
    return MethodFacts(
        unit_nouns=(one, many),
        unit_of_privacy=_unit_of_privacy(params),
        mechanism_output=(
            ('The adapter' if params.label_mix_rho is None else 'The noisy counts of labels, the adapter')
            + ' after the last step, and with it every step before it. '
            + ('The texts' if writes_texts else 'This run sampled no text; those of later runs')
            + ', however many, '
            + (
                'are sampled from the adapter alone'
                if params.label_mix_rho is None
                else 'follow from the two alone'
            )
            + ': post-processing, which costs nothing'
        ),
        accounting=(
            f'Each of the {params.tuning_steps:,} steps is a Gaussian mechanism on a Poisson sample of the '
            f'{many}, under adding or removing one {one}.'
            + ' Their privacy loss distributions'
            + (
                ', and before them that of the discrete Gaussian noise on the counts of labels,'
                if params.label_mix_rho is not None
                else ''
            )
            + ' are composed numerically, rounded so that the result is an upper bound (dp_accounting, '
            f'{"PLDAccountant" if params.label_mix_rho is None else "PrivacyLossDistribution"}). Such a '
            'cost has no ρ: a ledger charges the same event at its Rényi order, which is an upper bound '
            'that adds up with runs of all kinds, and a larger one.'
        ),
        settings=dataclasses.asdict(params),
        contexts=_contexts(params, one, many),
        parts=(*_counts_of_labels(params, one), _steps(params, one, many), *sampling),
        decoding=_sampling(trained_by, writes_texts=writes_texts),
        rho_per_private_token=None,
        reproduction=None,
        event=params.event,
        data_accesses=_data_accesses(one, trained_by),
        released=RELEASED,
        releases=releases,
        reads_records=trained_by is None,
    )


def _unit_of_privacy(params: TuningParams) -> str:
    if params.unit == 'user':
        k = params.examples_per_context
        at_most = 'one record' if k == 1 else f'at most {k} records'
        return (
            'One user: everything that the input holds under one unit id. A user contributes '
            f'{at_most}, of one label, chosen by a keyed hash of the records; together they make one '
            'gradient.'
        )
    return 'One record: one row of the input, which makes one gradient of its own.'


def _contexts(params: TuningParams, one: str, many: str) -> Facts:
    is_user = params.unit == 'user'
    return Facts(
        assumptions_enforced=(
            f'Poisson sampling: at each step each of the {many} is in the batch by a coin of its own, a '
            f'keyed hash of the {one} and the step, with the public probability q. No batch is filled '
            'up, capped or shuffled.',
            f'One {one}, one gradient: whatever a {one} holds is one loss, and its gradient is clipped once.',
        ),
        assumptions_of_curator=(
            "One person has one unit id, and nobody else's records carry it."
            if is_user
            else 'Hiding one record is enough. A person with several records is protected less (see the '
            'limits).',
            f'The declared number of {many}, from which q follows, was not counted in the records.',
        ),
        limits=(
            f'It hides one {one}, not a group: the bound for several of them together is weaker, and is not '
            'stated here.',
        ),
    )


def _counts_of_labels(params: TuningParams, one: str) -> tuple[Facts, ...]:
    """The facts of the noisy counts of labels; empty without them."""
    if params.label_mix_rho is None:
        return ()
    counted = counts.facts(
        params.label_mix_rho,
        stage='Noisy counts',
        cells='label',
        use='from which the mix of labels follows',
        variable='noisy_counts',
        meaning='the noisy counts',
    )
    return (
        dataclasses.replace(
            counted,
            assumptions_enforced=(
                f'A {one} counts once, under the label that it is trained on. The noise is drawn once, and '
                'written down before the first step: a run that is resumed has the same counts.',
            ),
            sources=('Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy.',),
        ),
    )


def _steps(params: TuningParams, one: str, many: str) -> Facts:
    q, z, steps = params.sampling_probability, params.noise_multiplier, params.tuning_steps
    return Facts(
        stages=(
            SampledGaussianStage(
                name='Fine-tuning',
                rho=None,
                explanation=(
                    f'{steps:,} noisy sums of the clipped gradients of the {many} of a step, '
                    'which train the adapter.'
                ),
                formula='T × Gaussian(z) on a Poisson sample (q)',
                numbers=f'{steps:,} × Gaussian({z:g}) on a Poisson sample ({q:.6g})',
                sampling_probability=q,
                noise_multiplier=z,
                steps=steps,
            ),
        ),
        sensitivities=(
            Sensitivity(
                quantity='The sum of the gradients of a step (L2)', value=params.clip_norm, formula='C'
            ),
        ),
        assumptions_enforced=(
            'Gradients are clipped before they are added, each rounded towards zero to whole steps of '
            'C/2²², and added up exactly. Noise of whole steps is added once to their sum, and the noisy '
            f'sum is divided by the public expected batch size of {params.expected_batch_size:,}, whatever a '
            'batch holds. What fills up a micro-batch counts as exactly nothing.',
            'The noise of a step is drawn from the run key and the number of the step: a step that is done '
            'again after a failure releases nothing new.',
        ),
        symbols=(
            'q probability of a unit at a step',
            'z noise multiplier, the standard deviation of the noise over C',
            'T number of steps',
            'C clip norm of one gradient',
        ),
        sources=(
            'Mattern et al. 2022, Differentially private language models for secure data sharing.',
            'Abadi et al. 2016, Deep learning with differential privacy.',
            'Doroshenko et al. 2022, Connect the dots: tighter discrete approximations of privacy loss '
            'distributions.',
        ),
    )


def _sampling(trained_by: EarlierRelease | None, *, writes_texts: bool) -> Facts:
    text = 'Text is sampled from the adapter, the model and public instructions, and from nothing else.'
    enforced = [text] if writes_texts else []
    if trained_by is not None:
        enforced.append(
            f'The adapter is the one that the run {trained_by.run_id!r} released, unchanged: its file has '
            'the SHA-256 that its card states, and its weights are those that it was trained on.'
        )
    return Facts(
        assumptions_enforced=tuple(enforced),
        assumptions_of_curator=(
            'The adapter is released, or may be: every text tells of it. Its checkpoints before the last one '
            'stay in the work directory.',
            'The weights that the adapter is added to are public, and were not trained on these records.',
        ),
    )


def _data_accesses(one: str, trained_by: EarlierRelease | None) -> tuple[str, ...]:
    tuning = (
        'Not covered: choosing the settings. Looking at the records, or at the output of trial runs on '
        'them, to tune a setting is a further access.'
    )
    if trained_by is None:
        return (
            'Covered: this run, from reading the records to the adapter, and every text that is ever sampled '
            'from it.',
            'Not covered: other runs on the same records. Their costs add up, and this run was not charged '
            'to a ledger.',
            tuning,
        )
    ledger = (
        'which was charged to no ledger'
        if trained_by.dataset is None
        else f"which its ledger charged to '{trained_by.dataset}' as run {trained_by.run_number:,}"
    )
    return (
        f'Covered: the run {trained_by.run_id!r}, {ledger}. It trained the adapter, and the guarantee is its '
        f'own. This run read no record and adds nothing to what can be told about any one {one}.',
        'Not covered: other runs on the same records, whose costs add up.',
        tuning,
    )


def reproduction(params: TuningParams, delta: float) -> str:
    """Lines of Python that print epsilon again. They need dp-accounting."""
    interval = subsampled.interval_of_steps(
        params.sampling_probability, params.noise_multiplier, params.tuning_steps, delta
    )
    # The library's own is that of usual epsilons.
    apart = '' if interval == subsampled.INTERVAL else f', value_discretization_interval={interval!r}'
    if params.label_mix_rho is not None:
        return f"""\
from math import sqrt

from dp_accounting.pld import privacy_loss_distribution as pld

s = {params.expected_batch_size}  # expected batch size
n = {params.units!r}  # declared number of units
q = s / n  # probability of a unit at a step
z = {params.noise_multiplier!r}  # noise multiplier
steps = {params.tuning_steps}
noisy_counts = {params.label_mix_rho!r}  # rho of the noisy counts
delta = {delta!r}

step = pld.from_gaussian_mechanism(z, sampling_prob=q{apart})
counts = pld.from_discrete_gaussian_mechanism(1 / sqrt(2 * noisy_counts), use_connect_dots=True{apart})
run = step.self_compose(steps).compose(counts)
print(f'epsilon = {{run.get_epsilon_for_delta(delta):.10g}}')
"""
    return f"""\
import dp_accounting
from dp_accounting import pld

s = {params.expected_batch_size}  # expected batch size
n = {params.units!r}  # declared number of units
q = s / n  # probability of a unit at a step
z = {params.noise_multiplier!r}  # noise multiplier
steps = {params.tuning_steps}
delta = {delta!r}

step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE{apart})
accountant.compose(step, steps)
print(f'epsilon = {{accountant.get_epsilon(delta):.10g}}')
"""


def check(
    mechanism: Mapping[str, Setting],
    *,
    epsilon: float | None,
    delta: float,
    stages: Sequence[typing.Any],
    without: Sequence[float | None],
    ledger: LedgerEntry | None,
) -> None:
    """Refuses a report whose figures do not follow from its settings.

    Args:
        mechanism: Its settings.
        epsilon: The epsilon that it states at delta.
        delta: In (0, 1).
        stages: Its stages.
        without: Its figures that exist in zCDP alone.
        ledger: Its entry in the ledger; None without one.

    Raises:
        ValueError: A figure does not follow from the settings.
    """
    params = params_of(mechanism)
    computed = subsampled.epsilon_of_event(params.event, delta)
    if epsilon is None or not subsampled.is_same(epsilon, computed):
        raise ValueError(
            f'Expected epsilon to follow from the settings and delta, got epsilon={epsilon!r}, '
            f'computed={computed!r} at delta={format_exact(delta)}. Build the report with '
            'build_privacy_report and do not edit it.'
        )
    found = [
        (stage.sampling_probability, stage.noise_multiplier, stage.steps)
        for stage in stages
        if isinstance(stage, SampledGaussianStage)
    ]
    expected = [(params.sampling_probability, params.noise_multiplier, params.tuning_steps)]
    others = [stage.rho for stage in stages if not isinstance(stage, SampledGaussianStage)]
    counted = [] if params.label_mix_rho is None else [params.label_mix_rho]
    if found != expected or others != counted or any(figure is not None for figure in without):
        raise ValueError(
            'Expected one stage of sampled Gaussians, one of noisy counts where labels are counted, and no '
            f'figure in zCDP of the run, got stages={found!r}, rho of others={others!r}. Build the report '
            'with build_privacy_report and do not edit it.'
        )
    if ledger is None:
        return
    charged, tolerance = None, 1e-9
    if isinstance(ledger, MixedLedgerEntry):
        curve: conversion.RenyiCurve = run_cost.curve_of(params.event)
        charged = curve.rho_at(ledger.order)
    elif isinstance(ledger, GaussianLedgerEntry):
        charged = gaussian.gaussian_rho([params.event], ledger.failure)
        tolerance = 1e-3  # searched for in steps, which another machine or library may round in another way
    if charged is None or not math.isclose(ledger.rho, charged, rel_tol=tolerance):
        raise ValueError(
            f'Expected the ledger to have charged the event, got charged={ledger.rho!r}, '
            f'computed={charged!r}. Take the entry from the ledger and do not edit it.'
        )
