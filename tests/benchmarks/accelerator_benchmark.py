"""Benchmark of an accelerator: one JSON line for each thing that a job does there, in some six minutes.

    make gpu-folder          # where everything is installed: what such a machine lacks, in parts of 60 MB
    make bench-gpu           # there, in a copy of the clone with its folder gpu/

* A decoding step and its prompts, as a run decodes (`loop.decode_stream`: difference aggregate on K columns,
  the public prompt's row, exact sampling), for random weights with the dimensions of models: a step takes as
  long. `roofline_ms` is the time in which the device could at best read all weights and the whole cache once,
  at the bandwidth that the vendor declares (`--bytes-per-second`), or that a pass over an array reaches.
  `ms_per_step` is the loop's time over all new tokens less its time over half of them, divided by the tokens
  between; `first_seconds` the first loop's, which compiles. Medians.
* Sampling, a step of fine-tuning, and small jobs of each method (`accelerator_jobs`), with Gemma 3 270M:
  where its weights are neither in gpu/ nor fetched, nothing of this is measured, and a line says so.

The machine needs JAX and what it finds a device with, no network, and neither TensorFlow nor the gemma
library: SentencePiece reads texts there. `carry` collects wheels and weights, under Google's terms.
"""

import argparse
import importlib.metadata
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from models import fetched
from models.constraints import Vocabulary
from models.decoders import decoder as decoder_lib
from models.decoders import device, family
from models.decoders.gemma import architectures
from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.decoder import TransformerDecoder
from models.decoders.transformer.weights import Weights, adapter_shapes
from models.generate.loop import decode_stream
from models.generate.rows import PublicRows, prefill_public
from models.privacy import candidates, randomness, sampling
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule
from tests.benchmarks import accelerator_jobs

MODELS = ('gemma3-270m', 'gemma2-2b')
COLUMNS = 1024
# Packages that a machine with JAX lacks; all that they need goes with them, but for JAX and its own.
CARRIED = (
    'apache-beam', 'dp-accounting', 'etils', 'gguf', 'jax-privacy', 'jinja2', 'matplotlib', 'mpmath',
    'openpyxl', 'optax', 'orbax-checkpoint', 'packaging', 'psutil', 'pyarrow', 'pydantic', 'pyyaml', 'rich',
    'safetensors', 'scikit-learn', 'sentencepiece', 'sqlalchemy', 'tomli-w', 'typer', 'zstandard',
)  # fmt: skip
LEFT_OUT = frozenset({'jax', 'jaxlib', 'numpy', 'ml-dtypes', 'scipy', 'opt-einsum'})
PART_BYTES = 60 * 10**6
# The array that tells the bandwidth: far larger than any cache.
BANDWIDTH_BYTES = 2**32
DTYPE = 'bfloat16'
# Measured apart where the command says so.
PARTS = ('step', 'sampling', 'tuning', 'jobs')


# --- Weights ---------------------------------------------------------------------


def random_weights(architecture: Architecture) -> Weights:
    """Weights of no model, drawn on the device."""
    shapes, tree = jax.tree.flatten(adapter_shapes(architecture, None))
    draw = jax.jit(
        lambda key, shape: jax.random.normal(key, shape, DTYPE) / math.sqrt(shape[-1]), static_argnums=1
    )
    keys = map(jax.random.key, range(len(shapes)))
    weights: Weights = jax.tree.unflatten(
        tree, [draw(key, leaf.shape) for key, leaf in zip(keys, shapes, strict=True)]
    )
    return weights


# --- Measuring -------------------------------------------------------------------


def bandwidth(size: int) -> float:
    """Bytes a second that a pass over an array of `size` bytes reads and writes."""
    array = jnp.ones(size // 4, jnp.float32)
    scale = jax.jit(lambda found: found * 2)
    jax.block_until_ready(scale(array))
    return 2 * array.nbytes / statistics.median(_seconds(scale, array) for _ in range(5))


def measure(
    model: str,
    weights: Weights,
    *,
    contexts: int,
    prompt_tokens: int,
    new_tokens: int,
    rounds: int,
) -> dict[str, Any]:
    """Median times of a batch of `contexts` contexts and the public prompt, in one micro-batch."""
    architecture = architectures.ARCHITECTURES[model]
    multiple = family.ROWS_MULTIPLE * len(jax.local_devices())
    rows = -(-(contexts + 1) // multiple) * multiple
    shapes = decoder_lib.Shapes(
        max_prompt_tokens=prompt_tokens,
        max_example_tokens=new_tokens,
        micro_batch_size=rows,
        rows_multiple=multiple,
    )
    decoder = TransformerDecoder(architecture, weights, shapes=shapes)
    # Ids below 110 are control tokens and line ends.
    prompts = np.random.default_rng(0).integers(110, architecture.num_embed, (rows, prompt_tokens))
    prompts = prompts.astype(np.int32)

    def prefill() -> None:
        jax.block_until_ready(decoder.prefill(list(prompts)))

    def loop(tokens: int) -> None:
        public = prefill_public(decoder, [prompts[0]])
        decode(decoder, public, prompts[1 : contexts + 1], tokens)

    half = new_tokens // 2
    times: dict[str, list[float]] = {'prefill': [], 'half': [], 'whole': []}
    first = _seconds(loop, half)  # it compiles
    for _ in range(rounds):
        found = (_seconds(prefill), _seconds(loop, half), _seconds(loop, new_tokens))
        for kind, seconds in zip(times, found, strict=True):
            times[kind].append(seconds)
    median = {name: statistics.median(values) for name, values in times.items()}
    weight_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(decoder.weights))
    cache_bytes = rows * shapes.cache_length * architecture.cache_bytes_per_token(2)
    return {
        'measures': 'step',
        'model': model,
        'ms_per_step': 1000 * (median['whole'] - median['half']) / (new_tokens - half),
        'prefill_seconds': median['prefill'],
        'prompt_tokens_per_second': rows * prompt_tokens / median['prefill'],
        'first_seconds': first,
        'weight_bytes': weight_bytes,
        'cache_bytes': cache_bytes,
        'contexts': contexts,
        'rows': rows,
        'prompt_tokens': prompt_tokens,
        'new_tokens': new_tokens,
        'public_top_k': COLUMNS,
        'dtype': DTYPE,
        'rounds': rounds,
        'device': jax.devices()[0].device_kind,
        'devices': len(jax.local_devices()),
        'jax': jax.__version__,
    }


def decode(
    decoder: decoder_lib.Decoder,
    public: PublicRows,
    private: Sequence[np.ndarray],
    new_tokens: int,
    *,
    columns: int | None = COLUMNS,
) -> None:
    """Runs the job's loop with the difference aggregate for one example of `new_tokens` private tokens.

    Args:
        decoder: Of examples at least as long.
        public: Rows that stand for the public prompt.
        private: Prompts of the contexts.
        new_tokens: How many are decoded.
        columns: K, tokens that get votes; None is all.
    """
    params = MechanismParams(
        batch_size=len(private),
        aggregate='difference',
        clip_bound=1.0,
        temperature=1.0,
        max_private_tokens=decoder.shapes.max_example_tokens,
        max_batch_tokens=new_tokens,
        max_example_tokens=decoder.shapes.max_example_tokens,
        public_top_k=columns,
    )
    draws = randomness.batch_draws(
        randomness.RunKey(bytes(32)),
        'benchmark',
        'batch',
        max_private_tokens=params.max_private_tokens,
        max_batch_tokens=params.max_batch_tokens,
        threshold_noise_scale=None,
        batch_size=params.batch_size,
        levels=sampling.tree_levels(candidates.count(params.public_top_k, decoder.vocab_size)),
    )
    stream = decode_stream(
        decoder,
        public,
        list(private),
        params=params,
        draws=draws,
        constraint=Vocabulary.of(np.ones(decoder.vocab_size, bool)),
        stop_rule=StopRule.of(decoder.vocab_size, tokens=()),
    )
    if len(stream.tokens) != new_tokens:
        raise RuntimeError(f'Expected {new_tokens} tokens, got {len(stream.tokens)}. Compare equal work.')


def _seconds(call: Callable[..., Any], *args: Any) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(call(*args))
    return time.perf_counter() - begin


def with_roofline(measured: dict[str, Any], bytes_per_second: float, *, declared: bool) -> dict[str, Any]:
    """The line with what the memory allows: weights and cache once a step, over all devices.

    Weights lie on every device, which reads all of them; rows of the cache are shared out.
    """
    of_each = measured['weight_bytes'] + measured['cache_bytes'] / measured['devices']
    roofline = 1000 * of_each / bytes_per_second
    return measured | {
        'bytes_per_second': bytes_per_second,
        'bandwidth': 'declared' if declared else 'measured',
        'roofline_ms': roofline,
        'roofline_share': roofline / measured['ms_per_step'],
    }


# --- What a machine without a network lacks --------------------------------------


def carry(folder: pathlib.Path, checkpoint: pathlib.Path | None) -> list[pathlib.Path]:
    """Writes wheels and a checkpoint into folders of at most 60 MB; needs everything installed."""
    shutil.rmtree(folder, ignore_errors=True)
    wheels = folder / 'wheels'
    wheels.mkdir(parents=True)
    pinned = [f'{name}=={importlib.metadata.version(name)}' for name in needed_packages()]
    subprocess.run(
        [sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps', '--wheel-dir', str(wheels), *pinned],
        check=True,
    )  # fmt: skip
    pieces = sorted(wheels.iterdir(), key=lambda path: -path.stat().st_size)
    if checkpoint is not None:
        pieces = [*_pieces_of(checkpoint, folder), *pieces]
    parts: list[list[pathlib.Path]] = []
    for piece in pieces:
        size = piece.stat().st_size
        for part in parts:
            if sum(other.stat().st_size for other in part) + size <= PART_BYTES:
                part.append(piece)
                break
        else:
            parts.append([piece])
    written = []
    for number, part in enumerate(parts, 1):
        into = folder / f'part-{number}'
        into.mkdir()
        written += [piece.rename(into / piece.name) for piece in part]
    wheels.rmdir()
    return written


def needed_packages() -> list[str]:
    """All that `CARRIED` needs, and what that needs, without `LEFT_OUT`; as they are installed here."""
    waiting, found = list(CARRIED), set()
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found or name in LEFT_OUT:
            continue
        found.add(name)
        for requirement in map(Requirement, importlib.metadata.requires(name) or ()):
            if requirement.marker is None or requirement.marker.evaluate({'extra': ''}):
                waiting.append(requirement.name)
    return sorted(found)


def _pieces_of(checkpoint: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """A checkpoint in pieces that fit into a part."""
    pieces = []
    with checkpoint.open('rb') as whole:
        while content := whole.read(PART_BYTES):
            pieces.append(folder / f'weights-{len(pieces):02d}')
            pieces[-1].write_bytes(content)
    return pieces


# --- The command line ------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints lines, or carries."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    commands = parser.add_subparsers(dest='command', required=True)
    taken = commands.add_parser('carry', help='collect what a machine without a network lacks')
    taken.add_argument('folder', type=pathlib.Path)
    measured = commands.add_parser('measure', help='print JSON lines')
    measured.add_argument('--folder', type=pathlib.Path, default=pathlib.Path('gpu'), help='what was carried')
    measured.add_argument('--parts', nargs='+', choices=PARTS, default=PARTS)
    measured.add_argument('--models', nargs='+', choices=architectures.ARCHITECTURES, default=MODELS)
    measured.add_argument('--contexts', type=int, default=255)
    measured.add_argument('--prompt-tokens', type=int, default=400)
    measured.add_argument('--new-tokens', type=int, default=96)
    measured.add_argument('--rounds', type=int, default=3)
    measured.add_argument('--size', choices=accelerator_jobs.SIZES, default='full', help='of all else')
    measured.add_argument('--bytes-per-second', type=float, help="the memory's, as its vendor declares it")
    measured.add_argument('--allow-cpu', action='store_true', help='to try it where no accelerator is')
    args = parser.parse_args(arguments)
    if args.command == 'carry':
        known = fetched.fetched_file()
        for path in carry(args.folder, known if known.is_file() else None):
            print(path)
        if not known.is_file():
            print(f'No weights of {fetched.MODEL} at {known}: no job is measured. {fetched.REMEDY}.')
        return
    platform = jax.devices()[0].platform
    if platform == 'cpu' and not args.allow_cpu:
        parser.error(
            "Expected an accelerator, got platform='cpu'. Run it on a machine with a GPU and a JAX that "
            'finds it (jax.devices()); `carry` collects what such a machine lacks. '
            'To try it here: --allow-cpu.'
        )
    for line in lines(args, platform):
        print(json.dumps(line), flush=True)


def lines(args: argparse.Namespace, platform: str) -> Iterator[dict[str, Any]]:
    """All lines, in the order in which a card's minutes are best spent."""
    checkpoint = accelerator_jobs.checkpoint_of(args.folder)
    if 'step' in args.parts:
        size = BANDWIDTH_BYTES if platform != 'cpu' else 2**26
        bytes_per_second = args.bytes_per_second or bandwidth(size)
        for model in args.models:
            found = measure(
                model, random_weights(architectures.ARCHITECTURES[model]), contexts=args.contexts,
                prompt_tokens=args.prompt_tokens, new_tokens=args.new_tokens, rounds=args.rounds,
            )  # fmt: skip
            yield with_roofline(found, bytes_per_second, declared=args.bytes_per_second is not None)
    size = accelerator_jobs.SIZES[args.size]
    if checkpoint is None:
        if set(args.parts) - {'step'}:
            yield {'measures': 'nothing else', 'said': f'No weights of {fetched.MODEL}. {fetched.REMEDY}.'}
        return
    dtype = device.fastest_dtype(platform)
    if 'sampling' in args.parts:
        yield accelerator_jobs.sampling(checkpoint, dtype, size)
    if 'tuning' in args.parts:
        yield accelerator_jobs.tuning(checkpoint, dtype, size)
    if 'jobs' in args.parts:
        with tempfile.TemporaryDirectory() as folder:
            yield from accelerator_jobs.jobs(checkpoint, pathlib.Path(folder), size)


if __name__ == '__main__':
    main()
