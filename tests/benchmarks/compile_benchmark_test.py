"""A decoding step as it is compiled for an H100 and a TPU v5e, which are not here."""

import functools
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from models.decoders.gemma.architectures import ARCHITECTURES
from tests.benchmarks import compile_benchmark as benchmark

pytestmark = [pytest.mark.run, pytest.mark.heavy]

ROOT = pathlib.Path(__file__).parents[2]
COMPILERS = ROOT / '.compilers'
ROWS = 64
# A loop whose body copies a cache of 64 KiB, looks a row up in a table, and writes a slot in place.
PROGRAM = """HloModule loop

%fused_look_up (table: f32[1024,16], at: s32[]) -> f32[1,16] {
  %table = f32[1024,16]{1,0} parameter(0)
  %at = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %row = f32[1,16]{1,0} dynamic-slice(%table, %at, %zero), dynamic_slice_sizes={1,16}
}

%fused_write (cache: f32[1024,16], row: f32[1,16], at: s32[]) -> f32[1024,16] {
  %cache = f32[1024,16]{1,0} parameter(0)
  %row = f32[1,16]{1,0} parameter(1)
  %at = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %written = f32[1024,16]{1,0} dynamic-update-slice(%cache, %row, %at, %zero)
}

%body (carry: (s32[], f32[1024,16], f32[1024,16])) -> (s32[], f32[1024,16], f32[1024,16]) {
  %carry = (s32[], f32[1024,16]{1,0}, f32[1024,16]{1,0}) parameter(0)
  %at = s32[] get-tuple-element(%carry), index=0
  %cache = f32[1024,16]{1,0} get-tuple-element(%carry), index=1
  %table = f32[1024,16]{1,0} get-tuple-element(%carry), index=2
  %copy.1 = f32[1024,16]{1,0} copy(%cache)
  %look_up = f32[1,16]{1,0} fusion(%table, %at), kind=kLoop, calls=%fused_look_up
  %write = f32[1024,16]{1,0} fusion(%copy.1, %look_up, %at), kind=kLoop, calls=%fused_write
  ROOT %next = (s32[], f32[1024,16]{1,0}, f32[1024,16]{1,0}) tuple(%at, %write, %table)
}

ENTRY %main (start: (s32[], f32[1024,16], f32[1024,16])) -> (s32[], f32[1024,16], f32[1024,16]) {
  %start = (s32[], f32[1024,16]{1,0}, f32[1024,16]{1,0}) parameter(0)
  ROOT %loop = (s32[], f32[1024,16]{1,0}, f32[1024,16]{1,0}) while(%start), condition=%until, body=%body
}
"""


def test_copies_are_found_and_writes_in_place_cost_their_slots() -> None:
    copied, looked_up, written = benchmark.body(PROGRAM)
    assert (copied.opcode, copied.written, copied.moved) == ('copy', 2**16, 2**17)
    # A row of 64 bytes, and less than eight of the table.
    assert looked_up.written == 64 and looked_up.moved <= 64 * 9 + 4
    assert (written.written, written.moved) == (64, 128)
    # The copy stays in a cache of twice its size.
    assert next(benchmark.body(PROGRAM, cache=2**17 + 2)).of_memory == 2**16


@functools.cache
def compiled(model: str) -> dict[str, dict[str, Any]]:
    """The lines of a model by their targets."""
    if not (COMPILERS / '.ready').is_file():
        pytest.skip('No compilers of JAX for accelerators here: make compilers.')
    targets = ('h100',) if model == 'gemma3-270m' else ('h100', 'v5e')
    done = subprocess.run(
        [sys.executable, '-m', benchmark.__name__, model, '--targets', *targets, '--rows', str(ROWS)],
        cwd=ROOT, env=os.environ | {'PYTHONPATH': f'{ROOT}:{COMPILERS}'}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = {line['target']: line for line in map(json.loads, done.stdout.splitlines())}
    assert lines.keys() == set(targets)
    return lines


@pytest.mark.parametrize(
    ('model', 'target'),
    [('gemma3-270m', 'h100'), ('gemma2-2b', 'h100'), ('gemma2-2b', 'v5e'), ('gemma4-e2b', 'h100')],
)
def test_a_step_writes_nothing_of_the_size_of_its_cache(model: str, target: str) -> None:
    """Nothing of the cache is concatenated, copied, converted, padded or transposed.

    With the smallest model a TPU's compiler takes some layers' caches to the chip, and back whole; so it
    does with caches that several layers read.
    """
    line, a = compiled(model)[target], ARCHITECTURES[model]
    keys = ROWS * (line['prompt_tokens'] + line['new_tokens']) * a.num_kv_heads * a.head_dim * 2
    assert line['largest_written'] < keys / 2
    assert line['memory_bytes_over_must'] <= 1.1


@pytest.mark.parametrize('target', ['h100', 'v5e'])
def test_keys_that_layers_share_are_read_once_by_each(target: str) -> None:
    assert compiled('gemma4-e2b')[target]['memory_bytes_over_must'] <= 1.1


@pytest.mark.parametrize('model', ['gemma3-270m', 'gemma2-2b'])
def test_a_step_has_fifteen_kernels_for_each_layer(model: str) -> None:
    line = compiled(model)['h100']
    assert line['kernels'] <= 15 * ARCHITECTURES[model].num_layers + 20
    assert line['copies'] == 0
