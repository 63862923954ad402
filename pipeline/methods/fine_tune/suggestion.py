"""Which split of a fine-tuning run's compute into steps and units of a step has the least noise.

A run of T steps of s units computes sT gradients. At one ε a larger s needs a larger noise multiplier z, as
each unit is in more of its steps, but less noise over s. Li et al. 2022 ("Large language models can be strong
differentially private learners", section 3.1) and Ponomareva et al. 2023 ("How to DP-fy ML", section 5) take
the largest batch with which the noise still falls.

What adds up over a run is compared here: T steps whose gradients all point one way move √T s/z times as far
as their noise does. At a fixed sT this grows with s until z grows as fast as √s. Public numbers tell no more
of a run, and not that few steps are enough.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Sequence

from models.privacy import counts
from models.privacy.accounting import subsampled
from pipeline import calibration
from pipeline.calibration import Calibration, duration
from pipeline.methods.fine_tune import estimate, follows
from pipeline.methods.fine_tune.mechanism import Config
from pipeline.methods.method import Suggestion

# Each takes a tenth of a second or two.
MOST_SPLITS = 8
# A batch twice as large is worth half of the steps where signal over noise grows by so much at the least.
LEAST_GAIN = 1.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """One way to spend a run's compute. All fields are public.

    Attributes:
        expected_batch_size: s.
        tuning_steps: T.
        sampling_probability: q, with which a unit is in a step.
        noise_multiplier: z, of which the run has at most a hundredth less.
        noise_of_step: z C/s, the noise on each number of a step's mean gradient.
        signal_to_noise: √T s/z, of all steps together if the gradients of all units point one way.
        training_hours: How long all steps take, about.
    """

    expected_batch_size: int
    tuning_steps: int
    sampling_probability: float
    noise_multiplier: float
    noise_of_step: float
    signal_to_noise: float
    training_hours: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningSuggestion(Suggestion):
    """Splits of one compute into steps and units of a step, and the one to take. All fields are public.

    Attributes:
        epsilon: Of each of them.
        delta: At which.
        unit_gradients: sT, which none exceeds; None where minutes were given.
        minutes: Time of all steps, which none exceeds; None where the number of gradients was given.
        fewest_steps: T at the least.
        splits: By s, the smallest first; each s is about twice the one before.
        recommended: One of them.
        because: Why that one.
        flags: What to give for it.
        estimated: What the hours rest on.
    """

    epsilon: float
    delta: float
    unit_gradients: int | None
    minutes: float | None
    fewest_steps: int
    splits: tuple[Split, ...]
    recommended: Split
    because: str
    flags: str
    estimated: str

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False)

    def titles(self) -> tuple[str, ...]:
        return ('Units of a step, s', 'Steps, T', 'Noise, z', 'z C/s', '√T s/z', 'Time')

    def table(self) -> list[tuple[str, ...]]:
        return [
            (
                f'{split.expected_batch_size:,}{" *" if split == self.recommended else ""}',
                f'{split.tuning_steps:,}',
                f'{split.noise_multiplier:.3g}',
                f'{split.noise_of_step:.2g}',
                f'{split.signal_to_noise:,.0f}',
                duration(split.training_hours),
            )
            for split in self.splits
        ]

    def lines(self) -> list[str]:
        if self.minutes is None:
            spent = f'{self.unit_gradients:,} gradients of units, s × T, at most'
        else:
            spent = f'{self.minutes:g} minutes of training at most'
        return [
            f'Each row: ε = {self.epsilon:g} at δ = {self.delta:.3g}, and {spent}.',
            f'* {self.because}',
            self.flags,
            'It says nothing of --learning-rate: with other steps another one may be right.',
            f'Time: of the steps, {self.estimated}.',
        ]


def suggest(config: Config, rates: Calibration, minutes: float | None) -> TuningSuggestion:
    """Splits of a run's compute, and the one to take.

    Args:
        config: The run. Its steps times its batch size is the compute, where no minutes are given.
        rates: Of a device, for the hours.
        minutes: Time of all private steps; None for the gradients of the config.

    Raises:
        ValueError: Nothing is trained, the noise is given in place of epsilon, or the compute is too small
            for the fewest steps.
    """
    own, epsilon = config.method, config.budget.epsilon
    if own.adapter is not None:
        raise ValueError(
            f'Expected a run that trains for a suggestion, got adapter={own.adapter!r}. It is trained '
            'already: leave --suggest out.'
        )
    if epsilon is None:
        raise ValueError(
            'Expected epsilon for a suggestion, got epsilon=None, noise_multiplier='
            f'{own.noise_multiplier!r}. Each split has noise of its own: give --epsilon in place of '
            '--noise-multiplier.'
        )
    if minutes is not None and not (minutes > 0 and math.isfinite(minutes)):
        raise ValueError(f'Expected finite minutes > 0, got minutes={minutes}. Give --minutes 60, say.')
    gradients = own.tuning_steps * own.expected_batch_size

    def seconds(size: int) -> float:
        return estimate.seconds_of_step(config.replace(expected_batch_size=size), rates.rates)

    def steps_of(size: int) -> int:
        return gradients // size if minutes is None else int(60 * minutes / seconds(size))

    units = config.input.sampled_records
    assert units is not None  # `check_run`
    fewest = follows.measured_steps(own)
    sizes = batch_sizes(own.expected_batch_size, units, steps_of, fewest)
    if not sizes:
        given = (
            f'minutes={minutes}' if minutes is not None else f'tuning_steps * expected_batch_size={gradients}'
        )
        raise ValueError(
            f'Expected compute for {fewest} steps at the least, the fewest that runs were measured with, got '
            f'{given}. Raise {"--minutes" if minutes is not None else "--tuning-steps"}.'
        )
    rho, delta, near = own.label_mix_rho, config.resolved_delta, 1.0
    sigma = None if rho is None else counts.gaussian_scale(rho)
    splits = []
    for size in sizes:
        steps = steps_of(size)
        # What suits one size is near to what suits the next.
        near = subsampled.rough_noise_multiplier(
            sampling_probability=size / units,
            steps=steps,
            epsilon=epsilon,
            delta=delta,
            sigma=sigma,
            near=near,
        )
        splits.append(
            Split(
                expected_batch_size=size,
                tuning_steps=steps,
                sampling_probability=size / units,
                noise_multiplier=near,
                noise_of_step=near * own.clip_norm / size,
                signal_to_noise=math.sqrt(steps) * size / near,
                training_hours=steps * seconds(size) / 3600,
            )
        )
    chosen = recommended(splits)
    return TuningSuggestion(
        epsilon=epsilon,
        delta=delta,
        unit_gradients=gradients if minutes is None else None,
        minutes=minutes,
        fewest_steps=fewest,
        splits=tuple(splits),
        recommended=chosen,
        because=_because(splits, chosen, units, fewest),
        flags=f'--expected-batch-size {chosen.expected_batch_size} --tuning-steps {chosen.tuning_steps}',
        estimated=calibration.source(rates.device, rates.measured_on),
    )


def batch_sizes(given: int, units: float, steps_of: Callable[[int], int], fewest: int) -> list[int]:
    """Sizes to look at, the smallest first: a given one, doubled and halved.

    The largest has the fewest steps or more, and no more units than there are.

    Args:
        given: s of the config.
        units: n.
        steps_of: Steps that a size leaves time for.
        fewest: T at the least.
    """

    def fits(size: int) -> bool:
        return size <= units and steps_of(size) >= fewest

    size = given
    while fits(2 * size):
        size *= 2
    while size and not fits(size):
        size //= 2
    found: list[int] = []
    while size and len(found) < MOST_SPLITS:
        found.append(size)
        size //= 2
    return found[::-1]


def recommended(splits: Sequence[Split]) -> Split:
    """The largest batch that has noticeably less noise than the one before it; the smallest where none has.

    Args:
        splits: By batch size, the smallest first.
    """
    found = splits[0]
    for before, split in itertools.pairwise(splits):
        if split.signal_to_noise >= LEAST_GAIN * before.signal_to_noise:
            found = split
    return found


def _because(splits: Sequence[Split], chosen: Split, units: float, fewest: int) -> str:
    """Why the recommended split, a sentence or two."""
    percent = round(100 * (LEAST_GAIN - 1))
    if chosen != splits[-1]:
        larger = splits[splits.index(chosen) + 1]
        gain = 100 * (larger.signal_to_noise / chosen.signal_to_noise - 1)
        return (
            f'Up to s = {chosen.expected_batch_size:,} a batch twice as large lifts √T s/z by '
            f'{percent} % or more; s = {larger.expected_batch_size:,} has half of the steps, and '
            f'{gain:+.0f} %.'
        )
    why = (
        f'would have more units than the {units:,.0f} that were declared'
        if 2 * chosen.expected_batch_size > units
        else f'would leave fewer than {fewest} steps, the fewest that runs were measured with'
    )
    if len(splits) == 1:
        return f'No other size fits: a larger one {why}.'
    return f'The noise falls up to the largest batch in the table; a larger one {why}.'
