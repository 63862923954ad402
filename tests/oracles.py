"""The slow twin of every formula of the mechanism, written from the papers, not from our code.

Plain NumPy in float64 and mpmath; of the project only the plain data types are imported. PP = Amin et al.
2024 with Algorithm 1 and appendix D; CKS = Canonne, Kamath and Steinke 2020. A twin's
arguments carry the paper's symbols: s, c, τ (`tau`), τ_pub (`tau_public`), θ (`theta`),
σ (`sigma`), r.

`Mechanism` holds the right mechanism and, through its last fields, the wrong ones that
`tests/models/privacy/enumeration_test.py` must reject.
"""

import collections
import dataclasses
import fractions
import functools
import hashlib
import itertools
import math
import unicodedata
from collections.abc import Callable, Hashable, Sequence

import mpmath
import numpy as np
from scipy import stats

from models.batching import BatchPlan
from models.privacy.params import Aggregate, Unit
from models.records import Batch, BatchId, Context, Record

# ---------------------------------------------------------------- PP equations 1 and 2


def clip(logits: np.ndarray, c: float) -> np.ndarray:
    """clip(z)_i = max(−c, z_i − max_j z_j + c) (PP equation 1); a row that is not finite is all −c.

    Args:
        logits: `[..., V]`.
        c: Clip bound.
    """
    result = np.full(logits.shape, -float(c))
    for index in np.ndindex(logits.shape[:-1]):
        row = [float(x) for x in logits[index]]
        if all(np.isfinite(row)):
            top = max(row)
            result[index] = [max(-c, (x - top) + c) for x in row]
    return result


def softmax(logits: np.ndarray, tau: float = 1.0) -> np.ndarray:
    """softmax(z/τ) over the last axis in float64; zeros for a row that is not finite."""
    result = np.zeros(logits.shape)
    for index in np.ndindex(logits.shape[:-1]):
        row = logits[index].astype(np.float64)
        if np.isfinite(row).all():
            powers = np.exp((row - row.max()) / tau)
            result[index] = powers / powers.sum()
    return result


def mean_aggregate(logits: np.ndarray, s: float, c: float | None) -> np.ndarray:
    """(1/s) Σ clip(z) over the first axis (PP Algorithm 1, line 13); c=None does not clip."""
    votes = logits.astype(np.float64) if c is None else clip(logits, c)
    return votes.sum(axis=0) / s


def difference_aggregate(
    logits: np.ndarray, public: np.ndarray, s: float, c: float | None, *, around_the_private: bool = False
) -> np.ndarray:
    """z_pub + (1/s) Σ clamp(z − z_pub, −c, c) of log-probabilities (METHOD 4b); a broken row adds nothing.

    Args:
        logits: `[n, ..., V]`.
        public: `[..., V]`.
        s: Divisor.
        c: Clip bound; None does not clamp (wrong).
        around_the_private: Wrong: clamps around the contexts' own mean instead of around z_pub.
    """
    base = log_softmax(public.astype(np.float64))
    rows = []
    for row in logits.astype(np.float64):
        finite = np.isfinite(row).all(axis=-1, keepdims=True)
        rows.append(np.where(finite, log_softmax(np.where(finite, row, 0.0)), np.nan))
    if around_the_private and rows:
        base = np.mean([np.nan_to_num(row) for row in rows], axis=0)
    total = np.zeros(base.shape)
    for row in rows:
        difference = row - base
        if c is not None:
            difference = np.minimum(np.maximum(difference, -c), c)
        total += np.where(np.isnan(row), 0.0, difference)
    return base + total / s


def top_k_plus(public: np.ndarray, released: np.ndarray, k: int, s: float, c: float) -> np.ndarray:
    """`[V]` bool: released tokens whose public logit is at least the k-th largest minus 2c/s (METHOD 4b)."""
    ranked = sorted((float(x) for x, keep in zip(public, released, strict=True) if keep), reverse=True)
    kth = ranked[min(k, len(ranked)) - 1]
    return np.array([bool(keep) and x >= kth - 2 * c / s for x, keep in zip(public, released, strict=True)])


# ---------------------------------------------------------------- CL 4.2 and METHOD 5: median


def median(votes: np.ndarray) -> np.ndarray:
    """Middle of `[n, ...]` sorted votes, n >= 1; between two middles their mean, in the votes' own type."""
    ordered, h = np.sort(votes, axis=0), len(votes) // 2
    return ordered[h] if len(votes) % 2 else (ordered[h - 1] + ordered[h]) / votes.dtype.type(2)


def median_aggregate(logits: np.ndarray, public: np.ndarray, c: float | None) -> np.ndarray:
    """Median of clip(z) (CL equation 3); of no context, clip(z_pub). c=None does not clip (wrong)."""
    rows = logits if len(logits) else public[None]
    return median(rows.astype(np.float64) if c is None else clip(rows, c))


def medians_after_one_change(votes: np.ndarray, c: float, *, replace: bool, random: np.ndarray) -> np.ndarray:
    """`[changes, V]` medians of the batches that one change makes of this one, built one by one.

    A vote is added that is all at −c, all at c, another context's, or random; each vote in turn is
    removed; where `replace`, each in turn makes place for each of the added ones.

    Args:
        votes: `[n, V]` clipped logits, n >= 2.
        c: Clip bound.
        replace: Whether a context's content may change.
        random: `[k, V]` further votes in [−c, c].
    """
    ends = np.stack([np.full(votes.shape[1], end, votes.dtype) for end in (-c, c)])
    added = np.concatenate([ends, votes, random.astype(votes.dtype)])
    fewer = [np.delete(votes, row, axis=0) for row in range(len(votes))]
    changed = fewer + [np.concatenate([votes, vote[None]]) for vote in added]
    if replace:
        changed += [np.concatenate([rest, vote[None]]) for rest in fewer for vote in added]
    return np.stack([median(batch) for batch in changed])


def token_losses(
    middle: np.ndarray, lowest: np.ndarray, highest: np.ndarray, allowed: np.ndarray, token: int, tau: float
) -> tuple[float, float]:
    """−log α and log β of METHOD 5, term by term, with mpmath at 50 digits."""
    with mpmath.workdps(50):

        def log_sum(scores: np.ndarray) -> mpmath.mpf:
            kept = (float(x) for x, keep in zip(scores, allowed, strict=True) if keep)
            return mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(x) / tau) for x in kept))

        m, low, high = (mpmath.mpf(float(scores[token])) for scores in (middle, lowest, highest))
        log_alpha = (m - high) / tau + log_sum(lowest) - log_sum(middle)
        log_beta = (m - low) / tau + log_sum(highest) - log_sum(middle)
        return float(-log_alpha), float(log_beta)


# ------------------------------------------------------------------- sparse-vector test


def distance(logits: np.ndarray, public: np.ndarray, s: float) -> np.ndarray:
    """‖(1/s) Σ softmax(z) − softmax(z_pub)‖₁ with raw logits at temperature 1 (PP equation 2)."""
    return np.abs(softmax(logits).sum(axis=0) / s - softmax(public)).sum(axis=-1)


def laplace_cdf(x: np.ndarray | float, scale: float) -> np.ndarray:
    """P(Laplace(0, scale) < x)."""
    x = np.asarray(x, np.float64)
    small = 0.5 * np.exp(-np.abs(x) / scale)
    return np.where(x < 0, small, 1 - small)


# ------------------------------------------------------------------ PP Theorem 1, CKS


def rho_per_private_token(s: float, c: float, tau: float, sigma: float | None, factor: int = 1) -> mpmath.mpf:
    """½ (c/(sτ))² + 2/(sσ)² (PP Theorem 1); `factor` 2 doubles both sensitivities (METHOD 1)."""
    s, c, tau = mpmath.mpf(s), mpmath.mpf(c), mpmath.mpf(tau)
    rho = (factor * c / (s * tau)) ** 2 / 2
    if sigma is not None:
        rho += 2 * (factor / (s * mpmath.mpf(sigma))) ** 2
    return rho


def delta(rho: float, epsilon: float) -> mpmath.mpf:
    """inf over α > 1 of exp((α−1)(αρ−ε))/(α−1) · (1−1/α)^α (CKS Corollary 13), by minimisation at 50 digits.

    The objective's logarithm is evaluated on a dense grid of log(α−1), and the interval
    around the grid's least value is shrunk by golden sections to 30 digits. No derivative.
    """
    with mpmath.workdps(50):
        rho, epsilon = mpmath.mpf(rho), mpmath.mpf(epsilon)
        if rho == 0:
            return mpmath.mpf(0)

        def log_bound(log_excess: mpmath.mpf) -> mpmath.mpf:
            excess = mpmath.exp(log_excess)
            alpha = 1 + excess
            return excess * (alpha * rho - epsilon) - log_excess + alpha * mpmath.log(excess / alpha)

        # The optimum lies near α = (ε/ρ + 1)/2, or near e^(ε−ρ) where ρ is far above ε.
        low = mpmath.mpf(min(-20, epsilon - rho - 5))
        high = mpmath.log((epsilon + 2) / rho + 2) + 2
        steps = 128
        values = [log_bound(low + (high - low) * i / steps) for i in range(steps + 1)]
        best = min(range(steps + 1), key=lambda i: values[i])
        if best == 0 and rho - epsilon > 100:
            return mpmath.mpf(1)  # the infimum lies at α = 1 + e^(ε−ρ), where 50 digits show 1
        if best == 0:
            raise ArithmeticError(
                f'Expected an inner minimum, got rho={rho}, epsilon={epsilon}: widen the grid.'
            )
        left = low + (high - low) * (best - 1) / steps
        right = low + (high - low) * min(best + 1, steps) / steps
        ratio = (mpmath.sqrt(5) - 1) / 2
        inner, outer = right - ratio * (right - left), left + ratio * (right - left)
        f_inner, f_outer = log_bound(inner), log_bound(outer)
        for _ in range(60):  # 60 sections leave 3e-13 of the interval, 1e-24 of the value
            if f_inner < f_outer:
                right, outer, f_outer = outer, inner, f_inner
                inner = right - ratio * (right - left)
                f_inner = log_bound(inner)
            else:
                left, inner, f_inner = inner, outer, f_outer
                outer = left + ratio * (right - left)
                f_outer = log_bound(outer)
        return mpmath.exp(min(f_inner, f_outer, mpmath.mpf(0)))


def epsilon(rho: float, target_delta: float, relative: float = 1e-12) -> mpmath.mpf:
    """Least ε with `delta(rho, ε) <= target_delta`, by bisection."""
    if delta(rho, 0.0) <= target_delta:
        return mpmath.mpf(0)
    low, high = (
        mpmath.mpf(0),
        mpmath.mpf(rho) + mpmath.sqrt(4 * rho * mpmath.log(1 / mpmath.mpf(target_delta))),
    )
    while high - low > relative * high:
        middle = (low + high) / 2
        if delta(rho, middle) <= target_delta:
            high = middle
        else:
            low = middle
    return high


# ----------------------------------------------------------------- the sampling tree


@dataclasses.dataclass(frozen=True)
class SamplingTree:
    """The binary tree over float32 weights, each node with the draws that take its lighter side.

    Attributes:
        levels: Depth.
        left: For every level from the root, `[nodes]` float32 weight of the left side.
        right: The same of the right side.
        words_for_lighter: For every level, `[nodes]` number of 64-bit words, of 2^64,
            that take the lighter side (Python integers).
    """

    levels: int
    left: tuple[np.ndarray, ...]
    right: tuple[np.ndarray, ...]
    words_for_lighter: tuple[np.ndarray, ...]

    def walk(self, words: Sequence[int]) -> int:
        """The token that `levels` 64-bit words lead to."""
        node = 0
        for level, word in enumerate(words):
            lighter_is_right = self.right[level][node] < self.left[level][node]
            lighter = int(word) < self.words_for_lighter[level][node]
            node = 2 * node + (lighter == lighter_is_right)
        return int(node)

    def probabilities(self, size: int) -> np.ndarray:
        """`[size]` float64: the exact probability of every token under uniform words."""
        result = np.ones(1)
        for left, right, count in zip(self.left, self.right, self.words_for_lighter, strict=True):
            lighter = np.array([int(n) / 2**64 for n in count])
            heavier = np.array([(2**64 - int(n)) / 2**64 for n in count])
            take_right = np.where(right < left, lighter, heavier)
            take_left = np.where(right < left, heavier, lighter)
            result = np.stack([result * take_left, result * take_right], axis=-1).reshape(-1)
        if result[size:].any():
            raise ArithmeticError('Expected padding leaves to be out of reach.')
        return result[:size]


def word_to_uniform(words: np.ndarray) -> np.ndarray:
    """64-bit words to float32 uniforms, with every rounding of the device."""
    high = (words >> np.uint64(32)).astype(np.uint32).astype(np.float32)
    low = (words & np.uint64(2**32 - 1)).astype(np.uint32).astype(np.float32)
    return high * np.float32(2.0**-32) + (low + np.float32(0.5)) * np.float32(2.0**-64)


def sampling_tree(
    weights: np.ndarray, to_uniform: Callable[[np.ndarray], np.ndarray] = word_to_uniform
) -> SamplingTree:
    """Every node's lighter side as an exact number of 64-bit words, by bisection over the words.

    Args:
        weights: `[V]` float32, not normalised.
        to_uniform: Words to uniforms; another one than the default is a wrong generator.
    """
    levels = max(1, (len(weights) - 1).bit_length())
    layer = np.concatenate([weights.astype(np.float32), np.zeros(2**levels - len(weights), np.float32)])
    lefts, rights, counts = [], [], []
    for _ in range(levels):
        pairs = layer.reshape(-1, 2)
        left, right = pairs[:, 0], pairs[:, 1]
        layer = left + right  # float32, as on the device
        lighter = np.minimum(left, right)
        # The least word that does not take the lighter side; the condition is monotone
        # in the word up to one rounding of the uniform, 2^-23 of it.
        count = np.zeros(len(pairs), np.uint64)
        for bit in reversed(range(64)):
            trial = count + np.uint64(2**bit)
            takes = to_uniform(trial - np.uint64(1)) * layer < lighter
            count = np.where(takes, trial, count)
        lefts.append(left)
        rights.append(right)
        counts.append(count)
    return SamplingTree(levels, tuple(reversed(lefts)), tuple(reversed(rights)), tuple(reversed(counts)))


# ----------------------------------------- Algorithm 1: exact distribution of one batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mechanism:
    """Algorithm 1's settings in the paper's symbols; the last five fields spoil it on purpose.

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
        stop: Tokens that end an example.
        aggregate: What private tokens are sampled from.
        divide_by_true_size: Wrong: divides by the number of contexts, at least 1.
        distance_noise_factor: The distance gets this times σ; 2 is right.
        threshold_noise: False is wrong: θ without noise.
        refresh_threshold: False is wrong: one threshold for the whole stream.
        around_the_private: Wrong: differences are clamped around the contexts' own mean.
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
    stop: frozenset[int] = frozenset()
    aggregate: Aggregate = 'mean'
    divide_by_true_size: bool = False
    distance_noise_factor: float = 2.0
    threshold_noise: bool = True
    refresh_threshold: bool = True
    around_the_private: bool = False

    def divisor(self, contexts: int) -> float:
        return max(1, contexts) if self.divide_by_true_size else self.s

    def private_scores(self, logits: np.ndarray, public: np.ndarray) -> np.ndarray:
        """The aggregate of `[n, ..., V]` logits, divided by τ."""
        divisor = self.divisor(len(logits))
        if self.aggregate == 'median':
            return median_aggregate(logits, public, self.c) / self.tau
        if self.aggregate == 'difference':
            found = difference_aggregate(
                logits, public, divisor, self.c, around_the_private=self.around_the_private
            )
            return found / self.tau
        return mean_aggregate(logits, divisor, self.c) / self.tau


@dataclasses.dataclass(frozen=True)
class Steps:
    """What the mechanism reads at every prefix of an example: `[N]` prefixes, `[N, V]` tokens.

    Attributes:
        private_log: `[N, V]` log-probabilities of a private token.
        public_log: `[N, V]` log-probabilities of a public token.
        distance: `[N]`.
    """

    private_log: np.ndarray
    public_log: np.ndarray
    distance: np.ndarray


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """log softmax over the last axis, float64."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def steps_of(logits: np.ndarray, public: np.ndarray, mechanism: Mechanism) -> Steps:
    """The float64 path from tables of logits to what every prefix needs.

    Args:
        logits: `[n, N, V]`, the contexts' raw logits at every prefix.
        public: `[N, V]`.
        mechanism: The settings.
    """
    return Steps(
        log_softmax(mechanism.private_scores(logits, public)),
        log_softmax(public.astype(np.float64) / mechanism.tau_public),
        distance(logits, public, mechanism.divisor(len(logits))),
    )


Output = tuple[tuple[int, bool], ...]  # (token, is private), as released


def prefixes(vocab: int, length: int) -> dict[tuple[int, ...], int]:
    """Every token sequence shorter than `length`, numbered."""
    layers: list[tuple[int, ...]] = [()]
    found = {(): 0}
    for _ in range(length - 1):
        layers = [(*p, x) for p in layers for x in range(vocab)]
        for prefix in layers:
            found[prefix] = len(found)
    return found


def outputs_of(vocab: int, mechanism: Mechanism) -> list[Output]:
    """Every possible release of one batch, by recursion over tokens and visible flags."""
    finished: list[Output] = []

    def extend(output: Output, private: int) -> None:
        if private == mechanism.r or len(output) == mechanism.max_tokens:
            finished.append(output)
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
        if token in mechanism.stop or len(example) == mechanism.max_example_tokens:
            example = ()
    return positions


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
            total += (steps.private_log if is_private else steps.public_log)[place, token]
            (above if is_private else below).append(place)
            if is_private and mechanism.theta is not None and mechanism.refresh_threshold:
                total += run(below, above)
                below, above = [], []
        if mechanism.theta is not None and (below or above):
            total += run(below, above)
        result.append(total)
    return np.array(result)


def renyi(p: np.ndarray, q: np.ndarray, alpha: float) -> float:
    """Rényi divergence of order α > 1, or ∞, between two log-distributions on the same outputs."""
    if np.isinf(alpha):
        return float((p - q).max())
    terms = alpha * p + (1 - alpha) * q
    top = terms.max()
    return float((top + np.log(np.exp(terms - top).sum())) / (alpha - 1))


# ---------------------------------------- Algorithm 1: one stream from given draws


def stream(
    logits_at: Callable[[tuple[int, ...]], tuple[np.ndarray, np.ndarray]],
    mechanism: Mechanism,
    *,
    threshold_noise: np.ndarray,
    distance_noise: np.ndarray,
    token_words: np.ndarray,
    released: np.ndarray,
    public_top_k: int | None = None,
) -> Output:
    """PP Algorithm 1, lines 4 to 21, in plain Python from the draws of one batch.

    Args:
        logits_at: From the tokens of the current example to the contexts' logits
            `[n, V]` and the public logits `[V]`.
        mechanism: The settings; only `refresh_threshold` of the wrong ones is read.
        threshold_noise: One value for each threshold.
        distance_noise: One value for each token.
        token_words: `[tokens, levels]` uint64.
        released: `[V]` bool.
        public_top_k: K, ties with the K-th stay in; Top-k+ for the difference aggregate.
    """
    output: list[tuple[int, bool]] = []
    t, x = 0, ()
    while t < mechanism.r and len(output) < mechanism.max_tokens:
        contexts, public = logits_at(x)
        allowed = released.copy()
        if public_top_k is not None:
            wider = mechanism.c if mechanism.aggregate == 'difference' else 0.0
            allowed = top_k_plus(public, released, public_top_k, mechanism.s, wider)
        is_private = True
        if mechanism.theta is not None:
            theta = mechanism.theta + threshold_noise[t if mechanism.refresh_threshold else 0]
            is_private = distance(contexts, public, mechanism.s) + distance_noise[len(output)] >= theta
        if is_private:
            scores = mechanism.private_scores(contexts, public)
        else:
            scores = public / mechanism.tau_public
        weights = np.where(allowed, np.exp(scores - scores[allowed].max()), 0.0)
        token = sampling_tree(weights.astype(np.float32)).walk(token_words[len(output)])
        output.append((token, bool(is_private)))
        t += bool(is_private)
        x = (*x, token)
        if token in mechanism.stop or len(x) == mechanism.max_example_tokens:
            x = ()
    return tuple(output)


def split(output: Output, stop: frozenset[int], max_example_tokens: int) -> list[tuple]:
    """Examples of a released stream: (tokens without the stop token, private, public, truncated)."""
    examples, current = [], []
    for token, is_private in output:
        current.append((token, is_private))
        if token in stop or len(current) == max_example_tokens:
            examples.append(current)
            current = []
    if current:
        examples.append(current)
    result = []
    for example in examples:
        stopped = example[-1][0] in stop
        tokens = tuple(token for token, _ in example)
        private = sum(flag for _, flag in example)
        result.append((tokens[:-1] if stopped else tokens, private, len(example) - private, not stopped))
    return result


@functools.cache
def chi_square_bound(degrees: int, odds: float) -> float:
    """The value that a chi-square variable passes with probability `odds`."""
    return float(stats.chi2.isf(odds, degrees))


def chi_square(counts: np.ndarray, probabilities: np.ndarray, least: float = 8.0) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom; cells expected below `least` are pooled.

    Args:
        counts: `[n]` observed.
        probabilities: `[n]`, of total 1.
        least: Least expected count of a cell.
    """
    order = np.argsort(probabilities)
    observed, hoped = [0.0], [0.0]
    for count, expected in zip(counts[order], probabilities[order] * counts.sum(), strict=True):
        if hoped[-1] >= least:
            observed.append(0.0)
            hoped.append(0.0)
        observed[-1] += count
        hoped[-1] += expected
    pooled, expectation = np.array(observed), np.array(hoped)
    return float(((pooled - expectation) ** 2 / expectation).sum()), len(pooled) - 1


# ---------------------------------------------------------------- METHOD 1 to 3: batches


def keyed_hash(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    """Slow twin of `RunKey.hash`, from its description."""
    framed = b''.join(len(part).to_bytes(8, 'little') + part for part in parts)
    return hashlib.blake2b(framed, digest_size=16, key=secret, person=purpose.encode()).digest()


def record_hash(secret: bytes, record: Record) -> bytes:
    """Slow twin of `batching.record_hash`."""
    parts = (record.record_id or '', record.text, record.label or '')
    return keyed_hash(secret, 'record', *(part.encode() for part in parts))


def histogram(
    records: list[Record],
    labels: Sequence[str | None],
    clusters: Sequence[int | None],
    secret: bytes,
    *,
    unit: Unit,
) -> list[int]:
    """Contexts per cell: every label with every cluster (METHOD 3, steps 2 and 4).

    A unit's context counts where its record with the smallest keyed hash belongs; without
    units, every record counts.
    """
    counted: dict[object, Record] = {}
    declared = [record for record in records if record.label in labels]
    for order, record in enumerate(sorted(declared, key=lambda r: (record_hash(secret, r), r.text))):
        counted.setdefault(record.unit if unit == 'user' else order, record)
    return [
        sum((record.label, record.cluster) == (label, cluster) for record in counted.values())
        for label in labels
        for cluster in clusters
    ]


def batches(
    records: list[Record],
    plan: BatchPlan,
    secret: bytes,
    *,
    unit: Unit,
    k: int,
    slots: int,
    text_limit: int | None = None,
) -> list[Batch]:
    """Slow twin of the whole assignment: METHOD 1 to 3 word by word, on all records at once.

    With a clustering in the plan, records come with the kept centre that they are nearest to.
    """
    groups: list[tuple[str | None, int | None]] = []
    for order, label in enumerate(plan.labels):
        for cluster in [None] if plan.clustering is None else plan.clustering.kept[order]:
            groups.append((label, cluster))

    def group_of(record: Record) -> int:
        return groups.index((record.label, None if plan.clustering is None else record.cluster))

    def number(digest: bytes) -> int:
        return int.from_bytes(digest, 'little')

    records = sorted(
        (r for r in records if r.label in plan.labels), key=lambda r: (record_hash(secret, r), r.text)
    )
    contexts: dict[BatchId, list[Context]] = {}
    for group, count in enumerate(plan.batches_per_group):
        for index in range(count):
            contexts[BatchId(group=group, index=index)] = []
    by_place: dict[tuple, list[Record]] = {}
    for order, record in enumerate(records):
        group = group_of(record)
        digest = number(record_hash(secret, record))
        index = digest % plan.batches_per_group[group]
        if unit == 'user':
            place: tuple = (record.unit,)
        elif k > 1:
            place = (group, index, digest // plan.batches_per_group[group] % slots)
        else:
            place = (group, index, order)
        by_place.setdefault(place, []).append(record)
    for place, members in by_place.items():
        if unit == 'user':
            members = [member for member in members if member.label == members[0].label]
            group = group_of(members[0])
            name = keyed_hash(secret, 'unit', place[0].encode())
            batch = BatchId(group=group, index=number(name) % plan.batches_per_group[group])
        else:
            batch = BatchId(group=place[0], index=place[1])
            name = record_hash(secret, members[0])
            if k > 1:
                name = keyed_hash(secret, 'slot', *(part.to_bytes(8, 'little') for part in place))
        texts = tuple(member.text[:text_limit] for member in members[:k])
        contexts[batch].append(Context(context_hash=name, texts=texts))
    return [
        Batch(
            batch_id=batch,
            label=groups[batch.group][0],
            contexts=tuple(sorted(held, key=lambda context: (context.context_hash, context.texts))),
        )
        for batch, held in sorted(contexts.items())
    ]


# ---------------------------------------------------------------- DP k-means (Chang and Kamath 2021)


def prefix_tree_leaves(signs: Sequence[Sequence[bool]], *, smallest: int) -> set[frozenset[int]]:
    """The rows of each leaf of the tree without noise, node by node from the root.

    A node of `3 * smallest` rows splits by its level's sign; a child of fewer than
    `smallest` rows is cut off; a node without children is a leaf.

    Args:
        signs: One tuple of signs per row, one sign per level.
        smallest: The least rows of a node.
    """

    def walk(rows: list[int], level: int) -> set[frozenset[int]]:
        if level == len(signs[0]) or len(rows) < 3 * smallest:
            return {frozenset(rows)}
        sides = [[row for row in rows if bool(signs[row][level]) is side] for side in (False, True)]
        kept = [side for side in sides if len(side) >= smallest]
        return set().union(*(walk(side, level + 1) for side in kept)) if kept else {frozenset(rows)}

    return walk(list(range(len(signs))), 0)


# ------------------------------------------------------------- embedders and centres, METHOD 3


def nearest(embeddings: np.ndarray, centers: np.ndarray, kept: Sequence[int] | None = None) -> list[int]:
    """arg min |x − c|² over the kept centres in exact fractions; ties to the smaller index.

    |x|² is the same for all, so |c|² − 2 x·c decides, rounded once to float64.
    """
    answers = []
    for row in embeddings:
        x = [fractions.Fraction(float(value)) for value in row]
        scores = {}
        for index in range(len(centers)) if kept is None else kept:
            c = [fractions.Fraction(float(value)) for value in centers[index]]
            scores[index] = float(sum(ci * ci - 2 * xi * ci for xi, ci in zip(x, c, strict=True)))
        answers.append(min(scores, key=lambda index: (scores[index], index)))
    return answers


def tfidf_embedding(text: str, terms: Sequence[str], idf: np.ndarray, components: np.ndarray) -> np.ndarray:
    """(1 + ln tf) · idf of each known word, to length 1; on the components, to length 1 again."""
    letters = unicodedata.normalize('NFKD', text.lower())
    letters = ''.join(letter for letter in letters if not unicodedata.combining(letter))
    # A mark or a space ends a word; a digit or underscore makes it no word at all.
    words = ''.join(letter if letter.isalnum() or letter == '_' else ' ' for letter in letters).split()
    column = {term: index for index, term in enumerate(terms)}
    counts = collections.Counter(word for word in words if word.isalpha() and word in column)
    weights = {word: (1 + math.log(count)) * float(idf[column[word]]) for word, count in counts.items()}
    length = math.sqrt(sum(weight**2 for weight in weights.values()))
    vector = np.zeros(len(components))
    for word, weight in weights.items():
        vector += weight / length * components[:, column[word]].astype(np.float64)
    norm = math.sqrt(sum(value**2 for value in vector))
    return vector / norm if norm else vector


def bert_mean_state(
    weights: dict[str, np.ndarray], ids: Sequence[int], heads: int, layers: int, epsilon: float
) -> np.ndarray:
    """Mean of BERT's last states over one text's tokens, in float64 (Devlin et al. 2019).

    One text, no padding, one head and one position at a time.
    """

    def tensor(name: str) -> np.ndarray:
        return weights[name].astype(np.float64)

    def dense(name: str, x: np.ndarray) -> np.ndarray:
        return x @ tensor(f'{name}.weight').T + tensor(f'{name}.bias')

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        rows = [(row - row.mean()) / math.sqrt(row.var() + epsilon) for row in x]
        return np.stack(rows) * tensor(f'{name}.weight') + tensor(f'{name}.bias')

    x = np.stack([
        tensor('embeddings.word_embeddings.weight')[token]
        + tensor('embeddings.position_embeddings.weight')[position]
        + tensor('embeddings.token_type_embeddings.weight')[0]
        for position, token in enumerate(ids)
    ])  # fmt: skip
    x = norm('embeddings.LayerNorm', x)
    for layer in range(layers):
        name = f'encoder.layer.{layer}'
        query, key, value = (dense(f'{name}.attention.self.{part}', x) for part in ('query', 'key', 'value'))
        width = x.shape[1] // heads
        mixed = np.zeros_like(x)
        for head in range(heads):
            columns = slice(head * width, (head + 1) * width)
            for position in range(len(ids)):
                scores = key[:, columns] @ query[position, columns] / math.sqrt(width)
                powers = np.exp(scores - scores.max())
                mixed[position, columns] = (powers / powers.sum()) @ value[:, columns]
        x = norm(f'{name}.attention.output.LayerNorm', x + dense(f'{name}.attention.output.dense', mixed))
        inner = dense(f'{name}.intermediate.dense', x)
        inner = inner * stats.norm.cdf(inner)
        x = norm(f'{name}.output.LayerNorm', x + dense(f'{name}.output.dense', inner))
    return x.mean(axis=0)
