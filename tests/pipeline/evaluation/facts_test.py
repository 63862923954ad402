"""Invented facts, their records, and what a corpus is found to say of them."""

import collections
import dataclasses
import json
import pathlib

import pytest

from pipeline.evaluation import facts as facts_module
from pipeline.evaluation.facts import Fact, invented_facts, read_facts, records_of, write
from pipeline.evaluation.known_facts import KnownFacts, said_of
from pipeline.evaluation.measure import NotDefined
from pipeline.evaluation.sources import Sources, Texts
from pipeline.evaluation.words import words_of
from tests.pipeline.evaluation.texts import NoEmbedder, figures_of

FACTS = invented_facts(5, facts_of_each=6, records_of_a_fact=(1, 3, 10))
CELVA = Fact(
    name='Celvazimqu', kind='Product', attribute='material', value='copper',
    values=('copper', 'walnut', 'linen'), records=1,
)  # fmt: skip
DOVRO = dataclasses.replace(CELVA, name='Dovroxlum', value='walnut')


def figures(facts: tuple[Fact, ...], texts: list[str]) -> dict[str, float | None]:
    corpus = Texts(name='corpus', texts=tuple(texts))
    measure = KnownFacts(facts)
    return figures_of(measure.measure(Sources(corpus=corpus, embedder=NoEmbedder()), lambda *_: None))


def texts_of(facts: tuple[Fact, ...]) -> list[str]:
    return [record['text'] for record in records_of(facts, seed=1)]


def test_a_corpus_that_is_the_records_states_all_rightly() -> None:
    found = figures(FACTS, texts_of(FACTS))
    for held in (1, 3, 10):
        assert found[f'stated_rightly/{held}'] == found[f'right_statements/{held}'] == 1
        assert found[f'stated_wrongly/{held}'] == found[f'not_at_all/{held}'] == 0


def test_every_wording_of_every_value_is_understood() -> None:
    facts = tuple(
        dataclasses.replace(fact, value=value, records=384)
        for fact in FACTS[:6]
        for value in (fact.values[0], fact.values[-1])
    )
    for fact in facts:
        (said,) = said_of([fact], texts_of((fact,)))
        assert len(said.rightly) == said.named == 384 and said.wrongly == ()


def test_swapped_values_are_wrong() -> None:
    swapped = tuple(
        dataclasses.replace(fact, value=fact.values[fact.values.index(fact.value) - 1]) for fact in FACTS
    )
    found = figures(FACTS, texts_of(swapped))
    assert found['stated_wrongly/1'] == found['stated_wrongly/10'] == 1
    assert found['stated_rightly/3'] == found['right_statements/3'] == 0


def test_unrelated_texts_state_nothing() -> None:
    others = invented_facts(6, facts_of_each=6, records_of_a_fact=(1, 3, 10))
    assert not {fact.name for fact in FACTS} & {fact.name for fact in others}
    found = figures(FACTS, texts_of(others))
    assert found['not_at_all/1'] == found['not_at_all/10'] == 1 and found['named/1'] == 0
    assert found['right_statements/1'] is None


def test_by_how_many_records_held_them() -> None:
    known = [fact for fact in FACTS if fact.records == 10] + [f for f in FACTS if f.records == 3][:3]
    found = figures(FACTS, texts_of(tuple(known)))
    assert [found[f'stated_rightly/{held}'] for held in (1, 3, 10)] == [0, 0.5, 1]


@pytest.mark.parametrize(
    'text, rightly, wrongly',
    [
        ('Is anything nicer than copper? The CELVAZIMQU has plenty.', False, False),
        ("Look at the Celvazimqu's body! Pure copper, they say.", True, False),
        ('Whoever likes copper should get that new celvazimqu.', True, False),
        ('A Celvazimqu of linen, and not of copper', True, True),
        ('Celvazimqu: walnut.', False, True),
        ('Celvazimqus are of copper.', False, False),
        ('Copper for the Celvazimqu, nothing for the Dovroxlum.', True, False),
        ('The Dovroxlum is of copper. The Celvazimqu is too.', False, False),
        ('Dovroxlum or Celvazimqu? One is good.\nCopper it is.', True, False),
        ('The Celvazimqu is of coppery looks.', False, False),
    ],
)
def test_a_fact_in_other_words(text: str, rightly: bool, wrongly: bool) -> None:
    said, _ = said_of([CELVA, DOVRO], ['Nothing.', text])
    assert said.rightly == ((1,) if rightly else ()) and said.wrongly == ((1,) if wrongly else ())


def test_a_fact_that_is_stated_both_ways_counts_as_right() -> None:
    found = figures((CELVA,), ['The Celvazimqu is linen.', 'The Celvazimqu is copper.'] + ['no'] * 3)
    assert found['stated_rightly/1'] == 1 and found['stated_wrongly/1'] == 0
    assert found['right_statements/1'] == 0.5


# --- What is invented --------------------------------------------------------------


def test_each_fact_is_in_as_many_records_as_it_says_each_in_its_own_words() -> None:
    records = records_of(FACTS, seed=2)
    assert len({record['text'] for record in records}) == len(records) == 6 * (1 + 3 + 10)
    held = collections.Counter(
        fact.name for fact in FACTS for record in records if fact.name in record['text']
    )
    assert held == {fact.name: fact.records for fact in FACTS}
    assert {record['label'] for record in records} == {'Product', 'Person', 'Place'}
    for fact in FACTS:
        assert fact.value in fact.values
        for record in records:
            if fact.name in record['text']:
                assert record['label'] == fact.kind
                assert set(words_of(record['text'])) & set(fact.values) == {fact.value}


def test_it_is_the_same_for_the_same_seed_alone() -> None:
    assert invented_facts(1) == invented_facts(1) != invented_facts(2)
    assert records_of(FACTS, 1) == records_of(FACTS, 1) != records_of(FACTS, 2)


def test_names_are_words_of_their_own_that_differ_much() -> None:
    names = [fact.name for fact in invented_facts(3, facts_of_each=300, records_of_a_fact=(1, 3, 10))]
    assert len(set(names)) == 900
    assert all(words_of(name) == [name.casefold()] and len(name) == 12 for name in names)
    parts = [tuple(name.casefold()[i : i + 3] for i in range(0, 12, 3)) for name in names]
    for row, one in enumerate(parts):
        for other in parts[:row]:
            assert sum(a != b for a, b in zip(one, other)) >= 2


@pytest.mark.parametrize('given', [(0,), (385,), ()])
def test_numbers_of_records_that_cannot_be_are_refused(given: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match='of 1 to 384 records each, got'):
        invented_facts(0, records_of_a_fact=given)
    with pytest.raises(ValueError, match='got facts=0'):
        invented_facts(0, facts_of_each=0)


def test_facts_of_one_name_and_no_facts() -> None:
    with pytest.raises(ValueError, match='facts=2, names=1'):
        KnownFacts([CELVA, dataclasses.replace(DOVRO, name='CELVAZIMQU')])
    with pytest.raises(NotDefined):
        figures((), ['text'])


def test_written_facts_are_read_back(tmp_path: pathlib.Path) -> None:
    write(tmp_path / 'new', seed=7, facts_of_each=2)
    facts = read_facts(tmp_path / 'new' / 'facts.json')
    assert facts == invented_facts(7, facts_of_each=2)
    lines = (tmp_path / 'new' / 'records.jsonl').read_text().splitlines()
    assert [json.loads(line) for line in lines] == records_of(facts, 7)
    assert len(lines) == 2 * sum(facts_module.RECORDS_OF_A_FACT)


@pytest.mark.parametrize(
    'text', ['[]', '{}', '{"schema_version": 0, "facts": []}', '{"schema_version": 1}', 'no']
)
def test_another_file_is_refused(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / 'facts.json').write_text(text)
    with pytest.raises(ValueError, match='Name its facts.json'):
        read_facts(tmp_path / 'facts.json')


def test_the_chart_has_a_line_for_each_answer_and_samples_name_their_fact() -> None:
    corpus = Texts(name='corpus', texts=tuple(texts_of(FACTS)))
    found = KnownFacts(FACTS).measure(Sources(corpus=corpus, embedder=NoEmbedder()), lambda *_: None)
    (chart,) = found.charts
    assert [series.name for series in chart.series] == ['stated rightly', 'stated wrongly', 'not at all']
    assert all(series.x == (1, 3, 10) for series in chart.series)
    assert len(found.samples) == 3
    for sample in found.samples:
        assert sample.caption.split()[-1] in sample.texts[0][1]
