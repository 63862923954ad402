"""Prompts: private and public prompts as token ids, and text from token ids."""

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from models import attributes
from models.attributes import Attribute
from models.decoders.tokenizer import END_OF_TURN, START_OF_TURN, Tokenizer
from models.grammars import automaton, forced
from models.grammars.structure import Structure
from models.prompt_templates import PLACEHOLDER, PromptTemplate, of_attributes
from models.records import Context
from models.stop_rule import StopRule, cut_at_stop_text

if TYPE_CHECKING:
    from models.constraints import Constraint

_LABEL = re.compile(r'\{label(\.[^{}\n]+)?\}')
_NAMED_LABEL = '{label_name}: {label}'
# A line ends after its newline and, so that no marker is left out with it, at a turn marker.
_LINE_BREAK = re.compile(
    '|'.join(['(?<=\n)', *(f'(?={turn})|(?<={turn})' for turn in (START_OF_TURN, END_OF_TURN))])
)
_TURN = re.compile(f'<(?={START_OF_TURN[1:]}|{END_OF_TURN[1:]})')


def _without_turns(text: str) -> str:
    return _TURN.sub('< ', text)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PlainPrompts:
    """Writes prompts as plain text, and reads answers: for a model whose tokenizer is not here.

    Holds public values only, and is shown public texts only.

    Attributes:
        label_words: The words for each declared label in a prompt.
        label_name: The label's name in a prompt, such as `News Type`.
        attributes: The attributes whose values every label combines, with names and words; empty where a
            label is one value.
        text_name: A text's name in a prompt, such as `Question`.
        corpus_description: The text for `{corpus_description}`.
        schema: The text for `{schema}`.
    """

    template: PromptTemplate
    label_words: dict[str, str] = dataclasses.field(default_factory=dict)
    label_name: str = 'Label'
    attributes: tuple[Attribute, ...] = ()
    text_name: str = 'Text'
    corpus_description: str = 'A collection of texts, one after another.'
    schema: str | None = None

    def __post_init__(self) -> None:
        template = self.template
        forms = template.private + template.public + template.example + template.separator
        if '{schema}' in forms and self.schema is None:
            raise ValueError(
                'Expected a schema for a prompt that holds {schema}, got schema=None. Give --schema FILE, '
                'or --json-schema FILE.'
            )
        declared = {f'{prefix}.{one.column}' for one in self.attributes for prefix in ('label', 'label_name')}
        if unknown := sorted(of_attributes(PLACEHOLDER.findall(forms)) - declared):
            raise ValueError(
                f'Expected placeholders of declared attributes in a prompt, got placeholders={unknown}, '
                f'attributes={[one.column for one in self.attributes]}. Declare them with --attributes, or '
                'correct the template.'
            )

    def prompt_text(self, label: str | None, texts: Sequence[str] = ()) -> str:
        """The prompt as text: the public form, or the private form around texts that are public.

        Turn markers stand in it as words where the template has them, and nowhere else: those in a label, a
        description or a text are broken by a space. Lone surrogates become question marks.

        Args:
            label: The label that is asked for.
            texts: Public or released texts, shown whole; no record.

        Raises:
            ValueError: A line holds both a label and a text in a run without labels.
        """
        values = {name: _without_turns(value) for name, value in self._values(label).items()}
        forms = self._forms(label, len(texts)) if texts else [self._shown(self.template.public, label)]
        pieces = [PLACEHOLDER.sub(lambda match: values[match[1]], form) for form in forms]
        lines = [' '.join(text.split()) if self.template.one_line else text for text in texts]
        shown = [_without_turns(text) for text in lines]
        parts = [pieces[0], *(part for pair in zip(shown, pieces[1:], strict=True) for part in pair)]
        return ''.join([*parts, self.template.response_prefix]).encode(errors='replace').decode()

    @functools.cached_property
    def plain_stop(self) -> tuple[str, ...]:
        """The texts that end an answer: stop texts, and turn markers where the template has turns."""
        has_turns = _TURN.search(self.template.public) is not None
        return self.template.stop + ((END_OF_TURN, START_OF_TURN) if has_turns else ())

    def answer_text(self, answer: str) -> str:
        """The text of an answer, as `PromptWriter.texts` gives it."""
        return (self.template.response_prefix + cut_at_stop_text(answer, self.plain_stop)).strip()

    def _shown(self, form: str, label: str | None) -> str:
        """The form with a label's attributes named, and without its label lines in a run without labels."""
        lines = _LINE_BREAK.split(form)
        if label is not None:
            return ''.join(map(self._with_attributes, lines))
        if any(_LABEL.search(line) and ('{text}' in line or '{examples}' in line) for line in lines):
            raise ValueError(
                'Expected {label} on a line without {text} and {examples} in a run without labels, '
                f'got form={form!r}. Lines with {{label}} are left out there: give it a line of its own.'
            )
        return ''.join(line for line in lines if not _LABEL.search(line))

    def _with_attributes(self, line: str) -> str:
        """A line of a form; a named label in it becomes one named value for each attribute."""
        if not self.attributes:
            return line
        named = [
            f'{{label_name.{attribute.column}}}: {{label.{attribute.column}}}'
            for attribute in self.attributes
        ]
        is_whole = line.removesuffix('\n') == _NAMED_LABEL
        return line.replace(_NAMED_LABEL, ('\n' if is_whole else ', ').join(named))

    def _forms(self, label: str | None, texts: int) -> list[str]:
        """The private form around so many texts, cut at them."""
        template = self.template
        examples = self._shown(template.separator, label).join([self._shown(template.example, label)] * texts)
        return self._shown(template.private, label).replace('{examples}', examples).split('{text}')

    def _values(self, label: str | None) -> dict[str, str]:
        """The value of each placeholder."""
        known = {
            'label': self.label_words.get(label or '', label or ''),
            'label_name': ', '.join(attribute.name for attribute in self.attributes) or self.label_name,
            'text_name': self.text_name,
            'corpus_description': self.corpus_description,
            'schema': self.schema or '',
        }
        known |= {f'label_name.{attribute.column}': attribute.name for attribute in self.attributes}
        if label is not None and self.attributes:
            of_each = zip(self.attributes, attributes.values_of(label), strict=True)
            known |= {f'label.{attribute.column}': attribute.words_of(value) for attribute, value in of_each}
        return known


# Compared and hashed by identity, for the cache of encoded template pieces.
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PromptWriter(PlainPrompts):
    """Writes prompts as token ids and reads text back from token ids.

    Holds public values only; contexts are arguments.

    Attributes:
        tokenizer: The model's tokenizer.
        max_prompt_tokens: Every prompt fits into this many tokens: long texts are cut.
        structure: The structure that every example has; None for any text.
        mask: Name of the mask that restricts tokens, in `models.constraints.MASKS`; None for that of any
            text, and beside a structure.
        min_example_tokens: N: an example ends by the stop rule after at least N tokens; 0 for wherever it
            does. 0 beside a structure, which says itself where its texts end.
    """

    tokenizer: Tokenizer
    max_prompt_tokens: int
    structure: Structure | None = None
    mask: str | None = None
    min_example_tokens: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask is not None:
            # JAX, without which prompts in plain words are written.
            from models import constraints

            constraints.mask_of(self.mask)
        if self.structure is not None and self.min_example_tokens:
            raise ValueError(
                'Expected min_example_tokens=0 beside a structure, got '
                f'min_example_tokens={self.min_example_tokens}. It says where a text ends: leave it out.'
            )
        if self.structure is not None and self.mask is not None:
            raise ValueError(
                f'Expected either a structure or a mask, got mask={self.mask!r} beside a structure. '
                'Leave one out.'
            )

    def _fill(self, form: str, label: str | None) -> list[str]:
        """Cuts a form at its turn markers and puts the public values in: text, marker, ..., text.

        Values go in after the cut and in one pass, so that a label or a schema is never
        taken for a marker or a placeholder.
        """
        known = self._values(label)
        parts = self._turn_marker.split(form)
        parts[::2] = [PLACEHOLDER.sub(lambda match: known[match[1]], text) for text in parts[::2]]
        return parts

    def public_prompt(self, label: str | None) -> np.ndarray:
        """Token ids of the public prompt of a label, int32.

        Raises:
            ValueError: The prompt does not fit into `max_prompt_tokens`.
        """
        parts = self._fill(self._shown(self.template.public, label), label)
        parts[-1] += self.template.response_prefix
        ids = np.concatenate([self._start, *self._encode([parts])])
        if len(ids) > self.max_prompt_tokens:
            raise ValueError(
                f'Expected the public prompt to fit into max_prompt_tokens={self.max_prompt_tokens}, '
                f'got tokens={len(ids)}. Raise --max-prompt-tokens or shorten the template.'
            )
        return ids

    def private_prompts(self, label: str | None, contexts: Sequence[Context]) -> list[np.ndarray]:
        """Token ids of one private prompt for each context, int32, each of at most `max_prompt_tokens`.

        A total function: a prompt depends on its own context alone, and texts that do
        not fit are cut to equal shares of what the template leaves.
        """
        return self._around(label, [context.texts for context in contexts])

    def prompts_around(
        self, label: str | None, texts_of_prompts: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Token ids of one prompt for each list of public texts, int32, in the form of private prompts.

        For texts that were released, or public before. Texts that do not fit are cut like those of a context.

        Raises:
            ValueError: The template leaves no room.
        """
        return self._around(label, texts_of_prompts)

    def _around(self, label: str | None, texts_of_prompts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        flat = [self._as_shown(text) for texts in texts_of_prompts for text in texts]
        encoded = iter(self.tokenizer.encode_batch([' ' + text for text in flat]))
        bare = iter(self.tokenizer.encode_batch(flat))
        return [
            self._assemble(label, [(next(encoded), next(bare)) for _ in texts]) for texts in texts_of_prompts
        ]

    def continuations(self, texts: Sequence[str], max_tokens: int | None) -> list[np.ndarray]:
        """Token ids of texts as answers to the public prompt, each with the tokens that end it, int32.

        A text ends with its example form up to the first stop text, or with the first stop token where the
        template has no stop text. A longer text is cut to `max_tokens`, and then has no ending tokens. With
        None no text is cut.
        """
        shown = [cut_at_stop_text(self._as_shown(text), self._stop) for text in texts]
        prefix = self.template.response_prefix
        shown = [text.removeprefix(prefix) for text in shown]
        ending = self._ending
        return [np.concatenate([ids, ending])[:max_tokens] for ids in self.tokenizer.encode_batch(shown)]

    @functools.cached_property
    def _ending(self) -> np.ndarray:
        """The token ids that end a text."""
        if not self._stop:
            return np.array([min(self.tokenizer.stop_tokens)], np.int32)
        after = self.template.example.partition('{text}')[2]
        places = [(after.find(text), text) for text in self._stop if text in after]
        text = after[: min(places)[0]] + min(places)[1] if places else self._stop[0]
        return self.tokenizer.encode_batch([text])[0]

    def room(self, label: str | None, texts: int) -> int:
        """The number of tokens for each text in a private prompt of a label; longer texts are cut.

        Raises:
            ValueError: The template leaves no room.
        """
        pieces, _ = self._encoded_pieces(label, texts)
        room = self.max_prompt_tokens - len(self._start) - sum(map(len, pieces))
        return room // max(1, texts)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Tokens of texts as private prompts show them, before any is cut."""
        shown = [' ' + self._as_shown(text) for text in texts]
        return [len(ids) for ids in self.tokenizer.encode_batch(shown)]

    def _as_shown(self, text: str) -> str:
        if self.structure is not None and (shown := self.structure.shown(text)) != text:
            # JSON of one line.
            return shown
        return ' '.join(text.split()) if self.template.one_line else text

    def _assemble(self, label: str | None, texts: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """One private prompt from its texts, each tokenized with and without a space before it."""
        pieces, spaced = self._encoded_pieces(label, len(texts))
        share = self.room(label, len(texts))
        parts = [self._start, pieces[0]]
        for piece, (with_space, without), space in zip(pieces[1:], texts, spaced, strict=True):
            parts += [(with_space if space else without)[:share], piece]
        return np.concatenate(parts)

    @functools.lru_cache(maxsize=256)  # noqa: B019 - keys are public, and a run has one writer
    def _encoded_pieces(self, label: str | None, texts: int) -> tuple[list[np.ndarray], list[bool]]:
        """The ids of the template around the texts, and which texts follow a space.

        Raises:
            ValueError: The template alone leaves no room for the texts, or a line holds
                both a label and a text in a run without labels.
        """
        pieces = [self._fill(form, label) for form in self._forms(label, texts)]
        # A text after a space takes the space with it: SentencePiece begins a word with its space.
        spaced = [piece[-1].endswith(' ') for piece in pieces[:-1]]
        for piece in pieces[:-1]:
            piece[-1] = piece[-1].removesuffix(' ')
        pieces[-1][-1] += self.template.response_prefix
        ids = self._encode(pieces)
        if self.max_prompt_tokens - len(self._start) - sum(map(len, ids)) < texts:
            raise ValueError(
                'Expected the template to leave room for the texts of a context, got '
                f'max_prompt_tokens={self.max_prompt_tokens}. '
                'Raise --max-prompt-tokens or shorten the template.'
            )
        return ids, spaced

    def _encode(self, forms: list[list[str]]) -> list[np.ndarray]:
        """Filled forms as ids. Turn markers become control tokens here, and nowhere else."""
        markers = self.tokenizer.turn_markers
        if unknown := {part for parts in forms for part in parts[1::2]} - markers.keys():
            raise ValueError(
                f'Expected no turns in the prompt of a model that knows none, got markers={sorted(unknown)}. '
                "Choose the 'document' preset, or a template without turn markers."
            )
        texts = iter(self.tokenizer.encode_batch([text for parts in forms for text in parts[::2]]))
        return [
            np.concatenate(
                [
                    np.array(markers[part], np.int32) if index % 2 else next(texts)
                    for index, part in enumerate(parts)
                ]
            )
            for parts in forms
        ]

    @functools.cached_property
    def _turn_marker(self) -> re.Pattern[str]:
        """Finds the markers of turns in a template, a longer one before a shorter."""
        words = {START_OF_TURN, END_OF_TURN, *self.tokenizer.turn_markers}
        return re.compile(f'({"|".join(map(re.escape, sorted(words, key=len, reverse=True)))})')

    @functools.cached_property
    def _start(self) -> np.ndarray:
        return np.array(self.tokenizer.start_tokens, np.int32)

    @functools.lru_cache(maxsize=1)  # noqa: B019 - a run has one writer, and the constraint reads it too
    def stop_rule(self, vocab_size: int) -> StopRule:
        """The end of an example: end of sequence, end of turn, and the template's stop texts.

        A structure defines where its texts end, so stop texts are not used with it.
        """
        tokens, texts = self.tokenizer.stop_tokens, self._stop
        pieces = self.tokenizer.token_bytes() if texts else ()
        return StopRule.of(vocab_size, tokens=tokens, texts=texts, token_bytes=pieces)

    @property
    def _stop(self) -> tuple[str, ...]:
        return self.template.stop if self.structure is None else ()

    def constraint(self, vocab_size: int) -> 'Constraint':
        """The constraint of a run: the structure's, or that of its mask, held to the least length.

        Raises:
            ValueError: The structure cannot begin as examples do, or structure or mask cannot be spelled
                with these tokens.
        """
        from models import constraints

        released = self.released_tokens(vocab_size)
        if self.structure is None:
            tokens = constraints.Tokens(
                released, self.tokenizer.token_bytes, frozenset(self.tokenizer.stop_tokens)
            )
            constraint = constraints.mask_of(self.mask or constraints.AnyText.name).constraint(tokens)
            if not self.min_example_tokens:
                return constraint
            return constraints.LongEnough.held(
                constraint, self.stop_rule(vocab_size), self.min_example_tokens
            )
        return constraints.Grammar.of(
            self.structure.automaton,
            self.tokenizer.token_bytes(),
            tokens=released,
            stop_tokens=self.tokenizer.stop_tokens,
            forced_tokens=self.forced_table(),
            first=self._first_states(),
        )

    def forced_table(self) -> np.ndarray:
        """See `models.grammars.forced.forced_table`; of the structure and the tokenizer.

        Raises:
            ValueError: See `constraint`.
        """
        assert self.structure is not None
        self._first_states()
        return forced.forced_table(
            self.structure.automaton,
            self.tokenizer,
            self.tokenizer.token_bytes(),
            tokens=self.tokenizer.released_token_mask(),
            stop_tokens=self.tokenizer.stop_tokens,
        )

    def _first_states(self) -> tuple[int, ...]:
        """For each cell, the automaton's state after the response prefix, with which every example begins."""
        assert self.structure is not None
        prefix, structure_automaton = self.template.response_prefix, self.structure.automaton
        states = tuple(structure_automaton.walk(prefix.encode(), start) for start in self.structure.starts)
        if automaton.DEAD in states:
            raise ValueError(
                'Expected a prompt whose response prefix begins a text of the structure, got '
                f'response_prefix={prefix!r}. Choose another prompt, a template without it, or another '
                'structure.'
            )
        return states

    def released_tokens(self, vocab_size: int) -> np.ndarray:
        """`[vocab_size]` bool: token ids that may be sampled; a model's ids past the tokenizer's may not."""
        mask = np.zeros(vocab_size, bool)
        known = self.tokenizer.released_token_mask()[:vocab_size]
        mask[: len(known)] = known
        return mask

    def texts(self, token_ids: Sequence[Sequence[int]]) -> list[str]:
        """The texts of examples, each cut where it first holds a stop text.

        Each has the response prefix before it, which is never cut, and no white space around it. Texts of a
        structure are left as they are.
        """
        decoded = self.tokenizer.decode_batch([list(ids) for ids in token_ids])
        prefix, stop = self.template.response_prefix, self._stop
        if self.structure is not None:
            return [prefix + text for text in decoded]
        return [(prefix + cut_at_stop_text(text, stop)).strip() for text in decoded]

    def closed_texts(
        self, token_ids: Sequence[Sequence[int]], cells: Sequence[int] | None = None
    ) -> list[str]:
        """The texts of examples that a cap cut short, each with the shortest ending of the structure.

        A function of released tokens and public settings, so free.

        Args:
            token_ids: The token ids of each example.
            cells: The structure's cell of each; None where there is only one.
        """
        assert self.structure is not None
        pieces, prefix = self.tokenizer.token_bytes(), self.template.response_prefix.encode()
        return [
            self.structure.closed(prefix + b''.join(pieces[token] for token in ids), cell)
            for ids, cell in zip(token_ids, cells or [0] * len(token_ids), strict=True)
        ]
