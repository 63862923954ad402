"""The optimizer of private steps: DP-Adam, or the same without the variance of the noise (DP-AdamBC)."""

from __future__ import annotations

import typing
from typing import Any

import numpy as np

from models.privacy import correlated_noise
from models.privacy.gradients import TuningParams

if typing.TYPE_CHECKING:
    import optax

# Adam's decay rates, those that optax has by default.
_FIRST_DECAY, _SECOND_DECAY = 0.9, 0.999


def adam(learning_rate: float) -> optax.GradientTransformation:
    """Adam; on noisy gradients it is DP-Adam."""
    import optax

    return optax.adam(learning_rate)


def of_private_steps(
    learning_rate: float, params: TuningParams, variance_floor: float | None
) -> optax.GradientTransformation:
    """DP-Adam, with or without the variance of the noise in its second moment.

    All have the same state, so that a checkpoint of each has the same arrays.

    Args:
        learning_rate: Of DP-Adam.
        params: The mechanism, which says how much noise a component of a step has.
        variance_floor: γ' of `scale_by_corrected_adam` over the variance of the noise; None for DP-Adam as
            it is, or, where noise is correlated, as `scale_by_steady_adam` has it.
    """
    import optax

    if variance_floor is None and params.noise_bands == 1:
        return adam(learning_rate)
    variances = mean_variances(params)
    if variance_floor is None:
        scaled = scale_by_steady_adam(float(variances[-1]), params.noise_scale / params.expected_batch_size)
    else:
        scaled = scale_by_corrected_adam(variances, variance_floor * variances)
    return optax.chain(scaled, optax.scale_by_learning_rate(learning_rate))


def mean_variances(params: TuningParams) -> np.ndarray:
    """Φ_t: the noise's share of Adam's second moment after each step, `[T]` float64.

    It is the mean of the variances of the steps so far, weighted as Adam weights their squares: (σ/s)² at
    every step where noise is independent.

    Args:
        params: The mechanism.
    """
    scale = (params.noise_scale / params.expected_batch_size) ** 2
    if params.noise_bands == 1:
        return np.full(params.tuning_steps, scale)
    found, moment = [], 0.0
    of_steps = scale * correlated_noise.variances(params.noise_bands, params.tuning_steps)
    for step, variance in enumerate(of_steps, 1):
        moment = _SECOND_DECAY * moment + (1 - _SECOND_DECAY) * variance
        found.append(moment / (1 - _SECOND_DECAY**step))
    return np.array(found)


def scale_by_corrected_adam(noise_variances: np.ndarray, floors: np.ndarray) -> optax.GradientTransformation:
    """Adam without the variance of the noise: DP-AdamBC (Tang, Shpilevskiy and Lécuyer 2023, Algorithm 1).

    Adam divides by the root of a mean of squares of noisy gradients. Its expectation is that of the
    gradients without noise, and the variance of the noise on top: with much noise every component is divided
    by about the same. Here the update at step t, from Adam's moments m and v, is

        m / (1 − β₁ᵗ) / √max(v / (1 − β₂ᵗ) − Φ_t, γ'_t).

    Φ_t is subtracted from what Adam corrected for its start at zero; v itself has (1 − β₂ᵗ) Φ_t of it.

    Args:
        noise_variances: Φ_t, of a component of the mean gradients up to step t: `[T]`.
        floors: γ'_t > 0, `[T]`. It stands for Adam's ε too.
    """
    import jax
    import jax.numpy as jnp
    import optax

    moments = optax.scale_by_adam(b1=_FIRST_DECAY, b2=_SECOND_DECAY)
    of_steps, floor_of_steps = jnp.asarray(noise_variances, jnp.float32), jnp.asarray(floors, jnp.float32)

    def update(gradient: Any, state: Any, adapter: Any = None) -> tuple[Any, Any]:
        _, state = moments.update(gradient, state, adapter)
        first = optax.tree.bias_correction(state.mu, _FIRST_DECAY, state.count)
        second = optax.tree.bias_correction(state.nu, _SECOND_DECAY, state.count)
        taken = state.count - 1
        variance, floor = of_steps[taken], floor_of_steps[taken]
        return jax.tree.map(lambda m, v: m / jnp.sqrt(jnp.maximum(v - variance, floor)), first, second), state

    return optax.GradientTransformation(moments.init, update)


def scale_by_steady_adam(noise_variance: float, scale: float) -> optax.GradientTransformation:
    """Adam for correlated noise: all steps have one scale, so what a step takes back is what was added.

    Adam divides each component by a root that changes from step to step, most of all in the first ones, where
    it is hardly more than the first noisy gradient itself; and it makes up for a first moment that begins at
    zero. So noise would be added at one scale, and taken back at another. Here the update is

        m / (σ/s) / √max(v / (1 − β₂ᵗ) / Φ, 1)

    from Adam's moments m and v. Where noise is most of v that is a linear function of the noisy gradients:
    momentum. Where gradients are far above it, it is Adam.

    Args:
        noise_variance: Φ, of the noise in Adam's second moment after the last step.
        scale: σ/s, of an entry of ξ in a mean gradient.
    """
    import jax
    import jax.numpy as jnp
    import optax

    moments = optax.scale_by_adam(b1=_FIRST_DECAY, b2=_SECOND_DECAY)

    def update(gradient: Any, state: Any, adapter: Any = None) -> tuple[Any, Any]:
        _, state = moments.update(gradient, state, adapter)
        second = optax.tree.bias_correction(state.nu, _SECOND_DECAY, state.count)

        def scaled(first: Any, squares: Any) -> Any:
            return first / (scale * jnp.sqrt(jnp.maximum(squares / noise_variance, 1.0)))

        return jax.tree.map(scaled, state.mu, second), state

    return optax.GradientTransformation(moments.init, update)
