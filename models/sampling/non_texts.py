"""Sampled texts that are none: markup, a bare heading, the prompt's own words, another script, a fragment.

Each rule is a function of the text and of public words, so leaving such a text out costs nothing (METHOD 4e,
step 1). No rule knows a language: of two that share a script it tells none apart.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

type NonText = Literal['markup', 'heading', "prompt's words", 'another script', 'fragment']

# A tag of HTML or XML, an entity, or marks of Markdown.
_MARKUP = re.compile(r'</?[A-Za-z][^<>]{0,200}>|&[a-z]{2,8};|[*_`#~|>=-]+')
# One line that Markdown or a colon makes a heading.
_HEADING = re.compile(r'#{1,6} .*|\*\*[^*]+\*\*:?|__[^_]+__:?|.*:')
# Marks that follow something, so that no text begins with them. An ellipsis may.
_FOLLOWING = re.compile(r'(?!\.\.\.)[,.;:!?)\]}%|=]')
_FEWEST_LETTERS = 2
# Share of a text's letters that may be of scripts that the prompt has none of.
_MOST_OF_OTHERS = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicWords:
    """The words that a run's prompts are made of. Public.

    Attributes:
        names: What prompts call a text, its label and its attributes.
        others: Every other word of the prompts: the description, and the words of labels.
    """

    names: tuple[str, ...]
    others: tuple[str, ...] = ()


def non_text(text: str, words: PublicWords) -> NonText | None:
    """The kind of a sampled text that is none; None of a text.

    >>> words = PublicWords(names=('Utterance', 'Label'), others=('Questions to a bank.',))
    >>> non_text('Where is my card?', words), non_text('</em><strong>', words)
    (None, 'markup')
    >>> non_text('Where is my card? \\nUtterance 2: I lost it.', words), non_text('Opening hours:', words)
    ("prompt's words", 'heading')
    >>> non_text('Где моя карта?', words), non_text(', which is why I ask.', words)
    ('another script', 'fragment')
    """
    stripped = text.strip()
    if sum(map(str.isalnum, _MARKUP.sub(' ', stripped))) < _FEWEST_LETTERS:
        return 'markup'
    if _FOLLOWING.match(stripped):
        return 'fragment'
    names = '|'.join(re.escape(name) for name in words.names if name)
    if names and re.search(rf'(?mi)^\W*(?:{names})\s*\d*\s*:', stripped):
        return "prompt's words"
    if _HEADING.fullmatch(stripped):
        return 'heading'
    known = _scripts((*words.names, *words.others))
    letters = [_script(letter) for letter in stripped if letter.isalpha()]
    if known and sum(script not in known for script in letters) > _MOST_OF_OTHERS * len(letters):
        return 'another script'
    return None


def _scripts(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(_script(letter) for text in texts for letter in text if letter.isalpha())


def _script(letter: str) -> str:
    """The script of a letter: the first word of its name, as Unicode gives it."""
    return unicodedata.name(letter, 'unknown').partition(' ')[0]
