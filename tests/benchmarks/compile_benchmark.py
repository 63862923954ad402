"""Benchmark of what compilers make of a decoding step for devices that are not there: one JSON line for each.

JAX compiles for devices that it only has a description of, on a machine with nothing but a processor. `make
compilers` installs the compilers into a folder of their own:

    export PYTHONPATH=.:.compilers
    .venv/bin/python -m tests.benchmarks.compile_benchmark gemma2-2b --targets h100 v5e

A step appends one token to every row. It computes all logits of the public row, which comes first, and those
of some columns of every row. Of a step's program a line says

* `kernels`: instructions of the loop's body that do work;
* `must_bytes`: weights, each read once, but for embeddings of layers, of which a token is a row; and the keys
  and values that each layer attends to;
* `bytes`: what all instructions read and write; a write in place counts as its slots;
* `memory_bytes`: the same without what a kernel leaves to the next one in the card's cache (arrays of less
  than half of it) or on a TPU's chip;
* `step_ms`: a crude model, for GPUs alone: the greater of bytes over bandwidth and 3 microseconds, kernel by
  kernel;
* `prompts_bytes`, with `--prompts`: weights, cache, and what reading the prompts needs beside them.

Held against an H200 this found structure (copies, concatenations, conversions, kernels) and not the speed
of a kernel. Nothing is tuned without a card, so compiling takes longer there.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ.setdefault('JAX_SKIP_CUDA_CONSTRAINTS_CHECK', '1')
os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies

from models.decoders.gemma import architectures
from models.decoders.transformer import decoder, forward
from models.decoders.transformer.weights import adapter_shapes


class Gpu(NamedTuple):
    """A card as its vendor's data sheet describes it."""

    cores: int
    bytes_per_second: float
    memory: int
    cache: int
    gigahertz: float
    major: int
    minor: int


GPUS = {
    'h100': Gpu(132, 3.35232e12, 84942979072, 52428800, 1.98, 9, 0),
    'h200': Gpu(132, 4.8e12, 150754820096, 62914560, 1.98, 9, 0),
    'a100': Gpu(108, 2.039e12, 85899345920, 41943040, 1.41, 8, 0),
    'l4': Gpu(58, 3.0e11, 24152899584, 50331648, 2.04, 8, 9),
}
# Topologies as libtpu names them, the smallest of each.
TPUS = {'v5e': 'v5e:2x2', 'v5p': 'v5p:2x2x1', 'v6e': 'v6e:2x2'}
_DESCRIPTION = """gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: {cores} fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {bytes_per_second:.0f} l2_cache_size: {cache} clock_rate_ghz: {gigahertz}
  device_memory_size: {memory} shared_memory_per_block_optin: 166912
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{name}"
"""
_WIDTHS = {
    'pred': 1, 's8': 1, 'u8': 1, 'bf16': 2, 'f16': 2, 's16': 2, 'u16': 2, 's32': 4, 'u32': 4, 'f32': 4,
    's64': 8, 'u64': 8, 'f64': 8,
}  # fmt: skip
# Instructions that move nothing.
_FREE = {
    'parameter',
    'tuple',
    'get-tuple-element',
    'constant',
    'bitcast',
    'after-all',
    'iota',
    'partition-id',
}


class Shape(NamedTuple):
    """The public numbers of a step."""

    rows: int = 256
    prompt_tokens: int = 400
    new_tokens: int = 96
    columns: int = 1024


class Instruction(NamedTuple):
    """An instruction of a compiled program that does work; bytes of what it writes, reads and writes.

    Attributes:
        of_memory: Bytes read and written without what stays in the device's cache.
    """

    name: str
    opcode: str
    written: int
    moved: int
    of_memory: int


def device(target: str) -> Any:
    """The first device of a card, or of a slice of TPUs, that need not be there."""
    if target in GPUS:
        text = _DESCRIPTION.format(name=target, **GPUS[target]._asdict())
        found = topologies.get_topology_desc(
            platform='cuda', topology_name=target, topology='1x1x1', target_config=text
        )
    else:
        found = topologies.get_topology_desc(platform='tpu', topology_name=TPUS[target])
    return found.devices[0]


class Placed:
    """Makes descriptions of arrays that lie on a device."""

    def __init__(self, target: str) -> None:
        mesh = jax.sharding.Mesh(np.array([device(target)]), ('rows',))
        self._sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def array(self, shape: Sequence[int], dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
        """One array."""
        return jax.ShapeDtypeStruct(tuple(shape), dtype, sharding=self._sharding)

    def tree(self, tree: Any) -> Any:
        """The arrays of a tree."""
        return jax.tree.map(lambda leaf: self.array(leaf.shape, leaf.dtype), tree)


def step_program(model: str, target: str, shape: Shape) -> tuple[Any, int]:
    """The lowered loop of decoding steps, and the bytes that it must read in one."""
    a, placed = architectures.ARCHITECTURES[model], Placed(target)
    weights = jax.tree.map(lambda leaf: placed.array(leaf.shape), adapter_shapes(a, None))
    tokens, lengths = (
        placed.array((shape.rows, shape.prompt_tokens), jnp.int32),
        placed.array((shape.rows,), jnp.int32),
    )
    _, cache = jax.eval_shape(
        lambda w, t, n: forward.read_prompts(a, w, t, n, example_slots=shape.new_tokens, piece_tokens=2**14),
        weights, tokens, lengths,
    )  # fmt: skip
    cache = placed.tree(cache)

    def steps(weights: Any, cache: Any, token: jax.Array, columns: jax.Array) -> Any:
        def one(carry: Any) -> Any:
            at, token, cache = carry
            states, cache = forward.append(
                a, weights, cache, token, jnp.int32(1), at, example_slots=shape.new_tokens
            )
            # The public row, which comes first, predicts all tokens.
            public = forward.logits(a, weights, states[:1])[0]
            votes = forward.logits(a, weights, states, columns).mean(0) + public[columns]
            return at + 1, columns[jnp.argmax(votes)].astype(jnp.int32)[None], cache

        return jax.lax.while_loop(
            lambda carry: carry[0] < shape.new_tokens, one, (jnp.int32(0), token, cache)
        )

    lowered = jax.jit(steps, donate_argnums=1).lower(
        weights, cache, placed.array((1,), jnp.int32), placed.array((shape.columns,), jnp.int32)
    )
    read = weights
    if weights.per_layer is not None:
        read = weights._replace(per_layer=weights.per_layer._replace(per_layer_embedding=None))
    # Some layers read an earlier one's.
    kept = [cache.layers[layer.reads] for layer in a.layers]
    return lowered, sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves((read, kept)))


def prompts_memory(model: str, target: str, shape: Shape) -> dict[str, float]:
    """Bytes of weights, cache and what reading the prompts needs beside them, and seconds of compiling."""
    a, placed = architectures.ARCHITECTURES[model], Placed(target)
    weights = jax.tree.map(lambda leaf: placed.array(leaf.shape), adapter_shapes(a, None))

    def read(weights: Any, tokens: jax.Array, lengths: jax.Array) -> Any:
        pieces = decoder.piece_tokens(a, is_processor=False)
        return forward.read_prompts(
            a, weights, tokens, lengths, example_slots=shape.new_tokens, piece_tokens=pieces
        )

    lowered = jax.jit(read).lower(
        weights,
        placed.array((shape.rows, shape.prompt_tokens), jnp.int32),
        placed.array((shape.rows,), jnp.int32),
    )
    program, seconds = compiled(lowered)
    memory = program.memory_analysis()
    parts = (memory.argument_size_in_bytes, memory.output_size_in_bytes, memory.temp_size_in_bytes)
    return {'prompts_bytes': sum(parts), 'prompts_compile_seconds': round(seconds, 1)}


def _arrays(shape: str) -> list[tuple[int, bool]]:
    """Bytes of each array of a shape, and whether it is in the device's memory; `S(1)` is on a TPU's chip."""
    return [
        (_WIDTHS[kind] * math.prod(int(size) for size in sizes.split(',') if size), 'S(1)' not in layout)
        for kind, sizes, layout in re.findall(r'\b([a-z]+\d*)\[([\d,]*)\](\{[^}]*\})?', shape)
        if kind in _WIDTHS
    ]


def _bytes(shape: str) -> int:
    return sum(size for size, in_memory in _arrays(shape) if in_memory)


def _computations(text: str) -> dict[str, list[str]]:
    parts: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        head = re.match(r'^(?:ENTRY )?%?([\w.\-]+) .*\{\s*$', line)
        if head and not line.startswith(' '):
            name = head.group(1)
            parts[name] = []
        elif name is not None and line.startswith('}'):
            name = None
        elif name is not None:
            parts[name].append(line.strip())
    return parts


def _called(line: str, parts: dict[str, list[str]]) -> list[str]:
    """The instructions of what an instruction calls."""
    called = re.search(r'calls=%?([\w.\-]+)', line)
    return parts.get(called.group(1), []) if called else []


def _writes_slots(opcode: str, line: str, parts: dict[str, list[str]]) -> bool:
    """True for an update in place: what is moved is the slots."""
    if opcode in ('dynamic-update-slice', 'scatter'):
        return True
    return any(re.search(r' (dynamic-update-slice|scatter)\(', inner) for inner in _called(line, parts))


def _reads_rows(opcode: str, line: str, parts: dict[str, list[str]]) -> bool:
    """True if rows of a table are read, of which no more is read than is written or added up."""
    inner = [f' {opcode}(', *_called(line, parts)]
    return any(re.search(r' (gather|dynamic-slice)\(', one) for one in inner)


def body(text: str, cache: int = 0) -> Iterator[Instruction]:
    """The instructions of the largest loop body of a compiled program, with what each moves.

    Args:
        text: The program.
        cache: Bytes of the device's cache.
    """
    parts = _computations(text)
    bodies = set(re.findall(r'body=%?([\w.\-]+)', text))
    lines = max((parts[name] for name in bodies if name in parts), key=len)
    shapes: dict[str, str] = {}
    made: set[str] = set()
    for line in lines:
        found = re.match(r'(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$', line)
        if not found:
            continue
        name, shape, opcode, rest = found.groups()
        shapes[name] = shape
        names = re.findall(r'%([\w.\-]+)', rest.split('), ')[0])
        if opcode not in ('get-tuple-element', 'parameter') and (opcode != 'bitcast' or names[0] in made):
            made.add(name)
        if opcode in _FREE or opcode.endswith(('-done', '-update')):
            continue
        if opcode.endswith('-start'):
            # A copy to the chip or from it: its ends are in its shape, and the smaller one is what moves.
            ends = [end for end in _arrays(shape) if end[0] > 8]
            least = min((size for size, _ in ends), default=0)
            into_memory = bool(ends) and ends[-1 if opcode == 'slice-start' else 0][1]
            moved = 2 * least if all(in_memory for _, in_memory in ends) else least
            yield Instruction(name, opcode, least if into_memory else 0, moved, moved)
            continue
        written, read = _bytes(shape), [_bytes(shapes.get(of, '')) for of in names]
        if _writes_slots(opcode, line, parts):
            slots = min((size for size in read if size * 4 < written and size > 8), default=0)
            yield Instruction(name, opcode, slots, 2 * slots, slots)
            continue
        if _reads_rows(opcode, line, parts):
            most = 8 * sum(size for size, _ in _arrays(shape))
            read = [min(size, most) for size in read]
        stays = [size for of, size in zip([name, *names], [written, *read], strict=True) if of in made]
        kept = sum(size for size in stays if size < cache / 2)
        moved = written + sum(read)
        yield Instruction(name, opcode, written, moved, moved - kept)


def compiled(lowered: Any) -> tuple[Any, float]:
    """A program, and the seconds that it took to compile."""
    began = time.monotonic()
    program = lowered.compile()
    return program, time.monotonic() - began


def measured(model: str, target: str, shape: Shape, save: pathlib.Path | None = None) -> dict[str, Any]:
    """The line of a model and a device."""
    lowered, must = step_program(model, target, shape)
    program, seconds = compiled(lowered)
    text: str = program.as_text()
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        (save / f'{model}.{target}.txt').write_text(text)
    instructions = list(body(text, GPUS[target].cache if target in GPUS else 0))
    moved, of_memory = (sum(one[place] for one in instructions) for place in (3, 4))
    kinds: collections.Counter[str] = collections.Counter()
    for one in instructions:
        kinds[re.sub(r'[.\d_]+$', '', one.name)] += one.moved
    line = {
        'model': model,
        'target': target,
        **shape._asdict(),
        'compile_seconds': round(seconds, 1),
        'kernels': len(instructions),
        'must_bytes': must,
        'bytes_over_must': round(moved / must, 3),
        'memory_bytes_over_must': round(of_memory / must, 3),
        'copies': sum('copy' in one.name or 'copy' in one.opcode for one in instructions),
        'concatenates': sum('concatenate' in one.name for one in instructions),
        'largest_written': max(one.written for one in instructions),
        'temporary_bytes': program.memory_analysis().temp_size_in_bytes,
    }
    if target in GPUS:
        rate = GPUS[target].bytes_per_second
        line['step_ms'] = round(sum(max(1000 * one.moved / rate, 0.003) for one in instructions), 3)
        line['roofline_ms'] = round(1000 * must / rate, 3)
    return line | {'largest': {name: round(size / must, 3) for name, size in kinds.most_common(8)}}


def main() -> None:
    """Compiles for each target and prints its line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('models', nargs='+', choices=architectures.ARCHITECTURES)
    parser.add_argument('--targets', nargs='+', choices=[*GPUS, *TPUS], default=[*GPUS, *TPUS])
    parser.add_argument('--save', type=pathlib.Path, help='folder for the compiled programs as text')
    parser.add_argument('--prompts', action='store_true', help='compile the reading of the prompts too')
    for name, value in Shape()._asdict().items():
        parser.add_argument(f'--{name.replace("_", "-")}', type=int, default=value)
    args = parser.parse_args()
    shape = Shape(*(getattr(args, name) for name in Shape._fields))
    for model in args.models:
        for target in args.targets:
            line = measured(model, target, shape, args.save)
            if args.prompts:
                line |= prompts_memory(model, target, shape)
            print(json.dumps(line), flush=True)


if __name__ == '__main__':
    main()
