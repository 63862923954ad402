"""The report of votes on texts: valid, checked, and worked out again by its own lines of Python."""

import contextlib
import dataclasses
import io
import re
from typing import Any

import pytest

from models.privacy import accounting, report
from models.privacy.earlier_release import EarlierRelease, TextOrigin
from models.privacy.facts import Facts
from models.privacy.report import GroupPlan, PrivacyReport, text_votes
from models.privacy.report.earlier_releases import given_texts
from models.privacy.text_votes import TextVoteParams
from pipeline.pages import dataset_card, report_page
from tests.documents import check_document
from tests.models.privacy.report.samples import earlier, ledger_entry

PARAMS = TextVoteParams(rounds=3, noise_scale=12.5, nearest=4)
USER = TextVoteParams(rounds=1, noise_scale=9.75, unit='user', examples_per_context=8)
TOTALS = report.ChosenTotals(examples=200, voted=150, sampled_tokens=7_000, truncated=3)
COUNTED = (
    GroupPlan(label='World', batches=2, noisy_count=493),
    GroupPlan(label='Sports', batches=3, noisy_count=771),
)


def made(
    params: TextVoteParams = PARAMS,
    start: Facts = text_votes.SAMPLED_START,
    releases: tuple[EarlierRelease, ...] = (),
    **changes: Any,
) -> PrivacyReport:
    arguments: dict[str, Any] = {
        'run_id': 'run', 'delta': 1e-6, 'plan': (GroupPlan(label=None, batches=4),), 'corpus': TOTALS,
        'settings': {}, 'versions': {},
    }  # fmt: skip
    facts = text_votes.facts(params, start=start, releases=releases)
    return report.build_privacy_report(facts, **(arguments | changes))


def test_the_cost_is_that_of_all_rounds() -> None:
    found = made()
    assert found.statement == 'differential privacy'
    assert found.rho_total == pytest.approx(3 / (2 * 12.5**2), rel=1e-15)
    assert found.epsilon == PARAMS.epsilon(1e-6) < 0.93 * accounting.epsilon_from_rho(PARAMS.rho, 1e-6)
    [stage] = found.stages
    assert (stage.name, stage.rho, stage.formula, stage.numbers) == (
        'Votes on texts', PARAMS.rho, 'T/(2·noise²)', '3/(2·12.5²)',
    )  # fmt: skip
    assert [(row.value, row.formula) for row in found.sensitivities] == [(1.0, '1')]
    assert (found.rho_per_private_token, found.omega, found.order) == (None, None, None)
    assert found.guarantee.startswith('The noisy votes of every round, all texts of all rounds, the corpus')


@pytest.mark.parametrize(
    ('params', 'changes'),
    [
        (PARAMS, {}),
        (USER, {'declared_units': 5000}),
        # Of noise so little zCDP says less.
        (TextVoteParams(rounds=2, noise_scale=0.05), {}),
        (PARAMS, {'plan': COUNTED, 'noisy_counts_rho': 0.005}),
    ],
)
def test_the_reports_own_python_gives_its_figures(params: TextVoteParams, changes: dict[str, Any]) -> None:
    found = made(params, **changes)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(found.reproduction, {})
    rho, epsilon = map(float, re.findall(r'= ([-+\d.e]+)', printed.getvalue()))
    assert rho == pytest.approx(found.rho_total, rel=1e-9)
    # Losses of counts are on a grid, which the library chooses otherwise.
    assert epsilon == pytest.approx(found.epsilon, rel=1e-6 if changes.get('plan') else 1e-8)


def test_noisy_counts_are_a_stage_of_their_own_and_plan_no_batches() -> None:
    found = made(plan=COUNTED, noisy_counts_rho=0.005)
    assert [stage.name for stage in found.stages] == ['Noisy counts', 'Votes on texts']
    assert found.rho_total == pytest.approx(PARAMS.rho + 0.005, rel=1e-15)
    of_counts = accounting.DiscreteGaussianDpEvent(sigma=10.0)
    assert found.epsilon == accounting.epsilon_of_events([of_counts, PARAMS.event], 1e-6)
    assert PARAMS.epsilon(1e-6) < found.epsilon < 0.93 * accounting.epsilon_from_rho(found.rho_total, 1e-6)
    assert 'from which the number of texts of a label follows' in found.mechanism_output


@pytest.mark.parametrize('params', [PARAMS, USER])
def test_nothing_is_said_of_batches_or_tokens_and_the_key_is_named(params: TextVoteParams) -> None:
    for found in (made(params), made(params, plan=COUNTED, noisy_counts_rho=0.005)):
        sentences = ' '.join(
            (*found.assumptions_enforced, *found.assumptions_of_curator, *found.limits, found.accounting,
             found.mechanism_output, found.unit_of_privacy, *(stage.explanation for stage in found.stages))
        )  # fmt: skip
        assert not re.search(r'batch|private token|clip|\bcontexts?\b', sentences)
        assert 'follows from the run key' in sentences and 'operating system' not in sentences


def test_the_unit_is_the_one_of_the_settings() -> None:
    assert made().unit_noun == 'record' and 'one vote' in made().unit_of_privacy
    of_users = made(USER)
    assert of_users.unit_noun == 'user' and 'at most 8 records, of one label' in of_users.unit_of_privacy
    assert 'adding or removing any one user' in of_users.guarantee


def test_a_report_reads_back_and_is_a_published_document() -> None:
    for found in (made(), made(USER, plan=COUNTED, noisy_counts_rho=0.005)):
        text = found.to_json()
        assert PrivacyReport.from_json(text) == found
        check_document('privacy-report', text)
    assert text_votes.params_of(made().mechanism) == PARAMS


def test_a_cost_that_does_not_follow_from_the_settings_is_refused() -> None:
    """Also where every figure follows from the stages: an edited scale, and a round that is not paid for."""
    found = made()
    for setting in ({'noise_scale': 25.0}, {'rounds': 4}):
        with pytest.raises(ValueError, match='Expected one stage .* as the settings give it'):
            dataclasses.replace(found, mechanism={**found.mechanism, **setting})
    cheap = made(dataclasses.replace(PARAMS, rounds=1))
    with pytest.raises(ValueError, match='as the settings give it'):
        dataclasses.replace(cheap, mechanism=found.mechanism)
    [stage] = found.stages
    with pytest.raises(ValueError, match='as the settings give it'):
        dataclasses.replace(found, stages=(stage, stage))
    with pytest.raises(ValueError, match='rho_total to be the sum'):
        dataclasses.replace(found, rho_total=0.001)
    with pytest.raises(ValueError, match='epsilon to follow'):
        dataclasses.replace(found, epsilon=0.1, epsilon_of_run=0.1)


def test_settings_of_another_version_are_refused() -> None:
    with pytest.raises(ValueError, match='settings of votes on texts'):
        text_votes.params_of({**made().mechanism, 'colour': 'red'})


def test_a_ledger_charges_exactly_the_cost() -> None:
    found = made(ledger=ledger_entry(PARAMS.rho))
    assert "all 2 runs on dataset 'visits'" in found.data_accesses[1]
    with pytest.raises(ValueError, match='Expected the ledger to have charged what the run costs'):
        made(ledger=ledger_entry(2 * PARAMS.rho))


def test_where_the_first_list_comes_from_is_said() -> None:
    origin = TextOrigin(releases=(earlier('first'), earlier('before', through='first')))
    found = made(start=given_texts(text_votes.FIRST_LIST, origin), releases=origin.releases)
    assert "The first list is the corpus that the run 'first' released, or a part of it." in (
        found.assumptions_enforced
    )
    assert not any('saw none of these records' in row for row in found.assumptions_of_curator)
    public = made(start=given_texts(text_votes.FIRST_LIST, TextOrigin(vouched=True)))
    (said,) = [row for row in public.assumptions_of_curator if 'saw none of these records' in row]
    assert "That is the curator's word: no report and no card of a run lies beside these files" in said


@pytest.mark.parametrize('params', [PARAMS, USER])
def test_pages_show_it(params: TextVoteParams) -> None:
    found = made(params, plan=COUNTED, noisy_counts_rho=0.005)
    page = report_page.render_html(found)
    assert 'Votes on texts' in page and 'Xie et al. 2024' in page and '7,000' in page
    assert 'clip bound' not in page and 'cap on the private tokens' not in page
    card = dataset_card.render_card(found, columns={'text': ('string', 'the text')})
    assert 'chosen by the noisy votes of sensitive records' in card
