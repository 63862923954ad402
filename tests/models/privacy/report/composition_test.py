"""All releases that went into a run: each once, in its statement, its list and its arithmetic."""

import contextlib
import dataclasses
import io
import json
import re
import typing

import pytest

from models.privacy import accounting, report
from models.privacy.accounting import subsampled
from models.privacy.earlier_release import EarlierRelease, each_once, handed_on
from models.privacy.gradients import TuningParams
from models.privacy.params import MechanismParams
from models.privacy.report import GroupPlan, Predicted, PrivacyReport, Tuned, Voted, words
from models.privacy.report.composition import epsilon_together
from models.privacy.text_votes import TextVoteParams
from pipeline.pages import dataset_card, report_page
from tests.documents import check_document
from tests.models.privacy.report.samples import build, earlier, finished, ledger_entry

VOTES = TextVoteParams(rounds=1, noise_scale=6.0)
TUNED = TuningParams(
    units=1000, expected_batch_size=100, tuning_steps=20, clip_norm=1.0, noise_multiplier=2.0
)
MEDIAN = MechanismParams(
    batch_size=255, clip_bound=6.0, temperature=2.0, max_private_tokens=300, max_batch_tokens=4000,
    aggregate='median',
)  # fmt: skip
FOREIGN = earlier('A', 0.5)
CHARGED = earlier('B', 0.25, dataset='visits')


def made(*releases: EarlierRelease, **changes: typing.Any) -> PrivacyReport:
    """The report of a round of votes into which these went."""
    arguments: dict[str, typing.Any] = {
        'run_id': 'C', 'delta': 1e-6, 'plan': (GroupPlan(label=None, batches=1),), 'settings': {},
        'corpus': report.ChosenTotals(examples=9, voted=9, sampled_tokens=0, truncated=0), 'versions': {},
        'commitment': 'c' * 32,
    }  # fmt: skip
    return report.build_privacy_report(Voted(mechanism=VOTES, releases=releases), **(arguments | changes))


def releases_of(text: str) -> tuple[EarlierRelease, ...]:
    """Releases that a report hands on to a run that its release goes into."""
    return PrivacyReport.from_json(text).handed_on('d' * 64)


def printed(python: str) -> list[float]:
    """Every epsilon that lines of Python print."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(python, {})  # noqa: S102 - the report's own
    return [float(number) for number in re.findall(r'epsilon = (\S+)', out.getvalue())]


def test_without_any_the_statement_is_of_the_run() -> None:
    found = made()
    assert found.epsilon == found.epsilon_of_run and found.releases == ()
    assert 'went in' not in found.to_json().replace('epsilon_of_run', '')


@pytest.mark.parametrize('entry', [None, ledger_entry(VOTES.rho, 0.25)], ids=['no ledger', 'ledger'])
@pytest.mark.parametrize('releases', [(FOREIGN,), (CHARGED,), (CHARGED, FOREIGN)])
def test_the_statement_is_of_all_and_each_is_named(
    releases: tuple[EarlierRelease, ...], entry: report.LedgerEntry | None
) -> None:
    found = made(*releases, ledger=entry)
    rho = VOTES.rho + sum(0.5 if release is FOREIGN else 0.25 for release in releases)
    assert found.epsilon == pytest.approx(accounting.epsilon_from_rho(rho, 1e-6), rel=1e-12)
    assert found.epsilon_of_run == VOTES.epsilon(1e-6) < found.epsilon
    up, own = report.format_up(found.epsilon), report.format_up(found.epsilon_of_run)
    named = ', '.join(repr(release.run_id) for release in releases)
    assert f'(run{"s" * (len(releases) > 1)} {named}), are (ε = {up}, δ = 1e-6)' in found.guarantee
    assert f'This run alone, given what went in, is (ε = {own}, δ = 1e-6).' in found.guarantee
    (covered,) = [row for row in found.data_accesses if row.startswith('Covered with what went in: ')]
    shown = report_page.render_html(found)
    card = dataset_card.render_card(found, columns={'text': ('string', 'the text')})
    for release in releases:
        assert f'the run {release.run_id!r} (private prediction; ε = ' in covered
        in_ledger = entry is not None and release is CHARGED
        said = f'The run {release.run_id!r} went in. The ledger charged it before this run, as run 1 on'
        assert in_ledger == any(said in row for row in found.assumptions_enforced)
        word = f'counts the run {release.run_id!r} too'
        assert in_ledger != any(word in row for row in found.assumptions_of_curator)
        assert f'>{release.run_id}</th>' in shown and release.run_id in card
    assert ('The sum of the ledger lacks' in covered) == (entry is not None and FOREIGN in releases)
    assert f'(ε = {up}' in card.replace('\\', '') and 'Releases that went in' in shown
    check_document('privacy-report', found.to_json())
    assert PrivacyReport.from_json(found.to_json()) == found


def test_what_the_ledger_lacks_is_added_to_its_sum() -> None:
    entry = ledger_entry(VOTES.rho, 0.25)
    found = made(CHARGED, FOREIGN, ledger=entry)
    of_all = accounting.epsilon_from_rho(entry.rho_after + 0.5, 1e-6)
    assert f'(ε = {report.format_up(of_all)}, δ = 1e-6)' in words.sections(found)['went_in'][0]
    rows = dict(
        re.findall(
            r'<th scope="row">([^<]*)</th><td class="number">([\d.]+)</td>', report_page.render_html(found)
        )
    )
    assert rows['All 2 releases so far, and 1 that the ledger lacks'] == report.format_up(of_all)
    assert rows['This release, and the 2 that went in'] == report.format_up(found.epsilon or 0.0)
    assert rows['This release alone'] == report.format_up(found.epsilon_of_run or 0.0)


@pytest.mark.parametrize('tuned', [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize('votes', [True, False])
def test_its_lines_of_python_print_both_figures(tuned: tuple[bool, bool], votes: bool) -> None:
    releases = tuple(
        earlier(name, 0.3, tuned=of, identity=name) for name, of in zip('AB', tuned, strict=True)
    )
    if votes:
        # Losses of ρ alone are not known; those of these votes are.
        costs = {'Votes on texts': VOTES.event}
        epsilon = VOTES.epsilon(1e-6)
        releases = tuple(
            release if of else dataclasses.replace(release, costs=costs, epsilon=epsilon)
            for release, of in zip(releases, tuned, strict=True)
        )
    found = made(*releases)
    alone, together = printed(found.reproduction)
    assert alone == pytest.approx(found.epsilon_of_run, rel=1e-6)
    # The library's grids differ from those of the report, which are rounded upwards too.
    assert together == pytest.approx(found.epsilon, rel=2e-3 if any(tuned) else 1e-6)


def test_lines_of_python_of_a_large_epsilon_print_it() -> None:
    for rho in (None, 0.5):
        params = dataclasses.replace(TUNED, noise_multiplier=0.1, label_mix_rho=rho)
        plan = (GroupPlan(label=None, batches=1, noisy_count=None if rho is None else 5),)
        found = finished(Tuned(mechanism=params), plan=plan)
        assert found.epsilon == subsampled.epsilon_of_event(params.event, 1e-6) > 500
        assert printed(found.reproduction) == [pytest.approx(found.epsilon, rel=1e-9)]


def test_losses_of_training_and_votes_are_composed() -> None:
    found = made(earlier('T', tuned=True))
    trained = earlier('T', tuned=True).costs['Fine-tuning']
    assert found.epsilon == accounting.epsilon_of_events([VOTES.event, trained], 1e-6)
    curves = accounting.compose(map(accounting.curve_of, [VOTES.event, trained]))
    assert earlier('T', tuned=True).epsilon < found.epsilon < curves.epsilon(1e-6)


def test_a_chain_of_three_is_in_the_last_report() -> None:
    first = made(run_id='A', commitment='a' * 32)
    second = made(*releases_of(first.to_json()), run_id='B', commitment='b' * 32)
    third = made(*releases_of(second.to_json()))
    assert [(of.run_id, of.through) for of in third.releases] == [('B', None), ('A', 'B')]
    three = dataclasses.replace(VOTES, rounds=3)
    assert third.epsilon == pytest.approx(three.epsilon(1e-6), rel=1e-12)
    fourth = made(*releases_of(third.to_json()), run_id='D', commitment='d' * 32)
    assert [(of.run_id, of.through) for of in fourth.releases] == [('C', None), ('B', 'C'), ('A', 'B')]


def test_a_middle_report_whose_list_is_dropped_is_told() -> None:
    """The twin that is open: one hop alone is counted, as the report of the middle run says it then."""
    first = made(run_id='A', commitment='a' * 32)
    second = made(*releases_of(first.to_json()), run_id='B', commitment='b' * 32)
    dropped = json.loads(second.to_json())
    dropped['method']['releases'] = []
    with pytest.raises(ValueError, match='Expected epsilon to follow .* and what went in'):
        releases_of(json.dumps(dropped))
    all_three = dataclasses.replace(VOTES, rounds=3).epsilon(1e-6) * (1 - 1e-9)
    assert (made(*releases_of(second.to_json())).epsilon or 0.0) >= all_three
    # One hop, as before this list was there: less than all three, so the comparison tells it.
    (own, *_) = releases_of(second.to_json())
    assert (made(own).epsilon or 0.0) < all_three
    with pytest.raises(ValueError, match='Expected epsilon to follow .* and what went in'):
        dataclasses.replace(
            made(*releases_of(second.to_json())), method=Voted(mechanism=VOTES, releases=(own,))
        )


def test_what_goes_in_on_two_ways_is_counted_once() -> None:
    first = earlier('A', 0.5)
    left, right = (handed_on(earlier(name, 0.1), [first]) for name in ('left', 'right'))
    releases = each_once(left, right)
    assert [release.run_id for release in releases] == ['left', 'right', 'A']
    found = made(*releases)
    assert found.epsilon == pytest.approx(accounting.epsilon_from_rho(VOTES.rho + 0.7, 1e-6), rel=1e-12)
    with pytest.raises(ValueError, match='each release that went in once'):
        made(*left, *right)
    # Given directly, too, it is the direct one that the list shows.
    assert [release.through for release in each_once(left, (first,))] == [None, None]
    # Another run of the same name and cost is another release.
    assert len(each_once((first,), (dataclasses.replace(first, identity='other'),))) == 2


def test_costs_of_another_unit_are_not_added_and_are_named() -> None:
    found = made(earlier('U', 0.5, unit='user'))
    assert found.epsilon == found.epsilon_of_run and found.guarantee.endswith('see what is not covered.')
    (said,) = [row for row in found.not_covered if "the run 'U'" in row]
    assert 'for any one user' in said and 'under a unit of its own' in said
    mixed = made(earlier('U', 0.5, unit='user'), FOREIGN)
    assert mixed.counted == (FOREIGN,)


def test_a_run_without_a_price_lists_what_went_in() -> None:
    found = finished(Predicted(mechanism=MEDIAN, releases=(FOREIGN,)))
    assert found.epsilon is None and found.releases == (FOREIGN,)
    assert any("the run 'A'" in row for row in found.not_covered)
    assert PrivacyReport.from_json(found.to_json()) == found


def test_samples_of_an_adapter_hand_on_the_run_that_trained_it() -> None:
    trained = earlier('T', tuned=True, told_by='card', costs={'Fine-tuning': TUNED.event})
    before = dataclasses.replace(FOREIGN, through='T')
    method = Tuned(mechanism=TUNED, trains=False, releases=(trained, before))
    sampled = finished(method, run_id='S', declared_units=1000)
    assert not sampled.reads_records and sampled.epsilon_of_run == trained.epsilon
    assert sampled.epsilon == epsilon_together([trained.costs, FOREIGN.costs], 1e-6)
    assert "The run 'T' alone, given what went in" in sampled.guarantee
    direct, further = releases_of(sampled.to_json())
    assert (direct.run_id, direct.sampled_by, direct.identity) == ('T', 'S', trained.identity)
    assert further == before
    with pytest.raises(ValueError, match='run that trained the adapter first among the releases'):
        alone = dataclasses.replace(method, releases=())
        dataclasses.replace(sampled, method=alone, epsilon=sampled.epsilon_of_run)


def test_a_cost_that_does_not_give_its_epsilon_is_refused() -> None:
    with pytest.raises(ValueError, match='Expected epsilon to follow from the costs of run_id='):
        made(dataclasses.replace(FOREIGN, epsilon=0.01))


def test_stages_become_costs() -> None:
    assert made().method.costs == {'Votes on texts': VOTES.event}
    predicted = build()
    assert predicted.method.costs == {
        stage.name: accounting.ZCDpEvent(rho=stage.rho) for stage in predicted.stages if stage.rho
    }
