"""Longest common runs of words: against dynamic programming, and what is said of them."""

import difflib
import random
from collections.abc import Sequence

import pytest

from pipeline.evaluation import copies, words
from pipeline.evaluation.copies import Copies
from pipeline.evaluation.measure import Findings, NotDefined
from pipeline.evaluation.sources import Texts
from tests.pipeline.evaluation.placed import plain_sources
from tests.pipeline.evaluation.texts import figures_of


def measured(corpus: Sequence[str], records: Sequence[str], test: Sequence[str] | None = None) -> Findings:
    return Copies().measure(plain_sources(corpus, records=records, test=test), lambda *_: None)


def random_texts(seed: int, count: int, kinds: int) -> tuple[str, ...]:
    rng = random.Random(seed)
    return tuple(
        ' '.join(f'w{rng.randrange(kinds)}' for _ in range(rng.randrange(40))) + '.' for _ in range(count)
    )


@pytest.mark.parametrize('kinds', [1, 2, 4, 300])
def test_runs_are_those_of_an_independent_implementation(kinds: int) -> None:
    own, *others = (
        Texts(name=name, texts=random_texts(seed, count, kinds))
        for seed, (name, count) in enumerate((('corpus', 25), ('records', 20), ('test', 9)))
    )
    read = words.read_words([own, *others], seed=0)
    found = copies.longest_runs(read[0], read[1:])
    for target, runs in zip(others, found):
        for row, text in enumerate(own.texts):
            split = words.words_of(text)
            length, start, other = (array[row].item() for array in (runs.lengths, runs.starts, runs.others))
            expected = max(
                difflib.SequenceMatcher(None, split, words.words_of(of), autojunk=False)
                .find_longest_match()
                .size
                for of in target.texts
            )
            assert length == expected
            if length:
                run = split[start : start + length]
                held = words.words_of(target.texts[other])
                assert any(held[i : i + length] == run for i in range(len(held)))
            else:
                assert other == -1
    assert any(found[0].lengths != found[1].lengths) or kinds == 1


def test_no_run_crosses_from_one_text_into_the_next() -> None:
    figures = figures_of(measured(['a b', 'c d'], ['a b c d', 'x']))
    assert figures['longest_words'] == 2
    assert figures_of(measured(['a b c d'], ['a b', 'c d']))['longest_words'] == 2


def test_a_planted_passage_is_found_and_shown() -> None:
    secret = 'Her name is Vilma Orrendal, born in 1931 in Tarquin'
    corpus = [f'the number {i} is of no use' for i in range(50)] + [f'We write: {secret.upper()}!']
    records = [f'record {i} tells little' for i in range(40)] + [f'Intake. {secret}, she said.']
    found = measured(corpus, records, [f'record {i} tells little' for i in range(40, 81)])
    figures = figures_of(found)
    assert figures['longest_words'] == 10 and figures['longest_characters'] == len(secret)
    assert figures['test_longest_words'] == 1 and figures['records_longest_words'] == 10
    assert dict(found.samples[0].texts) == {
        'in both': secret.upper(), 'corpus': corpus[-1], 'records': records[-1],
    }  # fmt: skip
    line = found.charts[0].series[0]
    assert line.x[-1] == 10 and line.y[-1] == pytest.approx(1 / 51) and line.y[0] == 1


def test_whole_texts_are_counted() -> None:
    figures = figures_of(measured(['b c', 'a b x', '!', 'A, B c d'], ['a b c d', 'x']))
    assert figures['whole_texts'] == 2 / 4
    assert figures['mean_words'] == pytest.approx((2 + 2 + 0 + 4) / 4)


def test_texts_that_have_nothing_in_common() -> None:
    found = measured(['alpha beta', 'gamma'], ['delta'])
    assert figures_of(found)['longest_words'] == figures_of(found)['longest_characters'] == 0
    assert found.samples == ()


@pytest.mark.parametrize('count', [1, 30])
def test_identical_texts_and_long_ones(count: int) -> None:
    text = ' '.join(f'w{i % 7}' for i in range(3000))
    figures = figures_of(measured([text] * count, [text] * count))
    assert figures['longest_words'] == 3000 and figures['whole_texts'] == 1


def test_without_words_it_is_not_defined() -> None:
    for corpus, records in ((['!'], ['a']), (['a'], ['!'])):
        with pytest.raises(NotDefined, match='word'):
            measured(corpus, records)
