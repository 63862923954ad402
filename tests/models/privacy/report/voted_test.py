"""The report of votes on texts: valid, checked, and worked out again by its own lines of Python."""

import contextlib
import dataclasses
import io
import re
from typing import Any

import pytest

from models.privacy import accounting
from models.privacy.report import GroupPlan, PrivacyReport, Voted
from models.privacy.text_votes import TextVoteParams
from tests.documents import check_document
from tests.models.privacy.report.samples import finished, ledger_entry

PARAMS = TextVoteParams(rounds=3, noise_scale=12.5, nearest=4)
USER = TextVoteParams(rounds=1, noise_scale=9.75, unit='user', examples_per_context=8)


def made(params: TextVoteParams = PARAMS, **changes: Any) -> PrivacyReport:
    return finished(Voted(mechanism=params), **changes)


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
        # Noise so little has a smaller bound by zCDP.
        (TextVoteParams(rounds=2, noise_scale=0.05), {}),
    ],
)
def test_the_reports_own_python_gives_its_figures(params: TextVoteParams, changes: dict[str, Any]) -> None:
    found = made(params, **changes)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(found.reproduction, {})
    rho, epsilon = map(float, re.findall(r'= ([-+\d.e]+)', printed.getvalue()))
    assert rho == pytest.approx(found.rho_total, rel=1e-9)
    assert epsilon == pytest.approx(found.epsilon, rel=1e-8)


def test_counts_that_nobody_paid_for_are_refused() -> None:
    with pytest.raises(ValueError, match='paid=False'):
        made(plan=(GroupPlan(label='World', batches=2, noisy_count=493),))


@pytest.mark.parametrize('params', [PARAMS, USER])
def test_nothing_is_said_of_batches_or_tokens_and_the_key_is_named(params: TextVoteParams) -> None:
    found = made(params)
    sentences = ' '.join(
        (*found.assumptions_enforced, *found.assumptions_of_curator, *found.limits, found.accounting,
         found.mechanism_output, found.unit_of_privacy, *(stage.explanation for stage in found.stages))
    )  # fmt: skip
    assert not re.search(r'batch|private token|clip|\bcontexts?\b', sentences)
    assert 'follows from the run key' in sentences and 'operating system' not in sentences


def test_a_report_reads_back_and_is_a_published_document() -> None:
    for found in (made(), made(USER)):
        text = found.to_json()
        assert PrivacyReport.from_json(text) == found
        check_document('privacy-report', text)


def test_a_cost_that_does_not_follow_from_the_settings_is_refused() -> None:
    """Also where every figure follows from the stages: an edited scale, and a round that is not paid for."""
    found = made()
    for setting in ({'noise_scale': 25.0}, {'rounds': 4}, {'rounds': 1}):
        other = Voted(mechanism=dataclasses.replace(PARAMS, **setting))
        with pytest.raises(ValueError, match='to follow from the mechanism'):
            dataclasses.replace(found, method=other)
    [stage] = found.stages
    for changes in (
        {'stages': (stage, stage)}, {'rho_total': 0.001}, {'epsilon': 0.1, 'epsilon_of_run': 0.1},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f'Expected {next(iter(changes))} to follow'):
            dataclasses.replace(found, **changes)


def test_a_ledger_charges_exactly_the_cost() -> None:
    found = made(ledger=ledger_entry(PARAMS.rho))
    assert "all 2 runs on dataset 'visits'" in found.data_accesses[1]
    with pytest.raises(ValueError, match='Expected the ledger to have charged what the run costs'):
        made(ledger=ledger_entry(2 * PARAMS.rho))


@pytest.mark.parametrize(
    ('settings', 'has_structure', 'is_said'),
    [({'any_text': False}, False, True), ({'any_text': True}, False, False), ({}, False, False),
     ({'any_text': False}, True, False)],
)  # fmt: skip
def test_texts_that_no_vote_was_spent_on_are_said(
    settings: dict[str, bool], has_structure: bool, is_said: bool
) -> None:
    """A structure says by itself what a text is, and runs on given texts lack the setting."""
    method = Voted(mechanism=PARAMS, has_structure=has_structure)
    made = finished(method, settings=settings)
    said = [row for row in made.assumptions_enforced if 'left out what is no text' in row]
    assert len(said) == is_said
