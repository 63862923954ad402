"""Noisy sums of fine-tuning on canaries that pull at one number of the adapter each.

Such a Dirac canary is a unit without a text whose gradient has one component (Nasr et al. 2023; SNJ, section
6): the surest sign of a unit that the noise on a sum of clipped gradients has to hide. An attacker who knows
the records takes what they give out of every sum, and the sums are exact: so no record and no model is here.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models.finetuning import train
from models.finetuning.units import Unit
from models.privacy import gradients, whole_numbers
from models.privacy.gradients import TuningParams
from models.privacy.randomness import RunKey

# The gradient of a canary before it is clipped, in clip norms.
LOUDNESS = 40.0
# Canaries whose gradients are computed together.
_TOGETHER = 64


def noisy_components(
    shapes: Any,
    params: TuningParams,
    key: RunKey,
    run_id: str,
    units: Sequence[Unit],
    pulls: np.ndarray,
    components: np.ndarray,
) -> np.ndarray:
    """The noisy sum of each step at some components, by the functions of a run's steps.

    Args:
        shapes: Those of the adapter, a tree.
        params: The mechanism.
        key: The audit's own.
        run_id: The public name of the run.
        units: The canaries in the run.
        pulls: `[u]`, the component of each of them.
        components: `[m]`, those of all canaries.

    Returns:
        `[T m]` float64.
    """
    adapter = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), shapes)
    of_adapter = functools.partial(_pull(params.clip_norm), adapter, None)
    seen = []
    for step, members in enumerate(train.Batches.of(units, key, run_id, params).members):
        pulled = train.summed(of_adapter, adapter, members, lambda rows: pulls[rows], _TOGETHER)
        noise = train.noise_of_step(adapter, key, run_id, step, params)
        leaves = jax.tree.leaves(whole_numbers.integers(whole_numbers.add(pulled, noise)))
        seen.append(params.step * np.concatenate([leaf.ravel() for leaf in leaves])[components])
    return np.array(seen)


def _pull(clip_norm: float) -> Any:
    """The clipped sum of canaries: the run's functions, on a loss that is one number of the adapter."""

    def loss(adapter: Any, _: None, component: jax.Array) -> jax.Array:
        flat = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(adapter)])
        return LOUDNESS * clip_norm * flat[component]

    return jax.jit(train.batch_sum(gradients.clipped_sum(loss, clip_norm), _TOGETHER))
