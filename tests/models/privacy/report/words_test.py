"""Sentences, formulas and the pasted arithmetic say what the numbers say."""

import contextlib
import dataclasses
import io
import re

import pytest

from models.privacy import accounting, report
from models.privacy.params import MechanismParams
from models.privacy.report import GroupPlan, PrivacyReport
from tests.models.privacy.report.samples import (
    CLUSTERED,
    MEDIAN,
    PARAMS,
    PARAMS_OF_ALL_KINDS,
    SOURCES,
    build,
    clustered,
    clusters,
    with_ledger,
)


def run_pasted(made: PrivacyReport) -> tuple[float, float]:
    """rho and epsilon as the text prints them that readers are told to run."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(made.reproduction, {})
    found = re.fullmatch(r'rho = (\S+), epsilon = (\S+)\n', printed.getvalue())
    assert found
    return float(found[1]), float(found[2])


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
@pytest.mark.parametrize('noisy_counts_rho', [0.0, 0.02])
@pytest.mark.parametrize('source', [None, 'public', 'dp-k-means'])
def test_pasted_arithmetic_gives_the_same_numbers(
    params: MechanismParams, noisy_counts_rho: float, source: report.CentersSource | None
) -> None:
    noisy = 700 if noisy_counts_rho else None
    plan = [GroupPlan(label='a', batches=3)] if source is None else CLUSTERED
    made = build(
        params,
        plan=[dataclasses.replace(group, noisy_count=noisy) for group in plan],
        noisy_counts_rho=noisy_counts_rho,
        clusters=None if source is None else clusters(source),
    )
    in_advance = noisy_counts_rho + {None: 0, 'public': 0.0025, 'dp-k-means': 0.0125}[source]
    if params.is_ex_post and not in_advance:
        assert made.reproduction == ''
        return
    rho, epsilon = run_pasted(made)
    if params.is_ex_post:
        assert rho == pytest.approx(in_advance, rel=1e-9)
        assert f'(ε = {report.format_up(epsilon)}, δ = 1e-6)' in made.guarantee
    else:
        assert made.rho_total == pytest.approx(in_advance + accounting.generation_rho(params), rel=1e-12)
        assert rho == pytest.approx(made.rho_total, rel=1e-9)
        assert epsilon == pytest.approx(made.epsilon, rel=1e-8)
    imports = re.findall(r'^(?:from|import) (\w+)', made.reproduction, flags=re.M)
    assert imports == ['math'], 'readers need nothing but Python'


@pytest.mark.parametrize('params', PARAMS_OF_ALL_KINDS)
@pytest.mark.parametrize('source', SOURCES)
def test_the_numbers_put_into_the_formulas_give_the_stage(
    params: MechanismParams, source: report.CentersSource
) -> None:
    made = clustered(params, source)
    for stage in made.stages:
        if stage.rho is not None:
            arithmetic = stage.numbers.replace('·', '*').replace('²', '**2').replace('½', '0.5')
            assert eval(arithmetic) == pytest.approx(stage.rho, rel=1e-5), stage.name
    for row in made.sensitivities:
        arithmetic = row.formula.replace('2c', '2*c')
        assert eval(arithmetic, {'c': params.clip_bound, 's': params.batch_size}) == pytest.approx(row.value)


def test_slots_double_both_sensitivities_and_say_so() -> None:
    plain, slots = build(), build(dataclasses.replace(PARAMS, examples_per_context=4))
    assert [row.value for row in slots.sensitivities] == [2 * row.value for row in plain.sensitivities]
    assert slots.rho_total == pytest.approx(4 * plain.rho_total)
    assert 'replace' in slots.unit_of_privacy and 'double' in slots.unit_of_privacy
    assert 'double' not in plain.unit_of_privacy


def test_the_guarantee_of_all_runs_is_that_of_the_ledger() -> None:
    made = with_ledger()
    assert made.ledger is not None
    together = made.covered_together or ''
    assert together.startswith("All 2 runs on dataset 'visits' that the ledger has charged up to")
    shown = report.format_up(made.ledger.epsilon_after)
    assert f'together ρ-zCDP for ρ = {report.format_up(made.ledger.rho_after)}' in together
    assert (
        f'(ε = {shown}, δ = 1e-6)-differentially private, under adding or removing any one record' in together
    )
    assert 'the budget bounds all of them in place of the sum: ρ = 1.06, or ε = 8 at this δ.' in together
    assert f'Covered together: {together[0].lower()}{together[1:]}' in made.data_accesses
    assert any("the same name, 'visits'" in row for row in made.assumptions_of_curator)
    # The run's own guarantee stays its own.
    assert made.guarantee == build().guarantee and made.epsilon == build().epsilon


def test_a_first_run_is_not_called_several() -> None:
    first = with_ledger(0.0, run_number=1).covered_together or ''
    assert (
        first.startswith("The first run on dataset 'visits'")
        and 'together' not in first
        and 'in place of' not in first
    )
    budget = with_ledger(0.0, run_number=1, epsilon_budget=None, rho_budget=1.5).covered_together or ''
    shown = report.format_up(accounting.epsilon_from_rho(1.5, 1e-6))
    assert budget.endswith(f'past its budget of ρ = 1.5, or ε = {shown} at this δ.')


@pytest.mark.parametrize('params', [PARAMS, MEDIAN])
def test_without_a_ledger_the_report_says_so(params: MechanismParams) -> None:
    made = build(params)
    assert made.ledger is None and made.covered_together is None
    assert any('this run was not charged to a ledger' in row for row in made.not_covered)
    assert any('a budget that the curator keeps' in row for row in made.assumptions_of_curator)
    assert len(made.not_covered) == 2


def test_user_unit_is_named_everywhere() -> None:
    made = build(dataclasses.replace(PARAMS, unit='user', examples_per_context=8))
    assert made.unit_of_privacy.startswith('One user') and 'at most 8 records' in made.unit_of_privacy
    assert 'any one user' in made.guarantee and 'one user added or removed' in made.adjacency
    assert any('One person has one unit id' in row for row in made.assumptions_of_curator)


@pytest.mark.parametrize(
    ('delta', 'declared', 'expected'),
    [
        (1e-6, 10_000, 'δ = 1e-6 is n^-1.50 for n = 10,000 records (declared), below 1/n.'),
        (1e-3, 10_000, 'not below 1/n'),
        (1e-4, 10_000, 'not below 1/n'),
        (1e-6, 1, 'too few for a comparison'),
        (1e-6, 0, 'too few for a comparison'),
        (1e-6, None, 'No number of records is public'),
    ],
)
def test_delta_is_compared_with_public_numbers_only(
    delta: float, declared: int | None, expected: str
) -> None:
    assert expected in build(delta=delta, declared_units=declared).delta_relation


@pytest.mark.parametrize('sparse', [False, True])
def test_median_says_what_kind_of_statement_it_makes(sparse: bool) -> None:
    params = dataclasses.replace(PARAMS, aggregate='median') if sparse else MEDIAN
    made = clustered(params)
    for words in ('no (ε, δ) guarantee', 'data-dependent and ex-post', 'not published', 'curator holds it'):
        assert words in made.guarantee
    priced = {stage.name: stage.rho for stage in made.stages}
    assert priced['Noisy counts per centre'] == 0.0025 and priced['Noisy counts'] == 0.002
    assert priced['Private tokens'] is None and priced.get('Sparse-vector test') is None
    assert ('Sparse-vector test' in priced) == sparse
    assert not any('median' in row.quantity or 'logits' in row.quantity for row in made.sensitivities)
    assert 'noisy counts alone' not in build(MEDIAN).guarantee
    assert 'No figure of this report' in build(MEDIAN).delta_relation


def test_difference_costs_as_the_mean_does_and_names_its_vocabulary() -> None:
    mean = dataclasses.replace(PARAMS, clip_bound=1.0)
    difference = dataclasses.replace(mean, aggregate='difference')
    assert build(difference).epsilon == build(mean).epsilon
    enforced = '\n'.join(build(difference).assumptions_enforced)
    assert 'log-probabilities' in enforced and 'Top-k+' in enforced
    assert 'Top-k+' not in '\n'.join(
        build(dataclasses.replace(difference, public_top_k=None)).assumptions_enforced
    )
