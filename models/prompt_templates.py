"""Prompt templates: the named ones, and those of TOML files.

A template has a private form, which shows the texts of one context, and a public form, which shows none:
its placeholders are checked, so that no field of a record can reach it. Placeholders are `{examples}` (the
example form, once for each text), `{text}`, `{label}`, `{label_name}`, `{text_name}`,
`{corpus_description}` and `{schema}`; every other brace is ordinary text. A line of a template that holds
`{label}` is left out in runs without labels. Where labels combine attributes, `{label_name}: {label}` is
repeated for each attribute, on a line of its own where it is a whole line; `{label.COLUMN}` and
`{label_name.COLUMN}` are those of one attribute, as FT's templates have them. `<start_of_turn>` and
`<end_of_turn>` are control tokens where a template writes them, and ordinary text in a label, a
description, a schema, the response prefix or a record.
"""

import dataclasses
import pathlib
import re
import tomllib
from collections.abc import Iterable

from models.decoders.tokenizer import END_OF_TURN, START_OF_TURN
from models.stop_rule import check_stop_texts

# `label.COLUMN` and `label_name.COLUMN` are of one attribute.
PLACEHOLDER = re.compile(
    r'\{(examples|text|label(?:_name)?(?:\.[^{}\n]+)?|text_name|corpus_description|schema)\}'
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
        separator: Text between two examples; may hold what the public prompt may.
        response_prefix: Public text that the answer starts with: the prompts end with
            it and every synthetic example begins with it.
        stop: Stop texts, literally: an example ends where its text, without the response prefix,
            first holds one, and its text is the part before. The end of sequence and the end of
            turn always end an example.
        one_line: True if a record's text is shown as one line: without white space around it,
            and with one space for every run of white space. A line break as a stop text then
            ends a text and never cuts one short.
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
            placeholders = PLACEHOLDER.findall(form)
            if surplus := sorted(set(placeholders) - permitted - of_attributes(placeholders)):
                raise ValueError(
                    f'Expected the {name} form of a prompt to hold only {sorted(permitted)}, '
                    f'got placeholders={surplus}. Texts go into the example form, examples into the '
                    'private form; a public prompt may show no field of a record.'
                )
            if needed and placeholders.count(needed) != 1:
                raise ValueError(
                    f'Expected {{{needed}}} once in the {name} form of a prompt, '
                    f'got count={placeholders.count(needed)}. Write it exactly once.'
                )


def of_attributes(placeholders: Iterable[str]) -> set[str]:
    """The placeholders that name one attribute."""
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
