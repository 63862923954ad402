"""Units as rows of tokens: instructions of public words, and the texts that follow them (FT 3.1).

An instruction is the public form of a prompt template with a label's words filled in: it shows no text of a
record. A fine-tuned run uses the templates of `models.prompt_templates`; the words of its labels, or of
their attributes, are FT's verbalisations.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from models.prompts import PromptWriter

# Texts of fewer tokens are padded to so many: a program for each length takes time to compile.
SHORTEST_PADDED = 16
# Lengths that texts are padded to. Tokens that stand for nothing cost an accelerator little, and a program of
# its own for each length would take the compiler minutes.
LENGTHS_ON_PROCESSOR, LENGTHS_ON_ACCELERATOR = 4, 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unit:
    """The data of one unit of privacy, from which its one gradient is computed.

    Attributes:
        unit_hash: Keyed hash of the unit, 16 bytes.
        ordinal: Number of the unit among those with the same hash and texts, from 0.
    """

    unit_hash: bytes = dataclasses.field(repr=False)
    ordinal: int = dataclasses.field(repr=False)
    label: str | None = dataclasses.field(repr=False)
    texts: tuple[str, ...] = dataclasses.field(repr=False)


# (keyed hash of a unit, its label, its texts): what crosses a shuffle.
Row = tuple[bytes, str | None, list[str]]


def in_order(rows: Iterable[Row]) -> list[Unit]:
    """Units sorted by their keyed hash, with duplicates numbered; the order of the rows does not matter.

    Equal records without ids have the same hash. Each is a unit of its own, so adding a copy adds a unit
    with its own coins and changes nothing about the others.
    """
    ordered = sorted((digest, label or '', tuple(texts), label) for digest, label, texts in rows)
    units = []
    for _, same in itertools.groupby(ordered, key=lambda row: row[0]):
        for ordinal, (digest, _, texts, label) in enumerate(same):
            units.append(Unit(unit_hash=digest, ordinal=ordinal, label=label, texts=texts))
    return units


@dataclasses.dataclass(frozen=True, kw_only=True)
class Instructions:
    """The instruction of each label, as token ids.

    Attributes:
        labels: The declared labels, or a single None.
        tokens: `[G P]` int32, padded with zeros.
        lengths: `[G]` int32.
    """

    labels: tuple[str | None, ...]
    tokens: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, writer: PromptWriter, labels: Sequence[str | None]) -> 'Instructions':
        """The public prompt of each label, whole.

        Raises:
            ValueError: One does not fit into `writer.max_prompt_tokens`.
        """
        prompts = [writer.public_prompt(label) for label in labels]
        tokens = np.zeros((len(prompts), max(map(len, prompts))), np.int32)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[: len(prompt)] = prompt
        return cls(
            labels=tuple(labels),
            tokens=tokens,
            lengths=np.array([len(prompt) for prompt in prompts], np.int32),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoded:
    """Texts of units as tokens, `U` units of at most `k` texts of at most `T` tokens.

    Attributes:
        labels: `[U]` int32, the index of each unit's label.
        texts: `[U k T]` int32, with the tokens that end a text; padded with zeros.
        lengths: `[U k]` int32; 0 for a text that a unit does not have.
    """

    labels: np.ndarray
    texts: np.ndarray
    lengths: np.ndarray


def encode(
    units: Sequence[Unit],
    writer: PromptWriter,
    labels: Sequence[str | None],
    *,
    texts_of_unit: int,
    max_tokens: int,
) -> Encoded:
    """Texts in the form that the model is to write, each with the tokens that end it.

    A total function: a text that is too long is cut, and then has no ending tokens.

    Args:
        units: The units.
        writer: Writes the prompts.
        labels: The declared labels, or a single None.
        texts_of_unit: k.
        max_tokens: T.
    """
    place = {label: index for index, label in enumerate(labels)}
    arrays = Encoded(
        labels=np.array([place[unit.label] for unit in units], np.int32).reshape(len(units)),
        texts=np.zeros((len(units), texts_of_unit, max_tokens), np.int32),
        lengths=np.zeros((len(units), texts_of_unit), np.int32),
    )
    flat = [text for unit in units for text in unit.texts[:texts_of_unit]]
    encoded = _batches(flat, writer, max_tokens)
    for row, unit in enumerate(units):
        for column, _ in enumerate(unit.texts[:texts_of_unit]):
            ids = next(encoded)
            arrays.texts[row, column, : len(ids)] = ids
            arrays.lengths[row, column] = len(ids)
    return arrays


def padded_lengths(longest: np.ndarray, max_tokens: int, lengths: int = LENGTHS_ON_PROCESSOR) -> np.ndarray:
    """Tokens that the texts of a unit are padded to: the next of some equal steps up to T.

    Args:
        longest: `[b]` tokens of each unit's longest text, at most T.
        max_tokens: T.
        lengths: Number of steps.

    Returns:
        `[b]`, each a function of the unit's own texts and of T.
    """
    step = max(SHORTEST_PADDED, -(-max_tokens // lengths))
    padded: np.ndarray = np.minimum(-(-np.maximum(longest, 1) // step) * step, max_tokens)
    return padded


def _batches(texts: Sequence[str], writer: PromptWriter, max_tokens: int) -> Iterator[np.ndarray]:
    for start in range(0, len(texts), 1024):
        yield from writer.continuations(texts[start : start + 1024], max_tokens)
