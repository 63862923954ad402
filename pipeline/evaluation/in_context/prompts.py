"""Prompts that show a decoder labelled texts: which texts, in which orders, and as which token ids."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np
from etils import epy

from models.decoders import family
from models.decoders.tokenizer import Tokenizer
from pipeline.evaluation import classifiers
from pipeline.evaluation.in_context.settings import InContextSettings
from pipeline.evaluation.measure import NotDefined
from pipeline.evaluation.sources import Sources, Texts

with epy.lazy_imports():
    from models.decoders import decoder as decoder_lib

# PP figure 2, with the labels named as in the prompts of Zhao et al. 2021.
HEADER = 'Classify the texts into the categories of {labels}.'
BEFORE_TEXT, AFTER_TEXT = '\n\nText:', '\nLabel:'

# Texts with their labels, in the order of a prompt.
type Shots = tuple[tuple[str, str], ...]


def words_of(settings: InContextSettings, test: Texts) -> dict[str, str]:
    """The words in prompts of each label that may be answered, in their order.

    Raises:
        NotDefined: A test text has another label than those declared, or there are fewer than two.
    """
    met = classifiers.classes_of(test)
    words = settings.label_words or {label: ' '.join(label.split()) for label in met}
    unknown = set(met) - set(words)
    if unknown:
        raise NotDefined(
            f'Test texts have {len(unknown)} labels that --in-context-labels does not name. Name all, as '
            'VALUE=WORDS or VALUE.'
        )
    if len(met) < 2:
        raise NotDefined('The test texts have one label only, and there is nothing to choose from.')
    return words


def _examples(texts: Texts, words: Mapping[str, str], count: int, rng: np.random.Generator) -> Shots:
    """`count` texts of each label that the source has, or all where they are fewer.

    Raises:
        NotDefined: The source has fewer than two of the labels.
    """
    rows: dict[str, list[int]] = {label: [] for label in words}
    for row, label in enumerate(texts.labels or ()):
        if label in rows:
            rows[label].append(row)
    present = {label: of_label for label, of_label in rows.items() if of_label}
    if len(present) < 2:
        raise NotDefined(
            f'The corpus has {len(present)} of the {len(words)} labels, and examples of two are needed.'
        )
    return tuple(
        (texts.texts[of_label[place]], label)
        for label, of_label in present.items()
        for place in rng.choice(len(of_label), min(count, len(of_label)), replace=False)
    )


def orders(count: int, most: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """All orders of `count` things, or `most` of them, drawn without replacement."""
    if math.factorial(count) <= most:
        return list(itertools.permutations(range(count)))
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < most:
        drawn[tuple(rng.permutation(count).tolist())] = None
    return list(drawn)


def drawn_prompts(
    sources: Sources, texts: Texts, words: Mapping[str, str], settings: InContextSettings
) -> list[Shots]:
    """Every order of every draw, the orders of a draw one after another."""
    prompts = []
    for draw in range(settings.draws):
        rng = classifiers.draws(sources, 'in-context', draw)
        shots = _examples(texts, words, settings.examples_per_label, rng)
        prompts += [
            tuple(shots[place] for place in order) for order in orders(len(shots), settings.most_orders, rng)
        ]
    return prompts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Writer:
    """Prompts as token ids.

    Attributes:
        header: Ids that every prompt begins with.
        before: Ids before a text.
        after: Ids after a text, before its label.
        words: Ids of each label's words.
        shared: How many ids the words of all labels begin with.
        most_text_tokens: Length that texts are cut to.
    """

    tokenizer: Tokenizer
    header: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    words: Mapping[str, tuple[int, ...]]
    shared: int
    most_text_tokens: int

    @classmethod
    def of(cls, settings: InContextSettings, words: Mapping[str, str]) -> Writer:
        """The writer of a model and what prompts call labels.

        Raises:
            NotDefined: The words of two labels begin alike.
        """
        tokenizer = family.family_of(settings.model).load_tokenizer(settings.model, settings.files.tokenizer)
        names = list(words.values())
        header = HEADER.format(labels=' and '.join([', '.join(names[:-1]), names[-1]]))
        pieces = [header, BEFORE_TEXT, AFTER_TEXT, *(' ' + name for name in names)]
        encoded = [tuple(ids.tolist()) for ids in tokenizer.encode_batch(pieces)]
        name_ids = encoded[3:]
        # A space is a token of its own before numbers, and before words of scripts without spaces.
        shared = len(os.path.commonprefix(name_ids))
        starts = collections.Counter(ids[shared : shared + 1] for ids in name_ids)
        alike = [
            name
            for name, ids in zip(names, name_ids)
            if not ids[shared:] or starts[ids[shared : shared + 1]] > 1
        ]
        if alike:
            # Words that were given are public; values of the test texts are not.
            which = f' ({", ".join(alike)})' if settings.labels else ''
            raise NotDefined(
                f'{len(alike)} labels{which} have words that begin with the same token, so that their '
                'probabilities are one. Give words that begin differently with --in-context-labels '
                "'VALUE=WORDS,...'."
            )
        return cls(
            tokenizer=tokenizer,
            header=(*tokenizer.start_tokens, *encoded[0]),
            before=encoded[1],
            after=encoded[2],
            words=dict(zip(words, name_ids)),
            shared=shared,
            most_text_tokens=settings.most_text_tokens,
        )

    @property
    def columns(self) -> tuple[int, ...]:
        """The token of each label: the first after what the words of all labels begin with."""
        return tuple(ids[self.shared] for ids in self.words.values())

    def shapes(self, examples: int, rows: int) -> decoder_lib.Shapes:
        """Shapes of every prompt of so many examples of the longest texts."""
        word = max(map(len, self.words.values()))
        text = len(self.before) + self.most_text_tokens + len(self.after)
        return decoder_lib.Shapes(
            max_prompt_tokens=len(self.header) + examples * (text + word),
            max_example_tokens=text + self.shared,
            micro_batch_size=rows,
        )

    def prompt(self, shots: Shots) -> np.ndarray:
        """Ids of a prompt up to the text that is asked about, int32."""
        texts = self._texts([text for text, _ in shots])
        parts = [self.header]
        for text, (_, label) in zip(texts, shots):
            parts += [self.before, text, self.after, self.words[label]]
        return np.fromiter(itertools.chain.from_iterable(parts), np.int32)

    def query(self, text: str) -> np.ndarray:
        """Ids of a text that is asked about, up to where labels differ, int32."""
        (ids,) = self._texts([text])
        shared = next(iter(self.words.values()))[: self.shared]
        return np.fromiter((*self.before, *ids, *self.after, *shared), np.int32)

    def _texts(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Texts on one line, cut; an empty one has no ids."""
        lines = [' '.join(text.split()) for text in texts]
        encoded = self.tokenizer.encode_batch([' ' + line if line else '' for line in lines])
        return [tuple(ids[: self.most_text_tokens].tolist()) for ids in encoded]
