"""Benchmark of the median aggregate: a whole decoding step with it against one with the mean, in one process.

The model is the bundled one with a head of 256 000 outputs: each output's weights are those of a
trained one and noise of half their size, so that the logits have the bulk and the tail of a trained
model's. Both sides decode the same prompts in one micro-batch of the same rows; the mean has a
padding row where the median has the public prompt.

What the median costs follows the share of outputs that lie within 2c of the top for half of the
contexts: only those are selected from. The logits are scaled so that this share is the one asked for
along the median's own stream; `share_measured` is what it was on every fourth step. Prints one JSON
line. Run from the repository root, with nothing else on the machine:

    python -m tests.benchmarks.median_benchmark --contexts 64 256 --share 0.005 0.05 0.15

Rounds are interleaved and the figures are medians. `..._seconds_per_step` is the loop's time over
all new tokens divided by their number; the votes at the prompts' end are in it, the prefill is not.
"""

import argparse
import dataclasses
import json
import math
import statistics
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from models import bundled
from models.constraints import Vocabulary
from models.decoders import decoder
from models.decoders.gemma import architectures, checkpoints
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.decoder import TransformerDecoder
from models.decoders.transformer.weights import Weights
from models.generate.loop import decode_stream
from models.generate.rows import prefill_public
from models.privacy import randomness, sampling
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule

BUNDLED = architectures.ARCHITECTURES['bundled']
CHECKPOINT = bundled.CHECKPOINT
ARCHITECTURE = dataclasses.replace(BUNDLED, num_embed=256_000)
# CL's median: c = 6 at τ = 1.5.
CLIP_BOUND, TEMPERATURE = 6.0, 1.5
AGGREGATES: tuple[str, ...] = ('mean', 'median')


def wide_head(weights: Weights, seed: int = 0) -> Weights:
    """The bundled weights with `ARCHITECTURE.num_embed` rows in the embedding, which is the head too."""
    rng = np.random.default_rng(seed)
    trained = np.asarray(weights.embedding, np.float32)
    extra = ARCHITECTURE.num_embed - len(trained)
    rows = trained[rng.integers(0, len(trained), extra)]
    size = 0.5 * rows.std(axis=1, keepdims=True)
    rows = rows + size * rng.standard_normal(rows.shape, np.float32)
    return weights._replace(embedding=jnp.asarray(np.concatenate([trained, rows])))


def scaled_head(weights: Weights, factor: float) -> Weights:
    """The same with all logits times `factor`: the last norm's scale is stored less 1."""
    return weights._replace(final_norm=(1 + weights.final_norm) * factor - 1)


class _Scaled(decoder.Decoder):
    """One model after its prefill, with a head whose scale can be changed and no program compiled again."""

    def __init__(self, inner: TransformerDecoder, prompts: Sequence[np.ndarray]) -> None:
        self.shapes, self.vocab_size = inner.shapes, inner.vocab_size
        self._inner, self._plain = inner, inner.weights
        self._replay, self._output = jax.jit(inner.step), jax.jit(inner.logits)
        self.public = prefill_public(inner, prompts[:1])
        (self._states,), self._cache = inner.prefill(prompts[1:])
        self.set_scale(1.0)

    def set_scale(self, factor: float) -> None:
        self.weights = scaled_head(self._plain, factor)
        self._first = jax.block_until_ready(self._states * factor)

    def prefill(
        self, prompts: Sequence[np.ndarray], *, together: int | None = None
    ) -> tuple[tuple[jax.Array, ...], tuple[decoder.Cache, ...]]:
        # The loop takes the cache's buffers over.
        return (self._first,), jax.block_until_ready(jax.tree.map(jnp.copy, self._cache))

    def append(
        self,
        weights: decoder.Weights,
        cache: tuple[decoder.Cache, ...],
        tokens: jax.Array,
        count: jax.Array,
        offset: jax.Array,
    ) -> tuple[tuple[jax.Array, ...], tuple[decoder.Cache, ...]]:
        return self._inner.append(weights, cache, tokens, count, offset)

    def logits(
        self, weights: decoder.Weights, states: jax.Array, columns: jax.Array | None = None
    ) -> jax.Array:
        return self._inner.logits(weights, states, columns)

    def distances_from_top(self, tokens: np.ndarray) -> np.ndarray:
        """How far below the top each output lies for half of the contexts, at every fourth step of a stream.

        Of the unscaled logits, `[steps, V]`.
        """
        cache, found = self._cache, []
        for offset, token in enumerate(tokens.tolist()):
            (states,), cache = self._replay(self._plain, cache, jnp.int32(token), jnp.int32(offset))
            if offset % 4 == 0:
                private = np.asarray(self._output(self._plain, states))
                found.append(np.median(private.max(axis=1, keepdims=True) - private, axis=0))
        return np.stack(found)


def _decode(model: _Scaled, aggregate: str, contexts: int, new_tokens: int) -> tuple[float, np.ndarray]:
    """Seconds of the loop for one step, and its tokens."""
    params = MechanismParams(
        batch_size=contexts,
        clip_bound=CLIP_BOUND,
        temperature=TEMPERATURE,
        max_private_tokens=new_tokens,
        max_batch_tokens=new_tokens,
        max_example_tokens=new_tokens,
        aggregate=aggregate,
    )
    draws = randomness.batch_draws(
        randomness.RunKey(bytes(32)),
        'benchmark',
        'batch',
        max_private_tokens=new_tokens,
        max_batch_tokens=new_tokens,
        threshold_noise_scale=None,
        batch_size=params.batch_size,
        levels=sampling.tree_levels(model.vocab_size),
    )
    rows = [np.array([1], np.int32)] * contexts  # their number alone is read: the prefill is done
    model.prefill(rows)  # so that the copy below finds its memory warm
    begin = time.perf_counter()
    stream = decode_stream(
        model,
        model.public if params.needs_public_logits else None,
        rows,
        params=params,
        draws=draws,
        constraint=Vocabulary.of(np.ones(model.vocab_size, bool)),
        stop_rule=StopRule.of(model.vocab_size, tokens=()),
    )
    seconds = time.perf_counter() - begin
    if len(stream.tokens) != new_tokens:
        raise RuntimeError(f'Expected {new_tokens} tokens, got {len(stream.tokens)}. Compare equal work.')
    return seconds / new_tokens, stream.tokens


def measure(
    *, contexts: int, shares: Sequence[float], prompt_tokens: int, new_tokens: int, rounds: int
) -> list[dict[str, object]]:
    """One entry for each share, compilation left out."""
    rng = np.random.default_rng(0)
    # Ids below 110 are control tokens and line ends.
    prompts = rng.integers(110, BUNDLED.num_embed, (contexts + 1, prompt_tokens)).astype(np.int32)
    weights = wide_head(checkpoints.load_weights(BUNDLED, CHECKPOINT, Place('float32')))
    shapes = decoder.Shapes(
        max_prompt_tokens=prompt_tokens, max_example_tokens=new_tokens, micro_batch_size=contexts
    )
    model = _Scaled(TransformerDecoder(ARCHITECTURE, weights, shapes=shapes), list(prompts))
    results: list[dict[str, object]] = []
    for share in shares:
        # The stream follows the scale and the scale the stream: the closest of a few rounds.
        factor, found = 1.0, []
        for _ in range(5):
            model.set_scale(factor)
            distances = model.distances_from_top(_decode(model, 'median', contexts, new_tokens)[1])
            measured = float((factor * distances < 2 * CLIP_BOUND).mean())
            found.append((abs(measured - share), measured, factor))
            factor = math.sqrt(factor * 2 * CLIP_BOUND / float(np.quantile(distances, share)))
        _, measured, factor = min(found)
        model.set_scale(factor)
        times: dict[str, list[float]] = {aggregate: [] for aggregate in AGGREGATES}
        for number in range(rounds + 1):
            for aggregate in AGGREGATES:
                seconds, _ = _decode(model, aggregate, contexts, new_tokens)
                if number:  # the first round compiles
                    times[aggregate].append(seconds)
        step = {aggregate: statistics.median(seconds) for aggregate, seconds in times.items()}
        results.append({
            'contexts': contexts,
            'share_within_2c_of_the_top': share,
            'share_measured': round(measured, 4),
            'mean_seconds_per_step': round(step['mean'], 5),
            'median_seconds_per_step': round(step['median'], 5),
            'ratio': round(step['median'] / step['mean'], 3),
        })  # fmt: skip
    return results


def main() -> None:
    """Measures once and prints the line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--contexts', type=int, nargs='+', default=[64, 256])
    parser.add_argument('--share', type=float, nargs='+', default=[0.005, 0.05, 0.15])
    parser.add_argument('--prompt-tokens', type=int, default=32)
    parser.add_argument('--new-tokens', type=int, default=12)
    parser.add_argument('--rounds', type=int, default=5)
    args = parser.parse_args()
    steps = [
        entry
        for contexts in args.contexts
        for entry in measure(
            contexts=contexts,
            shares=args.share,
            prompt_tokens=args.prompt_tokens,
            new_tokens=args.new_tokens,
            rounds=args.rounds,
        )
    ]
    print(
        json.dumps(
            {
                'steps': steps,
                'vocab_size': ARCHITECTURE.num_embed,
                'clip_bound': CLIP_BOUND,
                'temperature': TEMPERATURE,
                'prompt_tokens': args.prompt_tokens,
                'new_tokens': args.new_tokens,
                'rounds': args.rounds,
                'device': jax.devices()[0].device_kind,
            }
        )
    )


if __name__ == '__main__':
    main()
