"""The abilities of the bundled model: held-out loss, and its use of its prompt.

    python -m tools.bundled.evaluate --data ../shared/data

The second question is the one that matters to the job: the loss on a text of one
topic, after three other texts of that topic, against the loss after three texts of
another topic, and after none. Label lines are left out, so that only the texts can
tell the topic. All texts are held out from training.
"""

import argparse
import collections
import dataclasses
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sentencepiece

from models.bundled import FOLDER
from models.decoders.gemma import architectures
from models.decoders.gemma import library as gemma
from tools.bundled import corpus, train

SHOTS = 3


@dataclasses.dataclass(frozen=True)
class Conditioning:
    """Mean loss on target texts, in nats per token, by what the prompt shows.

    Attributes:
        same_topic: After three texts of the target's topic.
        other_topic: After three texts of another topic.
        no_texts: At the start of a document.
        gain: Mean over the targets of (other topic's loss − own topic's loss).
        gain_standard_error: Standard error of that mean, over the targets.
        targets: Target texts.
    """

    same_topic: float
    other_topic: float
    no_texts: float
    gain: float
    gain_standard_error: float
    targets: int


def load() -> tuple[Any, Any, sentencepiece.SentencePieceProcessor]:
    """The shipped model: transformer, parameters and tokenizer."""
    architecture = architectures.ARCHITECTURES['bundled']
    stored = gemma.load_orbax(FOLDER / 'checkpoint')
    parameters = jax.tree.map(lambda weight: weight.astype(jnp.float32), stored)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / 'tokenizer.model'))
    return gemma.make_transformer(architecture, dtype=jnp.float32), parameters, tokenizer


def conditioning(
    model: Any,
    parameters: Any,
    tokenizer: sentencepiece.SentencePieceProcessor,
    texts_by_topic: dict[str, list[str]],
    *,
    targets_per_topic: int = 8,
) -> Conditioning:
    """Measures the loss on texts with and without texts of their topic before them.

    Args:
        model: The transformer.
        parameters: Its weights.
        tokenizer: Its tokenizer.
        texts_by_topic: At least `SHOTS + targets_per_topic` texts for each topic.
        targets_per_topic: Texts whose loss counts.
    """
    topics = sorted(texts_by_topic)
    rows, masks = [], []
    for number, topic in enumerate(topics):
        other = topics[(number + len(topics) // 2) % len(topics)]
        targets = texts_by_topic[topic][SHOTS : SHOTS + targets_per_topic]
        for shown in (texts_by_topic[topic][:SHOTS], texts_by_topic[other][:SHOTS], []):
            for target in targets:
                row, mask = _document(tokenizer, shown, target)
                rows.append(row)
                masks.append(mask)
    losses = []
    for first in range(0, len(rows), 16):
        losses.append(
            np.asarray(train.token_losses(model, parameters, jnp.asarray(rows[first : first + 16])))
        )
    weights = np.stack(masks)
    per_row = (np.concatenate(losses) * weights).sum(axis=1).reshape(len(topics), 3, -1)
    tokens = weights.sum(axis=1).reshape(len(topics), 3, -1)
    same, other_loss, none = per_row.sum(axis=(0, 2)) / tokens.sum(axis=(0, 2))
    per_target = per_row / tokens
    gains = (per_target[:, 1] - per_target[:, 0]).ravel()
    return Conditioning(
        same_topic=float(same),
        other_topic=float(other_loss),
        no_texts=float(none),
        gain=float(gains.mean()),
        gain_standard_error=float(gains.std(ddof=1) / np.sqrt(gains.size)),
        targets=gains.size,
    )


def _document(
    tokenizer: sentencepiece.SentencePieceProcessor, shown: list[str], target: str
) -> tuple[np.ndarray, np.ndarray]:
    """A few-shot document without label lines, and which of its next tokens are the target's."""
    encode = tokenizer.EncodeAsIds
    fence = train.FENCE
    ids = [tokenizer.bos_id()]
    for text in shown:
        ids += encode(f'{fence}\n') + encode(text)[:100] + encode(f'\n{fence}\n\n')
    ids += encode(f'{fence}\n')
    start = len(ids)
    ids += encode(target)[:100]
    row = np.zeros(train.SEQUENCE_LENGTH + 1, np.int32)
    row[: len(ids)] = ids
    mask = np.zeros(train.SEQUENCE_LENGTH, np.float32)
    mask[start - 1 : len(ids) - 1] = 1.0
    return row, mask


def held_out_texts(data: pathlib.Path) -> dict[str, list[str]]:
    """Held-out DBpedia abstracts by class."""
    by_class = collections.defaultdict(list)
    for text in corpus.read_dbpedia(data):
        if text.held_out:
            by_class[text.category or ''].append(' '.join(text.sentences))
    return dict(by_class)


def main() -> None:
    """Prints one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--data', type=pathlib.Path, required=True)
    args = parser.parse_args()
    model, parameters, tokenizer = load()
    result = dataclasses.asdict(conditioning(model, parameters, tokenizer, held_out_texts(args.data)))
    documents = train.Documents(corpus.read_topics(args.data), tokenizer)
    batches = np.split(documents.held_out(64), 4)
    losses = [float(train.mean_loss(model, parameters, jnp.asarray(batch))) for batch in batches]
    print(json.dumps({'held_out_loss': float(np.mean(losses)), **result}))


if __name__ == '__main__':
    main()
