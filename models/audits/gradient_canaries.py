"""Fine-tuning with canaries: some are texts, others pull at one number of the adapter alone.

A Dirac canary is a unit without a text whose gradient has one component (Nasr et al. 2023; SNJ, section 6):
the surest sign of a unit that the noise on a sum of clipped gradients has to hide. An attacker who sees every
noisy sum, which only the curator can, reads its component.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from models.audits.canaries import NOISE_LEFT, RETRIES
from models.finetuning import train
from models.finetuning.settings import TuningSettings
from models.finetuning.units import Unit
from models.privacy import gradients, whole_numbers
from models.privacy.gradients import TuningParams
from models.privacy.randomness import RunKey

TuningSabotage = Literal[
    'none', 'half-noise', 'no-noise', 'noise-again', 'two-gradients', 'no-clipping', 'by-position'
]
# The gradient of a Dirac canary before it is clipped, in clip norms.
LOUDNESS = 40.0
# Stands for a sum that is not clipped, in clip norms.
_NOT_CLIPPED = 1e3
# Dirac canaries whose gradients are computed together.
_TOGETHER = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class CanaryUnit:
    """A unit of a run with canaries.

    Attributes:
        unit: The unit; a Dirac canary has a text of no tokens.
        component: Of the adapter that a Dirac canary pulls at; None for any other unit.
        row: Its row in the input, which no run may look at.
    """

    unit: Unit = dataclasses.field(repr=False)
    component: int | None = dataclasses.field(repr=False)
    row: int = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trained:
    """What a run with canaries leaves behind. Private.

    Attributes:
        components: The noisy sum of each step at the components of the Dirac canaries, without what units
            with texts gave to it, `[T m]`.
        losses_before: Of the text canaries under the first adapter, `[m']`.
        losses_after: Under the trained one.
    """

    components: np.ndarray = dataclasses.field(repr=False)
    losses_before: np.ndarray = dataclasses.field(repr=False)
    losses_after: np.ndarray = dataclasses.field(repr=False)


def train_with_canaries(
    settings: TuningSettings,
    key: RunKey,
    units: Sequence[CanaryUnit],
    components: np.ndarray,
    texts: Sequence[Unit],
    sabotage: TuningSabotage,
    rows: int,
) -> Trained:
    """Trains as a run does, step by step, and keeps what the attackers look at.

    Args:
        settings: The run's.
        key: The audit's own.
        units: Units of the run, those of the input and the canaries whose coin says so.
        components: Of the adapter, one of each Dirac canary, whether in the run or not: `[m]`.
        texts: The text canaries, whether in the run or not.
        sabotage: What to break.
        rows: Rows of the input, with those of canaries that are left out.
    """
    params = settings.params
    ordered = sorted(units, key=lambda one: (one.unit.unit_hash, one.unit.ordinal))
    pulls = np.array([-1 if one.component is None else one.component for one in ordered], np.int32)
    with_text = np.flatnonzero(pulls < 0)
    clip_norm = _NOT_CLIPPED * params.clip_norm if sabotage == 'no-clipping' else params.clip_norm
    of_sums = dataclasses.replace(settings, params=dataclasses.replace(params, clip_norm=clip_norm))
    trainer = train.Trainer(of_sums)
    # Noise of the same length in the steps of the sum that it is added to.
    left = NOISE_LEFT.get(sabotage, 1.0) * params.clip_norm / clip_norm
    noisy = dataclasses.replace(params, clip_norm=clip_norm, noise_multiplier=left * params.noise_multiplier)
    encoded = trainer.encoded([ordered[place].unit for place in with_text])
    of_texts = trainer.encoded(texts)
    members = _members(
        [one.unit for one in ordered], [one.row for one in ordered], key, settings, sabotage, rows
    )
    pull = _dirac_sum(LOUDNESS * params.clip_norm, clip_norm)
    state = trainer.warmed(trainer.first_state(key))
    before = trainer.losses(state['adapter'], of_texts)
    seen = []
    for step, of_step in enumerate(members):
        if sabotage == 'two-gradients':
            of_step = np.repeat(of_step, 2)
        own = np.searchsorted(with_text, of_step[pulls[of_step] < 0])
        words = trainer.words([ordered[place].unit for place in with_text], own, key, step)
        total = trainer.gradient(state, encoded, own, words)
        pulled = train.summed(
            functools.partial(pull, state['adapter'], None),
            state['adapter'],
            of_step[pulls[of_step] >= 0],
            lambda rows_of: pulls[rows_of],
            _TOGETHER,
        )
        # The attacker knows the units with texts and takes what they give out of the sum.
        draws = [
            train.noise_of_step(state['adapter'], key, f'{settings.run_id}{again or ""}', step, noisy)
            for again in range(RETRIES if sabotage == 'noise-again' else 1)
        ]
        of_draws = [_at(whole_numbers.add(pulled, noise), components) for noise in draws]
        seen.append(noisy.step * np.mean(of_draws, axis=0))
        state = trainer.updated(state, whole_numbers.add(total, pulled), draws[0])
    return Trained(
        components=np.array(seen),
        losses_before=before,
        losses_after=trainer.losses(state['adapter'], of_texts),
    )


def _members(
    units: Sequence[Unit],
    of_rows: Sequence[int],
    key: RunKey,
    settings: TuningSettings,
    sabotage: TuningSabotage,
    rows: int,
) -> Sequence[np.ndarray]:
    """Indices of the units of each step."""
    params = settings.params
    if sabotage != 'by-position':
        return train.Batches.of(units, key, settings.run_id, params).members
    places = np.array(of_rows)
    return [np.flatnonzero(is_in_piece(places, step, rows, params)) for step in range(params.tuning_steps)]


def _dirac_sum(loudness: float, clip_norm: float) -> Any:
    """The clipped sum of Dirac canaries: the run's functions, on a loss that is one number of the adapter."""

    def loss(adapter: Any, _: None, component: jax.Array) -> jax.Array:
        flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(adapter)])
        return loudness * flat[component]

    return jax.jit(train.batch_sum(gradients.clipped_sum(loss, clip_norm), _TOGETHER))


def _at(noisy: whole_numbers.Limbs, components: np.ndarray) -> np.ndarray:
    """The noisy sum in whole steps at some components."""
    leaves = jax.tree.leaves(whole_numbers.integers(noisy))
    return np.concatenate([leaf.ravel() for leaf in leaves])[components]


def is_in_piece(rows: np.ndarray, step: int, count: int, params: TuningParams) -> np.ndarray:
    """Which rows a step would take that took the file piece by piece, `[n]` bool.

    Args:
        rows: `[n]`, row numbers.
        step: From 0.
        count: Rows of the file.
        params: The mechanism, whose sampling probability is the share of a piece.
    """
    size = max(1, round(params.sampling_probability * count))
    return (rows - step * size) % count < size


def gradient_scores(components: np.ndarray, params: TuningParams) -> np.ndarray:
    """Log of the odds that a Poisson sample of steps holds each Dirac canary, `[m]`.

    Of a step's component y the odds are 1 − q + q exp((y − C/2) C/σ²), as of noise alone or of C beside it.

    Args:
        components: Noisy sums at the canaries' components, `[T m]`.
        params: The mechanism.
    """
    clip, q = params.clip_norm, params.sampling_probability
    exponents = (components - clip / 2) * clip / params.noise_scale**2
    with np.errstate(divide='ignore'):
        silent = np.log1p(-q) if q < 1 else -math.inf
    return np.logaddexp(silent, math.log(q) + exponents).sum(axis=0)


def piece_scores(components: np.ndarray, rows: np.ndarray, count: int, params: TuningParams) -> np.ndarray:
    """The sum of each canary's component over the steps that would take its row by position, `[m]`.

    Args:
        components: `[T m]`.
        rows: Of the canaries, `[m]`.
        count: Rows of the file.
        params: The mechanism.
    """
    taken = np.array([is_in_piece(rows, step, count, params) for step in range(len(components))])
    return (components * taken).sum(axis=0)
