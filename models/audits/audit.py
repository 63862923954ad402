"""Empirical tests of the guarantee (CL D.5): leave one context out, and plant keys to be reconstructed.

CL = the clustering paper. Both audits decode as a run does, then judge the output by other
means: the leave-one-out audit computes every aggregate again, slowly, in NumPy float64, and
shares no formula with `models/privacy/mechanism.py`; the reconstruction audit counts keys.
An audit that finds nothing proves nothing, so each can be run on a mechanism that is broken
on purpose (`Sabotage`), which it must find.

Audits of real records are private to the curator: nothing of them may be released.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from models import batching, generate
from models.batching import BatchPlan
from models.decoders import decoder as decoder_lib
from models.privacy import accounting, ex_post, mechanism, randomness, sampling
from models.privacy.params import Change, MechanismParams
from models.privacy.randomness import RunKey
from models.privacy.sampling import MAX_CLIP_OVER_TEMPERATURE
from models.records import Batch, BatchId, Context, Record

Sabotage = Literal['none', 'no-clipping', 'paste']
# Whether unclipped votes give keys away hangs on how the model copies: leaving one out shows them.
KeySabotage = Literal['none', 'paste']

# What rounding may add to a loss: decoding sums float32, and the replay is compiled apart.
SLACK = 1e-3
# A sabotage puts in outliers, whose logits are this much larger: clipping would hold them.
LOUDNESS = 100.0
# Below this a pasted token's rivals have no weight.
PASTED = 60.0
# p-value below which the reconstruction audit raises its alarm: one false alarm in a thousand.
ALARM = 1e-3
KEY_PREFIX = 'My 5-digit key is '
KEY_DIGITS = 5
_KEY = re.compile(re.escape(KEY_PREFIX) + r'(\d{5})(?!\d)')
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


# ---------------------------------------------------------------- leave one context out


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
    sabotage: Sabotage = 'none',
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
    case = _Case.of(generator, batch, outsiders, sabotage)
    draws = batch_draws(generator, batch, key)
    if sabotage == 'none':
        stream = decode(generator, batch, draws)
    else:
        stream = case.decode(draws)
    ratios = case.log_ratios(stream)
    return LeaveOneOut(
        batch_id=str(batch.batch_id),
        label=batch.label,
        bound=output_bound(stream, generator.params),
        contexts=len(batch.contexts),
        private_tokens=int(stream.is_private.sum()),
        public_tokens=int((~stream.is_private).sum()),
        removed=ratios['removed'],
        added=ratios['added'],
        replaced=ratios['replaced'],
    )


def batch_draws(generator: generate.BatchGenerator, batch: Batch, key: RunKey) -> randomness.BatchDraws:
    """The randomness of a batch, as `BatchGenerator.generate` draws it."""
    params = generator.params
    return randomness.batch_draws(
        key,
        generator.run_id,
        str(batch.batch_id),
        max_private_tokens=params.max_private_tokens,
        max_batch_tokens=params.max_batch_tokens,
        threshold_noise_scale=params.threshold_noise_scale,
        levels=sampling.tree_levels(generator.decoder.vocab_size),
    )


def decode(
    generator: generate.BatchGenerator,
    batch: Batch,
    draws: randomness.BatchDraws,
    released: np.ndarray | None = None,
) -> generate.TokenStream:
    """The token stream that `BatchGenerator.generate` cuts into examples.

    Args:
        generator: The run's generator.
        batch: A batch.
        draws: Its randomness.
        released: `[V]` bool, the tokens that may be sampled; None for those of a run.
    """
    writer, params = generator.writer, generator.params
    return generate.decode_stream(
        generator.decoder,
        writer.public_prompt(batch.label) if params.needs_public_logits else None,
        writer.private_prompts(batch.label, batch.contexts),
        params=params,
        draws=draws,
        released=writer.released_tokens(generator.decoder.vocab_size) if released is None else released,
        stop_tokens=writer.stop_tokens,
    )


def output_bound(stream: generate.TokenStream, params: MechanismParams) -> float:
    """What an output may cost: see `LeaveOneOut.bound`."""
    flags = stream.is_private
    count = len(flags)
    losses = np.zeros((2, count)) if stream.losses is None else stream.losses
    loss = ex_post.BatchLoss(
        batch_id='',
        minus_log_alpha=tuple(losses[0].tolist()),
        log_beta=tuple(losses[1].tolist()),
        places=(0,) * count,
        is_private=tuple(flags.tolist()),
    )
    if params.is_ex_post:
        return loss.epsilon(params)
    # A sample from softmax(z/τ) where no component of z moves by more than Δ.
    per_token = 2 * params.aggregate_sensitivity / params.temperature
    runs = loss.sparse_vector_runs() * accounting.sparse_vector_pure_cost(params)
    return int(flags.sum()) * per_token + runs


def walk(
    decoder: decoder_lib.Decoder,
    prompts: Sequence[np.ndarray],
    *,
    stop_tokens: frozenset[int],
    max_example_tokens: int,
) -> Generator[np.ndarray, int, None]:
    """Yields the logits `[rows, V]` of every position; is sent the token that follows there.

    Examples start again from the prompts' end, as in the compiled loop.
    """
    size = decoder.shapes.micro_batch_size
    padding = [np.array([1], np.int32)] * (decoder.shapes.micro_batches(len(prompts)) * size - len(prompts))
    first, cache = decoder.prefill([*prompts, *padding])
    logits, offset = first, 0
    while True:
        token = yield np.concatenate([np.asarray(part, np.float32) for part in logits])[: len(prompts)]
        if token in stop_tokens or offset + 1 >= max_example_tokens:
            logits, offset = first, 0
        else:
            logits, cache = _step(
                decoder.weights, cache, jnp.int32(token), jnp.int32(offset), decoder=decoder
            )
            offset += 1


@functools.partial(jax.jit, static_argnames=('decoder',), donate_argnames=('cache',))
def _step(
    weights: Any, cache: Any, token: jax.Array, offset: jax.Array, *, decoder: decoder_lib.Decoder
) -> tuple[tuple[jax.Array, ...], Any]:
    return decoder.step(weights, cache, token, offset)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Case:
    """One batch under audit, and its mechanism once more in NumPy: right, or broken.

    Attributes:
        decoder: The model.
        params: The mechanism.
        sabotage: What is broken of it.
        public: Token ids of the public prompt; None where no public logits are read.
        inside: Token ids of the batch's private prompts.
        outside: Those of the contexts that are put in.
        texts: Token ids of each context's first text, inside and then outside.
        released: `[V]` bool.
        stop_tokens: Ids that end an example.
    """

    decoder: decoder_lib.Decoder
    params: MechanismParams
    sabotage: Sabotage
    public: np.ndarray | None
    inside: list[np.ndarray] = dataclasses.field(repr=False)
    outside: list[np.ndarray] = dataclasses.field(repr=False)
    texts: list[np.ndarray] = dataclasses.field(repr=False)
    released: np.ndarray
    stop_tokens: frozenset[int]

    @classmethod
    def of(
        cls,
        generator: generate.BatchGenerator,
        batch: Batch,
        outsiders: Sequence[Context],
        sabotage: Sabotage,
    ) -> '_Case':
        """The case of a batch and of contexts to add, all under the batch's label."""
        writer, params = generator.writer, generator.params
        contexts = [*batch.contexts, *outsiders]
        prefix = writer.template.response_prefix
        return cls(
            decoder=generator.decoder,
            params=params,
            sabotage=sabotage,
            public=writer.public_prompt(batch.label) if params.needs_public_logits else None,
            inside=writer.private_prompts(batch.label, batch.contexts),
            outside=writer.private_prompts(batch.label, outsiders),
            texts=writer.tokenizer.encode_batch(
                [context.texts[0].removeprefix(prefix) for context in contexts]
            ),
            released=writer.released_tokens(generator.decoder.vocab_size),
            stop_tokens=writer.stop_tokens,
        )

    def decode(self, draws: randomness.BatchDraws) -> generate.TokenStream:
        """The token stream of the broken mechanism, and the losses that a run would report for it."""
        params = self.params
        members = list(range(len(self.inside)))
        tokens: list[int] = []
        flags: list[bool] = []
        losses: list[tuple[float, float]] = []
        for logits, public, example, at in self._positions(self.inside, tokens):
            is_private = True
            if params.threshold is not None:
                noisy = distances([members], logits, public, params)[0] + draws.distance_noise[len(tokens)]
                is_private = bool(noisy >= params.threshold + draws.threshold_noise[sum(flags)])
            votes = self._votes(logits, public)
            scores = self._scores(votes, self._open(votes), members, public, example, at)
            if not is_private:
                scores = public / params.public_temperature
            allowed = self._allowed(public, None)
            weights = np.where(allowed, np.exp(scores - scores[allowed].max()), 0.0).cumsum()
            uniform = int(draws.token_words[len(tokens), 0]) / 2**64
            token = int(np.searchsorted(weights, uniform * weights[-1], side='right'))
            pair = (
                self._reported_loss(logits, public, token) if is_private and params.is_ex_post else (0.0, 0.0)
            )
            tokens.append(token)
            flags.append(is_private)
            losses.append(pair)
            if sum(flags) == params.max_private_tokens or len(tokens) == params.max_batch_tokens:
                break
        return generate.TokenStream(
            np.array(tokens, np.int32),
            np.array(flags, bool),
            np.array(losses, np.float32).T if params.is_ex_post else None,
        )

    def log_ratios(self, stream: generate.TokenStream) -> dict[str, tuple[float, ...]]:
        """log P(output | the larger or the former batch) / P(output | its neighbour), for each neighbour."""
        params, count = self.params, len(self.inside)
        batch, others = list(range(count)), list(range(count, count + len(self.outside)))
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
        for logits, public, example, at in self._positions([*self.inside, *self.outside], told):
            token, is_private = int(stream.tokens[len(told)]), bool(stream.is_private[len(told)])
            if params.threshold is not None:
                steps.append(distances(sets, logits, public, params))
            if is_private:
                allowed = self._allowed(public, token)
                votes = self._votes(logits, public)
                open_ = self._open(votes)
                for index, members in enumerate(sets):
                    scores = self._scores(votes, open_, members, public, example, at)[allowed]
                    chosen = int(allowed[:token].sum())
                    total[index] += scores[chosen] - np.logaddexp.reduce(scores)
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

    def _positions(
        self, private: Sequence[np.ndarray], tokens: Sequence[int]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, int, int]]:
        """Private logits, public logits, number of the example and place in it, of every position.

        The caller appends each position's token to `tokens` before it asks for the next.
        """
        params = self.params
        first = 0 if self.public is None else 1
        rows = walk(
            self.decoder,
            [*([] if self.public is None else [self.public]), *private],
            stop_tokens=self.stop_tokens,
            max_example_tokens=params.max_example_tokens,
        )
        logits, example, at = next(rows), 0, 0
        while True:
            held = logits[first:].copy()
            if self.sabotage == 'no-clipping':
                outliers = [-LOUDNESS, LOUDNESS] if params.is_ex_post else [-LOUDNESS]
                for row, factor in zip(range(len(self.inside)), outliers):
                    held[row] *= factor
            yield held, logits[0] if first else np.zeros(logits.shape[1], np.float32), example, at
            token = tokens[-1]
            ended = token in self.stop_tokens or at + 1 == params.max_example_tokens
            example, at = (example + 1, 0) if ended else (example, at + 1)
            logits = rows.send(token)

    def _votes(self, logits: np.ndarray, public: np.ndarray) -> np.ndarray:
        """What each context votes, `[rows, V]` float64: PP equation 1, or METHOD 4b for the difference."""
        c, clips = self.params.clip_bound, self.sabotage != 'no-clipping'
        finite = np.isfinite(logits).all(axis=1, keepdims=True)
        z = np.where(finite, logits, 0.0).astype(np.float64)
        if self.params.aggregate == 'difference':
            difference = _log_softmax(z) - _log_softmax(public.astype(np.float64))
            known = finite & np.isfinite(public).all()
            return np.where(known, np.clip(difference, -c, c) if clips else difference, 0.0)
        votes = z - z.max(axis=1, keepdims=True) + c
        return np.where(finite, np.maximum(votes, -c) if clips else votes, -c)

    def _scores(
        self,
        votes: np.ndarray,
        open_: np.ndarray,
        members: list[int],
        public: np.ndarray,
        example: int,
        at: int,
    ) -> np.ndarray:
        """The aggregate of some rows over τ, `[V]`."""
        params = self.params
        if self.sabotage == 'paste' and members:
            text = self.texts[members[example % len(members)]]
            scores = np.zeros(len(public))
            scores[text[at] if at < len(text) else min(self.stop_tokens)] = PASTED
            return scores
        if params.aggregate == 'median':
            return self._median(votes, open_, members, public) / params.temperature
        mean = votes[members].sum(axis=0) / params.batch_size
        if params.aggregate == 'difference':
            mean = mean + _log_softmax(public.astype(np.float64))
        return mean / params.temperature

    def _median(
        self, votes: np.ndarray, open_: np.ndarray, members: list[int], public: np.ndarray
    ) -> np.ndarray:
        """np.median over some rows; of none, the public prompt's vote (METHOD 2)."""
        if not members:
            return self._votes(public[None], public)[0]
        result = votes.min(axis=0)
        result[open_] = np.median(votes[np.array(members)][:, open_], axis=0)
        return result

    def _open(self, votes: np.ndarray) -> np.ndarray:
        """`[V]` bool: where the medians of the batch and of its neighbours may be above the lowest vote.

        With one lowest vote of the batch gone, the others are still more than half of one row more.
        """
        count = len(self.inside)
        lowest = (votes[:count] == votes.min(axis=0)).sum(axis=0)
        return 2 * (lowest - 1) <= count + 1

    def _allowed(self, public: np.ndarray, token: int | None) -> np.ndarray:
        """The tokens that could be sampled, `[V]` bool; one that was sampled is among them.

        In the replay a logit may differ by a rounding from the one that decided.
        """
        params = self.params
        logits = np.where(self.released, public.astype(np.float64), -np.inf)
        allowed, is_difference = self.released.copy(), params.aggregate == 'difference'
        if params.public_top_k is not None and params.public_top_k < len(logits):
            slack = 2 * params.clip_bound / params.batch_size if is_difference else 0.0
            allowed &= logits >= np.sort(logits)[-params.public_top_k] - slack
        if is_difference:
            widest = 2 * (MAX_CLIP_OVER_TEMPERATURE * params.temperature - params.clip_bound)
            allowed &= logits >= logits.max() - widest
        if self.sabotage == 'paste':
            allowed = self.released.copy()
        if token is not None:
            allowed[token] = True
        return allowed

    def _reported_loss(self, logits: np.ndarray, public: np.ndarray, token: int) -> tuple[float, float]:
        """The loss that the run's own accounting would state for a token of the broken mechanism."""
        rows = np.concatenate([public[None], logits])
        mask = jnp.arange(len(rows)) > 0
        return tuple(map(float, _token_losses(rows, mask, self.released, token, params=self.params)))  # type: ignore[return-value]


@functools.partial(jax.jit, static_argnames=('params',))
def _token_losses(
    rows: jax.Array, mask: jax.Array, released: jax.Array, token: jax.Array, *, params: MechanismParams
) -> Any:
    votes = mechanism.tally((jnp.asarray(rows),), (mask,), params)
    allowed = mechanism.allowed_tokens(votes, released, params)
    return params.strategy.token_losses(votes.tallied, allowed, token, params)


def distances(
    sets: Sequence[Sequence[int]], logits: np.ndarray, public: np.ndarray, params: MechanismParams
) -> np.ndarray:
    """‖(1/s) Σ softmax(z) − softmax(z_pub)‖₁ for each set of rows (PP equation 2), float64.

    Args:
        sets: Rows of each batch to compare.
        logits: `[rows, V]` raw logits.
        public: `[V]`.
        params: The mechanism.

    Returns:
        `[len(sets)]`.
    """
    finite = np.isfinite(logits).all(axis=1, keepdims=True)
    z = np.where(finite, logits, 0.0).astype(np.float64)
    shares = np.where(finite, np.exp(_log_softmax(z)), 0.0)
    expected = np.exp(_log_softmax(public.astype(np.float64)))
    return np.array(
        [np.abs(shares[list(rows)].sum(axis=0) / params.batch_size - expected).sum() for rows in sets]
    )


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


def _log_softmax(z: np.ndarray) -> np.ndarray:
    """log softmax over the last axis."""
    return z - np.logaddexp.reduce(z, axis=-1, keepdims=True)


# ---------------------------------------------------------------- keys to be reconstructed


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeySets:
    """Unique 5-digit keys, in two halves (CL D.5.1). Made up, so not private.

    Attributes:
        source: Those that the method sees.
        holdout: Those that nothing sees.
    """

    source: frozenset[str]
    holdout: frozenset[str]


def draw_keys(count: int, seed: int) -> KeySets:
    """`count` unique keys, half of them source, by a seed.

    Raises:
        ValueError: `count` is odd, or out of 2 to 100,000.
    """
    if count % 2 or not 2 <= count <= 100_000:
        raise ValueError(
            f'Expected an even number of keys from 2 to 100,000, got keys={count}. There are 100,000 in all.'
        )
    keys = [f'{number:05d}' for number in np.random.default_rng(seed).permutation(100_000)[:count]]
    return KeySets(source=frozenset(keys[: count // 2]), holdout=frozenset(keys[count // 2 :]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """How many synthetic keys are keys of the source, and how many of the holdout (CL Table 7).

    Attributes:
        keys: Keys of both halves together.
        synthetic: Synthetic texts that hold a 5-digit key.
        source_hits: Those whose key is of the source.
        holdout_hits: Those whose key is of the holdout.
        distinct: Distinct synthetic keys.
        distinct_source_hits: Distinct ones of the source.
        distinct_holdout_hits: Distinct ones of the holdout.
        examples: All synthetic texts.
    """

    keys: int
    synthetic: int
    source_hits: int
    holdout_hits: int
    distinct: int
    distinct_source_hits: int
    distinct_holdout_hits: int
    examples: int

    @property
    def p_value(self) -> float:
        """Probability of so many source keys among the distinct hits, were the output blind to the halves.

        Then the halves are a fair draw of which hit is which: hypergeometric, exactly. Distinct
        keys, since a key that the model likes comes again and again, in whichever half it is.
        """
        from scipy import stats

        hits = self.distinct_source_hits + self.distinct_holdout_hits
        return float(stats.hypergeom.sf(self.distinct_source_hits - 1, self.keys, self.keys // 2, hits))

    @property
    def ok(self) -> bool:
        """Whether source keys are not suspiciously more than holdout keys (`ALARM`)."""
        return self.p_value >= ALARM

    @property
    def conclusive(self) -> bool:
        """Whether the alarm would be raised if all distinct synthetic keys were of the source."""
        from scipy import stats

        return bool(stats.hypergeom.pmf(self.distinct, self.keys, self.keys // 2, self.distinct) < ALARM)

    def interval(self, hits: int) -> tuple[float, float]:
        """95 % confidence interval of the rate of `hits` among the distinct keys (Wilson)."""
        from scipy import stats

        if self.distinct == 0:
            return 0.0, 1.0
        found = stats.binomtest(hits, self.distinct).proportion_ci(0.95, method='wilson')
        return float(found.low), float(found.high)


def count_keys(texts: Sequence[str], sets: KeySets) -> Reconstruction:
    """Counts the synthetic keys: the first five digits of a text after the prefix, and no sixth."""
    found = [match[1] for text in texts if (match := _KEY.match(text))]
    distinct = set(found)
    return Reconstruction(
        keys=len(sets.source) + len(sets.holdout),
        synthetic=len(found),
        source_hits=sum(key in sets.source for key in found),
        holdout_hits=sum(key in sets.holdout for key in found),
        distinct=len(distinct),
        distinct_source_hits=len(distinct & sets.source),
        distinct_holdout_hits=len(distinct & sets.holdout),
        examples=len(texts),
    )


def key_batches(sets: KeySets, params: MechanismParams, key: RunKey) -> list[Batch]:
    """The source's keys as batches, by keyed hash as in a run; each key is a unit of its own.

    Args:
        sets: The keys.
        params: The mechanism. Under k > 1 without unit ids, keys share slots.
        key: Places the keys.
    """
    contexts = params.batch_size * (params.examples_per_context if params.unit == 'example' else 1)
    count = max(1, round(len(sets.source) / contexts))
    plan = BatchPlan(labels=(None,), batches_per_group=(count,), noisy_counts=None, contexts_rho=0.0)
    records = [Record(text=f'{KEY_PREFIX}{digits}.', unit=digits) for digits in sorted(sets.source)]
    return batches_of(placements(records, (None,), params, key), plan, params, key)


def reconstruct(
    generator: generate.BatchGenerator, batch: Batch, key: RunKey, *, sabotage: KeySabotage = 'none'
) -> tuple[list[str], float | None]:
    """The synthetic keys of one batch of keys, and a median's loss, by the run's mechanism or a broken one.

    Digits alone may be sampled, five for each example. Such a restriction is public and free
    (METHOD 4), and makes every example a key, however poor the model.

    Args:
        generator: With `KEY_PREFIX` as the response prefix of its prompts, and
            `max_example_tokens` of `KEY_DIGITS`.
        batch: Of `key_batches`.
        key: The key that formed it.
        sabotage: 'paste' copies the texts of the contexts to the output.

    Raises:
        ValueError: The vocabulary spells a digit with more than one token.
    """
    params, writer = generator.params, generator.writer
    digits = np.zeros(generator.decoder.vocab_size, bool)
    digits[[writer.tokenizer.single_token_id(digit) for digit in '0123456789']] = True
    draws = batch_draws(generator, batch, key)
    if sabotage == 'none':
        stream = decode(generator, batch, draws, released=digits)
    else:
        case = _Case.of(generator, batch, (), sabotage)
        stream = dataclasses.replace(case, released=digits).decode(draws)
    examples = generate.split_examples(
        stream, stop_tokens=writer.stop_tokens, max_example_tokens=params.max_example_tokens
    )
    texts = writer.texts([example.tokens for example in examples])
    return texts, output_bound(stream, params) if params.is_ex_post else None


# ---------------------------------------------------------------- batches in memory

# (keyed hash, label, cluster, texts): what one record or unit sends to its batch.
Placement = tuple[bytes, str | None, int | None, list[str]]


def placements(
    records: Iterable[Record], labels: Sequence[str | None], params: MechanismParams, key: RunKey
) -> list[Placement]:
    """What the records of declared labels send to batches: one for each record, or for each unit.

    Args:
        records: Any records.
        labels: The declared labels, or a single None.
        params: Of which the unit of privacy is read, and k.
        key: Of the audit.
    """
    known = [record for record in records if record.label in labels]
    if params.unit == 'example':
        return [(batching.record_hash(key, r), r.label, r.cluster, [r.text]) for r in known]
    by_unit: dict[str, list[batching.Candidate]] = {}
    for r in known:
        if r.unit is not None:
            by_unit.setdefault(r.unit, []).append((batching.record_hash(key, r), r.text, r.label, r.cluster))
    return [
        (batching.unit_hash(key, unit), *batching.unit_context(candidates, params.examples_per_context))
        for unit, candidates in by_unit.items()
    ]


def batches_of(
    placed: Iterable[Placement], plan: BatchPlan, params: MechanismParams, key: RunKey
) -> list[Batch]:
    """Every planned batch, as a run forms it, all in memory."""
    rows: dict[BatchId, list[batching.Row]] = {batch_id: [] for batch_id in plan.batch_ids()}
    for digest, label, cluster, texts in placed:
        group = plan.group_of(label, cluster)
        if group is not None:
            rows[batching.batch_of(digest, group, plan)].append((digest, texts))
    return [
        batching.form_batch(
            key,
            batch_id,
            held,
            plan,
            unit=params.unit,
            slots=params.batch_size,
            k=params.examples_per_context,
        )
        for batch_id, held in rows.items()
    ]
