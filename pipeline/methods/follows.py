"""Settings that follow from declared public numbers: the rules of lengths, which all methods share.

`--typical-words`, how many words a typical record has, and `--examples`, how many texts are wanted, are
declared by whoever knows the data, as `--records` is. What nobody gave then follows from them, from epsilon
and from the model, and from nothing else: a setting that follows from the records would cost budget that
nobody has paid (models/privacy/README.md, section 5). What was given always stays. Each method adds its own
rules in `pipeline/methods/NAME/follows.py`.

Tokens of a word, and the share of texts that are longer than twice the typical one, of some hundred public
texts each:

| texts | words, median | Gemma 3 | the bundled model | longer than twice, Gemma 3 |
|---|---|---|---|---|
| BANKING77, questions | 10 | 1.2 | 1.6 | 1 % |
| AG News, descriptions | 32 | 1.4 | 2.2 | 3 % |
| MTS-Dialog, sections | 14 | 1.4 | 2.1 | 33 % |
| IMDB, reviews | 184 | 1.3 | 1.9 | 14 % |
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from pipeline.settings.budget import Budget
from pipeline.settings.input import Input
from pipeline.settings.method import MethodSettings
from pipeline.settings.model import Model
from pipeline.settings.prompt import Prompt

# Tokens of a word where a vocabulary has hundreds of thousands of pieces, and where it has fewer.
_TOKENS_OF_WORD, _OF_SMALL_VOCABULARY, _SMALL_VOCABULARY = 1.4, 2.2, 100_000
# A cap is so many times the typical length, in whole steps: of so many words at the least, since a model
# whose texts are all cut has none, and of so many tokens at the most.
_CAP_OVER_TYPICAL, _STEP, _LEAST_WORDS, _LARGEST_CAP = 2, 16, 24, 1024
# Tokens of a prompt beside its texts, the description and the names: fences, line breaks, a few words.
_AROUND_TEXTS, _OF_INSTRUCTIONS = 32, 256
_SHORT_PROMPTS = ('document', 'pretrained')
# A token has at least so many bytes, of the languages that the models know.
_BYTES_OF_TOKEN = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Follows:
    """A setting that nobody gave, and the reason for its value: a sentence for the curator."""

    value: Any
    because: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked[M: MethodSettings]:
    """A run as far as somebody said it; defaults stand where nobody said anything. All of it public.

    Attributes:
        given: Names of the settings that somebody gave.
        delta: As given, or from the declared number of records; None where neither is known.
    """

    input: Input
    budget: Budget
    method: M
    given: frozenset[str]
    delta: float | None

    def without_given(self, following: Mapping[str, Follows]) -> dict[str, Follows]:
        """The settings among these that nobody gave."""
        return {name: follows for name, follows in following.items() if name not in self.given}


def tokens_of_words(model: Model, words: int) -> int:
    """Tokens of a text of so many words, with the one that ends it, at the upper end of what was measured."""
    small = model.model_sizes.num_embed < _SMALL_VOCABULARY
    # Without what a product of decimal fractions adds.
    return math.ceil(round((_OF_SMALL_VOCABULARY if small else _TOKENS_OF_WORD) * words, 6)) + 1


def typical_tokens(prompt: Prompt) -> int:
    """Tokens of a typical text: of the declared words, or half of the length cap where none are declared."""
    if prompt.typical_words is None:
        return max(1, prompt.max_example_tokens // _CAP_OVER_TYPICAL)
    return min(tokens_of_words(prompt, prompt.typical_words), prompt.max_example_tokens)


def of_lengths(asked: Asked[Any], *, texts_in_prompt: int) -> dict[str, Follows]:
    """The caps of a text and of a prompt, where nobody gave them.

    Of the texts that a prompt shows one is as long as the cap, and each of several is of typical length.
    """
    settings: Prompt = asked.method
    if settings.typical_words is None:
        return {}
    typical = tokens_of_words(settings, settings.typical_words)
    wanted = _stepped(_CAP_OVER_TYPICAL * typical)
    least = _stepped(tokens_of_words(settings, _LEAST_WORDS))
    cap = min(max(wanted, least), _LARGEST_CAP)
    because = (
        f'{settings.typical_words:,} words are about {typical:,} tokens of this model; the cap is twice '
        'that, since some texts are longer, and longer ones are cut'
    )
    if cap > wanted:
        because = f'{because}; and {cap} at the least'
    if cap < wanted:
        because = f'{because}, but {_LARGEST_CAP:,} at most: a higher one takes time and memory'
    following = {'max_example_tokens': Follows(value=cap, because=f'{because}.')}
    held = settings.max_example_tokens if 'max_example_tokens' in asked.given else cap
    around = tokens_around(settings, asked.input)
    texts = held if texts_in_prompt == 1 else min(typical, held) * texts_in_prompt
    shown = 'no text' if not texts_in_prompt else 'one text' if texts_in_prompt == 1 else 'several texts'
    following['max_prompt_tokens'] = Follows(
        value=_stepped(around + texts),
        because=f'A prompt holds {shown}, and about {around:,} tokens of description, names and labels.',
    )
    return asked.without_given(following)


def rows_together(prompt: Prompt, *, tokens: int, most: int) -> int:
    """Rows that go through the model together: of so many tokens in all, and `most` at the most."""
    return max(1, min(most, tokens // (prompt.max_prompt_tokens + prompt.max_example_tokens)))


def tokens_around(prompt: Prompt, declared: Input) -> int:
    """Tokens of a prompt beside its texts, rather too many than too few."""
    labels = max((len(words.encode()) for words in declared.label_words.values()), default=0)
    names = len(prompt.label_name.encode()) + len(prompt.text_name.encode())
    # The labels and the names stand twice where a prompt shows a text.
    size = len(prompt.corpus_description.encode()) + 2 * (labels + names)
    fixed = _AROUND_TEXTS + (0 if prompt.prompt_name in _SHORT_PROMPTS else _OF_INSTRUCTIONS)
    return fixed + math.ceil(size / _BYTES_OF_TOKEN)


def _stepped(tokens: int) -> int:
    return _STEP * math.ceil(tokens / _STEP)
