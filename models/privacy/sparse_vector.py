"""The test that chooses between a private and a public token: distance, noise and price (PP Algorithm 1).

AboveThreshold on the L1 distance between the aggregate private prediction and the public one. A *run* of
the test starts with a fresh threshold. It ends with the first private token, or with the batch. Public
tokens within a run are free (README step 3).

PP = Amin et al. 2024; line numbers are those of its Algorithm 1. BS = Bun and Steinke 2016.
"""

from __future__ import annotations

import fractions
from typing import Final

from etils import epy

from models.privacy import events, whole_numbers
from models.privacy.aggregates import clipping
from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity
from models.privacy.numbers import format_exact
from models.privacy.params import MechanismParams

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp
    import numpy as np

# Quanta that make up the mass of one prediction. Distances, thresholds and noise are whole numbers of
# quanta of s predictions together, so a distance of 1 is s · 2^24.
MASS: Final = whole_numbers.MOST_QUANTA
# A prediction's probabilities are rounded towards zero, and so much lower that float32 seldom passes MASS.
_KEPT = MASS * (1 - 2.0**-20)
# Bits of the lower limb of distances, thresholds and noise.
_LIMB = 24
# With more columns their sum could leave 31 bits.
MOST_COLUMNS: Final = 2**19 - 1


def in_quanta(logits: jax.Array, counted: jax.Array | None = None) -> jax.Array:
    """softmax(z) of each row in quanta, `[..., V]` int32, of the raw logits at temperature 1.

    Formal guarantee: a row of the result is non-negative, adds up to at most `MASS`, exactly, and is a
    function of that row alone.

    Args:
        logits: `[..., V]`.
        counted: `[V]` bool: predictions are narrowed to these tokens; None for all tokens.
    """
    shares = clipping.probabilities(logits, counted)
    # Written down once: exponentials are dearer than memory, and two sums read them.
    counts = jax.lax.optimization_barrier(jnp.clip((shares * _KEPT).astype(jnp.int32), 0, MASS))
    # The sum of shares is off from 1 by V · 2^-24 at most, whatever their order, so this one fits.
    fits = counts.sum(axis=-1, keepdims=True) <= MASS
    return jnp.where(fits, counts, 0)


def tally(
    logits: tuple[jax.Array, ...], is_private: tuple[jax.Array, ...], counted: jax.Array | None = None
) -> whole_numbers.Limbs:
    """Σ softmax(z) over the private rows, `[V]` in quanta, of the raw logits at temperature 1.

    The logits are not clipped: a softmax of the average of clipped logits would not have sensitivity 1/s
    (METHOD 4).

    Formal guarantee: a context adds a non-negative vector of at most `MASS` quanta in all, exactly, whatever
    its row holds. The vector does not depend on the other rows.

    Args:
        logits: `[m, V]` for every micro-batch.
        is_private: `[m]` bool for every micro-batch.
        counted: `[V]` bool, public: predictions are narrowed to these tokens, and each keeps its mass; None
            for all tokens.
    """
    parts = [
        jnp.where(mask[:, None], in_quanta(rows, counted), 0)
        for rows, mask in zip(logits, is_private, strict=True)
    ]
    return whole_numbers.sum_of_rows(parts, MASS)


def public_distance(
    mass: whole_numbers.Limbs,
    public_logits: jax.Array,
    params: MechanismParams,
    counted: jax.Array | None = None,
) -> jax.Array:
    """‖(1/s) Σ softmax(z) − softmax(z_pub)‖₁ in quanta, as `limbs`: `[2]` int32 (PP equation 2).

    Formal guarantee: one context more or less moves it by at most `MASS`, exactly. An empty batch gives a
    distance of 1, but for what rounding takes from the public prediction.

    Args:
        mass: From `tally`, for the same tokens; at most `MOST_COLUMNS` of them.
        public_logits: `[V]`.
        params: The mechanism.
        counted: As for `tally`.
    """
    assert public_logits.shape[-1] <= MOST_COLUMNS
    s, low = params.batch_size, 2**whole_numbers.LIMB - 1
    expected = in_quanta(public_logits, counted)
    # s times the public prediction, less the private ones, in limbs: each sum is below 2^31.
    moved = whole_numbers.carried(
        whole_numbers.Limbs(s * (expected >> whole_numbers.LIMB) - mass.high, s * (expected & low) - mass.low)
    )
    below = moved.high < 0
    size = whole_numbers.carried(
        whole_numbers.Limbs(
            jnp.where(below, -moved.high, moved.high).sum(axis=-1),
            jnp.where(below, -moved.low, moved.low).sum(axis=-1),
        )
    )
    further = _LIMB - whole_numbers.LIMB
    high = size.high >> further
    return jnp.stack([high, ((size.high & (2**further - 1)) << whole_numbers.LIMB) + size.low], axis=-1)


def limbs(quanta: np.ndarray) -> np.ndarray:
    """Whole numbers below 2^54 in size for the device: `[..., 2]` int32, of which the first counts 2^24s."""
    return np.stack([quanta >> _LIMB, quanta & (2**_LIMB - 1)], axis=-1).astype(np.int32)


def threshold_in_quanta(params: MechanismParams) -> int:
    """θ, to the nearest whole number of quanta."""
    assert params.threshold is not None  # `uses_sparse_vector`
    return round(fractions.Fraction(params.threshold) * params.batch_size * MASS)


def passes(
    distance: jax.Array, distance_noise: jax.Array, threshold_noise: jax.Array, params: MechanismParams
) -> jax.Array:
    """True if the noisy distance reaches the noisy threshold: the token is private (line 12).

    All are whole numbers of quanta, `[2]` int32 as `limbs`, and the comparison is exact.

    Args:
        distance: From `public_distance`.
        distance_noise: Discrete Laplace noise of scale 2σ, fresh for every token.
        threshold_noise: Of scale σ, drawn again after every private token, and only then.
        params: With a threshold.
    """
    threshold = limbs(np.array(threshold_in_quanta(params)))
    # Settings keep every term so small that none of these sums leaves 31 bits.
    high, low = jnp.moveaxis(distance + distance_noise - threshold_noise - threshold, -1, 0)
    return high + (low >> _LIMB) >= 0


def noise_scales(threshold_noise_scale: float, batch_size: int) -> tuple[fractions.Fraction, ...]:
    """Scales in quanta of the threshold's noise and of a distance's: σ and 2σ (lines 4, 11 and 16)."""
    scale = fractions.Fraction(threshold_noise_scale) * batch_size * MASS
    return scale, 2 * scale


def probability(quanta: np.ndarray, params: MechanismParams) -> np.ndarray:
    """Distances or noise in quanta as float64: of a distance in [0, 2]."""
    return quanta / (params.batch_size * MASS)


def pure_cost(params: MechanismParams) -> float:
    """Pure epsilon of one run: 2/(sσ), 4/(sσ) under REPLACE (PP Lemma 5); 0 without the test.

    AboveThreshold with threshold noise σ and query noise 2σ on queries of sensitivity
    Δ = 1/s (2/s under REPLACE) is (2Δ/σ)-DP.
    """
    if params.threshold_noise_scale is None:
        return 0.0
    return 2 * params.distance_sensitivity / params.threshold_noise_scale


def _rho(params: MechanismParams) -> float:
    """ε-DP is ε²/2-zCDP (BS Proposition 1.4), with ε of `pure_cost`."""
    return 0.5 * pure_cost(params) ** 2


def event(params: MechanismParams) -> events.ZCDpEvent | None:
    """The privacy event of one run; None without the test.

    zCDP of 2/(sσ)² (PP Lemma 5), 4 times that under REPLACE.
    """
    if not params.uses_sparse_vector:
        return None
    return events.ZCDpEvent(rho=_rho(params))


def facts(params: MechanismParams) -> Facts:
    """Facts about the test for a report (PP Lemma 5).

    Raises:
        ValueError: The settings leave the test out.
    """
    if params.threshold_noise_scale is None:
        raise ValueError('Expected a threshold_noise_scale, got none. Leave the facts of the test out.')
    r, s, sigma = params.private_token_cap, params.batch_size, format_exact(params.threshold_noise_scale)
    two = '2' if params.change.value > 1 else ''
    priced = not params.is_ex_post
    per_run = 4 if two else 2
    return Facts(
        stages=(
            RhoStage(
                name='Sparse-vector test',
                rho=r * _rho(params) if priced else None,
                explanation=(
                    'Deciding before each token whether a public one will do; paid once per private token.'
                    if priced
                    else 'Deciding before each token whether a public one will do. Each run of the test, one '
                    "per private token and one left open at a batch's end, adds a fixed ε to the loss that "
                    'the curator holds.'
                ),
                formula=f'r · 2·({two or "1"}/(s·σ))²' if priced else f'ε = {per_run}/(s·σ) per run',
                numbers=(
                    f'{r} · 2·({two or "1"}/({s}·{sigma}))²' if priced else f'{per_run}/({s}·{sigma}) per run'
                ),
            ),
        ),
        sensitivities=(
            Sensitivity(
                quantity='Distance between the average private and the public prediction (L1)',
                value=params.distance_sensitivity,
                formula=f'{two or "1"}/s',
            ),
        ),
        symbols=('σ threshold noise scale',),
        reproduction=Reproduction(
            settings=(f'sigma = {params.threshold_noise_scale!r}  # threshold noise scale',),
            cost='2 * (change / (s * sigma)) ** 2',
        )
        if priced
        else None,
    )
