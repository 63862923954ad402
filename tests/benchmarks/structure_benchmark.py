"""Benchmark of structured records: seconds of a record, forced tokens in shared steps or each in its own.

    python -m tests.benchmarks.structure_benchmark --contexts 16 --rounds 3

Invented visits to a clinic, JSON of twelve fields under launch/demo/clinic_visit.json, are decoded by the
job's own loop with the votes of launch/demo/gemma.toml and one micro-batch. `shared` is the loop as a job
runs it: tokens that the schema forces go through the model with the chosen one before them, up to
`--step-tokens` in a step. `single` is the same loop with a step of the layers for each token. Prompts
are read before, so the times are the loop's alone. Rounds are interleaved, in one process, and the
figures are medians; `processor_seconds` are those of the process, which other work on the machine
disturbs less. Rounding differs between the two sides and may turn a token, more so in bfloat16;
then `same_tokens` is false and the records differ.
Prints one JSON line for each type.
"""

import argparse
import json
import os
import statistics
import time
from typing import Any

import jax
import numpy as np

from launch.demo import clinic_records
from models import records
from models.decoders import decoder, family
from models.generate.batch import BatchGenerator
from models.generate.examples import split_examples
from models.generate.stream import TokenStream
from models.grammars.structure import Structure
from models.privacy import mechanism
from models.privacy.params import MechanismParams
from models.privacy.randomness import RunKey
from models.prompt_templates import PRESETS
from models.prompts import PromptWriter
from tests.benchmarks.decoding_benchmark import Prefilled


def _params(contexts: int, tokens: int, most: int) -> MechanismParams:
    """Of launch/demo/gemma.toml, with a budget that lasts: every context votes to the end."""
    return MechanismParams(
        aggregate='difference', accounting='individual', batch_size=contexts, clip_bound=2.2, shift_bound=0.4,
        temperature=0.8, context_budget=1e6, omega=8.0, public_top_k=1024, max_batch_tokens=tokens,
        max_example_tokens=most,
    )  # fmt: skip


def _generator(
    model: str, dtype: str, params: MechanismParams, *, contexts: int, prompt_tokens: int, step_tokens: int
) -> BatchGenerator:
    files, of = family.files_of(model), family.family_of(model)
    text = clinic_records.SCHEMA_FILE.read_text(encoding='utf-8')
    shapes = decoder.Shapes(
        max_prompt_tokens=prompt_tokens,
        max_example_tokens=params.max_example_tokens,
        micro_batch_size=contexts,
        rows_multiple=family.ROWS_MULTIPLE,
        step_tokens=step_tokens,
        columns=mechanism.columns_of_every_row(params),
    )
    writer = PromptWriter(
        template=PRESETS['pretrained-json'],
        tokenizer=of.load_tokenizer(model, files.tokenizer),
        max_prompt_tokens=prompt_tokens,
        schema=text,
        structure=Structure(json_schema=text),
    )
    inner = of.load_decoder(model, files.checkpoint, shapes=shapes, dtype=dtype)
    return BatchGenerator(decoder=Prefilled(inner), writer=writer, params=params, run_id='benchmark')


def measure(
    *,
    model: str,
    dtype: str,
    contexts: int,
    prompt_tokens: int,
    new_tokens: int,
    step_tokens: int,
    rounds: int,
) -> dict[str, Any]:
    """Medians of both sides, compilation left out."""
    params = _params(contexts, new_tokens, 160)
    sides = {
        name: _generator(
            model, dtype, params, contexts=contexts, prompt_tokens=prompt_tokens, step_tokens=most
        )
        for name, most in (('shared', step_tokens), ('single', 1))
    }
    batch = records.Batch(
        batch_id=records.BatchId(group=0, index=0),
        label=None,
        contexts=tuple(
            records.Context(context_hash=bytes([number]) * 16, texts=(row['text'],))
            for number, row in enumerate(clinic_records.clinic_records(contexts))
        ),
    )
    streams: dict[str, TokenStream] = {}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for side in sides.values():
        assert isinstance(side.decoder, Prefilled)
        side.decoder.run_prefill(side.writer.private_prompts(None, batch.contexts))
    for _ in range(rounds + 1):
        for name, side in sides.items():
            draws = side.draws(batch, RunKey(bytes(32)))
            jax.block_until_ready(side.public_rows(None))
            begun = time.perf_counter(), time.process_time()
            streams[name] = side.decode(batch, draws)
            seconds[name].append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    streams_of = [streams[name] for name in sides]
    examples = split_examples(
        streams_of[0], stop_rule=sides['shared'].stop_rule, max_example_tokens=params.max_example_tokens
    )
    # A cap cuts the last one.
    whole = [example for example in examples if not example.truncated]
    if not whole:
        raise RuntimeError(f'Expected a whole record, got none in new_tokens={new_tokens}. Decode more.')
    tokens = sum(example.forced_tokens + example.private_tokens + example.public_tokens for example in whole)
    # The first round compiles.
    wall, processor = (
        {name: statistics.median(times[place] for times in seconds[name][1:]) for name in sides}
        for place in range(2)
    )
    records_decoded = new_tokens / (tokens / len(whole))
    return {
        'model': model,
        'dtype': dtype,
        'step_tokens': step_tokens,
        **{f'{name}_seconds_per_record': round(wall[name] / records_decoded, 3) for name in sides},
        **{
            f'{name}_processor_seconds_per_record': round(processor[name] / records_decoded, 3)
            for name in sides
        },
        'ratio': round(wall['shared'] / wall['single'], 3),
        'processor_ratio': round(processor['shared'] / processor['single'], 3),
        **{
            f'{name}_compiling_processor_seconds': round(seconds[name][0][1] - processor[name], 1)
            for name in sides
        },
        'tokens_per_record': round(tokens / len(whole), 1),
        'forced_share': round(1 - float(streams_of[0].is_chosen.mean()), 3),
        'same_tokens': bool(np.array_equal(*(stream.tokens for stream in streams_of))),
        'records': len(whole),
        'contexts': contexts,
        'prompt_tokens': prompt_tokens,
        'cores': os.cpu_count(),
        'rounds': rounds,
    }


def main() -> None:
    """Measures and prints the lines."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--model', default='gemma3-270m')
    parser.add_argument('--dtypes', nargs='+', default=['float32', 'bfloat16'])
    parser.add_argument('--contexts', type=int, default=16)
    parser.add_argument('--prompt-tokens', type=int, default=640)
    parser.add_argument('--new-tokens', type=int, default=400)
    parser.add_argument('--step-tokens', type=int, default=6)
    parser.add_argument('--rounds', type=int, default=3)
    args = parser.parse_args()
    for dtype in args.dtypes:
        found = measure(
            model=args.model,
            dtype=dtype,
            contexts=args.contexts,
            prompt_tokens=args.prompt_tokens,
            new_tokens=args.new_tokens,
            step_tokens=args.step_tokens,
            rounds=args.rounds,
        )
        print(json.dumps(found), flush=True)


if __name__ == '__main__':
    main()
