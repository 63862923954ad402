"""Weights that are sharded: batches and sampled texts are those of a copy on each, in float32."""

import dataclasses
import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.decoders import decoder as decoder_lib
from models.decoders import device
from models.decoders.gemma.architectures import GemmaArchitecture
from models.decoders.transformer import sharded
from models.decoders.transformer.decoder import TransformerDecoder
from models.decoders.transformer.weights import adapter_shapes, tree
from models.privacy.randomness import RunKey
from models.sampling.decoder_source import DecoderSource
from models.sampling.settings import SamplerSettings
from models.sampling.source import Request
from tests.models import assembly_test
from tests.models.decoders.gemma.decoder_test import EXPERTS, GEMMA2, GEMMA4
from tests.samples import SECRET

ROOT = pathlib.Path(__file__).parents[4]
DEVICES = 8
GIB = 2**30
# The bundled model has no capped scores and logits, and no output layer of its own.
UNTIED = dataclasses.replace(GEMMA2, ties_output=False)
OF_BOTH = (
    'model', 'checkpoint', 'tokenizer', 'dtype', 'max_prompt_tokens', 'template', 'label_words',
)  # fmt: skip


def logits(architecture: GemmaArchitecture, *, is_sharded: bool) -> list[np.ndarray]:
    """Logits of all columns and of some, with low-rank factors: after prompts, and after a token."""
    rng = np.random.default_rng(1)

    def draw(shape: tuple[int, ...], scale: float) -> jax.Array:
        return jnp.asarray(rng.normal(0, scale, shape), jnp.float32)

    weights = tree(architecture, lambda field, index, shape: draw(shape, 0.3))
    factors = jax.tree.map(lambda leaf: draw(leaf.shape, 0.1), adapter_shapes(architecture, 3))
    shapes = decoder_lib.Shapes(max_prompt_tokens=9, max_example_tokens=4, micro_batch_size=16)
    model = TransformerDecoder(architecture, weights, shapes=shapes, adapter=factors, is_sharded=is_sharded)
    lengths = [1, 9, *range(2, 9), *range(1, 8)]
    states, cache = model.prefill([rng.integers(0, 96, length).astype(np.int32) for length in lengths])
    tokens, columns = jnp.arange(16, dtype=jnp.int32)[:, None], jnp.asarray([95, 3, 40, 0])
    after, _ = jax.jit(model.append)(model.weights, cache, tokens, jnp.int32(1), jnp.zeros(16, jnp.int32))
    of_states = jax.jit(model.logits)
    found = [
        of_states(model.weights, part, chosen) for part in (*states, *after) for chosen in (None, columns)
    ]
    return [np.asarray(array) for array in found]


def compute(*, is_sharded: bool) -> dict[str, Any]:
    """Everything that is compared, and the bytes of a matrix that each device holds."""
    device.shards_weights = lambda *_: is_sharded  # type: ignore[assignment]
    generator = assembly_test.SETTINGS.build()
    given = {field: getattr(assembly_test.SETTINGS, field) for field in OF_BOTH}
    source = DecoderSource(SamplerSettings(**given, max_example_tokens=8))
    requests = [Request(name=f'{number}', label='sports') for number in range(10)]
    matrix = generator.decoder.weights.layers[0].gate_up
    return {
        'batch': generator.generate(assembly_test.BATCH, RunKey(SECRET)).examples,
        'texts': source.sample(requests, RunKey(SECRET)),
        'logits': [
            array
            for architecture in (UNTIED, GEMMA4, EXPERTS)
            for array in logits(architecture, is_sharded=is_sharded)
        ],
        'bytes': {shard.data.nbytes for shard in matrix.addressable_shards},
    }


@pytest.mark.run
def test_sharded_weights_decode_what_copies_decode(tmp_path: pathlib.Path) -> None:
    code = (
        f'import pickle, sys; from {__name__} import *; assert len(jax.local_devices()) == DEVICES; '
        'found = [compute(is_sharded=is_sharded) for is_sharded in (False, True)]; '
        "pickle.dump(found, open(sys.argv[1], 'wb'))"
    )
    subprocess.run(
        [sys.executable, '-c', code, str(tmp_path / 'found')],
        check=True, cwd=ROOT, timeout=500,
        env=os.environ | {
            'XLA_FLAGS': f'--xla_force_host_platform_device_count={DEVICES}', 'JAX_PLATFORMS': 'cpu',
            # A device that waits for another holds a thread of one pool, which may not run out.
            'NPROC': '64',
        },
    )  # fmt: skip
    copies, shards = pickle.loads((tmp_path / 'found').read_bytes())
    assert shards['batch'] == copies['batch'] and shards['batch']
    assert shards['texts'] == copies['texts'] and len({text.text for text in shards['texts'] if text}) > 5
    for of_shards, of_copies in zip(shards['logits'], copies['logits'], strict=True):
        np.testing.assert_allclose(of_shards, of_copies, atol=1e-5)
        assert len({row.tobytes() for row in of_copies}) == len(of_copies)
    (whole,), (shard,) = copies['bytes'], shards['bytes']
    assert whole == DEVICES * shard


@pytest.mark.parametrize(
    ('size', 'devices', 'limit', 'expected'),
    [(50, 8, 105, False), (54, 8, 105, True), (54, 1, 105, False), (54, 8, None, False)],
)
def test_weights_are_sharded_where_a_copy_takes_more_than_half_of_a_device(
    size: int, devices: int, limit: int | None, expected: bool
) -> None:
    stats = None if limit is None else {'bytes_limit': limit * GIB}
    assert device.shards_weights(size * GIB, devices, stats) is expected


def test_devices_that_weights_cannot_be_cut_for_are_refused() -> None:
    with pytest.raises(ValueError, match=r'devices=5 for query_key_value of shape=\(32, 64\)'):
        sharded.specs(UNTIED, 5)
