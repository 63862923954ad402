"""The leave-one-out audit (CL D.5.2): how much likelier is an output with than without one context?

CL = the clustering paper. The output is decoded as a run decodes; its probability under the
batch and under each neighbour is computed by other means (`models.audits.replay`). An audit of
real records is private to the curator: nothing of it may be released.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from models import generate
from models.audits import replay
from models.privacy.params import Change, MechanismParams
from models.privacy.randomness import RunKey
from models.records import Batch, Context

# What rounding may add to a loss: decoding sums float32, and the replay is compiled apart.
SLACK = 1e-3
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaveOneOut:
    """The audit of one batch's output (CL D.5.2). Restricted to the curator.

    Attributes:
        batch_id: `str` of the planned batch.
        label: Its declared label, or None.
        bound: What the output may cost: for a median the loss that the run reports for this
            batch; else the pure bound 2Δ/τ for each private token that was used, with Δ the
            aggregate's sensitivity. Both with 2/(sσ) for each run of the sparse-vector test.
        contexts: True size of the batch.
        private_tokens: Private tokens of the output.
        public_tokens: Public ones.
        removed: For each context, the log ratio of the output's probability with it to that
            without it.
        added: The same for each context of another batch that is put in: with to without.
        replaced: For each context that gives way to one of another batch, before to after;
            empty where one unit adds or removes a context and replaces none.
    """

    batch_id: str
    label: str | None
    bound: float = dataclasses.field(repr=False)
    contexts: int = dataclasses.field(repr=False)
    private_tokens: int
    public_tokens: int
    removed: tuple[float, ...] = dataclasses.field(repr=False)
    added: tuple[float, ...] = dataclasses.field(repr=False)
    replaced: tuple[float, ...] = dataclasses.field(repr=False)

    @property
    def empirical_epsilon(self) -> float:
        """Largest log ratio of all, without its sign: a lower bound on the loss."""
        return max(map(abs, (*self.removed, *self.added, *self.replaced)), default=0.0)

    @property
    def ok(self) -> bool:
        """Whether no log ratio passes the bound by more than rounding."""
        return self.empirical_epsilon <= self.bound * (1 + SLACK) + 1e-6


def leave_one_out(
    generator: generate.BatchGenerator,
    batch: Batch,
    key: RunKey,
    *,
    outsiders: Sequence[Context] = (),
    sabotage: replay.Sabotage = 'none',
) -> LeaveOneOut:
    """Decodes a batch, then asks how much likelier its output is with than without each context.

    The adversary of CL D.5.2 removes one context before the batch starts and sees the whole
    output: tokens, and with the sparse vector which of them are private.

    `sabotage` breaks the mechanism, never the figure that it is judged by. 'no-clipping' lets
    votes through as they are and puts in an outlier, which clipping would hold: the first context
    likes best what the model finds least likely, a hundredfold. The median of many is robust
    without any clipping, so a median's batch is cut to two contexts, both of them outliers.
    'paste' copies the texts of the contexts to the output.

    Args:
        generator: The run's generator.
        batch: A batch of real contexts.
        key: A key of the audit's own: the run's would give the run's output.
        outsiders: Contexts of another batch, for the other direction of neighbours.
        sabotage: What to break.
    """
    if sabotage == 'no-clipping' and generator.params.is_ex_post:
        batch = dataclasses.replace(batch, contexts=batch.contexts[:2])
    case = replay.Case.of(generator, batch, outsiders, sabotage)
    draws = generator.draws(batch, key)
    stream = generator.decode(batch, draws) if sabotage == 'none' else case.decode(draws)
    ratios = log_ratios(case, stream)
    return LeaveOneOut(
        batch_id=str(batch.batch_id),
        label=batch.label,
        bound=replay.output_bound(stream, generator.params),
        contexts=len(batch.contexts),
        private_tokens=int(stream.is_private.sum()),
        public_tokens=int((~stream.is_private).sum()),
        removed=ratios['removed'],
        added=ratios['added'],
        replaced=ratios['replaced'],
    )


def log_ratios(case: replay.Case, stream: generate.TokenStream) -> dict[str, tuple[float, ...]]:
    """log P(output | the larger or the former batch) / P(output | its neighbour), for each neighbour."""
    params, count = case.params, len(case.inside)
    batch, others = list(range(count)), list(range(count, count + len(case.outside)))
    kinds = ['removed'] * count + ['added'] * len(others)
    neighbours = [[row for row in batch if row != gone] for gone in batch] + [[*batch, o] for o in others]
    if params.change is Change.REPLACE and others:
        kinds += ['replaced'] * count
        neighbours += [
            [others[gone % len(others)] if row == gone else row for row in batch] for gone in batch
        ]
    sets = [batch, *neighbours]

    told: list[int] = []
    total = np.zeros(len(sets))
    steps: list[np.ndarray] = []
    for position in case.positions([*case.inside, *case.outside], told):
        token, is_private = int(stream.tokens[len(told)]), bool(stream.is_private[len(told)])
        if params.threshold is not None:
            steps.append(replay.distances(sets, position, params))
        if is_private:
            allowed = case.allowed(position, token)
            chosen = int(allowed[:token].sum())
            for index, scores in enumerate(case.scores(position, allowed, sets)):
                total[index] += scores[allowed][chosen] - np.logaddexp.reduce(scores[allowed])
        told.append(token)
        if len(told) == len(stream.tokens):
            break
    if params.threshold is not None:
        total += log_flag_probabilities(np.array(steps), stream.is_private, params)
    ratios = total[0] - total[1:]
    ratios = np.where(np.array(kinds) == 'added', -ratios, ratios)
    return {
        kind: tuple(float(r) for r, k in zip(ratios, kinds, strict=True) if k == kind)
        for kind in ('removed', 'added', 'replaced')
    }


def log_flag_probabilities(found: np.ndarray, is_private: np.ndarray, params: MechanismParams) -> np.ndarray:
    """log probability of the flags of a stream, for each batch, given the distances at every token.

    One run of the sparse-vector test goes up to a private token, or to the stream's end, and has
    one threshold u + θ with u ~ Laplace(σ). Given u, its tests are independent (PP Algorithm 1):

        log ∫ Lap_σ(u) Π P(d + η < θ + u) P(d' + η ≥ θ + u) du,   η ~ Laplace(2σ)

    Args:
        found: `[n, batches]` distances.
        is_private: `[n]` bool.
        params: With a threshold.

    Returns:
        `[batches]`.
    """
    ends = [*(np.flatnonzero(is_private) + 1).tolist(), len(is_private)]
    total, start = np.zeros(found.shape[1]), 0
    for end in ends:
        if end > start:
            runs = found[start:end].T
            total += [_log_run_probability(run, bool(is_private[end - 1]), params) for run in runs]
        start = end
    return total


def _log_run_probability(run: np.ndarray, ends_above: bool, params: MechanismParams) -> float:
    """The integral of `log_flag_probabilities` for one run of distances `[n]`.

    Composite Gauss-Legendre with 16 nodes on pieces of at most σ/2 that end at every kink, summed
    in logarithms: a run of hundreds of tests has an integrand far below the least float64.
    """
    theta, sigma = params.threshold, params.threshold_noise_scale
    assert theta is not None and sigma is not None
    kinks = np.unique(np.concatenate([[0.0], run - theta]))
    # Past the last kink the integrand falls by e^(−1/σ) at least, but where the tests of
    # a long run hold it up: they do so for 2σ ln n.
    reach = (45 + 2 * math.log(len(run))) * sigma
    edges = np.concatenate([[kinks[0] - reach], kinks, [kinks[-1] + reach]])
    pieces = [np.linspace(a, b, 2 + int((b - a) / (sigma / 2)))[:-1] for a, b in zip(edges[:-1], edges[1:])]
    cuts = np.concatenate([*pieces, edges[-1:]])
    half = np.diff(cuts) / 2
    u = (cuts[:-1, None] + half[:, None] * (1 + _NODES)).ravel()
    log_weights = np.log((half[:, None] * _WEIGHTS).ravel()) - np.abs(u) / sigma - math.log(2 * sigma)
    for index, d in enumerate(run):
        gap = (theta + u - d) / (2 * sigma)
        log_weights += _log_laplace_cdf(-gap if ends_above and index + 1 == len(run) else gap)
    return float(np.logaddexp.reduce(log_weights))


def _log_laplace_cdf(x: np.ndarray) -> np.ndarray:
    """log P(Laplace(0, 1) < x)."""
    tail = np.exp(-np.abs(x)) / 2
    return np.where(x < 0, np.minimum(x, 0) - math.log(2), np.log1p(-tail))
