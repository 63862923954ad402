"""Texts as sequences of words, in any script, without case and punctuation: for measures of wording."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
import unicodedata
from collections.abc import Sequence

import numpy as np

from pipeline.evaluation.measure import NotDefined, Setting
from pipeline.evaluation.sources import Sources, Texts

# Limits on what a measure reads of one source; of more it reads a sample.
MOST_TEXTS = 10_000
MOST_WORDS = 4_000_000
# Scripts written without spaces (Thai, Lao, Burmese, Khmer, kana, Han): each character is a word.
_UNSPACED = (
    '\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff'
    '\U00020000-\U0003ffff'
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WordedTexts:
    """The texts of a source that a measure reads, and their words as numbers.

    Attributes:
        texts: The source, or a sample of it in the source's order.
        ids: Words of all texts, one text after another, `[w]` int64; equal words of sources that were
            read together have equal numbers.
        bounds: Text i has the words `ids[bounds[i]:bounds[i + 1]]`, `[n + 1]` int64.
    """

    texts: Texts
    ids: np.ndarray = dataclasses.field(repr=False)
    bounds: np.ndarray = dataclasses.field(repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, indices: np.ndarray) -> WordedTexts:
        """Some of the texts, by their indices `[m]`."""
        chosen = indices.tolist()
        rows = [self.ids[self.bounds[index] : self.bounds[index + 1]] for index in chosen]
        return WordedTexts(
            texts=self.texts.take(chosen),
            ids=np.concatenate([np.zeros(0, np.int64), *rows]),
            bounds=np.cumsum([0, *map(len, rows)]),
        )

    def draw(self, count: int, seed: int) -> WordedTexts:
        """`count` of the texts, drawn by the seed, in their order; itself where it has no more."""
        if count >= len(self):
            return self
        return self.take(np.sort(np.random.default_rng(seed).permutation(len(self))[:count]))


class Target(typing.NamedTuple):
    """Real texts that a corpus is compared with.

    Attributes:
        prefix: Of the names of figures; empty for all records.
        what: In words, with their number.
    """

    prefix: str
    what: str
    texts: WordedTexts


def spans_of(text: str) -> list[tuple[int, int]]:
    """Begin and end of each word of a text, in characters."""
    return [match.span() for match in _pattern().finditer(text)]


def words_of(text: str) -> list[str]:
    """The words of a text, in order: runs of letters and digits, their case folded."""
    return [_folded(word) for word in _pattern().findall(text)]


def read_words(sources: Sequence[Texts], *, seed: int) -> list[WordedTexts]:
    """Numbers the words of sources; of a large one, those of a sample of its texts.

    A sample is of `MOST_TEXTS` texts, or of as many as have `MOST_WORDS` words together, at least one.
    """
    numbers: dict[str, int] = {}
    return [_read(source, numbers, np.random.default_rng(seed)) for source in sources]


def read_with_baseline(sources: Sources) -> tuple[WordedTexts, list[Target]]:
    """The words of the corpus, and of the texts that it is compared with: all records, and a baseline.

    The baseline, if there are held-out texts, is records and held-out texts in equal number: similarity by
    chance or by form is the same for both. If there are no more records than held-out texts, the baseline
    holds all records again.

    Raises:
        NotDefined: There are no records.
    """
    if sources.records is None:
        raise NotDefined('There are no records.')
    corpus, records, *tests = read_words(
        [source for source in (sources.corpus, sources.records, sources.test) if source is not None],
        seed=sources.seed,
    )
    targets = [Target('', f'all {len(records)} records', records)]
    equal = min(map(len, (records, *tests)))
    for prefix, what, source in zip(('records_', 'test_'), ('records', 'held-out texts'), (records, *tests)):
        if tests:
            targets.append(Target(prefix, f'{equal} {what}', source.draw(equal, sources.seed)))
    return corpus, targets


def settings_of(sources: Sources, corpus: WordedTexts, targets: Sequence[Target]) -> dict[str, Setting]:
    """Numbers of the texts that were read."""
    return {
        'most_texts_of_a_source': MOST_TEXTS,
        'most_words_of_a_source': MOST_WORDS,
        'corpus_texts': len(corpus),
        'records': len(targets[0].texts),
        'seed': sources.seed,
    }


def _read(source: Texts, numbers: dict[str, int], rng: np.random.Generator) -> WordedTexts:
    """One source of `read_words`, whose new words get the next numbers."""
    rows: dict[int, np.ndarray] = {}
    words = 0
    for index in rng.permutation(len(source))[:MOST_TEXTS].tolist():
        ids = [numbers.setdefault(word, len(numbers)) for word in words_of(source.texts[index])]
        words += len(ids)
        if rows and words > MOST_WORDS:
            break
        rows[index] = np.array(ids, np.int64)
    kept = sorted(rows)
    labels = None if source.labels is None else tuple(source.labels[index] for index in kept)
    return WordedTexts(
        texts=Texts(name=source.name, texts=tuple(source.texts[index] for index in kept), labels=labels),
        ids=np.concatenate([rows[index] for index in kept] or [np.zeros(0, np.int64)]),
        bounds=np.cumsum([0, *(len(rows[index]) for index in kept)]),
    )


def _folded(word: str) -> str:
    """A word as it is compared."""
    folded = word.casefold()
    return folded if folded.isascii() else unicodedata.normalize('NFKC', folded)


@functools.cache
def _pattern() -> re.Pattern[str]:
    """One word."""
    # `\w` has no combining marks, and would cut Hindi at each vowel sign.
    characters = map(chr, range(0x300, 0x20000))
    marks = ''.join(character for character in characters if unicodedata.category(character)[0] == 'M')
    letter = rf'[^\W_{_UNSPACED}]'
    return re.compile(rf'[{_UNSPACED}][{marks}]*|{letter}(?:{letter}|[{marks}])*')
