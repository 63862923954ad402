"""Benchmark of sampling texts from public prompts, in rows that are filled again.

Prints one JSON line. Run from the repository root:

    python -m tests.benchmarks.sampling_benchmark --model gemma3-270m
    python -m tests.benchmarks.sampling_benchmark --model gemma3-270m --min-example-tokens 47 --examples 2
    python -m tests.benchmarks.sampling_benchmark --model gemma3-270m --rows 16 --texts 16 \\
        --max-example-tokens 48 --rounds 1 --json-schema launch/demo/clinic_visit.json

Both sample as many texts of four labels of news, with the same settings. `ours` is
`models.sampling.decoder_source.DecoderSource`; with `--examples` its prompts differ, each with so many texts
of a round before. `fine_tuning` is `models.finetuning.sample.TextSampler` with an adapter of zeros: the same
sampler over the whole vocabulary. Rounds alternate, after one that compiles; medians of seconds,
and of the processors' seconds, which a busy machine touches less. With `--json-schema` texts have that
structure, and `mask` says what masking the logits of all rows takes at a token, with the table of `Tabulated`
and with a walk, beside a whole step with each: milliseconds of a processor, in random states that leave a
choice. `no mask` is a pass over the same logits that masks nothing, and is in both; `--texts 0` measures the
masks alone. With `--llama-python` a step of llama.cpp on as many rows follows, as in `decoding_benchmark`,
without sampling.

Aim: 3 texts of 48 tokens a second with Gemma 3 270M on two cores.
"""

import argparse
import functools
import json
import pathlib
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from models.constraints import Tabulated
from models.decoders import device, family
from models.finetuning.sample import PlannedTexts, TextSampler
from models.finetuning.settings import TuningSettings
from models.grammars.structure import Structure
from models.privacy.gradients import TuningParams
from models.privacy.randomness import RunKey
from models.prompt_templates import PRESETS
from models.records import BatchId
from models.sampling import segment
from models.sampling.decoder_source import DecoderSource
from models.sampling.settings import SamplerSettings
from models.sampling.source import Request

LABELS = ('World', 'Sports', 'Business', 'Science and technology')
# Someone's own words, as a round before might have given them.
NEWS = (
    'Oil prices climbed to a record high on Friday after a storm shut refineries along the coast.',
    'The striker scored twice as the home side came from behind to win 3-2 on Saturday.',
    'A small company from Oslo says that its new battery lasts ten times as long as others.',
    'Talks on the border ended without a result, and both sides blamed each other for it.',
)
KEY = RunKey(bytes(32))
# Steps of a program that measures one.
_STEPS = 8


def main() -> None:
    """Runs both, and prints the line."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').splitlines()[0])
    parser.add_argument('--model', default='bundled')
    parser.add_argument('--dtype', choices=('float32', 'bfloat16'), default=device.fastest_dtype())
    parser.add_argument('--rows', type=int, default=64)
    parser.add_argument('--texts', type=int, default=128)
    parser.add_argument('--examples', type=int, default=0)
    parser.add_argument('--max-prompt-tokens', type=int, default=64)
    parser.add_argument('--max-example-tokens', type=int, default=48)
    parser.add_argument('--min-example-tokens', type=int, default=0)
    parser.add_argument('--rounds', type=int, default=2)
    parser.add_argument('--json-schema', type=pathlib.Path, help='what every text has to be')
    parser.add_argument('--llama-python', type=pathlib.Path)
    args = parser.parse_args()
    files = family.files_of(args.model)
    of_both: dict[str, Any] = {
        'model': args.model, 'checkpoint': files.checkpoint, 'tokenizer': files.tokenizer,
        'dtype': args.dtype, 'template': PRESETS['document'], 'max_prompt_tokens': args.max_prompt_tokens,
        'max_example_tokens': args.max_example_tokens, 'label_name': 'Topic', 'text_name': 'News',
        'corpus_description': 'Short news texts, one after another.', 'top_p': 0.95,
        'min_example_tokens': args.min_example_tokens,
    }  # fmt: skip
    if args.json_schema is not None:
        of_both['structure'] = Structure(json_schema=args.json_schema.read_text())
    results = _results(args, of_both)
    if args.llama_python is not None:
        results['llama_cpp'] = _llama_cpp(args, files.checkpoint)
    print(
        json.dumps(
            {name: str(of) if isinstance(of, pathlib.Path) else of for name, of in vars(args).items()}
            | results
        )
    )


def _results(args: argparse.Namespace, of_both: dict[str, Any]) -> dict[str, Any]:
    own = family.family_of(args.model)
    source = DecoderSource(SamplerSettings(rows=args.rows, **of_both))
    params = TuningParams(
        units=64.0, expected_batch_size=8, tuning_steps=1, clip_norm=1.0, noise_multiplier=1.0
    )
    settings = TuningSettings(
        run_id='benchmark', params=params, labels=LABELS, micro_batch_size=args.rows, lora_rank=1, **of_both
    )  # fmt: skip
    adapter = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), own.adapter_shapes(args.model, 1))
    sampler = TextSampler(settings, adapter)
    batches = -(-args.texts // args.rows)
    requests = [
        Request(
            name=f'{number:06d}',
            label=LABELS[number % len(LABELS)],
            examples=tuple(NEWS[(number + place) % len(NEWS)] for place in range(args.examples)),
        )
        for number in range(args.texts)
    ]

    def ours() -> list[int]:
        return [text.tokens for text in source.sample(requests, KEY) if text is not None]

    def fine_tuning() -> list[int]:
        planned = [
            PlannedTexts(BatchId(group=0, index=index), LABELS[index % len(LABELS)], args.rows)
            for index in range(batches)
        ]
        return [text.tokens for of_batch in sampler.sample(planned, KEY) for text in of_batch]

    sides = (('ours', ours), ('fine_tuning', fine_tuning))
    found: dict[str, list[dict[str, float]]] = {name: [] for name, _ in sides}
    for number in range(args.rounds + 1):
        for name, sample in sides:
            figures = _measured(sample)
            if number:
                found[name].append(figures)
    results: dict[str, Any] = {
        name: {key: statistics.median(of[key] for of in rounds) for key in rounds[0]}
        for name, rounds in found.items()
    }
    if args.json_schema is not None:
        results['mask'] = _masks(sampler._source, args.rows)
    return results


def _masks(source: DecoderSource, rows: int, rounds: int = 7) -> dict[str, Any]:
    """Milliseconds of a processor for the masks of all rows, and for a whole step with each kind of mask."""
    table = source._all.constraint
    assert isinstance(table, Tabulated)
    has_choice = np.flatnonzero(np.asarray(table.of.forced_tokens) < 0)
    rng, weights = np.random.default_rng(0), source._decoder.weights
    chosen = [jnp.asarray(rng.choice(has_choice, rows), jnp.int32) for _ in range(rounds + 1)]
    (read,) = source._read([(LABELS[0], ())])
    logits = jnp.repeat(source._decoder.logits(weights, read.states), rows, axis=0)
    begun = source._empty(read)._replace(
        is_going=jnp.ones(rows, bool), states=jnp.repeat(read.states, rows, axis=0)
    )

    @jax.jit
    def steps(weights: Any, begun: segment.Rows, tokens: segment.Tokens) -> segment.Rows:
        one = functools.partial(segment._stepped, source._decoder, settings=source._settings)
        return jax.lax.fori_loop(0, _STEPS, lambda _, rows: one(weights, rows, tokens), begun)

    masked = jax.jit(
        lambda constraint, states: jnp.where(constraint.allowed_rows(states, rows), logits, -jnp.inf)
    )
    unmasked = jax.jit(lambda states: jnp.where(states[:, None] >= 0, logits, -jnp.inf))

    runs: dict[str, Callable[[jax.Array], Any]] = {'no mask': unmasked}
    for name, constraint in (('table', table), ('walk', table.of)):
        tokens = source._all._replace(constraint=constraint)
        runs[f'{name} mask'] = functools.partial(masked, constraint)
        # The content of the rows does not change the work.
        runs[f'{name} step'] = lambda states, tokens=tokens: steps(
            weights, begun._replace(masked_by=states), tokens
        )
    times: dict[str, list[float]] = {name: [] for name in runs}
    for states in chosen:
        for name, run in runs.items():
            begin = time.process_time()
            # A program of steps has as many of them.
            for _ in range(1 if name.endswith('step') else _STEPS):
                jax.block_until_ready(run(states))
            times[name].append(1e3 * (time.process_time() - begin) / _STEPS)
    # The first round compiles.
    medians = {name: statistics.median(of[1:]) for name, of in times.items()}
    found: dict[str, Any] = {
        'states': len(table.of.table), 'masks': len(table.masks), 'no mask': medians['no mask']
    }  # fmt: skip
    for name in ('table', 'walk'):
        mask, step = medians[f'{name} mask'], medians[f'{name} step']
        found[name] = {'mask': mask, 'step': step, 'share': mask / step}
    return found


def _measured(sample: Callable[[], list[int]]) -> dict[str, float]:
    begin, processors = time.perf_counter(), time.process_time()
    lengths = sample()
    seconds, processors = time.perf_counter() - begin, time.process_time() - processors
    return {
        'seconds': seconds,
        'processor_seconds': processors,
        'texts_per_second': len(lengths) / seconds,
        'tokens_per_second': sum(lengths) / seconds,
        'tokens_per_processor_second': sum(lengths) / processors,
    }


def _llama_cpp(args: argparse.Namespace, checkpoint: str) -> dict[str, float]:
    script = pathlib.Path(__file__).with_name('llama_cpp_step.py')
    done = subprocess.run(
        [
            str(args.llama_python), str(script), checkpoint, str(args.rows), str(args.max_prompt_tokens),
            str(args.max_example_tokens),
        ],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found | {'tokens_per_second': args.rows / found['step']}


if __name__ == '__main__':
    main()
