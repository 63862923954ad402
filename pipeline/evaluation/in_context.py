"""In-context use: what a decoder that is shown a few labelled texts says of real ones."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import json
import math
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, final

import numpy as np
from etils import epy

from models.decoders import family
from pipeline.evaluation import classifiers, comparison
from pipeline.evaluation.measure import (
    Chart,
    Figure,
    Findings,
    Measure,
    NotDefined,
    Progress,
    Series,
    Setting,
)
from pipeline.evaluation.sources import Sources, Texts

with epy.lazy_imports():
    import jax

    from models.clustering import embedder
    from models.decoders import decoder as decoder_lib
    from models.decoders import device

if typing.TYPE_CHECKING:
    from models.decoders.decoder import Decoder, Shapes
    from models.decoders.tokenizer import Tokenizer

# Zhao et al. 2021, section 5.
CONTENT_FREE = ('N/A', '', '[MASK]')
# PP figure 2, with the labels named as in the prompts of Zhao et al. 2021.
HEADER = 'Classify the texts into the categories of {labels}.'
BEFORE_TEXT, AFTER_TEXT = '\n\nText:', '\nLabel:'
# Prompts that go through the model together.
MOST_ROWS = 64
# Of a comparison: the start of its figures' names, and what tables call its examples.
_CORPUS, _RECORDS, _PUBLIC = (
    ('', 'examples of the corpus'),
    ('real_', 'examples of the records'),
    ('public_', 'examples of the public prompt'),
)
_ZERO_SHOT = ('zero_shot_', 'no examples')

# A mean and its standard error.
type _Mean = tuple[float | None, float | None]
# Texts with their labels, in the order of a prompt.
type Shots = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class InContextSettings:
    """Which decoder is asked, and how.

    Attributes:
        model: Its name, which leads to its family.
        checkpoint: Its weights; None where they are known to be.
        tokenizer: Its tokenizer's file; None where it is known to be.
        dtype: Type of weights and products; 'auto' for what this machine is fastest in.
        labels: Labels that may be answered, VALUE=WORDS or VALUE, in the order in which prompts name them;
            none for those of the test texts.
        examples_per_label: k, texts of each label that a prompt shows.
        draws: Draws of the examples.
        most_orders: Orders of the examples of a draw: all, or so many drawn ones where there are more.
        most_test_texts: Real texts that are asked about; of more, so many are drawn.
        most_text_tokens: Length that texts are cut to.
    """

    model: str
    checkpoint: str | None = None
    tokenizer: str | None = None
    dtype: Literal['auto', 'float32', 'bfloat16'] = 'auto'
    labels: tuple[str, ...] = ()
    examples_per_label: int = 1
    draws: int = 3
    most_orders: int = 8
    most_test_texts: int = 100
    most_text_tokens: int = 64

    def __post_init__(self) -> None:
        family.files_of(self.model, self.checkpoint, self.tokenizer)
        for name in ('examples_per_label', 'draws', 'most_orders', 'most_test_texts', 'most_text_tokens'):
            if getattr(self, name) < 1:
                raise ValueError(f'Expected {name} >= 1, got {name}={getattr(self, name)}. Raise it.')
        if len(self.label_words) < len(self.labels) or not all(self.label_words.values()):
            raise ValueError(
                f'Expected distinct labels, each VALUE=WORDS or VALUE, got labels={list(self.labels)!r}. '
                'Declare each label once.'
            )

    @property
    def files(self) -> family.ModelFiles:
        """Where the model lies."""
        return family.files_of(self.model, self.checkpoint, self.tokenizer)

    @property
    def label_words(self) -> dict[str, str]:
        """What prompts call each declared label."""
        pairs = (label.partition('=') for label in self.labels)
        return {value: (words if equals else value).strip() for value, equals, words in pairs}


@final
class InContext(Measure):
    """Accuracy on real texts of a decoder whose prompt shows examples, with contextual calibration.

    The probabilities of the labels after a text are divided by those after content-free inputs in the same
    prompt, renormalised, and averaged over orders of the examples; the largest is the answer.
    """

    name = 'in-context'
    title = 'In-context use'
    question = 'How well does a language model that is shown texts of the corpus label real ones?'
    source = 'Zhao et al. 2021, Calibrate Before Use, section 5; PP section 5.1 and figure 2'
    needs = frozenset({'test'})
    needs_labels = True

    def __init__(self, settings: InContextSettings | None = None) -> None:
        """Takes which decoder is asked, and how.

        Args:
            settings: Without them it is not defined.
        """
        self._settings = settings

    def measure(self, sources: Sources, progress: Progress) -> Findings:
        settings, test = self._settings, sources.test
        if settings is None:
            raise NotDefined('It needs a model to ask. Give --in-context-model, such as gemma3-270m.')
        assert test is not None and test.labels is not None
        words = _words_of(settings, test)
        prompts = {_CORPUS: _drawn_prompts(sources, sources.corpus, words, settings)}
        rows = comparison.drawn(
            classifiers.draws(sources, 'in-context test'),
            len(test),
            min(len(test), settings.most_test_texts),
        )
        places = {label: place for place, label in enumerate(words)}
        true = np.array([places[test.labels[row]] for row in rows])
        queries = (*CONTENT_FREE, *(test.texts[row] for row in rows))

        lacking: dict[tuple[str, str], str] = {}
        for key, of, name in (
            (_RECORDS, sources.records, 'records'),
            (_PUBLIC, sources.public, 'public texts'),
        ):
            if of is None:
                lacking[key] = f'No {name} were given.'
            elif of.labels is None:
                lacking[key] = f'The {name} have no labels.'
            else:
                try:
                    prompts[key] = _drawn_prompts(sources, of, words, settings)
                except NotDefined:
                    lacking[key] = f'The {name} have fewer than two of the labels.'
        prompts[_ZERO_SHOT] = [()]
        own = Questions(
            settings=settings, words=tuple(words.items()), prompts=tuple(prompts[_CORPUS]), queries=queries
        )
        # What the corpus is compared with is the same for every corpus, and so asked once.
        beside = [shots for key, each in prompts.items() if key != _CORPUS for shots in each]
        others = dataclasses.replace(own, prompts=tuple(beside))
        found, parts = [], own.parts + others.parts
        for before, questions in ((0, own), (own.parts, others)):
            told = functools.partial(lambda before, done: progress(before + done, parts), before)
            found.append(answers(dataclasses.replace(questions, progress=told)))
            progress(before + questions.parts, parts)
        ends = np.cumsum([len(each) for each in prompts.values()])
        outcomes = {
            key: _Outcome.of(of_key, settings.draws if key != _ZERO_SHOT else 1)
            for key, of_key in zip(prompts, np.split(np.concatenate(found), ends[:-1]), strict=True)
        }
        return _findings(sources, own, true, prompts, outcomes, lacking)


def _words_of(settings: InContextSettings, test: Texts) -> dict[str, str]:
    """What prompts call each label that may be answered, in their order.

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Writer:
    """Prompts as token ids.

    Attributes:
        tokenizer: The model's.
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
    def of(cls, settings: InContextSettings, words: Mapping[str, str]) -> _Writer:
        """The writer of a model and what prompts call labels.

        Raises:
            NotDefined: The words of two labels begin alike.
        """
        tokenizer = family.family_of(settings.model).load_tokenizer(settings.model, settings.files.tokenizer)
        names = list(words.values())
        header = HEADER.format(labels=' and '.join([', '.join(names[:-1]), names[-1]]))
        pieces = [header, BEFORE_TEXT, AFTER_TEXT, *(' ' + name for name in names)]
        encoded = [tuple(ids.tolist()) for ids in tokenizer.encode_batch(pieces)]
        own = encoded[3:]
        # Of numbers, and of scripts whose words no space begins, the space is a token of its own.
        shared = len(os.path.commonprefix(own))
        starts = collections.Counter(ids[shared : shared + 1] for ids in own)
        alike = [
            name for name, ids in zip(names, own) if not ids[shared:] or starts[ids[shared : shared + 1]] > 1
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
            words=dict(zip(words, own)),
            shared=shared,
            most_text_tokens=settings.most_text_tokens,
        )

    @property
    def columns(self) -> tuple[int, ...]:
        """The token of each label: the first after what the words of all labels begin with."""
        return tuple(ids[self.shared] for ids in self.words.values())

    def shapes(self, examples: int, rows: int) -> Shapes:
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


def _examples(texts: Texts, words: Mapping[str, str], count: int, rng: np.random.Generator) -> Shots:
    """`count` texts of each label that the source has, or all where they are fewer.

    Raises:
        NotDefined: The source has fewer than two of the labels.
    """
    rows: dict[str, list[int]] = {label: [] for label in words}
    for row, label in enumerate(texts.labels or ()):
        if label in rows:
            rows[label].append(row)
    present = {label: own for label, own in rows.items() if own}
    if len(present) < 2:
        raise NotDefined(
            f'The corpus has {len(present)} of the {len(words)} labels, and examples of two are needed.'
        )
    return tuple(
        (texts.texts[own[place]], label)
        for label, own in present.items()
        for place in rng.choice(len(own), min(count, len(own)), replace=False)
    )


def orders(count: int, most: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """All orders of `count` things, or `most` of them, drawn without replacement."""
    if math.factorial(count) <= most:
        return list(itertools.permutations(range(count)))
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < most:
        drawn[tuple(rng.permutation(count).tolist())] = None
    return list(drawn)


def _drawn_prompts(
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


# --- Asking the model ------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Model:
    """A loaded decoder.

    Attributes:
        decoder: The decoder.
        fingerprint: SHA-256 of its weights.
        read: Weights, states and cache after prompts, ids of a text `[T]` with their number, and columns to
            logits `[m K]`, states and cache after the text. States and cache are taken over.
    """

    decoder: Decoder
    fingerprint: str
    read: Callable[..., tuple[Any, Any, Any]]


@functools.lru_cache(maxsize=1)
def _load(model: str, checkpoint: str, dtype: str, shapes: Shapes) -> _Model:
    loaded = family.family_of(model).load_decoder(model, checkpoint, shapes=shapes, dtype=dtype)

    def read(
        weights: Any, states: Any, cache: Any, tokens: jax.Array, length: jax.Array, columns: jax.Array
    ) -> tuple[jax.Array, Any, Any]:
        def step(place: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            return loaded.step(weights, carry[1], tokens[place], place)

        # A text begins at the prompts' end, whatever was read there before.
        states, cache = jax.lax.fori_loop(0, length, step, (states, cache))
        return loaded.logits(weights, states[0], columns), states, cache

    leaves = jax.tree.leaves(loaded.weights)
    return _Model(
        decoder=loaded,
        fingerprint=embedder.fingerprint_of({'model': model, 'dtype': dtype}, *map(np.asarray, leaves)),
        read=jax.jit(read, donate_argnums=(1, 2)),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Questions:
    """What a decoder is asked; equal ones have equal answers.

    Attributes:
        settings: Which decoder.
        words: Labels and what prompts call them.
        prompts: Examples of each prompt.
        queries: Texts that each prompt is asked about.
        progress: Told how many parts are done.
    """

    settings: InContextSettings
    words: tuple[tuple[str, str], ...]
    prompts: tuple[Shots, ...] = dataclasses.field(repr=False)
    queries: tuple[str, ...] = dataclasses.field(repr=False)
    progress: Callable[[int], None] = dataclasses.field(default=lambda done: None, compare=False, repr=False)

    @property
    def blocks(self) -> list[tuple[Shots, ...]]:
        """Prompts that go through the model together."""
        return [self.prompts[first : first + MOST_ROWS] for first in range(0, len(self.prompts), MOST_ROWS)]

    @property
    def parts(self) -> int:
        """Parts whose end is told."""
        return len(self.blocks) * len(self.queries)

    @property
    def dtype(self) -> str:
        """Type of weights and products."""
        return device.fastest_dtype() if self.settings.dtype == 'auto' else self.settings.dtype

    def writer(self) -> _Writer:
        """Writes the prompts; see `_Writer.of`."""
        return _Writer.of(self.settings, dict(self.words))

    def model(self) -> _Model:
        """The decoder, loaded once for all prompts of as many examples."""
        examples = len(self.words) * self.settings.examples_per_label
        shapes = self.writer().shapes(examples, family.ROWS_MULTIPLE * len(jax.local_devices()))
        return _load(self.settings.model, self.settings.files.checkpoint, self.dtype, shapes)


@functools.lru_cache(maxsize=4)
def answers(questions: Questions) -> np.ndarray:
    """Probabilities of the labels among themselves, `[prompts, queries, K]` float64, not to be written to.

    Prompts go through the model once, side by side. A text that is asked about is then read by all of
    them together, from each prompt's end.

    Raises:
        NotDefined: The prompts do not fit into memory.
    """
    writer, model = questions.writer(), questions.model()
    decoder, shapes, columns = model.decoder, model.decoder.shapes, np.array(writer.columns, np.int32)
    queries = [writer.query(text) for text in questions.queries]
    found, done = [], 0
    for block in questions.blocks:
        rows = shapes.micro_batches(len(block)) * shapes.micro_batch_size
        padding = [np.array(writer.header[:1], np.int32)] * (rows - len(block))
        try:
            states, cache = decoder.prefill([*map(writer.prompt, block), *padding], together=rows)
        except MemoryError:
            raise NotDefined(
                f'Prompts of {shapes.max_prompt_tokens} tokens do not fit into memory, {rows} at a time. '
                'Lower --in-context-examples.'
            ) from None
        logits = []
        for query in queries:
            tokens = np.zeros(shapes.max_example_tokens, np.int32)
            tokens[: len(query)] = query
            of_labels, states, cache = model.read(
                decoder.weights, states, cache, tokens, np.int32(len(query)), columns
            )
            logits.append(np.asarray(of_labels[: len(block)], np.float64))
            done += 1
            questions.progress(done)
        found.append(np.stack(logits, axis=1))
    shares = _softmax(np.concatenate(found))
    shares.flags.writeable = False
    return shares


def _softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def calibrated(probabilities: np.ndarray, content_free: np.ndarray) -> np.ndarray:
    """Contextual calibration (Zhao et al. 2021, section 5): W p with W = diag(p_cf)⁻¹ and b = 0.

    Args:
        probabilities: Of labels after each text, `[..., n, K]`.
        content_free: Of labels after each content-free input in the same prompt, `[..., c, K]`; p_cf is
            their mean.

    Returns:
        `[..., n, K]`, renormalised: one K-th each where a text says no more than content-free inputs do.
    """
    weighted = probabilities / content_free.mean(axis=-2, keepdims=True)
    return weighted / weighted.sum(axis=-1, keepdims=True)


# --- What was found --------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Outcome:
    """Answers of one kind of prompt.

    Attributes:
        averaged: Label of each text by calibrated probabilities, averaged over orders, `[draws, n]`.
        plain: The same without calibration.
        single: Label of each text by the calibrated probabilities of one order, `[draws, orders, n]`.
    """

    averaged: np.ndarray
    plain: np.ndarray
    single: np.ndarray

    @classmethod
    def of(cls, found: np.ndarray, draws: int) -> _Outcome:
        """The outcome of `answers` of all orders of each draw, whose first queries are content-free."""
        by_draw = found.reshape(draws, -1, *found.shape[1:])
        content_free, texts = np.split(by_draw, [len(CONTENT_FREE)], axis=2)
        fair = calibrated(texts, content_free)
        return cls(
            averaged=fair.mean(axis=1).argmax(axis=-1),
            plain=texts.mean(axis=1).argmax(axis=-1),
            single=fair.argmax(axis=-1),
        )


def _mean(of_draws: np.ndarray) -> _Mean:
    """Mean over draws with its standard error, which one draw has not."""
    count = len(of_draws)
    # Equal shares have no deviation, and not one of rounding.
    error = float(of_draws.std(ddof=1) / math.sqrt(count)) if np.ptp(of_draws) else 0.0
    return float(of_draws.mean()), error if count > 1 else None


def _findings(
    sources: Sources,
    questions: Questions,
    true: np.ndarray,
    prompts: Mapping[tuple[str, str], Sequence[Shots]],
    found: Mapping[tuple[str, str], _Outcome],
    lacking: Mapping[tuple[str, str], str],
) -> Findings:
    words = dict(questions.words)
    figures: dict[str, list[Figure]] = {'accuracy': [], 'plain': [], 'single': []}
    for key in (_CORPUS, _RECORDS, _PUBLIC, _ZERO_SHOT):
        prefix, title = key
        outcome, note = found.get(key), lacking.get(key, '')
        averaged: _Mean = (None, None)
        plain, single = averaged, averaged
        if outcome is not None:
            note = _note_of(prompts.get(key), words)
            averaged = _mean((outcome.averaged == true).mean(axis=-1))
            plain = _mean((outcome.plain == true).mean(axis=-1))
            single = _mean((outcome.single == true).mean(axis=(1, 2)))
        for kind, name, label, (value, error) in (
            ('accuracy', 'accuracy', f'Accuracy, {title}', averaged),
            ('plain', 'uncalibrated_accuracy', f'Accuracy without calibration, {title}', plain),
            ('single', 'one_order_accuracy', f'Accuracy of one order, {title}', single),
        ):
            if kind == 'single' and key == _ZERO_SHOT:
                continue
            figures[kind].append(
                Figure(
                    name=prefix + name,
                    label=label,
                    value=value,
                    standard_error=error,
                    better='higher' if key == _CORPUS and kind == 'accuracy' else 'neither',
                    note=note,
                )
            )
    counts = np.bincount(true, minlength=len(words))
    by_label = [
        float((found[_CORPUS].averaged[:, true == place] == place).mean()) if counts[place] else None
        for place in range(len(words))
    ]
    tested = [(label, value) for label, value in zip(words, by_label) if value is not None]
    return Findings(
        settings=_settings(sources, questions),
        figures=(
            *figures['accuracy'],
            Figure(
                name='majority_accuracy',
                label='Accuracy, majority label',
                value=float(counts.max() / len(true)),
                note='The best answer that is the same for all texts.',
            ),
            *figures['plain'],
            *figures['single'],
            Figure(
                name='test_texts',
                label='Texts asked about',
                value=len(true),
                note=f'Another draw of so many moves an accuracy by up to {0.5 / math.sqrt(len(true)):.2f}, '
                'beside the error over draws of examples.',
            ),
            *(
                Figure(
                    name=f'accuracy_by_label/{label}',
                    label=f'Accuracy on {label}',
                    value=value,
                    better='higher',
                )
                for label, value in zip(words, by_label)
            ),
        ),
        charts=(
            Chart(
                kind='bars',
                title='Accuracy on real texts by what a prompt shows',
                x_label='examples',
                y_label='accuracy',
                series=tuple(
                    Series(
                        name=name,
                        x=tuple(title for _, title in found),
                        y=tuple(float((labels == true).mean()) for labels in of_kind),
                    )
                    for name, of_kind in (
                        ('calibrated', [each.averaged for each in found.values()]),
                        ('not calibrated', [each.plain for each in found.values()]),
                    )
                ),
            ),
            Chart(
                kind='bars',
                title='Accuracy on real texts by label, with examples of the corpus',
                x_label='label',
                y_label='accuracy',
                series=(
                    Series(
                        name='calibrated',
                        x=tuple(label for label, _ in tested),
                        y=tuple(value for _, value in tested),
                    ),
                ),
            ),
        ),
    )


def _note_of(prompts: Sequence[Shots] | None, words: Mapping[str, str]) -> str:
    """Which labels have no example, where that is so."""
    if prompts is None:
        return ''
    missing = len(words) - len({label for _, label in prompts[0]})
    return f'No examples of {missing} of {len(words)} labels, which it lacks.' if missing else ''


def _settings(sources: Sources, questions: Questions) -> dict[str, Setting]:
    """All that the answers to the corpus's prompts depend on beside the texts."""
    settings, model, own = questions.settings, questions.model(), questions.prompts
    return {
        'model': settings.model,
        'model_fingerprint': model.fingerprint,
        'dtype': questions.dtype,
        'header': HEADER.format(labels='…'),
        'prompt': json.dumps(f'{BEFORE_TEXT} …{AFTER_TEXT} …', ensure_ascii=False),
        'label_words': ', '.join(words for _, words in questions.words),
        'label_score': 'probability of the first token after what the words of all labels begin with, among '
        'those of all labels',
        'calibration': 'divided by the mean over content-free inputs in the same prompt, renormalised',
        'content_free_inputs': json.dumps(CONTENT_FREE),
        'orders_averaged': 'calibrated probabilities, before the largest is taken',
        'examples_per_label': settings.examples_per_label,
        'examples_of_the_corpus': len(own[0]),
        'draws': settings.draws,
        'orders': len(own) // settings.draws,
        'all_orders': len(own) // settings.draws == math.factorial(len(own[0])),
        'most_orders': settings.most_orders,
        'test_texts': len(questions.queries) - len(CONTENT_FREE),
        'most_test_texts': settings.most_test_texts,
        'most_text_tokens': settings.most_text_tokens,
        'prompt_tokens': model.decoder.shapes.max_prompt_tokens,
        'standard_error': 'over draws of examples; the test texts are the same in all',
        'seed': sources.seed,
        **comparison.library_versions('jax', 'numpy'),
    }
