"""DP-SGD: a Poisson sample of units, one clipped gradient for each, and Gaussian noise on their sum.

The mechanism of DP fine-tuning (Abadi et al. 2016, Algorithm 1; FT section 3, Mattern et al. 2022). One
step does, in this order:

    S_t ← every unit, independently with probability q                         `steps_of_unit`
    g   ← Σ_{u ∈ S_t} ⌊∇ℓ_u(θ) · min(1, C / ‖∇ℓ_u(θ)‖₂) / h⌋₀                  `clipped_sum`
    θ   ← DP-Adam's step on h (g + ⌊σ ξ_t / h⌉) / s,  ξ_t ~ N(0, I),  σ = z C  `noise_of_step`

in whole steps of h = C / RADIUS: ⌊⌋₀ rounds towards zero and ⌊⌉ to the nearest (`whole_numbers`).

s = q n is the *expected* batch size; it is public, whatever S_t holds. One unit moves g by at most C, be
it a record or all records of a user, because all records of a unit make one gradient.

README, section 9, has the proof; `models.privacy.accounting.subsampled` computes the price.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from models.privacy import counts, events, gaussian_noise, whole_numbers
from models.privacy.public_numbers import Unit
from models.privacy.randomness import RunKey

# Below the first, counting the label mix costs no visible ε; above the second, it has hardly any noise.
LEAST_MIX_RHO, MOST_MIX_RHO = 1e-9, 10.0
# Within these no quotient or product of a gradient over- or underflows.
LEAST_CLIP_NORM: Final = 1e-8
MOST_CLIP_NORM: Final = 1e8
# Above it noise would not fit into a sum of whole numbers.
MOST_NOISE: Final = 4096.0
# Components whose noise is drawn at a time. A gradient of all weights has hundreds of millions, and a draw
# goes through several arrays of float64, which stay in a processor's caches.
_DRAWN_AT_A_TIME: Final = 2**16


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningParams:
    """Every number that the guarantee of fine-tuning depends on. All fields are public.

    Attributes:
        units: n, the declared number of records, or of users under the user unit.
        expected_batch_size: s, the public divisor of every noisy sum.
        tuning_steps: T.
        clip_norm: C > 0, the L2 norm that the gradient of one unit is clipped to.
        noise_multiplier: z > 0, the standard deviation of the noise over C.
        unit: The unit of privacy.
        examples_per_context: k: at most k of a user's records make the user's gradient.
        label_mix_rho: ρ of the noisy counts of units per label, which are drawn before the first step;
            None if units are not counted.
    """

    units: float
    expected_batch_size: int
    tuning_steps: int
    clip_norm: float
    noise_multiplier: float
    unit: Unit = 'example'
    examples_per_context: int = 1
    label_mix_rho: float | None = None

    def __post_init__(self) -> None:
        for name in ('expected_batch_size', 'tuning_steps', 'examples_per_context'):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f'Expected {name} >= 1, got {name}={value!r}. Give a positive whole number.')
        for name in ('clip_norm', 'noise_multiplier'):
            if not ((value := getattr(self, name)) > 0 and math.isfinite(value)):
                raise ValueError(
                    f'Expected a finite {name} > 0, got {name}={value!r}. A gradient that is not clipped, or '
                    'has no noise, has no guarantee.'
                )
        if not LEAST_CLIP_NORM <= self.clip_norm <= MOST_CLIP_NORM:
            raise ValueError(
                f'Expected {LEAST_CLIP_NORM:g} <= clip_norm <= {MOST_CLIP_NORM:g}, got clip_norm='
                f'{self.clip_norm!r}. Beyond it float32 cannot hold a quotient of two norms: give 1, say.'
            )
        if self.expected_batch_size > whole_numbers.MOST_CONTEXTS // 2:
            raise ValueError(
                f'Expected expected_batch_size <= {whole_numbers.MOST_CONTEXTS // 2}, got '
                f'expected_batch_size={self.expected_batch_size!r}. The sum of a larger batch has no room: '
                'take more steps.'
            )
        if self.noise_multiplier > MOST_NOISE:
            raise ValueError(
                f'Expected noise_multiplier <= {MOST_NOISE:g}, got noise_multiplier='
                f'{self.noise_multiplier!r}. Under such noise nothing is learnt: ask for a larger epsilon or '
                'fewer steps.'
            )
        rho = self.label_mix_rho
        if rho is not None and not LEAST_MIX_RHO <= rho <= MOST_MIX_RHO:
            raise ValueError(
                f'Expected {LEAST_MIX_RHO:g} <= label_mix_rho <= {MOST_MIX_RHO:g}, got label_mix_rho='
                f'{rho!r}. Give 0.005, say: noise of standard deviation 10 on the count of each label.'
            )
        if not self.expected_batch_size <= self.units:
            raise ValueError(
                f'Expected expected_batch_size <= the declared number of units, got expected_batch_size='
                f'{self.expected_batch_size!r}, units={self.units!r}. A unit is in a batch once: lower '
                '--expected-batch-size, or declare the right number with --records.'
            )
        if self.unit == 'example' and self.examples_per_context != 1:
            raise ValueError(
                'Expected examples_per_context=1 where each record is a unit, got '
                f'examples_per_context={self.examples_per_context!r}. Give --unit user for gradients of '
                'several records.'
            )

    @property
    def sampling_probability(self) -> float:
        """q = s/n, with which each unit is in the batch of a step."""
        return self.expected_batch_size / self.units

    @property
    def noise_scale(self) -> float:
        """σ = z C, the standard deviation of the noise on a component of a sum."""
        return self.noise_multiplier * self.clip_norm

    @property
    def step(self) -> float:
        """h = C / RADIUS, the length of a step of the grid on which sums and noise are whole numbers."""
        return self.clip_norm / whole_numbers.RADIUS

    @property
    def event(self) -> events.DpEvent:
        """All releases: the noisy counts of labels, if there are any, and then all steps."""
        if self.label_mix_rho is None:
            return self.event_of_steps
        counted = events.DiscreteGaussianDpEvent(sigma=counts.gaussian_scale(self.label_mix_rho))
        return events.ComposedDpEvent(events=(counted, self.event_of_steps))

    @property
    def event_of_steps(self) -> events.DpEvent:
        """All steps: T Poisson-sampled Gaussians; each may depend on the outputs before it."""
        gaussian = events.GaussianDpEvent(noise_multiplier=self.noise_multiplier)
        return events.SelfComposedDpEvent(
            event=events.PoissonSampledDpEvent(
                sampling_probability=self.sampling_probability, event=gaussian
            ),
            count=self.tuning_steps,
        )


def steps_of_unit(
    key: RunKey, run_id: str, unit: bytes, ordinal: int, *, probability: float, steps: int
) -> np.ndarray:
    """The steps whose batch a unit is in; every unit and step has an independent coin.

    The result is a function of the key and the unit's own identity, never of a position or of other units.
    Without the key, the coins cannot be told from those of a Poisson sample.

    Args:
        key: The run's secret.
        run_id: The public name of the run.
        unit: Keyed hash of the unit.
        ordinal: Number of the record among those with the same hash, from 0. Duplicated records are
            separate units with separate coins.
        probability: q, in (0, 1].
        steps: T.

    Returns:
        Ascending int64 indices below `steps`.
    """
    if probability >= 1:
        return np.arange(steps)
    words = key.words('poisson', run_id.encode(), unit, ordinal.to_bytes(8, 'little'), count=steps)
    # Rounded down by less than 2^-64: a lower rate costs no more than the price.
    return np.flatnonzero(words < np.uint64(math.floor(probability * 2**64)))


def noise_of_step(
    key: RunKey, run_id: str, step: int, size: int, params: TuningParams
) -> whole_numbers.Limbs:
    """`[size]` whole steps of the grid: N(0, σ²), rounded. A repeated step has the same noise (METHOD 7).

    Each is the whole number nearest to the exact draw, of which no bit is lost before.
    """
    # σ in steps of the grid, of which C has RADIUS.
    scale = params.noise_multiplier * whole_numbers.RADIUS
    limbs = whole_numbers.Limbs(*(np.empty(size, np.int32) for _ in range(2)))
    for number, start in enumerate(range(0, size, _DRAWN_AT_A_TIME)):
        piece = slice(start, min(start + _DRAWN_AT_A_TIME, size))
        named = run_id.encode(), step.to_bytes(8, 'little'), number.to_bytes(8, 'little')
        words = key.words('gradient', *named, count=piece.stop - start)
        noise = gaussian_noise.rounded(scale, words, functools.partial(_more, key, named))
        limbs.high[piece], limbs.low[piece] = whole_numbers.limbs_of(noise)
    return limbs


def _more(key: RunKey, named: tuple[bytes, ...], index: int) -> list[int]:
    """The words that follow that of one component of a piece."""
    words = key.words('gradient more', *named, index.to_bytes(8, 'little'), count=gaussian_noise.MORE_WORDS)
    return [int(word) for word in words]


def clipped_sum(loss: Callable[..., Any], clip_norm: float) -> Callable[..., Any]:
    """The sum over units of their gradients, each clipped to `clip_norm` in L2 norm over all components.

    Formal guarantee: the sum is exact, in whole steps of C / RADIUS, and adding a unit moves it by a vector
    of at most RADIUS steps, whatever the unit and the others hold (`whole_numbers.steps`).

    Args:
        loss: A function of the parameters, of constants that are not differentiated, and of one unit.
        clip_norm: C.

    Returns:
        A function of the parameters, the constants and m units, stacked along a first axis, to the sum, a
        tree of int32, where m is at most `whole_numbers.TOGETHER`. Its keyword `is_padding_example`, `[m]`
        bool, marks units that count as zero.
    """
    import jax
    import jax.numpy as jnp

    def of_unit(parameters: Any, fixed: Any, unit: Any, is_padding: Any) -> Any:
        clipped = whole_numbers.steps(jax.grad(loss)(parameters, fixed, unit), clip_norm)
        return jax.tree.map(lambda leaf: jnp.where(is_padding, 0, leaf), clipped)

    def of_units(parameters: Any, fixed: Any, units: Any, *, is_padding_example: Any) -> Any:
        assert len(is_padding_example) <= whole_numbers.TOGETHER
        each = jax.vmap(of_unit, (None, None, 0, 0))(parameters, fixed, units, is_padding_example)
        return jax.tree.map(lambda leaf: leaf.sum(axis=0, dtype=jnp.int32), each)

    return of_units
