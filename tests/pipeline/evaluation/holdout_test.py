"""The holdout test: sees copies, keeps to its level without, and what it does with equal texts."""

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from models.clustering.embedder import TfidfEmbedder
from pipeline.evaluation import holdout
from pipeline.evaluation.holdout import Holdout, holdout_test
from pipeline.evaluation.measure import Findings, NotDefined
from pipeline.evaluation.sources import Sources, Texts
from tests.pipeline.evaluation.texts import figures_of

pytestmark = pytest.mark.heavy

VOCABULARY = 600


def texts(seed: int, count: int, start: int = 0) -> list[str]:
    """Texts of 8 to 30 words, frequent and rare ones; a third of the words follow from the one before."""
    rng = np.random.default_rng(seed)
    chances = 1 / np.arange(1, VOCABULARY + 1)
    lengths = rng.integers(8, 31, size=count)
    drawn = rng.choice(VOCABULARY, size=int(lengths.sum()), p=chances / chances.sum())
    for place in np.flatnonzero(rng.random(len(drawn)) < 1 / 3):
        drawn[place] = (drawn[place - 1] * 7 + 3) % VOCABULARY
    return [
        ' '.join(_word((start + word) % VOCABULARY) for word in row)
        for row in np.split(drawn, np.cumsum(lengths)[:-1])
    ]


def _word(number: int) -> str:
    """A word of four letters, another for each number."""
    return ''.join(chr(97 + number // 26**power % 26) for power in range(4))


@functools.cache
def embedder() -> TfidfEmbedder:
    return TfidfEmbedder.fit(texts(99, 500), max_terms=VOCABULARY, min_texts=1, dimensions=32, seed=0)


def measured(
    corpus: Sequence[str],
    records: Sequence[str],
    test: Sequence[str],
    seed: int = 0,
    units: tuple[Sequence[str], Sequence[str]] | None = None,
) -> Findings:
    of_records, of_test = (None, None) if units is None else map(tuple, units)
    sources = Sources(
        corpus=Texts(name='corpus', texts=tuple(corpus)),
        records=Texts(name='records', texts=tuple(records), units=of_records),
        test=Texts(name='test', texts=tuple(test), units=of_test),
        embedder=embedder(),
        seed=seed,
    )
    return Holdout().measure(sources, lambda *_: None)


def p_value(corpus: Sequence[str], records: Sequence[str], test: Sequence[str], seed: int = 0) -> float:
    value = figures_of(measured(corpus, records, test, seed))['p_value']
    assert value is not None
    return value


def edited(text: str, rng: np.random.Generator) -> str:
    """One word in ten, at least one, is another, and one is left out."""
    split = text.split()
    for place in rng.choice(len(split), size=max(1, len(split) // 10), replace=False):
        split[place] = 'other'
    del split[rng.integers(len(split))]
    return ' '.join(split).capitalize() + '.'


@pytest.fixture(autouse=True)
def _few_permutations(monkeypatch: pytest.MonkeyPatch) -> None:
    # Enough to go ten times below the level.
    monkeypatch.setattr(holdout, 'PERMUTATIONS', 999)


# --- What it sees ------------------------------------------------------------------


@pytest.mark.parametrize('are_edited', [False, True])
@pytest.mark.parametrize('seed', [0, 1])
def test_one_percent_of_copied_records_is_seen_at_2000(are_edited: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    corpus, records, test = (texts(10 * seed + part, 2000) for part in range(3))
    copied = set(rng.choice(2000, size=20, replace=False).tolist())
    for place in copied:
        corpus[place] = edited(records[place], rng) if are_edited else records[place]
    found = measured(corpus, records, test)
    figures = figures_of(found)
    assert figures['p_value'] is not None and figures['p_value'] < holdout.LEVEL
    # Too few to shift the whole.
    assert figures['record_is_nearer/trigrams'] == pytest.approx(0.5, abs=0.05)
    shown = [dict(sample.texts) for sample in found.samples]
    assert len(shown) == 5
    places = [records.index(sample['records']) for sample in shown]
    matched = [place in copied and sample['corpus'] == corpus[place] for place, sample in zip(places, shown)]
    assert sum(matched) >= (3 if are_edited else 5)
    # The other way round nothing is found.
    assert p_value(corpus, test, records) > 0.05


def test_a_general_shift_is_seen_where_no_record_is_copied() -> None:
    # The corpus and the records talk of one half of things a little more than the held-out texts.
    corpus, records, test = texts(1, 600), texts(2, 600), texts(3, 500) + texts(4, 100, start=5)
    found = figures_of(measured(corpus, records, test))
    assert found['p_value'] is not None and found['p_value'] < holdout.LEVEL
    shift = found['record_is_nearer/embedding']
    assert shift is not None and 0.5 < shift < 0.75
    assert p_value(corpus, test, records) > 0.05


# --- What it says without ----------------------------------------------------------


def test_it_keeps_to_its_level() -> None:
    draws = 200
    p_values = np.array(
        [
            p_value(*(texts(1000 + 3 * draw + part, count) for part, count in enumerate((60, 40, 50))))
            for draw in range(draws)
        ]
    )
    # Were each alarm as likely as the level says, so many would come in one of 10,000 such tests.
    most = stats.binom.isf(1e-4, draws, holdout.LEVEL)
    assert (p_values < holdout.LEVEL).sum() <= most == 9
    # One-sided: a permutation p-value may be larger than uniform, by ties, and not smaller.
    assert stats.kstest(p_values, 'uniform', alternative='greater').pvalue > 0.01
    assert np.quantile(p_values, 0.5) < 0.65


@pytest.mark.first
def test_the_p_value_is_that_of_all_permutations() -> None:
    """8 texts have 70 ways of being 4 records: the share of those that stand out as much is known."""
    similarities = {'a': np.array([0.9, 0.8, 0.8, 0.3, 0.2, 0.2, 0.1, 0.0])}
    for chosen in ((0, 1, 2, 3), (0, 1, 4, 5), (4, 5, 6, 7)):
        is_record = np.isin(np.arange(8), chosen)
        ranks = stats.rankdata(similarities['a'])
        expected = np.mean(
            [
                ranks[list(other)].sum() >= ranks[is_record].sum()
                for other in itertools.combinations(range(8), 4)
            ]
        )
        # With no k small enough to count, the ranks alone decide.
        found = holdout_test(similarities, is_record, seed=0, permutations=20_000)
        assert found.p_value == pytest.approx(expected, abs=0.01)
        assert found.p_of_top == {'a': 1.0}


def test_statistics_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(size=400), 1)
    is_record = rng.permutation(400) < 180
    values[is_record] += 0.05
    found = holdout_test({'a': values}, is_record, seed=0, permutations=9)
    shift = stats.mannwhitneyu(
        values[is_record], values[~is_record], alternative='greater', method='asymptotic',
        use_continuity=False,
    )  # fmt: skip
    assert found.p_of_shift['a'] == pytest.approx(shift.pvalue)
    tops = []
    for size in (8, 11, 16, 23, 32, 45, 64, 91):
        is_top = values >= np.sort(values)[-size]
        if is_top.sum() <= 200:
            tops.append(
                stats.hypergeom.sf((is_top & is_record).sum() - 1, 400, is_record.sum(), is_top.sum())
            )
    assert found.p_of_top['a'] == pytest.approx(min(tops))


def test_similarities_that_are_all_equal_say_nothing() -> None:
    assert holdout_test({'a': np.zeros(50)}, np.arange(50) < 25, seed=0, permutations=99).p_value == 1
    others = texts(1, 30), texts(2, 30)
    assert p_value(['一 二 三'], *others) == 1


# --- Units -------------------------------------------------------------------------


def _habits(seed: int) -> tuple[list[str], list[list[str]]]:
    """A corpus, and units of eight texts each that share a turn of phrase; the corpus has some turns."""
    rng = np.random.default_rng(seed)
    turns, units = texts(7000 + seed, 60), []
    for number, turn in enumerate(turns):
        own = texts(100_000 + 100 * seed + number, 8)
        units.append([f'{turn} {text}' for text in own])
    spoken = rng.choice(60, size=12, replace=False).tolist()
    others = texts(900_000 + seed, 80)
    return [f'{turns[number]} {text}' for number in spoken for text in texts(seed, 2)] + others, units


def test_it_keeps_to_its_level_where_units_have_many_like_texts() -> None:
    """One text of each unit does; all of them do not, for they are not drawn one by one."""
    draws, alarms = 40, {'texts': 0, 'units': 0}
    for seed in range(draws):
        corpus, units = _habits(seed)
        order = np.random.default_rng(seed).permutation(60).tolist()
        records, test = (
            [(text, str(number)) for number in half for text in units[number]]
            for half in (order[:30], order[30:])
        )
        for how, of in (
            ('texts', None),
            ('units', ([unit for _, unit in records], [unit for _, unit in test])),
        ):
            found = figures_of(measured(corpus, [t for t, _ in records], [t for t, _ in test], seed, of))
            assert found['p_value'] is not None
            alarms[how] += found['p_value'] < holdout.LEVEL
    # More than 4 alarms in 40 tests at the level have odds of less than one in 10,000.
    assert alarms['units'] <= stats.binom.isf(1e-4, draws, holdout.LEVEL) == 4
    assert alarms['texts'] > 10


def test_copies_are_seen_with_one_text_of_each_unit() -> None:
    corpus, records, test = texts(1, 300), texts(2, 600), texts(3, 600)
    corpus[:30] = records[:60:2]
    units = [str(number // 2) for number in range(600)], [f'other {number // 2}' for number in range(600)]
    found = figures_of(measured(corpus, records, test, units=units))
    assert found['p_value'] is not None and found['p_value'] < holdout.LEVEL
    assert found['records_compared'] == found['test_compared'] == 300 and found['units_on_both_sides'] == 0


def test_units_on_both_sides_are_left_out() -> None:
    corpus, records, test = texts(1, 50), texts(2, 100), texts(3, 100)
    units = [str(number) for number in range(100)], [str(number) for number in range(60, 160)]
    found = figures_of(measured(corpus, records, test, units=units))
    assert found['units_on_both_sides'] == 40 and found['records_compared'] == found['test_compared'] == 60
    assert figures_of(measured(corpus, records, test))['units_on_both_sides'] is None
    with pytest.raises(NotDefined, match='No unit is on one side alone'):
        measured(corpus, records, test, units=(units[0], units[0]))


# --- Equal texts -------------------------------------------------------------------


def test_a_phrase_that_many_records_repeat_raises_no_alarm() -> None:
    phrase = 'Please call us back at your earliest convenience about the matter.'
    corpus = texts(1, 200) + [phrase] * 20
    repeated = [phrase, phrase.upper(), phrase.replace(' ', '  ')] * 20
    records, test = texts(2, 200) + repeated, texts(3, 260)
    figures = figures_of(measured(corpus, records, test))
    assert figures['p_value'] is not None and figures['p_value'] > 0.05
    # One of the 60 is left.
    assert figures['records_compared'] == 201 and figures['on_both_sides'] == 0


def test_texts_on_both_sides_are_left_out() -> None:
    shared = texts(5, 50)
    corpus = texts(1, 100) + shared
    found = measured(corpus, texts(2, 100) + shared, texts(3, 100) + [text.upper() for text in shared])
    figures = figures_of(found)
    assert figures['on_both_sides'] == 50 and figures['records_compared'] == 100
    assert figures['p_value'] is not None and figures['p_value'] > 0.05
    assert not set(shared) & {dict(sample.texts)['records'] for sample in found.samples}


def test_a_source_that_is_the_other_is_not_defined() -> None:
    same = texts(1, 100)
    with pytest.raises(NotDefined, match='there are 0'):
        measured(texts(2, 50), same, same)


@pytest.mark.parametrize('counts', [(1, 100), (100, 1), (19, 100)])
def test_too_few_texts_are_not_enough(counts: tuple[int, int]) -> None:
    with pytest.raises(NotDefined, match='It takes 20 different'):
        measured(texts(1, 10), texts(2, counts[0]), texts(3, counts[1]))


def test_many_records_are_sampled_to_as_many_as_there_are_held_out() -> None:
    figures = figures_of(measured(texts(1, 1), texts(2, 400), texts(3, 40)))
    assert figures['records_compared'] == figures['test_compared'] == 40


def test_the_same_sources_give_the_same_findings_and_charts_begin_with_all() -> None:
    sources = texts(1, 50), texts(2, 60), texts(3, 70)
    found = measured(*sources)
    assert found == measured(*sources)
    for chart in found.charts:
        for series in chart.series:
            assert series.y[0] == 1 and list(series.y) == sorted(series.y, reverse=True)
