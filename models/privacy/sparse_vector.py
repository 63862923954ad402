"""The test that chooses between a private and a public token: distance, noise and price (PP Algorithm 1).

AboveThreshold on the L1 distance between the aggregate private prediction and the public one. A *run* of
the test starts with a fresh threshold. It ends with the first private token, or with the batch. Public
tokens within a run are free (README step 3).

PP = Amin et al. 2024; line numbers are those of its Algorithm 1. BS = Bun and Steinke 2016.
"""

from __future__ import annotations

import functools

from etils import epy

from models.privacy import events
from models.privacy.aggregates import aggregate, clipping
from models.privacy.facts import Facts, Reproduction, RhoStage, Sensitivity
from models.privacy.numbers import format_exact
from models.privacy.params import MechanismParams

with epy.lazy_imports():
    import jax
    import jax.numpy as jnp


def tally(
    logits: tuple[jax.Array, ...], is_private: tuple[jax.Array, ...], counted: jax.Array | None = None
) -> jax.Array:
    """Σ softmax(z) over the private rows, `[V]`, of the raw logits at temperature 1.

    The logits are not clipped: a softmax of the average of clipped logits would not have sensitivity 1/s
    (METHOD 4).

    Formal guarantee: a context adds a non-negative vector of total mass at most 1, whatever its row holds.
    The vector does not depend on the other rows.

    Args:
        logits: `[m, V]` for every micro-batch.
        is_private: `[m]` bool for every micro-batch.
        counted: `[V]` bool, public: predictions are narrowed to these tokens, and each keeps mass 1; None
            for all tokens.
    """
    vote = functools.partial(clipping.probabilities, counted=counted)
    return aggregate.sum_over_contexts(vote, logits, is_private)


def public_distance(
    probability_sum: jax.Array,
    public_logits: jax.Array,
    params: MechanismParams,
    counted: jax.Array | None = None,
) -> jax.Array:
    """‖(1/s) Σ softmax(z) − softmax(z_pub)‖₁, a scalar (PP equation 2).

    Formal guarantee: one unit moves it by at most `params.distance_sensitivity`. An empty batch
    gives 1.

    Args:
        probability_sum: From `tally`, for the same tokens.
        public_logits: `[V]`.
        params: The mechanism.
        counted: As for `tally`.
    """
    if counted is not None:
        public_logits = jnp.where(counted, public_logits, -jnp.inf)
    return jnp.abs(probability_sum / params.batch_size - jax.nn.softmax(public_logits)).sum()


def passes(
    distance: jax.Array, distance_noise: jax.Array, threshold_noise: jax.Array, params: MechanismParams
) -> jax.Array:
    """Whether the noisy distance reaches the noisy threshold, bool. If so, the token is private (line 12).

    Args:
        distance: From `public_distance`.
        distance_noise: Laplace(2σ), fresh for every token.
        threshold_noise: Laplace(σ), drawn again after every private token, and only then.
        params: With a threshold.
    """
    assert params.threshold is not None  # `uses_sparse_vector`
    return distance + distance_noise >= params.threshold + threshold_noise


def noise_scales(threshold_noise_scale: float) -> tuple[float, float]:
    """Laplace scales of the threshold's noise and of a distance's: σ and 2σ (lines 4, 11 and 16)."""
    return threshold_noise_scale, 2 * threshold_noise_scale


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
    """What a report states about the test (PP Lemma 5).

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
