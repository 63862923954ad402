"""Benchmark of a decoding step: our loop against the gemma library's own sampler, in one process.

Both decode the same number of contexts from prompts of the same tokens with the bundled model's
weights in float32, on a cache of prompt + new tokens, without stop tokens. Ours adds the public
prompt's row, the votes of the mean aggregate, the sparse-vector test and exact sampling; the
library samples a token for every row. Prints one JSON line. Run from the repository root:

    python -m tests.benchmarks.decoding_benchmark --contexts 64 --prompt-tokens 128 --new-tokens 64

Rounds are interleaved and the figures are medians. `..._prefill_seconds` is the prompts' forward
pass. `..._seconds_per_step` leaves it out: it is the loop's time over all new tokens less its
time over half of them, divided by the tokens between.
"""

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gemma import gm
from gemma.gm.text import _prefill, _sampler_loop
from gemma.gm.utils import _types

from models import bundled, generate
from models.constraints import Vocabulary
from models.decoders import decoder
from models.decoders.gemma import architectures, checkpoints
from models.decoders.gemma import decoder as gemma
from models.privacy import randomness, sampling
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule

ARCHITECTURE = architectures.ARCHITECTURES['bundled']
CHECKPOINT = bundled.CHECKPOINT
# In the middle of the distance's range, with noise as wide: both kinds of token occur.
THRESHOLD, THRESHOLD_NOISE_SCALE = 0.8, 0.4


class _Prefilled(decoder.Decoder):
    """A decoder whose prefill has been done, so that `decode_stream` is the loop alone."""

    def __init__(self, inner: decoder.Decoder) -> None:
        self.shapes, self.vocab_size, self.weights = inner.shapes, inner.vocab_size, inner.weights
        self._inner = inner
        self._ready: tuple[tuple[jax.Array, ...], decoder.Cache] | None = None

    def run_prefill(self, prompts: Sequence[np.ndarray]) -> None:
        self._ready = jax.block_until_ready(self._inner.prefill(prompts))

    def prefill(self, prompts: Sequence[np.ndarray]) -> tuple[tuple[jax.Array, ...], decoder.Cache]:
        ready, self._ready = self._ready, None  # the loop takes the cache's buffers over
        if ready is None:
            raise RuntimeError('Expected a prefilled cache, got none. Call run_prefill first.')
        return ready

    def step(
        self, weights: decoder.Weights, cache: decoder.Cache, token: jax.Array, offset: jax.Array
    ) -> tuple[tuple[jax.Array, ...], decoder.Cache]:
        return self._inner.step(weights, cache, token, offset)

    def logits(
        self, weights: decoder.Weights, states: jax.Array, columns: jax.Array | None = None
    ) -> jax.Array:
        return self._inner.logits(weights, states, columns)


@dataclasses.dataclass
class _Ours:
    """Our loop: mean aggregate and sparse vector, one example as long as the run."""

    weights: gemma.Parameters
    prompts: np.ndarray
    new_tokens: int
    micro_batch_size: int
    private_tokens: int = 0

    def __post_init__(self) -> None:
        shapes = decoder.Shapes(
            max_prompt_tokens=self.prompts.shape[1],
            max_example_tokens=self.new_tokens,
            micro_batch_size=self.micro_batch_size,
        )
        self._decoder = _Prefilled(
            gemma.GemmaDecoder(ARCHITECTURE, dict(self.weights), shapes=shapes, dtype='float32')
        )
        rows = shapes.micro_batches(len(self.prompts)) * shapes.micro_batch_size
        self._rows = [*self.prompts, *[np.array([1], np.int32)] * (rows - len(self.prompts))]

    def prefill(self) -> None:
        self._decoder.run_prefill(self._rows)

    def loop(self, new_tokens: int) -> None:
        params = MechanismParams(
            batch_size=len(self.prompts) - 1,
            clip_bound=10.0,
            temperature=2.0,
            max_private_tokens=self.new_tokens,
            max_batch_tokens=new_tokens,
            max_example_tokens=self.new_tokens,
            threshold=THRESHOLD,
            threshold_noise_scale=THRESHOLD_NOISE_SCALE,
        )
        draws = randomness.batch_draws(
            randomness.RunKey(bytes(32)),
            'benchmark',
            'batch',
            max_private_tokens=params.max_private_tokens,
            max_batch_tokens=params.max_batch_tokens,
            threshold_noise_scale=params.threshold_noise_scale,
            levels=sampling.tree_levels(ARCHITECTURE.num_embed),
        )
        stream = generate.decode_stream(
            self._decoder,
            self.prompts[0],
            list(self.prompts[1:]),
            params=params,
            draws=draws,
            constraint=Vocabulary.of(np.ones(ARCHITECTURE.num_embed, bool)),
            stop_rule=StopRule.of(ARCHITECTURE.num_embed, tokens=()),
        )
        if len(stream.tokens) != new_tokens:
            raise RuntimeError(f'Expected {new_tokens} tokens, got {len(stream.tokens)}. Compare equal work.')
        self.private_tokens = int(stream.is_private.sum())


@dataclasses.dataclass
class _Library:
    """The library's sampler on token ids, its prefill and its loop called as `Sampler.sample` does."""

    weights: gemma.Parameters
    prompts: np.ndarray
    new_tokens: int

    def __post_init__(self) -> None:
        self._model = gemma.make_transformer(ARCHITECTURE, dtype=jnp.float32)
        self._weights = jax.device_put(self.weights)
        self._loop = _sampler_loop.SamplerLoop(
            model=self._model,
            end_tokens=(ARCHITECTURE.num_embed,),  # an id that no row can sample
            forbidden_tokens=None,
            sampling=gm.text.RandomSampling(temperature=2.0),
            cache_length=self._cache_length,
            special_tokens=gm.text.Gemma3Tokenizer.special_tokens,
        )

    @property
    def _cache_length(self) -> int:
        return self.prompts.shape[1] + self.new_tokens

    def prefill(self) -> None:
        inputs = _types.Input(
            text=jnp.asarray(self.prompts), images=None, config=self._model.config.input_config
        )
        self._state = jax.block_until_ready(
            _prefill.prefill(
                model=self._model,
                params=self._weights,
                input=inputs,
                last_state=None,
                cache_length=self._cache_length,
                max_out_length=self.new_tokens,
                pad_length=self.prompts.shape[1],
                rng=jax.random.key(0),
                sharding=None,
            )
        )

    def loop(self, new_tokens: int) -> None:
        state = self._loop.sample(
            params=self._weights, init_state=self._state, max_new_tokens=jnp.asarray(new_tokens)
        )
        steps = int(state.step)
        if steps != new_tokens:
            raise RuntimeError(f'Expected {new_tokens} steps, got {steps}. Compare equal work.')


def _seconds(call: Callable[..., None], *args: Any) -> float:
    begin = time.perf_counter()
    call(*args)
    return time.perf_counter() - begin


def measure(
    *, contexts: int, prompt_tokens: int, new_tokens: int, micro_batch_size: int, rounds: int
) -> dict[str, object]:
    """Median seconds of both, compilation left out."""
    rng = np.random.default_rng(0)
    # The first row is our public prompt. Ids below 110 are control tokens and line ends.
    prompts = rng.integers(110, ARCHITECTURE.num_embed, (contexts + 1, prompt_tokens)).astype(np.int32)
    weights = checkpoints.load_parameters(ARCHITECTURE, CHECKPOINT, dtype='float32')
    sides = {
        'ours': _Ours(weights, prompts, new_tokens, micro_batch_size),
        'gemma': _Library(weights, prompts[1:], new_tokens),
    }
    half = new_tokens // 2
    times: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds + 1):
        for name, side in sides.items():
            for part, length in (('half', half), ('whole', new_tokens)):
                prefill = _seconds(side.prefill)
                loop = _seconds(side.loop, length)
                if number:  # the first round compiles
                    times.setdefault((name, 'prefill'), []).append(prefill)
                    times.setdefault((name, part), []).append(loop)
    median = {key: statistics.median(values) for key, values in times.items()}
    step = {name: (median[name, 'whole'] - median[name, 'half']) / (new_tokens - half) for name in sides}
    return {
        'ours_seconds_per_step': round(step['ours'], 6),
        'gemma_seconds_per_step': round(step['gemma'], 6),
        'ratio': round(step['ours'] / step['gemma'], 3),
        'ours_prefill_seconds': round(median['ours', 'prefill'], 4),
        'gemma_prefill_seconds': round(median['gemma', 'prefill'], 4),
        'contexts': contexts,
        'prompt_tokens': prompt_tokens,
        'new_tokens': new_tokens,
        'private_tokens': sides['ours'].private_tokens,
        'vocab_size': ARCHITECTURE.num_embed,
        'device': jax.devices()[0].device_kind,
        'micro_batch_size': micro_batch_size,
        'rounds': rounds,
    }


def main() -> None:
    """Measures once and prints the line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--contexts', type=int, default=64)
    parser.add_argument('--prompt-tokens', type=int, default=128)
    parser.add_argument('--new-tokens', type=int, default=64)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument(
        '--micro-batch-size', type=int, help='Rows of our loop at a time. Default: all, with the public one.'
    )
    args = parser.parse_args()
    result = measure(
        contexts=args.contexts,
        prompt_tokens=args.prompt_tokens,
        new_tokens=args.new_tokens,
        micro_batch_size=args.micro_batch_size or args.contexts + 1,
        rounds=args.rounds,
    )
    print(json.dumps(result))


if __name__ == '__main__':
    main()
