"""What a calibration counts is what XLA counts of the same computation, and its weights are a model's."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from models.decoders.gemma import architectures, calibration, forward
from models.decoders.gemma.weights import Weights
from models.decoders.rates import Rates

ROWS, SLOTS, TOKENS = 16, 8, 32
WIDE = architectures.Architecture(
    num_embed=512, embed_dim=256, hidden_dim=1024, num_heads=4, head_dim=64, num_kv_heads=2, generation=3,
    attention_types=('local', 'global'), sliding_window_size=16, use_qk_norm=True,
)  # fmt: skip
PLAIN = dataclasses.replace(WIDE, use_qk_norm=False, use_post_norms=False)


@pytest.mark.parametrize('architecture', [WIDE, PLAIN])
def test_weights_are_those_of_the_architecture(architecture: architectures.Architecture) -> None:
    weights = calibration.random_weights(architecture, 'bfloat16')
    leaves = jax.tree.leaves(weights)
    assert sum(leaf.size for leaf in leaves) == architecture.num_parameters
    layers = jax.tree.leaves((weights.layers, weights.final_norm))
    assert sum(leaf.size for leaf in layers) == architecture.layer_parameters
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype('bfloat16')}


def test_arithmetic_is_what_xla_counts() -> None:
    weights = calibration.random_weights(WIDE, 'float32')
    tokens, lengths = jnp.full((ROWS, TOKENS), 2), jnp.full(ROWS, TOKENS)

    def read(weights: Weights) -> tuple[jax.Array, forward.Cache]:
        return forward.read_prompts(WIDE, weights, tokens, lengths, example_slots=SLOTS, in_pieces=False)

    counted = jax.jit(read).lower(weights).cost_analysis()['flops']
    # Norms, rotations and softmax are not counted as arithmetic.
    assert ROWS * WIDE.prompt_flops(TOKENS) == pytest.approx(counted, rel=0.05)
    cache = read(weights)[1]

    def step(weights: Weights, cache: forward.Cache) -> jax.Array:
        return forward.append(WIDE, weights, cache, jnp.array([2]), jnp.int32(1), jnp.int32(0))[0]

    counted = jax.jit(step).lower(weights, cache).cost_analysis()['flops']
    assert ROWS * 2 * WIDE.layer_parameters == pytest.approx(counted, rel=0.1)
    held = sum(leaf.nbytes for leaf in jax.tree.leaves((cache.prompt, cache.example)))
    assert held == ROWS * (TOKENS + SLOTS) * WIDE.cache_bytes_per_token(4)


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_rates_are_measured(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {'SECONDS': 0.0, 'LEAST_ROUNDS': 1, 'CACHE_BYTES': 2**22}.items():
        monkeypatch.setattr(calibration, name, value)
    rates = calibration.measure(WIDE, dtype=dtype)
    # No machine of today is outside of these.
    assert all(1e4 < rate < 1e16 for rate in dataclasses.asdict(rates).values())


def test_slower_work_gives_a_lower_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([(0.5,), (4.0, 1.0, 3.0), (2.0, 8.0), (0.25,)])
    monkeypatch.setattr(calibration, '_seconds', lambda *calls: next(seconds))
    rates = calibration.measure(WIDE, dtype='float32')
    layer = (WIDE.num_parameters - 512 * 256 - 256) // 2 + 256
    slot_bytes = 2 * 2 * 64 * 4
    slots = 2**27 // (64 * slot_bytes)
    assert rates == Rates(
        prompt_flops=8 * (2 * layer * 128 + 4 * 4 * 64 * 128**2) / 0.5,
        step_flops=2 * 64 * 2 * layer / 4.0,
        output_flops=2 * 512 * 256 * 64 / 8.0,
        weight_bytes=512 * 256 * 4 / 2.0,
        cache_bytes=64 * (slots - 8) * slot_bytes / (3.0 - 1.0),
        ranked_logits=512 / 0.25,
    )


@pytest.mark.parametrize('rate', [0, -1.0, float('nan'), float('inf'), '1', True, None])
def test_a_rate_is_a_positive_number(rate: object) -> None:
    whole = dict.fromkeys([field.name for field in dataclasses.fields(Rates)], 1.0)
    with pytest.raises(ValueError, match='step_flops='):
        Rates(**(whole | {'step_flops': rate}))
