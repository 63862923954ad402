"""The facts of votes on whole texts for a report: its tables of votes, its lists, and where a list starts.

The method is in METHOD 4e, the proof in README, section 10.
"""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence

from models.privacy.earlier_release import EarlierRelease
from models.privacy.facts import (
    Facts,
    MethodFacts,
    Reproduction,
    RhoStage,
    SampledGaussianStage,
    Sensitivity,
    Setting,
)
from models.privacy.numbers import format_up
from models.privacy.public_numbers import Unit
from models.privacy.report import prediction
from models.privacy.text_votes import SENSITIVITY, TextVoteParams

STAGE = 'Votes on texts'
RELEASED = 'The noisy votes of every round, all texts of all rounds, the corpus and this report'
# For a run whose first list was sampled from public prompts.
SAMPLED_START = Facts(
    assumptions_enforced=(
        'The texts of the first list were sampled from public prompts: no record has a part in it.',
    ),
)
# What reports call the texts that the first round votes on.
FIRST_LIST = 'the first list'


def is_of_text_votes(mechanism: Mapping[str, Setting]) -> bool:
    """Whether settings by name are those of votes on texts, and not of another method."""
    return 'rounds' in mechanism and 'nearest' in mechanism


def params_of(mechanism: Mapping[str, Setting]) -> TextVoteParams:
    """The mechanism of the settings that a report holds.

    Raises:
        ValueError: This installation knows no mechanism with these settings.
    """
    values = typing.cast(dict[str, typing.Any], dict(mechanism))
    try:
        return TextVoteParams(**values)
    except TypeError:
        raise ValueError(
            f'Expected the settings of votes on texts, got mechanism={sorted(values)}. Read it with the '
            'version that wrote it.'
        ) from None


def facts(
    params: TextVoteParams,
    *,
    start: Facts = SAMPLED_START,
    sampling: tuple[Facts, ...] = (),
    writes_texts: bool = True,
    releases: tuple[EarlierRelease, ...] = (),
) -> MethodFacts:
    """The facts of a run with these settings, from public values alone.

    Args:
        params: The mechanism.
        start: Where the first list comes from: `SAMPLED_START`, or what
            `models.privacy.report.earlier_releases` says of `FIRST_LIST`.
        sampling: Further facts on how texts are sampled.
        writes_texts: Whether the run samples texts; one that only chooses among given ones does not.
        releases: The releases that went in.
    """
    one, many = prediction.unit_nouns(params.unit)
    votes = _votes(params, one)
    rounds = _rounds(params)
    return MethodFacts(
        unit_nouns=(one, many),
        unit_of_privacy=_unit_of_privacy(params),
        mechanism_output=(
            f'The noisy votes of {rounds}, and all texts that were voted on. The corpus, its labels and all '
            'other texts follow from these and from public values: post-processing, which costs nothing'
        ),
        accounting=(
            'A table of noisy votes tells no more than a Gaussian mechanism of hardly less noise, whatever '
            'its size, and although the noise is in whole parts of a vote. Rounds compose sequentially, and '
            'the list of a round may depend on the tables before it: Gaussian mechanisms one after another '
            'are one, of the sum of their squared shifts, whose (ε, δ) is exact (Balle and Wang 2018, '
            'Theorem 8). Where noise is so little that zero-concentrated differential privacy (zCDP) gives '
            'less, that is stated (Canonne, Kamath and Steinke 2020, Corollary 13). In zCDP a table costs '
            'ρ = 1/(2·noise²) and stages add their ρ, which a ledger charges whose budget is kept so. '
            f'To replace one {one} by another costs at most twice the ρ of the votes, '
            f'{format_up(params.rho_under_replacement)}.'
        ),
        settings=dataclasses.asdict(params),
        contexts=_contexts(params, one, many),
        parts=(votes, start, *sampling),
        decoding=_texts(writes_texts=writes_texts),
        rho_per_private_token=None,
        reproduction=votes.reproduction,
        released=RELEASED,
        reads_batches=False,
        during=_during(params.unit),
        releases=releases,
    )


def _rounds(params: TextVoteParams) -> str:
    return 'the one round' if params.rounds == 1 else f'all {params.rounds:,} rounds'


def _unit_of_privacy(params: TextVoteParams) -> str:
    if params.unit == 'user':
        k = params.examples_per_context
        at_most = 'one record' if k == 1 else f'at most {k} records'
        return (
            'One user: everything that the input holds under one unit id. A user contributes '
            f'{at_most}, of one label, chosen by a keyed hash of the records; together they have one vote.'
        )
    return 'One record: one row of the input, which has one vote.'


def _contexts(params: TextVoteParams, one: str, many: str) -> Facts:
    is_user = params.unit == 'user'
    return Facts(
        assumptions_enforced=(
            f'A {one} votes once in a round, in the row of its own label alone. What it votes for is a '
            f'function of its own {"records" if is_user else "text"} and of the list: no other {one} has a '
            'part in it.',
        ),
        assumptions_of_curator=(
            "One person has one unit id, and nobody else's records carry it."
            if is_user
            else 'Hiding one record is enough. A person with several records is protected less (see the '
            'limits).',
        ),
        limits=(
            f'It hides one {one}, not a group: for m {many} together ρ grows by m²'
            + ('.' if is_user else ', and so it does for a person with m records.'),
        ),
    )


def _votes(params: TextVoteParams, one: str) -> Facts:
    spread = (
        'the candidate that is nearest to it'
        if params.nearest == 1
        else f'the {params.nearest:,} candidates that are nearest to it, 1/√{params.nearest} on each'
    )
    formula, numbers = 'T/(2·noise²)', f'{params.rounds}/(2·{params.noise_scale:.6g}²)'
    return Facts(
        stages=(
            RhoStage(
                name=STAGE,
                rho=params.rho,
                explanation=(
                    f'In each of {params.rounds:,} rounds, a table of votes by label and candidate text with '
                    'discrete Gaussian noise, from which the texts that stay follow.'
                    if params.rounds > 1
                    else 'A table of votes by label and candidate text with discrete Gaussian noise, from '
                    'which the texts that stay follow.'
                ),
                formula=formula,
                numbers=numbers,
            ),
        ),
        sensitivities=(
            Sensitivity(quantity='The table of votes of a round (L2)', value=SENSITIVITY, formula='1'),
        ),
        assumptions_enforced=(
            f'A record votes for {spread}; of candidates that are equally near, or the same text, for the '
            'first in the list. Votes are counted in whole parts of 2⁻¹⁰ and rounded towards zero, so that '
            f'one {one} adds a vector of length 1 at most, exactly.',
            'An embedding is a function of one text, the same whatever is embedded beside it. Similarities '
            'are whole numbers. A text whose embedding is zero or not finite votes for nothing.',
            'The list of a round is written down before a vote on it, and follows from public values and '
            'from the noisy votes of earlier rounds: never from a record, a true count or the number of '
            'records.',
            'The noise of a table is exact, on every cell, and follows from the run key, the list and the '
            'votes: whoever repeats a step, after a failure or from a copy of the work directory, draws the '
            'same and releases nothing new. Without it no vote leaves the curator.',
        ),
        assumptions_of_curator=(
            'The number of rounds, of texts and of nearest texts was chosen without a look at the records.',
        ),
        symbols=(
            'T number of rounds',
            'noise scale of the discrete Gaussian noise on each cell of a table, in votes',
        ),
        sources=(
            'Lin et al. 2024, Differentially private synthetic data via foundation model APIs 1: Images.',
            'Xie et al. 2024, Differentially private synthetic data via foundation model APIs 2: Text.',
            'Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy.',
            'Balle and Wang 2018, Improving the Gaussian mechanism for differential privacy: analytical '
            'calibration and optimal denoising.',
        ),
        reproduction=Reproduction(
            settings=(
                f'rounds = {params.rounds}  # rounds of votes',
                f'noise = {params.noise_scale!r}  # scale of the noise on each cell, in votes',
            ),
            steps=('votes = rounds / (2 * noise ** 2)  # rho of the votes on texts',),
            cost='votes',
        ),
    )


def _texts(*, writes_texts: bool) -> Facts:
    return Facts(
        assumptions_enforced=(
            'No record reaches the language model: texts are sampled from public prompts and from earlier '
            'texts of the run, which are public once their votes are.'
            if writes_texts
            else 'No record reaches a language model: the run samples no text.',
            'Which texts stay, what label each has and which become the corpus follows from the noisy votes '
            'and the texts alone.',
        ),
    )


def _during(unit: Unit) -> Facts:
    which = (
        ' Which records of a user vote is a keyed hash, which the guarantee does not rest on.'
        if unit == 'user'
        else ''
    )
    return Facts(
        assumptions_enforced=(
            'A malformed record, or one whose label is not declared, is left out without stopping the run '
            'and without a trace in any released file.',
        ),
        assumptions_of_curator=(
            'Neither the model that writes texts nor the one that embeds them was trained on these records.',
            'The work directory, its logs and the restricted report are not published.',
        ),
        limits=(
            'The noise is pseudo-random: the guarantee holds against readers who have not the run key and '
            f'cannot break BLAKE2b and SHAKE-256.{which}',
        ),
    )


def check(
    mechanism: Mapping[str, Setting],
    *,
    stages: Sequence[RhoStage | SampledGaussianStage],
    omega: float | None,
) -> None:
    """Refuses a report whose cost does not follow from its settings.

    Args:
        mechanism: Its settings.
        stages: Its stages.
        omega: Its largest Rényi order; None for every one.

    Raises:
        ValueError: A figure does not follow from the settings.
    """
    expected = params_of(mechanism).rho
    found = [stage.rho for stage in stages if stage.name == STAGE]
    is_one = len(found) == 1 and found[0] is not None and math.isclose(found[0], expected, rel_tol=1e-12)
    if not is_one or omega is not None:
        raise ValueError(
            f'Expected one stage {STAGE!r} of rho={expected!r} at every order, as the settings give it, got '
            f'rho={found!r}, omega={omega!r}. Build the report with build_privacy_report and do not edit it.'
        )
