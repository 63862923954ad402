"""The slow twin of every formula of the mechanism, written from the papers, not from our code.

Plain NumPy in float64 and mpmath; of the project only the plain data types are imported. PP = Amin et al.
2024 with Algorithm 1 and appendix D; CKS = Canonne, Kamath and Steinke 2020. A twin's
arguments carry the paper's symbols: s, c, τ (`tau`), τ_pub (`tau_public`), θ (`theta`),
σ (`sigma`), r.

`Mechanism` holds the right mechanism and, through its last fields, the wrong ones that
`tests/models/privacy/enumeration_test.py` must reject.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Hashable, Sequence

import mpmath
import numpy as np
from scipy import stats

from models.batching import BatchPlan
from models.privacy.params import Unit
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
    """Algorithm 1's settings in the paper's symbols; the last four fields spoil it on purpose.

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
        divide_by_true_size: Wrong: divides by the number of contexts, at least 1.
        distance_noise_factor: The distance gets this times σ; 2 is right.
        threshold_noise: False is wrong: θ without noise.
        refresh_threshold: False is wrong: one threshold for the whole stream.
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
    divide_by_true_size: bool = False
    distance_noise_factor: float = 2.0
    threshold_noise: bool = True
    refresh_threshold: bool = True

    def divisor(self, contexts: int) -> float:
        return max(1, contexts) if self.divide_by_true_size else self.s


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
    divisor = mechanism.divisor(len(logits))
    return Steps(
        log_softmax(mean_aggregate(logits, divisor, mechanism.c) / mechanism.tau),
        log_softmax(public.astype(np.float64) / mechanism.tau_public),
        distance(logits, public, divisor),
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
        public_top_k: K, ties with the K-th stay in.
    """
    output: list[tuple[int, bool]] = []
    t, x = 0, ()
    while t < mechanism.r and len(output) < mechanism.max_tokens:
        contexts, public = logits_at(x)
        allowed = released.copy()
        if public_top_k is not None:
            ranked = sorted((float(public[i]) for i in np.flatnonzero(released)), reverse=True)
            allowed &= public >= ranked[min(public_top_k, len(ranked)) - 1]
        is_private = True
        if mechanism.theta is not None:
            theta = mechanism.theta + threshold_noise[t if mechanism.refresh_threshold else 0]
            is_private = distance(contexts, public, mechanism.s) + distance_noise[len(output)] >= theta
        if is_private:
            scores = mean_aggregate(contexts, mechanism.s, mechanism.c) / mechanism.tau
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


# ---------------------------------------------------------------- METHOD 1 and 2: batches


def keyed_hash(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    """Slow twin of `RunKey.hash`, from its description."""
    framed = b''.join(len(part).to_bytes(8, 'little') + part for part in parts)
    return hashlib.blake2b(framed, digest_size=16, key=secret, person=purpose.encode()).digest()


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
    """Slow twin of the whole assignment: METHOD 1 and 2 word by word, on all records at once."""

    def record_hash(record: Record) -> bytes:
        parts = (record.record_id or '', record.text, record.label or '')
        return keyed_hash(secret, 'record', *(part.encode() for part in parts))

    def number(digest: bytes) -> int:
        return int.from_bytes(digest, 'little')

    records = sorted((r for r in records if r.label in plan.labels), key=lambda r: (record_hash(r), r.text))
    contexts: dict[BatchId, list[Context]] = {}
    for group, count in enumerate(plan.batches_per_group):
        for index in range(count):
            contexts[BatchId(group=group, index=index)] = []
    by_place: dict[tuple, list[Record]] = {}
    for order, record in enumerate(records):
        group = plan.labels.index(record.label)
        digest = number(record_hash(record))
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
            group = plan.labels.index(members[0].label)
            name = keyed_hash(secret, 'unit', place[0].encode())
            batch = BatchId(group=group, index=number(name) % plan.batches_per_group[group])
        else:
            batch = BatchId(group=place[0], index=place[1])
            name = record_hash(members[0])
            if k > 1:
                name = keyed_hash(secret, 'slot', *(part.to_bytes(8, 'little') for part in place))
        texts = tuple(member.text[:text_limit] for member in members[:k])
        contexts[batch].append(Context(context_hash=name, texts=texts))
    return [
        Batch(
            batch_id=batch,
            label=plan.labels[batch.group],
            contexts=tuple(sorted(held, key=lambda context: (context.context_hash, context.texts))),
        )
        for batch, held in sorted(contexts.items())
    ]
