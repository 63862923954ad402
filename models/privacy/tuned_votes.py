"""Training, and then one round of votes on texts of what it gave: two stages with one price (METHOD 4f).

    adapter ← DP-SGD on the gradients of all units                              `models.privacy.gradients`
    list    ← texts that are sampled from the adapter: post-processing
    h       ← one table of noisy votes of the same units on that list           `models.privacy.text_votes`

The list is a function of the adapter and of public values, so the table is a second mechanism that was chosen
after the output of the first: the distributions of their losses compose (README, section 11).
"""

import dataclasses
import functools
import math

from models.privacy import events
from models.privacy.accounting import losses, normal_pair, subsampled
from models.privacy.gradients import TuningParams
from models.privacy.public_numbers import Unit
from models.privacy.text_votes import TextVoteParams


@dataclasses.dataclass(frozen=True, kw_only=True)
class TunedVotesParams:
    """Every number that the guarantee of training and votes depends on. All fields are public.

    Attributes:
        units: n, the declared number of records, or of users under the user unit.
        expected_batch_size: s, the public divisor of every noisy sum of gradients.
        tuning_steps: T.
        clip_norm: C > 0, the L2 norm that the gradient of one unit is clipped to.
        noise_multiplier: z > 0, the standard deviation of the noise on gradients over C.
        noise_scale: σ > 0, the scale of the discrete Gaussian noise on each cell of votes, in votes.
        nearest: k, the texts that a record's vote is spread over.
        unit: The unit of privacy.
        examples_per_context: At most so many of a user's records are trained on, and vote.
    """

    units: float
    expected_batch_size: int
    tuning_steps: int
    clip_norm: float
    noise_multiplier: float
    noise_scale: float
    nearest: int = 1
    unit: Unit = 'example'
    examples_per_context: int = 1

    def __post_init__(self) -> None:
        _ = self.tuning, self.votes  # each checks its numbers

    @functools.cached_property
    def tuning(self) -> TuningParams:
        """The steps that train the adapter."""
        return TuningParams(
            units=self.units,
            expected_batch_size=self.expected_batch_size,
            tuning_steps=self.tuning_steps,
            clip_norm=self.clip_norm,
            noise_multiplier=self.noise_multiplier,
            unit=self.unit,
            examples_per_context=self.examples_per_context,
        )

    @functools.cached_property
    def votes(self) -> TextVoteParams:
        """The one round of votes on its texts."""
        return TextVoteParams(
            rounds=1,
            noise_scale=self.noise_scale,
            nearest=self.nearest,
            unit=self.unit,
            examples_per_context=self.examples_per_context,
        )

    @property
    def events(self) -> tuple[events.DpEvent, events.DpEvent]:
        """Those of both stages, in their order."""
        return self.tuning.event, self.votes.event

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon at delta of both stages, by the distributions of their losses (section 11)."""
        return losses.epsilon_of_events(self.events, delta)


@functools.lru_cache(maxsize=64)
def solve_noise_multiplier(params: TunedVotesParams, *, epsilon: float, delta: float) -> float:
    """The smallest noise multiplier with which both stages stay within (epsilon, delta), to a thousandth.

    `TunedVotesParams(...).epsilon(delta)` is the way back.

    Args:
        params: The mechanism; its own noise multiplier has no part in the result.
        epsilon: Target.
        delta: Target, in (0, 1).

    Raises:
        ValueError: The votes alone take all of epsilon.
    """
    of_votes = params.votes.epsilon(delta)
    if not of_votes < epsilon:
        raise ValueError(
            f'Expected an epsilon that is left for the steps, got epsilon={epsilon}, of which the votes take '
            f'{of_votes:.6g} at delta={delta}. Raise --epsilon, or --vote-noise.'
        )

    def epsilon_at(z: float) -> float:
        return dataclasses.replace(params, noise_multiplier=z).epsilon(delta)

    # Both are nearly Gaussian mechanisms, whose squared shifts add up: of T steps q² T (e^(1/z²) − 1).
    left = 2 * (normal_pair.rho_from_gaussian(epsilon, delta) - params.votes.rho)
    q, steps = params.tuning.sampling_probability, params.tuning_steps
    guess = 1 / math.sqrt(math.log1p(max(left, 1e-6) / (q**2 * steps)))
    return subsampled.least_noise(epsilon_at, epsilon, guess, 1.05, f'delta={delta}, steps={steps}')
