"""Which settings would make a run fit into what its dataset has left."""

from pipeline.ledger.answer import FittingSetting, HasRoom, largest_fitting
from pipeline.ledger.budget import reaching
from pipeline.methods.predict.run import PredictionRun


def fitting(run: PredictionRun, has_room: HasRoom, order: float) -> tuple[FittingSetting, ...]:
    """Settings of which each alone would make a run fit that does not.

    The one that the run's budget is given by, and where that is a number of tokens, the clip bound and
    the aggregate too: what an epsilon buys follows from these, and what it costs does not.

    Args:
        run: The run.
        has_room: Whether the dataset has room for the run with other values of settings.
        order: The Rényi order of the dataset's budget.
    """
    given = _given_by(run)
    found = [_largest(run, has_room, given, order)]
    if given == 'max_private_tokens':
        found.append(_largest(run, has_room, 'clip_bound', order))
        if not run.method.strategy.takes_reference:
            own = dict.fromkeys(('clip_bound', 'temperature', 'public_top_k'))
            if has_room({'aggregate': 'difference', 'accounting': 'worst-case', **own}):
                found.append(FittingSetting(name='aggregate', value='difference'))
    return tuple(setting for setting in found if setting is not None)


def fitting_order(run: PredictionRun, has_room: HasRoom, order: float) -> tuple[FittingSetting, ...] | None:
    """The same for a run whose orders do not reach the dataset's; None where a higher ω is enough.

    At more orders an epsilon buys more, which need not fit.
    """
    omega = reaching(order)
    if has_room({'omega': omega}):
        return None
    largest = _largest_with(run, has_room, _given_by(run), omega)
    return () if largest is None else (largest,)


def _given_by(run: PredictionRun) -> str:
    """The setting that a run's budget is given by."""
    if run.budget.epsilon is not None:
        return 'epsilon'
    return 'max_private_tokens' if run.method.context_budget is None else 'context_budget'


def _largest(run: PredictionRun, has_room: HasRoom, name: str, order: float) -> FittingSetting | None:
    """The largest value of a setting, below its present one, with which a run would fit."""
    found = _largest_with(run, has_room, name, None)
    if found is None and run.method.is_individual:
        # Orders that were given, or suit the run's own delta, need not reach the ledger's.
        found = _largest_with(run, has_room, name, reaching(order))
    return found


def _largest_with(
    run: PredictionRun, has_room: HasRoom, name: str, omega: float | None
) -> FittingSetting | None:
    present = run.params.clip_bound if name == 'clip_bound' else float(run.config.settings()[name])
    value = largest_fitting(
        name,
        present,
        has_room,
        is_whole=name == 'max_private_tokens',
        others={} if omega is None else {'omega': omega},
    )
    return None if value is None else FittingSetting(name=name, value=value, omega=omega)
