"""Benchmark of a decoding step: our loop, the library's step in it, its sampler and llama.cpp, in one run.

All decode the same number of contexts from prompts of the same tokens with the same weights, on a
cache of prompt + new tokens, without stop tokens. Prints one JSON line. Run from the repository root:

    python -m tests.benchmarks.decoding_benchmark --model gemma3-270m --new-tokens 24 --rounds 2
    python -m tests.benchmarks.decoding_benchmark --contexts 64 --prompt-tokens 128 --new-tokens 64

* `ours`: the job's loop with the difference aggregate on 1,024 columns, the public row, exact sampling.
* `library_step`: the same loop as it would be with the library's cached step, and the full output
  layer for every row, whole vocabulary.
* `gemma`: the library's own sampler, which samples a token for every row.
* `llama_cpp`: llama.cpp's batched decoding of the same GGUF file with the output layer for every row, where
  `--llama-python` names a Python that has its binding; in a process of its own.

Rounds are interleaved and the figures are medians. `..._prefill_seconds` is the prompts' forward pass.
`..._seconds_per_step` leaves it out: it is the loop's time over all new tokens less its time over half
of them, divided by the tokens between.
"""

import argparse
import dataclasses
import json
import pathlib
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gemma import gm
from gemma.gm.text import _prefill, _sampler_loop
from gemma.gm.utils import _types

from models.decoders import decoder, family
from models.decoders.gemma import architectures
from models.decoders.gemma import library as gemma
from models.decoders.transformer.checkpoint import Place
from models.decoders.transformer.decoder import TransformerDecoder
from models.generate.rows import prefill_public
from tests.benchmarks.accelerator_benchmark import COLUMNS, decode
from tests.models.decoders.gemma.library_models import parameter_shapes


class Prefilled(decoder.Decoder):
    """A decoder whose prefill has been done, so that `decode_stream` is the loop alone."""

    def __init__(self, inner: decoder.Decoder) -> None:
        self.shapes, self.vocab_size, self.weights = inner.shapes, inner.vocab_size, inner.weights
        self._inner = inner
        self._ready: Any = None

    def run_prefill(self, prompts: Sequence[np.ndarray]) -> None:
        self._ready = jax.block_until_ready(self._inner.prefill(prompts))

    def prefill(
        self, prompts: Sequence[np.ndarray], *, together: int | None = None
    ) -> tuple[tuple[jax.Array, ...], tuple[decoder.Cache, ...]]:
        # The loop takes the buffers over.
        ready: tuple[tuple[jax.Array, ...], tuple[decoder.Cache, ...]] = jax.tree.map(jnp.copy, self._ready)
        return jax.block_until_ready(ready)

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


class _LibraryStep(decoder.Decoder):
    """The library's cached forward pass behind our interface, for a micro-batch and the public rows."""

    def __init__(
        self,
        architecture: architectures.GemmaArchitecture,
        parameters: gemma.Parameters,
        *,
        shapes: decoder.Shapes,
        dtype: str,
    ) -> None:
        self.shapes, self.vocab_size = shapes, architecture.num_embed
        self.weights = jax.device_put(parameters)
        self._dtype = dtype
        self._cap = architecture.final_logit_softcap
        self._model = gemma.make_transformer(architecture, dtype=dtype)
        self._prefill = jax.jit(self._read)

    def prefill(
        self, prompts: Sequence[np.ndarray], *, together: int | None = None
    ) -> tuple[tuple[jax.Array, ...], tuple[decoder.Cache, ...]]:
        tokens = np.zeros((len(prompts), self.shapes.max_prompt_tokens), np.int32)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[: len(prompt)] = prompt
        states, cache = self._prefill(self.weights, tokens, np.array([len(prompt) for prompt in prompts]))
        return (states,), (cache,)

    def _read(self, weights: Any, tokens: jax.Array, lengths: jax.Array) -> tuple[jax.Array, Any]:
        rows, length = tokens.shape
        slots, places = jnp.arange(self.shapes.cache_length), jnp.arange(length)
        mask = (slots <= places[:, None]) & (slots < lengths[:, None, None])
        cache = self._model.init_cache(
            batch_size=rows, dtype=self._dtype, cache_length=self.shapes.cache_length
        )
        return self._apply(weights, tokens, jnp.broadcast_to(places, tokens.shape), mask, cache, lengths)

    def _apply(
        self, weights: Any, tokens: Any, positions: Any, mask: Any, cache: Any, lengths: Any
    ) -> tuple[jax.Array, Any]:
        output = self._model.apply(
            {'params': weights}, tokens, positions=positions, cache=cache, attention_mask=mask,
            return_last_only=True, return_hidden_states=True,
        )  # fmt: skip
        return output.hidden_states, {'layers': output.cache, 'lengths': lengths}

    def append(
        self,
        weights: decoder.Weights,
        cache: tuple[decoder.Cache, ...],
        tokens: jax.Array,
        count: jax.Array,
        offset: jax.Array,
    ) -> tuple[tuple[jax.Array, ...], tuple[decoder.Cache, ...]]:
        (token,) = tokens  # the loop of text without a structure gives no more
        parts = [self._step(weights, part, token, offset) for part in cache]
        states, after = zip(*parts, strict=True)
        return states, after

    def _step(
        self, weights: decoder.Weights, cache: decoder.Cache, token: jax.Array, offset: jax.Array
    ) -> tuple[jax.Array, decoder.Cache]:
        lengths, prompt_slots = cache['lengths'], self.shapes.max_prompt_tokens
        slots, rows = jnp.arange(self.shapes.cache_length), len(cache['lengths'])
        mask = (slots < lengths[:, None]) | ((slots >= prompt_slots) & (slots <= prompt_slots + offset))
        end = jnp.full(rows, prompt_slots, jnp.int32) + offset
        layers = {name: layer | {'end_index': end} for name, layer in cache['layers'].items()}
        return self._apply(
            weights, jnp.full((rows, 1), token, jnp.int32), (lengths + offset)[:, None], mask[:, None],
            layers, lengths,
        )  # fmt: skip

    def logits(
        self, weights: decoder.Weights, states: jax.Array, columns: jax.Array | None = None
    ) -> jax.Array:
        table = weights['embedder']['input_embedding']
        logits = jnp.dot(states, (table if columns is None else table[columns]).T)
        logits = logits if self._cap is None else jnp.tanh(logits / self._cap) * self._cap
        return logits.astype(jnp.float32)


def _ours(
    architecture: architectures.GemmaArchitecture,
    parameters: gemma.Parameters,
    *,
    shapes: decoder.Shapes,
    dtype: str,
) -> TransformerDecoder:
    """The job's decoder, of the library's parameters."""
    weights = gemma.to_weights(architecture, dict(parameters), Place(dtype))
    return TransformerDecoder(architecture, weights, shapes=shapes)


def _random_parameters(architecture: architectures.GemmaArchitecture) -> gemma.Parameters:
    """Parameters of no model, in float32."""
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape, np.float32) / 32),
        parameter_shapes(architecture),
    )


@dataclasses.dataclass
class _Loop:
    """The job's loop on a decoder: difference aggregate, one example as long as the run."""

    kind: Callable[..., decoder.Decoder]
    architecture: architectures.GemmaArchitecture
    weights: gemma.Parameters
    prompts: np.ndarray
    new_tokens: int
    micro_batch_size: int
    dtype: str
    public_top_k: int | None

    def __post_init__(self) -> None:
        shapes = decoder.Shapes(
            max_prompt_tokens=self.prompts.shape[1],
            max_example_tokens=self.new_tokens,
            micro_batch_size=self.micro_batch_size,
            rows_multiple=family.ROWS_MULTIPLE,
        )
        inner = self.kind(self.architecture, self.weights, shapes=shapes, dtype=self.dtype)
        self._decoder = Prefilled(inner)
        public, *private = self.prompts
        rows = shapes.micro_batches(len(self.prompts)) * shapes.micro_batch_size
        padding = np.array([1], np.int32)
        # The public row's place comes first.
        self._rows = [padding, *private, *[padding] * (rows - len(self.prompts))]
        self._public = prefill_public(inner, [public])

    def prefill(self) -> None:
        self._decoder.run_prefill(self._rows)

    def loop(self, new_tokens: int) -> None:
        decode(self._decoder, self._public, self.prompts[1:], new_tokens, columns=self.public_top_k)


@dataclasses.dataclass
class _Library:
    """The library's sampler on token ids, its prefill and its loop called as `Sampler.sample` does."""

    architecture: architectures.GemmaArchitecture
    weights: gemma.Parameters
    prompts: np.ndarray
    new_tokens: int
    dtype: str

    def __post_init__(self) -> None:
        self._model = gemma.make_transformer(self.architecture, dtype=jnp.dtype(self.dtype))
        self._weights = jax.device_put(self.weights)
        self._loop = _sampler_loop.SamplerLoop(
            model=self._model,
            end_tokens=(self.architecture.num_embed,),  # an id that no row can sample
            forbidden_tokens=None,
            sampling=gm.text.RandomSampling(temperature=1.0),
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


def _llama_cpp(
    python: pathlib.Path, checkpoint: str, contexts: int, prompt: int, new: int
) -> dict[str, float]:
    """Seconds of a prefill and of a step, by llama.cpp in a process of its own."""
    script = pathlib.Path(__file__).with_name('llama_cpp_step.py')
    command = [str(python), str(script), checkpoint, str(contexts), str(prompt), str(new)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def measure(
    *,
    model: str,
    contexts: int,
    prompt_tokens: int,
    new_tokens: int,
    micro_batch_size: int,
    rounds: int,
    dtypes: Sequence[str],
    llama_python: pathlib.Path | None,
) -> dict[str, object]:
    """Median seconds of all sides, compilation left out."""
    files = family.files_of(model)
    architecture = architectures.ARCHITECTURES[model]
    rng = np.random.default_rng(0)
    # The first row is our public prompt. Ids below 110 are control tokens and line ends.
    prompts = rng.integers(110, architecture.num_embed, (contexts + 1, prompt_tokens)).astype(np.int32)
    weights = _random_parameters(architecture)
    half = new_tokens // 2

    def loop(kind: Callable[..., decoder.Decoder], dtype: str, top_k: int | None) -> _Loop:
        rows = micro_batch_size if kind is _ours else contexts + 1
        return _Loop(kind, architecture, weights, prompts, new_tokens, rows, dtype, top_k)

    sides: dict[str, Any] = {
        ('ours' if dtype == 'float32' else f'ours_{dtype}'): loop(_ours, dtype, COLUMNS) for dtype in dtypes
    }
    lengths = [half, new_tokens]
    sides['library_step'] = loop(_LibraryStep, 'float32', None)
    sides['gemma'] = _Library(architecture, weights, prompts[1:], new_tokens, 'float32')
    times: dict[tuple[str, object], list[float]] = {}
    for number in range(rounds + 1):
        for name, side in sides.items():
            prefill = _seconds(side.prefill)
            if number:  # the first round compiles
                times.setdefault((name, 'prefill'), []).append(prefill)
            for length in lengths:
                seconds = _seconds(side.loop, length)
                if number:
                    times.setdefault((name, length), []).append(seconds)
        if number and llama_python is not None:
            for part, seconds in _llama_cpp(
                llama_python, files.checkpoint, contexts, prompt_tokens, new_tokens
            ).items():
                times.setdefault(('llama_cpp', part), []).append(seconds)
    median = {key: statistics.median(values) for key, values in times.items()}
    result: dict[str, object] = {'model': model}
    step = {
        name: (median[name, lengths[-1]] - median[name, lengths[-2]]) / (lengths[-1] - lengths[-2])
        for name in sides
    }
    if llama_python is not None:
        step['llama_cpp'] = median['llama_cpp', 'step']
    for name in step:
        result[f'{name}_seconds_per_step'] = round(step[name], 6)
        result[f'{name}_prefill_seconds'] = round(median[name, 'prefill'], 4)
    for name in step:
        if name != 'ours' and not name.startswith('ours_'):
            for ours in (ours for ours in sides if ours.startswith('ours')):
                result[f'{name}_over_{ours}'] = round(step[name] / step[ours], 3)
    return result | {
        'contexts': contexts,
        'prompt_tokens': prompt_tokens,
        'new_tokens': new_tokens,
        'columns': COLUMNS,
        'vocab_size': architecture.num_embed,
        'device': jax.devices()[0].device_kind,
        'micro_batch_size': micro_batch_size,
        'rounds': rounds,
    }


def main() -> None:
    """Measures once and prints the line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument(
        '--model', default='bundled', help='one whose weights are at hand: bundled, gemma3-270m'
    )
    parser.add_argument('--contexts', type=int, default=64)
    parser.add_argument('--prompt-tokens', type=int, default=128)
    parser.add_argument('--new-tokens', type=int, default=64)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument(
        '--micro-batch-size', type=int, help='Rows of our loop at a time. Default: all, with the public one.'
    )
    parser.add_argument('--dtypes', nargs='+', default=['float32', 'bfloat16'], help='of our loop')
    parser.add_argument('--llama-python', type=pathlib.Path, help='a Python with llama-cpp-python')
    args = parser.parse_args()
    rows = args.contexts + 1
    result = measure(
        model=args.model,
        contexts=args.contexts,
        prompt_tokens=args.prompt_tokens,
        new_tokens=args.new_tokens,
        # Whole blocks of 8 rows, as the job has them.
        micro_batch_size=args.micro_batch_size or -(-rows // 8) * 8,
        rounds=args.rounds,
        dtypes=args.dtypes,
        llama_python=args.llama_python,
    )
    print(json.dumps(result))


if __name__ == '__main__':
    main()
