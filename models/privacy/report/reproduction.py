"""Lines of Python that print the figures of a report again."""

import functools
import math
import typing
from collections.abc import Iterable, Mapping, Sequence

from models.privacy import accounting
from models.privacy.accounting import losses, subsampled
from models.privacy.events import DiscreteGaussianDpEvent, DpEvent, PoissonSampledDpEvent
from models.privacy.facts import Reproduction
from models.privacy.report.released import PrivacyReport
from models.privacy.report.tuned import Tuned
from models.privacy.report.tuned_voted import TunedVoted

if typing.TYPE_CHECKING:
    import jinja2

type Rows = Sequence[tuple[str, Mapping[str, DpEvent]]]
"""What comments call the cost of a run, and its events by stage."""


def lines_of(report: PrivacyReport) -> str:
    """Lines for the run alone and then, where anything went in, for all together; empty without a figure."""
    alone = _alone(report)
    if report.epsilon is None or not report.counted:
        return alone
    run = 'this run' if report.reads_records else f'the run {report.releases[0].run_id!r}'
    went_in = ((f'the run {release.run_id!r}, which went in', release.costs) for release in report.counted)
    rows = ((run, report.method.costs), *went_in)
    return f'{alone}\n# Together with what went in\n{_together(rows, report.delta)}'


def _alone(report: PrivacyReport) -> str:
    method, delta = report.method, report.delta
    if isinstance(method, Tuned):
        params = method.mechanism
        interval = subsampled.interval_of_steps(
            params.sampling_probability, params.noise_multiplier, params.tuning_steps, delta
        )
        shown = None if interval == subsampled.INTERVAL else interval
        return _rendered('tuned', params=params, interval=shown, delta=delta)
    if isinstance(method, TunedVoted):
        return _by_losses([('this run', method.costs)], delta)
    parts = method.reproductions
    if not method.costs or not _is_by_losses(method.costs.values(), delta):
        return _in_zcdp(parts, delta)
    lines = (
        *(line for part in parts for line in (*part.settings, *part.steps)),
        f'rho = {" + ".join(part.cost for part in parts)}',
    )
    return _by_losses([('this run', method.costs)], delta, lines, 'rho = {rho:.10g}, ')


def _together(rows: Rows, delta: float) -> str:
    curves = [(name, accounting.compose(map(accounting.curve_of, costs.values()))) for name, costs in rows]
    if _is_by_losses([event for _, costs in rows for event in costs.values()], delta):
        return _by_losses(rows, delta)
    if any(curve.sampled for _, curve in curves):
        highest = min(curve.largest_order for _, curve in curves)
        shown = None if math.isinf(highest) else highest
        return _rendered('renyi', curves=curves, highest=shown, delta=delta)
    parts = [
        Reproduction(
            settings=(f'cost_{place} = {curve.rho!r}  # rho of {name}',),
            cost=f'cost_{place}',
            largest_order='' if curve.is_zcdp else repr(curve.largest_order),
        )
        for place, (name, curve) in enumerate(curves)
    ]
    return _in_zcdp(parts, delta)


def _in_zcdp(parts: Sequence[Reproduction], delta: float) -> str:
    if not parts:
        return ''
    largest = [part.largest_order for part in parts if part.largest_order]
    lines = (
        *(line for part in parts for line in part.settings),
        f'delta = {delta!r}',
        *(line for part in parts for line in part.steps),
        f'rho = {" + ".join(part.cost for part in parts)}',
    )
    omega = f'min({", ".join(largest)})' if len(largest) > 1 else ''.join(largest)
    return _rendered('zcdp', lines=lines, omega=omega)


def _is_by_losses(costs: Iterable[DpEvent], delta: float) -> bool:
    """True if epsilon of these is that of their losses, and not that of their curves."""
    costs = list(costs)
    curve = accounting.compose(map(accounting.curve_of, costs))
    if curve.sampled:
        return all(_distribution(leaf) is not None for leaf, _ in losses.leaves(costs))
    return accounting.epsilon_of_events(costs, delta) < curve.epsilon(delta)


def _by_losses(rows: Rows, delta: float, lines: Sequence[str] = (), printed: str = '') -> str:
    """Lines for epsilon of the losses of all rows together."""
    leaves = [(name, *leaf) for name, costs in rows for leaf in losses.leaves(costs.values())]
    if all(losses.is_as_gaussian(leaf) for _, leaf, _ in leaves):
        gaussians = [
            (name, losses.dominating_noise_multiplier(leaf), count)
            for name, leaf, count in leaves
            if leaf is not None
        ]
        return _rendered('gaussian', lines=lines, delta=delta, gaussians=gaussians, printed=printed)
    released = [event for _, costs in rows for event in costs.values()]
    interval = losses.interval_of_events(released, delta)
    distributions = [
        (name, f'{_distribution(leaf, interval)}{"" if count == 1 else f".self_compose({count})"}')
        for name, leaf, count in leaves
    ]
    return _rendered(
        'losses', lines=lines, delta=delta, distributions=distributions, printed=printed, interval=interval
    )


def _distribution(leaf: losses.Leaf | None, interval: float | None = None) -> str | None:
    """An expression for the distribution of losses of an event; None where it has none."""
    apart = '' if interval is None else f', value_discretization_interval={interval!r}'
    match leaf:
        case None:
            return None
        case PoissonSampledDpEvent(sampling_probability=q, event=gaussian):
            return f'pld.from_gaussian_mechanism({gaussian.noise_multiplier!r}, sampling_prob={q!r}{apart})'
        case DiscreteGaussianDpEvent(sigma=sigma):
            return f'pld.from_discrete_gaussian_mechanism({sigma!r}, use_connect_dots=True{apart})'
    multiplier = losses.dominating_noise_multiplier(leaf)
    return None if multiplier is None else f'pld.from_gaussian_mechanism({multiplier!r}{apart})'


def _rendered(name: str, **values: typing.Any) -> str:
    return _environment().get_template(f'{name}.py.jinja').render(values)


@functools.cache
def _environment() -> 'jinja2.Environment':
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader('models.privacy.report', 'templates/reproduction'),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
