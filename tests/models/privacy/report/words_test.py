"""Sentences, formulas and the pasted arithmetic say what the numbers say."""

import contextlib
import dataclasses
import io
import re

import pytest

from models.privacy import accounting, report
from models.privacy.params import MechanismParams
from models.privacy.report import GroupPlan, PrivacyReport, prediction
from tests.models.privacy.report.samples import (
    CLUSTERED,
    INDIVIDUAL,
    MEDIAN,
    PARAMS,
    PARAMS_OF_ALL_KINDS,
    build,
    clustered,
    clusters,
    with_ledger,
)
from tests.oracles import costs


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
@pytest.mark.parametrize('in_clusters', [False, True])
def test_pasted_arithmetic_gives_the_same_numbers(
    params: MechanismParams, noisy_counts_rho: float, in_clusters: bool
) -> None:
    noisy = 700 if noisy_counts_rho else None
    plan = CLUSTERED if in_clusters else [GroupPlan(label='a', batches=3)]
    made = build(
        params,
        plan=[dataclasses.replace(group, noisy_count=noisy) for group in plan],
        noisy_counts_rho=noisy_counts_rho,
        clusters=clusters() if in_clusters else None,
    )
    in_advance = noisy_counts_rho + (0.0025 if in_clusters else 0)
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
def test_the_numbers_put_into_the_formulas_give_the_stage(params: MechanismParams) -> None:
    made = clustered(params)
    for stage in made.stages:
        if stage.rho is not None:
            arithmetic = stage.numbers.replace('·', '*').replace('²', '**2').replace('½', '0.5')
            assert eval(arithmetic) == pytest.approx(stage.rho, rel=1e-5), stage.name
    for row in made.sensitivities:
        arithmetic = re.sub(r'(\d)c', r'\1*c', row.formula)
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
    assert 'the budget bounds all of them in place of the sum: ε = 8 at this δ.' in together
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
    assert budget.endswith(f'past its budget of ε = {shown} at this δ.')


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


# --------------------------------------------------------- individual accounting

INDIVIDUALS = [
    pytest.param(INDIVIDUAL, 1, id='record'),
    pytest.param(dataclasses.replace(INDIVIDUAL, examples_per_context=4, omega=2.5), 4, id='slots'),
    pytest.param(dataclasses.replace(INDIVIDUAL, omega=300.0), 1, id='all-orders'),
]


@pytest.mark.parametrize(('params', 'times'), INDIVIDUALS)
@pytest.mark.parametrize('counts', [0.0, 0.25])
def test_individual_accounting_states_what_holds_at_orders_up_to_omega(
    params: MechanismParams, times: int, counts: float
) -> None:
    """Against the twin, which also tells a cost without a largest order apart."""
    plan = [GroupPlan(label=None, batches=3, noisy_count=700 if counts else None)]
    made = build(params, plan=plan, noisy_counts_rho=counts)
    rho, omega = times * 0.5 + counts, params.omega
    assert made.rho_total == pytest.approx(rho) and made.omega == omega
    assert made.rho_per_private_token is None
    orders = costs.grid(0.05, omega - 1, 400)
    expected = float(costs.epsilon(costs.zcdp(rho, omega), 1e-6, orders))
    assert expected * (1 - 1e-4) <= made.epsilon <= expected * (1 + 1e-9)
    at_order = accounting.epsilon_at_order(made.order, made.order * rho, 1e-6)
    assert made.order <= omega and at_order == pytest.approx(made.epsilon, rel=1e-9)
    whole = accounting.epsilon_from_rho(rho, 1e-6)
    assert (made.order == omega) == (made.epsilon > whole * (1 + 1e-9)) == (times == 4)
    assert made.epsilon < made.epsilon_closed_form
    # The counts hold at every order, the text up to ω alone.
    assert [stage.omega for stage in made.stages] == [*([None] if counts else []), omega]


@pytest.mark.parametrize(('params', 'times'), INDIVIDUALS)
def test_individual_accounting_is_named_in_words(params: MechanismParams, times: int) -> None:
    made = build(params)
    assert 'truncated zCDP' in made.accounting and 'individual accounting' in made.accounting
    assert 'B = 0.5 covers' in made.accounting and f'up to ω = {params.omega:g}, and' in made.accounting
    assert ('4B' in made.accounting) == (times == 4)
    assert 'private tokens per batch, however' not in made.accounting
    assert made.orders and f'ω = {params.omega:g}, and gives ε at the order α = ' in made.orders
    assert any('ω falls to ω/m' in line for line in made.limits)
    assert any('A batch stops at 4,000 private tokens' in line for line in made.assumptions_enforced)
    # A reader can follow every line: the settings stand in it, and one of them the sum depends on.
    for line in ('B = 0.5  #', f'omega = {params.omega!r}  #', f'change = {params.change.value}  #'):
        assert line in made.reproduction
    _, longer = run_pasted(
        dataclasses.replace(made, reproduction=made.reproduction.replace('B = 0.5 ', 'B = 0.6 '))
    )
    assert longer > made.epsilon * 1.05


def test_facts_follow_from_the_settings_in_a_report() -> None:
    made = build(INDIVIDUAL)
    assert made.mechanism['accounting'] == 'individual' and made.mechanism['context_budget'] == 0.5
    again = PrivacyReport.from_json(made.to_json())
    assert prediction.facts_of(again.mechanism) == prediction.facts(INDIVIDUAL)


def test_other_runs_name_no_largest_order() -> None:
    for params in (PARAMS, MEDIAN):
        made = build(params)
        assert made.omega is made.order is made.orders is None
        assert 'runcated z' not in made.to_json()


@pytest.mark.parametrize(
    'changes',
    [{'omega': None}, {'omega': 7.0}, {'order': None}, {'order': 3.0}, {'omega': None, 'order': None}],
)
def test_orders_that_contradict_the_stages_are_refused(changes: dict[str, float | None]) -> None:
    with pytest.raises(ValueError, match="omega to be the least of the stages'"):
        dataclasses.replace(build(INDIVIDUAL), **changes)


def test_an_epsilon_of_all_orders_is_refused_where_the_cost_is_truncated() -> None:
    made = build(dataclasses.replace(INDIVIDUAL, omega=2.5))
    of_all_orders = accounting.epsilon_from_rho(made.rho_total, 1e-6)
    with pytest.raises(ValueError, match='Expected epsilon to follow'):
        dataclasses.replace(made, epsilon=of_all_orders, epsilon_of_run=of_all_orders)
