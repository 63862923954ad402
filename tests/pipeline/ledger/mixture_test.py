"""A budget for costs of several kinds: one order, fixed in advance, decides; for zCDP it is today's rule."""

import dataclasses
import math
import pathlib
import typing
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.privacy import accounting, report
from models.privacy.accounting import (
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    RunCost,
    SelfComposedDpEvent,
    TruncatedZCDpEvent,
    ZCDpEvent,
)
from models.privacy.text_votes import TextVoteParams
from pipeline import methods
from pipeline.asked.config import job_config
from pipeline.ledger.account import Account
from pipeline.ledger.budget import BudgetExceeded, Charge, Dataset
from pipeline.ledger.ledger import Ledger
from pipeline.run import charge as charging
from tests.oracles import costs

DELTA = 1e-6


def account(rho_budget: float = 1.0, delta: float = DELTA, **changes: typing.Any) -> Account:
    dataset = Dataset(
        name='visits', unit='example', rho_budget=rho_budget, delta=delta, epsilon_budget=None, created='then'
    )
    return Account(dataset=dataclasses.replace(dataset, **changes), runs=())


def charge(*parts: DpEvent, run_id: str = 'a') -> Charge:
    cost = RunCost(stages={str(index): part for index, part in enumerate(parts)})
    return Charge(run_id=run_id, unit='example', cost=cost, identity='i', key_commitment='k')


def sgd(q: float = 0.01, z: float = 1.0, steps: int = 500) -> DpEvent:
    step = PoissonSampledDpEvent(sampling_probability=q, event=GaussianDpEvent(noise_multiplier=z))
    return SelfComposedDpEvent(event=step, count=steps)


def admitted(held: Account, events: list[DpEvent]) -> Account:
    """The account after asking for each in turn."""
    for index, event in enumerate(events):
        try:
            held = held.with_charge(charge(event, run_id=f'run-{index}'), at='then')
        except (BudgetExceeded, ValueError):
            continue
    return held


# ------------------------------------------------------------------ costs in zCDP: today's rule


@given(
    st.lists(st.floats(min_value=1e-9, max_value=10), min_size=1, max_size=12),
    st.floats(min_value=1e-6, max_value=100),
    st.sampled_from([1e-12, 1e-6, 1e-2]),
)
@settings(deadline=None, max_examples=60)
def test_for_zcdp_the_rule_is_the_exact_sum_of_rho(prices: list[float], budget: float, delta: float) -> None:
    held, let_in = account(budget, delta), Fraction(0)
    for index, rho in enumerate(prices):
        one = charge(ZCDpEvent(rho=rho), run_id=f'run-{index}')
        assert held.price(one.cost) == rho
        fits = let_in + Fraction(rho) <= Fraction(budget) * (1 + Fraction(1e-12))
        assert held.fits(rho) == fits
        if fits:
            held, let_in = held.with_charge(one, at='then'), let_in + Fraction(rho)
            entry = held.entry(held.runs[-1])
            assert type(entry) is report.LedgerEntry
            # The divergence at the order, held against the budget's: the same to rounding.
            order = held.dataset.order
            at_order = sum(order * run.cost.curve.rho_at(order) for run in held.runs)
            assert at_order <= order * budget * (1 + 1e-9)
    assert held.rho_spent == math.fsum(run.rho for run in held.runs)
    assert held.epsilon_spent == accounting.epsilon_from_rho(held.rho_spent, delta)
    assert held.epsilon_budget == accounting.epsilon_from_rho(budget, delta)


@pytest.mark.parametrize('count', [3, 7, 10, 60])
def test_decimal_costs_fill_a_decimal_budget_and_not_one_more(count: int) -> None:
    full = admitted(account(float(f'{count / 10:g}')), [ZCDpEvent(rho=0.1)] * count)
    assert len(full.runs) == count and not full.fits(1e-9) and full.fits(1e-15)
    with pytest.raises(BudgetExceeded):
        full.with_charge(charge(ZCDpEvent(rho=0.1), run_id='late'), at='then')


def test_a_sum_that_drifts_in_floating_point_is_exact() -> None:
    # A running sum of floats would never feel the small ones beside the large one.
    prices = [1.0, *[1e-17] * 200]
    held = admitted(account(1 + 2.5e-12), [ZCDpEvent(rho=rho) for rho in prices])
    assert held.rho_spent == math.fsum(prices) > 1.0


def test_a_charge_is_of_stages_that_are_not_all_free() -> None:
    for stages, said in (({'a': 0.0}, 'not all free'), ({}, 'Expected stages')):
        with pytest.raises(ValueError, match=said):
            Charge(
                run_id='a', unit='example', cost=RunCost.of_rho(stages), identity='i', key_commitment='k'
            )  # fmt: skip


# ------------------------------------------------------------------ the filter at one order


def test_the_budget_at_its_order_is_its_epsilon() -> None:
    for rho, delta in ((0.01, 1e-9), (1.0, 1e-6), (30.0, 1e-3)):
        order = account(rho, delta).dataset.order
        promised = accounting.epsilon_at_order(order, order * rho, delta)
        assert promised == pytest.approx(accounting.epsilon_from_rho(rho, delta), rel=1e-9)


def test_truncated_zcdp_costs_its_rho_where_it_reaches_the_order_and_is_refused_where_not() -> None:
    held = account()
    order = held.dataset.order
    assert 4 < order < 6
    just = charge(TruncatedZCDpEvent(rho=0.25, omega=order), run_id='just')
    held = held.with_charge(just, at='then')
    assert held.runs[0].rho == 0.25 and held.rho_left == 0.75
    short = charge(TruncatedZCDpEvent(rho=1e-9, omega=order * (1 - 1e-9)), run_id='short')
    with pytest.raises(ValueError, match=rf'order α = {order!r}.*largest_order=.*Give --omega'):
        held.with_charge(short, at='then')
    with pytest.raises(BudgetExceeded, match='at the Rényi order α = '):
        held.with_charge(charge(TruncatedZCDpEvent(rho=0.8, omega=99.0), run_id='much'), at='then')


def test_a_sampled_gaussian_costs_its_divergence_at_the_order() -> None:
    held = account().with_charge(charge(sgd()), at='then')
    order = held.dataset.order
    alone = accounting.curve_of(sgd()).rho_at(order)
    assert held.runs[0].rho == held.rho_spent == alone
    assert held.rho_left == pytest.approx(1.0 - alone)
    # By quadrature, at the order itself: the library's sum for fractional orders lies above it.
    expected = float(500 * costs.sampled_gaussian(0.01, 1.0, order) / order)
    assert expected <= alone * (1 + 1e-9) < 1.1 * expected
    for wrong in (sgd(z=0.5), sgd(q=0.02), sgd(steps=1000)):
        assert not accounting.curve_of(wrong).rho_at(order) < 1.3 * expected
    # In its words: what the parts of the run are called, and what they cost.
    assert held.rho_by_stage(held.runs[0]) == {'0': alone}


COSTS = st.floats(1e-3, 0.6)
EVENTS = st.one_of(
    COSTS.map(lambda rho: ZCDpEvent(rho=rho)),
    st.tuples(st.floats(1e-3, 0.6), st.floats(1.5, 40)).map(
        lambda x: TruncatedZCDpEvent(rho=x[0], omega=x[1])
    ),
    st.sampled_from([sgd(), sgd(z=2.0, steps=2000), sgd(q=0.1, z=1.5, steps=30), sgd(z=0.7, steps=5)]),
)


@pytest.mark.first
@pytest.mark.heavy
@given(st.lists(EVENTS, min_size=1, max_size=7), st.sampled_from([0.3, 1.0, 4.0]))
@settings(deadline=None, max_examples=40)
def test_whatever_is_let_in_stays_within_the_budgets_epsilon(events: list[DpEvent], budget: float) -> None:
    """At the order by the rule; and hence at the best order of the sum."""
    held = admitted(account(budget), events)
    order = held.dataset.order
    curve = accounting.compose(run.cost.curve for run in held.runs)
    if held.runs:
        assert curve.rho_at(order) <= budget * (1 + 1e-9)
        assert held.rho_spent == pytest.approx(curve.rho_at(order), rel=1e-12)
    assert held.epsilon_spent <= accounting.epsilon_from_rho(budget, DELTA) * (1 + 1e-6)
    assert held.epsilon_budget == pytest.approx(accounting.epsilon_from_rho(budget, DELTA), rel=1e-6)
    for run in held.runs:
        held.entry(run)  # an entry checks its own numbers


def test_the_sum_that_is_reported_is_the_composed_curves() -> None:
    parts = [ZCDpEvent(rho=0.1), TruncatedZCDpEvent(rho=0.2, omega=9.0), sgd(), ZCDpEvent(rho=0.05)]
    held = admitted(account(), parts)
    assert len(held.runs) == 4
    entries = [held.entry(run) for run in held.runs]
    assert [type(entry).__name__ for entry in entries] == ['LedgerEntry', *['MixedLedgerEntry'] * 3]
    for index, entry in enumerate(entries):
        together = accounting.epsilon_of_events(parts[: index + 1], DELTA)
        assert entry.epsilon_after == together == held.epsilon_up_to(held.runs[index])
    # Orders up to the smallest ω of those so far, by brute force.
    expected = costs.epsilon(costs.zcdp(0.3, 9.0), DELTA, costs.grid(1e-3, 8.0, 2000))
    assert entries[1].epsilon_after == pytest.approx(float(expected), rel=1e-4)
    assert entries[0].epsilon_after == accounting.epsilon_from_rho(0.1, DELTA)
    assert held.epsilon_spent == entries[-1].epsilon_after < held.epsilon_budget


def test_of_training_and_votes_the_losses_say_less_than_orders_and_the_charge_stays() -> None:
    votes = TextVoteParams(rounds=1, noise_scale=3.57, nearest=4).event
    held = admitted(account(4.0), [sgd(q=0.0117, z=0.58, steps=30), votes])
    training, both = held.entry(held.runs[0]), held.entry(held.runs[1])
    curve = accounting.compose(run.cost.curve for run in held.runs)
    assert both.epsilon_after < 0.85 * curve.epsilon(DELTA) and training.epsilon_after < both.epsilon_after
    events = [event for run in held.runs for event in run.cost.stages.values()]
    assert both.epsilon_after == accounting.epsilon_of_events(events, DELTA) == held.epsilon_spent
    # The divergence at its order is held against the budget, as for costs of any kind.
    assert held.rho_spent == pytest.approx(curve.rho_at(held.dataset.order), rel=1e-12)
    # A cost without a distribution of losses, and all are known at Rényi orders alone.
    other = admitted(account(4.0), [*events, ZCDpEvent(rho=1e-6)])
    assert other.epsilon_spent > curve.epsilon(DELTA)


def has_room(held: Account, epsilon: float, cost: RunCost) -> bool:
    """True if a run would fit if the budget were this epsilon."""
    raised = held.dataset.with_budget(rho=None, epsilon=epsilon, delta=DELTA)
    return dataclasses.replace(held, dataset=raised).has_room(cost)


@pytest.mark.parametrize('before', [[], [ZCDpEvent(rho=0.2)], [sgd(), ZCDpEvent(rho=0.01)]])
@pytest.mark.parametrize('asked', [ZCDpEvent(rho=2.0), sgd(q=0.0117, z=0.58, steps=30)])
def test_a_budget_that_would_be_enough_is_named_and_little_less_is_not(
    before: list[DpEvent], asked: DpEvent
) -> None:
    held = admitted(account(0.3), before)
    cost = charge(asked).cost
    assert len(held.runs) == len(before) and not held.has_room(cost)
    found = held.sufficient_epsilon(cost)
    assert found is not None and has_room(held, found, cost) and not has_room(held, found / 1.01, cost)
    # Less than the budget and what the run costs now, held against it at the present order.
    if isinstance(asked, SelfComposedDpEvent):
        rho = held.rho_spent + held.price(cost)
        assert found < 0.8 * accounting.epsilon_from_rho(rho, DELTA)


def test_where_no_budget_is_enough_none_is_named() -> None:
    assert account().sufficient_epsilon(charge(ZCDpEvent(rho=1e6)).cost) is None
    # It fits already.
    assert account().sufficient_epsilon(charge(ZCDpEvent(rho=0.1)).cost) == pytest.approx(
        accounting.epsilon_from_rho(1.0, DELTA), rel=0.01
    )


@pytest.mark.heavy
def test_a_refused_run_says_which_budget_would_hold_it(tmp_path: pathlib.Path) -> None:
    where = str(tmp_path / 'ledger.db')
    Ledger.create(where).add_dataset('visits', unit='example', delta=DELTA, epsilon=3.0)
    run = job_config(
        method='fine-tune', input='in.csv', output=str(tmp_path / 'out'), records=5000, delta=DELTA,
        epsilon=2.9, tuning_steps=30, expected_batch_size=64, dataset='visits', ledger=where,
    )  # fmt: skip
    asked = charging.ask(methods.solve(run))
    assert not asked.fits and asked.epsilon_together is None and asked.sufficient_epsilon is not None
    # Its own epsilon is that of its plan, and not what Rényi divergences say.
    assert asked.epsilon == pytest.approx(2.9, rel=1e-2)
    shown = ' '.join(text for _, text in asked.rows(DELTA))
    assert f'or a budget of ε = {asked.sufficient_epsilon:g} at δ = 1e-06' in shown
    with pytest.raises(BudgetExceeded, match=rf'visits --epsilon {asked.sufficient_epsilon:g} --reason WHY'):
        charging.check(Ledger.open(where), methods.solve(run))
    Ledger.open(where).change_budget('visits', epsilon=asked.sufficient_epsilon, reason='a test')
    assert charging.ask(methods.solve(run)).fits


# ------------------------------------------------------------------ the order is fixed in advance


def test_the_first_charge_fixes_the_order_and_nothing_before_it_does() -> None:
    empty = account()
    assert empty.dataset.renyi_order is None
    moved = empty.dataset.with_budget(rho=0.1, epsilon=None, delta=1e-9)
    assert moved.renyi_order is None and moved.order == accounting.optimal_order(0.1, 1e-9)
    held = empty.with_charge(charge(ZCDpEvent(rho=0.1)), at='then')
    assert held.dataset.renyi_order == accounting.optimal_order(1.0, DELTA)
    assert empty.dataset.rho_bound is None and held.dataset.rho_bound == 1.0


def change(held: Account, rho_budget: float, delta: float = DELTA) -> Account:
    dataset = held.dataset.with_budget(rho=rho_budget, epsilon=None, delta=delta)
    return dataclasses.replace(held, dataset=dataset)


def test_a_raised_budget_takes_its_own_order_since_that_is_a_lower_one() -> None:
    held = account().with_charge(charge(sgd()), at='then')
    raised = change(held, 3.0)
    assert raised.dataset.renyi_order == accounting.optimal_order(3.0, DELTA) < held.dataset.renyi_order
    assert raised.epsilon_budget == pytest.approx(accounting.epsilon_from_rho(3.0, DELTA), rel=1e-6)
    # All is held against it at the new order; what the run's report said of it stays.
    assert raised.rho_spent == accounting.curve_of(sgd()).rho_at(raised.dataset.order) != held.rho_spent
    assert raised.entry(raised.runs[0]) == held.entry(held.runs[0])
    # Whatever outputs had let in before is within the new bound at the new order.
    order, raised_order = held.dataset.order, raised.dataset.order
    assert raised.dataset.rho_bound == 3.0 and 3.0 * raised_order > 1.0 * order


@pytest.mark.parametrize('rho_budget, delta', [(0.5, DELTA), (1.0, 1e-30), (2.0, 1e-30)])
def test_a_budget_that_would_need_a_higher_order_keeps_the_one_that_stands(
    rho_budget: float, delta: float
) -> None:
    held = account().with_charge(charge(sgd(steps=10)), at='then')
    assert accounting.optimal_order(rho_budget, delta) > held.dataset.order
    changed = change(held, rho_budget, delta)
    assert changed.dataset.renyi_order == held.dataset.renyi_order
    # The promise is what that order converts to, and is said to be weaker than the best.
    best = accounting.epsilon_from_rho(rho_budget, delta)
    order = changed.dataset.order
    assert changed.epsilon_budget == accounting.epsilon_at_order(order, order * rho_budget, delta) > best


def test_lowering_a_budget_does_not_forget_what_the_larger_one_could_have_let_in() -> None:
    held = change(change(account(4.0).with_charge(charge(ZCDpEvent(rho=0.1)), at='then'), 0.5), 1.0)
    assert held.dataset.renyi_order == accounting.optimal_order(4.0, DELTA)
    assert held.dataset.rho_bound == 4.0
    largest = accounting.epsilon_from_rho(4.0, DELTA)
    assert held.epsilon_bound == pytest.approx(largest) and held.epsilon_budget < largest / 2
    # An order just below would hold the budget of 1, and not what 4 could have let in.
    loose = change(held, 4.0 * (1 - 1e-9), 1e-5)
    assert accounting.optimal_order(4.0 * (1 - 1e-9), 1e-5) < held.dataset.renyi_order
    assert loose.dataset.renyi_order == held.dataset.renyi_order


def rare(p: mpmath.mpf, loss: mpmath.mpf, alpha: float) -> mpmath.mpf:
    """D_α of (p, 1 − p) and (p e^−loss, the rest), the larger direction."""

    def divergence(left: mpmath.mpf, right: mpmath.mpf) -> mpmath.mpf:
        sides = ((left, right), (1 - left, 1 - right))
        return mpmath.log(sum(x**alpha * y ** (1 - alpha) for x, y in sides)) / (alpha - 1)

    return max(divergence(p, p * mpmath.exp(-loss)), divergence(p * mpmath.exp(-loss), p))


def test_an_order_that_outputs_could_choose_would_bound_nothing() -> None:
    """The counterexample to an order that always follows the budget.

    Under ρ = 1 at δ = 1e-6 a first run of next to no cost shows a fair bit. Only where it is 1, the next is
    (0.9, 5)-truncated zCDP, within the budget at its order 4.7: an event of probability e^-62.1 that one
    record makes e^20 times as likely. Then, whatever the bit, δ becomes 1e-30. With bit 0 all charges hold
    at the new order 9.3, so a rule that looks at what was charged would promise ε = 17.2 at 1e-30 of all
    outputs together. But at that ε their δ is a half of the second run's, 5e-28.
    """
    bit, second = ZCDpEvent(rho=1e-6), TruncatedZCDpEvent(rho=0.9, omega=5.0)
    histories = [admitted(account(), [bit]), admitted(account(), [bit, second])]
    assert [len(held.runs) for held in histories] == [1, 2]
    follows, promised = accounting.optimal_order(1.0, 1e-30), accounting.epsilon_from_rho(1.0, 1e-30)
    curves = [accounting.compose(run.cost.curve for run in held.runs) for held in histories]
    assert curves[0].rho_at(follows) < 1.0 and curves[1].rho_at(follows) == math.inf
    with mpmath.workdps(60):
        p, loss = mpmath.exp(mpmath.mpf('-62.1')), mpmath.mpf(20)
        for alpha in costs.grid(1e-6, 4.0, 400):
            assert rare(p, loss, mpmath.mpf(alpha)) <= mpmath.mpf('0.9') * alpha
        assert p * (1 - mpmath.exp(promised - loss)) / 2 > 100 * mpmath.mpf('1e-30')
    # Here both histories keep the order that was fixed before the bit, and the promise says what it is.
    for held, curve in zip(histories, curves, strict=True):
        changed = change(held, 1.0, 1e-30)
        assert changed.dataset.order == histories[0].dataset.order < 5
        assert curve.rho_at(changed.dataset.order) <= 1.0
        kept = report.epsilon_of_budget(1.0, None, 1e-30, changed.dataset.order)
        assert changed.epsilon_bound == kept > 1.3 * promised
        assert float(loss) < kept  # so that δ at it is zero
    # The budget of the history in zCDP alone converts at the best order: no guarantee of all outputs.
    assert change(histories[0], 1.0, 1e-30).epsilon_budget == pytest.approx(promised)


# ------------------------------------------------------------------ in a report


def mixed_entry() -> report.MixedLedgerEntry:
    held = admitted(account(), [TruncatedZCDpEvent(rho=0.2, omega=9.0), ZCDpEvent(rho=0.1)])
    entry = held.entry(held.runs[1])
    assert isinstance(entry, report.MixedLedgerEntry)
    return entry


def test_an_entry_of_a_mixture_checks_its_own_numbers() -> None:
    entry = mixed_entry()
    assert (entry.rho_before, entry.rho, entry.order) == (0.2, 0.1, account().dataset.order)
    for wrong in ({'epsilon_after': 2 * entry.epsilon_after}, {'rho_after': 0.5}, {'rho_budget': 0.2}):
        with pytest.raises(ValueError, match='Expected'):
            dataclasses.replace(entry, **wrong)


def test_the_words_of_a_mixture_claim_no_rho() -> None:
    from models.privacy.report import words

    said = words.macro('all_runs', mixed_entry(), 'record')
    assert 'ρ' not in said.replace('Rényi', '')
    budget = report.format_up(account().epsilon_budget)
    for expected in ('all 2 runs', 'kept at the Rényi order α = 4.', f'ε = {budget} at this δ'):
        assert expected in said, expected
    first = dataclasses.replace(mixed_entry(), run_number=1, rho_before=0.0, rho=mixed_entry().rho_after)
    assert 'the first run' in words.macro('all_runs', first, 'record')
