"""Texts that are none by their form, and others that only look like it."""

import pytest

from models.evolution import listing
from models.sampling.non_texts import PublicWords, non_text
from tests.models.evolution import made_up

WORDS = PublicWords(names=('Utterance', 'Label'), others=('Questions to a bank.', 'card lost'))


@pytest.mark.parametrize(
    ('text', 'kind'),
    [
        ('<strong>', 'markup'), ('</em>', 'markup'), ('<p class="a"></p>', 'markup'),
        ('&nbsp; &gt;', 'markup'),
        ('***', 'markup'), ('----\n====', 'markup'), ('?', 'markup'), ('', 'markup'),
        ('<br /><br />.', 'markup'),
        ('# Cards and accounts', 'heading'), ('**Cards**', 'heading'), ('Opening hours:', 'heading'),
        ('Utterance 2:', "prompt's words"), ('Label: card lost', "prompt's words"),
        ('I lost it.\nUTTERANCE 3: And another.', "prompt's words"), ('* Label 1: a', "prompt's words"),
        ('"Utterance": I lost it.', None),
        ('1. Utterance: I lost it.', None),
        (', and so I ask.', 'fragment'), ('- abbreviation: definition', None), (') is it.', 'fragment'),
        ('Где моя карта?', 'another script'), ('我的卡在哪里', 'another script'),
        ('My card wurde gesperrt.', None), ('Where is Жанна?', None), ('What is α?', None),
        ('... and so I ask.', None), ('@bank where is it?', None), ('#bank where is it?', None),
        ('"Where is it?"', None), ('$5 are missing.', None), ('1984', None),
        ('I <br /> wait <br /> here.', None),
        ('He said: wait.', None), ('First:\nwait.', None), ('A utterance: one.', None),
    ],
)  # fmt: skip
def test_a_text_by_its_form(text: str, kind: str | None) -> None:
    assert non_text(text, WORDS) == kind


def test_scripts_are_those_of_the_prompt() -> None:
    """Most of the letters count; a prompt without a letter has no script."""
    russian = PublicWords(names=('Вопрос',), others=('Вопросы клиентов банка.',))
    assert non_text('Где моя карта?', russian) is None
    assert non_text('Где карта Visa Electron?', russian) == 'another script'  # 12 of 20 letters
    assert non_text('Где моя карта Visa?', russian) is None
    assert non_text('Where is my card?', PublicWords(names=('1',))) is None


def test_a_list_leaves_them_out_unless_any_text_counts() -> None:
    texts = ('invoice refund', '</em> payment', 'Label: account', ', price')
    rows = [
        {'name': f'0-{place:05d}', 'text': text, 'label': 'a', 'parents': [], 'tokens': 9, 'truncated': False}
        for place, text in enumerate(texts)
    ]
    for words, kept in ((None, texts), (PublicWords(names=('Text', 'Label')), texts[:2])):
        listed, vectors = listing.listed(rows, made_up.settings(public_words=words), made_up.WordEmbedder())
        assert tuple(candidate.text for candidate in listed) == kept and len(vectors) == len(kept)
