"""PP Algorithm 1 (Amin et al. 2024): the exact distribution of one batch, and one stream from given draws.

With `narrows` every prediction is taken given that a token of the step's mask comes, and a token that
the mask forces is emitted without a vote: it is neither private nor public.

A twin's arguments carry the paper's symbols: s, c, τ (`tau`), τ_pub (`tau_public`), θ (`theta`),
σ (`sigma`), r. `Mechanism` holds the right mechanism and, through its last fields, the wrong ones that
`tests/models/privacy/enumeration_test.py` must reject.
"""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Sequence
from typing import Literal

import numpy as np

from models.privacy.params import MechanismParams
from tests.oracles.aggregates import TWINS, allowed_tokens, candidates, log_softmax, softmax
from tests.oracles.constraints import Allowed, long_enough, vocabulary
from tests.oracles.sampling import sampling_tree
from tests.oracles.sparse_vector import distance, laplace_cdf
from tests.oracles.stopping import Stop, stop_tokens, stopped


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Algorithm 1's settings in the paper's symbols; the last nine fields spoil it on purpose.

    Attributes:
        s: Divisor.
        c: Clip bound, or None for no clipping (wrong).
        tau: τ.
        r: Cap on private tokens.
        theta: θ, or None without the sparse vector.
        sigma: σ.
        tau_public: τ_pub.
        max_tokens: Cap on all tokens.
        max_example_tokens: Length cap of one example.
        min_example_tokens: Tokens that an example has before what ends it.
        stop: Texts that end an example, but for its length.
        aggregate: The quantity that private tokens are sampled from.
        top_k: K, or None for the whole vocabulary: what is allowed, and what rows are centred over.
        narrows: True if predictions are taken on the mask alone.
        divide_by_true_size: Wrong: divides by the number of contexts, at least 1.
        distance_noise_factor: The distance gets this times σ; 2 is right.
        threshold_noise: False is wrong: θ without noise.
        refresh_threshold: False is wrong: one threshold for the whole stream.
        around_the_private: Wrong: differences are clamped around the contexts' own mean.
        candidates_of_the_contexts: Wrong: the contexts' mean logits choose the candidates.
        masks_late: Wrong: votes and test read all columns, and only what is sampled is masked.
        renormalises: 'context' is right: each prediction on the mask has mass 1. 'nothing' is wrong: what is
            outside of the mask is left out of the distance. So is 'average': the sum has mass 1.
        charges_forced: Wrong: a forced token is put to the test, and is private where every token is.
    """

    s: float
    c: float | None
    tau: float
    r: int
    theta: float | None = None
    sigma: float | None = None
    tau_public: float = 1.5
    max_tokens: int
    max_example_tokens: int
    min_example_tokens: int = 0
    stop: Stop = frozenset()
    aggregate: str = 'mean'
    top_k: int | None = None
    narrows: bool = False
    divide_by_true_size: bool = False
    distance_noise_factor: float = 2.0
    threshold_noise: bool = True
    refresh_threshold: bool = True
    around_the_private: bool = False
    candidates_of_the_contexts: bool = False
    masks_late: bool = False
    renormalises: Literal['context', 'nothing', 'average'] = 'context'
    charges_forced: bool = False

    @classmethod
    def of(cls, params: MechanismParams, stop: Stop = frozenset()) -> 'Mechanism':
        """The right mechanism with a run's settings."""
        return cls(
            s=params.batch_size,
            c=params.clip_bound,
            tau=params.temperature,
            r=params.max_private_tokens,
            theta=params.threshold,
            sigma=params.threshold_noise_scale,
            tau_public=params.public_temperature,
            max_tokens=params.max_batch_tokens,
            max_example_tokens=params.max_example_tokens,
            stop=stop,
            aggregate=params.aggregate,
            top_k=params.public_top_k,
        )

    def divisor(self, contexts: int) -> float:
        return max(1, contexts) if self.divide_by_true_size else self.s

    def allowed(self, public: np.ndarray, released: np.ndarray | None = None) -> np.ndarray:
        """`[..., V]` bool: what may be sampled at each of the `[..., V]` public logits."""
        mask = np.ones(public.shape[-1], bool) if released is None else released
        wider = self.c if TWINS[self.aggregate].widens_top_k and self.c is not None else 0.0
        masks = np.broadcast_to(mask, public.shape)
        found = np.zeros(public.shape, bool)
        for index in np.ndindex(public.shape[:-1]):
            row, here = public[index], masks[index]
            found[index] = here & allowed_tokens(row, self.ranked(row, here), self.top_k, self.s, wider)
        return found

    def ranked(self, public: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """`[V]` bool: of which tokens the K best are taken: all V where the mask has some of these."""
        if not self.narrows or self.top_k is None:
            return mask
        everything = np.ones_like(mask)
        wider = self.c if TWINS[self.aggregate].widens_top_k and self.c is not None else 0.0
        best = allowed_tokens(public, everything, self.top_k, self.s, wider)
        return everything if (best & mask).any() else mask

    def long_enough(self, released: np.ndarray | Allowed) -> Allowed:
        """The mask after an example's tokens: what may come of `released` without ending it too early."""
        after = released if callable(released) else vocabulary(released)
        return long_enough(after, self.stop, self.min_example_tokens)

    def is_forced(self, mask: np.ndarray) -> bool:
        """True if the mask `[V]` leaves no choice, and nobody is asked."""
        return self.narrows and not self.charges_forced and mask.sum() == 1

    def distance(self, logits: np.ndarray, public: np.ndarray, released: np.ndarray) -> np.ndarray:
        """`[...]` distances of `[n, ..., V]` logits from `[..., V]` public ones, with their masks."""
        divisor = self.divisor(len(logits))
        if not self.narrows or self.masks_late:
            return distance(logits, public, divisor)
        masks = np.broadcast_to(released, public.shape)
        found = np.zeros(public.shape[:-1])
        for index in np.ndindex(found.shape):
            here, rows = masks[index], logits[(slice(None), *index)]
            if self.renormalises == 'context':
                found[index] = distance(rows[:, here], public[index][here], divisor)
                continue
            total = softmax(rows)[:, here].sum(axis=0) / divisor
            expected = softmax(public[index])[here]
            if self.renormalises == 'average':
                total, expected = total / max(total.sum(), 1e-300), expected / expected.sum()
            found[index] = np.abs(total - expected).sum()
        return found

    def private_scores(
        self, logits: np.ndarray, public: np.ndarray, released: np.ndarray | None = None
    ) -> np.ndarray:
        """The aggregate of `[n, ..., V]` logits, divided by τ.

        With K of the allowed columns alone, one place after the other: of the others nothing is
        seen, and they get −∞.
        """
        scores = TWINS[self.aggregate].scores
        spoilt = {'around_the_private': True} if self.around_the_private else {}
        divisor = self.divisor(len(logits))
        if self.top_k is None and (not self.narrows or self.masks_late):
            return scores(logits, public, divisor, self.c, **spoilt) / self.tau
        chooser = public
        if self.candidates_of_the_contexts and len(logits):
            chooser = np.nan_to_num(logits.astype(np.float64)).mean(axis=0)
        allowed, found = self.allowed(chooser, released), np.full(public.shape, -np.inf)
        for index in np.ndindex(public.shape[:-1]):
            columns = np.flatnonzero(allowed[index])
            rows = logits[(slice(None), *index)][:, columns]
            found[index][columns] = scores(rows, public[index][columns], divisor, self.c, **spoilt) / self.tau
        return found


@dataclasses.dataclass(frozen=True)
class Steps:
    """The mechanism's input at every prefix of an example: `[N]` prefixes, `[N, V]` tokens.

    Attributes:
        private_log: `[N, V]` log-probabilities of a private token.
        public_log: `[N, V]` log-probabilities of a public token.
        distance: `[N]`.
    """

    private_log: np.ndarray
    public_log: np.ndarray
    distance: np.ndarray


def steps_of(
    logits: np.ndarray, public: np.ndarray, mechanism: Mechanism, masks: np.ndarray | None = None
) -> Steps:
    """The float64 path from tables of logits to what every prefix needs.

    Args:
        logits: `[n, N, V]`, the contexts' raw logits at every prefix.
        public: `[N, V]`.
        mechanism: The settings.
        masks: `[N, V]` bool, of a mechanism that narrows.
    """
    allowed = mechanism.allowed(public, masks)
    scores = mechanism.private_scores(logits, public, masks)
    if mechanism.masks_late:
        scores = np.where(allowed, scores, -np.inf)
    return Steps(
        log_softmax(scores),
        log_softmax(np.where(allowed, public.astype(np.float64) / mechanism.tau_public, -np.inf)),
        mechanism.distance(logits, public, np.ones(public.shape, bool) if masks is None else masks),
    )


# (token, is private), as released; neither for a forced token, None.
Output = tuple[tuple[int, bool | None], ...]


def prefixes(vocab: int, length: int) -> dict[tuple[int, ...], int]:
    """Every token sequence shorter than `length`, numbered."""
    layers: list[tuple[int, ...]] = [()]
    found = {(): 0}
    for _ in range(length - 1):
        layers = [(*p, x) for p in layers for x in range(vocab)]
        for prefix in layers:
            found[prefix] = len(found)
    return found


def outputs_of(
    vocab: int,
    mechanism: Mechanism,
    masks: np.ndarray | None = None,
    index: dict[tuple[int, ...], int] | None = None,
) -> list[Output]:
    """Every possible release of one batch, by recursion over tokens and visible flags.

    Args:
        vocab: V.
        mechanism: The settings.
        masks: `[N, V]` bool, of a mechanism that narrows; with `index`, of its prefixes.
        index: See `masks`.
    """
    finished: list[Output] = []

    def extend(output: Output, private: int) -> None:
        if private == mechanism.r or len(output) == mechanism.max_tokens:
            finished.append(output)
            return
        if masks is not None and index is not None:
            here = masks[index[_example(output, mechanism)]]
            if mechanism.is_forced(here):
                extend((*output, (int(np.flatnonzero(here)[0]), None)), private)
                return
        for token in range(vocab):
            extend((*output, (token, True)), private + 1)
            if mechanism.theta is not None:
                extend((*output, (token, False)), private)

    extend((), 0)
    return finished


def positions_of(output: Output, mechanism: Mechanism, index: dict[tuple[int, ...], int]) -> list[int]:
    """The prefix number that each token of an output was sampled at."""
    positions, example = [], ()
    for token, _ in output:
        positions.append(index[example])
        example = (*example, token)
        if stopped(example, mechanism.stop) or len(example) == mechanism.max_example_tokens:
            example = ()
    return positions


def _example(output: Output, mechanism: Mechanism) -> tuple[int, ...]:
    """The tokens of the example that an output is within."""
    example: tuple[int, ...] = ()
    for token, _ in output:
        example = (*example, token)
        if stopped(example, mechanism.stop) or len(example) == mechanism.max_example_tokens:
            example = ()
    return example


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def log_run_probability(
    below: Sequence[float], above: Sequence[float], theta: float, mechanism: Mechanism
) -> float:
    """log of ∫ Lap_σ(u) Π P(d + η < θ + u) Π P(d + η ≥ θ + u) du for the distances below and above.

    For a fixed threshold the tests are independent Laplace tails. Composite
    Gauss-Legendre with 16 nodes on pieces of at most 2σ that break at every kink
    (u = 0 and u = d − θ): on a piece the integrand is a sum of exponentials of rate at most
    (1 + n/2)/σ, so for n <= 5 tests the rule's relative error is below 1e-12; the cut at 45σ
    past the last kink leaves out less than 1e-17.
    """
    scale = mechanism.distance_noise_factor * mechanism.sigma

    def tests(u: np.ndarray) -> np.ndarray:
        product = np.ones_like(u)
        for d in below:
            product = product * laplace_cdf(theta + u - d, scale)
        for d in above:
            product = product * laplace_cdf(d - theta - u, scale)
        return product

    if not mechanism.threshold_noise:
        return float(np.log(tests(np.zeros(1))[0]))
    kinks = sorted({0.0, *(d - theta for d in (*below, *above))})
    sigma = mechanism.sigma
    edges = [kinks[0] - 45 * sigma, *kinks, kinks[-1] + 45 * sigma]
    cuts = np.concatenate(
        [np.linspace(a, b, 2 + int((b - a) / (2 * sigma)))[:-1] for a, b in itertools.pairwise(edges)]
        + [np.array(edges[-1:])]
    )
    half = np.diff(cuts) / 2
    u = cuts[:-1, None] + half[:, None] * (1 + _NODES)
    density = np.exp(-np.abs(u) / sigma) / (2 * sigma)
    return float(np.log((half[:, None] * _WEIGHTS * density * tests(u)).sum()))


def log_distribution(
    steps: Steps, outputs: Sequence[Output], positions: Sequence[Sequence[int]], mechanism: Mechanism
) -> np.ndarray:
    """`[len(outputs)]` exact log-probability of every output of one batch (PP Algorithm 1)."""
    runs: dict[Hashable, float] = {}

    def run(below: list[int], above: list[int]) -> float:
        key = (tuple(sorted(below)), tuple(sorted(above)))
        if key not in runs:
            runs[key] = log_run_probability(
                steps.distance[list(key[0])], steps.distance[list(key[1])], mechanism.theta, mechanism
            )
        return runs[key]

    result = []
    for output, places in zip(outputs, positions, strict=True):
        total, below, above = 0.0, [], []
        for (token, is_private), place in zip(output, places, strict=True):
            if is_private is None:
                continue
            total += (steps.private_log if is_private else steps.public_log)[place, token]
            (above if is_private else below).append(place)
            if is_private and mechanism.theta is not None and mechanism.refresh_threshold:
                total += run(below, above)
                below, above = [], []
        if mechanism.theta is not None and (below or above):
            total += run(below, above)
        result.append(total)
    return np.array(result)


def stream(
    logits_at: Callable[[tuple[int, ...]], tuple[np.ndarray, np.ndarray]],
    mechanism: Mechanism,
    *,
    threshold_noise: np.ndarray,
    distance_noise: np.ndarray,
    token_words: np.ndarray,
    released: np.ndarray | Allowed | Sequence[Allowed],
) -> Output:
    """PP Algorithm 1, lines 4 to 21, in plain Python from the draws of one batch.

    Args:
        logits_at: From the tokens of the current example to the contexts' logits
            `[n, V]` and the public logits `[V]`.
        mechanism: The settings; only `refresh_threshold` of the wrong ones is read.
        threshold_noise: One value for each threshold.
        distance_noise: One value for each token.
        token_words: `[tokens, levels]` uint64.
        released: `[V]` bool, or from the tokens of the current example to that, or one such for each
            example.
    """
    output: list[tuple[int, bool | None]] = []
    t, x, example = 0, (), 0
    while t < mechanism.r and len(output) < mechanism.max_tokens:
        contexts, public = logits_at(x)
        mask = mechanism.long_enough(released[example] if isinstance(released, list) else released)(x)
        allowed = mechanism.allowed(public, mask)
        is_private: bool | None = True
        if mechanism.is_forced(mask):
            is_private = None
        elif mechanism.theta is not None:
            theta = mechanism.theta + threshold_noise[t if mechanism.refresh_threshold else 0]
            found = mechanism.distance(contexts, public, mask)
            is_private = bool(found + distance_noise[len(output)] >= theta)
        if is_private:
            scores = mechanism.private_scores(contexts, public, mask)
        else:
            scores = public / mechanism.tau_public
        weights = np.exp(np.where(allowed, scores - scores[allowed].max(), -np.inf))
        voted = candidates(public, mechanism.ranked(public, mask), mechanism.top_k)
        token = voted[sampling_tree(weights[voted].astype(np.float32)).walk(token_words[len(output)])]
        output.append((token, is_private))
        t += bool(is_private)
        x = (*x, token)
        if stopped(x, mechanism.stop) or len(x) == mechanism.max_example_tokens:
            x, example = (), example + 1
    return tuple(output)


def split(output: Output, stop: Stop, max_example_tokens: int) -> list[tuple]:
    """Examples of a released stream: (tokens without the stop token, private, public, truncated)."""
    examples, current = [], []
    for token, is_private in output:
        current.append((token, is_private))
        if stopped([token for token, _ in current], stop) or len(current) == max_example_tokens:
            examples.append(current)
            current = []
    if current:
        examples.append(current)
    result = []
    for example in examples:
        tokens = tuple(token for token, _ in example)
        ended = stopped(tokens, stop)
        private = sum(flag for _, flag in example)
        shown = tokens[:-1] if tokens[-1] in stop_tokens(stop) else tokens
        result.append((shown, private, len(example) - private, not ended))
    return result
