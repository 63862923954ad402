"""Prompts: named templates, private and public prompts as token ids, and text from token ids.

A template has a private form, which shows the texts of one context, and a public
form, which shows none: its placeholders are checked, so that no field of a record can
reach it. Placeholders are `{examples}` (the example form, once for each text),
`{text}`, `{label}`, `{label_name}`, `{text_name}`, `{corpus_description}` and `{schema}`;
every other brace is ordinary text. A line of a template that holds `{label}` is left out in
runs without labels. Where labels combine attributes, `{label_name}: {label}` stands for each of them, on a
line of its own where it is a whole line, and `{label.COLUMN}` and `{label_name.COLUMN}` for those of one
attribute, as FT's templates have them. `<start_of_turn>` and `<end_of_turn>` are control tokens where a
template writes them, and ordinary text in a label, a description, a schema, the response prefix or a record.
"""

import dataclasses
import functools
import pathlib
import re
import tomllib
from collections.abc import Iterable, Sequence

import numpy as np

from models import attributes
from models.attributes import Attribute
from models.constraints import Constraint, Grammar, Vocabulary
from models.decoders.tokenizer import END_OF_TURN, START_OF_TURN, Tokenizer
from models.grammars import automaton, forced
from models.grammars.structure import Structure
from models.records import Context
from models.stop_rule import StopRule, check_stop_texts, cut_at_stop_text

# `label.COLUMN` and `label_name.COLUMN` are of one attribute.
_PLACEHOLDER = re.compile(
    r'\{(examples|text|label(?:_name)?(?:\.[^{}\n]+)?|text_name|corpus_description|schema)\}'
)
_LABEL = re.compile(r'\{label(\.[^{}\n]+)?\}')
_NAMED_LABEL = '{label_name}: {label}'
# A line ends after its newline and, so that no marker is left out with it, at a turn marker.
_LINE_BREAK = re.compile(
    '|'.join(['(?<=\n)', *(f'(?={turn})|(?<={turn})' for turn in (START_OF_TURN, END_OF_TURN))])
)
_PUBLIC = frozenset({'label', 'label_name', 'text_name', 'corpus_description', 'schema'})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptTemplate:
    """One way to ask for another text like those shown.

    Attributes:
        private: The private prompt; holds `{examples}` once.
        public: The public prompt; may hold `{label}`, `{label_name}`, those of an attribute, `{text_name}`,
            `{corpus_description}` and `{schema}` only.
        example: The form of one text of the context within `{examples}`; holds `{text}` once.
        separator: What stands between two examples; may hold what the public prompt may.
        response_prefix: Public text that the answer starts with: the prompts end with
            it and every synthetic example begins with it.
        stop: Stop texts, taken as they stand: an example ends where its text, without the
            response prefix, first holds one, and its text is what comes before. The end of
            sequence and the end of turn always end one.
        one_line: Whether a text of a record is shown as one line: without white space around
            it, every run of white space within it as one space. So a line break, as a stop
            text, ends a text and never cuts one short.
    """

    private: str
    public: str
    example: str
    separator: str = '\n'
    response_prefix: str = ''
    stop: tuple[str, ...] = ()
    one_line: bool = False

    def __post_init__(self) -> None:
        check_stop_texts(self.stop)
        for name, form, needed, permitted in (
            ('private', self.private, 'examples', _PUBLIC | {'examples'}),
            ('example', self.example, 'text', _PUBLIC | {'text'}),
            ('public', self.public, None, _PUBLIC),
            ('separator', self.separator, None, _PUBLIC),
        ):
            found = _PLACEHOLDER.findall(form)
            if surplus := sorted(set(found) - permitted - _of_attributes(found)):
                raise ValueError(
                    f'Expected the {name} form of a prompt to hold only {sorted(permitted)}, '
                    f'got placeholders={surplus}. Texts go into the example form, examples into the '
                    'private form; a public prompt may show no field of a record.'
                )
            if needed and found.count(needed) != 1:
                raise ValueError(
                    f'Expected {{{needed}}} once in the {name} form of a prompt, '
                    f'got count={found.count(needed)}. Write it exactly once.'
                )


def _of_attributes(placeholders: Iterable[str]) -> set[str]:
    return {name for name in placeholders if '.' in name}


# `document` is ours, for weights that were only pretrained: they continue a document, and
# write program code after a bare label and a fence. The others follow the papers, in our
# words where theirs are not needed: PP figures 4 to 6, 9 and 10 (instruction), 7 and 8
# (instruction-phrase), 11 and 12 (json); CL appendix E.4 (pretrained, instruction-pairs).
# Turn markers stand where the papers write [User] and [Assistant].
_USER, _MODEL = f'{START_OF_TURN}user\n', f'{END_OF_TURN}\n{START_OF_TURN}model\n'
PRESETS = {
    'document': PromptTemplate(
        private='{corpus_description}\n\n{examples}\n\n{label_name}: {label}\n{text_name}:\n',
        example='{label_name}: {label}\n{text_name}:\n{text}',
        public='{corpus_description}\n\n{label_name}: {label}\n{text_name}:\n',
        separator='\n\n',
        stop=('\n',),
        one_line=True,
    ),
    'pretrained': PromptTemplate(
        private='{examples}\n{label}\n```\n',
        example='{label}\n```\n{text}\n```\n',
        public='{label}\n```\n',
        stop=('```',),
    ),
    'pretrained-json': PromptTemplate(
        private='{examples}\n```\n',
        example='```\n{text}\n```\n',
        public='```\n{schema}\n```\n\n```\n',
        stop=('```',),
    ),
    'instruction': PromptTemplate(
        private=_USER + 'Here are texts with {label_name}: {label}.\n\n{examples}\n\n'
        'Please give me another one.' + _MODEL + '{text_name}:',
        example='{text_name}: {text}',
        public=_USER + 'Here are texts with {label_name}: {label}.\n\n{text_name}: <one such text>\n\n'
        'Please give me another one.' + _MODEL + '{text_name}:',
    ),
    'instruction-pairs': PromptTemplate(
        private=_USER + '{examples}\n\nPlease write one more {text_name} of the same kind:\n'
        '{label_name}: {label}' + _MODEL,
        example='{label_name}: {label}\n{text_name}: {text}',
        public=_USER + 'Please write one {text_name}:\n{label_name}: {label}' + _MODEL,
        separator='\n\n',
    ),
    'instruction-phrase': PromptTemplate(
        private=_USER + 'Give me a text and the phrase in it that names its {label_name}.\n\n{examples}\n\n'
        'Please give me another phrase and text.\n'
        'IMPORTANT: the exact {label_name} phrase "{label}" must be in the text.\n' + _MODEL
        + 'Phrase: "{label}"\n{text_name}: "',
        example='Phrase: "{label}"\n{text_name}: "{text}"',
        public=_USER + 'Give me a text and the phrase in it that names its {label_name}.\n\n'
        'Phrase: "{label}"\n{text_name}: "<text with the phrase "{label}">"\n\n'
        'Please give me another phrase and text.\n'
        'IMPORTANT: the exact {label_name} phrase "{label}" must be in the text.\n' + _MODEL
        + 'Phrase: "{label}"\n{text_name}: "',
    ),
    'instruction-json': PromptTemplate(
        private=_USER + 'Here is a JSON record:\n\n{examples}\n\n'
        'Please give me another JSON record that complies with the above schema.' + _MODEL,
        example='{text}',
        public=_USER + 'Here is the schema for a JSON record:\nSchema:\n\n{schema}\n\n'
        'Please give me another JSON record that complies with the above schema.' + _MODEL,
        response_prefix='{',
    ),
}  # fmt: skip


def read_template(name: str) -> PromptTemplate:
    """The template of a preset, by its name, or of a TOML file, by its path.

    The file's keys are the attributes of `PromptTemplate`.

    Raises:
        ValueError: Neither a preset nor a file, an unknown key, a value of another type,
            or a public form that would show a field of a record.
    """
    if name in PRESETS:
        return PRESETS[name]
    path = pathlib.Path(name)
    if not path.is_file():
        raise ValueError(
            f'Expected a prompt preset or a template file, got prompt={name!r}. '
            f'Presets: {", ".join(PRESETS)}; a file holds private, public and example in TOML.'
        )
    entries = tomllib.loads(path.read_text(encoding='utf-8'))
    fields = {field.name for field in dataclasses.fields(PromptTemplate)}
    if unknown := sorted(set(entries) - fields):
        raise ValueError(
            f'Expected only {sorted(fields)} in a prompt template, got keys={unknown} in {name}. '
            'Correct or leave out these keys.'
        )
    if missing := sorted({'private', 'public', 'example'} - set(entries)):
        raise ValueError(
            f'Expected private, public and example in a prompt template, got no {missing} in {name}. '
            'Add these keys.'
        )
    stop, one_line = entries.pop('stop', []), entries.pop('one_line', False)
    # A bare string would fall apart into a stop text for each of its characters.
    if (
        not isinstance(stop, list)
        or not isinstance(one_line, bool)
        or not all(isinstance(text, str) for text in (*stop, *entries.values()))
    ):
        raise ValueError(
            'Expected texts in a prompt template, a list of texts as stop, and true or false as one_line, '
            f'got stop={stop!r}, one_line={one_line!r} in {name}. '
            'Write stop = ["..."], one_line = true, and every other value in quotes.'
        )
    return PromptTemplate(**entries, stop=tuple(stop), one_line=one_line)


# Compared and hashed by identity, for the cache of encoded template pieces.
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PromptWriter:
    """Writes prompts as token ids and reads text back from token ids.

    Holds public values only; contexts are arguments.

    Attributes:
        template: The forms of the prompts.
        tokenizer: The model's tokenizer.
        max_prompt_tokens: Every prompt fits into this many tokens: long texts are cut.
        label_words: What stands in a prompt for each declared label.
        label_name: What the label is called in a prompt, such as `News Type`.
        attributes: Those whose values make up every label, with their names and words; empty where a label
            is one value.
        text_name: What a text is called in a prompt, such as `Question`.
        corpus_description: The text that stands for `{corpus_description}`.
        schema: The text that stands for `{schema}`.
        structure: What every example has to be; None for any text.
    """

    template: PromptTemplate
    tokenizer: Tokenizer
    max_prompt_tokens: int
    label_words: dict[str, str] = dataclasses.field(default_factory=dict)
    label_name: str = 'Label'
    attributes: tuple[Attribute, ...] = ()
    text_name: str = 'Text'
    corpus_description: str = 'A collection of texts, one after another.'
    schema: str | None = None
    structure: Structure | None = None

    def __post_init__(self) -> None:
        template = self.template
        forms = template.private + template.public + template.example + template.separator
        if '{schema}' in forms and self.schema is None:
            raise ValueError(
                'Expected a schema for a prompt that holds {schema}, got schema=None. Give --schema FILE, '
                'or --json-schema FILE.'
            )
        declared = {f'{of}.{one.column}' for one in self.attributes for of in ('label', 'label_name')}
        if unknown := sorted(_of_attributes(_PLACEHOLDER.findall(forms)) - declared):
            raise ValueError(
                f'Expected placeholders of declared attributes in a prompt, got placeholders={unknown}, '
                f'attributes={[one.column for one in self.attributes]}. Declare them with --attributes, or '
                'correct the template.'
            )

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
        """A line of a form with each attribute in the place of a label that is named."""
        if not self.attributes:
            return line
        named = [f'{{label_name.{of.column}}}: {{label.{of.column}}}' for of in self.attributes]
        is_whole = line.removesuffix('\n') == _NAMED_LABEL
        return line.replace(_NAMED_LABEL, ('\n' if is_whole else ', ').join(named))

    def _fill(self, form: str, label: str | None) -> list[str]:
        """Cuts a form at its turn markers and puts the public values in: text, marker, ..., text.

        Values go in after the cut and in one pass, so that a label or a schema is never
        taken for a marker or a placeholder.
        """
        known = {
            'label': self.label_words.get(label or '', label or ''),
            'label_name': ', '.join(of.name for of in self.attributes) or self.label_name,
            'text_name': self.text_name,
            'corpus_description': self.corpus_description,
            'schema': self.schema or '',
        }
        known |= {f'label_name.{of.column}': of.name for of in self.attributes}
        if label is not None and self.attributes:
            of_each = zip(self.attributes, attributes.values_of(label), strict=True)
            known |= {f'label.{of.column}': of.words_of(value) for of, value in of_each}
        parts = self._turn_marker.split(form)
        parts[::2] = [_PLACEHOLDER.sub(lambda match: known[match[1]], text) for text in parts[::2]]
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
        flat = [self._as_shown(text) for context in contexts for text in context.texts]
        encoded = iter(self.tokenizer.encode_batch([' ' + text for text in flat]))
        bare = iter(self.tokenizer.encode_batch(flat))
        return [
            self._assemble(label, [(next(encoded), next(bare)) for _ in context.texts])
            for context in contexts
        ]

    def continuations(self, texts: Sequence[str], max_tokens: int | None) -> list[np.ndarray]:
        """Token ids of texts as an answer to the public prompt, each with what ends it, int32.

        What ends a text is its example form up to the first stop text, or the first stop token where the
        template has no stop text. A text that is longer is cut to `max_tokens`, and has no end.
        With None no text is cut.
        """
        shown = [cut_at_stop_text(self._as_shown(text), self._stop) for text in texts]
        prefix = self.template.response_prefix
        shown = [text.removeprefix(prefix) for text in shown]
        ending = self._ending
        return [np.concatenate([ids, ending])[:max_tokens] for ids in self.tokenizer.encode_batch(shown)]

    @functools.cached_property
    def _ending(self) -> np.ndarray:
        """Token ids of what ends a text."""
        if not self._stop:
            return np.array([min(self.tokenizer.stop_tokens)], np.int32)
        after = self.template.example.partition('{text}')[2]
        places = [(after.find(text), text) for text in self._stop if text in after]
        text = after[: min(places)[0]] + min(places)[1] if places else self._stop[0]
        return self.tokenizer.encode_batch([text])[0]

    def room(self, label: str | None, texts: int) -> int:
        """Tokens that a private prompt of a label has for each of its texts; what is longer is cut.

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
        """The template around the texts as ids, and which texts follow a space.

        Raises:
            ValueError: The template alone leaves no room for the texts, or a line holds
                both a label and a text in a run without labels.
        """
        template = self.template
        examples = self._shown(template.separator, label).join([self._shown(template.example, label)] * texts)
        form = self._shown(template.private, label).replace('{examples}', examples)
        pieces = [self._fill(piece, label) for piece in form.split('{text}')]
        # A text after a space takes the space with it: SentencePiece begins a word with its space.
        spaced = [piece[-1].endswith(' ') for piece in pieces[:-1]]
        for piece in pieces[:-1]:
            piece[-1] = piece[-1].removesuffix(' ')
        pieces[-1][-1] += template.response_prefix
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

    def stop_rule(self, vocab_size: int) -> StopRule:
        """What ends an example: end of sequence, end of turn, and the template's stop texts.

        A structure says itself where its texts end, and no stop text does.

        Args:
            vocab_size: V, of the model.
        """
        tokens, texts = self.tokenizer.stop_tokens, self._stop
        pieces = self.tokenizer.token_bytes() if texts else ()
        return StopRule.of(vocab_size, tokens=tokens, texts=texts, token_bytes=pieces)

    @property
    def _stop(self) -> tuple[str, ...]:
        return self.template.stop if self.structure is None else ()

    def constraint(self, vocab_size: int) -> Constraint:
        """What tokens are restricted to: those that text may contain, and those that the structure allows.

        Args:
            vocab_size: V, of the model.

        Raises:
            ValueError: The structure cannot begin as examples do, or be spelled with these tokens.
        """
        released = self.released_tokens(vocab_size)
        if self.structure is None:
            return Vocabulary.of(released)
        return Grammar.of(
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
        """The automaton's state after the response prefix, which every example begins with, of each cell."""
        assert self.structure is not None
        prefix, found = self.template.response_prefix, self.structure.automaton
        states = tuple(found.walk(prefix.encode(), start) for start in self.structure.starts)
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

        With the response prefix before each, in which nothing is cut, and no white space around it; of a
        structure as they are.
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
            token_ids: Of each example.
            cells: The structure's cell of each; None where it has but one.
        """
        assert self.structure is not None
        pieces, prefix = self.tokenizer.token_bytes(), self.template.response_prefix.encode()
        return [
            self.structure.closed(prefix + b''.join(pieces[token] for token in ids), cell)
            for ids, cell in zip(token_ids, cells or [0] * len(token_ids), strict=True)
        ]
