"""Rules on the words of the pages: the README is short, and no page repeats another."""

import collections
import re

from tests import pages
from tests.pages import ROOT

MOST_LINES = {'README.md': 150, 'CONTRIBUTING.md': 50}
# Shorter ones are names, figures and turns of phrase.
_LONGEST_REPEATED = 8


def repeated(texts: dict[str, str]) -> dict[str, list[str]]:
    """Sentences of more than eight words that stand twice, with the pages that they stand on."""
    where = collections.defaultdict(list)
    for name, text in texts.items():
        for sentence in pages.sentences(text):
            words = re.findall(r'\w+', sentence.lower())
            if len(words) > _LONGEST_REPEATED:
                where[' '.join(words)].append(name)
    return {sentence: names for sentence, names in where.items() if len(names) > 1}


def test_the_first_pages_are_short() -> None:
    lines = {name: len((ROOT / name).read_text().splitlines()) for name in MOST_LINES}
    assert {name: count for name, count in lines.items() if count > MOST_LINES[name]} == {}


def test_no_sentence_is_said_twice() -> None:
    assert repeated({pages.name_of(page): page.read_text() for page in pages.guide()}) == {}


def test_a_sentence_that_is_said_twice_is_found() -> None:
    said = 'A ledger keeps **the sum** of what all runs\non the [same](x.md) records cost.'
    cell = '| a | A ledger keeps the sum of what all runs on the same records cost. |'
    assert repeated({'a.md': f'# Title\n\n* Words. {said} More.', 'b.md': cell}) == {
        'a ledger keeps the sum of what all runs on the same records cost': ['a.md', 'b.md']
    }
    assert repeated({'a.md': 'Eight words that stand twice are no fault.', 'b.md': f'{said}'}) == {}
    assert repeated({'a.md': f'    {said}\n', 'b.md': f'```\n{said}\n```\n', 'c.md': said}) == {}
