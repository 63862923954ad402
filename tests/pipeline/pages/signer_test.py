"""The part for whoever signs: its numbers are those of the report, and it says what holds of that run."""

import dataclasses
import doctest
import importlib.resources
import json
import math
import re

import pytest

from models.privacy import guess, report
from models.privacy.report import PrivacyReport
from pipeline.pages import report_page, signer
from tests.models.privacy.report import samples
from tests.pipeline.pages import every_page
from tests.pipeline.pages.report_page_test import Page, make, make_charged, plain

pytestmark = pytest.mark.heavy

FIELDS = {field.name: field.type for field in dataclasses.fields(signer.PublishedEpsilon)}


def first_part(made: PrivacyReport) -> str:
    page = report_page.render_html(made)
    part = page[page.index('<div class="signer">') : page.index('<section>\n<h2>The guarantee</h2>')]
    return plain(Page(part).text)


@pytest.fixture(scope='module')
def parts() -> dict[str, tuple[PrivacyReport, str]]:
    return {name: (made, first_part(made)) for name, made in every_page.reports().items()}


@pytest.mark.first
def test_it_stands_first_and_says_whom_the_release_protects(
    parts: dict[str, tuple[PrivacyReport, str]],
) -> None:
    for name, (made, part) in parts.items():
        assert part.startswith(f'{made.audience} Privacy report of'), name
        for sentence in (made.unit_of_privacy, *made.assumptions_of_curator):
            assert plain(sentence) in part, name
        for line in made.not_covered:
            assert plain(line.removeprefix('Not covered: '))[1:] in part, name


def test_the_guess_is_that_of_the_reports_epsilon() -> None:
    made = samples.build(dataclasses.replace(samples.PARAMS, max_private_tokens=20))
    assert made.epsilon is not None
    found = signer.of_report(made)
    assert [row.before for row in found.guesses] == [
        '1\N{NO-BREAK SPACE}%',
        '10\N{NO-BREAK SPACE}%',
        '50\N{NO-BREAK SPACE}%',
    ]
    for prior, row in zip(signer.PRIORS, found.guesses, strict=True):
        for text, epsilon in ((row.presence, made.epsilon), (row.contents, 2 * made.epsilon)):
            least, most = (float(each.split('\N{NO-BREAK SPACE}')[0]) / 100 for each in text.split(' to '))
            exact = guess.guess_after(prior, epsilon)
            # Rounded to the side on which the bound still holds, and by no more than a hundredth.
            assert 0.9 * exact.least <= least <= exact.least
            assert exact.most <= most <= 1.05 * exact.most
    ratio = math.exp(made.epsilon)
    assert found.even is not None
    assert float(found.even[1].split('\N{NO-BREAK SPACE}')[0]) == pytest.approx(
        100 * ratio / (1 + ratio), rel=0.005
    )
    assert found.chance == found.chance_of_short == '1 in 1,000,000'
    assert found.chance_of_contents == signer.chance(1e-6 * (1 + ratio))


@pytest.mark.parametrize('near', [1e-9, 2e-6, 3.3e-5, 0.004, 0.0999, 0.1, 0.31, 0.5])
@pytest.mark.parametrize('up', [True, False])
def test_a_percentage_stays_a_bound(near: float, up: bool) -> None:
    for value in (near, 1 - near):
        shown = float(signer.percent(value, 1 - value, up=up).split('\N{NO-BREAK SPACE}')[0]) / 100
        assert shown >= value - 1e-12 if up else shown <= value + 1e-12
        assert abs(shown - value) <= max(1e-6, 0.1 * min(value, 1 - value))


def sums(made: PrivacyReport) -> dict[str, str]:
    """Sums of several releases: what is read, and its epsilon."""
    row = r'<th scope="row">([^<]*)</th><td class="number">([\d.]+)</td>'
    return dict(re.findall(row, report_page.render_html(made)))


def test_several_runs_are_added_up_and_stand_in_the_first_sentence() -> None:
    made = make_charged(3)
    assert made.ledger is not None and made.epsilon is not None
    budget = report.epsilon_of_budget(made.ledger.rho_budget, None, made.ledger.delta, None)
    assert sums(made) == {
        'This release alone': report.format_up(made.epsilon),
        'All 3 releases so far': report.format_up(made.ledger.epsilon_after),
        'All that the ledger will ever admit': report.format_up(budget),
    }
    part, found = first_part(made), signer.of_report(made)
    assert 'and after reading all 3 releases from the same records so far' in part
    assert (
        found.even_together is not None and found.even_together[1].replace('\N{NO-BREAK SPACE}', ' ') in part
    )


def test_a_first_run_has_no_sum_and_one_without_a_ledger_has_nobody_for_it() -> None:
    assert list(sums(make_charged(1))) == ['This release alone', 'All that the ledger will ever admit']
    assert signer.of_report(make_charged(1)).even_together is None
    assert sums(make()) == {} and 'Nobody The sum with other releases' in first_part(make())
    assert 'Other runs on the same records' in first_part(make())


def test_the_unit_and_the_proof_are_those_of_the_run(parts: dict[str, tuple[PrivacyReport, str]]) -> None:
    sections = {
        'predict': 'sections 1 to 3', 'individual': 'sections 1 to 3', 'fine-tune': 'section 9',
        'adapter': 'section 9', 'evolve': 'section 10', 'median': 'section 6',
    }  # fmt: skip
    for name, section in sections.items():
        made, part = parts[name]
        assert f'models/privacy/README.md of the software, {section}.' in part
        if made.unit_noun == 'user':
            assert 'everything but the records of one user' in part and 'such as a family' in part
        elif made.epsilon is not None:
            assert 'everything but one record' in part and 'A person with several records' in part
    with_adapter = make(adapter='a' * 64, releases=(samples.earlier('T', tuned=True),))
    assert 'sections 1 to 3 and 9' in first_part(with_adapter)


def test_what_is_released_follows_from_the_report(parts: dict[str, tuple[PrivacyReport, str]]) -> None:
    for name, words in {
        'predict': '96 synthetic texts. The language model “gemma3-1b” wrote them while',
        'fine-tune': '500 synthetic texts. The language model “gemma3-270m” wrote them with an adapter',
        'adapter': 'An adapter: numbers that change the language model “gemma3-270m”',
        'evolve': '200 synthetic texts. Noisy votes of the records chose them',
        'refine': '200 synthetic texts. Noisy votes of the records chose them',
    }.items():
        assert words in parts[name][1]
    assert 'Noisy counts of the records of each label.' in parts['predict'][1]
    assert 'records of 5,000 users (a declared number)' in parts['evolve'][1]
    assert 'the number of users, 5,000, which was declared' in parts['evolve'][1]
    assert '1,264 records (a noisy count)' in parts['predict'][1]
    assert 'Noisy counts' not in parts['evolve'][1]


def test_a_median_states_no_number_and_compares_itself_with_nobody(
    parts: dict[str, tuple[PrivacyReport, str]],
) -> None:
    part = parts['median'][1]
    assert 'No bound was known before the run' in part and 'relies on the curator' in part
    assert 'ε beside' not in part and '%' not in part and 'computes ε again' not in part


def test_a_large_epsilon_and_a_large_delta_are_said() -> None:
    words = 'Such a guess can come close to certainty'
    assert words in first_part(every_page.reports()['large-epsilon'])
    assert words not in first_part(make())
    assert words in first_part(make_charged(3)), 'for all releases together'
    small, large = first_part(make()), first_part(make(delta=0.01))
    assert 'smaller than 1 divided by the number of records' in small and 'not below 1/n' not in small
    assert 'smaller than 1 divided by' not in large and 'not below 1/n' in large


def test_published_values_have_a_year_a_source_and_a_unit() -> None:
    text = (importlib.resources.files('pipeline.pages') / 'published_epsilons.json').read_text(
        encoding='utf-8'
    )
    rows = json.loads(text)
    assert len(rows) >= 5 and all(list(row) == list(FIELDS) for row in rows)
    found = signer.published()
    for row in found:
        assert 2008 <= row.year <= 2026
        assert row.address.startswith('https://') and len(row.source) > 10
        assert row.epsilon == tuple(sorted(set(row.epsilon))) and 1 <= len(row.epsilon) <= 2
        assert all(0 < value < 100 for value in row.epsilon)
        assert row.delta is None or 0 < row.delta < 1e-5
        assert (row.adds_up_over is None) == (not re.search(r'day|month', row.protects)), row.protects
        year = re.search(r'\b(20\d\d)\b', row.source)
        assert year and int(year[1]) >= row.year
    # Values for all time come before those that add up day by day.
    assert [row.adds_up_over is None for row in found] == sorted(
        (row.adds_up_over is None for row in found), reverse=True
    )
    assert len({(row.who, row.what) for row in found}) == len(found)


def test_published_values_stand_in_the_page_without_their_addresses() -> None:
    page = report_page.render_html(make())
    part = first_part(make())
    for row in signer.published():
        for words in (f'{row.who} {row.year}', row.what, row.protects, row.shown_epsilon, row.source):
            assert plain(words) in part
        assert row.address not in page


def test_a_page_made_again_from_json_is_the_same() -> None:
    made = make_charged(3)
    again = PrivacyReport.from_json(made.to_json())
    assert report_page.render_html(again) == report_page.render_html(made)


def test_docstring_examples() -> None:
    assert doctest.testmod(signer).failed == 0
