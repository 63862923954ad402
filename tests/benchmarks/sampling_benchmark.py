"""Benchmark of sampling texts from public prompts: rows that are filled again, beside rows that are not.

Prints one JSON line. Run from the repository root:

    python -m tests.benchmarks.sampling_benchmark --model gemma3-270m
    python -m tests.benchmarks.sampling_benchmark --model gemma3-270m --min-example-tokens 47 --examples 2

Both sample as many texts of four labels of news, with the same settings. `ours` is
`models.sampling.decoder_source.DecoderSource`; with `--examples` its prompts differ, each with so many texts
of a round before. `fine_tuning` is `models.finetuning.sample.TextSampler` with an adapter of zeros: all rows
show one prompt and wait for the longest, over the whole vocabulary. Rounds alternate, after one that
compiles; medians of seconds, and of the processors' seconds, which a busy machine touches less. With
`--llama-python` a step of llama.cpp on as many rows follows, as in `decoding_benchmark`, without sampling.

Aim: 3 texts of 48 tokens a second with Gemma 3 270M on two cores.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from models.decoders import device, family
from models.finetuning.sample import TextSampler
from models.finetuning.settings import TuningSettings
from models.privacy.gradients import TuningParams
from models.privacy.randomness import RunKey
from models.prompt_templates import PRESETS
from models.records import BatchId
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
    parser.add_argument('--llama-python', type=pathlib.Path)
    args = parser.parse_args()
    files = family.files_of(args.model)
    of_both: dict[str, Any] = {
        'model': args.model, 'checkpoint': files.checkpoint, 'tokenizer': files.tokenizer,
        'dtype': args.dtype, 'template': PRESETS['document'], 'max_prompt_tokens': args.max_prompt_tokens,
        'max_example_tokens': args.max_example_tokens, 'label_name': 'Topic', 'text_name': 'News',
        'corpus_description': 'Short news texts, one after another.', 'top_p': 0.95,
    }  # fmt: skip
    results = _results(args, of_both)
    if args.llama_python is not None:
        results['llama_cpp'] = _llama_cpp(args, files.checkpoint)
    print(json.dumps(vars(args) | {'llama_python': str(args.llama_python)} | results))


def _results(args: argparse.Namespace, of_both: dict[str, Any]) -> dict[str, Any]:
    own = family.family_of(args.model)
    source = DecoderSource(
        SamplerSettings(rows=args.rows, min_example_tokens=args.min_example_tokens, **of_both)
    )
    params = TuningParams(
        units=64.0, expected_batch_size=8, tuning_steps=1, clip_norm=1.0, noise_multiplier=1.0
    )
    sampler = TextSampler(
        TuningSettings(
            run_id='benchmark', params=params, labels=LABELS, micro_batch_size=args.rows, lora_rank=1,
            **of_both,
        ),
        jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), own.adapter_shapes(args.model, 1)),
    )  # fmt: skip
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
        batches = -(-args.texts // args.rows)
        return [
            text.tokens
            for index in range(batches)
            for text in sampler.sample(
                BatchId(group=0, index=index), LABELS[index % len(LABELS)], args.rows, KEY
            )
        ]

    found: dict[str, list[dict[str, float]]] = {'ours': [], 'fine_tuning': []}
    for number in range(args.rounds + 1):
        for name, sample in (('ours', ours), ('fine_tuning', fine_tuning)):
            figures = _measured(sample)
            if number:
                found[name].append(figures)
    return {
        name: {key: statistics.median(of[key] for of in rounds) for key in rounds[0]}
        for name, rounds in found.items()
    }


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
