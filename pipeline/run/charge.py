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
from pipeline.run import identity
from pipeline.run.folders import is_finished
from pipeline.settings.job_config import JobConfig
from transforms.durable import read_key

_FREE = accounting.ZCDpEvent(rho=0.0)
# A stage that every run has in a ledger, whatever it spends on it.
_COUNTS = 'noisy_counts'


def run_cost(config: JobConfig) -> accounting.RunCost:
    """What a run costs, stage by stage: for its caps, whatever it makes of them.

    Raises:
        ValueError: The method has no price in advance.
    """
    return accounting.RunCost(stages={_COUNTS: _FREE, **methods.of(config).cost(config)})


def ask(config: JobConfig) -> BudgetAnswer:
    """Asks the config's ledger whether the run may start; nothing is written.

    A config without an output and a run id is taken for a run of a new name.

    Raises:
        ValueError: The config names no ledger; the ledger does not hold the dataset, holds
            it for another unit, or holds another run of this name; or the run builds on an earlier release
            that claims a charge which the ledger does not hold.
        ConnectionError: The ledger is not there.
    """
    name = config.budget.dataset
    if name is None or config.budget.ledger is None:
        raise ValueError(
            f'Expected dataset and ledger, got dataset={name!r}, ledger={config.budget.ledger!r}. '
            'Give --dataset NAME --ledger FILE.'
        )
    ledger = Ledger.open(config.budget.ledger)
    methods.of(config).check_earlier(config, ledger)
    is_new = config.output.run_id is None and config.output.output is None
    run_id = None if is_new else config.output.resolved_run_id
    account = ledger.account(name)
    cost, entry = run_cost(config), None
    try:
        entry = ledger.check(name, run_id=run_id, unit=config.budget.unit, cost=cost)
    except BudgetExceeded:
        pass
    except OrderTooLow as error:
        raise _with_order(error, config, account) from None
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
        fitting=() if fits else fitting(config, account),
        sufficient_epsilon=None if fits else account.sufficient_epsilon(cost),
    )


def check(ledger: Ledger, config: JobConfig) -> None:
    """Asks whether a run may start; the binding answer is `reserve`'s.

    Raises:
        BudgetExceeded: It does not fit into what the dataset has left; it names what would.
        ValueError: It builds on an earlier release that claims a charge which the ledger does not hold, or it
            was finished and its release is not there.
    """
    methods.of(config).check_earlier(config, ledger)
    account = ledger.account(str(config.budget.dataset))
    _refuse_lost_release(config, account)
    cost = run_cost(config)
    try:
        ledger.check(
            str(config.budget.dataset),
            run_id=config.output.resolved_run_id,
            unit=config.budget.unit,
            cost=cost,
        )
    except BudgetExceeded as error:
        words = fitting_words(fitting(config, account), config.resolved_delta)
        raise error.with_remedy(words, account.sufficient_epsilon(cost)) from None
    except OrderTooLow as error:
        raise _with_order(error, config, account) from None


def _refuse_lost_release(config: JobConfig, account: Account) -> None:
    """Refuses to resume a run that is finished: its release is out, so whatever came now would be another.

    Raises:
        ValueError: The ledger has it as settled, and its report is not in the output folder.
    """
    run_id = config.output.resolved_run_id
    run = account.run(run_id)
    if run is not None and run.state == 'settled' and not is_finished(config):
        raise ValueError(
            f'Expected the release of run_id={run_id!r} in output={config.output.output!r}, since '
            f'dataset={account.dataset.name!r} has that run as settled, got no report there. A finished run '
            'is not resumed: restore its release from a copy, or choose another --run-id (and --output), '
            'which is charged anew.'
        )


def fitting(config: JobConfig, account: Account) -> tuple[FittingSetting, ...]:
    """Settings of which each alone would make a run fit that does not."""
    return methods.of(config).fitting(config, _room(config, account), account.dataset.order)


def _with_order(error: OrderTooLow, config: JobConfig, account: Account) -> OrderTooLow:
    """The refusal of a run whose orders do not reach its dataset's, with all that would have to change."""
    found = methods.of(config).fitting_order(config, _room(config, account), account.dataset.order)
    if found is None:
        return error
    return error.with_remedy(fitting_words(found, config.resolved_delta))


def _room(config: JobConfig, account: Account) -> HasRoom:
    """Whether a run with other settings would fit."""

    def has_room(changed: Mapping[str, Any]) -> bool | None:
        try:
            return account.has_room(run_cost(config.replace(**changed)))
        except ValueError:
            return None

    return has_room


def reserve(ledger: Ledger, config: JobConfig) -> report.LedgerEntry:
    """Charges a prepared run to its dataset; free where that was done before."""
    key = read_key(config.output.resolved_work_dir)
    # Under the key: a plain digest of the input would let anyone who sees the ledger test a guess of it.
    digest = key.hash('identity', json.dumps(identity.fingerprint(config), sort_keys=True).encode(), size=32)
    return ledger.reserve(
        str(config.budget.dataset),
        run_id=config.output.resolved_run_id,
        unit=config.budget.unit,
        cost=run_cost(config),
        identity=digest.hex(),
        key_commitment=key.commitment(config.output.resolved_run_id),
    )


def settle(ledger: Ledger, config: JobConfig) -> None:
    """Notes in the ledger that a run is finished; warns where the ledger cannot be reached."""
    dataset, run_id = str(config.budget.dataset), config.output.resolved_run_id
    try:
        ledger.settle(dataset, run_id)
    except ConnectionError as error:
        # The corpus is whole and paid for: what is missing is a note.
        warnings.warn(
            f'Expected the ledger to note that run_id={run_id!r} is finished, got: {error} The run is; '
            f'when the ledger is back: dp-corpus ledger settle {dataset} {run_id}.',
            stacklevel=2,
        )
