"""Words of any script, and the samples that measures of wording read."""

import numpy as np
import pytest

from pipeline.evaluation import words
from pipeline.evaluation.sources import Texts


@pytest.mark.parametrize(
    'text, expected',
    [
        ('Dr. Ames said: "It\'s 40°."', ['dr', 'ames', 'said', 'it', 's', '40']),
        ('snake_case, STRASSE Straße', ['snake', 'case', 'strasse', 'strasse']),
        ('नमस्ते दुनिया', ['नमस्ते', 'दुनिया']),
        ('我去了 Wien。', ['我', '去', '了', 'wien']),
        ('ที่นี่', ['ที่', 'นี่']),
        ('cafe\u0301 café ﬁn', ['café', 'café', 'fin']),
        ('... !!! 🙂', []),
        ('', []),
    ],
)
def test_words_of_any_script(text: str, expected: list[str]) -> None:
    assert words.words_of(text) == expected
    assert len(words.spans_of(text)) == len(expected)


def test_equal_words_have_equal_numbers_in_sources_read_together() -> None:
    one, other = words.read_words(
        [Texts(name='a', texts=('The cat.', '!', 'A dog')), Texts(name='b', texts=('the DOG',))], seed=0
    )
    assert one.bounds.tolist() == [0, 2, 2, 4]
    number = dict(zip(('the', 'cat', 'a', 'dog'), one.ids.tolist()))
    assert other.ids.tolist() == [number['the'], number['dog']]


def test_a_large_source_is_sampled_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Texts(
        name='a', texts=tuple(f'text {i}' for i in range(100)), labels=tuple(str(i) for i in range(100))
    )
    monkeypatch.setattr(words, 'MOST_TEXTS', 10)
    (read,) = words.read_words([source], seed=1)
    assert len(read) == 10 and read.texts.labels is not None
    indices = [int(label) for label in read.texts.labels]
    assert indices == sorted(set(indices)) and read.texts.texts == tuple(f'text {i}' for i in indices)
    assert words.read_words([source], seed=2)[0].texts != read.texts
    monkeypatch.undo()
    monkeypatch.setattr(words, 'MOST_WORDS', 31)
    (capped,) = words.read_words([source], seed=1)
    assert len(capped) == 15 and len(capped.ids) == 30
    monkeypatch.setattr(words, 'MOST_WORDS', 1)
    assert len(words.read_words([source], seed=1)[0]) == 1


def test_texts_are_taken_and_drawn_with_their_words() -> None:
    source = Texts(name='a', texts=tuple(f'{"word " * i}x{i}' for i in range(20)))
    (read,) = words.read_words([source], seed=0)
    taken = read.take(np.array([3, 0]))
    assert taken.texts.texts == (source.texts[3], source.texts[0])
    assert np.diff(taken.bounds).tolist() == [4, 1] and taken.ids[-1] == read.ids[0]
    drawn = read.draw(5, seed=0)
    assert len(set(drawn.texts.texts)) == 5 and drawn.texts != read.draw(5, seed=1).texts
    assert read.draw(20, seed=0) is read
