"""The optimizer of private steps: DP-Adam, or the same without the variance of the noise (DP-AdamBC)."""

from __future__ import annotations

import typing
from typing import Any

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

    Both have the same state, so that a checkpoint of each has the same arrays.

    Args:
        learning_rate: Of DP-Adam.
        params: The mechanism, which says how much noise a component of a step has.
        variance_floor: γ' of `scale_by_corrected_adam` over the variance of the noise; None for DP-Adam as
            it is.
    """
    import optax

    if variance_floor is None:
        return adam(learning_rate)
    variance = (params.noise_scale / params.expected_batch_size) ** 2
    scaled = scale_by_corrected_adam(variance, variance_floor * variance)
    return optax.chain(scaled, optax.scale_by_learning_rate(learning_rate))


def scale_by_corrected_adam(noise_variance: float, floor: float) -> optax.GradientTransformation:
    """Adam without the variance of the noise: DP-AdamBC (Tang, Shpilevskiy and Lécuyer 2023, Algorithm 1).

    Adam divides by the root of a mean of squares of noisy gradients. Its expectation is that of the
    gradients without noise, and the variance of the noise on top: with much noise every component is divided
    by about the same. Here the update at step t, from Adam's moments m and v, is

        m / (1 − β₁ᵗ) / √max(v / (1 − β₂ᵗ) − Φ, γ').

    Args:
        noise_variance: Φ, of a component of a mean gradient.
        floor: γ' > 0. It stands for Adam's ε too.
    """
    import jax
    import jax.numpy as jnp
    import optax

    moments = optax.scale_by_adam(b1=_FIRST_DECAY, b2=_SECOND_DECAY)

    def update(gradient: Any, state: Any, adapter: Any = None) -> tuple[Any, Any]:
        _, state = moments.update(gradient, state, adapter)
        first = optax.tree.bias_correction(state.mu, _FIRST_DECAY, state.count)
        second = optax.tree.bias_correction(state.nu, _SECOND_DECAY, state.count)

        def scaled(m: Any, v: Any) -> Any:
            return m / jnp.sqrt(jnp.maximum(v - noise_variance, floor))

        return jax.tree.map(scaled, first, second), state

    return optax.GradientTransformation(moments.init, update)
