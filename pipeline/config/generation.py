"""Settings of generation: prompts, public sampling, and lengths."""

import dataclasses
import functools
import json
import pathlib
import typing

from models.privacy.aggregates import AGGREGATES
from pipeline.config import panel

if typing.TYPE_CHECKING:
    from models.grammars.structure import Structure

_setting = functools.partial(panel.setting, 'Generation')

# Names of `models.prompts.PRESETS`, which takes NumPy along: --help answers at once.
PROMPT_PRESETS = (
    'document',
    'pretrained',
    'pretrained-json',
    'instruction',
    'instruction-pairs',
    'instruction-phrase',
    'instruction-json',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation(panel.Panel):
    """What the model is asked for, and how long its answers may get."""

    prompt: str | None = _setting(
        f'Prompt preset ({", ".join(PROMPT_PRESETS)}), or a TOML file with private, public and example. '
        "Default: 'document', and 'pretrained' for the bundled model, which was trained on it. "
        'The instruction presets are for instruction-tuned weights.',
        None,
    )
    label_name: str = _setting(
        "What prompts call the label, such as 'News Type'; of --attributes COLUMN=NAME,..., each by default "
        'as its column is called.',
        'Label',
        names_path=False,
    )
    text_name: str = _setting("What prompts call a text, such as 'Question'.", 'Text', names_path=False)
    corpus_description: str = _setting(
        "What the corpus is: the first line of prompts of the preset 'document', such as 'Abstracts of "
        "medical papers, one after another.' Public: never take it from the records.",
        'A collection of texts, one after another.',
        names_path=False,
    )
    schema: str | None = _setting('File with the text that stands for {schema} in a prompt.', None)
    json_schema: str | None = _setting(
        'File with a JSON Schema that every example is held to, in compact form; what it forces is free. It '
        'also stands for {schema} in a prompt. A keyword that is not enforced is refused by its name. '
        'Public: never take it from the records.',
        None,
    )
    regex: str | None = _setting(
        'Regular expression that every whole example is held to, in place of --json-schema.',
        None,
        names_path=False,
    )
    grammar: str | None = _setting(
        'File with a Lark grammar that every whole example is held to, in place of --json-schema: what is '
        'regular of it. What is not is refused by its name. It also stands for {schema} in a prompt.',
        None,
    )
    fixed: tuple[str, ...] = _setting(
        'FIELD=VALUE, comma-separated: declared fields of --json-schema that have this value in every '
        'example, forced and so free; in a TOML file a list of these. A value is JSON, or the characters of '
        'a string.',
        (),
        names_path=False,
    )
    condition_on: tuple[str, ...] = _setting(
        'Declared fields of --json-schema, comma-separated, each an enum, a boolean or a const, whose mix '
        'the corpus takes from the records: contexts are counted by their values, with noise, and every '
        'example is given values in the released shares. Declare them first: what comes before them in an '
        'example does not hang on them.',
        (),
        names_path=False,
    )
    close_truncated: bool = _setting(
        'Finish an example that a cap cut short with the shortest ending of --json-schema, --regex or '
        '--grammar. It stays marked as truncated.',
        False,
    )
    public_temperature: float = _setting('Temperature of public tokens.', 1.5)
    public_top_k: int | None = _setting(
        'K: sample only from the K most probable public tokens, so that a step computes their logits alone; '
        '0 for the whole vocabulary. Default: '
        + ', '.join(
            f'{known.default_public_top_k or "the whole vocabulary"} for the {name}'
            for name, known in AGGREGATES.items()
        )
        + '.',
        None,
    )
    max_prompt_tokens: int = _setting('Length of a prompt; longer texts are cut.', 160)
    max_example_tokens: int = _setting('Length cap of one synthetic example.', 96)
    max_batch_tokens: int | None = _setting(
        'Cap on all tokens of a batch, public ones too. Default: r, or 8 r with --threshold; with '
        'individual accounting 16 times the tokens that any context is paid for, and 1024 at most.',
        None,
    )

    def check(self) -> None:
        # The mechanism checks its own settings (`MechanismParams`).
        self._check_positive('max_prompt_tokens')
        self._check_structure()
        if self.public_top_k is not None and self.public_top_k < 0:
            raise ValueError(
                f'Expected public_top_k >= 0, got public_top_k={self.public_top_k}. Give a positive whole '
                'number, or 0 for the whole vocabulary.'
            )

    def _check_structure(self) -> None:
        kinds = {name: getattr(self, name) for name in ('json_schema', 'regex', 'grammar')}
        given = {name: value for name, value in kinds.items() if value is not None}
        shown = ', '.join(f'{name}={value!r}' for name, value in given.items())
        if len(given) > 1:
            raise ValueError(
                f'Expected json_schema or regex or grammar, got {shown}. An example is held to one: leave '
                'out the others.'
            )
        if self.schema is not None and given.keys() - {'regex'}:
            (name,) = given
            raise ValueError(
                f'Expected schema or {name}, got schema={self.schema!r}, {shown}. The file of '
                f'--{name.replace("_", "-")} stands for {{schema}} in a prompt: leave out --schema.'
            )
        if (self.fixed or self.condition_on) and self.json_schema is None:
            raise ValueError(
                f'Expected json_schema with fixed and condition_on, got fixed={list(self.fixed)!r}, '
                f'condition_on={list(self.condition_on)!r}, json_schema=None. Give --json-schema, which '
                'declares the fields.'
            )
        for entry in self.fixed:
            if not all(entry.partition('=')[:2]):
                raise ValueError(
                    f'Expected FIELD=VALUE in fixed, got {entry!r}. Give --fixed ward=Surgery, say.'
                )
        if self.close_truncated and not given:
            raise ValueError(
                'Expected json_schema, regex or grammar with close_truncated, got close_truncated=True and '
                'none of them. Give one: nothing else says how a text may end.'
            )

    @functools.cached_property
    def structure(self) -> 'Structure | None':
        """What every example has to be, its automaton built; None for any text. Reads the named file.

        Raises:
            FileNotFoundError: The file of the schema or the grammar is not there.
            ValueError: The schema, the pattern or the grammar is malformed, or has what is not enforced.
        """
        if self.json_schema is None and self.regex is None and self.grammar is None:
            return None
        # Needs NumPy: --help answers at once.
        from models.grammars.structure import Structure

        found = Structure(
            json_schema=_text_of('json_schema', self.json_schema, 'a JSON Schema'),
            regex=self.regex,
            grammar=_text_of('grammar', self.grammar, 'a Lark grammar'),
            closes_truncated=self.close_truncated,
            fixed=tuple((name, value) for name, _, value in (entry.partition('=') for entry in self.fixed)),
            condition_on=self.condition_on,
        )
        try:
            _ = found.automaton
        except json.JSONDecodeError as error:
            raise ValueError(
                f'Expected JSON in json_schema={self.json_schema!r}, got {error}. Correct the file.'
            ) from None
        return found


def _text_of(name: str, path: str | None, kind: str) -> str | None:
    """The text of a file that a setting names; None where it names none."""
    if path is None:
        return None
    if not pathlib.Path(path).is_file():
        raise FileNotFoundError(f'Expected {kind} at {name}={path!r}, which is no file. Check the path.')
    return pathlib.Path(path).read_text(encoding='utf-8').strip()
