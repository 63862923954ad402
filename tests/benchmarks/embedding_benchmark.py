"""Benchmark of embedders: texts a second, and processor seconds a text, before and after in one run.

    python -m tests.benchmarks.embedding_benchmark --texts 256 --rounds 3
    python -m tests.benchmarks.embedding_benchmark --data trec --models bundled,gemma3-270m

The texts are whole news items of AG News, or questions of TREC. `before` is MiniLM over padded rows in blocks
of 32 (tests/models/clustering/padded_minilm.py), and the decoder in blocks of 32. All embedders take turns,
and the least of the rounds counts: other work on the machine only adds to a time. Other types than float32
say how far their vectors moved, and for how many texts the nearest of 600 others is another one; `lost` is
how much less alike it is, by the vectors of float32. Prints one JSON line.
"""

import argparse
import functools
import json
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from models.clustering import embedder as embedder_lib
from models.clustering import minilm, similarities
from models.clustering.centers import SHIPPED
from models.clustering.embedder import DecoderEmbedder, TfidfEmbedder
from models.clustering.minilm import MiniLmEmbedder
from models.decoders import family
from tests.benchmarks.clustering_benchmark import read_agnews
from tests.models.clustering.padded_minilm import embed_padded, padded_mean_states

TREC = pathlib.Path(__file__).parents[3] / 'shared' / 'data' / 'trec'
CANDIDATES = 600

Embed = Callable[[Sequence[str]], np.ndarray]


def read_trec() -> list[str]:
    """The questions of the training split."""
    lines = (TREC / 'train.txt').read_text(encoding='latin-1').splitlines()
    return [line.partition(' ')[2] for line in lines]


def padded_minilm(model: MiniLmEmbedder) -> Embed:
    """MiniLM in float32 as it was, over padded rows."""
    config = json.loads((pathlib.Path(minilm.packaged_folder()) / 'config.json').read_text())
    program = jax.jit(
        functools.partial(
            padded_mean_states,
            heads=config['num_attention_heads'],
            layers=config['num_hidden_layers'],
            epsilon=config['layer_norm_eps'],
        )
    )

    def embed(texts: Sequence[str]) -> np.ndarray:
        rows = [np.array(code.ids, np.int32) for code in model._tokenizer.encode_batch(texts)]
        pool = functools.partial(program, model._weights)
        return embed_padded(rows, pool, model.dimensions)

    return embed


def in_blocks(model: DecoderEmbedder, rows: int) -> Embed:
    """The decoder in blocks of so many rows."""

    def embed(texts: Sequence[str]) -> np.ndarray:
        own, embedder_lib.BLOCK_ROWS = embedder_lib.BLOCK_ROWS, rows
        try:
            return model.embed(texts)
        finally:
            embedder_lib.BLOCK_ROWS = own

    return embed


def embedders(models: Sequence[str]) -> dict[str, Embed]:
    """What takes turns."""
    folder = minilm.packaged_folder()
    plain = MiniLmEmbedder(folder)
    found: dict[str, Embed] = {
        'tfidf': TfidfEmbedder.read(SHIPPED).embed,
        'minilm float32 before': padded_minilm(plain),
        'minilm float32': plain.embed,
        'minilm bfloat16': MiniLmEmbedder(folder, dtype='bfloat16').embed,
        'minilm int8': MiniLmEmbedder(folder, dtype='int8').embed,
    }
    for name in models:
        files = family.files_of(name, None, None)
        model = DecoderEmbedder(name, checkpoint=files.checkpoint, tokenizer=files.tokenizer, dtype='float32')
        found[f'{name} float32 before'] = in_blocks(model, 32)
        found[f'{name} float32'] = model.embed
    return found


def moved(own: tuple[np.ndarray, np.ndarray], plain: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """How far texts and candidates moved from those of float32, and whose nearest candidate changed."""
    cosines = np.concatenate([(a * b).sum(axis=1) for a, b in zip(own, plain, strict=True)])
    scores, reference = (
        similarities.similarities(*map(similarities.quantized, both)) / similarities.SCALE**2
        for both in (own, plain)
    )
    changed = scores.argmax(axis=1) != reference.argmax(axis=1)
    chosen = np.take_along_axis(reference, scores.argmax(axis=1)[:, None], axis=1)[:, 0]
    lost = (reference.max(axis=1) - chosen)[changed]
    return {
        'mean_cosine': round(float(cosines.mean()), 6),
        'least_cosine': round(float(cosines.min()), 6),
        'nearest_changed': round(float(changed.mean()), 4),
        'lost': round(float(lost.mean()), 4) if len(lost) else 0.0,
    }


def main() -> None:
    """Runs the benchmark and prints its line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--data', choices=['agnews', 'trec'], default='agnews')
    parser.add_argument('--texts', type=int, default=256)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--models', default='bundled', help='decoders, with commas between; may be empty')
    settings = parser.parse_args()
    every = [text for text, _ in read_agnews('test.csv')] if settings.data == 'agnews' else read_trec()
    texts, candidates = every[: settings.texts], every[-CANDIDATES:]
    found = embedders([name for name in settings.models.split(',') if name])
    clocks: dict[str, list[float]] = {name: [] for name in found}
    processors: dict[str, list[float]] = {name: [] for name in found}
    vectors = {name: (embed(texts), embed(candidates)) for name, embed in found.items() if 'minilm' in name}
    for embed in found.values():
        embed(texts)
    for _ in range(settings.rounds):
        for name, embed in found.items():
            clock, processor = time.monotonic(), time.process_time()
            embed(texts)
            clocks[name].append(time.monotonic() - clock)
            processors[name].append(time.process_time() - processor)
    line: dict[str, Any] = {
        'data': settings.data, 'texts': len(texts), 'rounds': settings.rounds,
        'words': round(float(np.mean([len(text.split()) for text in texts])), 1),
        'device': jax.devices()[0].platform,
    }  # fmt: skip
    for name in found:
        line[name] = {
            'texts_per_second': round(len(texts) / min(clocks[name]), 1),
            'texts_per_processor_second': round(len(texts) / min(processors[name]), 1),
            'processor_milliseconds': round(1e3 * min(processors[name]) / len(texts), 3),
        }
        if name in vectors and name != 'minilm float32':
            line[name] |= moved(vectors[name], vectors['minilm float32'])
    print(json.dumps(line))


if __name__ == '__main__':
    main()
