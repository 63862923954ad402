"""Benchmark of a decoding step on an accelerator: milliseconds, and its share of the memory's roofline.

Decodes as a run does (`loop.decode_stream`: difference aggregate on K columns, the public prompt's
row, exact sampling) with bfloat16 weights, and prints one JSON line for each model. It needs a machine
with an accelerator that JAX finds, and of Python's packages JAX, safetensors and etils alone: no gemma,
no TensorFlow, no Beam, no network.

    python -m tests.benchmarks.accelerator_benchmark carry gpu           # where everything is installed
    PYTHONPATH=.:$(echo gpu/*.whl | tr ' ' :) \\
        python -m tests.benchmarks.accelerator_benchmark measure --parameters gpu/gemma3-270m.safetensors

`carry` collects what such a machine may lack into a folder: wheels of pure Python, and the weights of
Gemma 3 270M where they were fetched (`make gemma`), under Google's terms. Models without `--parameters`
have random weights in their dimensions: a step takes as long.

`roofline_ms` is the time in which the device could at best read all weights and the whole cache once,
at the bandwidth that the vendor declares (`--bytes-per-second`), or that a pass over an array reaches.
`ms_per_step` is the loop's time over all new tokens less its time over half of them, divided by the
tokens between; the figures are medians. Not run on a GPU yet.
"""

import argparse
import importlib.metadata
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models import fetched
from models.constraints import Vocabulary
from models.decoders import decoder as decoder_lib
from models.decoders import family
from models.decoders.gemma import architectures
from models.decoders.transformer.architecture import Architecture
from models.decoders.transformer.decoder import TransformerDecoder
from models.decoders.transformer.weights import Weights, adapter_shapes
from models.generate.loop import decode_stream
from models.generate.rows import PublicRows, prefill_public
from models.privacy import candidates, randomness, sampling
from models.privacy.params import MechanismParams
from models.stop_rule import StopRule

MODELS = ('gemma3-270m', 'gemma2-2b', 'gemma3-4b')
COLUMNS = 1024
# Pure Python, and not part of JAX.
CARRIED = ('etils',)
# The array that tells the bandwidth: far larger than any cache.
BANDWIDTH_BYTES = 2**32
DTYPE = 'bfloat16'


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


def read_weights(architecture: Architecture, path: pathlib.Path) -> Weights:
    """The weights that `carry` wrote of a checkpoint.

    Raises:
        ValueError: They are another model's.
    """
    from safetensors.flax import load_file

    flat = load_file(path)
    shapes = named(adapter_shapes(architecture, None))
    if {name: leaf.shape for name, leaf in flat.items()} != {name: leaf.shape for name, leaf in shapes}:
        raise ValueError(
            f'Expected the weights of the model, got others in path={str(path)!r}. '
            'Write them with `carry`, and give that model first in --models.'
        )
    tree = jax.tree.structure(adapter_shapes(architecture, None))
    weights: Weights = jax.tree.unflatten(tree, [flat[name] for name, _ in shapes])
    return weights


def named(weights: Any) -> list[tuple[str, Any]]:
    """The leaves of weights in order, each with its name, such as 'layers.0.down'."""
    leaves = jax.tree_util.tree_leaves_with_path(weights)
    return [(jax.tree_util.keystr(path, simple=True, separator='.'), leaf) for path, leaf in leaves]


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
    for number in range(rounds + 1):
        found = (_seconds(prefill), _seconds(loop, half), _seconds(loop, new_tokens))
        if number:  # the first round compiles
            for kind, seconds in zip(times, found, strict=True):
                times[kind].append(seconds)
    median = {name: statistics.median(values) for name, values in times.items()}
    weight_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(decoder.weights))
    cache_bytes = rows * shapes.cache_length * architecture.cache_bytes_per_token(2)
    return {
        'model': model,
        'ms_per_step': 1000 * (median['whole'] - median['half']) / (new_tokens - half),
        'prefill_seconds': median['prefill'],
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
    """Writes wheels, and parameters of a checkpoint of `MODELS[0]`, into a folder; needs everything."""
    folder.mkdir(parents=True, exist_ok=True)
    wheels = [f'{name}=={importlib.metadata.version(name)}' for name in CARRIED]
    subprocess.run(
        [sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', '--only-binary=:all:',
         '--dest', str(folder), *wheels],
        check=True,
    )  # fmt: skip
    if checkpoint is not None:
        write_weights(MODELS[0], checkpoint, folder / f'{MODELS[0]}.safetensors')
    return sorted(path for path in folder.iterdir() if path.suffix in ('.whl', '.safetensors'))


def write_weights(model: str, checkpoint: pathlib.Path, path: pathlib.Path) -> None:
    """Writes a checkpoint's weights as `read_weights` takes them."""
    from safetensors.flax import save_file

    from models.decoders.gemma import checkpoints
    from models.decoders.transformer.checkpoint import Place

    weights = checkpoints.load_weights(architectures.ARCHITECTURES[model], checkpoint, Place(DTYPE))
    save_file(dict(named(weights)), path)


# --- The command line ------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures each model and prints its line, or carries."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    commands = parser.add_subparsers(dest='command', required=True)
    taken = commands.add_parser('carry', help='collect what a machine without a network lacks')
    taken.add_argument('folder', type=pathlib.Path)
    taken.add_argument(
        '--checkpoint', type=pathlib.Path, help='of Gemma 3 270M; default: what `make gemma` fetched, if so'
    )
    measured = commands.add_parser('measure', help='print a JSON line for each model')
    measured.add_argument('--models', nargs='+', choices=architectures.ARCHITECTURES, default=MODELS)
    measured.add_argument('--parameters', type=pathlib.Path, help='of the first model; default: random')
    measured.add_argument('--contexts', type=int, default=255)
    measured.add_argument('--prompt-tokens', type=int, default=400)
    measured.add_argument('--new-tokens', type=int, default=96)
    measured.add_argument('--rounds', type=int, default=5)
    measured.add_argument('--bytes-per-second', type=float, help="the memory's, as its vendor declares it")
    measured.add_argument('--allow-cpu', action='store_true', help='to try it where no accelerator is')
    args = parser.parse_args(arguments)
    if args.command == 'carry':
        known = fetched.fetched_file()
        checkpoint = args.checkpoint or (known if known.is_file() else None)
        for path in carry(args.folder, checkpoint):
            print(path)
        if checkpoint is None:
            print(f'No weights of {fetched.MODEL} at {known}: they will be random. {fetched.REMEDY}.')
        return
    platform = jax.devices()[0].platform
    if platform == 'cpu' and not args.allow_cpu:
        parser.error(
            "Expected an accelerator, got platform='cpu'. Run it on a machine with a GPU and a JAX that "
            'finds it (jax.devices()); `carry` collects what such a machine lacks. '
            'To try it here: --allow-cpu.'
        )
    size = BANDWIDTH_BYTES if platform != 'cpu' else 2**26
    bytes_per_second = args.bytes_per_second or bandwidth(size)
    for number, model in enumerate(args.models):
        architecture, source = architectures.ARCHITECTURES[model], 'random'
        if args.parameters is not None and number == 0:
            weights, source = read_weights(architecture, args.parameters), args.parameters.name
        else:
            weights = random_weights(architecture)
        found = measure(
            model, weights, contexts=args.contexts, prompt_tokens=args.prompt_tokens,
            new_tokens=args.new_tokens, rounds=args.rounds,
        )  # fmt: skip
        line = with_roofline(found, bytes_per_second, declared=args.bytes_per_second is not None)
        print(json.dumps(line | {'weights': source}), flush=True)


if __name__ == '__main__':
    main()
