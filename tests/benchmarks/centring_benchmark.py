"""Centres of the difference aggregate, and how far each choice bends the distribution (METHOD 4b).

Both sides of a clamped difference are centred first. The constant changes no softmax, but it decides
which differences are cut. The bundled model reads AG News records of one label as contexts and
another record of the label as the text so far; at every step, for every clip bound, the figure is the
total-variation distance between the softmax of the aggregate and that of the mean of the
contexts' log-probabilities, which no clip has touched. Prints one JSON line of means over the steps,
with two others to compare with: the public prediction alone, and the mean of clipped logits at a
clip bound ten times as large. Run from the repository root; records are read from ../shared/data:

    python -m tests.benchmarks.centring_benchmark --contexts 63 --steps 24
"""

import argparse
import csv
import json
import pathlib
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from models.records import Context
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.methods.predict import graph
from tests import oracles

RECORDS = pathlib.Path(__file__).parents[3] / 'shared' / 'data' / 'agnews' / 'train_head.csv'
LABELS = ('1=World', '2=Sports', '3=Business', '4=Technology')
TEMPERATURE, PUBLIC_TOP_K = 1.5, 256
CLIP_BOUNDS = (0.25, 0.5, 1.0, 2.0)


def steps_of_logits(contexts: int, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The contexts' logits `[contexts, V]` and the public prompt's `[V]`, float64, label by label."""
    config = job_config(
        input='records',
        output='corpus',
        text_field='2',
        label_field='0',
        labels=LABELS,
        records=20_000,
        aggregate='mean',
        max_private_tokens=steps,
        clip_bound=1.0,
        temperature=TEMPERATURE,
        batch_size=contexts,
        max_prompt_tokens=128,
        max_example_tokens=steps,
        public_top_k=PUBLIC_TOP_K,
    )
    generator = graph.generator_settings(methods.solve(config, launch=True)).build()
    decoder, writer = generator.decoder, generator.writer
    step, output = jax.jit(decoder.step), jax.jit(decoder.logits)
    with open(RECORDS, newline='', encoding='utf-8') as file:
        rows = list(csv.reader(file))
    rng = np.random.default_rng(0)
    for label in (name.partition('=')[0] for name in LABELS):
        texts = [row[2] for row in rows if row[0] == label]
        chosen = rng.choice(len(texts), contexts + 1, replace=False)
        *private, written = (texts[index] for index in chosen)
        units = [Context(context_hash=bytes([n]), texts=(text,)) for n, text in enumerate(private)]
        prompts = [writer.public_prompt(label), *writer.private_prompts(label, units)]
        rows_needed = decoder.shapes.micro_batches(len(prompts)) * decoder.shapes.micro_batch_size
        padding = [np.array([1], np.int32)] * (rows_needed - len(prompts))
        states, cache = decoder.prefill(prompts + padding)
        tokens = writer.tokenizer.encode_batch([written])[0][: steps - 1]
        for offset in range(len(tokens) + 1):
            found = np.concatenate([np.asarray(output(decoder.weights, part), np.float64) for part in states])
            yield found[1 : len(prompts)], found[0]
            if offset < len(tokens):
                states, cache = step(decoder.weights, cache, jnp.int32(tokens[offset]), jnp.int32(offset))


def centers(private: np.ndarray, public: np.ndarray) -> dict[str, np.ndarray]:
    """By name, `[n, 1]`: what each context's difference from the public logits is centred by."""
    difference = private - public
    top = public >= np.sort(public)[-256]
    weights = oracles.softmax(public)
    return {
        'logsumexp': np.logaddexp.reduce(private, axis=1, keepdims=True) - np.logaddexp.reduce(public),
        'max': private.max(axis=1, keepdims=True) - public.max(),
        'mean': difference.mean(axis=1, keepdims=True),
        'public_weighted_mean': (difference * weights).sum(axis=1, keepdims=True),
        'median_of_public_top_256': np.median(difference[:, top], axis=1, keepdims=True),
    }


def total_variation(scores: np.ndarray, other: np.ndarray, kept: np.ndarray) -> float:
    """Between softmax(scores/τ) and softmax(other/τ) over the kept tokens."""
    first, second = (oracles.softmax(x[kept], TEMPERATURE) for x in (scores, other))
    return float(np.abs(first - second).sum() / 2)


def measure(*, contexts: int, steps: int) -> dict[str, object]:
    """Mean total variation by constant and clip bound, over the public top K and over all tokens."""
    distances: dict[str, dict[str, list[float]]] = {}
    seen = 0
    for private, public in steps_of_logits(contexts, steps):
        seen += 1
        unclipped = oracles.log_softmax(private).mean(axis=0)
        aggregates = {'public alone': public}
        for c in CLIP_BOUNDS:
            for name, center in centers(private, public).items():
                difference = np.clip(private - public - center, -c, c)
                aggregates[f'{name}, c={c}'] = public + difference.mean(axis=0)
            aggregates[f'mean of clipped logits, c={10 * c}'] = oracles.mean_aggregate(
                private, contexts, 10 * c
            )
        for vocabulary, kept in {
            f'public top {PUBLIC_TOP_K}': public >= np.sort(public)[-PUBLIC_TOP_K],
            'all tokens': np.ones(len(public), bool),
        }.items():
            for name, aggregate in aggregates.items():
                found = distances.setdefault(vocabulary, {}).setdefault(name, [])
                found.append(total_variation(aggregate, unclipped, kept))
    means = {
        vocabulary: {name: round(float(np.mean(values)), 4) for name, values in by_name.items()}
        for vocabulary, by_name in distances.items()
    }
    return {
        'total_variation': means,
        'steps': seen,
        'contexts': contexts,
        'temperature': TEMPERATURE,
    }


def main() -> None:
    """Measures once and prints the line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--contexts', type=int, default=63)
    parser.add_argument('--steps', type=int, default=24, help='Steps of each label.')
    args = parser.parse_args()
    if not RECORDS.exists():
        print(f'SKIPPED, nothing is measured: no records at {RECORDS}.', file=sys.stderr)
        return
    print(json.dumps(measure(contexts=args.contexts, steps=args.steps)))


if __name__ == '__main__':
    main()
