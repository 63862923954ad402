"""The leave-one-out audit (CL D.5.2): how much more likely is an output with a context than without it?

CL is the clustering paper. The output is decoded as in a run; its probability under the batch and under each
neighbour is computed by a second implementation (`models.audits.replay`). An audit of real records is
private to the curator: no part of it may be released.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from models.audits import bounds, replay
from models.generate.batch import BatchGenerator
from models.generate.stream import TokenStream
from models.generate.walk import Position
from models.privacy.aggregates.replay import log_softmax
from models.privacy.params import Change, MechanismParams
from models.privacy.randomness import RunKey
from models.records import Batch, Context

# What rounding may add to a loss: decoding sums float32, and the replay is compiled apart.
SLACK = 1e-3
# The same of a vote, in nats: how far the logits of two programs may lie apart.
_VOTE_SLACK = 1e-3
# Orders that divergences are taken at, as far as they are below ω, and ω.
ORDERS = (1.1, 1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Payment:
    """What a neighbour's context paid by individual accounting, and how much it moved (METHOD 4d).

    If one context is replaced by another, both paid, and their payments count twice. Private to the curator.

    Attributes:
        paid: ρ that the run charged for the context over the whole stream.
        most: What it may pay: B, or 4B for a replacement.
        bound: The pure bound 4c/(sτ) for each token that it voted on and paid for.
        divergence: The largest Σ D_α/α over the stream's tokens, for orders α up to ω and both
            directions, between the sampling distributions with it and without it. At most `paid`.
        rounding: What rounding of logits may add to the divergence.
    """

    paid: float = dataclasses.field(repr=False)
    most: float
    bound: float = dataclasses.field(repr=False)
    divergence: float = dataclasses.field(repr=False)
    rounding: float = dataclasses.field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether it paid at least the divergence that it caused, and at most its budget."""
        within = self.paid <= self.most * (1 + 1e-6)
        return within and self.divergence <= self.paid * (1 + SLACK) + self.rounding


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaveOneOut:
    """The audit of one batch's output (CL D.5.2). Restricted to the curator.

    Attributes:
        batch_id: `str` of the planned batch.
        label: Its declared label, or None.
        reference_texts: Texts that the difference is taken from, 0 for the public prompt.
        bound: What the output may cost: for a median the loss that the run reports for this
            batch; else the pure bound 2Δ/τ for each private token that was used, with Δ the
            aggregate's sensitivity. Both with 2/(sσ) for each run of the sparse-vector test. With
            individual accounting the largest bound of a `Payment`; each log ratio is held against
            its own.
        contexts: True size of the batch.
        private_tokens: Private tokens of the output.
        public_tokens: Public ones.
        forced_tokens: Forced ones, for which no context pays.
        removed: For each context, the log ratio of the output's probability with it to that
            without it.
        added: The same for each context of another batch that is put in: with to without.
        replaced: For each context that gives way to one of another batch, before to after;
            empty where one unit adds or removes a context and replaces none.
        payments: With individual accounting, of each of these in turn: the removed, the added, the
            replaced. Else empty.
    """

    batch_id: str
    label: str | None
    reference_texts: int = 0
    bound: float = dataclasses.field(repr=False)
    contexts: int = dataclasses.field(repr=False)
    private_tokens: int
    public_tokens: int
    forced_tokens: int = 0
    removed: tuple[float, ...] = dataclasses.field(repr=False)
    added: tuple[float, ...] = dataclasses.field(repr=False)
    replaced: tuple[float, ...] = dataclasses.field(repr=False)
    payments: tuple[Payment, ...] = dataclasses.field(default=(), repr=False)

    @property
    def empirical_epsilon(self) -> float:
        """Largest log ratio of all, without its sign: a lower bound on the loss."""
        return max(map(abs, (*self.removed, *self.added, *self.replaced)), default=0.0)

    @property
    def ok(self) -> bool:
        """Whether no log ratio passes its bound by more than rounding, and each context paid for its own."""
        ratios = (*self.removed, *self.added, *self.replaced)
        bounds = [payment.bound for payment in self.payments] or [self.bound] * len(ratios)
        within = (
            abs(ratio) <= bound * (1 + SLACK) + 1e-6 for ratio, bound in zip(ratios, bounds, strict=True)
        )
        return all(within) and all(payment.ok for payment in self.payments)


def leave_one_out(
    generator: BatchGenerator,
    batch: Batch,
    key: RunKey,
    *,
    outsiders: Sequence[Context] = (),
    sabotage: replay.Sabotage = 'none',
    reference: Sequence[str] = (),
) -> LeaveOneOut:
    """Decodes a batch, then compares the probability of its output with and without each context.

    The adversary of CL D.5.2 removes one context before the batch starts and sees the whole
    output: tokens, and with the sparse vector which of them are private. With individual accounting
    the votes of the others stay as they were, since what a context pays hangs on it and on the
    released prefix alone; and each context's influence is held against what it paid itself.

    `sabotage` breaks the mechanism, never the figure that it is judged by. 'no-clipping' lets
    votes through as they are and puts in an outlier, which clipping would hold: the first context
    likes best what the model finds least likely, a hundredfold. The median of many is robust
    without any clipping, so a median's batch is cut to two contexts, both of them outliers.
    'paste' copies the texts of the contexts to the output.

    Of individual accounting, with a batch that is cut to one outlier: 'no-filter' lets it vote whether
    it can pay or not; 'half-price' charges it for half of its vote; 'no-growth' charges it for a
    price that does not grow with the order, at the smallest s that settings allow.

    Args:
        generator: The run's generator.
        batch: A batch of real contexts.
        key: A key of the audit's own: the run's would give the run's output.
        outsiders: Contexts of another batch, for the other direction of neighbours.
        sabotage: What to break.
        reference: As of `BatchGenerator.decode`.

    Raises:
        ValueError: The sabotage is of individual accounting, which the mechanism does not have.
    """
    if sabotage == 'no-clipping' and generator.params.is_ex_post:
        batch = dataclasses.replace(batch, contexts=batch.contexts[:2])
    if sabotage in replay.INDIVIDUAL:
        if not generator.params.is_individual:
            raise ValueError(
                f'Expected individual accounting, got sabotage={sabotage!r}. It breaks what nothing else has.'
            )
        batch, outsiders = dataclasses.replace(batch, contexts=batch.contexts[:1]), ()
    if sabotage == 'no-growth':
        generator = dataclasses.replace(generator, params=replay.at_small_s(generator.params))
    case = replay.Case.of(generator, batch, outsiders, sabotage, reference=reference)
    draws = generator.draws(batch, key)
    if sabotage == 'none':
        stream = generator.decode(batch, draws, reference=reference)
    else:
        stream = case.decode(draws)
    ratios, payments = log_ratios(case, stream)
    bound = bounds.output_bound(stream, generator.params)
    return LeaveOneOut(
        batch_id=str(batch.batch_id),
        label=batch.label,
        reference_texts=len(reference),
        bound=max((payment.bound for payment in payments), default=0.0)
        if case.params.is_individual
        else bound,
        contexts=len(batch.contexts),
        private_tokens=int(stream.is_private.sum()),
        public_tokens=int((stream.is_chosen & ~stream.is_private).sum()),
        forced_tokens=int((~stream.is_chosen).sum()),
        removed=ratios['removed'],
        added=ratios['added'],
        replaced=ratios['replaced'],
        payments=payments,
    )


def log_ratios(
    case: replay.Case, stream: TokenStream
) -> tuple[dict[str, tuple[float, ...]], tuple[Payment, ...]]:
    """log P(output | the larger or the former batch) / P(output | its neighbour), for each neighbour.

    And, with individual accounting, what each neighbour's contexts paid.
    """
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
    tab = _Tab(case, stream, sets) if params.is_individual else None
    for position in case.positions([*case.inside, *case.outside], told):
        token, is_private = int(stream.tokens[len(told)]), bool(stream.is_private[len(told)])
        is_chosen = bool(stream.is_chosen[len(told)])
        if is_chosen and params.threshold is not None:
            steps.append(case.distances(sets, position))
        if is_private:
            allowed = case.allowed(position, token)
            chosen = int(allowed[:token].sum())
            voting = sets if tab is None else tab.charge(position, len(told))
            logs = np.array([log_softmax(z[allowed]) for z in case.scores(position, allowed, voting)])
            total += logs[:, chosen]
            if tab is not None:
                tab.add(logs)
        told.append(token)
        if len(told) == len(stream.tokens):
            break
    if params.threshold is not None:
        total += log_flag_probabilities(np.array(steps), stream.is_private[stream.is_chosen], params)
    ratios = total[0] - total[1:]
    ratios = np.where(np.array(kinds) == 'added', -ratios, ratios)
    by_kind = {
        kind: tuple(float(r) for r, k in zip(ratios, kinds, strict=True) if k == kind)
        for kind in ('removed', 'added', 'replaced')
    }
    return by_kind, () if tab is None else tab.payments(len(told))


class _Tab:
    """What contexts were charged along one output, and how far their votes moved what was sampled from.

    Those of the batch were charged by the run itself; those that are put in, by its functions.
    """

    def __init__(self, case: replay.Case, stream: TokenStream, sets: Sequence[Sequence[int]]) -> None:
        assert stream.spending is not None and case.params.omega is not None
        omega = case.params.omega
        self._case, self._spending, self._sets = case, stream.spending, sets
        self._orders = np.array([alpha for alpha in ORDERS if alpha < omega] + [omega])[:, None]
        self._spent = np.zeros(len(case.outside), np.float32)
        rows = len(case.inside) + len(case.outside)
        self._paid, self._tokens = np.zeros(rows), np.zeros(rows, int)
        # Directions, orders, neighbours.
        self._divergences = np.zeros((2, len(self._orders), len(sets) - 1))

    def charge(self, position: Position, token: int) -> list[list[int]]:
        """Charges all contexts for a token, and returns those of each set that vote on it."""
        inside, count = len(self._case.inside), len(self._paid)
        charged, voted, self._spent = self._case.settle(position, range(inside, count), self._spent)
        charged = np.concatenate([self._spending.charged[token], charged])
        voted = np.concatenate([self._spending.voted[token], voted])
        self._paid += charged
        self._tokens += charged > 0
        return [[row for row in rows if voted[row]] for rows in self._sets]

    def add(self, logs: np.ndarray) -> None:
        """Adds a token's divergences between the batch's log-probabilities, row 0, and its neighbours'."""
        for direction, sign in enumerate((1, -1)):
            for neighbour, other in enumerate(logs[1:]):
                p, q = (logs[0], other)[::sign]
                if (p != q).any():
                    terms = self._orders * p + (1 - self._orders) * q
                    divergence = np.logaddexp.reduce(terms, axis=1) / (self._orders[:, 0] - 1)
                    self._divergences[direction, :, neighbour] += divergence / self._orders[:, 0]

    def payments(self, tokens: int) -> tuple[Payment, ...]:
        """The payments of every neighbour, after a stream of that many tokens."""
        params, batch = self._case.params, set(self._sets[0])
        assert params.context_budget is not None
        # Of a sum of squares to which one is added: |a + b|² <= (|a| + |b|)².
        assert params.shift_bound is not None
        gain = math.exp(params.shift_bound / params.temperature / 2)
        moved = gain * math.sqrt(tokens / 2) * _VOTE_SLACK / (params.batch_size * params.temperature)
        found = []
        for neighbour, divergence in zip(self._sets[1:], self._divergences.max(axis=(0, 1)), strict=True):
            changed = sorted(batch ^ set(neighbour))
            # Two contexts at once move the scores by up to the sum of what each moves them by.
            paid = len(changed) * float(self._paid[changed].sum())
            found.append(
                Payment(
                    paid=paid,
                    most=len(changed) ** 2 * params.context_budget,
                    bound=int(self._tokens[changed].sum()) * bounds.vote_cost(params),
                    divergence=float(divergence),
                    rounding=moved * (2 * math.sqrt(paid) + moved),
                )
            )
        return tuple(found)


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
