"""Losses of a median run, what contexts spent, and the report of both, which shows no number by itself."""

import dataclasses
import re

import pytest

from models.privacy import report, sparse_vector
from models.privacy.ex_post import BatchLoss
from models.privacy.individual import BatchSpending
from models.privacy.params import MechanismParams
from tests.models.privacy.report.samples import (
    INDIVIDUAL,
    LOSSES,
    MEDIAN,
    PARAMS,
    SPENDING,
    restricted_report,
)


def test_restricted_repr_shows_no_number() -> None:
    shown = repr(restricted_report()) + repr(restricted_report().true_counts_by_group)
    assert not re.search(r'98_?765|4_?321|24_?680|13_?579|blank_text', shown)
    assert "run_id='run'" in shown


def test_losses_of_a_run_are_those_of_its_batches() -> None:
    found = report.ex_post_losses(LOSSES, MEDIAN)
    assert list(found.loss_by_batch) == ['0000-000000', '0000-000001']
    assert found.run_ex_post_epsilon == max(of.epsilon(MEDIAN) for of in LOSSES) == pytest.approx(0.8)
    assert found.run_paper_epsilon == pytest.approx(0.5 + 0.4 + 0.3)
    assert found.loss_by_batch['0000-000000'].ex_post_epsilon == pytest.approx(0.75)
    first, second = found.loss_by_place
    assert (first.tokens, second.tokens) == (3, 2)
    assert first.mean == pytest.approx((0.5 + 0.3 + 0.75) / 3)
    assert first.lower_decile == pytest.approx(0.34) and first.upper_decile == pytest.approx(0.7)


def test_losses_by_place_leave_public_tokens_out() -> None:
    params = dataclasses.replace(PARAMS, aggregate='median')
    batch = BatchLoss(
        batch_id='0000-000000', minus_log_alpha=(0.2, 0.0, 0.4), log_beta=(0.1, 0.0, 0.1),
        places=(0, 1, 2), is_private=(True, False, True),
    )  # fmt: skip
    found = report.ex_post_losses([batch], params)
    assert [place.tokens for place in found.loss_by_place] == [1, 0, 1]
    assert [place.mean for place in found.loss_by_place] == pytest.approx([0.2, 0.0, 0.4])
    runs = 2 * sparse_vector.pure_cost(params)
    assert found.run_ex_post_epsilon == pytest.approx(0.6 + runs)


def test_losses_do_not_depend_on_the_order_of_the_batches() -> None:
    assert report.ex_post_losses(LOSSES[::-1], MEDIAN) == report.ex_post_losses(LOSSES, MEDIAN)


@pytest.mark.parametrize(('losses', 'params'), [(LOSSES, PARAMS), ([], MEDIAN)])
def test_losses_are_of_median_runs_only(losses: list[BatchLoss], params: MechanismParams) -> None:
    with pytest.raises(ValueError, match='leave the losses out'):
        report.ex_post_losses(losses, params)


def test_repr_of_losses_shows_no_number() -> None:
    losses = report.ex_post_losses(LOSSES, MEDIAN)
    for shown in (losses, losses.loss_by_batch['0000-000000'], losses.loss_by_place[0]):
        assert not re.search(r'\d', repr(shown))


# ------------------------------------------------------------- what contexts spent


def test_spending_of_a_run_by_hand() -> None:
    """B = 0.5: shares of 0.2, 1 and 0.6 in the batch of three, and a batch of nobody."""
    found = report.context_spending(SPENDING, INDIVIDUAL)
    assert list(found.spending_by_batch) == ['0000-000000', '0000-000001', '0000-000002']
    three, nobody, one = found.spending_by_batch.values()
    assert three.mean_share_spent == pytest.approx(0.6) and three.largest_share_spent == pytest.approx(1)
    assert (three.stream_tokens, three.last_voters, three.first_silent) == (4, 1, 2)
    assert (nobody.stream_tokens, nobody.mean_share_spent, nobody.largest_share_spent) == (2, 0.0, 0.0)
    assert (one.stream_tokens, one.last_voters, one.first_silent) == (3, 1, None)
    # 4 contexts with shares 0.2, 0.4, 0.6, 1: the middle one lies between 0.4 and 0.6.
    deciles = found.share_spent_deciles
    assert len(deciles) == 11 and deciles[5] == pytest.approx(0.5)
    assert (deciles[0], deciles[-1]) == pytest.approx((0.2, 1.0))
    # (3/3 + 1/1)/2 at the first two tokens, then (2/3 + 1)/2, and at the last the longer stream alone.
    assert found.share_voting == pytest.approx((1, 1, 5 / 6, 1 / 3))


def test_spending_does_not_depend_on_the_order_of_the_batches() -> None:
    assert report.context_spending(SPENDING[::-1], INDIVIDUAL) == report.context_spending(
        SPENDING, INDIVIDUAL
    )


def test_spending_of_a_run_without_contexts() -> None:
    nobody = [SPENDING[1]]
    found = report.context_spending(nobody, INDIVIDUAL)
    assert found.share_spent_deciles == () and found.share_voting == (0.0, 0.0)


@pytest.mark.parametrize(('spending', 'params'), [(SPENDING, PARAMS), ([], INDIVIDUAL)])
def test_spending_is_of_individual_accounting_only(
    spending: list[BatchSpending], params: MechanismParams
) -> None:
    with pytest.raises(ValueError, match='Leave the spending out'):
        report.context_spending(spending, params)


def test_repr_of_spending_shows_no_number() -> None:
    found = report.context_spending(SPENDING, INDIVIDUAL)
    for shown in (found, found.spending_by_batch['0000-000000']):
        assert not re.search(r'\d', repr(shown))
    assert not re.search(r'0\.\d|\[|\(\d', repr(SPENDING[0]))
