"""A run and its ledger: asked before a folder is made, charged before the first step, settled at the end."""

import json
import math
import warnings
from collections.abc import Mapping
from typing import Any

from models.privacy import accounting, report
from pipeline import methods
from pipeline.ledger.account import Account, epsilon_of_costs
from pipeline.ledger.answer import BudgetAnswer, FittingSetting, HasRoom, fitting_words
from pipeline.ledger.budget import BudgetExceeded, OrderTooLow
from pipeline.ledger.ledger import Ledger
from pipeline.methods import earlier
from pipeline.methods.fine_tune import released
from pipeline.methods.solved import Run
from pipeline.run import identity
from pipeline.run.folders import is_finished
from transforms.durable import read_key


def ask(run: Run) -> BudgetAnswer:
    """Asks the run's ledger whether it may start; nothing is written.

    A config without an output and a run id is taken for a run of a new name.

    Raises:
        ValueError: The config names no ledger; the ledger does not hold the dataset, holds
            it for another unit, or holds another run of this name; or the run builds on an earlier release
            that claims a charge which the ledger does not hold.
        ConnectionError: The ledger is not there.
    """
    name = run.budget.dataset
    if name is None or run.budget.ledger is None:
        raise ValueError(
            f'Expected dataset and ledger, got dataset={name!r}, ledger={run.budget.ledger!r}. '
            'Give --dataset NAME --ledger FILE.'
        )
    ledger = Ledger.open(run.budget.ledger)
    check_earlier(run, ledger)
    output = run.config.output
    is_new = output.run_id is None and output.output is None
    run_id = None if is_new else run.run_id
    account = ledger.account(name)
    cost, entry = run.cost, None
    try:
        entry = ledger.check(name, run_id=run_id, unit=run.budget.unit, cost=cost)
    except BudgetExceeded:
        pass
    except OrderTooLow as error:
        raise _with_order(error, run, account) from None
    fits = entry is not None
    charged = None if run_id is None else account.run(run_id)
    rho = account.asked(cost) if charged is None else charged.rho
    left = max(0.0, account.rho_left - (rho if charged is None and fits else 0.0))
    delta, largest_order = account.dataset.delta, cost.curve.largest_order
    return BudgetAnswer(
        dataset=name,
        fits=fits,
        is_charged=charged is not None,
        rho_budget=account.dataset.rho_budget,
        rho_spent=account.rho_spent,
        rho=rho,
        rho_left=left,
        epsilon_left=account.epsilon_of_further(left),
        epsilon_left_up_to_omega=(
            None
            if math.isinf(largest_order)
            else accounting.epsilon_from_rho(left, delta, largest_order=largest_order)
        ),
        privacy_filter=account.dataset.privacy_filter,
        epsilon_bound=account.epsilon_bound,
        lowered_from=account.lowered_from,
        delta=delta,
        epsilon=epsilon_of_costs([cost], delta),
        epsilon_together=None if entry is None else entry.epsilon_after,
        fitting=() if fits else fitting(run, account),
        sufficient_epsilon=None if fits else account.sufficient_epsilon(cost),
    )


def check_earlier(run: Run, ledger: Ledger) -> None:
    """Refuses earlier releases that claim a charge which the ledger does not hold."""
    for begun in run.begun:
        if begun.is_adapter:
            releases = released.read_card(begun.place).handed_on()
        else:
            releases = earlier.origin_of_texts(begun.place, begun.name).releases
        earlier.check(releases, begun.what, begun.place, begun.name, run.budget.dataset, ledger)


def check(ledger: Ledger, run: Run) -> None:
    """Asks whether a run may start; the binding answer is `reserve`'s.

    Raises:
        BudgetExceeded: It does not fit into what the dataset has left; it names what would.
        ValueError: As of `check_earlier`, or it was finished and its release is not there.
    """
    check_earlier(run, ledger)
    account = ledger.account(str(run.budget.dataset))
    _refuse_lost_release(run, account)
    try:
        ledger.check(account.dataset.name, run_id=run.run_id, unit=run.budget.unit, cost=run.cost)
    except BudgetExceeded as error:
        words = fitting_words(fitting(run, account), run.delta)
        raise error.with_remedy(words, account.sufficient_epsilon(run.cost)) from None
    except OrderTooLow as error:
        raise _with_order(error, run, account) from None


def _refuse_lost_release(run: Run, account: Account) -> None:
    """Refuses to resume a run that is finished: its release is out, so whatever came now would be another."""
    charged = account.run(run.run_id)
    if charged is not None and charged.state == 'settled' and not is_finished(run):
        raise ValueError(
            f'Expected the release of run_id={run.run_id!r} in output={run.output!r}, since '
            f'dataset={account.dataset.name!r} has that run as settled, got no report there. A finished run '
            'is not resumed: restore its release from a copy, or choose another --run-id (and --output), '
            'which is charged anew.'
        )


def fitting(run: Run, account: Account) -> tuple[FittingSetting, ...]:
    """Settings of which each alone would make a run fit that does not."""
    return methods.of(run).fitting(run, _room(run, account), account.dataset.order) or ()


def _with_order(error: OrderTooLow, run: Run, account: Account) -> OrderTooLow:
    """The refusal of a run whose orders do not reach its dataset's, with all that would have to change."""
    room, order = _room(run, account), account.dataset.order
    changes = methods.of(run).fitting(run, room, order, reaches=False)
    return error if changes is None else error.with_remedy(fitting_words(changes, run.delta))


def _room(run: Run, account: Account) -> HasRoom:
    """True if a run with other settings would fit."""

    def has_room(changed: Mapping[str, Any]) -> bool | None:
        try:
            return account.has_room(methods.solve(run.config.replace(**changed)).cost)
        except ValueError:
            return None

    return has_room


def reserve(ledger: Ledger, run: Run) -> report.LedgerEntry:
    """Charges a prepared run to its dataset; free where that was done before."""
    key = read_key(run.work_dir)
    # Under the key: a plain digest of the input would let anyone who sees the ledger test a guess of it.
    digest = key.hash('identity', json.dumps(identity.fingerprint(run), sort_keys=True).encode(), size=32)
    return ledger.reserve(
        str(run.budget.dataset),
        run_id=run.run_id,
        unit=run.budget.unit,
        cost=run.cost,
        identity=digest.hex(),
        key_commitment=key.commitment(run.run_id),
    )


def settle(ledger: Ledger, run: Run) -> None:
    """Notes in the ledger that a run is finished; warns where the ledger cannot be reached."""
    dataset, run_id = str(run.budget.dataset), run.run_id
    try:
        ledger.settle(dataset, run_id)
    except ConnectionError as error:
        # The corpus is whole and paid for: what is missing is a note.
        warnings.warn(
            f'Expected the ledger to note that run_id={run_id!r} is finished, got: {error} The run is; '
            f'when the ledger is back: dp-corpus ledger settle {dataset} {run_id}.',
            stacklevel=2,
        )
