"""Settings of prompts: what the model is asked for, and how much of it and of an answer there may be."""

import dataclasses
import functools

from models import bundled
from models.attributes import Attribute
from pipeline.settings import panel
from pipeline.settings.input import Input
from pipeline.settings.model import Model

_setting = functools.partial(panel.setting, 'Prompt')

# Names of `models.prompt_templates.PRESETS`, which takes NumPy along: --help answers at once.
PROMPT_PRESETS = (
    'document',
    'pretrained',
    'pretrained-json',
    'instruction',
    'instruction-pairs',
    'instruction-phrase',
    'instruction-json',
)
# An example has so many tokens before what ends it, or a quarter of its cap where that is fewer. 'Dear
# customer,' has 5 tokens of the bundled model and 3 of Gemma 3, 'This is the' 3 of both; a line break and the
# beginning of a stop text add up to 2. A low cap is for short texts.
DEFAULT_MIN_TOKENS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompt(Model):
    """Settings of prompts; the default form of a prompt depends on the model."""

    prompt: str | None = _setting(
        f'Prompt preset ({", ".join(PROMPT_PRESETS)}), or a TOML file with private, public and example. '
        "Default: 'document', and 'pretrained' for the bundled model, which was trained on it. "
        'The instruction presets are for instruction-tuned weights.',
        None,
        path='file',
        presets=PROMPT_PRESETS,
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
    schema: str | None = _setting(
        'File with the text that stands for {schema} in a prompt.', None, path='file'
    )
    typical_words: int | None = _setting(
        'Words of a typical record, about: public, declared, never counted. Caps of tokens, sizes of batches '
        'and what else suits that length then follow where they are not given.',
        None,
    )
    max_prompt_tokens: int = _setting('Length of a prompt; longer texts are cut.', 160)
    max_example_tokens: int = _setting('Length cap of one synthetic example.', 96)
    min_example_tokens: int | None = _setting(
        "Tokens that an example has before what ends it, so that 'Dear customer,' is no text; 0 for any "
        f'number. Free, as the cap is. Default: {DEFAULT_MIN_TOKENS}, or a quarter of --max-example-tokens '
        'where that is fewer; 0 with a structure, which says itself where a text ends.',
        None,
    )

    def check(self) -> None:
        self._check_positive('typical_words', 'max_prompt_tokens', 'max_example_tokens')
        least = self.min_example_tokens
        if least is not None and not 0 <= least <= self.max_example_tokens:
            raise ValueError(
                f'Expected 0 <= min_example_tokens <= max_example_tokens={self.max_example_tokens}, got '
                f'min_example_tokens={least}. Give 0 for texts of any length, or raise --max-example-tokens.'
            )

    @property
    def prompt_name(self) -> str:
        """The prompt as given, else the preset of the form that the model was trained on."""
        return self.prompt or ('pretrained' if self.model == bundled.MODEL else 'document')

    def label_attributes(self, declared: Input) -> tuple[Attribute, ...]:
        """The attributes of every label, with their names in prompts; empty where it is one value."""
        if not declared.attributes:
            return ()
        names = {name: name for name in declared.attributes}
        if self.label_name != type(self).label_name:
            for entry in self.label_name.split(','):
                column, _, name = map(str.strip, entry.partition('='))
                if column not in names or not name:
                    raise ValueError(
                        'Expected COLUMN=NAME of attributes in label_name, got '
                        f'label_name={self.label_name!r}, attributes={list(declared.attributes)!r}. Give '
                        f"--label-name '{declared.attributes[0]}=About', say, or leave it out: an attribute "
                        'is called as its column is.'
                    )
                names[column] = name
        return tuple(
            Attribute(
                column=column,
                name=names[column],
                words=tuple((value, its_words or value) for value, its_words in words.items()),
            )
            for column, words in declared.attribute_words.items()
        )
