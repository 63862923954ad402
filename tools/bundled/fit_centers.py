"""Fits the shipped embedder and centres on public text.

    python -m tools.bundled.fit_centers --data ../shared/data --export models/bundled/centers

CL takes its centres from DBpedia (appendix E). The 13,994 abstracts at hand are few for
that, so the openings of the Wikipedia articles join them: passages of the size of the
records that people hold. The corpus is public and so are the seeds.
"""

import argparse
import json
import pathlib
import zlib

from sklearn.metrics import v_measure_score

from models.clustering import centers
from models.clustering.embedder import Embedder, TfidfEmbedder
from tools.bundled import corpus

COUNT, SEED = 500, 0
_PASSAGE_SENTENCES, _PASSAGE_LENGTH = 3, 400
# One abstract in ten is fitted on by nothing, so that the clusters can be measured on it.
_HELD_OUT_ONE_IN = 10


def passage(text: corpus.PublicText) -> str:
    """The opening of a text: up to three sentences and 400 characters."""
    return ' '.join(text.sentences[:_PASSAGE_SENTENCES])[:_PASSAGE_LENGTH]


def held_out(text: corpus.PublicText) -> bool:
    """True if an abstract is kept for the measurement, by a hash of itself."""
    return zlib.crc32(text.sentences[0].encode()) % _HELD_OUT_ONE_IN == 0


def read_passages(data: pathlib.Path) -> tuple[list[str], list[corpus.PublicText]]:
    """The corpus to fit on, in a fixed order, and the DBpedia abstracts kept aside."""
    abstracts, articles = corpus.read_dbpedia(data), corpus.read_wikipedia(data)
    fitted = [text for text in abstracts if not held_out(text)] + articles
    return [passage(text) for text in fitted], [text for text in abstracts if held_out(text)]


def v_measure(fitted: centers.Centers, embedder: Embedder, texts: list[corpus.PublicText]) -> float:
    """V-measure of the texts' clusters against their classes (Rosenberg and Hirschberg 2007)."""
    clusters = fitted.nearest(embedder.embed([passage(text) for text in texts]))
    return float(v_measure_score([text.category for text in texts], clusters))


def main() -> None:
    """Fits, measures and writes; prints one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--data', type=pathlib.Path, required=True)
    parser.add_argument('--export', type=pathlib.Path, help='folder for the embedder and the centres')
    args = parser.parse_args()
    passages, kept_aside = read_passages(args.data)
    embedder = TfidfEmbedder.fit(
        passages,
        max_terms=centers.MAX_TERMS,
        min_texts=centers.MIN_TEXTS,
        dimensions=centers.DIMENSIONS,
        seed=SEED,
    )
    row: dict[str, float] = {'passages': len(passages), 'held_out': len(kept_aside)}
    for count in (14, 100, COUNT):
        fitted = centers.fit_centers(passages, embedder, count=count, seed=SEED)
        row[f'v_measure_{count}'] = round(v_measure(fitted, embedder, kept_aside), 3)
    if args.export:
        embedder.write(args.export)
        fitted.write(args.export)
    print(json.dumps(row))


if __name__ == '__main__':
    main()
